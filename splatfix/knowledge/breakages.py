"""Known breakages: one record (``patches/*.toml``) for each, read by check, edit rule, build log and coverage table alike.

``patches/README.md`` describes a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace
from packaging.specifiers import SpecifierSet

from splatfix.core.source_pattern import NamePattern, SourcePattern
from splatfix.core.versions import dotted
from splatfix.knowledge.messages import Message
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
    sources_match: str = ""
    """Only when some file of the source matches this pattern."""

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
    replace: str = ""
    """A pattern."""
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
    files: tuple[str, ...] = ()
    """Where it looks, if not in all files that are edited."""
    given_by: str = ""
    """A pattern of what else brings the missing declaration."""


class Breakage(Struct, frozen=True, eq=False):
    """A change of a toolkit, compiler or library that stops known sources from building or running."""

    key: str
    title: str
    symptom: str
    cure: str
    sources: tuple[str, ...]
    when: When
    failure_class: str = field(name="class", default="")
    """The class of the vocabulary that it is a case of; "" for none."""
    always_edit: bool = False
    """Edit whatever ``when`` says: harmless where it is not needed."""
    find: SourcePattern | None = None
    """Where the edits apply; None where no source's text shows it."""
    uses: NamePattern | None = None
    """What the check asks facts about instead, for Python: names that the code uses."""
    edits: tuple[Edit, ...] = field(name="edit", default=())
    """What mends a source; () where nothing does."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What the environment of the build carries, where that cures it."""
    no_edit: str = ""
    """Why nothing here cures it; "" where edits or variables do."""
    stops: bool = False
    """Nothing cures it here: a plan ends before anything is built."""
    installed: Installed | None = None
    """The installed package that it is about; None for what is found in sources."""
    check: CheckText | None = None
    """What its check says; None where it has none."""
    log: Message | None = None
    """How a build log shows it."""

    @property
    def look_for(self) -> SourcePattern | None:
        """What the check asks facts about: ``find``, narrowed by what else brings the missing declaration."""
        if self.check is None or self.uses or self.find is None:
            return None
        unless = "|".join(filter(None, (self.find.unless, self.check.given_by)))
        return replace(self.find, files=self.check.files or self.find.files, unless=unless)

    def breaks_installed(self, name: str, version: str) -> bool:
        """It is about this version of an installed package; ``version`` is "" where it is not installed."""
        broken = self.installed
        return bool(broken and version and broken.distribution == name and broken.versions.contains(version))


@cached
def _breakages() -> Mapping[str, Breakage]:
    known = {}
    for key, row in table("breakages").items():
        when = row.get("when", {})
        versions = {name: when[name] for name in VERSIONED if name in when}
        parts: dict[str, Any] = {"when": {"versions": versions, **when}}
        for name in {"find", "uses", "log"} & row.keys():
            parts[name] = {"key": key, "failure_class": row.get("class", ""), **row[name]}
        if "check" in row:
            summary = "{source} does not compile with {cause}: {file} line {line}."
            if "uses" in row:
                summary = "{file}:{line} does not run with {cause}: {text}"
            parts["check"] = {"summary": summary, **row["check"]}
        known[key] = decode(Breakage, {**row, **parts}, key=key)
    return known


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
