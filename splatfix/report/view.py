"""One view of a certificate, which every form of it shows: the terminal, Markdown and HTML.

What a result is called, how a number is written and which rows a table has is decided here; a form only arranges it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

from msgspec import Struct

from smoke_trainer.record import Config
from splatfix.certify.model import (
    Certificate,
    Criterion,
    KernelCheck,
    Outcome,
    SceneRun,
    Verdict,
    vagueness,
)
from splatfix.core.proof import Rung
from splatfix.report.comparison import Baseline, baseline_of
from splatfix.report.marks import ABSENT, Badge, Mark, Table
from splatfix.report.results import legend, number, row
from splatfix.report.wording import (
    LEVEL_MEANS,
    LEVEL_MEANS_ON_THE_CPU,
    MEANS,
    MEANS_WITHOUT_TRAINING,
    RESULTS,
)

OUTCOMES = {
    Outcome.FAILED: Badge(Mark.BAD, "failed", plain="FAILED"),
    Outcome.UNDETERMINED: Badge(Mark.UNSURE, "undetermined"),
    Outcome.NOT_MEASURED: Badge(Mark.NONE, "not judged"),
    Outcome.MET: Badge(Mark.GOOD, "met"),
}
"""How each outcome of a criterion is shown, the ones that matter most first. A criterion without a verdict may well have a
measurement beside it."""
VERDICTS: Mapping[Verdict, Badge] = {
    Verdict.NOT_CERTIFIED: Badge(Mark.BAD, "not certified"),
    Verdict.UNDETERMINED: Badge(Mark.UNSURE, "undetermined"),
    Verdict.REHEARSED: Badge(Mark.GOOD, "rehearsed"),
    Verdict.CERTIFIED: Badge(Mark.GOOD, "certified"),
}
"""How each verdict is shown, the one that matters most first."""
_WITHOUT_TRAINING = {1: "Diagnosis passed (run level 1)", 2: "Kernels verified (run level 2)"}
"""CERTIFIED is only said of what was trained."""
_PASSED = {
    True: Badge(Mark.GOOD, "passed"),
    False: Badge(Mark.BAD, "failed", plain="FAILED"),
    None: Badge(Mark.UNSURE, "undetermined"),
}
_REACHED = {True: Mark.GOOD, False: Mark.BAD, None: Mark.NONE}


class Trouble(Struct, frozen=True):
    """One thing that went wrong, or could not be judged."""

    where: str
    """The scene; ``diagnosis``, ``kernel`` or ``level`` for what is no scene's."""
    code: str
    """Of the criterion or finding; the name of the kernel or level."""
    outcome: Outcome
    means: str


class CertificateView(Struct, frozen=True):
    """A certificate as it is shown. Each part is made when a form asks for it."""

    certificate: Certificate

    @property
    def headline(self) -> Badge:
        return headline(self.certificate.verdict, self.certificate.level, self.certificate.device)

    @property
    def title(self) -> str:
        """The headline without its capitals, which shout where a colour and a sign say the same."""
        verdict, *rest = self.headline.text.split(" (", 1)
        return " (".join((verdict.capitalize(), *rest))

    @property
    def means(self) -> str:
        verdict, level = self.certificate.verdict, self.certificate.level
        if verdict is Verdict.CERTIFIED and level in MEANS_WITHOUT_TRAINING:
            return MEANS_WITHOUT_TRAINING[level]
        return MEANS[verdict]

    @property
    def scope(self) -> str:
        """What was run, and where: ``Run level 4, suite data, renderer torch, on the CPU.``"""
        certificate = self.certificate
        parts = []
        if certificate.level is not None:
            parts.append(f"run level {certificate.level}")
        if certificate.suite:
            parts.append(f"suite {certificate.suite}")
        text = ", ".join(parts)
        text = text[:1].upper() + text[1:]
        if certificate.scenes:
            text += f", renderer {certificate.renderer}"
        device = "the CPU" if certificate.device == "cpu" else certificate.device
        return f"{text}, on {device}."

    @property
    def ended(self) -> bool:
        return not (self.certificate.interrupted or self.certificate.unfinished)

    @property
    def reservations(self) -> Sequence[str]:
        return [f"{item.scene}: {item.reason}" for item in self.certificate.notes]

    @property
    def unreadable(self) -> Sequence[str]:
        return [f"{item.scene}: {item.reason}" for item in self.certificate.unreadable]

    @property
    def skipped(self) -> dict[str, list[str]]:
        """The skipped scenes by reason: mostly one reason holds for all of them."""
        scenes: dict[str, list[str]] = {}
        for item in self.certificate.skipped:
            scenes.setdefault(item.reason, []).append(item.scene)
        return scenes

    @property
    def levels(self) -> Sequence[tuple[Rung, Badge, str]]:
        """The levels of proof, lowest first: each with its result, and what it is for a reader who never saw one."""
        means = dict(LEVEL_MEANS)
        # without a GPU there is no driver and no toolkit that could fit or not
        if self.certificate.device == "cpu":
            means |= LEVEL_MEANS_ON_THE_CPU
        return [
            (rung, Badge(_REACHED[rung.reached], rung.words), means[rung.name.value])
            for rung in self.certificate.proof
        ]

    @property
    def kernels(self) -> Table:
        """A row for each kernel."""
        rows = []
        for check in self.certificate.kernels:
            implementation = check.implementation
            if check.kind:
                implementation += f" ({check.kind})"
            errors = errors_of(check)
            rows.append((check.name, implementation, _kernel_badge(check), *errors, check.detail or ABSENT))
        columns = ("kernel", "implementation", "result", "value error", "gradient error", "detail")
        return Table(columns, rows)

    @property
    def results(self) -> Table | None:
        if not self.certificate.scenes:
            return None
        rows: list[Sequence[str | Badge]] = []
        for run in self.certificate.scenes:
            rows.append((run.scene, scene_badge(run), *row(run)))
        return Table(("scene", "result", *RESULTS), rows)

    @property
    def legend(self) -> str:
        return legend(self.certificate.scenes)

    @property
    def baseline(self) -> Baseline | None:
        comparison = self.certificate.comparison
        return baseline_of(comparison) if comparison and comparison.scenes else None

    @property
    def settings(self) -> Table | None:
        """The settings: one value where it is the same in every scene, otherwise each scene's."""
        runs = [run for run in self.certificate.scenes if run.record.config != Config()]
        rows = []
        for name in (field.name for field in fields(Config)):
            values = {run.scene: getattr(run.record.config, name) for run in runs}
            if all(value in (None, []) for value in values.values()):
                continue
            texts = {scene: number(value, "{}") for scene, value in values.items()}
            text = ", ".join(f"{scene} {text}" for scene, text in texts.items())
            if len(set(texts.values())) == 1:
                text = next(iter(texts.values()))
            rows.append((name, text))
        return Table(("setting", "value"), rows) if rows else None

    @property
    def code_that_ran(self) -> Table | None:
        """A row for each part and file: which scenes it ran in."""
        runs = [run for run in self.certificate.scenes if run.record.implementations]
        scenes: dict[tuple[str, ...], list[str]] = {}
        for run in runs:
            for part, item in run.record.implementations.items():
                cells = (item.name, item.version, item.engine, item.file, item.sha256)
                scenes.setdefault((part, *(cell or ABSENT for cell in cells)), []).append(run.scene)
        rows = []
        for row_cells, names in scenes.items():
            which = ", ".join(names)
            if len(names) == len(runs):
                which = "all"
            rows.append((*row_cells, which))
        headers = ("part", "name", "version", "engine", "file", "SHA-256", "scenes")
        return Table(headers, rows) if rows else None

    @property
    def troubles(self) -> dict[str, list[Trouble]]:
        """Everything that failed or stayed open, by what to do about it ("" where only a diagnosis can tell), in the order of
        the certificate's reasons. A level that failed is told where nothing below it did."""
        troubles: dict[str, list[Trouble]] = {}
        # altered code, then a wrong kernel: either may be the cause of all that follows
        _add_troubles(troubles, [("diagnosis", item) for item in self.certificate.diagnosis])
        for kernel in self.certificate.kernels:
            if kernel.outcome is Outcome.FAILED:
                means = kernel.detail or "its error is above what is allowed"
                trouble = Trouble("kernel", kernel.implementation or kernel.name, kernel.outcome, means)
                troubles.setdefault("", []).append(trouble)
        criteria = [(run.scene, item) for run in self.certificate.scenes for item in run.criteria]
        _add_troubles(troubles, sorted(criteria, key=lambda pair: vagueness(pair[1].code)))
        if troubles:
            return troubles
        # a level fails by what it consists of; only without that it speaks for itself
        for rung in self.certificate.proof:
            if rung.reached is False:
                trouble = Trouble("level", rung.name.value, Outcome.FAILED, rung.shown_by)
                troubles.setdefault("", []).append(trouble)
        return troubles


def headline(verdict: Verdict, level: int | None, device: str) -> Badge:
    """The headline of a certificate, which says where no GPU took part."""
    badge = VERDICTS[verdict]
    text = badge.text.upper()
    if verdict is Verdict.CERTIFIED and level in _WITHOUT_TRAINING:
        text = _WITHOUT_TRAINING[level]
    elif verdict is Verdict.CERTIFIED and device == "cpu":
        text += " (CPU)"
    return Badge(badge.mark, text)


def scene_badge(run: SceneRun) -> Badge:
    """The result of a scene."""
    if run.unreadable:
        return Badge(Mark.NONE, "not readable")
    return _PASSED[run.passed]


def count_met(criteria: Iterable[Criterion]) -> str:
    """``3 of 5``."""
    outcomes = [criterion.outcome for criterion in criteria]
    return f"{outcomes.count(Outcome.MET)} of {len(outcomes)}"


def errors_of(check: KernelCheck) -> tuple[str, str]:
    """A kernel's errors: of its value and of its gradient; – for what was not compared."""
    return (
        _error(check.value_error, check.value_allowed),
        _error(check.gradient_error, check.gradient_allowed),
    )


def _kernel_badge(check: KernelCheck) -> Badge:
    badge = OUTCOMES[check.outcome]
    if check.outcome is Outcome.MET:
        return Badge(badge.mark, "agrees", plain="met")
    if check.outcome is Outcome.NOT_MEASURED and not check.kind:
        return Badge(badge.mark, "not installed", plain="not measured")
    if check.outcome is Outcome.NOT_MEASURED:
        return Badge(badge.mark, badge.text, plain="not measured")
    return badge


def _error(error: float | None, allowed: float | None) -> str:
    """An error and the one that is allowed, both relative; – where none is allowed, because it was not compared."""
    # 0 stands for a kernel without a reference: its value was not compared
    if not allowed:
        return ABSENT
    return f"{number(error, '{:.1e}', absent='none')} (allowed {allowed:.0e})"


def _add_troubles(troubles: dict[str, list[Trouble]], criteria: Iterable[tuple[str, Criterion]]) -> None:
    for where, criterion in criteria:
        if criterion.advice or criterion.outcome in (Outcome.FAILED, Outcome.UNDETERMINED):
            means = f"{criterion.measured.rstrip('.')}. {criterion.why}".strip()
            trouble = Trouble(where, criterion.code, criterion.outcome, means)
            troubles.setdefault(criterion.advice, []).append(trouble)
