"""A certificate as every form of it shows it: the terminal, Markdown and HTML.

What a result is called, how a number is written and which rows a table has is decided here; a form only arranges it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from smoke_trainer.record import Config, TrainingRecord
from splatfix.certify.model import Certificate, Criterion, Outcome, Problem, SceneRun, Verdict
from splatfix.core.toml import table_beside
from splatfix.core.words import few, grouped
from splatfix.report import comparison
from splatfix.report.marks import ABSENT, Badge, Mark, Table

WORDS: Mapping[str, Any] = table_beside(__file__, "wording.toml")
"""What a reader who never saw a certificate needs: what a verdict means, and a few words explained."""
OUTCOMES = {
    Outcome.FAILED: Badge(Mark.BAD, "failed"),
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
KERNELS = "Kernels against float64 references"
SUCCESS = (Verdict.CERTIFIED, Verdict.REHEARSED)
_WITHOUT_TRAINING = {1: "Diagnosis passed (run level 1)", 2: "Kernels verified (run level 2)"}
"""CERTIFIED is only said of what was trained."""
_PASSED = {
    True: Badge(Mark.GOOD, "passed"),
    False: Badge(Mark.BAD, "failed"),
    None: Badge(Mark.UNSURE, "undetermined"),
}
REACHED = {True: Mark.GOOD, False: Mark.BAD, None: Mark.NONE}
SPREAD = {"PSNR": 0.045, "SSIM": 0.021}
"""How far runs of the quick suite with one seed lay apart, relative: tests/records/seed_spread.json."""


def what_to_do(certificate: Certificate) -> dict[str, list[Problem]]:
    """Return the problems by what to do about them, "" where only a diagnosis can tell."""
    problems = [item for item in certificate.problems if item.kind != "run"]
    return grouped(problems, lambda item: item.criterion.advice)


def headline(verdict: Verdict, level: int | None, device: str) -> Badge:
    """Return the headline of a certificate, which says where no GPU took part."""
    badge = VERDICTS[verdict]
    text = badge.text.upper()
    if verdict is Verdict.CERTIFIED and level in _WITHOUT_TRAINING:
        text = _WITHOUT_TRAINING[level]
    elif verdict is Verdict.CERTIFIED and device == "cpu":
        text += " (CPU)"
    return Badge(badge.mark, text)


def skipped(certificate: Certificate) -> dict[str, str]:
    """Return the skipped scenes by reason: mostly one reason holds for all of them."""
    reasons = grouped(certificate.skipped, lambda item: item.reason)
    return {reason: ", ".join(item.scene for item in items) for reason, items in reasons.items()}


def scene_badge(run: SceneRun) -> Badge:
    """Return the result of a scene."""
    if run.unreadable:
        return Badge(Mark.NONE, "not readable")
    return _PASSED[run.passed]


def count_met(criteria: Iterable[Criterion]) -> str:
    """Return ``3 of 5``."""
    outcomes = [criterion.outcome for criterion in criteria]
    return f"{outcomes.count(Outcome.MET)} of {len(outcomes)}"


def tables(certificate: Certificate) -> dict[str, Table]:
    """Return every table by its title, in the order in which a report is read; without those that have no rows."""
    runs = certificate.scenes
    results = [(run.scene, scene_badge(run), *row(run)) for run in runs]
    made = {
        "Results by scene": Table(("scene", "result", *WORDS["results"]), results, legend(runs)),
        comparison.TITLE: comparison.table_of(certificate.comparison),
        "Diagnosis": _criteria(certificate.diagnosis),
        **{f"Criteria: {run.scene}": _criteria(run.criteria) for run in runs},
        KERNELS: _kernels(certificate),
        "Environment": Table(("part", "version"), list(certificate.environment.items())),
        "Code that ran, recorded from inside the run": _code_that_ran(runs),
        "Settings": _settings(runs),
    }
    # scenes share their criteria: each threshold's source once
    sources = {item.code: item.source for run in runs for item in run.criteria if item.source}
    made["Where the thresholds come from"] = Table(("criterion", "source"), list(sources.items()))
    return {title: table for title, table in made.items() if table.rows}


def _criteria(items: Iterable[Criterion]) -> Table:
    """Return a row for each criterion."""
    rows = [(item.code, OUTCOMES[item.outcome], item.measured, item.required) for item in items]
    return Table(("criterion", "outcome", "measured", "required"), rows)


def _kernels(certificate: Certificate) -> Table:
    """Return a row for each kernel."""
    rows = []
    for check in certificate.kernels:
        value, gradient = ABSENT, ABSENT
        # 0 stands for a kernel without a reference: its value was not compared
        if check.value_allowed:
            value = f"{number(check.value_error, '{:.1e}')} (allowed {check.value_allowed:.0e})"
        if check.gradient_allowed:
            gradient = f"{number(check.gradient_error, '{:.1e}')} (allowed {check.gradient_allowed:.0e})"
        cells = (check.name, check.implementation, check.kind or "not installed", OUTCOMES[check.outcome])
        rows.append((*cells, value, gradient, check.detail or ABSENT))
    headers = ("kernel", "implementation", "kind", "result", "value error", "gradient error", "detail")
    return Table(headers, rows, WORDS["kernels"])


def _settings(runs: Sequence[SceneRun]) -> Table:
    """Return the settings: one value where it is the same in every scene, otherwise each scene's."""
    rows, set_up = [], [run for run in runs if run.record.config != Config()]
    for name in (field.name for field in fields(Config)):
        texts = {run.scene: number(getattr(run.record.config, name) or None, "{}") for run in set_up}
        text = ", ".join(f"{scene} {text}" for scene, text in texts.items())
        if len(set(texts.values())) == 1:
            text = next(iter(texts.values()))
        if set(texts.values()) - {ABSENT}:
            rows.append((name, text))
    return Table(("setting", "value"), rows)


def _code_that_ran(runs: Sequence[SceneRun]) -> Table:
    """Return a row for each part and file, with the scenes it ran in."""
    scenes: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        for part, item in run.record.implementations.items():
            cells = (item.name, item.version, item.engine, item.file, item.sha256)
            scenes.setdefault((part, *(cell or ABSENT for cell in cells)), []).append(run.scene)
    rows = [(*cells, few(names)) for cells, names in scenes.items()]
    return Table(("part", "name", "version", "engine", "file", "SHA-256", "scenes"), rows)


def row(run: SceneRun) -> tuple[str, ...]:
    """Return a scene's results, a cell for each of their columns: ``2,600 → 6,045`` is from the start to the end."""
    record = run.record
    heldout = record.heldout
    size = record.ply.bytes
    memory = [peak and peak / 2**20 for peak in record.memory.peaks]
    return (
        number(record.iterations, "{:,.0f}"),
        resolution(record) or ABSENT,
        number(len(record.split.train) or None, "{}"),
        _both((record.gaussians.initial, record.gaussians.final), "{:,.0f}", " → "),
        number(size and size / 1e6, "{:.2f} MB"),
        f"{run.seconds:.0f} s",
        number(record.iterations_per_second, "{:.2f}"),
        _both((record.train_loss.first, record.train_loss.last), "{:.4f}", " → "),
        number(record.training_views.psnr, "{:.2f} dB"),
        number(heldout.psnr, "{:.2f} dB"),
        number(heldout.ssim, "{:.4f}"),
        number(heldout.lpips, "{:.4f}"),
        _both(memory, "{:,.0f} MiB", " / "),
    )


def legend(runs: Sequence[SceneRun]) -> str:
    """Return what the columns mean, for these scenes."""
    records = [run.record for run in runs]
    texts: list[str] = [WORDS["results_legend"]]
    # Kerbl et al. 2023 publish figures at 7,000 and 30,000
    if any(record.iterations is not None and record.iterations < 7_000 for record in records):
        spread = " and ".join(f"{share:.1%} in {name}" for name, share in SPREAD.items())
        texts.insert(0, WORDS["short_run"].format(spread=spread))
    lpips = {record.heldout.lpips_note for record in records} - {""}
    texts += [f"LPIPS: {note}." for note in sorted(lpips)]
    return " ".join(texts)


def resolution(record: TrainingRecord) -> str:
    """Return ``1600x1064``; "" where it is not known."""
    if record.resolution is None:
        return ""
    return "x".join(map(str, record.resolution))


def number(value: object, form: str, absent: str = ABSENT) -> str:
    """Return a value in this form; – where there is none."""
    return absent if value is None else form.format(value)


def _both(values: Sequence[float | None], form: str, between: str) -> str:
    if not any(values):
        return ABSENT
    return between.join(number(value, form) for value in values)
