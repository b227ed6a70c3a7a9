"""What differs between two certificates: outcomes, measures, and what was recorded of their causes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from splatfix.certify.model import Outcome, Verdict, first_causes
from splatfix.certify.record import TrainingRecord
from splatfix.core.data import dataclass
from splatfix.core.words import counted, few
from splatfix.report.console import escape, marked, paragraph, prose, section
from splatfix.report.console import table as show_table
from splatfix.report.marks import ABSENT, Mark, Table
from splatfix.report.recorded import NOT_ON_A_CPU, PARTS, StoredCertificate, short
from splatfix.report.results import gpu_peak, number
from splatfix.report.templates import fill_in

_RANK = {Verdict.CERTIFIED: 0, Verdict.REHEARSED: 1, Verdict.UNDETERMINED: 2, Verdict.NOT_CERTIFIED: 3}
_MAY_BE_ABSENT = {"commit", "seed", "idle-driver"}
"""Parts that a whole certificate may lack: of an installed splatfix, of a stack's own trainer, of a machine without a driver."""
_GOOD = {Outcome.MET.value, "verified"}
_BAD = {Outcome.FAILED.value}


@dataclass(frozen=True)
class Side:
    """One of the two certificates."""

    file: str
    verdict: Verdict
    level: int | None
    """The run level; 1 and 2 train nothing."""
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
class Package:
    """An installed package whose version differs; "" where one of them does not have it."""

    name: str
    a: str
    b: str


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
    """A measured value of one scene, or of a kernel, in both."""

    scene: str
    """Or ``kernel``."""
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
    in_neither: tuple[str, ...]
    """Parts that neither recorded, of those that a run on such a device has."""
    packages: tuple[Package, ...]
    changes: tuple[Change, ...]
    measures: tuple[Measure, ...]
    only_in_a: tuple[str, ...]
    """Scenes."""
    only_in_b: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Everything could be compared, and nothing differs."""
        differs = self.causes or self.changes or self.only_in_a or self.only_in_b
        unequal = any(measure.a != measure.b for measure in self.measures)
        return not (differs or unequal or self.not_recorded or self.in_neither)


def compare(
    file_a: str,
    document_a: Mapping[str, Any],
    file_b: str,
    document_b: Mapping[str, Any],
) -> Difference:
    """Hold certificate B against A; settings and code are compared for the scenes they share.

    Raises:
        ValueError: a certificate without a verdict.
    """
    a, b = StoredCertificate(document_a), StoredCertificate(document_b)
    scenes_a, scenes_b = a.scenes, b.scenes
    shared = [name for name in scenes_a if name in scenes_b]
    # what both had begun; two that share no scene are still compared by all that they ran
    begun = [name for name in a.results if name in b.results] or None
    parts_a, parts_b = a.parts(begun), b.parts(begun)
    packages = () if not (a.packages and b.packages) else tuple(_packages(a.packages, b.packages))
    causes, not_recorded, in_neither = [], [], []
    for part, label in PARTS.items():
        if part in parts_a and part in parts_b:
            if parts_a[part] != parts_b[part]:
                detail = ""
                if part == "sources":
                    detail = _files_that_differ(a, b)
                values = parts_a[part], parts_b[part]
                if part == "packages":
                    values = _named(packages, "a"), _named(packages, "b")
                causes.append(Cause(part, label, *values, detail))
        elif part in parts_a or part in parts_b:
            not_recorded.append(label)
        elif part not in _MAY_BE_ABSENT and not (part in NOT_ON_A_CPU and _on_cpu(a, b)):
            in_neither.append(label)
    changes = tuple(_changes(a, b, shared))
    side_a, side_b = _side(file_a, a), _side(file_b, b)
    # faster or slower is no verdict: a baseline has tolerances for that, a comparison has not
    worse = _RANK[side_b.verdict] > _RANK[side_a.verdict] or any(change.worse for change in changes)
    measures = list(_kernel_errors(a, b))
    for name in shared:
        measures.extend(_measures(name, scenes_a[name].record, scenes_b[name].record))
    return Difference(
        side_a,
        side_b,
        worse=worse,
        comparable=worse or bool(shared) or not (_trained(a) or _trained(b)),
        first_cause=causes[0] if causes else None,
        causes=tuple(causes),
        not_recorded=tuple(not_recorded),
        in_neither=tuple(in_neither),
        packages=packages,
        changes=changes,
        measures=tuple(measures),
        only_in_a=tuple(name for name in scenes_a if name not in scenes_b),
        only_in_b=tuple(name for name in scenes_b if name not in scenes_a),
    )


def _on_cpu(*certificates: StoredCertificate) -> bool:
    return all(stored.certificate.device == "cpu" for stored in certificates)


def _packages(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[Package]:
    for name in sorted({*a, *b}):
        if a.get(name) != b.get(name):
            yield Package(name, a.get(name, ""), b.get(name, ""))


def _named(packages: Sequence[Package], side: str) -> str:
    """``numpy 1.26.4, no fused-ssim``."""
    texts = []
    for item in packages:
        version = getattr(item, side)
        texts.append(f"{item.name} {version}" if version else f"no {item.name}")
    return few(texts)


def _trained(stored: StoredCertificate) -> bool:
    """It trained a scene, or ended before it had."""
    return bool(stored.scenes) or stored.certificate.interrupted or stored.certificate.unfinished


def _side(file: str, stored: StoredCertificate) -> Side:
    certificate = stored.certificate
    issued = short(certificate.issued)
    return Side(file, certificate.verdict, certificate.level, issued, stored.issued_by)


def _files_that_differ(a: StoredCertificate, b: StoredCertificate) -> str:
    old, new = a.certificate.sources, b.certificate.sources
    return few(sorted(short(name) for name in {*old, *new} if old.get(name) != new.get(name)))


@dataclass(frozen=True)
class _Result:
    """Outcome and measurement of a level, a kernel or a criterion; both "" where a certificate does not have it."""

    outcome: str = ""
    measured: str = ""


def _changes(a: StoredCertificate, b: StoredCertificate, shared: Sequence[str]) -> Iterator[Change]:
    before, after = dict(_results(a, shared)), dict(_results(b, shared))
    # both orders at once: what only B has comes after what A has
    for where, code in dict.fromkeys((*before, *after)):
        old = before.get((where, code), _Result())
        new = after.get((where, code), _Result())
        if old.outcome != new.outcome:
            yield Change(where, code, old.outcome, new.outcome, old.measured, new.measured)


def _results(stored: StoredCertificate, shared: Sequence[str]) -> Iterator[tuple[tuple[str, str], _Result]]:
    """Every check, kernel, criterion and level, by where it is and its code; what explains others before them."""
    for item in stored.certificate.diagnosis:
        yield ("diagnosis", short(item.code)), _Result(item.outcome.value, short(item.measured))
    for kernel in stored.certificate.kernels:
        name = " ".join(filter(None, (short(kernel.name), short(kernel.implementation))))
        yield ("kernel", name), _Result(kernel.outcome.value, short(kernel.detail))
    for name in shared:
        for item in first_causes(stored.scenes[name].criteria):
            yield (name, short(item.code)), _Result(item.outcome.value, short(item.measured))
    reached = {True: "verified", False: "failed", None: "not verified"}
    for rung in stored.certificate.proof:
        yield ("level", rung.name.value), _Result(reached[rung.reached], short(rung.shown_by))


def _measures(scene: str, a: TrainingRecord, b: TrainingRecord) -> Iterator[Measure]:
    for (name, unit, before), (_, _, after) in zip(_measured(a), _measured(b), strict=True):
        if before is None and after is None:
            continue
        change = None
        if before and after is not None:
            change = after / before - 1
        yield Measure(scene, name, unit, before, after, change)


def _kernel_errors(a: StoredCertificate, b: StoredCertificate) -> Iterator[Measure]:
    """Errors of kernels that both measured, or one of them, where they are not the same."""
    before, after = (dict(_errors(stored)) for stored in (a, b))
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        if old != new:
            yield Measure("kernel", name, "", old, new, None)


def _errors(stored: StoredCertificate) -> Iterator[tuple[str, float]]:
    for kernel in stored.certificate.kernels:
        name = short(kernel.implementation or kernel.name)
        for kind, error in (("value", kernel.value_error), ("gradient", kernel.gradient_error)):
            if error is not None:
                yield f"{name} {kind} error", error


def _measured(record: TrainingRecord) -> Iterator[tuple[str, str, float | None]]:
    """Name, unit and value of what is compared."""
    yield "PSNR", "dB", record.heldout.psnr
    yield "SSIM", "", record.heldout.ssim
    yield "LPIPS", "", record.heldout.lpips
    yield "speed", "it/s", record.iterations_per_second
    sizes = {"peak GPU memory": gpu_peak(record), "peak memory": record.memory.rss}
    for name, size in sizes.items():
        yield name, "MiB", size and size / 2**20


def heading(difference: Difference) -> str:
    """The outcome in a sentence."""
    a, b = map(_verdict, (difference.a, difference.b))
    if difference.worse:
        text = f"B is worse: {a} in A, {b} in B"
        failed = sum(change.worse for change in difference.changes)
        if failed:
            text += f"; {counted(failed, 'outcome')} failed that did not"
        return text
    if not difference.comparable:
        return f"A and B cannot be compared: no scene was trained to its end in both ({a} in A, {b} in B)"
    return f"B is not worse: {a} in A, {b} in B"


def _verdict(side: Side) -> str:
    """``certified``; of a run that trained nothing, at which level."""
    text = side.verdict.value.replace("-", " ")
    if side.level in (1, 2):
        text += f" at run level {side.level}"
    return text


def first_cause(difference: Difference) -> str:
    """The first cause that differs, in a sentence that claims no more."""
    cause = difference.first_cause
    if cause is None and difference.complete:
        return "Nothing differs."
    if cause is None:
        return "No cause that both recorded differs."
    return f"First cause that differs: {cause.label}: {cause.a} in A, {cause.b} in B"


def show(console: Console, difference: Difference) -> None:
    """The outcome, the first cause, the other causes, then outcomes and measures that changed."""
    paragraph(console, f"{_mark(difference).markup} [bold]{escape(heading(difference))}[/]", first=0, then=2)
    for name, side in (("A", difference.a), ("B", difference.b)):
        prose(console, f"  {name}: ", f"{escape(side.file)} [dim]({escape(side.issued)})[/]")
    paragraph(console, f"[bold]{escape(first_cause(difference))}[/]", first=2, then=4)
    if difference.causes:
        prose(console, "  ", "[dim]It differs; whether it is the reason, a comparison cannot say.[/]")
    for cause in difference.causes[1:]:
        text = f"{cause.label}: {cause.a} in A, {cause.b} in B"
        if cause.detail:
            text += f" ({cause.detail})"
        prose(console, "  also differs: ", escape(text))
    if difference.not_recorded:
        prose(console, "  recorded in one only: ", escape(", ".join(difference.not_recorded)))
    if difference.in_neither:
        prose(console, "  recorded in neither: ", escape(", ".join(difference.in_neither)))
    for name, scenes in (("A", difference.only_in_a), ("B", difference.only_in_b)):
        if scenes:
            prose(console, f"  scenes only in {name}: ", escape(few(scenes)))
    if difference.changes:
        section(console, "Outcomes that differ")
    for change in difference.changes:
        _show_change(console, change)
    if difference.measures:
        section(console, "Measures")
        show_table(console, _MEASURE_HEADERS, map(_row, difference.measures))


def _mark(difference: Difference) -> Mark:
    if difference.worse:
        return Mark.BAD
    if difference.comparable:
        return Mark.GOOD
    return Mark.UNKNOWN


def _show_change(console: Console, change: Change) -> None:
    mark = Mark.NONE
    if change.worse:
        mark = Mark.BAD
    elif change.b in _GOOD:
        mark = Mark.GOOD
    text = f"{change.where}: {change.code}: {change.a or 'absent'} in A, {change.b or 'absent'} in B"
    measured = f"{escape(change.measured_a or ABSENT)} → {escape(change.measured_b or ABSENT)}"
    marked(console, mark, f"{escape(text)} [dim]({measured})[/]")


def markdown(difference: Difference) -> str:
    """The same as Markdown."""
    return fill_in(
        "difference.md",
        difference=difference,
        heading=heading(difference),
        first_cause=first_cause(difference),
        sides=(("A", difference.a), ("B", difference.b)),
        only=(("A", difference.only_in_a), ("B", difference.only_in_b)),
        few=few,
        measures=Table(_MEASURE_HEADERS, list(map(_row, difference.measures))),
    )


_MEASURE_HEADERS = ("scene", "measure", "A", "B", "change")


def _row(measure: Measure) -> tuple[str, ...]:
    form = f"{{:.4g}} {measure.unit}".rstrip()
    change = number(measure.change, "{:+.1%}")
    if measure.change == 0:
        change = "equal"
    return (measure.scene, measure.name, number(measure.a, form), number(measure.b, form), change)
