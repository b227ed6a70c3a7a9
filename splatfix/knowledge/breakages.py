"""Known breakages: one record (``patches/*.toml``) for each, read by check, edit rule, build log and coverage table alike.

``patches/README.md`` describes a record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct, field
from packaging.specifiers import SpecifierSet

from splatfix.core.source_pattern import NamePattern, SourcePattern
from splatfix.core.versions import dotted
from splatfix.knowledge.messages import Message, message_of
from splatfix.knowledge.rows import decode
from splatfix.knowledge.tables import cached, table

VERSIONED = (
    *("cuda", "torch", "gcc", "glibc", "arch", "setuptools", "colmap"),
    *("python", "numpy", "pillow", "torchvision", "matplotlib"),
)
"""What ``when`` of a record may limit by version."""


class When(Struct, frozen=True):
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
            bool(versions.get(name)) and limit.contains(dotted(versions[name]))
            for name, limit in self.versions.items()
        )


class Edit(Struct, frozen=True):
    """One change of a file's text: an include line, a replacement, or text after the includes."""

    include: str = ""
    """``<header>``."""
    replace: re.Pattern[str] | None = None
    by: str = ""
    repeat: bool = False
    """Replace until nothing changes any more."""
    prepend: str = ""


class Installed(Struct, frozen=True):
    """The package, as pip installs it, that a record is about."""

    distribution: str
    versions: SpecifierSet
    files: tuple[str, ...]
    """Those that break, below site-packages."""


class CheckText(Struct, frozen=True):
    """What the check of a breakage is called and says."""

    code: str
    title: str
    page: str
    summary: str = ""
    """With ``{source}``, ``{cause}``, ``{file}`` and ``{line}``; of Python code also ``{text}``, and no ``{source}``."""
    status: str = "fail"
    install: str = ""
    """What cures it when it is installed; "" where that is nothing."""


class Breakage(Struct, frozen=True, eq=False, dict=True):
    """A change of a toolkit, compiler or library that stops known sources from building or running.

    Its patterns are compiled when they are first asked for: a diagnosis without a checkout needs none of them.
    """

    key: str
    title: str
    symptom: str
    cure: str
    sources: tuple[str, ...]
    row: Mapping[str, Any]
    always_edit: bool = False
    """Edit whatever ``when`` says: harmless where it is not needed."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What the environment of the build carries, where that cures it."""
    no_edit: str = ""
    """Why nothing here cures it; "" where edits or variables do."""
    stops: bool = False
    """Nothing cures it here: a plan ends before anything is built."""

    @property
    def failure_class(self) -> str:
        """The class of the vocabulary that it is a case of; "" for none."""
        return str(self.row.get("class", ""))

    @cached_property
    def when(self) -> When:
        row = self.row.get("when", {})
        return decode(
            When,
            row,
            f"breakages.{self.key}.when",
            versions={name: SpecifierSet(row[name]) for name in VERSIONED if name in row},
        )

    @cached_property
    def find(self) -> SourcePattern | None:
        """Where the edits apply; None where no source's text shows it."""
        if "find" not in self.row:
            return None
        return self._pattern({})

    @cached_property
    def look_for(self) -> SourcePattern | None:
        """What the check asks facts about: ``find``, narrowed by what else brings the missing declaration."""
        if self.check is None or self.uses or "find" not in self.row:
            return None
        return self._pattern(self.row["check"])

    def _pattern(self, narrower: Mapping[str, Any]) -> SourcePattern:
        find = self.row["find"]
        fine, unless = [*filter(None, (find.get("unless"), narrower.get("given_by")))], None
        if fine:
            unless = re.compile("|".join(fine))
        files = tuple(narrower.get("files") or find["files"])
        return SourcePattern(key=self.key, files=files, pattern=re.compile(find["pattern"]), unless=unless)

    @cached_property
    def uses(self) -> NamePattern | None:
        """What the check asks facts about instead, for Python: names that the code uses."""
        if "uses" not in self.row:
            return None
        return NamePattern(self.key, frozenset(self.row["uses"]["names"]))

    @cached_property
    def edits(self) -> tuple[Edit, ...]:
        """What mends a source; () where nothing does."""
        return tuple(decode(Edit, edit, f"breakages.{self.key}.edit") for edit in self.row.get("edit", ()))

    @cached_property
    def installed(self) -> Installed | None:
        """The installed package that it is about; None for what is found in sources."""
        if "installed" not in self.row:
            return None
        row = self.row["installed"]
        versions = SpecifierSet(row["versions"])
        return decode(Installed, row, f"breakages.{self.key}.installed", versions=versions)

    def breaks_installed(self, name: str, version: str) -> bool:
        """It is about this version of an installed package; ``version`` is "" where it is not installed."""
        broken = self.installed
        return bool(broken and version and broken.distribution == name and broken.versions.contains(version))

    @cached_property
    def check(self) -> CheckText | None:
        """What its check says; None where it has none."""
        if "check" not in self.row:
            return None
        summary = "{source} does not compile with {cause}: {file} line {line}."
        if self.uses:
            summary = "{file}:{line} does not run with {cause}: {text}"
        row = {"summary": summary, **self.row["check"]}
        return decode(CheckText, row, f"breakages.{self.key}.check", page=row["page"].strip())

    @cached_property
    def log(self) -> Message | None:
        """How a build log shows it."""
        if "log" not in self.row:
            return None
        return message_of(self.key, self.row["log"], self.failure_class)


@cached
def _breakages() -> Mapping[str, Breakage]:
    rows = table("breakages").items()
    return {key: decode(Breakage, row, f"breakages.{key}", key=key, row=row) for key, row in rows}


def breakages() -> tuple[Breakage, ...]:
    """All records, in order of their keys."""
    return tuple(_breakages().values())


def breakage(key: str) -> Breakage:
    """The record of this key, which is the name of its file; KeyError for one that does not exist."""
    return _breakages()[key]


def cures_of_include(header: str) -> dict[str, str]:
    """The cure of each breakage whose edits take this include out of a source, by the breakage's key."""
    return {
        record.key: record.cure
        for record in breakages()
        if record.edits and record.find and record.find.find(f"#include <{header}>")
    }
