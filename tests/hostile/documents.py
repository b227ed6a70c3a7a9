"""Damaged documents: knowledge overrides, build logs, wheels."""

import io
import json
import random
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from splatfix.core.codec import to_json
from splatfix.core.errors import SplatfixError
from splatfix.explain import explain_build
from splatfix.install.wheels import add_manifest, open_wheel, write_wheel
from splatfix.knowledge.tables import table, table_names
from tests.machines import NAMES, facts_of

from .commands import command, enter
from .harness import Case, seeded
from .mutate import damaged_document, damaged_text

COMMANDS = (
    ("diagnose", "--facts", "facts.json", "--json"),
    ("diagnose", "--facts", "facts.json", "-v"),
    ("install", "--dry-run", "--why", "--facts", "facts.json", "--json"),
    ("install", "--dry-run", "--why", "--facts", "facts.json"),
)


def overrides(rng: random.Random) -> dict[str, Any]:
    """Some rows of our own tables, damaged."""
    chosen: dict[str, Any] = {}
    for name in rng.sample(table_names(), rng.choice((1, 1, 2))):
        rows = dict(table(name))
        for section in rng.sample(sorted(rows), min(len(rows), 2)):
            content = rows[section]
            if isinstance(content, dict) and len(content) > 3:
                content = {key: content[key] for key in rng.sample(sorted(content), 3)}
            chosen.setdefault(name, {})[section] = content
    document: dict[str, Any] = damaged_document(rng, chosen)
    return document


def override_cases(count: int, seed: int) -> Iterator[Case]:
    """Knowledge overrides; each is used for a diagnosis where it is accepted."""

    def run(folder: Path, number: int) -> None:
        rng = random.Random(number)
        text = json.dumps(overrides(rng)).encode()
        file = folder / "extra.json"
        if rng.random() < 0.3:
            file, text = folder / "extra.toml", damaged_text(rng, TOML)
        file.write_bytes(text if rng.random() < 0.8 else damaged_text(rng, text))
        (folder / "facts.json").write_text(json.dumps(to_json(facts_of(NAMES[number % len(NAMES)]))))
        enter(folder)
        command(folder, "--knowledge", file.name, *COMMANDS[number % 4])

    return seeded(run, count, seed)


TOML = Path(__file__).with_suffix(".toml").read_bytes()
"""A person's own knowledge, as it should be."""


def read_log(data: bytes) -> None:
    """Find the cause in it, as a build does with its own log."""
    cause = explain_build(data.decode("utf-8", errors="replace"))
    assert cause.kind and len(cause.lines) < 12


def wheels() -> dict[str, bytes]:
    """A wheel with a script, an entry point and data; and one for each name that would leave the environment."""
    files = {"pkg/__init__.py": b"x = 1\n", "pkg/_C.so": b"\x7fELF", "pkg-1.data/scripts/run": b"#!python\n"}
    files["pkg-1.dist-info/entry_points.txt"] = b"[console_scripts]\nrun = pkg:main\n"
    with tempfile.TemporaryDirectory() as folder:
        whole = write_wheel(Path(folder), "pkg", "1", files, "test").read_bytes()
    made = {"whole": whole}
    for number, evil in enumerate(
        ("../evil", "/evil", "pkg\\..\\evil", "pkg-1.data/data/../../evil", "a" * 5000)
    ):
        packed = io.BytesIO(whole)
        with zipfile.ZipFile(packed, "a") as archive:
            archive.writestr(evil, b"")
        made[f"evil-{number}"] = packed.getvalue()
    return made


def read_wheel(path: Path) -> None:
    """Everything that an installation asks of a wheel before pip gets it."""
    place = Path("/nowhere/env")
    target: Any = SimpleNamespace(
        purelib=place / "p", platlib=place / "l", scripts=place / "s", data=place, headers=place / "h"
    )
    try:
        wheel = open_wheel(path)
        inside = all(place in one.parents and ".." not in one.parts for one in wheel.destinations(target))
        assert wheel.modules is not None and inside, "a member leaves the environment"
        add_manifest(path, {"kind": "built"})
    except SplatfixError as error:
        assert error.code in ("not-a-wheel", "cannot-write"), error.code
