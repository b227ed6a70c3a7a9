"""Known breakages: one record (``patches/*.toml``) for each, read by check, edit rule, build log and coverage table alike.

Beside them the classes of failures that installs show (``data/failures.json``), and the messages of build logs that are
no breakage of a source (``data/build_logs.json``). ``patches/README.md`` describes a record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packaging.specifiers import SpecifierSet

from splatfix.core.source_pattern import NamePattern, SourcePattern
from splatfix.core.step import Command, Step
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
class Explanation:
    """What a message of a build log means."""

    key: str
    meaning: str
    steps: tuple[Step, ...]
    failure_class: str


@dataclass(frozen=True)
class LogCause:
    """A message of a build log, and what it means. ``{1}`` and ``{name}`` in texts stand for groups of the match."""

    key: str
    pattern: re.Pattern[str]
    meaning: str
    steps: tuple[Mapping[str, Any], ...]
    kind: str = ""
    """Only in messages of this kind (see ``explain/root_cause.py``)."""
    failure_class: str = ""

    def explain(self, text: str) -> Explanation | None:
        """The explanation, if the message stands in the text."""
        match = self.pattern.search(text)
        if match is None:
            return None

        def filled(part: str) -> str:
            return part.format(match.group(), *match.groups(), **match.groupdict())

        def step(row: Mapping[str, Any]) -> Step:
            argv, env = tuple(filled(word) for word in row.get("argv", ())), tuple(row.get("env", {}).items())
            return Step(filled(row.get("text", "")), Command(argv, env) if argv or env else None)

        return Explanation(self.key, filled(self.meaning), tuple(map(step, self.steps)), self.failure_class)


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
    log: LogCause | None
    failure_class: str


@dataclass(frozen=True)
class FailureClass:
    """One way in which installs fail. The names are the vocabulary of checks, explanations and reports."""

    name: str
    definition: str
    fix: str
    examples: tuple[str, ...]
    """Issues that show it (``owner/repository#number``)."""
    checks: tuple[str, ...]
    """Codes of the checks that predict it."""
    limit: str
    """What of it no check can predict, and why; "" when the checks see all of it."""


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


@cached
def log_causes() -> tuple[LogCause, ...]:
    """Every known message of a build log, breakages of sources first."""
    rows = table("build_logs")["messages"].items()
    return (
        *(row.log for row in breakages() if row.log),
        *(_log_cause(key, row, row.get("class", "")) for key, row in rows),
    )


def log_cause(key: str) -> LogCause:
    """The message of this key; KeyError for one that does not exist."""
    return {cause.key: cause for cause in log_causes()}[key]


def explain_message(text: str, kind: str = "") -> Explanation | None:
    """What a message of a build log means; None for one that is not known.

    Args:
        text: the message; only the line that says it, as code quoted below may mention anything.
        kind: the kind of message, for causes that are known of one kind only.
    """
    for cause in log_causes():
        if cause.kind in ("", kind) and (found := cause.explain(text)):
            return found
    return None


@cached
def _classes() -> Mapping[str, FailureClass]:
    found = {}
    for name, row in table("failures")["classes"].items():
        records = [one for one in breakages() if one.failure_class == name]
        record = records[0] if records else None
        own = [one.check.code for one in records if one.check]
        found[name] = FailureClass(
            name=name,
            definition=row.get("definition", record.symptom if record else ""),
            fix=row.get("fix", record.cure if record else ""),
            examples=tuple(row.get("examples", ())),
            checks=(*own, *row.get("checks", ())),
            limit=row.get("limit", ""),
        )
    return found


def failure_classes() -> tuple[FailureClass, ...]:
    """All classes, the commonest first."""
    return tuple(_classes().values())


def failure_class(name: str) -> FailureClass | None:
    """The class of this name, or None."""
    return _classes().get(name)


def foreseen_by(code: str) -> tuple[FailureClass, ...]:
    """The failure classes that the check of this code predicts, the commonest first."""
    return tuple(row for row in failure_classes() if code in row.checks)


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
        log=_log_cause(key, row["log"], row.get("class", "")) if "log" in row else None,
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


def _log_cause(key: str, row: Mapping[str, Any], failure_class: str) -> LogCause:
    return LogCause(
        key=key,
        pattern=re.compile(row["pattern"]),
        meaning=row.get("meaning", ""),
        steps=tuple(row.get("steps", ())),
        kind=row.get("kind", ""),
        failure_class=failure_class,
    )
