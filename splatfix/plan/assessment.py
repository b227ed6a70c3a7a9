"""A context with what the checks say of it: the extensions that are meant, and what must be repaired first."""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.checks import all_checks, check_named, run_checks
from splatfix.checks.registry import Blocks
from splatfix.context import Context, make_context
from splatfix.context.installed import installed_driver
from splatfix.core.step import Step, say
from splatfix.core.versions import release
from splatfix.knowledge import Arch, drivers
from splatfix.knowledge.drivers import driver_words
from splatfix.knowledge.tables import parse_version
from splatfix.model import FatbinGroup, Finding, Status
from splatfix.model.option import NO_SOURCES, SourceSummary
from splatfix.plan.parts import NativePart, native_parts


class Compatibility(Struct, frozen=True):
    """Whether some code runs on a GPU (None: it cannot be told), and the sentence that says so."""

    ok: bool | None
    reason: str


class Assessment(Struct, frozen=True):
    """Everything that the makers of options look at: the context, what the sources tell, and what is to be left alone."""

    context: Context
    sources: SourceSummary = NO_SOURCES
    keep: tuple[str, ...] = ()
    """What must not be touched: ``torch``, or extensions by name."""
    parts: tuple[NativePart, ...] = ()
    repairs: tuple[Step, ...] = ()
    """What must be done to driver or container before anything runs on this machine's GPU."""

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
        return self.own_driver if self.here else None

    @property
    def own_driver(self) -> tuple[int, ...] | None:
        """This machine's driver, whether or not a target is here."""
        if not self.driver_version:
            return None
        return parse_version(self.driver_version)

    @property
    def driver_version(self) -> str:
        """The driver's version as it writes it itself; after an upgrade without a reboot the one that a reboot brings."""
        return installed_driver(self.context.facts)

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


def names_of_archs(archs: Iterable[Arch]) -> str:
    """``sm_86, sm_120``"""
    return ", ".join(arch.sm for arch in archs)


def assess(context: Context, sources: SourceSummary = NO_SOURCES, keep: tuple[str, ...] = ()) -> Assessment:
    """What the checks say of a context.

    Without a target there is nothing that an extension could be judged for: then its parts are left out.
    """
    if context.no_target:
        # --target auto beside a named GPU, on a machine without one, promises something that is not there
        return Assessment(make_context(context.facts, replace(context.goal, targets=())), sources, keep)
    assessment = Assessment(context, sources, keep, native_parts(context, sources))
    if not assessment.here:
        return assessment
    # asked of the machine's own GPUs, whatever the targets are: that is what the driver and the container serve
    blocking = [check for check in all_checks() if check.blocks]
    repairs: dict[Step, None] = {}
    for finding in most_urgent_first(run_checks(make_context(context.facts), blocking)):
        repairs.update(dict.fromkeys(repair_of(finding)))
    return replace(assessment, repairs=tuple(repairs))


def code_serves(
    assessment: Assessment, code: Sequence[FatbinGroup], arch: Arch, unread: str = "it shows no GPU code"
) -> Compatibility:
    """Whether every fatbin of a library has something for a GPU.

    Args:
        unread: what is said of a library without code.
    """
    if not code:
        return Compatibility(None, unread)
    coverage = assessment.context.judge(code, arch)
    if coverage.usable and coverage.ptx_unsure:
        return Compatibility(None, coverage.reason)
    return Compatibility(coverage.usable, coverage.reason)


def lacks_code(assessment: Assessment, part: NativePart) -> bool:
    """It is not there, cannot be used, or is known to hold nothing for one of the targets."""
    if not part.installed or part.error or part.unfit:
        return True
    if part.anywhere:
        return False
    return any(code_serves(assessment, part.code, arch).ok is False for arch in assessment.context.archs)


def torch_obstacles(assessment: Assessment) -> tuple[list[str], list[str]]:
    """What speaks against building for the targets beside the torch that is here, and what is not known about it."""
    torch = assessment.context.torch
    if torch is None:
        environment = assessment.context.facts.environment
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
    for arch in assessment.context.archs:
        unread = f"what GPU code torch {torch.version} carries is not known"
        verdict = code_serves(assessment, torch.code, arch, unread)
        if verdict.ok is False:
            against.append(f"torch {torch.version} itself has no code for {arch.sm}")
        elif verdict.ok is None:
            unsure.append(f"whether torch {torch.version} runs on {arch.sm}: {verdict.reason}")
    driver = driver_objection(assessment, torch.cuda)
    if driver.ok is False:
        against.append(driver.reason)
    elif driver.ok is None and assessment.here:
        unsure.append(driver.reason)
    return against, unsure


def driver_objection(assessment: Assessment, cuda: str) -> Compatibility:
    """Whether this machine's driver starts a CUDA runtime; asked only where a target is here."""
    if not assessment.here:
        return Compatibility(None, "no target is in this machine, so its driver has no say")
    return own_driver_starts(assessment, cuda)


def own_driver_starts(assessment: Assessment, cuda: str) -> Compatibility:
    """Whether this machine's driver starts a CUDA runtime, wherever the targets are."""
    numbers = release(cuda)
    floor = drivers.runtime_floor((numbers[0], numbers[1]), assessment.context.platform or "linux")
    if floor is None:
        return Compatibility(None, f"the oldest driver for CUDA {cuda} is not in the tables")
    oldest = driver_words(floor)
    if assessment.own_driver is None:
        return Compatibility(None, f"no driver version is known here; CUDA {cuda} needs {oldest} or newer")
    version = assessment.driver_version
    if assessment.own_driver < floor:
        return Compatibility(
            False, f"driver {version} is too old for CUDA {cuda}, which needs {oldest} or newer"
        )
    return Compatibility(True, f"driver {version} starts CUDA {cuda} (needs {oldest})")


def stops_everything(code: str) -> bool:
    """What fails is to be repaired before anything runs on the GPU."""
    return check_named(code).blocks is not None


def most_urgent_first(findings: Iterable[Finding]) -> list[Finding]:
    """The failures among the findings: first those that stop everything else, in the order of their repair."""
    failed = (finding for finding in findings if finding.status is Status.FAIL)
    return sorted(failed, key=lambda finding: check_named(finding.code).blocks or len(Blocks) + 1)


def repair_of(finding: Finding) -> tuple[Step, ...]:
    """A finding's own remedy; where it has none, what it says."""
    return finding.remedy or (say(finding.summary),)
