"""Writes the certificate: from what was measured of either subject to verdict, levels, reasons and summary."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from splatfix.certify import run_levels
from splatfix.certify.baseline import compare
from splatfix.certify.criteria.criterion import criterion
from splatfix.certify.criteria.running import as_installed
from splatfix.certify.environment import environment_of
from splatfix.certify.interim import so_far
from splatfix.certify.levels import built_for, evaluate, evaluate_stack
from splatfix.certify.loaded_files import LoadedCode
from splatfix.certify.model import (
    CONSEQUENCES,
    Certificate,
    Criterion,
    KernelCheck,
    Outcome,
    SceneRun,
    Skipped,
    TestedStack,
    Verdict,
    vagueness,
)
from splatfix.certify.prerequisites import idle_gpu
from splatfix.certify.stacks.subject import StackSubject, Started
from splatfix.certify.subject import SmokeSubject
from splatfix.certify.summary import summarize, summarize_stack, undetermined_because
from splatfix.checks import run_checks
from splatfix.context import Goal, make_context
from splatfix.core.proof import Rung, RungName
from splatfix.core.step import Command
from splatfix.model import Facts, Finding

Findings: TypeAlias = tuple[Finding, ...]


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
    started: Started = field(default_factory=Started)
    """Of a stack's own trainer."""
    begun: Mapping[str, Any] = field(default_factory=dict)
    """What the trainer of a run that is under way told of itself, in the form of its result."""


def conclude(subject: SmokeSubject | StackSubject, facts: Facts, measured: Measured) -> Certificate:
    """The certificate of what was measured; never certified unless all was run."""
    goal = Goal()
    if subject.device != "cpu":
        # judged for the GPU that trained; any other in the machine says nothing about it
        goal = Goal(device=subject.device)
    findings = run_checks(make_context(facts, goal))
    built = built_for(facts, subject.request.targets, subject.device)
    if isinstance(subject, StackSubject):
        return _of_stack(subject, facts, measured, findings, built)
    return _of_suite(subject, facts, measured, findings, built)


def _of_suite(
    subject: SmokeSubject, facts: Facts, measured: Measured, findings: Findings, built: Rung | None
) -> Certificate:
    request, runs, kernels = subject.request, measured.runs, measured.kernels
    comparison = compare(runs, subject.baseline, subject.published)
    proof = evaluate(findings, kernels, runs, comparison, request.renderer, subject.device, built)
    skipped = subject.suite.skipped
    if measured.not_run and measured.finished:
        trained = (RungName.TRAINS, RungName.REPRODUCES)
        proof = tuple(
            replace(rung, reached=None, shown_by=measured.not_run) if rung.name in trained else rung
            for rung in proof
        )
        skipped = (*(Skipped(scene, measured.not_run) for scene in subject.scenes), *skipped)
    if not measured.finished:
        proof = so_far(proof, len(runs), len(subject.scenes))
    proof = run_levels.only_of_level(proof, request.level)
    diagnosis: tuple[Criterion, ...] = ()
    if request.level is not None:
        diagnosis = run_levels.diagnosed(findings, subject.device)
    code = as_installed(measured.loaded, subject.python)
    if runs and built:  # what is installed did not train: it stands apart from the levels
        code += (criterion("extensions-built", built.reached, built.shown_by),)
    reasons = (*_altered(code), *failures(kernels, runs, proof, diagnosis))
    left_open = run_levels.left_open(request.level, subject.suite, diagnosis, kernels)
    verdict = _verdict(reasons, measured, passed=Verdict.CERTIFIED, left_open=bool(left_open))
    idle = idle_gpu(facts, subject.device)
    if request.level is not None and request.level < run_levels.TRAINS_FROM:
        summary = idle
        if verdict is Verdict.UNDETERMINED:
            summary = f"{undetermined_because(left_open)} {idle}"
    else:
        summary = summarize(verdict, proof, subject, runs, kernels, built, idle, left_open)
    opening = run_levels.opening(request.level, subject.device, subject.suite, diagnosis, verdict)
    told = runs
    if measured.begun:  # of a run that is killed, what it had told with its first iteration stays
        told = (*runs, SceneRun("", (), 0.0, measured.begun))
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
        environment=environment_of(facts, told, subject.device),
        repeat=subject.command,
        issued=_now(),
        seconds=measured.seconds,
        skipped=skipped,
        sources=measured.sources,
        comparison=comparison,
        level=request.level,
        diagnosis=(*code, *diagnosis),
    )


def _of_stack(
    subject: StackSubject, facts: Facts, measured: Measured, findings: Findings, built: Rung | None
) -> Certificate:
    started, run = measured.started, next(iter(measured.runs), None)
    proof = evaluate_stack(subject, findings, run, built)
    code = as_installed(measured.loaded, subject.python)
    reasons = [*_altered(code), *(_reason(item) for scene in measured.runs for item in scene.failed)]
    for rung in proof:
        if rung.name is RungName.BUILT and rung.reached is False:
            reasons.append(f"built: {rung.shown_by}")
    passed = Verdict.REHEARSED if subject.rehearsed else Verdict.CERTIFIED
    verdict = _verdict(reasons, measured, passed=passed)
    stack = TestedStack(
        name=subject.name,
        folder=str(subject.checkout),
        remote=subject.remote,
        commit=subject.commit,
        command=Command((subject.python, str(subject.checkout / subject.script), *started.arguments)),
        rehearsed=subject.rehearsed,
        dropins=subject.dropin_names,
        mends=(*subject.mends, *started.mends),
        weights=started.weights,
    )
    environment = environment_of(facts, measured.runs, subject.device)
    environment["stack"] = ", ".join(filter(None, (subject.name, subject.remote, subject.commit)))
    environment["training"] = stack.command.shell(windows=False)
    if subject.dropin_names:
        environment["drop-ins"] = ", ".join(subject.dropin_names)
    if subject.threads:
        environment["threads"] = f"{subject.threads} ({subject.threads_because})"
    return Certificate(
        verdict=verdict,
        summary=summarize_stack(verdict, subject, run),
        reasons=tuple(reasons),
        suite=subject.scene.name,
        renderer=", ".join(subject.extensions) or "its own",
        device=subject.device,
        proof=proof,
        kernels=(),
        scenes=measured.runs,
        environment=environment,
        repeat=subject.command,
        issued=_now(),
        seconds=measured.seconds,
        diagnosis=code,
        stack=stack,
    )


def _verdict(
    reasons: Sequence[str], measured: Measured, *, passed: Verdict, left_open: bool = False
) -> Verdict:
    if reasons:
        return Verdict.NOT_CERTIFIED
    judged = all(run.passed is not None and not run.unreadable for run in measured.runs)
    if measured.finished and judged and not left_open:
        return passed
    return Verdict.UNDETERMINED


def failures(
    kernels: tuple[KernelCheck, ...],
    scenes: tuple[SceneRun, ...],
    proof: tuple[Rung, ...],
    diagnosis: tuple[Criterion, ...] = (),
) -> tuple[str, ...]:
    """Why an environment is not certified: failed checks, kernels and criteria, and where none failed, failed levels."""
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
    return f"{scenes}: {_reason(first)}"


def _altered(code: Sequence[Criterion]) -> list[str]:
    """That other code ran than was installed, which explains what failed besides."""
    return [_reason(item) for item in code if item.outcome is Outcome.FAILED]


def _reason(item: Criterion) -> str:
    return f"{item.code}: {item.measured.rstrip('.')}. {item.why}".rstrip()


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
