"""Edit rules (``patches/*.toml``): which of them a source needs here, and what each makes of a file's text."""

from __future__ import annotations

import fnmatch
import importlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from splatfix.core.errors import SplatfixError
from splatfix.core.resources import bundled
from splatfix.core.step import say
from splatfix.facts import Source
from splatfix.knowledge import Arch

# Sources brought along are not ours to judge, and big ones (glm) would only cost time.
_NOT_LOOKED_AT = frozenset({"third_party", "build", "dist", ".git", "docs", "doc", "tests", "test", "images"})
_BIGGEST = 2 << 20


@dataclass(frozen=True)
class Context:
    """What decides whether a rule applies, beside the files themselves."""

    cuda: tuple[int, ...]
    torch: tuple[int, ...]
    system: str
    arch_missing: bool = False
    """The numbers written in setup.py leave a target out, or running it would tell them."""
    arch: tuple[int, ...] = ()
    """Compute capability of the oldest GPU that is compiled for; empty when that plays no part."""
    builder: str = "setup.py"
    """``setup.py``, or ``cmake`` where CMakeLists.txt is what is built from."""


def edit_context(
    source: Source, cuda: Sequence[int], torch: Sequence[int], system: str, archs: Sequence[Arch]
) -> Context:
    """The context of one source's build with these versions, for these architectures."""
    oldest = min((arch.number for arch in archs), default=0)
    cmake = "CMakeLists.txt" in source.build_files and not source.uses_torch_builder
    return Context(
        tuple(cuda[:2]),
        tuple(torch[:2]),
        system,
        arch=divmod(oldest, 10) if oldest else (),
        builder="cmake" if cmake else "setup.py",
    )


@dataclass(frozen=True)
class Rule:
    """One edit rule, as its file says."""

    id: str
    cures: str
    source: str
    when: Mapping[str, Any]
    files: tuple[str, ...]
    needs: re.Pattern[str]
    unless: re.Pattern[str] | None
    edits: tuple[Mapping[str, Any], ...]
    refuse: str = ""
    """Why nothing cures it; such a rule has no edits and stops the plan."""

    def concerns(self, name: str, text: str) -> bool:
        """The file of this name with this text needs the rule."""
        if not any(fnmatch.fnmatch(name.rsplit("/", 1)[-1], pattern) for pattern in self.files):
            return False
        if self.refuse:
            text = _COMMENT.sub(" ", text)  # what is only spoken of is no reason to refuse
        return bool(self.needs.search(text)) and not (self.unless and self.unless.search(text))

    def apply(self, text: str) -> str:
        """The edited text; applied to its own result it changes nothing more."""
        if self.unless and self.unless.search(text):
            return text
        for edit in self.edits:
            if "include" in edit:
                text = _add_include(text, edit["include"])
            elif "prepend" in edit:
                text = text if edit["prepend"].strip() in text else _after_includes(text, edit["prepend"])
            else:
                text, before = re.sub(edit["replace"], edit["by"], text), text
                while edit.get("repeat") and text != before:
                    text, before = re.sub(edit["replace"], edit["by"], text), text
        return text


@dataclass(frozen=True)
class PlannedEdit:
    """One rule that a source needs, and the files it will change in the scratch copy."""

    rule: str
    files: tuple[str, ...]
    cures: str
    source: str


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule that travels with splatfix, in order of name."""
    toml: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    return tuple(
        _rule(path.stem, toml.loads(path.read_text(encoding="utf-8")))
        for path in sorted(bundled("patches").glob("*.toml"))
    )


def rule(identity: str) -> Rule:
    """The rule of that id."""
    return next(item for item in rules() if item.id == identity)


def needed_edits(source: Source, context: Context) -> tuple[PlannedEdit, ...]:
    """The rules that apply to a source here, each with the files it concerns.

    Raises:
        SplatfixError: ``refused-by-rule`` for something that no edit cures.
    """
    texts = dict(_texts(Path(source.folder)))
    found: list[PlannedEdit] = []
    for item in rules():
        if not _holds(item.when, context, texts.values()):
            continue
        files = tuple(name for name, text in texts.items() if item.concerns(name, text))
        if files and item.refuse:
            raise _refused(source, item, files, context)
        if files:
            found.append(PlannedEdit(item.id, files, item.cures, item.source))
    return tuple(found)


def edited(name: str, text: str, edits: Sequence[PlannedEdit]) -> str:
    """What the planned edits make of one file."""
    for edit in edits:
        if name in edit.files:
            text = rule(edit.rule).apply(text)
    return text


def _rule(identity: str, document: Mapping[str, Any]) -> Rule:
    return Rule(
        id=identity,
        cures=document["cures"],
        source=document["source"],
        when=document.get("when", {}),
        files=tuple(document["files"]),
        needs=re.compile(document["needs"]),
        unless=re.compile(document["unless"]) if "unless" in document else None,
        edits=tuple(document.get("edit", ())),
        refuse=document.get("refuse", ""),
    )


def _refused(source: Source, item: Rule, files: Sequence[str], context: Context) -> SplatfixError:
    oldest = ".".join(map(str, context.arch))
    return SplatfixError(
        "refused-by-rule",
        f"{source.label} cannot be compiled for compute capability {oldest}: {files[0]}: {item.cures}.",
        meaning=f"{item.refuse} Nothing was built and nothing was changed.",
        todo=(
            say("Name newer GPUs only, such as --target sm_75."),
            say("Or use a package that does without: Inria's rasterizers compile for older GPUs."),
        ),
        details={"rule": item.id, "files": list(files), "source": item.source},
    )


def _holds(when: Mapping[str, Any], context: Context, texts: Any) -> bool:
    limits = (
        "cuda_from" not in when or context.cuda >= tuple(when["cuda_from"]),
        "cuda_below" not in when or context.cuda < tuple(when["cuda_below"]),
        "torch_from" not in when or context.torch >= tuple(when["torch_from"]),
        "torch_below" not in when or context.torch < tuple(when["torch_below"]),
        "system" not in when or context.system == when["system"],
        not when.get("arch_missing") or context.arch_missing,
        "arch_below" not in when or (bool(context.arch) and context.arch < tuple(when["arch_below"])),
        "builder" not in when or context.builder == when["builder"],
    )
    if not all(limits):
        return False
    return "sources_match" not in when or any(re.search(when["sources_match"], text) for text in texts)


def _texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Every text file of a source that a rule may look at, by its path within the folder."""
    suffixes = {".h", ".hpp", ".cuh", ".cu", ".cpp", ".cc", ".py"}
    pending = [folder]
    while pending:
        here = pending.pop()
        for path in sorted(here.iterdir()):
            if path.is_symlink():
                continue
            if path.is_dir():
                if path.name not in _NOT_LOOKED_AT and not path.name.startswith("."):
                    pending.append(path)
            elif (
                path.suffix in suffixes or path.name == "CMakeLists.txt"
            ) and path.stat().st_size <= _BIGGEST:
                yield (
                    str(path.relative_to(folder).as_posix()),
                    path.read_text(encoding="utf-8", errors="surrogateescape"),
                )


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b[^\n]*\n", re.MULTILINE)
_ANCHOR = re.compile(r"^[ \t]*#[ \t]*(?:pragma[ \t]+once|include\b)[^\n]*\n", re.MULTILINE)


def _add_include(text: str, header: str) -> str:
    """The include line before the first include or after ``#pragma once``; on top where there is neither."""
    line = f"#include {header}\n"
    if re.search(rf"^[ \t]*#[ \t]*include[ \t]*{re.escape(header)}", text, re.MULTILINE):
        return text
    anchor = _ANCHOR.search(text)
    if anchor is None:
        return line + text
    at = anchor.end() if "pragma" in anchor.group() else anchor.start()
    return text[:at] + line + text[at:]


def _after_includes(text: str, addition: str) -> str:
    """The addition after the last include that stands at the top level of the file (not inside a conditional)."""
    depth, at = 0, 0
    for match in re.finditer(
        r"^[ \t]*#[ \t]*(if|ifdef|ifndef|endif|include)\b[^\n]*(?:\n|$)", text, re.MULTILINE
    ):
        word = match.group(1)
        if word == "include" and depth <= _guard_depth(text):
            at = match.end()
        depth += {"include": 0, "endif": -1}.get(word, 1)
    return text[:at] + addition.lstrip("\n") + text[at:]


def _guard_depth(text: str) -> int:
    """1 in a header with a classic include guard around everything, else 0."""
    return (
        1
        if re.match(
            r"(?:\s|//[^\n]*\n|/\*.*?\*/)*#[ \t]*ifndef\s+(\w+)\s*\n\s*#[ \t]*define\s+\1", text, re.DOTALL
        )
        else 0
    )
