"""A case: everything that a backend looks at, and what the checks say of it, found out once; and how plans are put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import PurePath

from msgspec import Struct
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.checks import all_checks, check_named, run_checks
from splatfix.checks.registry import Blocks
from splatfix.context import Context, make_context
from splatfix.context.commands import python_option
from splatfix.core.errors import Rejected
from splatfix.core.proof import RungName
from splatfix.core.step import Command, Step, say, target_options
from splatfix.core.versions import release
from splatfix.core.words import counted
from splatfix.knowledge import Arch, drivers
from splatfix.knowledge.tables import parse_version
from splatfix.model import Considered, Driver, EnvironmentFacts, Fact, FatbinGroup, Finding, Status
from splatfix.model.option import NO_SOURCES, Limit, OptionKind, Plan, Request, SourceSummary
from splatfix.model.steps import (
    BuildWheel,
    CheckImport,
    Confirm,
    EditSource,
    FetchWheel,
    InstallStep,
    InstallWheel,
    MakeDropin,
    Reason,
    VerifyWheel,
)
from splatfix.plan.dependencies import Dependencies
from splatfix.plan.parts import NativePart, names_of, native_parts, other_variant

UPPER_RUNGS = (RungName.COMPUTES, RungName.TRAINS, RungName.REPRODUCES)
"""What only a run verifies, and for native code only a run on the GPU."""
_NO_CODE = "it shows no GPU code"
_NOTHING_NATIVE = Limit(RungName.BUILT, "nothing native is built")
_ONLY_INSTALLED = (
    Limit(RungName.COMPUTES, "nothing is run; splatfix certify --level 2 does that"),
    Limit(RungName.TRAINS, "nothing is trained; splatfix certify does that"),
)


class Compatibility(Struct, frozen=True):
    """Whether some code runs on a GPU (None: it cannot be told), and the sentence that says so."""

    ok: bool | None
    reason: str


class Case(Struct, frozen=True, kw_only=True, dict=True):
    """A machine and its goal, what the sources tell, what was asked for, and what is to be left alone."""

    context: Context
    sources: SourceSummary = NO_SOURCES
    keep: tuple[str, ...] = ()
    """What must not be touched: ``torch``, or extensions by name."""
    request: Request = Request(sources=())
    """What ``install`` was asked for; its sources are those of :attr:`sources`."""
    prebuilt: Mapping[str, FetchWheel] | None = None
    """By the name of an extension, the wheel that was found and proven; None where none was looked for."""
    not_prebuilt: tuple[Considered, ...] = ()
    """Why others have none."""
    no_wheel: Rejected | None = None
    """Where prebuilt wheels alone will do and one has none."""
    parts_to_be: tuple[NativePart, ...] | None = None
    """In place of what the facts tell of the extensions; None: the facts are asked."""
    first: tuple[Step, ...] = ()
    """What comes before everything else: an environment of its own."""

    @cached_property
    def parts(self) -> tuple[NativePart, ...]:
        """The extensions that are meant; without a target there is nothing that one could be judged for."""
        if self.parts_to_be is not None or self.context.no_target:
            return self.parts_to_be or ()
        return native_parts(self.context, self.sources)

    @cached_property
    def repairs(self) -> tuple[Step, ...]:
        """What must be done to environment, driver or container before anything runs on this machine's GPU."""
        repairs = dict.fromkeys(self.first)
        if self.here:
            # asked of the machine's own GPUs, whatever the targets are: that is what the driver and the container serve
            blocking = [check for check in all_checks() if check.blocks]
            for finding in most_urgent_first(run_checks(for_targets(self.context), blocking)):
                repairs.update(dict.fromkeys(repair_of(finding)))
        return tuple(repairs)

    @property
    def here(self) -> bool:
        """At least one target is a GPU of this machine, so that its driver has a say."""
        return any(target.here for target in self.context.targets)

    @property
    def away(self) -> tuple[Arch, ...]:
        """The targets that no GPU of this machine is."""
        return tuple(target.arch for target in self.context.targets if not target.here)

    @property
    def not_asked_for(self) -> tuple[Arch, ...]:
        """GPUs of this machine that are no target."""
        requested = {arch.plain for arch in self.context.archs}
        return tuple(arch for arch in sorted(self.context.own_archs()) if arch not in requested)

    @property
    def driver(self) -> tuple[int, ...] | None:
        """The driver that will have to run it; None when no target is here, or none is known."""
        if not self.here or not self.context.driver_version:
            return None
        return parse_version(self.context.driver_version)

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of the extensions that are to be left as they are, however a person has spelt them."""
        names = {canonicalize_name(name) for name in self.keep}
        return tuple(part.name for part in self.parts if canonicalize_name(part.name) in names)

    @property
    def nothing_installed(self) -> bool:
        """Extensions are meant, and none of them is there."""
        return bool(self.parts) and not any(part.installed for part in self.parts)

    @property
    def subjects(self) -> tuple[str, ...]:
        """Names of the extensions that are meant."""
        return tuple(part.name for part in self.parts)

    @property
    def names(self) -> str:
        """The targets for a sentence."""
        return names_of_archs(self.context.archs)

    def code_serves(self, code: Sequence[FatbinGroup], arch: Arch, unread: str = _NO_CODE) -> Compatibility:
        """Judge whether every fatbin of a library has something for a GPU; ``unread`` is said of one without code."""
        if not code:
            return Compatibility(None, unread)
        coverage = self.context.judge(code, arch)
        return Compatibility(coverage.runs, coverage.reason)

    def torch_obstacles(self) -> tuple[list[str], list[str]]:
        """Tell what speaks against building for the targets beside the torch that is here, and what is not known about it."""
        torch, environment = self.context.torch, self.context.environment
        if torch is None:
            obstacle = "the installed torch cannot be read"
            if environment.torch_installed.value is False:
                obstacle = "torch is not installed"
            elif environment.interpreter.value is None:
                error = environment.interpreter.error or "it is not known"
                obstacle = f"the target Python cannot be used ({error}), so nothing is known of its torch"
            return [obstacle], []
        if torch.cuda is None:
            return [f"torch {torch.version} is a {torch.built_for} build"], []
        against: list[str] = []
        unsure: list[str] = []
        unread = f"what GPU code torch {torch.version} carries is not known"
        for arch in self.context.archs:
            verdict = self.code_serves(torch.code, arch, unread)
            if verdict.ok is False:
                against.append(f"torch {torch.version} itself has no code for {arch.sm}")
            elif verdict.ok is None:
                unsure.append(f"whether torch {torch.version} runs on {arch.sm}: {verdict.reason}")
        driver = self.driver_objection(torch.cuda)
        if driver.ok is False:
            against.append(driver.reason)
        elif driver.ok is None and self.here:
            unsure.append(driver.reason)
        return against, unsure

    def driver_objection(self, cuda: str, *, anywhere: bool = False) -> Compatibility:
        """Judge whether this machine's driver starts a CUDA runtime; ``anywhere``: also where no target is in this machine."""
        if not self.here and not anywhere:
            return Compatibility(None, "no target is in this machine, so its driver has no say")
        numbers, version = release(cuda), self.context.driver_version
        floor = drivers.runtime_floor((numbers[0], numbers[1]), self.context.platform or "linux")
        if floor is None:
            return Compatibility(None, f"the oldest driver for CUDA {cuda} is not in the tables")
        oldest = drivers.driver_words(floor)
        if not version:
            text = f"no driver version is known here; CUDA {cuda} needs {oldest} or newer"
            return Compatibility(None, text)
        if parse_version(version) < floor:
            text = f"driver {version} is too old for CUDA {cuda}, which needs {oldest} or newer"
            return Compatibility(False, text)
        return Compatibility(True, f"driver {version} starts CUDA {cuda} (needs {oldest})")

    def make_option(
        self, kind: OptionKind, steps: Sequence[Step], reasons: Sequence[Reason], unsure: Sequence[str] = ()
    ) -> Plan:
        """Build the plan for a machine, with what it can and cannot verify about it."""
        proves, limits, on_the_cpu = [RungName.RESOLVED, RungName.BUILT, RungName.LOADS], [], ""
        if kind in (OptionKind.CONTAINER, OptionKind.DROPIN):
            proves, limits = [RungName.RESOLVED, RungName.LOADS], [_NOTHING_NATIVE]
            on_the_cpu = "; on the CPU it can be verified"
        away = names_of_archs(self.away)
        if self.context.targets and not self.here:
            reason = f"no {away} GPU is in this machine{on_the_cpu}"
            limits += [Limit(rung, reason) for rung in UPPER_RUNGS]
        else:
            proves += UPPER_RUNGS
            if away:
                limits += [Limit(rung, f"for {away}: no such GPU is in this machine") for rung in UPPER_RUNGS]
        title = kind.title(first_build=self.nothing_installed, torch_is_there=self.context.torch is not None)
        # what is kept works only after the repair, so its title must not promise that nothing is to be done
        if kind is OptionKind.KEEP and self.repairs:
            title = f"{counted(len(self.repairs), 'manual step')}, then {title}"
        replaced: set[str] = set()
        for step in steps:
            if isinstance(step, MakeDropin):
                replaced.update(self.subjects)
            elif isinstance(step, BuildWheel):
                replaced.update(step.subjects)
        conflicts = [Reason(part.conflict) for part in self.parts if part.conflict and part.name in replaced]
        return Plan(
            kind,
            title,
            (*self.repairs, *steps),
            tuple(proves),
            tuple(limits),
            (*reasons, *conflicts),
            tuple(dict.fromkeys(unsure)),
            targets=self.context.archs,
        )

    def splatfix(self, *arguments: str) -> Command:
        """Build a command of splatfix for the target environment."""
        return Command(("splatfix", *arguments, *python_option(self.context.facts)))

    def confirm(self) -> Confirm:
        """Build the last step: train where the GPU is, with what was built, else at least see that its code is there."""
        if self.context.targets and not self.here:
            checkout = self.context.checkout
            options = target_options(self.context.archs)
            if checkout:
                options = ("--repo", checkout.folder, *options)
            command = self.splatfix("diagnose", *options)
            return Confirm(command=command, what=f"confirm the code for {self.names}")
        # the smoke trainer is to call the rasterizer that was built
        names = {canonicalize_name(name) for name in self.subjects}
        renderer: tuple[str, ...] = ()
        if "gsplat" in names:
            renderer = ("--renderer", "gsplat")
        elif "diff-gaussian-rasterization" in names:
            renderer = ("--renderer", "inria")
        return Confirm(command=self.splatfix("certify", "--device", "cuda", *renderer), what="test training")


def context_to_be(
    context: Context,
    *,
    driver: Driver | None = None,
    environment: EnvironmentFacts | None = None,
    **values: object,
) -> Context:
    """Return the machine as it would be with this driver, another environment, or these values of the environment's facts."""
    facts, via = context.facts, "as it would be"
    machine = facts.machine
    if driver:
        machine = replace(machine, driver=Fact(driver, via))
    changed = {name: Fact(value, via) for name, value in values.items()}
    environment = replace(environment or facts.environment, **changed)
    return make_context(replace(facts, machine=machine, environment=environment), context.goal)


def for_targets(context: Context, targets: tuple[Arch, ...] = ()) -> Context:
    """Return the same machine for other targets; without any for its own GPUs."""
    if targets == context.goal.targets:
        return context
    return make_context(context.facts, replace(context.goal, targets=targets))


def not_applicable(*reasons: str) -> Rejected:
    """Build the rejection of an option that this machine does not have."""
    return Rejected(code="not-applicable", what="; ".join(dict.fromkeys(reasons)))


def names_of_archs(archs: Iterable[Arch]) -> str:
    """Return ``sm_86, sm_120``."""
    return ", ".join(arch.sm for arch in archs)


def most_urgent_first(findings: Iterable[Finding]) -> list[Finding]:
    """List the failures among the findings: first those that stop everything else, in the order of their repair."""
    failed = (finding for finding in findings if finding.status is Status.FAIL)
    return sorted(failed, key=lambda finding: check_named(finding.code).blocks or len(Blocks) + 1)


def repair_of(finding: Finding) -> tuple[Step, ...]:
    """Return a finding's own remedy; where it has none, what it says."""
    return finding.remedy or (say(finding.summary),)


def without_rungs(plan: Plan, rungs: Sequence[RungName], reason: str) -> Plan:
    """Return the same plan, which cannot prove these rungs."""
    limits = [limit for limit in plan.cannot_prove if limit.rung not in rungs]
    limits += [Limit(rung, reason) for rung in rungs]
    proves = tuple(rung for rung in plan.proves if rung not in rungs)
    return replace(plan, proves=proves, cannot_prove=tuple(limits))


def installation(
    case: Case,
    draft: Plan,
    makers: Sequence[BuildWheel | FetchWheel] | Sequence[MakeDropin],
    variants: Mapping[str, Sequence[str]],
    dependencies: Dependencies,
    first: Sequence[InstallStep] = (),
) -> Plan:
    """Build the plan that ``install`` executes: everything is made and verified before the first thing is installed.

    The ``variants`` are keys of what a distribution can be, by its name; what comes ``first`` follows the dependencies.
    """
    python = case.context.interpreter
    there: dict[str, str] = {}
    # a distribution that the environment only sees (another environment's, through a .pth file) stays where it is
    for item in reversed(case.context.distributions):
        if python and PurePath(item.location).is_relative_to(python.prefix):
            there[canonicalize_name(item.name)] = item.version
    # three lists, so that a build that fails after half an hour has changed nothing in the environment
    verifications: list[InstallStep] = []
    installs: list[InstallStep] = []
    for step in makers:
        verification = VerifyWheel(subject=step.subject)
        # a drop-in's own kernels are compiled, and so shown, while it is made
        if not isinstance(step, MakeDropin):
            verification = replace(verification, targets=step.targets)
        verifications.append(verification)
        # the checkout is edited only once the wheel made with the same edits has been verified
        if isinstance(step, BuildWheel) and case.request.in_place and step.edits:
            installs.append(EditSource(subject=step.subject, source=step.source, edits=step.edits))
        replaces = there.get(canonicalize_name(step.subject), "")
        installs += [InstallWheel(subject=step.subject, replaces=replaces), CheckImport(subject=step.subject)]
    proves, limits = [RungName.RESOLVED, RungName.BUILT, RungName.LOADS], list(_ONLY_INSTALLED)
    if draft.kind is OptionKind.DROPIN:
        proves, limits = [RungName.RESOLVED, RungName.LOADS], [_NOTHING_NATIVE, *limits]
    # whose rasterizer is replaced by another stack's
    conflicts: list[str] = []
    for package in case.context.packages:
        for name, keys in variants.items():
            if canonicalize_name(name) in names_of(package):
                conflicts += filter(None, other_variant(package, keys)[1:])
    return replace(
        draft,
        steps=(*dependencies.steps, *first, *makers, *verifications, *installs),
        proves=tuple(proves),
        cannot_prove=tuple(limits),
        considered=tuple(dict.fromkeys(draft.considered)),
        notes=(*draft.notes, *conflicts, *dependencies.notes),
    )
