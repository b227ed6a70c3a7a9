"""A stack's checkout and its extension sources as data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.core.reading import Unread


class Shadow(Struct, frozen=True, forbid_unknown_fields=True):
    """A module or package in a folder that Python searches first, of the name of an installed one."""

    module: str
    path: str
    native: bool
    """It holds compiled modules itself (built in place), so that importing it can work."""


class Submodule(Struct, frozen=True, forbid_unknown_fields=True):
    """One submodule: an entry of a checkout's .gitmodules, or a link in git's index that has none there."""

    path: str
    url: str
    """As .gitmodules has it, without credentials; "" where none says it."""
    empty: bool
    """Its folder is missing or holds nothing."""
    commit: str | None = None
    """The commit that is checked out in it, when git wrote it down."""
    listed: bool = True
    """.gitmodules of the checkout names it; else its address, if any, is from one in a folder inside."""
    branch: str = ""
    """Of which .gitmodules says that it follows it."""
    recorded: str | None = None
    """The commit that the checkout itself asks for; None where git's index does not tell, as in an unpacked ZIP."""
    named_in: tuple[str, ...] = ()
    """Files of the checkout that name its folder in code or in lists of requirements; looked for when it is empty."""


class Pin(Struct, frozen=True, forbid_unknown_fields=True):
    """One requirement that a checkout writes down."""

    file: str
    name: str
    spec: str
    """``==1.12.1``, ``>=2.0`` or "" for any version."""
    address: str = ""
    """Where pip is to take it from, as it is written: ``git+https://...``; "" for an index."""


class CodeMatch(Struct, frozen=True, forbid_unknown_fields=True):
    """A place in a C++, CUDA or Python source on which builds or programs are known to break."""

    breakage: str
    """Key of the known breakage."""
    file: str
    line: int
    text: str
    at_import: bool = True
    """Of Python: it runs when the file is imported, and the file is no script that one can do without."""


class ImportedModule(Struct, frozen=True, forbid_unknown_fields=True):
    """A module that Python code imports before it does anything else, and cannot do without."""

    name: str
    """Its top-level name; of torch.utils.tensorboard, which is of no use without tensorboard, the whole one."""
    file: str
    line: int
    beside: bool = False
    """Only scripts that one can do without import it."""


class PackageFace(Struct, frozen=True, kw_only=True):
    """How a splatting package is called."""

    settings: tuple[str, ...] | None = None
    """Fields of its Settings tuple, in order; None where it has none."""
    settings_defaults: int = 0
    """How many fields, counted from the end, may be left out."""
    classes: tuple[str, ...] = ()
    """Those that it defines, or takes from its own files."""
    forward: tuple[str, ...] | None = None
    """Parameters of the rasterizer's forward, without self."""
    forward_required: int = 0
    """How many of them, counted from the start, a caller must give."""
    returns: int | None = None
    """How many values a forward gives back; None where the source does not say."""
    exports: tuple[str, ...] = ()
    """Functions of its compiled module that it calls."""


class PackageSource(PackageFace, frozen=True, forbid_unknown_fields=True):
    """The face of one splatting package, as its ``__init__.py`` shows it."""

    module: str = ""
    native: tuple[str, ...] = ()
    """Compiled modules that it imports."""
    values: tuple[str, ...] = ()
    """What a forward gives back, by the names of its variables; () where it is not read."""
    gradients_ignored: tuple[int, ...] = ()
    """Positions among them whose gradient its backward pass does not use."""
    depth: str = ""
    """``sum`` where its CUDA source sums up depth times alpha T; else the statement that makes the map; "" for not read."""
    projection: str = ""
    """The function of its CUDA source that projects otherwise than by perspective; "" where none is known to."""


class MissingHeader(Struct, frozen=True, forbid_unknown_fields=True):
    """A header of CUDA, torch or the system that an extension includes under no condition, and that is not here."""

    header: str
    """As it is included: ``cuda_texture_types.h``, ``THC/THC.h``."""
    file: str
    """Relative to the extension."""
    line: int
    toolkits: tuple[str, ...] = ()
    """Roots of the toolkits that lack it; () for one that torch lacks."""
    package: str = ""
    """Debian's package with it, for a library of the system; "" for CUDA's and torch's."""
    address: str = ""
    """Where the build downloads that library from, for want of it here; "" where it does not."""
    clone: str = ""
    """Where the README clones it from, for what CMake finds by a module of the checkout's own; "" for anything else."""


class CheckoutSource(Struct, frozen=True, forbid_unknown_fields=True):
    """One extension source inside a checkout."""

    path: str
    """Relative to the checkout."""
    source: Source
    cxx_flags: tuple[str, ...] = ()
    """Flags in setup.py that set a C++ standard, for either compiler."""
    own_path_in_flags: bool = False
    """nvcc is handed the source's own absolute path, as part of an include flag."""
    matches: tuple[CodeMatch, ...] = ()
    headers_missing: tuple[MissingHeader, ...] = ()
    faces: tuple[PackageSource, ...] = ()
    """The Python side of the splatting packages in it, as far as it can be read."""


class GuardedImport(Struct, frozen=True, forbid_unknown_fields=True):
    """An import whose failure the code hides, and goes on without."""

    file: str
    line: int
    module: str
    names: tuple[str, ...]
    catches: str
    """``everything``, or the exceptions that are named."""


class RenderCall(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a checkout calls a rasterizer, and with what."""

    file: str
    line: int
    function: str
    """The function that calls; the calls in it are each other's alternatives."""
    module: str
    settings: tuple[str, ...] = ()
    """Keywords of the Settings call."""
    settings_positional: int = 0
    """How many settings come by position; -1 where the call hides them, or was not found."""
    forward: tuple[str, ...] = ()
    """Keywords of the rasterizer's call."""
    forward_positional: int = 0
    """How many arguments come by position; -1 where the call hides them."""
    unpacks: int | None = None
    """How many values it takes apart; None when it keeps them together."""
    at_least: int = 0
    """How many values there must be, by an index or a starred target."""
    results: tuple[str, ...] = ()
    """The variables that they go to; "" for what is no plain name."""


class ExtensionCall(Struct, frozen=True, forbid_unknown_fields=True):
    """A call of what an extension exports besides its rasterizer's forward, or of another method of that."""

    file: str
    line: int
    function: str
    module: str
    """``simple_knn._C``, ``fused_ssim``, ``gsplat.rendering``."""
    name: str
    """``distCUDA2``, ``rasterization``, ``SparseGaussianAdam``, ``GaussianRasterizer.visible_filter``."""
    keywords: tuple[str, ...] = ()
    positional: int = 0
    """-1 where the call hides its arguments."""
    unpacks: int | None = None
    at_least: int = 0


class Checkout(Struct, frozen=True, forbid_unknown_fields=True):
    """A stack's folder, read as text."""

    folder: str
    paths: tuple[str, ...]
    """Names by which a stack is recognised: the upper two levels, as far as they are code."""
    remote: str = ""
    """Where it was cloned from, without credentials."""
    clones: tuple[str, ...] = ()
    """Addresses that its README says to clone, its own first as a rule."""
    commit: str | None = None
    submodules: tuple[Submodule, ...] = ()
    pins: tuple[Pin, ...] = ()
    sources: tuple[CheckoutSource, ...] = ()
    package: Source | None = None
    """What its top folder installs, where that compiles nothing and is none of the ``sources``."""
    imports: tuple[str, ...] = ()
    """Top-level names of splatting extensions that its Python files import, and fail without."""
    guarded: tuple[GuardedImport, ...] = ()
    calls: tuple[RenderCall, ...] = ()
    extension_calls: tuple[ExtensionCall, ...] = ()
    """Without those of the rasterizers' forward, which are the ``calls``."""
    shadows: tuple[Shadow, ...] = ()
    colmap_options: tuple[str, ...] = ()
    """Options that convert.py gives COLMAP and that changed their names: ``SiftExtraction.use_gpu``."""
    needs: tuple[ImportedModule, ...] = ()
    """Modules of others that its scripts import; splatting extensions are in ``imports``."""
    python_matches: tuple[CodeMatch, ...] = ()
    """Places in those scripts, and in the own modules that they import, on which Python is known to break."""
    photos: int = 0
    """How many photos are in it, where it holds no code at all."""
    unreadable: tuple[Unread, ...] = ()
    """What is there and was not read: no regular file, beyond a limit, or not Python that this version can read."""


class ArchVariable(Struct, frozen=True, forbid_unknown_fields=True):
    """An environment variable from which a build takes GPU architectures, and how it wants them written."""

    name: str
    dotted: bool = False
    """``8.6`` rather than ``86``."""
    separator: str = ";"
    plain: bool = False
    """Each must be a whole number: not ``90a``."""


class CudaSwitches(Struct, frozen=True, forbid_unknown_fields=True):
    """What decides whether a build compiles its CUDA code."""

    by_gpu: bool = False
    """``torch.cuda.is_available()`` does: without a GPU in sight a package for the CPU comes out, or the build stops."""
    asks_gpu: bool = False
    """It asks torch what the GPU in sight is, or computes on it."""
    on: Mapping[str, str] = field(default_factory=dict)
    """Variables with the value that makes it compile CUDA code."""
    off: tuple[str, ...] = ()
    """Variables that make it leave CUDA code out when they are set."""
    also: Mapping[str, str] = field(default_factory=dict)
    """The same for modules of any kind: without it none are declared, or a wheel that others built is downloaded."""


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """One extension source folder."""

    folder: str
    build_files: tuple[str, ...]
    """Those of ``setup.py``, ``pyproject.toml``, ``CMakeLists.txt`` that are there."""
    name: str | None = None
    """The distribution name it gives itself; None when it is computed."""
    version: str | None = None
    packages: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    """Dotted names of the extension modules that it declares: ``simple_knn._C``; "" for a computed one."""
    needs_cuda: bool = False
    """It declares a ``CUDAExtension``, or has .cu files among its sources."""
    uses_torch_builder: bool = False
    """It builds with ``torch.utils.cpp_extension``."""
    build_requires: tuple[str, ...] = ()
    """``build-system.requires`` of pyproject.toml; empty without one."""
    requires: tuple[str, ...] = ()
    """What it says it needs when it is imported: ``install_requires`` and pyproject.toml's ``dependencies``."""
    python: str = ""
    """Versions of Python it takes, such as ``>=3.10``, as pyproject.toml, setup.py or setup.cfg says; "" for any."""
    reads: tuple[str, ...] = ()
    """Environment variables that setup.py, what it imports from beside it, and CMakeLists.txt read."""
    sets: Mapping[str, str | None] = field(default_factory=dict)
    """Environment variables that setup.py sets; "" for one that it blanks or removes, None for a computed value."""
    arch_variables: tuple[ArchVariable, ...] = ()
    """Those of ``reads`` that name GPU architectures."""
    switches: CudaSwitches = field(default_factory=CudaSwitches)
    version_from_git: bool = False
    """setuptools-scm works its version out from git's history."""
    nvcc_flags: tuple[str, ...] = ()
    """Literal texts that can reach nvcc's flags, for those that name architectures decide who chooses them."""
    libraries: tuple[str, ...] = ()
    """Libraries that setup.py has its modules linked against by name (``cuda`` of ``-lcuda``)."""
    files: tuple[str, ...] = ()
    """C++ and CUDA files that setup.py names and that are there. Which it compiles is known once it is asked."""
    imports: tuple[str, ...] = ()
    """What its setup.py imports of setuptools' family and cannot do without: ``pkg_resources``, ``distutils.core``."""
    build_imports: tuple[str, ...] = ()
    """Modules of others that its setup.py imports, without setuptools and torch: ``pybind11``."""
    needs: tuple[ImportedModule, ...] = ()
    """Modules of others that its packages import when they are imported themselves."""
    missing_folders: tuple[str, ...] = ()
    """Include folders and git submodules it needs that are absent or empty."""
    submodules: tuple[Submodule, ...] = ()
    """Of its own .gitmodules, those that are empty."""
    clone: bool = False
    """It has a git folder of its own."""
    setups: tuple[str, ...] = ()
    """The names that its setup.py gives to ``setup()``, one for each call that every run comes to; "" for a computed one."""
    cpu_only: bool = False
    """Nothing that its build compiles is CUDA code, whatever it is declared as."""
    error: str = ""
    """Why setup.py could not be read as Python, when it could not."""

    def __hash__(self) -> int:
        return hash(self.folder)

    @property
    def label(self) -> str:
        """What to call it: its name, or its folder's."""
        return self.name or Path(self.folder).name

    @property
    def packages_apart(self) -> tuple[Source, ...]:
        """It once for each package that its setup.py makes, each by a call of ``setup()``; () where they cannot be told apart."""
        if len(self.setups) < 2:
            return (self,)
        names = {canonicalize_name(name) for name in self.setups if name}
        # what has no module of its own would be held to GPU code that it never has
        if len(names) < len(self.setups) or len(self.modules) < len(self.setups):
            return ()
        return tuple(replace(self, name=name) for name in self.setups)

    @property
    def setup_call(self) -> int:
        """Which call of ``setup()`` makes it, from 1 on; 0 where its setup.py has no other."""
        if len(self.setups) < 2 or self.name not in self.setups:
            return 0
        return self.setups.index(self.name) + 1
