"""``splatfix report merge``: the matrix of a lab's certificates, and their failures by cause."""

import copy
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from msgspec.structs import replace

from splatfix.certify import Certificate, Verdict
from splatfix.core.codec import from_json, to_json
from splatfix.core.reading import Unread
from splatfix.core.step import Command, run, say
from splatfix.model.option import Advice, OptionKind, Options, Plan
from splatfix.report.merging import (
    Group,
    MergeDocument,
    Summary,
    markdown,
    merge,
    merged_page,
    show,
    summary_of,
)
from tests.certify.conftest import RESULT
from tests.cli.test_documents import check
from tests.conftest import Splatfix
from tests.files import put
from tests.hostile.words import CONTROL, MARKUP, UNICODE
from tests.report.certificates import DRIVERS, GPUS, TORCHES, varied
from tests.report.html.outline import Outline
from tests.screens import on_screen

MET = {"code": "loss-falls", "outcome": "met", "measured": "0.3 to 0.1", "required": "it falls"}
KERNEL = {"name": "ssim", "implementation": "fused_ssim", "outcome": "failed"}
BASE: dict[str, Any] = {
    "schema_version": 2,
    "command": "certify",
    "splatfix_version": "0.1.0",
    "verdict": "certified",
    "summary": "",
    "reasons": [],
    "repeat": to_json(Command(("splatfix", "certify"))),
    "issued": "2026-01-01T12:00:00+00:00",
    "seconds": 1.0,
    "device": "cuda",
    "renderer": "gsplat",
    "suite": "quick",
    "proof": [],
    "kernels": [],
    "environment": {"python": "3.11.7"},
    "scenes": [{"scene": "fruit", "criteria": [MET], "seconds": 1.0, "result": RESULT}],
    "options": None,
    "facts": {},
}
OTHERS = ("schema_version", "command", "splatfix_version", "options", "facts")
"""What of a document is no part of the certificate itself."""


def summary(folder: str, document: dict[str, Any]) -> Summary:
    content = {name: value for name, value in document.items() if name not in OTHERS}
    options: Options | None = from_json(Options | None, document["options"])  # type: ignore[arg-type]
    file = f"{folder}/certificate.json"
    return summary_of(file, quote(file), from_json(Certificate, content), options)


def merged(*documents: dict[str, Any]) -> MergeDocument:
    return merge([summary(str(number), document) for number, document in enumerate(documents)])


def write(folder: Path, document: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    (folder / "certificate.json").write_text(json.dumps(document), encoding="utf-8")
    return folder


def test_every_certificate_is_in_one_cell_and_failures_are_grouped_by_what_failed_first() -> None:
    lab = list(varied(BASE))
    found = merged(*lab)
    assert len(found.cells) == len(lab) == 160
    assert found.verdicts == {
        verdict.value: sum(item["verdict"] == verdict.value for item in lab) for verdict in Verdict
    }
    (gsplat, table), (inria, _) = found.tables.items()
    assert gsplat.startswith("gsplat: ") and inria.startswith("inria: ")
    assert table.headers[2:] == TORCHES, "2.9 comes before 2.11"
    gpu, driver, *cells = table.rows[0]
    assert gpu in GPUS and driver == DRIVERS[0] and [cell and cell.torch for cell in cells] == list(TORCHES)
    failed = {group.code: group for group in found.groups if group.code != "loss-falls"}
    assert {*failed} == {"gradients-xyz", "no-kernel-image"} and all(group.means for group in failed.values())
    assert sum(len(group.certificates) for group in failed.values()) == found.verdicts["not-certified"]
    common = failed["gradients-xyz"].in_common
    assert {"GPU Tesla T4", "renderer asked for gsplat"} <= set(common) and len(common) == 3
    assert "criterion no-kernel-image in 28: " in on_screen(show, found).splitlines()[2], "the largest first"


def group_of(*documents: dict[str, Any]) -> Group:
    (group,) = merged(*documents).groups
    return group


def changed(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(BASE), **changes}


def test_what_failures_have_in_common_is_said() -> None:
    broken = {"name": "loads", "reached": False, "shown_by": "broken"}
    failed = changed(verdict="not-certified", proof=[broken], environment={"python": "3.12.1"})
    same = group_of(BASE, failed, failed)
    assert (same.kind, same.code, same.measured) == ("level", "loads", "broken")
    assert same.in_common == ("python 3.12.1",)
    assert group_of(BASE, failed).in_common == () == group_of(failed, failed).in_common
    crashed = {**failed, "scenes": [], "environment": {}}  # it left no result to compare
    assert group_of(BASE, crashed, crashed).in_common == ()
    diagnosed = changed(level=1, scenes=[])  # it is no peer of a training that failed
    assert group_of(diagnosed, failed, failed).in_common == ()


def advised(title: str) -> dict[str, Any]:
    option = Plan(OptionKind.REBUILD, title, (run("splatfix", "install", "a b", text=f"build {title}"),))
    document: dict[str, Any] = to_json(Options((), (), (option,), advice=Advice(option)))
    return document


def test_a_group_has_the_fix_that_most_of_it_advise() -> None:
    advising = {
        title: changed(verdict="not-certified", interrupted=True, options=advised(title)) for title in "ab"
    }
    ended = changed(verdict="undetermined", interrupted=True)
    group = group_of(advising["a"], advising["a"], advising["b"], ended)
    assert (group.code, group.fix[0].text) == ("interrupted", "build a")
    command = group.fix[0].command
    assert command is not None and command.argv == ("splatfix", "install", "a b")
    assert group_of(ended).fix == (say("run it again"),)
    old = {**MET, "code": "driver-too-old", "outcome": "failed", "advice": "Install a newer driver."}
    unadvised = changed(verdict="not-certified", diagnosis=[old], kernels=[KERNEL])
    group = group_of(unadvised, unadvised)
    assert (group.kind, group.code, group.also) == ("diagnosis", "driver-too-old", ("ssim",))
    assert group.fix == (say("Install a newer driver."),)
    bare = group_of(changed(verdict="not-certified", diagnosis=[{**old, "advice": ""}]))
    assert bare.fix[0].text == "look for the cause where it failed"


def test_every_cell_is_linked_and_what_cannot_be_read_is_listed(splatfix: Splatfix, tmp_path: Path) -> None:
    lab = tmp_path / "lab"
    names = ["a b", "100% (c)#d?", "<img src=x>", "[x](javascript:y)", "ünï`code", "javascript:alert(1)"]
    for name in names:
        write(lab / name, changed(environment={"GPU": f"{name} (cuda)", "driver": "1|2`", "torch": "[2](x)"}))
    page = lab / names[0] / "certificate.html"
    for folder in ("pipe", "gone"):
        (lab / folder).mkdir()
    files = {
        f"{names[0]}/certificate.html": "the page",
        "text.json": "no JSON",
        f"{names[1]}/previous/certificate.json": json.dumps(BASE),
        "old/certificate.json": json.dumps(changed(schema_version=1)),
        "other/certificate.json": json.dumps({"command": "diagnose", "verdict": "certified"}),
        "deep/certificate.json": '{"a": ' + "[" * 100_000,
        "cut/certificate.json": json.dumps(BASE)[:-2],
    }
    put(lab, files)
    (lab / "gone" / "certificate.json").symlink_to(lab / "nowhere")
    out = tmp_path / "some out"
    paths = (lab, lab / names[0] / "certificate.json", lab / "text.json", lab / "pipe")
    done = splatfix("report", "merge", *paths, "--out", out, "--json")
    document = check(json.loads(done.stdout))
    assert (done.returncode, document["verdicts"]["certified"]) == (0, len(names)), done.stderr
    reasons = {
        str(Path(item["path"]).relative_to(tmp_path)).removesuffix("/certificate.json"): item["reason"]
        for item in document["unreadable"]
    }
    said = {
        "old": "schema_version 1",
        "other": "not a certificate",
        "deep": "nested too deeply",
        "cut": "is not a certificate",
        "gone": "No such file",
        "text.json": "is not a certificate",
        "pipe": "there is no certificate.json in it",
    }
    assert all(words in reasons[f"lab/{name}"] for name, words in said.items())
    assert len(reasons) == len(document["unreadable"]) == 7
    linked = [unquote(item["link"]) for cell in document["cells"] for item in cell["certificates"]]
    assert {(out / link).resolve() for link in linked} == {
        page if name == names[0] else lab / name / "certificate.json" for name in names
    }
    assert json.loads((out / "certificates.json").read_text(encoding="utf-8")) == document
    shown = Outline((out / "certificates.html").read_text(encoding="utf-8"))
    targets = {link for link in shown.links if not link.startswith("#")}
    assert {unquote(link) for link in targets} == {*linked, "certificates.json"}
    assert not {link for link in targets if re.match(r"[a-z]+:", link)} and "img" not in shown.tags
    text = (out / "certificates.md").read_text(encoding="utf-8")
    assert all(f"]({item['link']})" in text for cell in document["cells"] for item in cell["certificates"])
    assert not re.search(r"(?<!\\)\]\((?!\.\./lab/)|(?<!\\)<", text)


def test_an_earlier_matrix_is_set_aside(splatfix: Splatfix, tmp_path: Path) -> None:
    write(tmp_path / "lab", BASE)
    for _ in range(2):
        done = splatfix("report", "merge", tmp_path / "lab", "--out", tmp_path / "out")
        assert done.returncode == 0 and "1 certificate: 1 certified" in done.stdout
    aside = sorted(path.suffix for path in (tmp_path / "out" / "previous").iterdir())
    assert aside == [".csv", ".html", ".json", ".md"]


def test_who_trained_nothing_is_not_counted_as_one_who_did() -> None:
    found = merged(BASE, changed(level=1), changed(level=2, verdict="not-certified"), changed(level=3))
    page, text = merged_page(found), markdown(found)
    for made in (page, text):
        assert "3 certified, 1 of them without training" in made and "1 not certified" in made
        told = [f"run level {level}, nothing trained" in made for level in (1, 2, 3)]
        assert told == [True, True, False]


def test_nothing_that_can_be_read_is_undetermined_and_writes_nothing(
    splatfix: Splatfix, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.json").write_text("no JSON")
    words = ("report", "merge", tmp_path / "empty", "--out", tmp_path / "out", "--json")
    for name, code, exit_code in (("x.json", "nothing-to-merge", 3), ("y.json", "cannot-read", 2)):
        document = check(json.loads(splatfix(*words, tmp_path / name).stdout))
        assert (document["error"]["code"], document["exit_code"]) == (code, exit_code)
        assert len(document.get("unreadable", ())) == (2 if code == "nothing-to-merge" else 0)
    assert not (tmp_path / "out").exists()


def test_words_of_strangers_stay_words() -> None:
    said = CONTROL + UNICODE + MARKUP + "<script>alert(1)</script>\n| x |"
    failed = [{"code": said, "outcome": "failed", "measured": said, "required": said, "why": said}]
    option = Plan(OptionKind.REBUILD, said, (run(said, text=said),))
    hostile = changed(
        verdict="not-certified",
        device=said,
        renderer=said,
        suite=said,
        issued=said,
        environment=dict.fromkeys(("GPU", "driver", "torch", "renderer"), said),
        scenes=[{"scene": said, "criteria": failed, "seconds": 1.0}],
        options=to_json(Options((), (), (option,), advice=Advice(option))),
    )
    found = replace(merged(hostile, BASE), unreadable=(Unread(said, said),))
    page, text = merged_page(found), markdown(found)
    plain = merged(changed(verdict="not-certified", interrupted=True, options=advised("x")), BASE)
    assert Outline(page).tags == Outline(merged_page(replace(plain, unreadable=(Unread("x", "y"),)))).tags
    assert "alert(1)</script>" not in page
    for made in (page, text):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2066\u200b\u2028]", made)
    rows = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in rows} == {4}
    assert "<script" not in text.replace("\\<script", "")
