"""Known breakages: one record (``patches/*.toml``) for each, read by check, edit rule, build log and coverage table alike.

``patches/README.md`` describes a record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packaging.specifiers import SpecifierSet

from splatfix.core.source_pattern import NamePattern, SourcePattern
from splatfix.knowledge.messages import Message, message_of
from splatfix.knowledge.tables import cached, table

VERSIONED = (
    *("cuda", "torch", "gcc", "glibc", "arch", "setuptools", "colmap"),
    *("python", "numpy", "pillow", "torchvision", "matplotlib"),
)
"""What ``when`` of a record may limit by version."""


@dataclass(frozen=True)
class When:
    """Under which conditions sources break. Versions are tuples of numbers, such as ``(12, 9)``."""

    versions: Mapping[str, SpecifierSet]
    """Name (see VERSIONED) -> versions that have the breakage; ``arch`` is the oldest GPU that is compiled for."""
    system: str = ""
    lacks: str = ""
    """Only where this distribution is not installed."""
    builder: str = ""
    """``cmake``: only where CMakeLists.txt is what is built from."""
    arch_missing: bool = False
    """Only when setup.py itself decides on architectures and leaves a target out, or would have to be run to tell."""
    gpu_missing: bool = False
    """Only where no GPU is in sight and setup.py compiles its CUDA code for one in sight alone, with no variable for it."""
    sources_match: re.Pattern[str] | None = None
    """Only when some file of the source matches."""

    def holds(self, versions: Mapping[str, tuple[int, ...]], system: str = "") -> bool:
        """Whether versions and system are ones that have the breakage; a version that is not known is none of them."""
        if self.system and self.system != system:
            return False
        return all(
            bool(versions.get(name)) and limit.contains(".".join(map(str, versions[name])))
            for name, limit in self.versions.items()
        )


@dataclass(frozen=True)
class Edit:
    """One change of a file's text: an include line, a replacement, or text after the includes."""

    include: str = ""
    """``<header>``."""
    replace: re.Pattern[str] | None = None
    by: str = ""
    repeat: bool = False
    """Replace until nothing changes any more."""
    prepend: str = ""


@dataclass(frozen=True)
class CheckText:
    """What the check of a breakage is called and says."""

    code: str
    title: str
    page: str
    fails: bool
    """False: it warns."""
    summary: str
    """With ``{source}``, ``{cause}``, ``{file}`` and ``{line}``; of Python code also ``{text}``, and no ``{source}``."""
    install: str = ""
    """What cures it when it is installed; "" where that is nothing."""


@dataclass(frozen=True)
class Breakage:
    """A change of a toolkit, compiler or library that stops known sources from building or running."""

    key: str
    title: str
    symptom: str
    cure: str
    sources: tuple[str, ...]
    when: When
    find: SourcePattern | None
    """Where the edits apply; None where no source's text shows it."""
    edits: tuple[Edit, ...]
    always_edit: bool
    """Edit whatever ``when`` says: harmless where it is not needed."""
    no_edit: str
    """Why there are no edits; "" where there are."""
    stops: bool
    """Nothing cures it here: a plan ends before anything is built."""
    check: CheckText | None
    look_for: SourcePattern | None
    """What the check asks facts about: ``find``, narrowed by what else brings the missing declaration."""
    uses: NamePattern | None
    """What the check asks facts about instead, for Python: names that the code uses."""
    log: Message | None
    failure_class: str


@cached
def _breakages() -> Mapping[str, Breakage]:
    return {key: _breakage(key, row) for key, row in table("breakages").items()}


def breakages() -> tuple[Breakage, ...]:
    """All records, in order of their keys."""
    return tuple(_breakages().values())


def breakage(key: str) -> Breakage:
    """The record of this key, which is the name of its file; KeyError for one that does not exist."""
    return _breakages()[key]


def source_patterns() -> tuple[SourcePattern | NamePattern, ...]:
    """What a checkout's sources are to be searched for, so that the checks can judge them."""
    found = (item for row in breakages() for item in (row.look_for, row.uses))
    return tuple(item for item in found if item)


def _breakage(key: str, row: Mapping[str, Any]) -> Breakage:
    find, check = row.get("find"), row.get("check")
    return Breakage(
        key=key,
        title=row["title"],
        symptom=row["symptom"],
        cure=row["cure"],
        sources=tuple(row["sources"]),
        when=_when(row.get("when", {})),
        find=_pattern(key, find) if find else None,
        edits=tuple(_edit(edit) for edit in row.get("edit", ())),
        always_edit=row.get("always_edit", False),
        no_edit=row.get("no_edit", ""),
        stops=row.get("stops", False),
        check=_check_text(check, python="uses" in row) if check else None,
        look_for=_pattern(key, find, check) if find and check and "uses" not in row else None,
        uses=NamePattern(key, frozenset(row["uses"]["names"])) if "uses" in row else None,
        log=message_of(key, row["log"], row.get("class", "")) if "log" in row else None,
        failure_class=row.get("class", ""),
    )


def _when(row: Mapping[str, Any]) -> When:
    return When(
        versions={name: SpecifierSet(row[name]) for name in VERSIONED if name in row},
        system=row.get("system", ""),
        lacks=row.get("lacks", ""),
        builder=row.get("builder", ""),
        arch_missing=row.get("arch_missing", False),
        gpu_missing=row.get("gpu_missing", False),
        sources_match=re.compile(row["sources_match"]) if "sources_match" in row else None,
    )


def _pattern(key: str, find: Mapping[str, Any], check: Mapping[str, Any] | None = None) -> SourcePattern:
    narrower = check or {}
    fine = [text for text in (find.get("unless"), narrower.get("given_by")) if text]
    return SourcePattern(
        key=key,
        files=tuple(narrower.get("files") or find["files"]),
        pattern=re.compile(find["pattern"]),
        unless=re.compile("|".join(fine)) if fine else None,
    )


def _check_text(row: Mapping[str, Any], *, python: bool) -> CheckText:
    compiled = "{source} does not compile with {cause}: {file} line {line}."
    interpreted = "{file}:{line} does not run with {cause}: {text}"
    return CheckText(
        code=row["code"],
        title=row["title"],
        page=row["page"].strip(),
        fails=row.get("status", "fail") == "fail",
        summary=row.get("summary", interpreted if python else compiled),
        install=row.get("install", ""),
    )


def _edit(row: Mapping[str, Any]) -> Edit:
    return Edit(
        include=row.get("include", ""),
        replace=re.compile(row["replace"]) if "replace" in row else None,
        by=row.get("by", ""),
        repeat=row.get("repeat", False),
        prepend=row.get("prepend", ""),
    )
