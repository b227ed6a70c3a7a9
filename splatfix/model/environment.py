"""A Python environment as data: interpreter, packages, torch, extensions, caches."""

from __future__ import annotations

from msgspec import Struct, field

from splatfix.model.fact import Cc, Fact, FatbinGroup, Version
from splatfix.model.source import PackageFace, Shadow


class ToolkitChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """Which folder ``torch.utils.cpp_extension`` would take as CUDA_HOME, and by which of its rules."""

    root: str | None
    rule: str
    nvcc: str | None = None
    real_root: str | None = None
    """The root the found nvcc names as its own, when that is another folder."""
    has_headers: bool | None = None
    """``include/cuda_runtime.h`` is below ``root``."""
    resolved: str | None = None
    """``root`` with links followed."""


class Interpreter(Struct, frozen=True, forbid_unknown_fields=True):
    """The target environment's Python."""

    executable: str
    version: Version
    implementation: str
    abi_tag: str
    """The extension-module suffix tag, e.g. ``cpython-311-x86_64-linux-gnu``."""
    platform_tag: str
    prefix: str
    base_prefix: str
    kind: str
    """``venv``, ``virtualenv``, ``conda``, ``uv``, ``pipx`` or ``system``."""
    site_packages: tuple[str, ...]
    externally_managed: bool = False
    lock_file: str = ""
    """``uv.lock`` or ``poetry.lock`` of the project that this is the environment of; "" where there is none."""
    headers: bool | None = None
    """``Python.h`` is where torch's cpp_extension looks for it; None where that was not looked at."""


class Installer(Struct, frozen=True, forbid_unknown_fields=True):
    """What installs packages in an environment; as it stands here, the environment's own pip."""

    kind: str = "pip"
    """``pip`` or ``uv``."""
    program: str = ""
    """uv, or another Python, whose pip does it; "" for the environment's own."""
    version: str = ""
    """"" for the environment's own."""

    def pip(self, python: str) -> tuple[str, ...]:
        """How pip is called for the environment of ``python``; by uv it is run from uv's cache."""
        if self.kind == "uv":
            return (self.program, "tool", "run", "pip", "--python", python)
        return (self.program, "-m", "pip", "--python", python) if self.program else (python, "-m", "pip")

    def command(self, python: str, verb: str, *what: str) -> tuple[str, ...]:
        """``pip VERB WHAT`` for the environment of ``python``."""
        if self.kind == "uv":
            return (self.program, "pip", verb, "--python", python, *what)
        return (*self.pip(python), verb, *what)


class BuildRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """How splatfix built a wheel, as the manifest in it says."""

    targets: tuple[str, ...] = ()
    """``sm_120``; empty for a wheel without GPU code."""
    source: str = ""
    """The folder that it was built from."""
    cuda_mismatch: str = ""
    """Both versions, in words, when torch's check of the toolkit was silenced; "" otherwise."""
    edits: tuple[str, ...] = ()
    """Names of the edits that its source needed."""
    built_with: tuple[tuple[str, str], ...] = ()
    """What went into the build and its version: ``torch`` (version and CUDA), ``toolkit``, ``python``, compilers."""

    @property
    def torch(self) -> str:
        """Version and CUDA of the torch it was compiled against (``2.11.0+cu130 13.0``); "" when it is not known."""
        return dict(self.built_with).get("torch", "")


class Distribution(Struct, frozen=True, forbid_unknown_fields=True):
    """One installed distribution, as its metadata says."""

    name: str
    version: str
    location: str
    editable: bool = False
    origin: str = ""
    """Where it was installed from, when pip wrote it down (``direct_url.json``), or where an egg-link points."""
    made_by_splatfix: str = ""
    """``built`` or ``drop-in`` when splatfix installed it; "" otherwise."""
    dropin: str = ""
    """Which drop-in it is, by the manifest in it: ``diff_gaussian_rasterization@v1``; "" for what is none."""
    code: tuple[FatbinGroup, ...] = ()
    """What a drop-in brings of CUDA code that NVRTC compiled when it was installed: a group for each kernel file."""
    code_error: str = ""
    """Which of that code is damaged, and how."""
    built: BuildRecord | None = None
    """How splatfix built it; None for what it did not compile."""
    source_gone: bool = False
    """An editable install whose source folder is no longer there."""
    source: str = ""
    """The folder that it was installed from, where that is still there and can be built again; "" otherwise."""
    pins: tuple[str, ...] = ()
    """Its ``Requires-Dist`` entries that name torch, triton, numpy, gsplat or nerfacc exactly (``torch==2.9.1``); read for
    torch's own family of packages and for nerfstudio only."""


class AlteredFile(Struct, frozen=True, forbid_unknown_fields=True):
    """An installed file that is not as the RECORD of its distribution has it."""

    distribution: str
    version: str
    path: str
    """Relative to the site-packages folder."""
    found: str
    """``another content``, ``71 bytes, not 68`` or ``not there``."""


class Torch(Struct, frozen=True, forbid_unknown_fields=True):
    """The installed torch, read as text from its own files; torch is not imported for this."""

    version: Version
    cuda: Version | None
    """``torch.version.cuda``; None for a build without CUDA."""
    hip: Version | None
    folder: str
    cxx11_abi: bool | None = None
    code: tuple[FatbinGroup, ...] = ()
    """What the fat binaries of ``libtorch_cuda`` carry; empty for a CPU build."""
    code_error: str = ""
    """Why ``libtorch_cuda`` could not be read, when it could not."""
    knows_archs: tuple[Cc, ...] = ()
    """The list that its ``cpp_extension`` accepts in TORCH_CUDA_ARCH_LIST, read from its source."""
    builder_imports: tuple[str, ...] = ()
    """What its ``cpp_extension`` imports of setuptools' family, such as ``pkg_resources`` or ``pkg_resources.packaging``."""

    @property
    def built_for(self) -> str:
        """``CUDA``, ``ROCm`` or ``CPU``."""
        return "CUDA" if self.cuda else "ROCm" if self.hip else "CPU"


class Linkage(Struct, frozen=True, forbid_unknown_fields=True):
    """What the loader would find for one native file; nothing was loaded to learn it."""

    unresolved: tuple[str, ...] = ()
    """Libraries of ``needed`` that the loader would not find, with torch imported first."""
    versions: tuple[tuple[str, str], ...] = ()
    """The highest symbol version wanted of each family, with its library: ``("libstdc++.so.6", "GLIBCXX_3.4.32")``."""
    torch_symbols: int = 0
    """How many of its imports are names of torch's C++ namespaces or Python glue."""
    torch_missing: tuple[str, ...] = ()
    """Those that the installed torch does not export (at most twenty are kept)."""
    own_missing: tuple[str, ...] = ()
    """Other imports that no library it needs, and not the interpreter, exports (at most twenty are kept)."""
    cxx11_abi: bool | None = None
    """std::string of the new C++ ABI in the names it imports from torch; None when no name tells."""
    error: str = ""
    """Why part of this is unknown; "" when nothing is."""


class RuntimeLibrary(Struct, frozen=True, forbid_unknown_fields=True):
    """A library of the C and C++ runtime as the target interpreter would load it."""

    name: str
    """``libc.so.6`` or ``libstdc++.so.6``."""
    path: str
    versions: tuple[str, ...]
    """The highest symbol version that it defines of each family: ``GLIBCXX_3.4.30``, ``CXXABI_1.3.13``."""


class RuntimeCopy(Struct, frozen=True, forbid_unknown_fields=True):
    """One copy of a library of which a process should hold one: ``libcudart``, ``libc10``, ``libtorch``."""

    library: str
    """``libcudart``, ``libc10``..., without version and hash."""
    path: str
    """Relative to its site-packages folder."""
    version: str
    """The digits behind ``.so.`` ("" where there are none)."""
    bundled: bool
    """Renamed with a hash by a wheel-repair tool, so that a second copy is loaded beside torch's own."""


class SplatPackage(PackageFace, frozen=True, forbid_unknown_fields=True):
    """The Python side of a splatting extension, read as source text."""

    module: str
    """Importable name: ``diff_gaussian_rasterization``."""
    folder: str
    distributions: tuple[str, ...] = ()
    """Every installed distribution that ships or claims this module name."""
    native: tuple[str, ...] = ()
    """Compiled modules its source imports: ``diff_gaussian_rasterization._C``."""
    native_missing: tuple[str, ...] = ()
    """Those of ``native`` for which there is no file."""
    exports_missing: tuple[str, ...] = ()
    """Those of ``exports`` whose name is nowhere in the compiled file."""
    dropin: str = ""
    """Which of splatfix's drop-ins it is, by the manifest of its distribution; "" for what is none."""
    imports_torch: bool | None = None
    """Its ``__init__.py`` imports torch by itself; None where there is none, or where it leaves that to other files."""
    error: str = ""


class JitCache(Struct, frozen=True, forbid_unknown_fields=True):
    """One extension in torch's cache of extensions that were compiled at first use."""

    name: str
    folder: str
    tag: str
    """Folder of its Python and CUDA, such as ``py311_cu130``; "" under a TORCH_EXTENSIONS_DIR of the user's."""
    current: bool
    """It is the folder that the target environment itself would look in."""
    built: str | None
    """When the library was written (UTC, ISO 8601); None when there is none."""
    locked: str | None
    """When a ``lock`` file was left there (UTC, ISO 8601); None when there is none."""
    library: str | None
    code: tuple[FatbinGroup, ...] = ()
    torch_folder: str = ""
    """The torch whose headers build.ninja names."""
    cuda_home: str = ""
    """The toolkit whose nvcc build.ninja calls."""
    gencode: tuple[str, ...] = ()
    """The architecture flags in build.ninja."""
    linkage: Linkage = field(default_factory=Linkage)
    error: str = ""


class Extension(Struct, frozen=True, forbid_unknown_fields=True):
    """One native module or library in the environment that links torch or carries GPU code."""

    path: str
    """Relative to its site-packages folder, with forward slashes."""
    folder: str
    distribution: str | None
    """The distribution that owns the file, by its RECORD."""
    code: tuple[FatbinGroup, ...]
    needed: tuple[str, ...]
    links_torch: bool
    importable: bool
    """Its name is that of a Python extension module (and not of a plain library)."""
    size: int
    error: str = ""
    """Why the file could not be read, when it could not."""
    python_module: bool | None = None
    """It exports the ``PyInit_`` function that Python calls; None when that was not looked at (or could not be)."""
    linkage: Linkage | None = None
    """What the loader would find for it; None for a file that was not looked at so closely."""
    optional: bool = False
    """A library for ``torch.ops``, no Python module, that importing its package does not load (open3d's)."""

    @property
    def module(self) -> str:
        """The dotted name by which Python imports it: ``pkg/_C.cpython-311-....so`` -> ``pkg._C``."""
        folder, _, name = self.path.rpartition("/")
        return ".".join(filter(None, (*folder.split("/"), name.split(".")[0])))


class ImportProbe(Struct, frozen=True, forbid_unknown_fields=True):
    """What happened when the target interpreter imported a module in a child process."""

    module: str
    ok: bool
    outcome: str
    """``ok``, ``exception``, ``signal``, ``timeout`` or ``not installed``."""
    detail: str = ""
    seconds: float = 0.0


class EnvironmentFacts(Struct, frozen=True, forbid_unknown_fields=True):
    """What is true of one Python environment."""

    interpreter: Fact[Interpreter] = field(default_factory=Fact)
    distributions: Fact[tuple[Distribution, ...]] = field(default_factory=Fact)
    installer: Fact[Installer] = field(default_factory=Fact)
    torch: Fact[Torch] = field(default_factory=Fact)
    """Unknown with an error when torch is absent or its files could not be read; see ``torch_installed``."""
    torch_installed: Fact[bool] = field(default_factory=Fact)
    toolkit_choice: Fact[ToolkitChoice] = field(default_factory=Fact)
    extensions: Fact[tuple[Extension, ...]] = field(default_factory=Fact)
    imports: tuple[ImportProbe, ...] = ()
    packages: Fact[tuple[SplatPackage, ...]] = field(default_factory=Fact)
    runtime_libraries: Fact[tuple[RuntimeLibrary, ...]] = field(default_factory=Fact)
    runtime_copies: Fact[tuple[RuntimeCopy, ...]] = field(default_factory=Fact)
    shadows: Fact[tuple[Shadow, ...]] = field(default_factory=Fact)
    jit_caches: Fact[tuple[JitCache, ...]] = field(default_factory=Fact)
    modules: Fact[tuple[str, ...]] = field(default_factory=Fact)
    """Top-level names that its Python can import, without those of Python itself."""
    altered: Fact[tuple[AlteredFile, ...]] = field(default_factory=Fact)
    """Of torch, numpy, Pillow and splatting packages: those of the files that matter most that are not as installed."""
    chosen: str = ""
    """Why it is the target: ``named with --python``, ``activated (VIRTUAL_ENV)``, ``found in ~/project``..."""
