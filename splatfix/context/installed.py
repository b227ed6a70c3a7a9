"""What is on the machine and in the target environment, as far as the facts know it: the first layer of the context."""

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from msgspec import Struct
from packaging.utils import canonicalize_name

from splatfix.core.versions import major_minor, release
from splatfix.knowledge.drivers import Platform
from splatfix.knowledge.torch_releases import COMPANIONS
from splatfix.model import (
    Checkout,
    CheckoutSource,
    Distribution,
    EnvironmentFacts,
    Facts,
    Interpreter,
    JitCache,
    MachineFacts,
    SplatPackage,
    Torch,
)

SETUPTOOLS_DROPPED = {"pkg_resources.packaging": 70, "pkg_resources": 82}
"""What builders import of setuptools' family, with the release of setuptools that no longer has it."""

# As the tables of drivers and wheels name a system; macOS has no CUDA.
_PLATFORMS: dict[str, Platform] = {"linux": "linux", "windows": "windows"}


class CompanionPin(Struct, frozen=True):
    """The release that torch, torchvision or torchaudio was made for of another, beside the one that is installed."""

    owner: Distribution
    other: str
    expected: str
    installed: str

    @property
    def misfit(self) -> Literal["", "patch", "release", "build"]:
        """In what the installed one differs: its release, its CUDA build (``+cu128``), or only its patch, which keeps the
        binary interface, though pip calls it a conflict; "" where it fits."""
        plain, _, local = self.installed.partition("+")
        expected = self.expected.partition("+")[0]
        tag = self.owner.version.partition("+")[2]
        if plain != expected and not expected.endswith("*"):
            if self.other != "triton" and release(plain)[:2] == release(expected)[:2]:
                return "patch"
            return "release"
        if self.other == "torch" and tag and local and tag != local:
            return "build"
        return ""


class Inventory(Struct, frozen=True, dict=True):
    """Facts, and short answers to what is asked of them most. Pure; never raises."""

    facts: Facts

    @property
    def machine(self) -> MachineFacts:
        return self.facts.machine

    @property
    def environment(self) -> EnvironmentFacts:
        return self.facts.environment

    @property
    def variables(self) -> Mapping[str, str]:
        return self.machine.variables

    @property
    def windows(self) -> bool:
        """The machine's shell is cmd.exe."""
        return self.machine.system == "windows"

    @property
    def platform(self) -> Platform | None:
        """``linux`` or ``windows``; None where there is no CUDA (macOS)."""
        return _PLATFORMS.get(self.machine.system)

    @property
    def glibc(self) -> tuple[int, int] | None:
        """(major, minor) of the C library; None for another than glibc."""
        return major_minor(self.machine.glibc)

    @property
    def interpreter(self) -> Interpreter | None:
        """The target environment's Python, where it answered."""
        return self.environment.interpreter.value

    @property
    def python(self) -> tuple[int, int] | None:
        """(major, minor) of the target interpreter."""
        if self.interpreter is None:
            return None
        return major_minor(self.interpreter.version)

    @property
    def distributions(self) -> tuple[Distribution, ...]:
        return self.environment.distributions.value or ()

    @cached_property
    def _by_name(self) -> Mapping[str, Distribution]:
        # the first on the path is the one that is imported
        return {canonicalize_name(item.name): item for item in reversed(self.distributions)}

    def distribution(self, name: str) -> Distribution | None:
        """Return the installed distribution of that name, in any of its spellings."""
        return self._by_name.get(canonicalize_name(name))

    @cached_property
    def versions(self) -> Mapping[str, str]:
        """Versions of what is installed, by normalised name. Torch's is what its own files say, which is what is imported: it
        need not have been installed by pip."""
        versions = {name: item.version for name, item in self._by_name.items()}
        if self.torch:
            versions["torch"] = self.torch.version
        return versions

    def version_of(self, name: str) -> str:
        """Return the version of an installed distribution; "" where it is not installed."""
        return self.versions.get(canonicalize_name(name), "")

    @cached_property
    def companion_pins(self) -> tuple[CompanionPin, ...]:
        """What torch and its companions name exactly and is installed; () without a torch."""
        pins: list[CompanionPin] = []
        for name in ("torch", *COMPANIONS):
            owner = self.distribution(name)
            if owner is None or self.torch is None:
                continue
            for pin in owner.pins:
                other, _, expected = pin.partition("==")
                installed = self.version_of(other)
                if installed:
                    pins.append(CompanionPin(owner, other, expected, installed))
        return tuple(pins)

    @property
    def packages(self) -> tuple[SplatPackage, ...]:
        return self.environment.packages.value or ()

    @property
    def jit_caches(self) -> tuple[JitCache, ...]:
        """What was compiled at first use, by the Python and CUDA that are here."""
        return tuple(item for item in self.environment.jit_caches.value or () if item.current)

    @property
    def torch(self) -> Torch | None:
        """The target environment's torch, when it could be read."""
        return self.environment.torch.value

    @property
    def torch_version(self) -> str:
        """Version of the target environment's torch; "" without one."""
        if self.torch is None:
            return ""
        return self.torch.version

    @property
    def torch_cuda(self) -> tuple[int, int] | None:
        """(major, minor) of ``torch.version.cuda``; None for no torch or a build without CUDA."""
        if self.torch is None:
            return None
        return major_minor(self.torch.cuda)

    @property
    def driver_version(self) -> str:
        """The driver's version as it writes it itself; after an upgrade without a reboot the one that a reboot brings."""
        driver = self.machine.driver.value
        if driver is None:
            return ""
        return driver.library_version or driver.version or ""

    @property
    def checkout(self) -> Checkout | None:
        """The checkout, where one was read."""
        return self.facts.checkout.value

    @property
    def sources(self) -> tuple[CheckoutSource, ...]:
        """The extensions in the checkout, built or not."""
        if self.checkout is None:
            return ()
        return self.checkout.sources


def python_versions(facts: Facts) -> dict[str, tuple[int, ...]]:
    """Return the versions on which Python code depends: of ``python`` itself, and of all that is installed, by name."""
    here = Inventory(facts)
    versions = {name: release(version) for name, version in here.versions.items()}
    if here.interpreter:
        versions["python"] = release(here.interpreter.version)
    return versions


def torch_family(facts: Facts) -> dict[str, str]:
    """Return the versions of torch and its companions that are installed, by name."""
    versions = Inventory(facts).versions
    return {name: versions[name] for name in ("torch", *COMPANIONS) if name in versions}
