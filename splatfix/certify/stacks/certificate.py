"""The certificate of a stack's own trainer: the levels that it reached, and what is said of it."""

from collections.abc import Sequence

from splatfix.certify.certificate import Measured, altered, code_criteria, now, reason_of, verdict_of
from splatfix.certify.criteria.stack import OBSERVED
from splatfix.certify.environment import environment_of
from splatfix.certify.levels import level_resolved
from splatfix.certify.model import Certificate, Outcome, SceneRun, TestedStack, Verdict
from splatfix.certify.run_levels import on
from splatfix.certify.stacks.subject import StackSubject
from splatfix.core.proof import Rung, RungName
from splatfix.core.words import counted
from splatfix.model import Facts, Finding

NOT_ENDED = "the trainer was not run to its end"
_NOTHING_OF_CUDA = "a rehearsal on the CPU shows nothing about CUDA"


def stack_certificate(
    subject: StackSubject,
    facts: Facts,
    measured: Measured,
    stack: TestedStack,
    findings: Sequence[Finding],
    built: Rung | None,
) -> Certificate:
    """Return the certificate of a stack's own trainer; ``built`` is of GPUs that are not here."""
    run = next(iter(measured.runs), None)
    proof = levels_of(subject, findings, run, built)
    code = code_criteria(measured, subject.python)
    reasons = [*altered(code), *(reason_of(item) for scene in measured.runs for item in scene.failed)]
    for rung in proof:
        if rung.name is RungName.BUILT and rung.reached is False:
            reasons.append(f"built: {rung.shown_by}")
    passed = Verdict.REHEARSED if subject.rehearsed else Verdict.CERTIFIED
    verdict = verdict_of(reasons, measured, passed=passed)
    environment = environment_of(facts, measured.runs, subject.device)
    environment["stack"] = ", ".join(filter(None, (stack.name, stack.remote, stack.commit)))
    environment["training"] = stack.command.shell(windows=False)
    if stack.dropins:
        environment["drop-ins"] = ", ".join(stack.dropins)
    if subject.threads:
        environment["threads"] = f"{subject.threads} ({subject.threads_because})"
    return Certificate(
        verdict=verdict,
        summary=_summary(verdict, subject, run),
        reasons=tuple(reasons),
        suite=subject.scene.name,
        renderer=", ".join(subject.extensions) or "its own",
        device=subject.device,
        proof=proof,
        kernels=(),
        scenes=measured.runs,
        environment=environment,
        repeat=subject.command,
        issued=now(),
        seconds=measured.seconds,
        diagnosis=code,
        stack=stack,
    )


def levels_of(
    subject: StackSubject, findings: Sequence[Finding], run: SceneRun | None, built: Rung | None = None
) -> tuple[Rung, ...]:
    """Return all levels, lowest first; ``run`` is None for one that has not come to its end."""
    if built is None:
        built = Rung(RungName.BUILT, None, "drop-ins ran, in plain PyTorch", needed=False)
        if subject.extensions and not subject.rehearsed:
            built = Rung(RungName.BUILT, None, f"not looked at: {', '.join(subject.extensions)}")
    loaded: tuple[bool | None, str] = (None, NOT_ENDED)
    trained = loaded
    if run is not None:
        modules = sorted(name for name, part in run.record.implementations.items() if part.module)
        loaded = (bool(modules), f"imported and called: {', '.join(modules) or 'no extension'}")
        trained = _trained(run)
    rehearsed: tuple[bool | None, str] = (None, "it ran on the GPU")
    computes = "kernels were not compared with references; splatfix certify --level 2 does that"
    if subject.rehearsed:
        rehearsed, trained, computes = trained, (None, _NOTHING_OF_CUDA), _NOTHING_OF_CUDA
    return (
        level_resolved(findings, subject.device),
        built,
        Rung(RungName.LOADS, *loaded),
        Rung(RungName.REHEARSED, *rehearsed, needed=subject.rehearsed),
        Rung(RungName.COMPUTES, None, computes),
        Rung(RungName.TRAINS, *trained),
        Rung(RungName.REPRODUCES, None, "no baseline to compare with"),
    )


def _trained(run: SceneRun) -> tuple[bool | None, str]:
    failed = [item.code for item in run.failed]
    if failed:
        return False, f"criteria failed: {', '.join(failed)}"
    done = counted(run.record.iterations or 0, "iteration")
    if run.passed is None:
        return None, f"{_why_open(run)}: {done}"
    psnr = run.record.heldout.psnr
    quality = "held-out quality was not measured"
    if psnr is not None:
        quality = f"held-out PSNR {psnr:.2f} dB"
    return True, f"{done} of its own trainer on {run.scene}; {quality}"


def _why_open(run: SceneRun) -> str:
    for item in run.criteria:
        if item.code == OBSERVED and item.outcome is not Outcome.MET:
            return f"and could not be observed ({item.measured})"
    return "too short to judge"


def _summary(verdict: Verdict, subject: StackSubject, run: SceneRun | None) -> str:
    trainer = f"{subject.name}'s own trainer"
    if run is None:
        return f"{trainer} was not run to its end on {subject.device}: nothing of it was judged."
    limit = ""
    how = "ran"
    if subject.rehearsed:
        how, limit = "was rehearsed", " CUDA and its kernels were not verified."
    began = f"{trainer} {how} {on(subject.device)} for {counted(run.record.iterations or 0, 'iteration')}"
    if verdict is Verdict.NOT_CERTIFIED:
        failed = counted(len(run.failed), "criterion")
        return f"{began}, and does not pass: {failed} failed.{limit}"
    if verdict is Verdict.UNDETERMINED:
        reason = _why_open(run) if run.passed is None else "and nothing failed so far"
        return f"{began}, {reason}.{limit}"
    met = sum(item.outcome is Outcome.MET for item in run.criteria)
    measured = f"{met} met, {len(run.criteria) - met} not measured"
    return f"{began} on {run.scene}, and meets every criterion that was measured ({measured}).{limit}"
