"""Verdicts of strangers: whoever is on a node may write anything into a folder that all nodes share."""

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.report.verdicts import FULL, TOO_OLD, UNKNOWN, verdict

from .commands import command, enter
from .harness import Case, seeded
from .mutate import damaged_document, damaged_text
from .words import CONTROL, MARKUP, NAMES, UNICODE

WRITES = ("out",)
_EARLIER = {"command": "fleet report", "made": "2026-01-01T00:00:00+00:00", "nodes": []}


def cases(count: int, seed: int) -> Iterator[Case]:
    """A folder with some verdicts that are whole and some that are damaged, merged twice; then single large ones."""

    def run(folder: Path, number: int) -> None:
        rng = random.Random(number)
        verdicts = folder / "verdicts"
        verdicts.mkdir()
        whole = 0
        for place in range(12):
            document = verdict(f"n{place}", *rng.sample((TOO_OLD, FULL, UNKNOWN), rng.randrange(4)))
            text = json.dumps(document, indent=2).encode()
            if rng.random() < 0.7:
                text = json.dumps(damaged_document(rng, document)).encode()
                if rng.random() < 0.3:
                    text = damaged_text(rng, text)
            else:
                whole += 1
            name = rng.choice((f"n{place}", *NAMES.values())).replace("/", "%2F")[:100]
            (verdicts / os.fsdecode(f"{place}{name}.json".encode(errors="surrogateescape"))).write_bytes(text)
        _judge(folder, 12, whole)
        earlier = json.loads((folder / "out" / "fleet.json").read_text())
        (folder / "earlier.json").write_text(json.dumps(damaged_document(rng, earlier)))
        command(
            folder, "fleet", "report", "verdicts", "--out", "out", "--since", "earlier.json", writes=WRITES
        )

    yield from seeded(run, count, seed)
    for name, make in LARGE.items():

        def large(folder: Path, make: Callable[[Path], object] = make) -> None:
            verdicts = folder / "verdicts"
            verdicts.mkdir()
            make(verdicts / "bad.json")
            (verdicts / "good.json").write_text(json.dumps(verdict("good")))
            _judge(folder, 2, 1)

        yield Case(name, large)


def _judge(folder: Path, files: int, whole: int) -> None:
    """Each file is a node, told, or both; no whole one is lost for another's sake."""
    (folder / "nodes.txt").write_text("\n".join((*NAMES.values(), "n1", "good")), errors="replace")
    enter(folder)
    words = ("fleet", "report", "verdicts", "--out", "out", "--nodes", "nodes.txt", "--max-age", "1h")
    document = json.loads(command(folder, *words, "--json", writes=WRITES))
    command(folder, *words, writes=WRITES)
    told = document["remarked"]
    # of two of one machine the older is told as doubled, and is no node
    doubled = sum(" older one " in item["reason"] for item in document["remarks"])
    assert len(document["nodes"]) + told["unread"] + doubled == files, told
    assert len(document["nodes"]) + doubled >= whole


def _speaking() -> dict[str, Any]:
    said = CONTROL + UNICODE + MARKUP + "<script>alert(1)</script>"
    check = {**TOO_OLD, "message": said, "evidence": said, "remedy": said}
    document = verdict(said, check, driver=said[:150], os=said[:150])
    return {**document, "reason": said, "splatfix": said, "policy": {"name": said, "digest": said}}


def _text(make: Callable[[], str]) -> Callable[[Path], object]:
    return lambda path: path.write_text(make())


LARGE: dict[str, Callable[[Path], object]] = {
    "speaking": _text(lambda: json.dumps(_speaking())),
    "deep": _text(lambda: '{"checks": ' + "[" * 300_000),
    "wide": _text(lambda: json.dumps({**verdict("w"), "checks": [[]] * 200_000})),
    "fields": _text(lambda: json.dumps({**verdict("f"), **{f"x{number}": 0 for number in range(70_000)}})),
    "codes": _text(lambda: json.dumps(verdict("c", *({**FULL, "code": f"c{n}"} for n in range(6000))))),
    "sparse": lambda path: (path.touch(), os.truncate(path, 1 << 40)),
    "pipe": os.mkfifo,
    "folder": lambda path: path.mkdir(),
    "loop": lambda path: path.symlink_to("bad.json"),
    "zero": lambda path: path.symlink_to("/dev/zero"),
    "tty": lambda path: path.symlink_to("/dev/tty"),
    "number": _text(
        lambda: json.dumps(verdict("n")).replace('"schema_version": 1', '"schema_version": ' + "1" * 10**6)
    ),
    "nan": _text(lambda: json.dumps({**verdict("n"), "later": float("nan")})),
    "surrogates": _text(lambda: json.dumps(verdict("\ud800\udfff\udcff", os="\udc80"))),
    "time": _text(lambda: json.dumps({**verdict("t"), "finished": "9999-12-31T23:59:59-23:59"})),
}
