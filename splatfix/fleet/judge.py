"""What the checks say of a node, by a policy."""

from __future__ import annotations

from collections.abc import Sequence

from splatfix.checks import FAMILIES, Check, Finding, Status, checks_without_checkout, run_checks
from splatfix.context import Goal, make_context
from splatfix.core.codec import from_json, to_json
from splatfix.core.data import dataclass
from splatfix.core.errors import SplatfixError
from splatfix.facts import Facts
from splatfix.facts.system.recording import Redactor
from splatfix.fleet.policy import GatePolicy
from splatfix.fleet.verdict import Action, Alike, CheckVerdict, State, shortened

_STATES = {
    Status.PASS: State.OK,
    Status.SKIP: State.OK,
    Status.WARN: State.WARN,
    Status.FAIL: State.FAIL,
    Status.UNKNOWN: State.UNKNOWN,
    Status.CRASH: State.UNKNOWN,
}


@dataclass(frozen=True)
class Judgement:
    """All that is to be seen of a node at one moment."""

    checks: tuple[CheckVerdict, ...]
    alike: Alike = Alike()


def judge(facts: Facts, policy: GatePolicy, redactor: Redactor) -> Judgement:
    """Run the policy's checks on the facts of a node.

    Raises:
        SplatfixError: ``not-of-a-node`` (exit code 2) for a name that is no check's, no family's, or a checkout's.
    """
    findings = run_checks(make_context(facts, Goal(())), checks_named(policy.checks.named))
    verdicts = [_verdict(finding, policy) for finding in findings]
    if policy.gpus:
        verdicts.append(_count_of_gpus(facts, policy.gpus))
    clean = redactor.data(to_json(tuple(verdicts)))
    return Judgement(from_json(tuple[CheckVerdict, ...], clean), alike_in(facts))


def checks_named(names: Sequence[str]) -> tuple[Check, ...]:
    """The checks of a machine and its environment that have these codes or families."""
    checks = checks_without_checkout()
    known = {*FAMILIES, *(check.code for check in checks)}
    for name in names:
        if name not in known:
            raise SplatfixError.of("fleet.not-of-a-node", name=name)
    return tuple(check for check in checks if check.code in names or check.family in names)


def _verdict(finding: Finding, policy: GatePolicy) -> CheckVerdict:
    state, action = _STATES[finding.status], Action.NONE
    names = {finding.code, finding.family}
    if state is State.WARN and names & {*policy.checks.drain_on_warning}:
        state = State.FAIL
    if state is State.FAIL:
        action = Action.WARN
        if names & {*policy.checks.drain, *policy.checks.drain_on_warning}:
            action = Action.DRAIN
    elif state is State.WARN:
        action = Action.WARN
    evidence = "; ".join(f"{item.name}: {item.value}" for item in finding.evidence)
    commands = [step.command for step in finding.remedy if step.command is not None]
    remedy = ""
    if commands and action is not Action.NONE:
        remedy = commands[0].shell(windows=False)
    return CheckVerdict(finding.code, state, action, shortened(finding.summary), shortened(evidence), remedy)


def _count_of_gpus(facts: Facts, expected: int) -> CheckVerdict:
    gpus = facts.machine.gpus
    if gpus.value is None:
        return CheckVerdict("gpu-count", State.UNKNOWN, Action.NONE, shortened(gpus.error))
    # the PCI bus still shows a card that its driver has lost
    count = sum(
        gpu.vendor == "nvidia" and gpu.shown_by == "driver" and gpu.nvml_error is None for gpu in gpus.value
    )
    message = f"{count} of {expected} GPUs answer."
    if count < expected:
        return CheckVerdict("gpu-count", State.FAIL, Action.DRAIN, message, gpus.found_via)
    return CheckVerdict("gpu-count", State.OK, Action.NONE, message, gpus.found_via)


def alike_in(facts: Facts) -> Alike:
    """What groups a node with others."""
    machine, environment = facts.machine, facts.environment
    driver, torch, interpreter = machine.driver.value, environment.torch.value, environment.interpreter.value
    return Alike(
        gpus=tuple(gpu.name for gpu in machine.gpus.value or () if gpu.vendor == "nvidia"),
        driver=driver.version if driver else None,
        cuda=driver.cuda if driver else None,
        torch=torch.version if torch else None,
        kernel=machine.kernel or None,
        os=machine.distribution or None,
        python=interpreter.version if interpreter else None,
    )
