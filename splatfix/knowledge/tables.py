"""Reads the data files of this folder, lays a user's override file over them, and caches what is built from them.

A row that a table lacks is *unknown*: readers answer ``None`` for it, never ``False``.
"""

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from splatfix.core.codec import parse_json
from splatfix.core.reading import read_bytes
from splatfix.core.resources import bundled
from splatfix.core.toml import parse_toml
from splatfix.core.versions import release

DATA = Path(__file__).parent / "data"
SCHEMA = Path(__file__).parent / "schema.json"
"""JSON Schema of every table by name; the descriptions in it are the words of an error."""
Version = tuple[int, ...]
T = TypeVar("T")


class KnowledgeError(ValueError):
    """A data file or an override file is not what it should be; the text says where and what to do."""


class Overrides(Struct, frozen=True, eq=False):
    """The tables that a user's override file changes, by name, with its rows laid over ours."""

    tables: Mapping[str, Mapping[str, Any]]


_active: ContextVar[Overrides | None] = ContextVar("splatfix_knowledge_overrides", default=None)


def table_names() -> tuple[str, ...]:
    """Names of all tables that splatfix ships, sorted."""
    return tuple(sorted({"breakages", *(path.stem for path in DATA.iterdir())}))


def load_overrides(path: Path) -> Overrides:
    """Read a user's override file (TOML, or JSON when the name ends in ``.json``).

    It mirrors the data files: table name, section, row key, fields; ``docs/extending.md`` shows one.

    Raises:
        KnowledgeError: the file cannot be read, names a table that does not exist, or makes a table depart from its
            schema.
    """
    content = read_bytes(path)
    if not isinstance(content, bytes):
        reason = "No such file or directory"
        if content is not None:
            reason = content.reason
        raise KnowledgeError(f"The override file {path} cannot be read: {reason}.")
    kind, parse = "TOML", parse_toml
    if path.suffix == ".json":
        kind, parse = "JSON", parse_json
    try:
        document = parse(content.decode("utf-8-sig"))
    except ValueError as error:
        raise KnowledgeError(f"The override file {path} is not valid {kind}: {error}.") from error
    if not isinstance(document, dict):
        raise KnowledgeError(
            f"The override file {path} must hold tables by name, for example [archs.archs.130]."
        )
    tables = {}
    for name, changes in document.items():
        if name not in table_names():
            raise KnowledgeError(
                f"The override file {path} names the table {name!r}, which does not exist. "
                f"Tables: {', '.join(table_names())}."
            )
        tables[name] = _merge(_shipped(name), changes)
        if problem := problem_in(name, tables[name]):
            raise KnowledgeError(f"The override file {path} cannot be used: {problem}")
    return Overrides(tables)


@contextmanager
def using(extra: Path) -> Iterator[None]:
    """Answer every question inside the block with the overrides of a user's file laid over our tables."""
    token = _active.set(load_overrides(extra))
    try:
        yield
    finally:
        _active.reset(token)


def table(name: str) -> Mapping[str, Any]:
    """One data file as plain data, with the active overrides laid over it."""
    overrides = _active.get()
    if overrides is not None and name in overrides.tables:
        return overrides.tables[name]
    return _shipped(name)


def problem_in(name: str, document: Any) -> str:
    """In what a table first departs from its schema, as a sentence; "" where it does not."""
    # fastjsonschema: one package of pure Python, imported only for --knowledge; jsonschema brings compiled ones along
    schemas: Any = importlib.import_module("fastjsonschema")
    try:
        _validator(name)(document, name_prefix=name)
    except schemas.JsonSchemaValueException as error:
        described = isinstance(error.definition, dict) and error.definition.get("description")
        if described and not isinstance(error.value, dict):
            return f"{error.name} is {error.value!r}; it must be {described}."
        return f"{error.message}."
    return ""


@cache
def _validator(name: str) -> Callable[..., Any]:
    whole = json.loads(SCHEMA.read_text(encoding="utf-8"))
    schema = {"$defs": whole["$defs"], **whole["properties"][name]}
    validate: Callable[..., Any] = importlib.import_module("fastjsonschema").compile(schema)
    return validate


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


def source_of(name: str, row: Mapping[str, Any]) -> str:
    """Where a row of this table comes from, as the table's own list describes it; else as the row says it."""
    return str(table(name)["source"].get(row["source"], row["source"]))


def version(value: Any) -> Version:
    """A version from a data file: ``[12, 8]`` or ``"12.8"`` -> ``(12, 8)``."""
    if isinstance(value, str):
        return parse_version(value)
    return tuple(int(part) for part in value)


def pair(value: Any) -> tuple[int, int]:
    """A two-part version from a data file, as CUDA toolkits and PTX ISAs have it."""
    major, minor, *_ = (*version(value), 0)
    return major, minor


def parse_version(text: str) -> Version:
    """Leading numbers of a version: ``"2.13.0+cpu"`` -> (2, 13, 0); ``"2.16.0.dev1"`` -> (2, 16, 0).

    Raises:
        KnowledgeError: the text begins with none.
    """
    if not (parts := release(text)):
        raise KnowledgeError(f"{text!r} is not a version: it must begin with a number, as in '12.8'.")
    return parts


@cache
def _shipped(name: str) -> Mapping[str, Any]:
    folder = bundled("patches") if name == "breakages" else DATA / name
    if folder.is_dir():
        return {path.stem: parse_toml(path.read_text("utf-8")) for path in sorted(folder.glob("*.toml"))}
    path = DATA / f"{name}.toml"
    if path.is_file():
        return parse_toml(path.read_text("utf-8"))
    # by the plain decoder: the guards of parse_json are for strangers' files
    document: Mapping[str, Any] = json.loads(path.with_suffix(".json").read_text("utf-8"))
    return document


def _merge(ours: Any, theirs: Any) -> Any:
    # a list is replaced whole: where in it a user's rows would belong nobody can tell
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return theirs
    merged = dict(ours)
    for key, value in theirs.items():
        merged[key] = _merge(ours.get(key), value)
    return merged
