"""What differs between two certificates: outcomes, measures, and what was recorded of their causes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from splatfix.certify.model import Outcome, Verdict
from splatfix.core.words import counted, few
from splatfix.report.console import escape, paragraph, prose
from splatfix.report.console import table as show_table
from splatfix.report.field_report import cell
from splatfix.report.recorded import PARTS, listed, mapping, parts_of, runs_of, scenes_of, text, verdict_of

_MEASURES: tuple[tuple[str, str, tuple[str, ...], float], ...] = (
    ("PSNR", "dB", ("heldout", "psnr"), 1),
    ("SSIM", "", ("heldout", "ssim"), 1),
    ("LPIPS", "", ("heldout", "lpips"), 1),
    ("speed", "it/s", ("iterations_per_second",), 1),
    ("peak GPU memory", "MiB", ("memory", "cuda", "train", "allocated"), 2**20),
    ("peak memory", "MiB", ("memory", "rss"), 2**20),
)
"""Name, unit, where it is in the trainer's result, and what one unit is in that."""
_RANK = {Verdict.CERTIFIED: 0, Verdict.REHEARSED: 1, Verdict.UNDETERMINED: 2, Verdict.NOT_CERTIFIED: 3}
_GOOD = {Outcome.MET.value, "verified"}
_BAD = {Outcome.FAILED.value}


@dataclass(frozen=True)
class Side:
    """One of the two certificates."""

    file: str
    verdict: Verdict
    issued: str
    splatfix: str
    """The version that wrote it."""


@dataclass(frozen=True)
class Cause:
    """Something a result may depend on, and that differs. Whether it is the reason, no comparison can say."""

    part: str
    """A key of :data:`splatfix.report.recorded.PARTS`."""
    label: str
    a: str
    b: str
    detail: str = ""


@dataclass(frozen=True)
class Change:
    """A level, a kernel or a criterion whose outcome differs; "" where one of them does not have it."""

    where: str
    """``level``, ``kernel``, ``diagnosis``, or the scene."""
    code: str
    a: str
    b: str
    measured_a: str
    measured_b: str

    @property
    def worse(self) -> bool:
        """It failed in B, and not in A."""
        return self.b in _BAD and self.a not in _BAD


@dataclass(frozen=True)
class Measure:
    """A measured value of one scene, in both."""

    scene: str
    name: str
    unit: str
    a: float | None
    b: float | None
    change: float | None
    """Relative to A: 0.1 is a tenth more; None where one is not known or A is zero."""


@dataclass(frozen=True)
class Difference:
    """B held against A."""

    a: Side
    b: Side
    worse: bool
    """B's verdict is lower, or B fails a level, a kernel or a criterion that A does not fail."""
    comparable: bool
    """False where B is not worse as far as can be told, and no scene was trained to its end in both though one of them
    trained: there is nothing that B could be worse in."""
    first_cause: Cause | None
    """The first of ``causes``; None where nothing differs that was recorded."""
    causes: tuple[Cause, ...]
    """In the order of causation."""
    not_recorded: tuple[str, ...]
    """Parts that only one of the two recorded, so that they could not be compared."""
    changes: tuple[Change, ...]
    measures: tuple[Measure, ...]
    only_in_a: tuple[str, ...]
    """Scenes."""
    only_in_b: tuple[str, ...]


def compare(
    file_a: str, document_a: Mapping[str, Any], file_b: str, document_b: Mapping[str, Any]
) -> Difference:
    """Hold certificate B against A; settings and code are compared for the scenes they share.

    Raises:
        ValueError: a certificate without a verdict.
    """
    scenes_a, scenes_b = scenes_of(document_a), scenes_of(document_b)
    shared = [name for name in scenes_a if name in scenes_b]
    both = (document_a, document_b)
    begun = [name for name in runs_of(document_a) if name in runs_of(document_b)]
    a, b = (parts_of(document, begun or None) for document in both)
    causes = tuple(
        Cause(part, label, a[part], b[part], _files_that_differ(*both) if part == "sources" else "")
        for part, label in PARTS.items()
        if part in a and part in b and a[part] != b[part]
    )
    changes = tuple(_changes(document_a, document_b, shared))
    sides = (_side(file_a, document_a), _side(file_b, document_b))
    lower = _RANK[sides[1].verdict] > _RANK[sides[0].verdict]
    worse = lower or any(item.worse for item in changes)
    return Difference(
        *sides,
        worse=worse,
        comparable=worse or bool(shared) or not (_trains(document_a) or _trains(document_b)),
        first_cause=causes[0] if causes else None,
        causes=causes,
        not_recorded=tuple(label for part, label in PARTS.items() if (part in a) != (part in b)),
        changes=changes,
        measures=tuple(
            measure
            for scene in shared
            for measure in _measures(
                scene, *(mapping(one[scene].get("result")) for one in (scenes_a, scenes_b))
            )
        ),
        only_in_a=tuple(name for name in scenes_a if name not in scenes_b),
        only_in_b=tuple(name for name in scenes_b if name not in scenes_a),
    )


def _trains(document: Mapping[str, Any]) -> bool:
    """It trained a scene, or ended before it had."""
    ended = document.get("interrupted") is True or document.get("unfinished") is True
    return ended or bool(scenes_of(document))


def _side(file: str, document: Mapping[str, Any]) -> Side:
    by = text(document.get("splatfix_version"))
    return Side(file, verdict_of(document), text(document.get("issued")), by)


def _files_that_differ(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    one, other = mapping(a.get("sources")), mapping(b.get("sources"))
    return few(sorted(text(name) for name in {*one, *other} if one.get(name) != other.get(name)))


def _changes(a: Mapping[str, Any], b: Mapping[str, Any], shared: list[str]) -> Iterator[Change]:
    before, after = (dict(_outcomes(document, shared)) for document in (a, b))
    for key in dict.fromkeys((*before, *after)):
        (outcome_a, measured_a), (outcome_b, measured_b) = before.get(key, ("", "")), after.get(key, ("", ""))
        if outcome_a != outcome_b:
            yield Change(*key, outcome_a, outcome_b, measured_a, measured_b)


def _outcomes(
    document: Mapping[str, Any], shared: list[str]
) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Outcome and measurement of every level, check, kernel and criterion."""
    words = {True: "verified", False: "failed", None: "not verified"}
    for item in map(mapping, listed(document.get("proof"))):
        reached = item.get("reached")
        known = reached if isinstance(reached, bool) else None
        yield ("level", text(item.get("name"))), (words[known], text(item.get("shown_by")))
    for item in map(mapping, listed(document.get("kernels"))):
        name = " ".join(filter(None, (text(item.get("name")), text(item.get("implementation")))))
        yield ("kernel", name), (text(item.get("outcome")), text(item.get("detail")))
    scenes = scenes_of(document)
    judged = {"diagnosis": document.get("diagnosis")} | {
        name: scenes[name].get("criteria") for name in shared
    }
    for name, criteria in judged.items():
        for item in map(mapping, listed(criteria)):
            yield (name, text(item.get("code"))), (text(item.get("outcome")), text(item.get("measured")))


def _measures(scene: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Measure]:
    for name, unit, path, one in _MEASURES:
        before, after = (_number(result, path, one) for result in (a, b))
        if before is not None or after is not None:
            known = before is not None and after is not None and before != 0
            yield Measure(scene, name, unit, before, after, after / before - 1 if known else None)  # type: ignore[operator]


def _number(result: object, path: tuple[str, ...], one: float) -> float | None:
    for key in path:
        result = mapping(result).get(key)
    if isinstance(result, bool) or not isinstance(result, (int, float)) or not math.isfinite(result):
        return None
    return result / one


def heading(found: Difference) -> str:
    """The outcome in a sentence."""
    a, b = found.a.verdict.value.replace("-", " "), found.b.verdict.value.replace("-", " ")
    if found.worse:
        failed = sum(item.worse for item in found.changes)
        return f"B is worse: {a} in A, {b} in B" + (
            f"; {counted(failed, 'outcome')} failed that did not" if failed else ""
        )
    if not found.comparable:
        return f"A and B cannot be compared: no scene was trained to its end in both ({a} in A, {b} in B)"
    return f"B is not worse: {a} in A, {b} in B"


def cause_words(found: Difference) -> str:
    """The first cause that differs, in a sentence that claims no more."""
    cause = found.first_cause
    if cause is None:
        return "Nothing differs that was recorded."
    return f"First cause that differs: {cause.label}: {cause.a} in A, {cause.b} in B"


def show(console: Console, found: Difference) -> None:
    """The outcome, the first cause, the other causes, then outcomes and measures that changed."""
    mark = "[bold red]✗[/]" if found.worse else "[green]✓[/]" if found.comparable else "[magenta]?[/]"
    paragraph(console, f"{mark} [bold]{escape(heading(found))}[/]", first=0, then=2)
    for name, side in (("A", found.a), ("B", found.b)):
        prose(console, f"  {name}: ", f"{escape(side.file)} [dim]({escape(side.issued)})[/]")
    paragraph(console, f"[bold]{escape(cause_words(found))}[/]", first=2, then=4)
    if found.causes:
        prose(console, "  ", "[dim]It differs; whether it is the reason, a comparison cannot say.[/]")
    for cause in found.causes[1:]:
        told = f"{cause.label}: {cause.a} in A, {cause.b} in B" + (
            f" ({cause.detail})" if cause.detail else ""
        )
        prose(console, "  also differs: ", escape(told))
    if found.not_recorded:
        prose(console, "  recorded in one only: ", escape(", ".join(found.not_recorded)))
    for name, scenes in (("A", found.only_in_a), ("B", found.only_in_b)):
        if scenes:
            prose(console, f"  scenes only in {name}: ", escape(few(scenes)))
    if found.changes:
        console.print("\n[bold]Outcomes that differ[/]")
    for change in found.changes:
        sign = "[bold red]✗[/]" if change.worse else "[green]✓[/]" if change.b in _GOOD else "[dim]–[/]"
        told = f"{change.where}: {change.code}: {change.a or 'absent'} in A, {change.b or 'absent'} in B"
        measured = f" [dim]({escape(change.measured_a or '–')} → {escape(change.measured_b or '–')})[/]"
        prose(console, f"  {sign} ", escape(told) + measured)
    if found.measures:
        console.print("\n[bold]Measures[/]")
        show_table(console, ("scene", "measure", "A", "B", "change"), map(_row, found.measures))


def markdown(found: Difference) -> str:
    """The same as Markdown."""
    lines = [f"# {heading(found)}", ""]
    lines += [
        f"- {name}: {cell(side.file)} ({cell(side.issued)})"
        for name, side in (("A", found.a), ("B", found.b))
    ]
    lines += ["", f"**{cell(cause_words(found))}**", ""]
    if found.causes:
        lines += ["| differs, in the order of causation | A | B |", "|---|---|---|"]
        for cause in found.causes:
            detail = f" ({cause.detail})" if cause.detail else ""
            lines.append(f"| {cell(cause.label + detail)} | {cell(cause.a)} | {cell(cause.b)} |")
        lines += ["", "These differ; whether one of them is the reason, a comparison cannot say.", ""]
    if found.not_recorded:
        lines += [f"Recorded in one only: {cell(', '.join(found.not_recorded))}.", ""]
    for name, scenes in (("A", found.only_in_a), ("B", found.only_in_b)):
        lines += [f"Scenes only in {name}: {cell(few(scenes))}.", ""] if scenes else []
    if found.changes:
        lines += ["## Outcomes that differ", "", "| where | what | A | B |", "|---|---|---|---|"]
        for item in found.changes:
            sides = ((item.a, item.measured_a), (item.b, item.measured_b))
            told = [
                cell(": ".join(filter(None, (outcome or "absent", measured)))) for outcome, measured in sides
            ]
            lines.append(f"| {cell(item.where)} | {cell(item.code)} | {told[0]} | {told[1]} |")
        lines += [""]
    if found.measures:
        lines += ["## Measures", "", "| scene | measure | A | B | change |", "|---|---|---|---|---|"]
        lines += ["| " + " | ".join(map(cell, _row(item))) + " |" for item in found.measures] + [""]
    return "\n".join(lines)


def _row(item: Measure) -> tuple[str, ...]:
    values = ("–" if value is None else f"{value:.4g} {item.unit}".rstrip() for value in (item.a, item.b))
    change = "–" if item.change is None else "equal" if item.a == item.b else f"{item.change:+.1%}"
    return item.scene, item.name, *values, change
