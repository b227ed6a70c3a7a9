"""A case: everything that a backend looks at, and what the checks say of it, found out once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from msgspec import Struct
from packaging.utils import canonicalize_name

from splatfix.checks import all_checks, check_named, run_checks
from splatfix.checks.registry import Blocks
from splatfix.context import Context
from splatfix.core.errors import Rejected
from splatfix.core.step import Step, say
from splatfix.core.versions import release
from splatfix.knowledge import Arch, drivers
from splatfix.knowledge.drivers import driver_words
from splatfix.knowledge.tables import parse_version
from splatfix.model import Considered, FatbinGroup, Finding, Status
from splatfix.model.option import NO_SOURCES, LaneSummary, Request, SourceSummary
from splatfix.model.steps import FetchWheel
from splatfix.plan.parts import NativePart, native_parts
from splatfix.plan.to_be import for_targets


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
    lanes: tuple[LaneSummary, ...] = ()
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
        if not self.here:
            return None
        return self.own_driver

    @property
    def own_driver(self) -> tuple[int, ...] | None:
        """This machine's driver, wherever the targets are."""
        if not self.context.driver_version:
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


def not_applicable(*reasons: str) -> Rejected:
    """Build the rejection of an option that this machine does not have."""
    return Rejected(code="not-applicable", what="; ".join(dict.fromkeys(reasons)))


def names_of_archs(archs: Iterable[Arch]) -> str:
    """Return ``sm_86, sm_120``."""
    return ", ".join(arch.sm for arch in archs)


def code_serves(
    case: Case, code: Sequence[FatbinGroup], arch: Arch, unread: str = "it shows no GPU code"
) -> Compatibility:
    """Judge whether every fatbin of a library has something for a GPU.

    Args:
        unread: what is said of a library without code.
    """
    if not code:
        return Compatibility(None, unread)
    coverage = case.context.judge(code, arch)
    return Compatibility(coverage.runs, coverage.reason)


def torch_obstacles(case: Case) -> tuple[list[str], list[str]]:
    """Tell what speaks against building for the targets beside the torch that is here, and what is not known about it."""
    torch = case.context.torch
    if torch is None:
        environment = case.context.facts.environment
        interpreter = environment.interpreter
        if environment.torch_installed.value is False:
            return ["torch is not installed"], []
        if interpreter.value is None:
            error = interpreter.error or "it is not known"
            return [f"the target Python cannot be used ({error}), so nothing is known of its torch"], []
        return ["the installed torch cannot be read"], []
    if torch.cuda is None:
        return [f"torch {torch.version} is a {torch.built_for} build"], []
    against, unsure = [], []
    for arch in case.context.archs:
        unread = f"what GPU code torch {torch.version} carries is not known"
        verdict = code_serves(case, torch.code, arch, unread)
        if verdict.ok is False:
            against.append(f"torch {torch.version} itself has no code for {arch.sm}")
        elif verdict.ok is None:
            unsure.append(f"whether torch {torch.version} runs on {arch.sm}: {verdict.reason}")
    driver = driver_objection(case, torch.cuda)
    if driver.ok is False:
        against.append(driver.reason)
    elif driver.ok is None and case.here:
        unsure.append(driver.reason)
    return against, unsure


def driver_objection(case: Case, cuda: str) -> Compatibility:
    """Judge whether this machine's driver starts a CUDA runtime; asked only where a target is here."""
    if not case.here:
        return Compatibility(None, "no target is in this machine, so its driver has no say")
    return own_driver_starts(case, cuda)


def own_driver_starts(case: Case, cuda: str) -> Compatibility:
    """Judge whether this machine's driver starts a CUDA runtime, wherever the targets are."""
    numbers = release(cuda)
    floor = drivers.runtime_floor((numbers[0], numbers[1]), case.context.platform or "linux")
    if floor is None:
        return Compatibility(None, f"the oldest driver for CUDA {cuda} is not in the tables")
    oldest, version = driver_words(floor), case.context.driver_version
    if case.own_driver is None:
        return Compatibility(None, f"no driver version is known here; CUDA {cuda} needs {oldest} or newer")
    if case.own_driver < floor:
        too_old = f"driver {version} is too old for CUDA {cuda}, which needs {oldest} or newer"
        return Compatibility(False, too_old)
    return Compatibility(True, f"driver {version} starts CUDA {cuda} (needs {oldest})")


def most_urgent_first(findings: Iterable[Finding]) -> list[Finding]:
    """List the failures among the findings: first those that stop everything else, in the order of their repair."""
    failed = (finding for finding in findings if finding.status is Status.FAIL)
    return sorted(failed, key=lambda finding: check_named(finding.code).blocks or len(Blocks) + 1)


def repair_of(finding: Finding) -> tuple[Step, ...]:
    """Return a finding's own remedy; where it has none, what it says."""
    return finding.remedy or (say(finding.summary),)
