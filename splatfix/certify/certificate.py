"""Writes the certificate: from what was measured to verdict, levels, reasons and summary. What is a suite's own is here too."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from splatfix.certify import run_levels
from splatfix.certify.baseline import compare
from splatfix.certify.criteria.code import as_installed, extensions_built
from splatfix.certify.environment import environment_of
from splatfix.certify.levels import evaluate, left_out
from splatfix.certify.loaded_files import LoadedCode
from splatfix.certify.model import (
    CONSEQUENCES,
    NOT_REACHED,
    Certificate,
    Criterion,
    KernelCheck,
    Outcome,
    SceneRun,
    Skipped,
    Verdict,
    vagueness,
)
from splatfix.certify.prerequisites import idle_gpu
from splatfix.certify.progress import title, words
from splatfix.certify.subject import SmokeSubject
from splatfix.certify.summary import summarize
from splatfix.core.proof import Rung, RungName
from splatfix.core.words import counted
from splatfix.model import Facts, Finding


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


def suite_certificate(
    subject: SmokeSubject,
    facts: Facts,
    measured: Measured,
    findings: Sequence[Finding],
    built: Rung | None,
) -> Certificate:
    """Return the certificate of a suite of scenes, never certified unless all was run; ``built`` is of GPUs that are not here."""
    request, runs, kernels = subject.request, measured.runs, measured.kernels
    comparison = compare(runs, subject.baseline, subject.published)
    proof = evaluate(findings, kernels, runs, comparison, request.renderer, subject.device, built)
    skipped = subject.suite.skipped
    of_all_scenes = (RungName.TRAINS, RungName.REPRODUCES)
    if measured.not_run and measured.finished:
        proof = left_out(proof, of_all_scenes, measured.not_run)
        skipped = (*(Skipped(scene, measured.not_run) for scene in subject.scenes), *skipped)
    if not measured.finished and runs:
        done = f"so far {len(runs)} of {counted(len(subject.scenes), 'scene')}, and nothing failed"
        proof = left_out(proof, of_all_scenes, done, unless_failed=True)
    elif not measured.finished:
        proof = left_out(proof, of_all_scenes, "no scene was trained to its end yet")
    if request.level in run_levels.NOT_PART:
        why = f"not part of run level {request.level}"
        proof = left_out(proof, run_levels.NOT_PART[request.level], why)
    diagnosis: tuple[Criterion, ...] = ()
    if request.level is not None:
        diagnosis = run_levels.diagnosed(findings, subject.device)
    code = code_criteria(measured, subject.python)
    if runs and built:  # what is installed did not train: it stands apart from the levels
        code += (extensions_built(built),)
    reasons = (*altered(code), *failures(kernels, runs, proof, diagnosis))
    left_open = run_levels.left_open(request.level, subject.suite, diagnosis, kernels)
    verdict = verdict_of(reasons, measured, passed=Verdict.CERTIFIED, left_open=bool(left_open))
    opening = run_levels.opening(request.level, subject.device, diagnosis, verdict)
    idle = idle_gpu(facts, subject.device)
    summary = summarize(verdict, proof, subject, runs, kernels, built, idle, left_open)
    return Certificate(
        verdict=verdict,
        summary=f"{opening} {summary}".strip(),
        reasons=reasons,
        suite=subject.suite.name,
        renderer=request.renderer,
        device=subject.device,
        proof=proof,
        kernels=kernels,
        scenes=runs,
        environment=environment_of(facts, runs, subject.device),
        repeat=subject.command,
        issued=now(),
        seconds=measured.seconds,
        skipped=skipped,
        sources=measured.sources,
        comparison=comparison,
        level=request.level,
        diagnosis=(*code, *diagnosis),
    )


def incomplete(
    base: Certificate, scenes: Sequence[str], under_way: Mapping[str, Any], *, interrupted: bool
) -> Certificate:
    """Return a certificate of what was done so far, which says so: of that of the scenes that are done, and of what ran.

    Scenes that are not done are ``skipped``. A run that was not interrupted goes on, and this report is to be replaced.
    """
    done = [run.scene for run in base.scenes]
    after = f"after {len(done)} of {counted(len(scenes), 'scene')}"
    if where := str(under_way.get("where", "")):
        progress = words(under_way, left=False)
        after += f", in {title(where, under_way)}{f' at {progress}' if progress else ''}"
    opening = f"Interrupted {after}."
    if not interrupted:
        opening = f"Not finished: written {after}. If no splatfix runs any more, it was killed."
    not_reached = tuple(Skipped(name, NOT_REACHED) for name in scenes if name not in done)
    return replace(
        base,
        summary=f"{opening} {base.summary}",
        interrupted=interrupted,
        unfinished=not interrupted,
        under_way=under_way,
        skipped=(*base.skipped, *not_reached),
    )


def verdict_of(
    reasons: Sequence[str], measured: Measured, *, passed: Verdict, left_open: bool = False
) -> Verdict:
    """Return ``passed`` where all was run and judged, and nothing failed."""
    if reasons:
        return Verdict.NOT_CERTIFIED
    judged = all(run.passed is not None and not run.unreadable for run in measured.runs)
    if measured.finished and judged and not left_open:
        return passed
    return Verdict.UNDETERMINED


def code_criteria(measured: Measured, python: str) -> tuple[Criterion, ...]:
    """Return what ran compared with what was installed; nothing where nothing was loaded yet."""
    if measured.loaded is None:
        return ()
    return (as_installed(measured.loaded, python),)


def altered(code: Sequence[Criterion]) -> list[str]:
    """Return that other code ran than was installed, which explains what failed besides."""
    return [reason_of(item) for item in code if item.outcome is Outcome.FAILED]


def failures(
    kernels: Sequence[KernelCheck],
    scenes: Sequence[SceneRun],
    proof: Sequence[Rung],
    diagnosis: Sequence[Criterion] = (),
) -> tuple[str, ...]:
    """Return why an environment is not certified: failed checks, kernels and criteria, and where none failed, failed levels."""
    reasons = []
    for item in diagnosis:
        if item.outcome is Outcome.FAILED:
            reasons.append(f"diagnosis: {item.code}: {item.measured}")
    for kernel in kernels:
        if kernel.outcome is Outcome.FAILED:
            reasons.append(f"kernel {kernel.name}: {kernel.sentence}")
    failed: dict[str, list[tuple[str, Criterion]]] = {}
    for run in scenes:
        for item in run.failed:
            failed.setdefault(item.code, []).append((run.scene, item))
    groups = [code for code in failed if code.startswith("gradients-")]
    consequences = [code for code in failed if code in CONSEQUENCES]
    if len(consequences) == len(failed) and not reasons:
        consequences = []  # of what nothing tells the cause, each is told
    for code in sorted(failed, key=vagueness):
        if code in groups[1:] or code in consequences[1:]:
            continue  # told with the first
        if code in groups and len(groups) > 1:
            reasons.append(_of_scenes(failed[code], ", ".join(groups)))
        elif code in consequences and len(consequences) > 1:
            where = dict.fromkeys(scene for each in consequences for scene, _ in failed[each])
            reasons.append(f"{', '.join(where)}: {', '.join(consequences)}: may follow from that.")
        else:
            reasons.append(_of_scenes(failed[code]))
    if not reasons:
        reasons = [f"{rung.name.value}: {rung.shown_by}" for rung in proof if rung.reached is False]
    return tuple(reasons)


def _of_scenes(failed: Sequence[tuple[str, Criterion]], codes: str = "") -> str:
    """Word one reason for all scenes that a criterion failed for, and for all ``codes`` that failed as it did."""
    scenes = ", ".join(scene for scene, _ in failed)
    first = failed[0][1]
    if codes:
        first = replace(first, code=codes, why="No gradient reaches them: training runs without them.")
    measured = {item.measured for _, item in failed}
    if len(measured) > 1:
        parts = (f"{scene}: {item.measured.rstrip('.')}" for scene, item in failed)
        first = replace(first, measured="; ".join(parts))
    return f"{scenes}: {reason_of(first)}"


def reason_of(item: Criterion) -> str:
    """Return what failed and what that means, in a line."""
    return f"{item.code}: {item.measured.rstrip('.')}. {item.why}".rstrip()


def now() -> str:
    """Return the time in UTC, ISO 8601."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
