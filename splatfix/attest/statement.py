"""What is signed: an in-toto Statement v1 about every file of a report folder, and what the certificate in it says.

Format: https://in-toto.io/Statement/v1 (in-toto/attestation, spec/v1/statement.md).
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from splatfix.attest.dsse import ENVELOPE
from splatfix.core.codec import Spelled, from_json, parse_json, to_json
from splatfix.core.data import dataclass
from splatfix.core.files import dumps, sha256_of

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://splatfix.github.io/splatfix/certificate/v1"
"""What :func:`predicate_of` returns; other contents need another version."""
CERTIFICATE = "certificate.json"
LOCKS = (".splatfix.lock", ".splatfix.lock.held")
"""In a report folder while somebody writes or signs it: no part of the report."""

MOST_FILES = 100_000
"""In a report folder. A suite of thirteen scenes has some hundreds."""

_DEEPEST = 20
"""Levels of a predicate; ours has four. What is nested more deeply than Python can follow would end in a traceback."""

EARLIER = re.compile(r"previous(-\d+)?")
"""Folders that hold earlier reports: :func:`splatfix.core.files.set_aside` names them."""


@dataclass(frozen=True)
class Digest:
    """Digests of a file."""

    sha256: Annotated[str, Spelled("[0-9a-f]{64}", "a SHA-256 in hexadecimal digits")]


@dataclass(frozen=True)
class Subject:
    """A file of the report."""

    name: str
    """Its path below the report folder, with slashes."""
    digest: Digest


@dataclass(frozen=True)
class Statement:
    """An in-toto statement; the names of the fields are those of its specification."""

    _type: str
    subject: tuple[Subject, ...]
    predicateType: str
    predicate: Mapping[str, Any]


@dataclass(frozen=True)
class Folder:
    """What lies in a report folder."""

    files: tuple[str, ...]
    """Regular files by their path below it, with slashes, sorted; the signature itself left out."""
    others: Mapping[str, str]
    """What can be no part of a report, and why: links, devices, names that other systems read otherwise."""
    earlier: tuple[str, ...]
    """Folders with earlier reports, which are not looked into."""


def look(folder: Path) -> Folder:
    """List a report folder; links are never followed.

    Raises:
        OSError: a folder cannot be read.
        ValueError: there are more than :data:`MOST_FILES` entries.
    """
    files: list[str] = []
    others: dict[str, str] = {}
    earlier: list[str] = []
    for entry, name in _entries(folder):
        if len(files) + len(others) >= MOST_FILES:
            raise ValueError(f"it holds more than {MOST_FILES} files, which is no report")
        if name in (ENVELOPE, *LOCKS) and entry.is_file(follow_symlinks=False):
            continue
        if EARLIER.fullmatch(name) and entry.is_dir(follow_symlinks=False):
            earlier.append(name)
        elif entry.is_symlink():
            # The bytes at its end can be others a moment later.
            others[name] = "a link"
        elif not entry.is_file(follow_symlinks=False):
            others[name] = "not a regular file"
        elif reason := unfit_name(name):
            others[name] = reason
        else:
            files.append(name)
    return Folder(tuple(sorted(files)), dict(sorted(others.items())), tuple(sorted(earlier)))


def _entries(folder: Path) -> Iterator[tuple[os.DirEntry[str], str]]:
    """Everything below a folder but the folders that are looked into themselves."""
    pending = [(os.fspath(folder), "")]
    while pending:
        here, above = pending.pop()
        with os.scandir(here) as listing:
            for entry in listing:
                name = above + entry.name
                if entry.is_dir(follow_symlinks=False) and not EARLIER.fullmatch(name):
                    pending.append((entry.path, f"{name}/"))
                else:
                    yield entry, name


def unfit_name(name: str) -> str:
    """Why a file's name cannot stand in a statement, because it means another file somewhere else; "" where it can."""
    if not name or name.startswith("/") or {"", ".", ".."} & set(name.split("/")):
        return "not a path below the folder"
    # Windows takes a backslash for a slash, and a colon for a drive or a stream.
    if "\\" in name or ":" in name or not name.isprintable():
        return "its name has characters that other systems read otherwise"
    return ""


def statement_of(folder: Path, certificate: Mapping[str, Any]) -> bytes:
    """The statement about everything in a report folder, as the bytes to sign.

    Args:
        certificate: the content of its ``certificate.json``.

    Raises:
        ValueError: what lies there cannot be stated; the message says what and why.
        OSError: a file cannot be read.
    """
    contents = look(folder)
    for name, reason in contents.others.items():
        raise ValueError(f"{name}: {reason}")
    # sha256 alone, although in-toto allows several: one that does not hold would leave open which of them counts
    subjects = tuple(Subject(name, Digest(sha256_of(folder / name))) for name in contents.files)
    statement = Statement(STATEMENT, subjects, PREDICATE, predicate_of(certificate))
    payload = dumps(to_json(statement)).encode("utf-8")
    parse_statement(payload)  # nobody could verify what this refuses
    return payload


def parse_statement(payload: bytes) -> Statement:
    """The statement in a payload whose signature was checked.

    Raises:
        ValueError: it is no statement of this version about a splatfix certificate of this version.
    """
    statement = from_json(Statement, parse_json(payload.decode("utf-8")))
    if (statement._type, statement.predicateType) != (STATEMENT, PREDICATE):
        raise ValueError(f"it states {statement.predicateType!a} as {statement._type!a}")
    _refuse_deep(statement.predicate)
    names = [subject.name for subject in statement.subject]
    for name in names:
        reason = unfit_name(name)
        if reason:
            raise ValueError(f"it names {name!a}: {reason}")
    if len(set(names)) != len(names):
        raise ValueError("it names a file twice")
    return statement


def _refuse_deep(predicate: Mapping[str, Any]) -> None:
    """Stop at a predicate that is nested too deeply, level by level: recursion is what it would exhaust."""
    level: list[Any] = [predicate]
    for _ in range(_DEEPEST):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
        level = below
    if level:
        raise ValueError("it is nested too deeply")


def predicate_of(certificate: Mapping[str, Any]) -> dict[str, Any]:
    """What a certificate says of itself, for those who read the statement alone: verdict, levels, and what ran.

    Keys: ``verdict``, ``summary``, ``issued``, ``suite``, ``renderer``, ``device``, ``interrupted``, ``unfinished``,
    ``level`` (the run level, or null); ``levels``, each with ``name``, ``reached`` and ``shown_by``; ``splatfix`` with
    ``version`` and, for a clone, ``commit``; ``environment``; ``ran``: for each scene and part the implementation that was
    called, with ``module``, ``file``, ``sha256`` and ``calls``; ``sources``: SHA-256 of each source file that the trainer
    was handed.
    """
    environment = _mapping(certificate.get("environment"))
    commit = re.search(r"\(commit (\w+)\)", str(environment.get("splatfix", "")))
    return {
        **{name: certificate.get(name) for name in _VERDICT},
        "levels": certificate.get("proof", []),
        "splatfix": {"version": certificate.get("splatfix_version"), "commit": commit and commit[1]},
        "environment": environment,
        "ran": _implementations(certificate.get("scenes")),
        "sources": _mapping(certificate.get("sources")),
    }


_VERDICT = (
    *("verdict", "summary", "issued", "suite", "renderer", "device"),
    *("interrupted", "unfinished", "level"),
)
_RAN = ("name", "version", "engine", "module", "file", "sha256", "calls")


def _implementations(scenes: Any) -> list[dict[str, Any]]:
    """What was called in each scene. The certificate may come from anywhere: what has another shape is passed over."""
    if not isinstance(scenes, list):
        return []
    rows: list[dict[str, Any]] = []
    for scene in map(_mapping, scenes):
        parts = _mapping(_mapping(scene.get("result")).get("implementations"))
        for part, engine in parts.items():
            if isinstance(engine, Mapping):
                row = {"scene": scene.get("scene"), "part": part}
                rows.append({**row, **{name: engine.get(name) for name in _RAN}})
    return rows


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
