"""Plans as data: what can be done about a machine, in ordered steps, and what cannot be, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct, field

from splatfix.core.errors import Rejected
from splatfix.core.proof import RungName
from splatfix.core.step import Step, run, target_options, value_options
from splatfix.core.toml import table_beside
from splatfix.knowledge import Arch, RequestedTarget
from splatfix.knowledge.dropins import Dropin, is_rasterizer
from splatfix.model.finding import Considered
from splatfix.model.source import Source
from splatfix.model.steps import InstallStep, InstallWheel, Reason

PLAN_VERSION = 2
_TABLE = table_beside(__file__)


class OptionKind(str, Enum):
    """The kinds of options; their order here is that of the ranking, the least invasive first."""

    KEEP = "keep"
    WHEEL = "wheel"
    REBUILD = "rebuild"
    REBUILD_PTX = "rebuild-with-ptx"
    NVRTC = "nvrtc"
    """Drop-ins with our own CUDA kernels: no toolkit, no host compiler."""
    PROVIDE_TOOLKIT = "provide-toolkit"
    """Unpack a toolkit into splatfix's own cache, and compile with it."""
    INSTALL_TOOLKIT = "install-toolkit"
    """A toolkit that only the user can install."""
    OTHER_TORCH = "other-torch"
    CONTAINER = "container"
    DROPIN = "drop-in"
    DRIVER = "driver"

    def title(self, *, first_build: bool = False, torch_is_there: bool = True) -> str:
        """Say in a few words what it is for a machine; a first build is one where none of the extensions is installed."""
        torch = "another build of torch" if torch_is_there else "install torch"
        title: str = _TABLE["titles"][self.value]
        return title.format(rebuild="build" if first_build else "rebuild", torch=torch)


BUILDING = tuple(map(OptionKind, _TABLE["building"]))
"""Those that compile extensions."""
REPLACING = tuple(map(OptionKind, _TABLE["replacing"]))
"""Those that put drop-ins in their place."""


class Limit(Struct, frozen=True, forbid_unknown_fields=True):
    """A rung that cannot be verified here, and why."""

    rung: RungName
    why: str


_SWITCHES = ("offline", "in_place", "provide_toolkit", "force_cuda_mismatch", "ptx", "with_dependencies")
"""Of a request, and of the command line."""


class Request(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the user asked ``install`` for."""

    sources: tuple[str, ...] = (".",)
    """Source folders; for the pure backend also the names of what to replace."""
    targets: tuple[RequestedTarget, ...] = ()
    """Empty means ``AUTO``."""
    backend: str = "native"
    """``native``, ``nvrtc``, ``pure``, ``auto``: the first of these that is possible here; or ``wheels``: prebuilt ones alone."""
    jobs: int | None = None
    cuda_home: str | None = None
    in_place: bool = False
    """Write the edits into the checkout too, not only into the scratch copy."""
    provide_toolkit: bool = False
    """If no toolkit fits, download one into splatfix's own cache."""
    force_cuda_mismatch: bool = False
    """Allow a toolkit of another CUDA major than torch's, and silence torch's check in the build's process."""
    ptx: bool = False
    """If no toolkit supports a target, embed PTX of an older architecture for the driver to compile."""
    indexes: tuple[str, ...] = ()
    """Where prebuilt wheels are looked for: names of indexes, addresses, folders; () for those of the packages' maintainers."""
    find: bool = True
    """Look for prebuilt wheels before a build."""
    offline: bool = False
    """Ask no index over the network."""
    with_dependencies: bool = False
    """Also install what the sources and their training scripts import and the environment lacks."""

    @property
    def options(self) -> tuple[str, ...]:
        """As they were typed, for the commands that go on with this request."""
        argv = [*target_options(self.targets)]
        if self.backend != "native":
            argv += ["--backend", self.backend]
        argv += value_options({"--jobs": self.jobs, "--cuda-home": self.cuda_home})
        for index in self.indexes:
            argv += ["--index", index]
        if not self.find:
            argv.append("--no-find")
        return (*argv, *(f"--{name.replace('_', '-')}" for name in _SWITCHES if getattr(self, name)))

    def install(self, *words: str, text: str = "", sources: tuple[str, ...] = ()) -> Step:
        """Return ``splatfix install WORDS`` for the same targets; where none were named, ``ARCH`` stands behind ``sources``."""
        argv, targets = ("splatfix", "install", *words), target_options(self.targets)
        if sources and not targets:
            targets = ("--target", "ARCH")
        return run(*argv, *targets, text=text, kind="install", sources=sources)

    def command(self, *sources: str, more: tuple[str, ...] = (), text: str = "") -> Step:
        """Return the command that asks for the same of these sources, and for more."""
        return run("splatfix", "install", *sources, *self.options, *more, text=text)


class Plan(Struct, frozen=True):
    """One whole way to a working stack: what ``diagnose`` ranks for a machine, and what ``install`` executes."""

    kind: OptionKind
    title: str
    steps: tuple[Step, ...] = ()
    proves: tuple[RungName, ...] = ()
    """Rungs that this machine can verify once the steps are done."""
    cannot_prove: tuple[Limit, ...] = ()
    reasons: tuple[Reason, ...] = ()
    unsure: tuple[str, ...] = ()
    """What the tables do not know about it: open questions that only trying answers, no objections."""
    considered: tuple[Considered, ...] = ()
    """Candidates that were looked at for its steps and not taken."""
    notes: tuple[str, ...] = ()
    """What the user should know although it stops nothing."""
    targets: tuple[Arch, ...] = ()
    """GPU architectures that it serves."""
    python: str = ""
    """The interpreter of the environment that ``install`` changes."""
    prefix: str = ""
    request: Request | None = None
    """What was asked for, with absolute paths, so that the same can be asked again; None for what is only shown."""
    jobs: int = 0
    """How many compilers may run at once, over all builds; 0: as many as the largest build says."""
    schema_version: int = PLAN_VERSION

    @property
    def executed(self) -> tuple[InstallStep, ...]:
        """Its steps, where ``install`` executes each."""
        return tuple(step for step in self.steps if isinstance(step, InstallStep))

    @property
    def backend(self) -> str:
        """``native``, ``wheels``, ``nvrtc`` or ``pure``."""
        return str(_TABLE["backends"].get(self.kind.value, "native"))

    @property
    def subjects(self) -> tuple[str, ...]:
        """Every distribution that ``install`` installs, in order."""
        return tuple(step.subject for step in self.steps if isinstance(step, InstallWheel))


class RejectedOption(Struct, frozen=True):
    """A kind of option that is not available, and why."""

    kind: OptionKind
    title: str
    rejected_because: str


class Native(Struct, frozen=True, forbid_unknown_fields=True):
    """An extension that no drop-in takes the place of."""

    module: str
    """"" where the reason is about all of them."""
    reason: str
    """"" where nobody made one."""
    undetermined: bool = False
    """Whether there is one could not be read."""

    @property
    def text(self) -> str:
        """``pytorch3d``, or ``diff_surfel_rasterization: its depth map has no drop-in``."""
        return ": ".join(filter(None, (self.module, self.reason)))


class Replacement(Struct, frozen=True, forbid_unknown_fields=True):
    """The drop-ins for the extensions that are meant, and what has none."""

    dropins: tuple[Dropin, ...] = ()
    native: tuple[Native, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of the drop-ins."""
        return tuple(dropin.name for dropin in self.dropins)

    @property
    def refused(self) -> str:
        """What must be built natively, in words; "" where everything is replaced."""
        return "; ".join(item.text for item in self.native)

    @property
    def useless(self) -> bool:
        """It serves nobody: a rasterizer must be built natively beside the drop-ins, or there are none."""
        return bool(self.native) and (
            not self.dropins or any(is_rasterizer(item.module) for item in self.native)
        )

    @property
    def renderer(self) -> str:
        """The smoke trainer's renderer that calls a rasterizer among them: ``inria``, also where they are not known, or
        ``gsplat``; "" where none of them is one."""
        # as the trainer calls it: surfels and gsplat's twins are called otherwise
        if not self.dropins or any(name.startswith("diff_gaussian_rasterization") for name in self.names):
            return "inria"
        return "gsplat" if "gsplat" in self.names else ""


class SourceSummary(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was read of the sources that were named, as far as plans depend on it."""

    named: tuple[str, ...] = ()
    """What the commands name as SOURCE; empty for a placeholder."""
    built_from: Mapping[str, Source] = field(default_factory=dict)
    """By the name of an extension, its source, as far as it is there, in the order of their builds."""
    variants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By the name of an extension, keys of the variants that its source can be; where that is not known, none."""
    notes: tuple[str, ...] = ()
    """What the user should know of them."""
    replacement: Replacement = field(default_factory=Replacement)
    """What drop-ins can do, where the source itself has told; empty: the tables are asked."""
    prepare: tuple[Step, ...] = ()
    """What must be done before anything of the source can be built: submodules to fetch."""
    fetch: bool = False
    """``splatfix install`` fetches them itself; ``prepare`` says what."""
    refused: Rejected | None = None
    """Why nothing of the source can be built at all, as ``splatfix install`` says it."""


NO_SOURCES = SourceSummary()
"""None were named: the extensions of the checkout are meant, or those installed."""


class AlsoNeeded(Struct, frozen=True, forbid_unknown_fields=True):
    """What to do about one failure that the advised option does not cure."""

    code: str
    """Of the failing check."""
    text: str
    steps: tuple[Step, ...] = ()


class Advice(Struct, frozen=True, forbid_unknown_fields=True):
    """How a failing diagnosis ends."""

    option: Plan | None
    """The first of the options that cure most of what failed; None where none cures any."""
    also_needed: tuple[AlsoNeeded, ...] = ()
    mended: tuple[str, ...] = ()
    """Codes of what ``splatfix install`` mends by itself when it builds: by variables, and edits of its copy."""


class Options(Struct, frozen=True):
    """Every kind of option: those available, least invasive first, and those rejected; wheels only where they were looked for."""

    targets: tuple[Arch, ...]
    subjects: tuple[str, ...]
    """The extensions meant."""
    available: tuple[Plan, ...]
    rejected: tuple[RejectedOption, ...] = ()
    notes: tuple[str, ...] = ()
    advice: Advice | None = None
    """Which of them answers the failures of a diagnosis; None where none was made."""
    schema_version: int = PLAN_VERSION
