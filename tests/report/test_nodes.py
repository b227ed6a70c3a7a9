"""Verdicts of many nodes as one picture, and verdicts that nobody should believe."""

import csv
import io
import json
import os
import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from splatfix.core.codec import to_json
from splatfix.core.toml import parse_toml
from splatfix.fleet.reading import read_verdict, verdict_of
from splatfix.fleet.verdict import MOST_VERDICT
from splatfix.report.fleet import change_words, comma_separated, named, prometheus, show
from splatfix.report.hostlist import folded
from splatfix.report.html import fleet_page
from splatfix.report.merging import Merger
from splatfix.report.nodes import Before, Fleet, NodeMerger
from tests.hostile.words import CONTROL, MARKUP, UNICODE
from tests.report.html.outline import Outline
from tests.report.verdicts import FULL, NOW, TOO_OLD, UNKNOWN, verdict, write
from tests.screens import on_screen


def merged(*documents: dict[str, Any], max_age: timedelta | None = None, **more: Any) -> Fleet:
    merger = NodeMerger(NOW, max_age)
    for number, document in enumerate(documents):
        merger.add(f"{number}.json", verdict_of(document))
    return merger.merged(**more)


@pytest.mark.parametrize(
    ("names", "lists"),
    [
        ([], []),
        (["n1"], ["n1"]),
        (["n8", "n10", "n9"], ["n[8-10]"]),
        (["n08", "n09", "n10", "n100"], ["n100", "n[08-10]"]),
        (["a-1.x.y", "a-2.x.y", "a-2.z"], ["a-2.z", "a-[1-2].x.y"]),
        (["rack1-gpu3", "rack1-gpu5", "rack2-gpu1"], ["rack1-gpu[3,5]", "rack2-gpu1"]),
        (["n[1-3]", "a,b", "n1 2", "login"], ["a,b", "login", "n1 2", "n[1-3]"]),
        (["n1", "n1", "n2"], ["n[1-2]"]),
    ],
)
def test_names_are_folded_as_slurm_writes_them(names: list[str], lists: list[str]) -> None:
    assert folded(names) == lists


def test_a_long_list_of_names_says_how_many_there_are() -> None:
    shown = named([f"n{number}" for number in range(0, 2000, 2)], 60)
    assert shown.startswith("n[0,2,4,") and shown.endswith(" ... (1000 nodes in all)") and len(shown) < 90


def test_machines_are_grouped_and_a_problem_says_where_and_from_what_they_differ() -> None:
    old = {"driver": "535.183.01", "cuda": "12.2"}
    other = {**TOO_OLD, "remedy": "yum install nvidia-driver"}
    fleet = merged(
        *(verdict(f"ok{number}") for number in range(3)),
        *(verdict(f"old{number}", TOO_OLD, UNKNOWN, **old) for number in range(4)),
        verdict("old9", other, **old),
        verdict("ok7", FULL),
        verdict("cpu", UNKNOWN, gpus=[], driver=None, cuda=None, torch=None),
    )
    assert fleet.states == {"fail": 5, "warn": 1, "unknown": 1, "ok": 3} and fleet.drained == 5
    assert [(kind.name, sum(kind.states.values())) for kind in fleet.kinds] == [
        ("8 x NVIDIA H100 80GB HBM3, driver 535.183.01, torch 2.11.0+cu130", 5),
        ("8 x NVIDIA H100 80GB HBM3, driver 580.95.05, torch 2.11.0+cu130", 4),
        ("no GPU known", 1),
    ]
    assert [(item.code, item.state.value, item.drains, item.nodes) for item in fleet.problems] == [
        ("driver-too-old", "fail", True, 5),
        ("disk-full", "fail", False, 1),
        ("nvml", "unknown", False, 5),
    ]
    too_old, full, nvml = fleet.problems
    assert (too_old.command, too_old.advised) == ("apt-get install nvidia-driver-580", 4)
    (place,) = too_old.places
    assert (place.alike_ok, place.part, place.value, place.ok_with) == (
        0,
        "driver",
        "535.183.01",
        ("580.95.05",),
    )
    assert (full.places[0].alike_ok, full.places[0].part, full.places[0].nodes) == (3, "", ("ok7",))
    assert [len(item.nodes) for item in nvml.places] == [4, 1] and nvml.command == ""
    assert [node.problems for node in fleet.nodes if node.name == "old0"] == [("driver-too-old",)]


def test_a_verdict_that_is_missing_late_ahead_or_doubled_is_told_and_counted_where_it_can_be() -> None:
    day, hour = timedelta(days=1), timedelta(hours=1)
    fleet = merged(
        verdict("fine", age=timedelta(minutes=59)),
        verdict("late", age=3 * hour),
        verdict("late-and-broken", TOO_OLD, age=2 * day),
        verdict("ahead", age=-5 * hour),
        verdict("skewed", age=timedelta(seconds=-100)),
        verdict("twice", FULL, age=day),
        verdict("twice"),
        verdict("twins", machine="a"),
        verdict("twins", machine="b"),
        max_age=hour,
        listed=dict.fromkeys(
            ("fine", "late", "late-and-broken", "ahead", "skewed", "twice", "twins", "gone"), ""
        ),
    )
    told = [(item.why.value, item.node, item.reason.partition(" ")[0]) for item in fleet.remarks]
    assert told == [
        ("lost", "gone", "there"),
        ("late", "late", "it"),
        ("late", "late-and-broken", "it"),
        ("ahead", "ahead", "it"),
        *[("doubled", "twice", "an"), ("doubled", "twins", "2"), ("doubled", "twins", "2")],
    ]
    states = {node.name: node.state.value for node in fleet.nodes}
    assert states["late"] == states["ahead"] == "unknown" and states["late-and-broken"] == "fail"
    assert states["fine"] == states["skewed"] == states["twice"] == "ok" and len(fleet.nodes) == 8
    assert "3 hours ago" in fleet.remarks[1].reason and "5 hours from now" in fleet.remarks[3].reason
    assert fleet.remarks[4].file == "5.json", "the older of the two is told"
    unlisted = merged(verdict("a"), verdict("b"), listed={"a": ""})
    assert [(item.why.value, item.node) for item in unlisted.remarks] == [("unlisted", "b")]
    killed = merged(verdict("a"), listed={"a": "its worker was killed"})
    assert (killed.remarks[0].reason, killed.states["unknown"]) == ("its worker was killed", 1)


def test_what_changed_since_the_last_report() -> None:
    earlier = merged(
        verdict("a"), verdict("b", TOO_OLD), verdict("c", FULL), verdict("d"), verdict("same", UNKNOWN)
    )
    before = Before(earlier.made, earlier.nodes)
    now = merged(
        *(verdict("a", FULL), verdict("b"), verdict("c", TOO_OLD), verdict("e"), verdict("same", UNKNOWN)),
        before=before,
    )
    assert {(change_words(item), *item.nodes) for item in now.changes} == {
        ("warn → fail: driver-too-old, no more disk-full", "c"),
        ("ok → warn: disk-full", "a"),
        ("fail → ok: no more driver-too-old", "b"),
        ("new → ok", "e"),
        ("ok → gone", "d"),
    }
    assert change_words(now.changes[0]).startswith("warn → fail"), "what failed comes first"
    assert merged(verdict("a"), before=Before("x", merged(verdict("a")).nodes)).changes == ()


Make = Callable[[Path], object]
TEXT = json.dumps(verdict("n"), indent=2)


def changed(**changes: Any) -> Make:
    return lambda path: path.write_text(json.dumps({**verdict("n"), **changes}))


def of_alike(**changes: Any) -> Make:
    return lambda path: path.write_text(json.dumps(verdict("n", **changes)))


SILENT = {"evidence": "", "remedy": ""}
REFUSED = parse_toml(Path(__file__).with_name("refused_verdicts.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        *((partial(Path.write_text, data=text), why) for text, why in REFUSED["texts"]),
        *((changed(**changes), why) for changes, why in REFUSED["changes"]),
        (lambda path: path.write_text(TEXT[:400]), "it is cut off"),
        (lambda path: path.write_bytes(b"\0" * 4000), "it is cut off"),
        (lambda path: path.write_bytes(b"\xff\xfe{}"), "it is no JSON"),
        (lambda path: path.write_text('{"a": ' * 100_000 + "}"), "nested too deeply"),
        (lambda path: path.write_text(TEXT + " " * MOST_VERDICT), "larger than"),
        (lambda path: path.write_text('{"kind": ' + "9" * 9000 + "}"), "too large"),
        (lambda path: path.mkdir(), "a folder"),
        (os.mkfifo, "a named pipe"),
        (lambda path: path.symlink_to("/dev/zero"), "a device"),
        (lambda path: path.symlink_to(path.name), "symbolic links"),
        (lambda path: path.symlink_to("nowhere"), "no such file"),
        (changed(node="n" * 300), "300 letters"),
        (changed(checks=[TOO_OLD | SILENT]), "it says ok, and its checks"),
        (changed(checks=[UNKNOWN | SILENT] * 501), "501 checks"),
        (changed(checks=[UNKNOWN | SILENT | {"code": "=cmd()"}]), "the code of a check"),
        (changed(alike=None), r"\$\.alike"),
        (of_alike(gpus=["x"] * 65), "too long"),
        (of_alike(driver="5" * 201), "too long"),
        (of_alike(driver=float("inf")), "is no JSON"),
    ],
)
def test_a_file_that_is_no_whole_verdict_says_why(make: Make, why: str, tmp_path: Path) -> None:
    path = tmp_path / "n.json"
    make(path)
    with pytest.raises(ValueError, match=why) as refused:
        read_verdict(path)
    assert not str(refused.value).endswith(".")


def test_a_verdict_of_a_newer_splatfix_is_read_as_far_as_it_is_known(tmp_path: Path) -> None:
    path = write(tmp_path, verdict("n", TOO_OLD, later={"a": 1})) / "n.json"
    assert [check.code for check in read_verdict(path).checks] == ["driver-too-old"]


def test_words_of_strangers_stay_words() -> None:
    said = CONTROL + UNICODE + MARKUP + "<script>alert(1)</script>\n| x |\ud800"
    formula = "=HYPERLINK(1)"
    check = {**TOO_OLD, "message": said, "evidence": said, "remedy": said}
    alike = dict.fromkeys(("driver", "cuda", "torch", "kernel", "os", "python"), said[:150])
    hostile = verdict(said, check, **alike, gpus=[said[:150]], machine="m\n")
    documents = [hostile, verdict(formula, age=timedelta(hours=-4)), verdict("fine")]

    def made(*documents: dict[str, Any]) -> Fleet:
        merger = NodeMerger(NOW)
        for document in documents:
            merger.add(f"{document['node']}.json", verdict_of(document))
        merger.refuse(f"{said}.json", f"{said}.json", said)
        return merger.merged({said: said, "lost\x1b[2J": ""}, Before(said, ()))

    fleet = made(*documents)
    plain = made(verdict("x", TOO_OLD, driver="1"), verdict("y", age=timedelta(hours=-4)), verdict("z"))
    pages = [fleet_page(item, Merger().merged(), [(said, said)], "fleet.json") for item in (fleet, plain)]
    assert (
        Outline(pages[0]).tags == Outline(pages[1]).tags | {"p", "pre"}
        and "alert(1)</script>" not in pages[0]
    )
    printed = on_screen(show, fleet, "page", width=120)
    rows, gauges = comma_separated(fleet), prometheus(fleet)
    for text in (pages[0], printed, rows, gauges):
        assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e\u2066\u200b\u2028\ud800]", text)
        text.encode()
    table = list(csv.reader(io.StringIO(rows)))
    assert {len(row) for row in table} == {16} and {row[0][:1] for row in table} >= {"'", "\\"}
    assert not [cell for row in table for cell in row if re.match(r"[=+@\t\r-]", cell)]
    sample = re.compile(r'splatfix_\w+\{([a-z]+="([^"\\\n]|\\[\\"n])*",?)*\} \S+')
    assert not [line for line in gauges.splitlines() if not (line.startswith("# ") or sample.fullmatch(line))]
    json.dumps(to_json(fleet), allow_nan=False)
