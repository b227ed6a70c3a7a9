"""Which known breakages (``patches/*.toml``) a source is edited for here, and what the edits make of a file's text."""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from splatfix.core.errors import Rejected
from splatfix.core.source_pattern import without_comments
from splatfix.core.versions import dotted
from splatfix.knowledge.breakages import Breakage, breakage, breakages
from splatfix.model import Source
from splatfix.model.steps import PlannedEdit


class Cures(Struct, frozen=True):
    """What a source's build needs against known breakages."""

    edits: tuple[PlannedEdit, ...] = ()
    by_variables: tuple[Breakage, ...] = ()
    """Those that variables of the build's environment cure."""


def needed_cures(
    source: Source,
    texts: Mapping[str, str],
    versions: Mapping[str, tuple[int, ...]],
    system: str = "linux",
    *,
    arch_missing: bool = False,
    gpu_missing: bool = False,
) -> Cures | Rejected:
    """Return what the breakages in a source need here; rejected for something that no edit cures.

    The versions are of ``cuda``, ``torch``, ``gcc``, ``python``, what edits of Python code depend on, and the oldest ``arch``.
    With ``arch_missing`` the numbers in setup.py leave a target out, or running it would tell them; with ``gpu_missing`` setup.py
    compiles its CUDA code only for a GPU in sight, none is, and no variable changes that.
    """
    edits: list[PlannedEdit] = []
    by_variables: list[Breakage] = []
    builder = "setup.py"
    if "CMakeLists.txt" in source.build_files and not source.uses_torch_builder:
        builder = "cmake"
    code_of_files = {name: without_comments(name, text) for name, text in texts.items()}
    for record in breakages():
        find, when = record.find, record.when
        if find is None:
            continue
        applies = (
            when.holds(versions, system)
            and not when.lacks
            and (arch_missing or not when.arch_missing)
            and (gpu_missing or not when.gpu_missing)
            and when.builder in ("", builder)
            and any(re.search(when.sources_match, code) for code in code_of_files.values())
        )
        if not applies and not record.always_edit:
            continue
        # those that show it
        files = tuple(name for name, code in code_of_files.items() if find.looks_at(name) and find.find(code))
        if not files:
            continue
        origin = "; ".join(record.sources)
        if record.stops:
            return Rejected.of(
                "plan.refused-by-rule",
                details={"rule": record.key, "files": list(files), "source": origin},
                label=source.label,
                oldest=dotted(versions["arch"]),
                file=files[0],
                symptom=record.symptom,
                no_edit=record.no_edit,
            )
        if record.edits:
            cures = record.symptom
            if not applies:
                cures = f"{record.cure}, harmless where it is not needed"
            edits.append(PlannedEdit(record.key, files, cures, origin))
        if record.variables:
            by_variables.append(record)
    return Cures(tuple(edits), tuple(by_variables))


def edited(name: str, text: str, edits: Sequence[PlannedEdit]) -> str:
    """Return what the planned edits make of one file."""
    for edit in edits:
        if name in edit.files:
            text = apply(breakage(edit.rule), text)
    return text


def apply(record: Breakage, text: str) -> str:
    """Return the text with a record's edits; applied to its own result it changes nothing more."""
    if record.find and record.find.unless and re.search(record.find.unless, text):
        return text
    for edit in record.edits:
        if edit.include:
            text = _add_include(text, edit.include)
        elif edit.prepend and edit.prepend.strip() not in text:
            text = _after_includes(text, edit.prepend)
        elif edit.replace:
            before = text
            text = re.sub(edit.replace, edit.by, text)
            while edit.repeat and text != before:
                before = text
                text = re.sub(edit.replace, edit.by, text)
    return text


_GUARD = re.compile(r"(?:\s|//[^\n]*\n|/\*.*?\*/)*#[ \t]*ifndef\s+(\w+)\s*\n\s*#[ \t]*define\s+\1", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|endif|include)\b[^\n]*(?:\n|$)", re.MULTILINE)
_ANCHOR = re.compile(r"^[ \t]*#[ \t]*(?:pragma[ \t]+once|include\b)[^\n]*\n", re.MULTILINE)


def _add_include(text: str, header: str) -> str:
    """Put the include line before the first include or after ``#pragma once``; on top where there is neither."""
    line = f"#include {header}\n"
    if re.search(rf"^[ \t]*#[ \t]*include[ \t]*{re.escape(header)}", text, re.MULTILINE):
        return text
    anchor = _ANCHOR.search(text)
    at = 0
    if anchor:
        at = anchor.end() if "pragma" in anchor.group() else anchor.start()
    return text[:at] + line + text[at:]


def _after_includes(text: str, addition: str) -> str:
    """Put the addition after the last include that stands at the top level of the file (not inside a conditional)."""
    depth = at = top = 0
    # in a header with a classic include guard around everything the top level is one deeper
    if _GUARD.match(text):
        top = 1
    for match in _DIRECTIVE.finditer(text):
        word = match.group(1)
        if word == "include" and depth <= top:
            at = match.end()
        if word == "endif":
            depth -= 1
        elif word != "include":
            depth += 1
    return text[:at] + addition.lstrip("\n") + text[at:]
