"""What the facts mean for the ways out: the targets, the torch, the driver and the native parts that are there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from packaging.utils import canonicalize_name

from splatfix.checks import Goal, Status, run, select
from splatfix.checks.coverage import judge
from splatfix.checks.driver import driver_words
from splatfix.checks.packages import leaf, variant_names
from splatfix.core.errors import SplatfixError
from splatfix.facts import ContainerGroup, Facts, SplatPackage, Torch
from splatfix.knowledge import Arch, drivers
from splatfix.knowledge.drivers import Platform
from splatfix.knowledge.stacks import variant, variants
from splatfix.resolve.recipes import recipe
from splatfix.resolve.targets import archs_here, driver_level, resolve_targets
from splatfix.resolve.toolchain import release_numbers
from splatfix.resolve.ways import Aim, ByHand


@dataclass(frozen=True)
class Wanted:
    """One architecture to serve."""

    arch: Arch
    here: bool
    """A GPU of this architecture is in this machine."""


@dataclass(frozen=True)
class Serves:
    """Whether some code runs on a GPU (None: it cannot be told), and the sentence that says so."""

    ok: bool | None
    why: str


@dataclass(frozen=True)
class NativePart:
    """One extension that is meant, and what is known of it."""

    name: str
    variant: str = ""
    """Key of the variant in the tables; "" when it is not known."""
    installed: bool = False
    swap: bool = False
    """It is one of splatfix's own drop-ins, which runs wherever torch does."""
    code: tuple[ContainerGroup, ...] = ()
    error: str = ""
    """Why what is installed cannot be used or read; "" when it can."""


@dataclass(frozen=True)
class Situation:
    """The facts, as the ways out look at them."""

    facts: Facts
    aim: Aim
    wanted: tuple[Wanted, ...]
    parts: tuple[NativePart, ...]
    repairs: tuple[ByHand, ...] = ()
    """What must be done to driver or container before anything runs on this machine's GPU."""

    @property
    def archs(self) -> tuple[Arch, ...]:
        """The architectures to serve."""
        return tuple(item.arch for item in self.wanted)

    @property
    def here(self) -> bool:
        """At least one target is a GPU of this machine, so that its driver has a say."""
        return any(item.here for item in self.wanted)

    @property
    def away(self) -> tuple[Arch, ...]:
        """The targets that no GPU of this machine is."""
        return tuple(item.arch for item in self.wanted if not item.here)

    @property
    def not_asked_for(self) -> tuple[Arch, ...]:
        """GPUs of this machine that are no target."""
        asked = {arch.plain for arch in self.archs}
        return tuple(arch for arch in sorted(archs_here(self.facts)) if arch not in asked)

    @property
    def torch(self) -> Torch | None:
        """The installed torch, when it can be read."""
        return self.facts.environment.torch.value

    @property
    def platform(self) -> Platform | None:
        """``linux`` or ``windows``; None where there is no CUDA (macOS)."""
        known: dict[str, Literal["linux", "windows"]] = {"linux": "linux", "windows": "windows"}
        return known.get(self.facts.machine.system)

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
        found = self.facts.machine.driver.value
        return (found.library_version or found.version or "") if found else ""

    @property
    def subjects(self) -> tuple[str, ...]:
        """Names of the extensions that are meant."""
        return tuple(part.name for part in self.parts)

    @property
    def python(self) -> tuple[int, int] | None:
        """(major, minor) of the target interpreter."""
        found = self.facts.environment.interpreter.value
        numbers = release_numbers(found.version) if found else ()
        return (numbers[0], numbers[1]) if len(numbers) > 1 else None

    @property
    def glibc(self) -> tuple[int, int] | None:
        """(major, minor) of the C library."""
        numbers = release_numbers(self.facts.machine.glibc or "")
        return (numbers[0], numbers[1]) if len(numbers) > 1 else None

    @property
    def no_wheels(self) -> str:
        """Why PyTorch publishes no wheel at all that this machine could use; "" where it does."""
        libc = self.facts.machine.libc.value or ""
        return f"PyTorch publishes no wheel for {libc}; glibc is needed" if libc.startswith("musl") else ""

    @property
    def words(self) -> str:
        """The targets for a sentence."""
        return ", ".join(arch.sm for arch in self.archs)


def situation(aim: Aim, facts: Facts) -> Situation:
    """Read the facts for an aim.

    Raises:
        SplatfixError: ``unknown-arch``, or ``no-gpu-to-target`` when ``auto`` finds no NVIDIA GPU.
    """
    here = archs_here(facts)
    wanted = tuple(Wanted(arch, arch.plain in here) for arch in resolve_targets(aim.targets, facts))
    found = Situation(facts, aim, wanted, tuple(_parts(aim, facts)))
    return replace(found, repairs=_repairs(facts)) if found.here else found


def code_serves(
    code: Sequence[ContainerGroup],
    arch: Arch,
    *,
    level: str | None,
    cuda: str | None,
    unread: str = "",
    counted: bool = True,
) -> Serves:
    """Whether every container of a library has something for a GPU.

    Args:
        counted: count the containers for the reason, of which torch has thousands.
    """
    if not code:
        return Serves(None, unread or "it shows no GPU code")
    numbers = release_numbers(cuda or "")
    build = (numbers[0], numbers[1]) if len(numbers) > 1 else None
    verdict = judge(code, arch, driver_cuda=level, build_cuda=build)  # equal containers have equal verdicts
    if not verdict.usable and counted:
        each = tuple(group for group in code for _ in range(group.count))  # so that the reason counts right
        return Serves(False, judge(each, arch, driver_cuda=level, build_cuda=build).reason)
    return Serves(None if verdict.usable and verdict.ptx_unsure else verdict.usable, verdict.reason)


def lacks_code(found: Situation, part: NativePart) -> bool:
    """It is not there, cannot be used, or is known to hold nothing for one of the targets."""
    if not part.installed or part.error:
        return True
    cuda = found.torch.cuda if found.torch else None
    answers = (
        code_serves(part.code, arch, level=driver_level(found.facts, arch), cuda=cuda, counted=False)
        for arch in found.archs
    )
    return any(answer.ok is False for answer in answers)


def torch_obstacles(found: Situation) -> tuple[list[str], list[str]]:
    """What speaks against building for the targets beside the torch that is here, and what is not known about it."""
    torch = found.torch
    if torch is None:
        return [_why_no_torch(found.facts)], []
    if torch.cuda is None:
        return [f"torch {torch.version} is a {'ROCm' if torch.hip else 'CPU'} build"], []
    against, unsure = [], []
    for arch in found.archs:
        verdict = code_serves(
            torch.code, arch, level=driver_level(found.facts, arch), cuda=torch.cuda,
            unread=f"what GPU code torch {torch.version} carries is not known", counted=False,
        )  # fmt: skip
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


def driver_objection(found: Situation, cuda: str) -> Serves:
    """Whether this machine's driver starts a CUDA runtime; asked only where a target is here."""
    if not found.here:
        return Serves(None, "no target is in this machine, so its driver has no say")
    return own_driver_starts(found, cuda)


def own_driver_starts(found: Situation, cuda: str) -> Serves:
    """Whether this machine's driver starts a CUDA runtime, wherever the targets are."""
    numbers = release_numbers(cuda)
    floor = drivers.runtime_floor((numbers[0], numbers[1]), found.platform or "linux")
    if floor is None:
        return Serves(None, f"the oldest driver for CUDA {cuda} is not in the tables")
    need = driver_words(floor)
    if found.own_driver is None:
        return Serves(None, f"no driver version is known here; CUDA {cuda} needs {need} or newer")
    have = found.driver_words
    if found.own_driver < floor:
        return Serves(False, f"driver {have} is too old for CUDA {cuda}, which needs {need} or newer")
    return Serves(True, f"driver {have} starts CUDA {cuda} (needs {need})")


# Driver findings whose cure comes before everything else, whatever road is taken.
_BROKEN = ("gpu-without-driver", "driver-library-mismatch", "driver-library-missing", "no-gpu-visible")


def _repairs(facts: Facts) -> tuple[ByHand, ...]:
    findings = run(facts, Goal(), select(_BROKEN, ()))
    steps = []
    for finding in findings:
        if finding.status is Status.FAIL:
            said = [step.text for step in finding.remedy if not step.command]
            commands = tuple(step.text for step in finding.remedy if step.command)
            steps.append(ByHand(" ".join(said) or finding.summary, commands))
    return tuple(steps)


def _parts(aim: Aim, facts: Facts) -> Iterable[NativePart]:
    installed = {canonicalize_name(part.name): part for part in _installed(facts)}
    names = dict(_named(aim, facts))
    if not names:
        yield from installed.values()
    for name, key in names.items():
        there = installed.get(canonicalize_name(name))
        yield replace(there, variant=there.variant or key) if there else NativePart(name, key)


def _named(aim: Aim, facts: Facts) -> Iterable[tuple[str, str]]:
    """Extensions by name with the variant that is meant: asked for, the stack's, or the checkout's."""
    if aim.extensions:
        yield from ((name, "") for name in aim.extensions)
    elif aim.stack:
        known = recipe(aim.stack)
        if known is None:
            raise SplatfixError(
                "unknown-stack", f"{aim.stack} is no stack that splatfix knows.",
                todo=("Name the extensions instead, or give the checkout.",),
            )  # fmt: skip
        for part in known.parts:
            row = variant(part.variant) if part.variant else None
            yield (row.module if row else part.path.rpartition("/")[2] or known.stack, part.variant)
    elif facts.checkout.value is not None:
        yield from ((item.source.label, "") for item in facts.checkout.value.sources)


def _installed(facts: Facts) -> Iterable[NativePart]:
    """The splatting packages of the environment, with the GPU code of their native files put together."""
    environment = facts.environment
    swaps = {item.name for item in environment.distributions.value or () if item.made_by_splatfix == "swap"}
    for package in environment.packages.value or ():
        files = [
            item
            for item in environment.extensions.value or ()
            if item.path.startswith(f"{package.module.replace('.', '/')}/")
            or item.distribution in package.distributions
        ]
        swap = any(name in swaps for name in package.distributions)
        code = tuple(group for item in files for group in item.code)
        error = next((item.error for item in files if item.error), package.error)
        if not swap and not files and not error:
            error = "its compiled part is not there"
        if code or swap or error or _is_cuda(package):
            name = package.distributions[0] if package.distributions else package.module
            yield NativePart(name, _only_variant(package), True, swap, code, error)


def _is_cuda(package: SplatPackage) -> bool:
    return bool(package.native or package.native_missing or variants(leaf(package)))


def _only_variant(package: SplatPackage) -> str:
    if not variants(leaf(package)):
        return ""
    names = variant_names(package)
    return names[0] if names else ""
