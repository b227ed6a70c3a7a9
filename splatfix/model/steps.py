"""The steps of plans, one class a kind. What only a person can do is a plain ``Step``.

The text of each is made from its fields. A step with a ``command`` is done by that command, the others by ``install``. Where
the sources are not read yet, the command that names them is shown, in a ``BuildWheel`` or ``MakeDropin`` for ``subjects``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import force_setattr

from splatfix.core.codec import to_json
from splatfix.core.step import Command, Step
from splatfix.core.toml import table_beside
from splatfix.core.words import counted
from splatfix.knowledge import Arch
from splatfix.knowledge.faces import DeclaredFace

WITHOUT_COMPILER = {"nvrtc": "CUDA kernels by NVRTC", "pure": "pure PyTorch"}
"""The backends of drop-ins, which need no compiler, the best first, and what each is."""
_TEXTS: dict[str, dict[str, str]] = table_beside(__file__)


class Reason(Struct, frozen=True):
    """Why something is done the way it is, and which fact says so."""

    text: str
    found_via: str = ""


class PlannedEdit(Struct, frozen=True):
    """One known breakage that a source is edited for, and the files that change in the scratch copy."""

    rule: str
    """Its key: the name of its file in ``patches/``."""
    files: tuple[str, ...]
    cures: str
    """What fails here without it; for one that is made anyway, what it does."""
    source: str


class PlannedStep(Step, Struct, frozen=True, kw_only=True):
    """A step of a known kind."""

    text: str = ""
    """Made of the other fields."""
    command: Command | None = None
    reasons: tuple[Reason, ...] = ()

    @property
    def kind(self) -> str:  # type: ignore[override]
        return str(self.__struct_config__.tag)

    def __post_init__(self) -> None:
        force_setattr(self, "text", self._text())

    def _text(self) -> str:
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        for name, value in values.items():
            if isinstance(value, tuple):
                values[name] = ", ".join(map(str, value))
        forms = _TEXTS[self.kind]
        text = next((text for name, text in forms.items() if values.get(name)), forms["otherwise"])
        return text.format_map(values)

    def to_json(self, **shell: bool) -> dict[str, Any]:
        own = {name: to_json(getattr(self, name)) for name in self.__struct_fields__ if name != "command"}
        return {"text": self.text, "kind": self.kind, **own, **super().to_json(**shell)}


class Keep(PlannedStep, frozen=True, kw_only=True, tag="keep"):
    """Leave these as they are."""

    subjects: tuple[str, ...]


class InstallTorch(PlannedStep, frozen=True, kw_only=True, tag="install-torch"):
    """Put another build of torch into the environment."""

    version: str
    tag: str


class RunLane(PlannedStep, frozen=True, kw_only=True, tag="run-lane"):
    """Certify inside a container."""

    lane: str
    torch: str


class Confirm(PlannedStep, frozen=True, kw_only=True, tag="confirm"):
    """The command that shows whether it works now."""

    what: str


class ProvideToolkit(PlannedStep, frozen=True, kw_only=True, tag="provide-toolkit"):
    """Unpack a CUDA toolkit from PyPI wheels into splatfix's own cache; no environment is touched."""

    cuda: str
    unpacked_gb: float
    folder: str = ""
    """What pip installs into; "" as long as nothing was asked for that needs it."""
    root: str = ""
    """What CUDA_HOME will be; below ``folder``."""
    requirements: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()

    @property
    def subject(self) -> str:
        return f"CUDA toolkit {self.cuda}"


class InstallDependencies(PlannedStep, frozen=True, kw_only=True, tag="install-dependencies"):
    """Install what the code imports, and what that needs, with pip; every other version that is installed stays as it is."""

    requirements: tuple[str, ...]
    modules: tuple[str, ...] = ()
    """What is imported of it afterwards; a failure takes all of it back."""
    optional: tuple[str, ...] = ()
    """Those of the requirements without which the packages can be built and imported: what pip cannot bring is left out."""
    optional_modules: tuple[str, ...] = ()
    """What is imported of these afterwards; a failure is told."""
    index: str = ""
    """A second index, for what goes with one build of torch; "" for none."""
    pins: tuple[str, ...] = ()
    """What the code's own files ask for of what is not installed: ``numpy==1.23.5``; followed where wheels fit."""

    @property
    def subject(self) -> str:
        return ", ".join(self.requirements)


class BuildWheel(PlannedStep, frozen=True, kw_only=True, tag="build-wheel"):
    """Compile one source folder into a wheel, in a scratch copy, inside the target environment; or by its command several."""

    subject: str = ""
    """The distribution, as its setup.py calls itself or as its folder is called."""
    source: str = ""
    """The folder; "" where the command names it."""
    subjects: tuple[str, ...] = ()
    """Names of what the command builds; () where none is known yet, and for one source."""
    first: bool = False
    """None of these is installed."""
    cuda: str = ""
    """Version of the toolkit that the command will take, as far as it is known."""
    repository: str = ""
    """What the scratch copy is of, where the build reaches above ``source``."""
    setup_call: int = 0
    """Which call of ``setup()`` in its setup.py makes this package, from 1 on; 0 where there is one."""
    targets: tuple[Arch, ...] = ()
    """() where there is no CUDA code."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Set for the build, whatever they were before; for several the usual ones, of what is there already."""
    unset: tuple[str, ...] = ()
    """Set now and removed for the build."""
    path_first: tuple[str, ...] = ()
    """Folders put in front of PATH."""
    cuda_mismatch: str = ""
    """Torch's version check is silenced for this build: both versions, in words. It is recorded in wheel and journal."""
    edits: tuple[PlannedEdit, ...] = ()
    """Fixes for known breakages, applied to the scratch copy."""
    downloads: Mapping[str, str] = field(default_factory=dict)
    """Addresses that the build itself downloads from, each with Debian's package that spares that; "" for none."""

    def _text(self) -> str:
        if self.source:
            goal = f" for {', '.join(map(str, self.targets))}" if self.targets else ""
            return f"build {self.subject}{goal} from a scratch copy of {self.repository or self.source}"
        verb = "build" if self.first else "rebuild"
        text = f"{verb} {', '.join(self.subjects) or 'the extensions'}"
        if not self.targets:
            return f"{text}, without CUDA code"
        text += f" for {', '.join(map(str, self.targets))}"
        arch_list = self.variables.get("TORCH_CUDA_ARCH_LIST", "")
        if "PTX" in arch_list:
            text += f" (TORCH_CUDA_ARCH_LIST={arch_list})"
        text += f" with CUDA {self.cuda}"
        for name, before in (("CUDA_HOME", "in"), ("CXX", "and")):
            if name in self.variables:
                text += f" {before} {self.variables[name]}"
        return text


class MakeDropin(PlannedStep, frozen=True, kw_only=True, tag="make-drop-in"):
    """Put a drop-in together as a wheel: pure PyTorch, or with CUDA kernels that the target's NVRTC compiles; or by its
    command several."""

    subject: str = ""
    module: str = ""
    """"" where the command names what to replace."""
    subjects: tuple[str, ...] = ()
    """Names of the drop-ins of the command; () where the checkout decides, and for one drop-in."""
    version: str = ""
    variant: str = ""
    """Which of the packages that share the name it answers for."""
    declared: DeclaredFace | None = None
    """How it is called, where no table lists it."""
    backend: str = "pure"
    """``pure`` or ``nvrtc``."""
    targets: tuple[Arch, ...] = ()
    """Architectures to compile its CUDA kernels for; () for pure PyTorch."""

    def _text(self) -> str:
        how = WITHOUT_COMPILER[self.backend]
        if not self.module:
            return f"use {how} for {', '.join(self.subjects) or 'what the checkout calls'}"
        variant = f", the {self.variant} variant" if self.variant else ""
        goal = f" for {', '.join(map(str, self.targets))}" if self.targets else ""
        return f"make the drop-in {self.subject} {self.version} (module {self.module}{variant}, {how}{goal})"


class FetchWheel(PlannedStep, frozen=True, kw_only=True, tag="fetch-wheel"):
    """Have pip bring one wheel, and nothing that it needs: of a version that is installed, or one that was found prebuilt."""

    subject: str
    version: str
    requirement: str
    """``torch==2.13.0+cpu``, or ``NAME @ ADDRESS`` of the wheel that it was installed from."""
    index: str = ""
    """A second index; "" for none."""
    targets: tuple[Arch, ...] = ()
    """What its GPU code must serve; () where it replaces what was there."""
    origin: str = ""
    """The index where it was found prebuilt."""


class VerifyWheel(PlannedStep, frozen=True, kw_only=True, tag="verify-wheel"):
    """Look into the wheel before anything is installed: GPU code, tags, symbols."""

    subject: str
    targets: tuple[Arch, ...] = ()


class EditSource(PlannedStep, frozen=True, kw_only=True, tag="edit-source"):
    """Write the edits that the build needed into the user's own checkout; the files are backed up first."""

    subject: str
    source: str
    edits: tuple[PlannedEdit, ...]

    def _text(self) -> str:
        files = dict.fromkeys(name for edit in self.edits for name in edit.files)
        return f"edit {counted(len(files), 'file')} in {self.source} (backed up first)"


class InstallWheel(PlannedStep, frozen=True, kw_only=True, tag="install-wheel"):
    """Install the verified wheel with pip; what it replaces is backed up first."""

    subject: str
    replaces: str = ""
    """Version installed now; "" when there is none."""


class CheckImport(PlannedStep, frozen=True, kw_only=True, tag="check-import"):
    """Import what was installed in a child of the target interpreter; a failure reverts the installation."""

    subject: str


WheelStep = BuildWheel | MakeDropin | FetchWheel | VerifyWheel | InstallWheel
"""Of one wheel, from its making to its installation."""
InstallStep = InstallDependencies | ProvideToolkit | WheelStep | EditSource | CheckImport
"""What ``install`` can execute."""
