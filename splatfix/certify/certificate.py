"""Writes the certificate: from what was measured to verdict, levels, reasons and summary, whoever's trainer it was."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from smoke_trainer.record import Implementation
from splatfix.certify import levels
from splatfix.certify.baseline import compare
from splatfix.certify.criteria.code import EXTENSIONS_BUILT, as_installed
from splatfix.certify.criteria.criterion import Measure
from splatfix.certify.environment import environment_of
from splatfix.certify.loaded_files import LoadedCode
from splatfix.certify.model import (
    Certificate,
    Comparison,
    Criterion,
    KernelCheck,
    Outcome,
    SceneRun,
    Skipped,
    TestedStack,
    Verdict,
    reason_of,
    vagueness,
)
from splatfix.certify.prerequisites import idle_gpu
from splatfix.certify.progress import title, words
from splatfix.certify.stacks.subject import StackSubject
from splatfix.certify.subject import SmokeSubject
from splatfix.checks import check_named
from splatfix.core.proof import Rung, RungName
from splatfix.core.words import counted
from splatfix.model import Facts, Finding, Status

_OUTCOMES = {
    Status.PASS: Outcome.MET,
    Status.WARN: Outcome.NOT_MEASURED,
    Status.UNKNOWN: Outcome.UNDETERMINED,
}
"""Of findings as criteria; any other failed."""


class Measured(Struct, frozen=True):
    """What a certification measured, or has measured so far."""

    seconds: float = 0.0
    finished: bool = True
    """All was run that was to be run."""
    runs: tuple[SceneRun, ...] = ()
    not_run: str = ""
    """Why no scene was trained."""
    kernels: tuple[KernelCheck, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each source file of the trainer and its kernels."""
    loaded: LoadedCode | None = None
    """None where nothing ran, or it did not come to its end."""
    stack: TestedStack | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    """What it is valid for besides versions and hardware."""


def write_certificate(
    subject: SmokeSubject | StackSubject,
    facts: Facts,
    measured: Measured,
    findings: Sequence[Finding],
    built_elsewhere: Rung | None,
) -> Certificate:
    """Return the certificate of what was measured, never certified unless all was run; ``built_elsewhere`` is of GPUs that are
    not here."""
    runs, kernels, level = measured.runs, measured.kernels, subject.level
    comparison = compare(runs, subject.baseline, subject.published)
    proof = prove(subject, measured, findings, built_elsewhere, comparison)
    diagnosis: list[Criterion] = []
    if measured.loaded is not None:
        diagnosis.append(as_installed(measured.loaded, subject.python))
    if runs and built_elsewhere:  # what is installed did not train: it stands apart from the levels
        measure = Measure(built_elsewhere.reached, built_elsewhere.shown_by)
        diagnosis.append(EXTENSIONS_BUILT.criterion(measure))
    found = diagnosed(findings, subject.device) if level is not None else ()
    diagnosis += found
    reasons = failures(diagnosis, kernels, runs, proof)
    # a certificate of a run level skips nothing of it
    left_open = levels.open_of(runs)
    if level is not None:
        left_open += [reason_of(item) for item in found if item.outcome is Outcome.UNDETERMINED]
        left_open += [f"not measured: {item.implementation}" for item in kernels if item.native_not_measured]
    if level == levels.FULL:
        left_open += [f"{item.scene} was not trained" for item in subject.suite.skipped]
    verdict = Verdict.REHEARSED if subject.rehearsed else Verdict.CERTIFIED
    if reasons:
        verdict = Verdict.NOT_CERTIFIED
    elif left_open or not measured.finished:
        verdict = Verdict.UNDETERMINED
    not_run = subject.scenes if measured.not_run and measured.finished else ()
    made = Certificate(
        verdict=verdict,
        summary="",
        reasons=reasons,
        suite=subject.suite.name,
        renderer=subject.renderer,
        device=subject.device,
        proof=proof,
        kernels=kernels,
        scenes=runs,
        environment={**environment_of(facts, runs, subject.device), **measured.environment},
        repeat=subject.command,
        issued=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        seconds=measured.seconds,
        skipped=(*(Skipped(scene, measured.not_run) for scene in not_run), *subject.suite.skipped),
        sources=measured.sources,
        comparison=comparison,
        level=level,
        diagnosis=tuple(diagnosis),
        stack=measured.stack,
    )
    summary = summarize(subject, made, left_open, built_elsewhere)
    return replace(made, summary=f"{summary} {idle_gpu(facts, subject.device)}".rstrip())


def summarize(
    subject: SmokeSubject | StackSubject,
    made: Certificate,
    left_open: Sequence[str],
    built_elsewhere: Rung | None,
) -> str:
    """Sum up a certificate: an opening sentence, and named facts."""
    told = {"Run": levels.RUN_LEVELS.get(made.level or 0, "")}
    told["Levels reached"] = ", ".join(rung.name.value for rung in made.proof if rung.reached) or "none"
    told["Left open"] = "; ".join(left_open)
    ran = [made.environment[part] for run in made.scenes for part in run.record.implementations]
    told["Trained with"] = ", ".join(dict.fromkeys(ran))
    if built_elsewhere and built_elsewhere.reached:
        targets = ", ".join(arch.sm for arch in subject.request.targets)
        told[f"CUDA extensions are built for {targets}"] = "not run"
    elif made.device == "cpu":
        told["Not verified"] = "CUDA and GPUs"
    where = "the CPU" if made.device == "cpu" else made.device
    verdict = made.verdict.value.replace("-", " ")
    if made.verdict in (Verdict.CERTIFIED, Verdict.REHEARSED):
        verdict = "passed"  # of a run level without training nothing is called certified
    sentences = [f"{subject.title} on {where}: {verdict}."]
    return " ".join([*sentences, *(f"{name}: {value}." for name, value in told.items() if value)])


def prove(
    subject: SmokeSubject | StackSubject,
    measured: Measured,
    findings: Sequence[Finding],
    built_elsewhere: Rung | None,
    comparison: Comparison | None,
) -> tuple[Rung, ...]:
    """Return all levels, lowest first: of what trained, where anything did."""
    runs, kernels = measured.runs, measured.kernels
    if built_elsewhere and not runs:
        of_extensions = built_elsewhere
    else:
        judged = [] if subject.device == "cpu" else list(findings)
        if of := subject.extensions:  # others in the environment say nothing of a stack
            judged = [item for item in judged if item.subject.replace("-", "_").startswith(of)]
        plain = bool(runs) and subject.renderer == "torch"
        if plain:  # one that did not train is no evidence; that it cannot run here refuses the environment all the same
            judged = [item for item in judged if item.status is Status.FAIL]
        # a drop-in has the name of an extension, and an engine in plain PyTorch
        renderers = [run.record.implementations.get("renderer", Implementation()) for run in runs]
        drew = bool(runs) and all((item.engine or "").startswith("torch-") for item in renderers)
        of_extensions = levels.built(judged, plain=plain or subject.rehearsed or drew)
    not_all = measured.not_run
    if not measured.finished:
        not_all = f"scenes done so far: {len(runs)} of {len(subject.scenes)}"
    rungs = [levels.resolved(findings, subject.device), of_extensions, levels.loads(kernels, runs)]
    if subject.rehearsed:
        rungs += [levels.trains(runs, not_all, RungName.REHEARSED), levels.computes(kernels)]
        rungs.append(Rung(RungName.TRAINS, None, "a rehearsal on the CPU shows nothing about CUDA"))
    else:
        rungs += [levels.computes(kernels), levels.trains(runs, not_all)]
    return (*rungs, levels.reproduces(runs, comparison, not_all))


def diagnosed(findings: Sequence[Finding], device: str) -> tuple[Criterion, ...]:
    """Return every finding that matters for the device as a criterion: not what the checks skip, nor on a CPU those of GPUs. A
    warning is not judged."""
    criteria = []
    for item in findings:
        check = check_named(item.code)
        if item.status is Status.SKIP or (device == "cpu" and check.needs_gpu):
            continue
        outcome, advice, measured = _OUTCOMES.get(item.status, Outcome.FAILED), "", item.summary
        if outcome in (Outcome.FAILED, Outcome.UNDETERMINED):
            advice = f"splatfix diagnose --explain {item.code} explains it; splatfix diagnose names the fix."
        elif item.status is Status.WARN:
            measured = f"warning: {item.summary}"
        criteria.append(Criterion(item.code, outcome, measured, check.title, advice=advice))
    return tuple(criteria)


def failures(
    diagnosis: Sequence[Criterion],
    kernels: Sequence[KernelCheck],
    runs: Sequence[SceneRun],
    proof: Sequence[Rung],
) -> tuple[str, ...]:
    """Return why it is not certified, a line each: altered code and failed checks, kernels, then criteria with the scenes that
    they failed in, the most specific first; where none failed, failed levels."""
    reasons = [reason_of(item) for item in diagnosis if item.outcome is Outcome.FAILED]
    reasons += [f"kernel {item.name}: {item.sentence}" for item in kernels if item.outcome is Outcome.FAILED]
    failed = [(run.scene, item) for run in runs for item in run.failed]
    scenes: dict[str, list[str]] = {}
    for scene, item in sorted(failed, key=lambda pair: vagueness(pair[1].code)):
        scenes.setdefault(reason_of(item), []).append(scene)
    reasons += [f"{', '.join(names)}: {reason}" for reason, names in scenes.items()]
    if not reasons:
        reasons = [f"{rung.name.value}: {rung.shown_by}" for rung in proof if rung.reached is False]
    return tuple(reasons)


def incomplete(
    base: Certificate, scenes: Sequence[str], under_way: Mapping[str, Any], *, interrupted: bool
) -> Certificate:
    """Return a certificate of the scenes that are done, which says so, and what ran; the others are ``skipped``. A run that was
    not interrupted goes on, and this report is to be replaced."""
    done = [run.scene for run in base.scenes]
    after = f"after {len(done)} of {counted(len(scenes), 'scene')}"
    if where := str(under_way.get("where", "")):
        progress = words(under_way, left=False)
        after += f", in {title(where, under_way)}{f' at {progress}' if progress else ''}"
    opening = f"Interrupted {after}."
    if not interrupted:
        opening = f"Not finished: written {after}. If no splatfix runs any more, it was killed."
    why = "not trained to its end: the run did not come to its end"
    not_reached = tuple(Skipped(name, why) for name in scenes if name not in done)
    return replace(
        base,
        summary=f"{opening} {base.summary}",
        interrupted=interrupted,
        unfinished=not interrupted,
        under_way=under_way,
        skipped=(*base.skipped, *not_reached),
    )
