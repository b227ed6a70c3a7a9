"""Certificates of strangers: damaged ones, ones with names that a terminal or a page would obey, and very large ones."""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from splatfix.app.certify import suggested_options
from splatfix.certify import Verdict
from splatfix.core.codec import to_json
from splatfix.report.certificate import document
from splatfix.report.documents import envelope
from tests.certify.conftest import RESULT
from tests.machines import facts_of
from tests.report.test_certificate import certificate

from .commands import command, enter
from .harness import Case, seeded
from .mutate import damaged_document, damaged_text
from .words import CONTROL, MARKUP, UNICODE

FORMS = ("text", "markdown", "github", "html")
WRITES = ("out",)
KEPT = {
    *("verdict", "command", "outcome", "issued", "splatfix_version", "kind", "name", "images", "log"),
    *("rung", "proves"),
}
"""What must be of the right spelling for a certificate to be one."""
MACHINES = ("rtx-3090-and-5090", "h200")


@cache
def whole(machine: str) -> dict[str, Any]:
    """A failed certificate of a simulated machine, with options where a diagnosis has some."""
    base = certificate(result=RESULT)
    run = replace(base.scenes[0], images=("garden/renders/a.png",), log="garden/trainer.log")
    failed = replace(
        base,
        verdict=Verdict.NOT_CERTIFIED,
        scenes=(run,),
        issued="2026-01-01T00:00:00+00:00",
        environment={"GPU": "H200 (cuda)", "driver": "580.95.05", "torch": "2.9.0"},
    )
    facts = facts_of(machine)
    content = document(failed, facts, suggested_options(failed, facts))
    made: dict[str, Any] = json.loads(json.dumps(envelope("certify", 1, to_json(content))))
    return made


def cases(count: int, seed: int) -> Iterator[Case]:
    """Every command that reads certificates, over damaged ones; then over large ones."""
    bases = [whole(machine) for machine in MACHINES]  # once, before each case has a process of its own

    def run(folder: Path, number: int) -> None:
        rng = random.Random(number)
        base = bases[number % len(bases)]
        without = {name: value for name, value in base.items() if name != "facts"}
        damaged = damaged_document(rng, without)
        if isinstance(damaged, dict):
            damaged = {**damaged, "facts": base["facts"]}
        text = json.dumps(damaged, indent=2).encode()
        form = FORMS[number % len(FORMS)]
        _judge(folder, text if rng.random() < 0.8 else damaged_text(rng, text), number, (form,))

    yield from seeded(run, count, seed)
    for name, text in LARGE.items():

        def large(folder: Path, name: str = name, text: Callable[[], bytes] = text) -> None:
            _judge(folder, text(), 0, FORMS if name == "speaking" else ("html",))

        yield Case(name, large)


def _judge(folder: Path, text: bytes, number: int, forms: tuple[str, ...]) -> None:
    for name, content in (("a", json.dumps(whole(MACHINES[0])).encode()), ("b", text)):
        (folder / name).mkdir()
        (folder / name / "certificate.json").write_bytes(content)
    enter(folder)
    for form in forms:
        command(folder, "report", "show", "b", "--format", form)
    command(folder, "report", "show", "b", "--json")
    command(folder, "report", "diff", "a", "b", *(("--json",), (), ("--format", "markdown"))[number % 3])
    command(
        folder, "report", "merge", "a", "b", "--out", "out", *(("--json",), ())[number % 2], writes=WRITES
    )


def _speaking() -> bytes:
    """Every text says what no terminal and no page should obey."""
    said = CONTROL + UNICODE + MARKUP

    def speak(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: speak(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [speak(item, key) for item in value]
        return value + said if isinstance(value, str) and key not in KEPT else value

    base = whole(MACHINES[0])
    return json.dumps({**speak({**base, "facts": None}), "facts": base["facts"]}).encode()


LARGE: dict[str, Callable[[], bytes]] = {
    "speaking": _speaking,
    "deep": lambda: b'{"verdict": ' + b"[" * 1_000_000,
    "wide": lambda: b'{"verdict": [' + b"[]," * 2_000_000 + b"[]]}",
    "larger-than-the-limit": lambda: b" " * (80 << 20),
    "many-scenes": lambda: json.dumps(
        {**whole(MACHINES[0]), "scenes": [whole(MACHINES[0])["scenes"][0]] * 300}
    ).encode(),
    "many-reasons": lambda: json.dumps({**whole(MACHINES[0]), "reasons": ["x" * 300] * 1000}).encode(),
}
