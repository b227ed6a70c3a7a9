"""A context with what the checks say of it: the extensions that are meant, and what must be repaired first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from packaging.utils import canonicalize_name

from splatfix.checks import Finding, Status, all_checks, check_named, run_checks
from splatfix.checks.registry import Blocks
from splatfix.context import Context, Target, make_context
from splatfix.context.coverage import judge
from splatfix.context.installed import installed_driver
from splatfix.context.torch_wheels import no_wheels
from splatfix.core.errors import Problem
from splatfix.core.step import Step, say
from splatfix.core.versions import release
from splatfix.facts import Facts, FatbinGroup, Torch
from splatfix.knowledge import Arch, drivers
from splatfix.knowledge.drivers import Platform, driver_words
from splatfix.plan.option import NO_SOURCES, SourceSummary
from splatfix.plan.parts import NativePart, native_parts


@dataclass(frozen=True)
class Verdict:
    """Whether some code runs on a GPU (None: it cannot be told), and the sentence that says so."""

    ok: bool | None
    why: str


@dataclass(frozen=True)
class Assessment:
    """A context as the options look at it."""

    context: Context
    sources: SourceSummary = NO_SOURCES
    keep: tuple[str, ...] = ()
    """What must not be touched: ``torch``, or extensions by name."""
    parts: tuple[NativePart, ...] = ()
    repairs: tuple[Step, ...] = ()
    """What must be done to driver or container before anything runs on this machine's GPU."""

    @property
    def facts(self) -> Facts:
        """The facts of the context."""
        return self.context.facts

    @property
    def targets(self) -> tuple[Target, ...]:
        """The GPUs to serve."""
        return self.context.targets

    @property
    def archs(self) -> tuple[Arch, ...]:
        """The architectures to serve."""
        return self.context.archs

    @property
    def here(self) -> bool:
        """At least one target is a GPU of this machine, so that its driver has a say."""
        return any(item.here for item in self.targets)

    @property
    def away(self) -> tuple[Arch, ...]:
        """The targets that no GPU of this machine is."""
        return tuple(item.arch for item in self.targets if not item.here)

    @property
    def not_asked_for(self) -> tuple[Arch, ...]:
        """GPUs of this machine that are no target."""
        asked = {arch.plain for arch in self.archs}
        return tuple(arch for arch in sorted(self.context.own_archs()) if arch not in asked)

    @property
    def torch(self) -> Torch | None:
        """The installed torch, when it can be read."""
        return self.context.torch

    @property
    def platform(self) -> Platform | None:
        """``linux`` or ``windows``; None where there is no CUDA (macOS)."""
        return self.context.platform

    @property
    def driver(self) -> tuple[int, ...] | None:
        """The driver that will have to run it; None when no target is here, or none is known."""
        return self.own_driver if self.here else None

    @property
    def own_driver(self) -> tuple[int, ...] | None:
        """This machine's driver, whether or not a target is here."""
        return drivers.parse_driver(self.driver_words) if self.driver_words else None

    @property
    def driver_words(self) -> str:
        """The driver's version as it writes it itself; after an upgrade without a reboot the one that a reboot brings."""
        return installed_driver(self.facts)

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of the extensions that are to be left as they are, however a person has spelt them."""
        wished = {canonicalize_name(name) for name in self.keep}
        return tuple(part.name for part in self.parts if canonicalize_name(part.name) in wished)

    @property
    def nothing_installed(self) -> bool:
        """Extensions are meant, and none of them is there."""
        return bool(self.parts) and not any(part.installed for part in self.parts)

    @property
    def subjects(self) -> tuple[str, ...]:
        """Names of the extensions that are meant."""
        return tuple(part.name for part in self.parts)

    @property
    def python(self) -> tuple[int, int] | None:
        """(major, minor) of the target interpreter."""
        return self.context.python

    @property
    def glibc(self) -> tuple[int, int] | None:
        """(major, minor) of the C library."""
        return self.context.glibc

    @property
    def no_wheels(self) -> str:
        """Why PyTorch publishes no wheel at all that this machine could use; "" where it does."""
        return no_wheels(self.facts)

    @property
    def words(self) -> str:
        """The targets for a sentence."""
        return ", ".join(arch.sm for arch in self.archs)


def assess(
    context: Context, sources: SourceSummary = NO_SOURCES, keep: tuple[str, ...] = ()
) -> Assessment | Problem:
    """What the checks say of a context; ``no-gpu-to-target`` where nothing can be said."""
    if context.no_target:
        return context.no_target
    found = Assessment(context, sources, keep, native_parts(context, sources))
    return replace(found, repairs=_repairs(context.facts)) if found.here else found


def code_serves(
    code: Sequence[FatbinGroup],
    arch: Arch,
    *,
    level: str | None,
    cuda: str | None,
    unread: str = "",
    counted: bool = True,
) -> Verdict:
    """Whether every fatbin of a library has something for a GPU.

    Args:
        counted: count the fatbins for the reason, of which torch has thousands.
    """
    if not code:
        return Verdict(None, unread or "it shows no GPU code")
    numbers = release(cuda or "")
    build = (numbers[0], numbers[1]) if len(numbers) > 1 else None
    verdict = judge(code, arch, driver_cuda=level, build_cuda=build)  # equal fatbins have equal verdicts
    if not verdict.usable and counted:
        each = tuple(group for group in code for _ in range(group.count))  # so that the reason counts right
        return Verdict(False, judge(each, arch, driver_cuda=level, build_cuda=build).reason)
    return Verdict(None if verdict.usable and verdict.ptx_unsure else verdict.usable, verdict.reason)


def lacks_code(found: Assessment, part: NativePart) -> bool:
    """It is not there, cannot be used, or is known to hold nothing for one of the targets."""
    if not part.installed or part.error or part.unfit:
        return True
    if part.anywhere:
        return False
    cuda = found.torch.cuda if found.torch else None
    answers = (
        code_serves(part.code, arch, level=found.context.driver_level(arch), cuda=cuda, counted=False)
        for arch in found.archs
    )
    return any(answer.ok is False for answer in answers)


def torch_obstacles(found: Assessment) -> tuple[list[str], list[str]]:
    """What speaks against building for the targets beside the torch that is here, and what is not known about it."""
    torch = found.torch
    if torch is None:
        return [_why_no_torch(found.facts)], []
    if torch.cuda is None:
        return [f"torch {torch.version} is a {torch.built_for} build"], []
    against, unsure = [], []
    for arch in found.archs:
        verdict = code_serves(
            torch.code,
            arch,
            level=found.context.driver_level(arch),
            cuda=torch.cuda,
            unread=f"what GPU code torch {torch.version} carries is not known",
            counted=False,
        )
        if verdict.ok is False:
            against.append(f"torch {torch.version} itself has no code for {arch.sm}")
        elif verdict.ok is None:
            unsure.append(f"whether torch {torch.version} runs on {arch.sm}: {verdict.why}")
    objection = driver_objection(found, torch.cuda)
    if objection.ok is False:
        against.append(objection.why)
    elif objection.ok is None and found.here:
        unsure.append(objection.why)
    return against, unsure


def _why_no_torch(facts: Facts) -> str:
    interpreter = facts.environment.interpreter
    if facts.environment.torch_installed.value is False:
        return "torch is not installed"
    if interpreter.value is None:
        return f"the target Python cannot be used ({interpreter.error or 'it is not known'}), so nothing is known of its torch"
    return "the installed torch cannot be read"


def driver_objection(found: Assessment, cuda: str) -> Verdict:
    """Whether this machine's driver starts a CUDA runtime; asked only where a target is here."""
    if not found.here:
        return Verdict(None, "no target is in this machine, so its driver has no say")
    return own_driver_starts(found, cuda)


def own_driver_starts(found: Assessment, cuda: str) -> Verdict:
    """Whether this machine's driver starts a CUDA runtime, wherever the targets are."""
    numbers = release(cuda)
    floor = drivers.runtime_floor((numbers[0], numbers[1]), found.platform or "linux")
    if floor is None:
        return Verdict(None, f"the oldest driver for CUDA {cuda} is not in the tables")
    need = driver_words(floor)
    if found.own_driver is None:
        return Verdict(None, f"no driver version is known here; CUDA {cuda} needs {need} or newer")
    have = found.driver_words
    if found.own_driver < floor:
        return Verdict(False, f"driver {have} is too old for CUDA {cuda}, which needs {need} or newer")
    return Verdict(True, f"driver {have} starts CUDA {cuda} (needs {need})")


def stops_everything(code: str) -> bool:
    """What fails is to be repaired before anything runs on the GPU."""
    return check_named(code).blocks is not None


def most_urgent_first(findings: Iterable[Finding]) -> list[Finding]:
    """The failures among the findings: first those that stop everything else, in the order of their repair."""
    failed = (item for item in findings if item.status is Status.FAIL)
    return sorted(failed, key=lambda item: check_named(item.code).blocks or len(Blocks) + 1)


def _repairs(facts: Facts) -> tuple[Step, ...]:
    blocking = [check for check in all_checks() if check.blocks]
    failed = most_urgent_first(run_checks(make_context(facts), blocking))
    return tuple(dict.fromkeys(step for finding in failed for step in repair_of(finding)))


def repair_of(finding: Finding) -> tuple[Step, ...]:
    """A finding's own remedy; where it has none, what it says."""
    return finding.remedy or (say(finding.summary),)
