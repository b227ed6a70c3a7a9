"""Reads the data files of this folder, lays a user's override file over them, and caches what is built from them.

A row that the table lacks is *unknown*: readers answer ``None`` for it, never ``False``.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar

from splatfix.knowledge._schema import SECTIONS, SETTINGS, problems

DATA = Path(__file__).parent / "data"
Version = tuple[int, ...]
T = TypeVar("T")


class KnowledgeError(ValueError):
    """A data file or an override file is not what it should be; the text says where and what to do."""


@dataclass(frozen=True, eq=False)
class Overrides:
    """The tables of a user's override file, by table name, ready to be laid over ours."""

    path: Path
    tables: Mapping[str, Mapping[str, Any]] = field(repr=False)


_active: ContextVar[Overrides | None] = ContextVar("splatfix_knowledge_overrides", default=None)


def table_names() -> tuple[str, ...]:
    """Names of all tables that splatfix ships, sorted."""
    return tuple(sorted(path.stem for path in DATA.glob("*.json")))


def load_overrides(path: Path) -> Overrides:
    """Read a user's override file (TOML, or JSON when the name ends in ``.json``).

    The file mirrors the data files: table name, section, row key, fields. A row that we have is extended or
    overridden field by field, a new row is added; lists are replaced whole. For example, to teach splatfix a
    GPU architecture, a driver branch and a torch build that appeared after this release::

        [archs.archs.130]
        cc = [13, 0]
        name = "Example"
        gpus = ["RTX 6090"]
        first_toolkit = [14, 0]
        last_toolkit = false        # false stands for "none" (TOML has no null)
        tegra = false
        variants = {}
        verified = true
        source = "release notes of CUDA 14.0"

        [drivers.driver_levels.640]
        cuda = [14, 0]
        verified = true
        source = "nvidia-smi here"

        [torch_releases.releases."2.15".builds.cu126]
        index_verified = true       # pip found it

    or, to have wheels come from a mirror of PyTorch's index::

        [torch_releases]
        index_url = "https://mirror.example/whl/{tag}"

    Raises KnowledgeError when the file cannot be read, names a table or section that does not exist, or leaves a
    row without a field that it needs. Use it with ``using``.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KnowledgeError(f"The override file {path} cannot be read: {error}.") from error
    try:
        document = json.loads(text) if path.suffix == ".json" else _toml().loads(text)
    except (ValueError, RecursionError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise KnowledgeError(f"The override file {path} is not valid {kind}: {error}.") from error
    if not isinstance(document, dict):
        raise KnowledgeError(
            f"The override file {path} must hold tables by name, for example [archs.archs.130]."
        )
    for name, sections in document.items():
        if name not in table_names():
            raise KnowledgeError(
                f"The override file {path} names the table {name!r}, which does not exist. "
                f"Tables: {', '.join(table_names())}."
            )
        known = [*SECTIONS[name], *SETTINGS.get(name, {})]
        if not isinstance(sections, dict) or not set(sections) <= set(known):
            raise KnowledgeError(
                f"The override file {path} has something in {name} that is no section of it. "
                f"Sections of {name}: {', '.join(known)}."
            )
        wrong = list(problems(name, _merge(_shipped(name), sections)))
        if wrong:
            raise KnowledgeError(f"The override file {path} has rows that cannot be read: {' '.join(wrong)}")
    return Overrides(path, document)


@contextmanager
def using(extra: Overrides | Path | None) -> Iterator[None]:
    """Answer every question inside the block with a user's overrides laid over our tables (None: ours alone)."""
    overrides = load_overrides(extra) if isinstance(extra, Path) else extra
    token = _active.set(overrides)
    try:
        yield
    finally:
        _active.reset(token)


def table(name: str) -> Mapping[str, Any]:
    """One data file as plain data, with the active overrides laid over it."""
    shipped = _shipped(name)
    overrides = _active.get()
    if overrides is None or name not in overrides.tables:
        return shipped
    merged: Mapping[str, Any] = _merge(shipped, overrides.tables[name])
    return merged


@dataclass(frozen=True)
class Provenance:
    """Where a row comes from, and when that was looked at."""

    source: str
    """The source in full, as the table's own list describes it; else as the row says it."""
    date: str
    """ISO 8601; "" for a row of the user's that gives none."""
    verified: bool | None
    """None for a row that does not say."""


def provenance(name: str, section: str, key: str = "") -> Provenance | None:
    """Source and date of one row (``provenance("archs", "archs", "120")``; no key for a section of one row); None: no row.

    A row of ours was looked at on its table's date unless it gives its own; a row that a user's file touches, when the
    file says.
    """
    document = table(name)
    rows = document.get(section)
    row = rows if SECTIONS[name][section].single else (rows or {}).get(key)
    if not isinstance(row, dict):
        return None
    own = _shipped(name).get(section)
    untouched = row is (own if SECTIONS[name][section].single else (own or {}).get(key))
    return Provenance(
        source=str(document["source"].get(row["source"], row["source"])),
        date=str(row.get("date", document["date"] if untouched else "")),
        verified=row.get("verified"),
    )


def cached(build: Callable[[], T]) -> Callable[[], T]:
    """Cache what ``build`` makes of the tables, once for each set of overrides."""
    results: dict[Overrides | None, T] = {}

    @wraps(build)
    def wrapper() -> T:
        key = _active.get()
        if key not in results:
            results[key] = build()
        return results[key]

    return wrapper


def version(value: Any) -> Version:
    """A version from a data file: ``[12, 8]`` or ``"12.8"`` -> ``(12, 8)``."""
    if isinstance(value, str):
        return parse_version(value)
    return tuple(int(part) for part in value)


def optional_version(value: Any) -> Version | None:
    """As ``version``; ``null`` (or TOML's ``false``) -> None."""
    return None if value is None or value is False else version(value)


def pair(value: Any) -> tuple[int, int]:
    """A two-part version from a data file, as CUDA toolkits and PTX ISAs have it."""
    parts = version(value)
    return parts[0], parts[1] if len(parts) > 1 else 0


def optional_pair(value: Any) -> tuple[int, int] | None:
    """As ``pair``; ``null`` (or TOML's ``false``) -> None."""
    return None if value is None or value is False else pair(value)


def parse_version(text: str) -> Version:
    """Leading numbers of a version: ``"2.13.0+cpu"`` -> (2, 13, 0); ``"2.16.0.dev1"`` -> (2, 16, 0).

    Raises KnowledgeError for a text that begins with none.
    """
    if not (parts := leading_numbers(text)):
        raise KnowledgeError(f"{text!r} is not a version: it must begin with a number, as in '12.8'.")
    return parts


def leading_numbers(text: str) -> Version:
    """As ``parse_version``; empty for a text that is no version."""
    parts: list[int] = []
    for part in text.strip().split("+")[0].split("."):
        digits = ""
        for char in part:
            if not char.isdigit():
                break
            digits += char
        if not digits:
            break
        parts.append(int(digits))
        if digits != part:
            break
    return tuple(parts)


def compare(left: Version, right: Version) -> int:
    """-1, 0 or 1; missing parts count as 0, as packaging's Version has it: (13,) equals (13, 0)."""
    width = max(len(left), len(right))
    a, b = left + (0,) * (width - len(left)), right + (0,) * (width - len(right))
    return (a > b) - (a < b)


@cache
def _shipped(name: str) -> Mapping[str, Any]:
    path = DATA / f"{name}.json"
    document: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def _merge(ours: Any, theirs: Any) -> Any:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {**ours, **{key: _merge(ours.get(key), value) for key, value in theirs.items()}}
    return theirs


def _toml() -> Any:
    return importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
