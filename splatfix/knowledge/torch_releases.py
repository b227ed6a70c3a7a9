"""PyTorch's published builds: which CUDA tags each release has, whose code they carry, and the pip command for each."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from splatfix.core.versions import dotted
from splatfix.knowledge.archs import Arch, cubin_runs_on, ptx_runs_on
from splatfix.knowledge.drivers import Platform, runtime_floor
from splatfix.knowledge.rows import decode
from splatfix.knowledge.tables import Version, cached, pair, parse_version, source_of, table, version

Runs = Literal["cubin", "ptx", "no", "unknown"]

COMPANIONS = ("torchvision", "torchaudio")
"""What is compiled against one build of torch and published beside it."""


class BuildCode(Struct, frozen=True):
    """What a build's libraries carry for every kernel: machine code and PTX."""

    cubins: tuple[Arch, ...]
    ptx: tuple[Arch, ...]


class TorchBuild(Struct, frozen=True):
    """One CUDA build of one release, as the wheel index has it."""

    release: str
    """``major.minor`` of torch."""
    tag: str
    """``cu128``: the last part of the index address."""
    cuda: tuple[int, int]
    windows_wheel: bool
    """PyTorch builds every tag for Linux; only some are built for Windows."""
    versions: tuple[str, ...] | None
    """The only patch versions that have this build; None: all, as far as known."""
    cxx11_abi: bool
    """Linux: std::string of the new C++ ABI; an extension must agree."""
    code_verified: bool
    """False where the list of architectures is not from a source."""
    ptx_verified: bool
    """False where sources contradict each other about PTX."""
    index_verified: bool
    """False where the wheel index was not seen to have this tag."""
    source: str
    newest: str = ""
    """The newest patch version of the release, where the table has it."""
    linux_x86_64: BuildCode | None = None
    """None: unknown, there and for each place that is missing here."""
    windows_x86_64: BuildCode | None = None
    linux_aarch64: BuildCode | None = None

    def code(self, platform: str = "linux", machine: str = "x86_64") -> BuildCode | None:
        """What is known of the libraries for a place; AMD64 and arm64 are the same as x86_64 and aarch64."""
        machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine.lower(), machine.lower())
        return getattr(self, f"{platform}_{machine}", None)

    def has_wheel(self, platform: str) -> bool:
        """Tell whether it was published for a platform."""
        return platform != "windows" or self.windows_wheel

    @property
    def torch(self) -> str:
        """What to ask pip for: the only patch version that has this build, else any of the minor."""
        if self.versions is None:
            return f"{self.release}.*"
        return self.versions[-1]

    @property
    def pinned(self) -> str:
        """The same for what is to be built again as it was: one whole version, as far as the table knows one."""
        if self.versions is None and self.newest:
            return self.newest
        return self.torch


class TorchRelease(Struct, frozen=True):
    """One minor release of torch."""

    release: str
    python_min: tuple[int, int]
    pypi_linux_default: str
    """The tag that a plain ``pip install torch`` brings on Linux. On Windows that is a CPU build."""
    builds: tuple[TorchBuild, ...]
    python_max: tuple[int, int] | None = None
    """None: no upper end known."""
    python_experimental: tuple[tuple[int, int], ...] = ()
    min_glibc: tuple[int, int] | None = None
    """What the Linux wheels ask for (manylinux_2_28); None: older than any glibc in use."""

    def supports_python(self, python: tuple[int, int]) -> bool | None:
        """Whether there are wheels for this Python; None: newer than what the table speaks of."""
        if python < self.python_min:
            return False
        if python in self.python_experimental:
            return True
        if self.python_max is None:
            return None
        return python <= self.python_max


class RankedBuild(Struct, frozen=True):
    """A build that runs on a GPU, with how: ``cubin``, ``ptx`` (slow first start, driver must read it) or ``unknown``."""

    build: TorchBuild
    runs: Runs


@cached
def _releases() -> Mapping[tuple[int, int], TorchRelease]:
    known = {}
    for name, row in table("torch_releases")["releases"].items():
        builds = []
        for tag, build in row["builds"].items():
            source = source_of("torch_releases", build)
            given = {"release": name, "tag": tag, "source": source, "newest": row.get("newest", "")}
            builds.append({**build, **given})
        known[pair(name)] = decode(TorchRelease, {**row, "builds": builds}, release=name)
    return dict(sorted(known.items()))


def releases() -> tuple[TorchRelease, ...]:
    """All releases in the table, oldest first."""
    return tuple(_releases().values())


def release(torch_version: str) -> TorchRelease | None:
    """The release of a version such as ``2.9.1+cu128``; None: not in the table."""
    major, *others = parse_version(torch_version)
    if not others:
        return None
    return _releases().get((major, others[0]))


def build(torch_version: str, tag: str | None = None) -> TorchBuild | None:
    """The build of a version and tag (or of ``2.9.1+cu128`` alone); None: not in the table, which is not "impossible"."""
    row = release(torch_version)
    tag = tag or torch_version.partition("+")[2]
    if row is None:
        return None
    return next((item for item in row.builds if item.tag == tag), None)


def how_build_runs(
    torch_build: TorchBuild, arch: Arch, platform: Platform = "linux", machine: str = "x86_64"
) -> Runs:
    """How a published build runs on a GPU. ``unknown`` where the code was not read, or sources disagree about PTX."""
    if not torch_build.has_wheel(platform):
        return "no"
    code = torch_build.code(platform, machine)
    if code is None:
        return "unknown"
    runs: Runs = "no"
    verified = torch_build.code_verified
    if any(cubin_runs_on(cubin, arch, build_cuda=torch_build.cuda) for cubin in code.cubins):
        runs = "cubin"
    elif any(ptx_runs_on(ptx, arch) for ptx in code.ptx):
        runs, verified = "ptx", torch_build.ptx_verified
    # nobody read it in the wheel, or the sources contradict each other
    if not verified:
        return "unknown"
    return runs


def wheel_obstacle(
    torch_build: TorchBuild,
    platform: Platform = "linux",
    *,
    python: tuple[int, int] | None = None,
    glibc: tuple[int, int] | None = None,
) -> str | None:
    """Why pip would find no wheel of this build here, as a sentence; None: nothing known stands against it."""
    row = _releases()[pair(torch_build.release)]
    name = f"torch {torch_build.torch.removesuffix('.*')} {torch_build.tag}"
    if not torch_build.has_wheel(platform):
        return f"{name} has no {platform} wheel."
    if python is not None and row.supports_python(python) is False:
        pythons = f"{dotted(row.python_min)} or newer"
        if row.python_max is not None:
            pythons = f"{dotted(row.python_min)} to {dotted(row.python_max)}"
        return f"{name} has wheels for Python {pythons}, not for {dotted(python)}."
    if platform == "linux" and glibc is not None and row.min_glibc is not None and glibc < row.min_glibc:
        return f"{name} needs glibc {dotted(row.min_glibc)} or newer; here is {dotted(glibc)}."
    return None


def builds_for_arch(
    arch: Arch,
    platform: Platform = "linux",
    machine: str = "x86_64",
    *,
    torch: str | None = None,
    python: tuple[int, int] | None = None,
    glibc: tuple[int, int] | None = None,
    driver: Version | None = None,
    include_unknown: bool = False,
) -> tuple[RankedBuild, ...]:
    """Published builds that run on a GPU, the best first.

    Machine code comes before PTX and PTX before unknown; then a tag seen on the index before one that was not;
    then newer torch; within a release the tag of a plain ``pip install torch`` first, then newer CUDA. ``torch``
    keeps to the release of one version; ``python`` and ``glibc`` leave out builds without a wheel for them,
    ``driver`` leaves out CUDA majors that it cannot start.
    """
    ranked = []
    for item in releases():
        if torch is not None and pair(item.release) != parse_version(torch)[:2]:
            continue
        for candidate in item.builds:
            if wheel_obstacle(candidate, platform, python=python, glibc=glibc) is not None:
                continue
            runs = how_build_runs(candidate, arch, platform, machine)
            if runs == "no" or (runs == "unknown" and not include_unknown):
                continue
            floor = runtime_floor(candidate.cuda, platform)
            if driver is not None and floor is not None and driver < floor:
                continue
            default = item.pypi_linux_default == candidate.tag
            order = (candidate.index_verified, pair(item.release), default, candidate.cuda)
            ranked.append((("unknown", "ptx", "cubin").index(runs), order, RankedBuild(candidate, runs)))
    return tuple(item for *_, item in sorted(ranked, key=lambda row: row[:2], reverse=True))


def cxx11_abi(torch_version: str) -> bool | None:
    """Whether the Linux wheel of a version (``2.6.0+cu126``) uses the new C++ ABI; None: not known.

    Every wheel from 2.7 on does. Source: release notes of 2.6 and 2.7.
    """
    row = build(torch_version)
    if row is not None:
        return row.cxx11_abi
    return True if version(torch_version)[:2] >= (2, 7) else None


def index_url(tag: str) -> str:
    """The wheel index of a tag (``cu128``, ``cpu``)."""
    return str(table("torch_releases")["index_url"]).format(tag=tag)


def pip_words(torch_version: str, tag: str, *, also: tuple[str, ...] = ()) -> tuple[str, ...]:
    """What follows ``pip install`` for a build.

    ``torch_version`` is ``2.9.1``, or ``2.9`` for its newest patch. ``also`` names packages of the same index
    (``torchvision``), whose versions pip then works out.
    """
    plain = torch_version.partition("+")[0]
    if plain.count(".") < 2:
        plain += ".*"
    return (f"torch=={plain}", *also, "--index-url", index_url(tag))


def replacing_words(
    torch_version: str, tag: str, installed: Mapping[str, str]
) -> tuple[str, tuple[str, ...]]:
    """(version, what follows ``pip install``) to replace what is installed by another build and its companions.

    Within one release every package is named by its local version (``torch==2.8.0+cu126``), because pip would call
    ``torch==2.8.*`` satisfied by the build that is there; for another release pip works the companions out itself.

    Args:
        torch_version: ``2.8.1``, or ``2.8.*`` for any patch.
        installed: versions of torch, torchvision and torchaudio that are there, with their local parts.
    """
    installed_torch = _public(installed.get("torch", ""))
    companions = [name for name in COMPANIONS if name in installed]
    same_release = installed_torch.split(".")[:2] == torch_version.removesuffix(".*").split(".")[:2]
    if not installed_torch or not same_release:
        return torch_version, pip_words(torch_version, tag, also=tuple(companions))
    version = torch_version
    if torch_version.endswith("*"):
        version = installed_torch
    # a companion's patch goes with torch's, so that of another patch is left to pip
    if version == installed_torch:
        companions = [f"{name}=={_public(installed[name])}+{tag}" for name in companions]
    return version, (f"torch=={version}+{tag}", *companions, "--index-url", index_url(tag))


def _public(version: str) -> str:
    """A version without its local part: ``2.9.1`` of ``2.9.1+cu128``."""
    return version.partition("+")[0]
