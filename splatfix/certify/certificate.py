"""Writes the certificate: from what was measured to verdict, levels, reasons and summary, whoever's trainer it was."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from smoke_trainer.data.find import PUBLIC_SCENES
from smoke_trainer.progress import words
from smoke_trainer.record import Implementation
from splatfix.certify import levels
from splatfix.certify.baseline import compare
from splatfix.certify.criteria.criterion import Measure, Registered
from splatfix.certify.environment import environment_of, told_by_host
from splatfix.certify.loaded_files import as_installed
from splatfix.certify.model import (
    Certificate,
    Comparison,
    Criterion,
    Outcome,
    SceneRun,
    Skipped,
    Verdict,
    reason_of,
)
from splatfix.certify.stacks.subject import StackSubject
from splatfix.certify.subject import SmokeSubject
from splatfix.checks import check_named, run_checks
from splatfix.context import Goal, make_context
from splatfix.core.proof import Rung, RungName
from splatfix.core.words import counted, grouped
from splatfix.knowledge import Arch
from splatfix.model import Facts, Finding, Status

_OUTCOMES = {
    Status.PASS: Outcome.MET,
    Status.WARN: Outcome.NOT_MEASURED,
    Status.UNKNOWN: Outcome.UNDETERMINED,
}
"""Of findings as criteria; any other failed."""

NAMES_THE_FIX = "splatfix diagnose names the fix, and splatfix diagnose --explain with the code explains it."

_EXTENSIONS_BUILT = Registered(
    code="extensions-built",
    title="The installed extensions carry code for the GPUs that were named",
    why="They cannot run there. No GPU was used here: what trained is plain PyTorch.",
    source="their own binaries, as splatfix inspect reads them; nerfstudio-project/gsplat#1053: no kernel image for the GPU",
)


def write_certificate(
    subject: SmokeSubject | StackSubject,
    facts: Facts,
    runs: tuple[SceneRun, ...],
    *,
    seconds: float = 0.0,
    under_way: Mapping[str, Any] | None = None,
    interrupted: bool = False,
) -> Certificate:
    """Return the certificate of a prepared subject and the scenes that were run.

    ``under_way`` is what runs now, with the trainer's last progress, as long as not all was run: nothing is certified then.
    Such a run goes on, and its report is to be replaced, unless it was ``interrupted``.
    """
    device, level, kernels = subject.device, subject.request.level, subject.kernels
    # judged for the GPU that trained; any other in the machine says nothing about it
    findings = run_checks(make_context(facts, Goal(device="" if device == "cpu" else device)))
    if device == "cpu":  # one that is not used refuses nothing
        findings = tuple(item for item in findings if not check_named(item.code).needs_gpu)
    comparison = compare(runs, subject.baseline) if subject.baseline else None
    not_all = subject.not_run
    if under_way is not None:
        not_all = f"scenes done so far: {len(runs)} of {len(subject.scenes)}"
    left_open = [not_all] if not_all else levels.open_of(runs)
    asked = None
    if device == "cpu" and subject.request.targets:
        asked = extensions_built(facts, subject.request.targets)
    proof = prove(subject, runs, findings, comparison, left_open, asked)
    diagnosis: list[Criterion] = []
    if subject.loaded is not None and under_way is None:
        diagnosis.append(as_installed(facts, subject.loaded, subject.own, subject.python))
    if asked is not None:
        diagnosis.append(asked)
    found = diagnosed(findings) if level is not None else ()
    diagnosis += found
    # a certificate of a run level skips nothing of it
    if level is not None:
        left_open += [reason_of(item) for item in found if item.outcome is Outcome.UNDETERMINED]
        left_open += [f"not measured: {item.implementation}" for item in kernels if item.native_not_measured]
    if level == levels.FULL and subject.suite.data:
        left_open += [f"{name} was not trained" for name in PUBLIC_SCENES if name not in subject.scenes]
    done = [run.scene for run in runs]
    why = subject.not_run or "not trained to its end: the run did not come to its end"
    not_done = [Skipped(scene, why) for scene in subject.scenes if scene not in done]
    made = Certificate(
        verdict=Verdict.REHEARSED if subject.rehearsed else Verdict.CERTIFIED,
        summary="",
        reasons=(),
        suite=subject.suite.name,
        renderer=subject.renderer,
        device=device,
        proof=proof,
        kernels=kernels,
        scenes=runs,
        environment={**environment_of(facts, runs, device), **subject.valid_for},
        repeat=told_by_host().repeat or subject.command,
        issued=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        seconds=seconds,
        skipped=(*not_done, *subject.suite.skipped),
        interrupted=interrupted,
        sources=subject.sources,
        comparison=comparison,
        unfinished=under_way is not None and not interrupted,
        under_way=under_way or {},
        level=level,
        diagnosis=tuple(diagnosis),
        stack=subject.tested,
    )
    if reasons := reasons_of(made):
        made = replace(made, verdict=Verdict.NOT_CERTIFIED, reasons=reasons)
    elif left_open:
        made = replace(made, verdict=Verdict.UNDETERMINED)
    return replace(made, summary=summarize(subject.title, made, left_open))


def summarize(title: str, made: Certificate, left_open: Sequence[str]) -> str:
    """Sum up a certificate: how far it came, an opening sentence, and named facts."""
    told = {"Run": levels.RUN_LEVELS.get(made.level or 0, "")}
    told["Levels reached"] = ", ".join(rung.name.value for rung in made.proof if rung.reached) or "none"
    told["Left open"] = "; ".join(left_open)
    ran = [made.environment[part] for run in made.scenes for part in run.record.implementations]
    told["Trained with"] = ", ".join(dict.fromkeys(ran))
    where = made.device
    if made.device == "cpu":
        where, told["Not verified"] = "the CPU", "CUDA and GPUs"
        if idle := made.environment.get("other GPUs"):
            told["Not used"] = f"{idle}, with torch {made.environment['torch']}"
    verdict = made.verdict.value.replace("-", " ")
    if made.verdict in (Verdict.CERTIFIED, Verdict.REHEARSED):
        verdict = "passed"  # of a run level without training nothing is called certified
    sentences = [f"{title} on {where}: {verdict}."]
    sentences += [f"{name}: {value}." for name, value in told.items() if value]
    if now := made.under_way:
        place = [now["where"], words(now, left=False)]
        after = f"after {len(made.scenes)} of {counted(now['scenes'], 'scene')}, in {' at '.join(filter(None, place))}."
        ended = "Interrupted" if made.interrupted else "Not finished, or killed: written"
        sentences.insert(0, f"{ended} {after}")
    return " ".join(sentences)


def prove(
    subject: SmokeSubject | StackSubject,
    runs: Sequence[SceneRun],
    findings: Sequence[Finding],
    comparison: Comparison | None,
    left_open: Sequence[str],
    asked: Criterion | None = None,
) -> tuple[Rung, ...]:
    """Return all levels, lowest first: of what trained, where anything did. ``asked`` judges extensions for GPUs that are not
    here: the level of where nothing did."""
    kernels = subject.kernels
    judged = findings
    if of := subject.extensions:  # others in the environment say nothing of a stack
        judged = [item for item in findings if item.subject.replace("-", "_").startswith(of)]
    plain = bool(runs) and subject.renderer == "torch"
    if plain:
        # one that did not train is no evidence; that it cannot run here refuses the environment all the same
        judged = [item for item in judged if item.status is Status.FAIL]
    # a drop-in has the name of an extension, and an engine in plain PyTorch
    renderers = [run.record.implementations.get("renderer", Implementation()) for run in runs]
    drew = bool(runs) and all((item.engine or "").startswith("torch-") for item in renderers)
    of_extensions = levels.built(judged, plain=plain or subject.rehearsed or drew)
    if asked is not None and not runs:
        reached = {Outcome.MET: True, Outcome.FAILED: False}.get(asked.outcome)
        of_extensions = Rung(RungName.BUILT, reached, asked.measured)
    rungs = [levels.resolved(findings, subject.device), of_extensions, levels.loads(kernels, runs)]
    if subject.rehearsed:
        rungs += [levels.trains(runs, left_open, RungName.REHEARSED), levels.computes(kernels)]
        rungs.append(Rung(RungName.TRAINS, None, "a rehearsal on the CPU shows nothing about CUDA"))
    else:
        rungs += [levels.computes(kernels), levels.trains(runs, left_open)]
    return (*rungs, levels.reproduces(comparison, left_open))


def extensions_built(facts: Facts, targets: Sequence[Arch]) -> Criterion:
    """Judge installed extensions for GPUs that are not here, apart from the levels: none of them trained."""
    findings = run_checks(make_context(facts, Goal(tuple(targets))))
    # a drop-in that NVRTC would compile at its first call is not built
    bad = levels.told(RungName.BUILT, findings, Status.FAIL, Status.WARN)
    good = levels.told(RungName.BUILT, findings, Status.PASS)
    met = False if bad else bool(good) or None
    names = ", ".join(arch.sm for arch in targets)
    shown = bad or good or "no CUDA extension was judged"
    return _EXTENSIONS_BUILT.criterion(Measure(met, f"{shown}; for {names}, not run: no GPU was used"))


def diagnosed(findings: Sequence[Finding]) -> tuple[Criterion, ...]:
    """Return every finding as a criterion, but not what the checks skip. A warning is not judged."""
    criteria = []
    for item in findings:
        if item.status is Status.SKIP:
            continue
        outcome, advice, measured = _OUTCOMES.get(item.status, Outcome.FAILED), "", item.summary
        if outcome in (Outcome.FAILED, Outcome.UNDETERMINED):
            advice = NAMES_THE_FIX
        elif item.status is Status.WARN:
            measured = f"warning: {item.summary}"
        required = check_named(item.code).title
        criteria.append(Criterion(item.code, outcome, measured, required, advice=advice))
    return tuple(criteria)


def reasons_of(made: Certificate) -> tuple[str, ...]:
    """Return why it is not certified, a line for each reason with the scenes it holds for."""
    failed = [item for item in made.problems if item.criterion.outcome is Outcome.FAILED]
    reasons = grouped(failed, lambda item: reason_of(item.criterion))
    return tuple(f"{', '.join(item.where for item in items)}: {reason}" for reason, items in reasons.items())
