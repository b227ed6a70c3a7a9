"""``splatfix report``: what was certified earlier is shown as it was then."""

import copy
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import splatfix.certify
from splatfix import __version__
from splatfix.app.certify import run_and_report
from splatfix.certify import Certificate
from splatfix.core.codec import to_json
from splatfix.core.files import sha256_of
from splatfix.report.difference import compare, markdown
from splatfix.report.recorded import StoredCertificate, fix_of, problems_of
from tests.certify.conftest import RESULT, SHORT, RecordedTrainer, subject
from tests.cli.test_documents import check
from tests.conftest import Splatfix
from tests.machines import facts_of


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Certificate]]:
    """The report folder of the recorded run, and its certificate. It has a failed binary and options against that."""
    folder = tmp_path_factory.mktemp("certified") / "report"
    with pytest.MonkeyPatch.context() as patch:
        certify = partial(splatfix.certify.certify, runner=RecordedTrainer())
        patch.setattr("splatfix.app.certify.train_and_judge", certify)
        # the machine that the tests run on may have no Pillow
        patch.setattr("splatfix.certify.smoke_training.require_packages", lambda *names: None)
        result, options = run_and_report(subject(SHORT, folder), facts_of("rtx-3090-and-5090"))
    assert options is not None
    yield folder, result


@pytest.fixture
def recorded(certified: tuple[Path, Certificate], tmp_path: Path) -> tuple[Path, Certificate]:
    """A copy of it, to be changed."""
    folder, certificate = certified
    return Path(shutil.copytree(folder, tmp_path / "report")), certificate


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_a_certificate_is_shown_as_certify_gave_it(
    form: str, recorded: tuple[Path, Certificate], splatfix: Splatfix
) -> None:
    folder, _ = recorded
    suffix = {"markdown": "md", "html": "html"}[form]
    expected = (folder / f"certificate.{suffix}").read_text(encoding="utf-8")
    assert sha256_of(folder / "certificate.json") in expected
    done = splatfix("report", "show", folder / "certificate.json", "--format", form)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == expected


@pytest.mark.parametrize("verdict", ["certified", "rehearsed", "undetermined"])
@pytest.mark.parametrize("command", ["show", "diff", "merge"])
def test_a_verdict_that_was_edited_counts_nowhere(
    command: str, verdict: str, recorded: tuple[Path, Certificate], splatfix: Splatfix, tmp_path: Path
) -> None:
    """It follows from levels and criteria, which every reader asks."""
    folder, _ = recorded
    file = folder / "certificate.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    assert document["verdict"] == "not-certified"
    file.write_text(json.dumps({**document, "verdict": verdict}), encoding="utf-8")
    arguments = {"show": [], "diff": [file], "merge": ["--out", tmp_path / "merged"]}[command]
    done = splatfix("report", command, file, *arguments, "--json")
    answer = json.loads(done.stdout)
    assert "contradicts itself" in done.stdout and f"it says {verdict}" in done.stdout
    if command == "merge":
        assert done.returncode == 3 and not (tmp_path / "merged").exists()
    else:
        assert (done.returncode, answer["error"]["code"]) == (2, "not-a-certificate")


@pytest.mark.parametrize(
    ("changes", "contradiction"),
    [
        ({}, "nothing failed in it"),
        ({"verdict": "certified"}, ""),
        ({"verdict": "certified", "interrupted": True}, "stayed open: interrupted"),
        (
            {"verdict": "certified", "diagnosis": [{"code": "torch-missing", "outcome": "undetermined"}]},
            "stayed open: torch-missing",
        ),
        (
            {
                "verdict": "certified",
                "level": 2,
                "kernels": [{"kind": "native", "outcome": "not-measured", "implementation": "gsplat"}],
            },
            "stayed open: gsplat",
        ),
    ],
)
def test_a_verdict_is_what_follows_from_the_rest(
    changes: dict[str, Any], contradiction: str, recorded: tuple[Path, Certificate], splatfix: Splatfix
) -> None:
    file = recorded[0] / "certificate.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    for scene in document["scenes"]:
        scene["criteria"] = [item for item in scene["criteria"] if item["outcome"] == "met"]
    for rung in document["proof"]:
        rung["reached"] = True
    file.write_text(json.dumps({**document, "kernels": [], **changes}), encoding="utf-8")
    done = splatfix("report", "show", file)
    assert (done.returncode, contradiction in done.stderr) == (2 if contradiction else 0, True), done.stderr


def test_the_terminal_and_the_json_say_what_certify_said(
    recorded: tuple[Path, Certificate], splatfix: Splatfix
) -> None:
    folder, certificate = recorded
    written = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    done = splatfix("report", "show", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"NOT CERTIFIED: {certificate.summary}\n")
    assert f"Report: {folder / 'certificate.html'}" in done.stdout and "Suggested fix: " in done.stdout
    shown = check(json.loads(splatfix("report", "show", folder, "--json").stdout))
    assert (shown["command"], shown["exit_code"], shown["issued_by"]) == ("report show", 0, __version__)
    envelope, added = ("command", "exit_code"), ("file", "issued_by", "sha256")
    assert {key: value for key, value in shown.items() if key not in (*envelope, *added)} == {
        key: value for key, value in written.items() if key not in envelope
    }


def test_a_page_says_which_pictures_are_gone(recorded: tuple[Path, Certificate], splatfix: Splatfix) -> None:
    folder, _ = recorded
    (folder / "figurine" / "trainer.log").unlink()
    done = splatfix("report", "show", folder, "--format", "html")
    assert done.returncode == 0 and done.stdout.startswith("<!DOCTYPE html>")
    assert "1 file (figurine/trainer.log)" in done.stderr


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        (("schema_version",), 1, "other-schema"),
        (("command",), "diagnose", "not-a-certificate"),
        (("verdict",), ["certified"], "not-a-certificate"),
        (("issued",), "yesterday", "not-a-certificate"),
        (("facts",), None, "not-a-certificate"),
        (("suite",), 3, "not-a-certificate"),
        (("scenes", 0, "log"), "../../secret", "not-a-certificate"),
        (("scenes", 0, "images"), ["/etc/hostname"], "not-a-certificate"),
        (("scenes", 0, "result", "resolution"), [1], "not-a-certificate"),
        (("scenes", 0, "result", "gaussians"), {}, "not-a-certificate"),
        (("scenes", 0, "result", "heldout"), {"psnr": "high"}, "not-a-certificate"),
        (("scenes", 0, "result", "notes"), 3, "not-a-certificate"),
        (("scenes", 0, "result", "heldout", "lpips"), "low", "not-a-certificate"),
        (("options", "advice", "option", "title"), "another", "not-a-certificate"),
        (("options", "advice", "option", "steps"), [{"text": 3}], "not-a-certificate"),
    ],
)
def test_what_is_no_certificate_of_ours_is_refused(
    path: tuple[str | int, ...],
    value: Any,
    code: str,
    recorded: tuple[Path, Certificate],
    splatfix: Splatfix,
) -> None:
    folder, _ = recorded
    change(folder, path, value)
    done = splatfix("report", "show", folder, "--format", "markdown")
    assert (done.returncode, done.stdout) == (2, "") and f"error ({code})" in done.stderr, done.stderr


def change(folder: Path, path: tuple[str | int, ...], value: Any) -> None:
    """Change one place of a certificate."""
    file = folder / "certificate.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(with_value(document, path, value)), encoding="utf-8")


def with_value(document: dict[str, Any], path: Sequence[str | int], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    inner: Any = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


def damaged(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The document with every other type in each of its places, but the verdict's."""
    for path in places(document):
        if path != ["verdict"]:
            for value in (None, 3, 1e400, "x", [], [[]], {}, {"": {}}, True):
                yield with_value(document, path, value)


def test_diff_names_the_first_cause_and_every_outcome(
    recorded: tuple[Path, Certificate], splatfix: Splatfix, tmp_path: Path
) -> None:
    a, _ = recorded
    b = tmp_path / "b"
    shutil.copytree(a, b)
    assert "Nothing differs." not in splatfix("report", "diff", a, b).stdout, "not all was recorded"
    run = ("scenes", 0)
    change(b, (*run, "result", "config", "seed"), 7)
    change(b, (*run, "result", "implementations", "ssim", "sha256"), "0" * 64)
    change(b, ("environment", "torch"), "9.9")
    change(b, ("environment", "driver"), "1.0")  # no driver was used on the CPU
    change(b, (*run, "result", "heldout", "psnr"), RESULT["heldout"]["psnr"] / 2)
    change(b, (*run, "criteria", 3, "outcome"), "failed")
    found = check(json.loads(splatfix("report", "diff", a, b, "--json").stdout))
    assert (found["exit_code"], found["worse"]) == (1, True)
    assert [item["part"] for item in found["causes"]] == ["torch", "ssim", "seed"]
    assert (found["first_cause"], found["first_cause"]["b"]) == (found["causes"][0], "9.9")
    (changed,) = found["changes"]
    assert (changed["where"], changed["a"], changed["b"]) == ("figurine", "met", "failed")
    psnr = next(item for item in found["measures"] if item["name"] == "PSNR")
    assert psnr["change"] == pytest.approx(-0.5)
    back = splatfix("report", "diff", b, a, "--format", "markdown")
    assert back.returncode == 0 and "**First cause that differs: torch: 9.9 in A" in back.stdout


def test_diff_compares_the_settings_of_shared_scenes_only() -> None:
    def certificate(**scenes: int) -> dict[str, Any]:
        runs = [
            {"scene": name, "result": {"config": {"iterations": count}}} for name, count in scenes.items()
        ]
        return {"verdict": "certified", "device": "cpu", "scenes": runs}

    found = compare("a", certificate(fruit=300, desk=200), "b", certificate(fruit=300, room=900))
    assert (found.causes, found.only_in_a, found.only_in_b) == ((), ("desk",), ("room",))
    found = compare("a", certificate(fruit=300), "b", certificate(fruit=200))
    assert found.first_cause is not None and found.first_cause.part == "iterations" and not found.worse


def test_diff_of_runs_without_a_common_scene_says_that_they_cannot_be_compared(
    splatfix: Splatfix, recorded: tuple[Path, Certificate], tmp_path: Path
) -> None:
    def ended(**changes: Any) -> dict[str, Any]:
        base = {"verdict": "undetermined", "device": "cpu", "scenes": [], "interrupted": True}
        return base | {"environment": {"splatfix": "0.1.0"}} | changes

    commit = {"splatfix": "0.1.0 (commit 1a2b3c4)"}
    found = compare("a", ended(), "b", ended(environment=commit))
    assert (found.worse, found.comparable, found.first_cause) == (False, False, None)
    assert found.not_recorded == ("splatfix's commit",)
    assert markdown(found).startswith("# A and B cannot be compared: no scene was trained to its end in both")
    other = {"splatfix": "0.1.0 (commit 9f8e7d6)"}
    cause = compare("a", ended(environment=commit), "b", ended(environment=other)).first_cause
    assert cause is not None and (cause.part, cause.a, cause.b) == ("commit", "1a2b3c4", "9f8e7d6")
    a, _ = recorded
    b = tmp_path / "b"
    shutil.copytree(a, b)
    change(b, ("scenes", 0, "scene"), "another")
    done = splatfix("report", "diff", a, b)
    assert done.returncode == 3 and done.stdout.startswith("? A and B cannot be compared"), done.stdout
    assert splatfix("report", "diff", a, a).returncode == 0


def test_diff_names_the_run_level_and_the_check_that_failed() -> None:
    def certificate(level: int, outcome: str) -> dict[str, Any]:
        diagnosis = [{"code": "torch-missing", "outcome": outcome, "measured": "none"}]
        verdict = "certified" if outcome == "met" else "not-certified"
        return {"verdict": verdict, "device": "cpu", "scenes": [], "level": level, "diagnosis": diagnosis}

    found = compare("a", certificate(1, "met"), "b", certificate(2, "failed"))
    assert found.first_cause is not None and found.first_cause.part == "run-level"
    (changed,) = found.changes
    assert found.worse and (changed.where, changed.code) == ("diagnosis", "torch-missing")
    (problem,) = problems_of(StoredCertificate(certificate(2, "failed")))
    assert (problem.kind, problem.code, problem.where) == ("diagnosis", "torch-missing", "")


def test_diff_compares_packages_and_kernels() -> None:
    """A fused_ssim that one does not have and the other has broken, and another numpy."""

    def certificate(packages: dict[str, str], **kernel: Any) -> dict[str, Any]:
        checked = {"name": "ssim", "implementation": "fused_ssim", **kernel}
        installed = [{"name": name, "version": version} for name, version in packages.items()]
        return {
            "verdict": "certified",
            "device": "cpu",
            "level": 2,
            "suite": "quick",
            "renderer": "torch",
            "kernels": [checked],
            "facts": {"environment": {"distributions": {"value": installed}}},
        }

    absent = certificate({"numpy": "1.26.4"}, outcome="not-measured")
    broken = certificate({"numpy": "2.1.0", "fused_ssim": "0.3"}, outcome="failed", value_error=0.47)
    found = compare("a", absent, "b", broken)
    (cause,) = found.causes
    assert (cause.part, cause.a, cause.b) == (
        *("packages", "no fused-ssim, numpy 1.26.4"),
        "fused-ssim 0.3, numpy 2.1.0",
    )
    assert [(item.name, item.a, item.b) for item in found.packages] == [
        ("fused-ssim", "", "0.3"),
        ("numpy", "1.26.4", "2.1.0"),
    ]
    (changed,), (error,) = found.changes, found.measures
    assert found.worse and (changed.where, changed.b) == ("kernel", "failed") and error.b == 0.47
    unrecorded = compare("a", {**absent, "facts": {}}, "b", absent)
    assert unrecorded.not_recorded == ("packages",) and "packages" not in unrecorded.in_neither
    same = compare("a", absent, "b", absent)
    assert (same.causes, same.changes) == ((), ()) and {"torch", "Python"} <= set(same.in_neither)
    assert not same.complete and "Nothing differs." not in markdown(same)
    assert "packages" in compare("a", {**absent, "facts": {}}, "b", {**absent, "facts": {}}).in_neither


def test_nothing_differs_only_where_everything_was_compared() -> None:
    document = {
        "verdict": "certified",
        "device": "cpu",
        "level": 3,
        "suite": "quick",
        "renderer": "torch",
        "environment": dict.fromkeys(("system", "python", "torch", "CPU", "splatfix"), "1"),
        "scenes": [{"scene": "fruit", "result": RESULT}],
        "sources": {"a.py": "0"},
        "facts": {
            "machine": {"kernel": "6"},
            "environment": {"distributions": {"value": [{"name": "numpy", "version": "2"}]}},
        },
    }
    found = compare("a", document, "b", document)
    assert found.in_neither == () and found.complete and "**Nothing differs.**" in markdown(found)
    slower = with_value(document, ("scenes", 0, "result", "iterations_per_second"), 1e-3)
    assert not compare("a", document, "b", slower).complete


@pytest.mark.slow
def test_diff_survives_whatever_a_document_holds(survived: Callable[[str, int], None]) -> None:
    certificate = {
        "verdict": "certified",
        "device": "cuda",
        "environment": {"GPU": "H200 (cuda)"},
        "proof": [{"name": "trains", "reached": True, "shown_by": "x"}],
        "kernels": [{"name": "ssim", "outcome": "failed"}],
        "scenes": [
            {"scene": "fruit", "criteria": [{"code": "loss-falls", "outcome": "met"}], "result": RESULT}
        ],
        "options": {"advice": {"option": {"title": "t", "steps": []}, "also_needed": [{"text": "x"}]}},
        "sources": {"a.py": "0"},
        "facts": {"machine": {"kernel": "6"}},
    }
    count = 0
    for other in damaged(certificate):
        difference = compare("a", certificate, "b", other)
        json.dumps(to_json(difference), allow_nan=False)
        assert markdown(difference).startswith(("# B is ", "# A and B cannot be compared"))
        undetermined = StoredCertificate({**other, "verdict": "undetermined"})
        assert all(problem.kind for problem in problems_of(undetermined))
        fix = fix_of(undetermined, None)
        assert fix is None or fix.title
        count += 1
    survived("certificates with a changed place in report diff", count)
    assert count > 1000


def places(value: Any, *path: Any) -> Iterator[list[Any]]:
    """The path of every value inside."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield [*path, key]
        yield from places(item, *path, key)
