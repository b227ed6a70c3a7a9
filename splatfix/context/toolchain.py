"""The CUDA toolkits and host compilers that are here, and which of them a build by torch alone would use."""

from functools import cached_property
from pathlib import PurePosixPath

from splatfix.context.gpus import Gpus
from splatfix.core.versions import release
from splatfix.knowledge import Arch, toolkit_supports
from splatfix.model import Compiler, Toolkit


def compiles_for(toolkit: Toolkit, arch: Arch) -> bool:
    """Tell what nvcc itself lists; where it was not asked (or for a letter), the table; what neither knows may be tried."""
    if toolkit.archs and not arch.variant:
        return arch.sm in toolkit.archs
    version = release(toolkit.version)
    return len(version) < 2 or toolkit_supports((version[0], version[1]), arch) is not False


class Toolchain(Gpus, frozen=True, dict=True):
    """The layer of the context that knows what compiles here."""

    @cached_property
    def toolkits(self) -> tuple[Toolkit, ...]:
        """The toolkits that have an nvcc which answers."""
        toolkits = self.machine.toolkits.value or ()
        return tuple(item for item in toolkits if item.nvcc and len(release(item.version)) > 1)

    @cached_property
    def cuda_home(self) -> Toolkit | None:
        """The toolkit behind what torch itself takes as CUDA_HOME, seen through a wrapper script, when it is one of those
        found."""
        choice = self.environment.toolkit_choice.value
        if choice is None or choice.root is None:
            return None
        roots = {choice.root, choice.resolved, choice.real_root}
        for toolkit in self.toolkits:
            if toolkit.root in roots or choice.nvcc in toolkit.on_path:
                return toolkit
        return None

    def best_toolkit(self, cuda: tuple[int, int] | None) -> Toolkit | None:
        """Return the toolkit here that fits a CUDA version best: same major, then nearest minor, then fewest missing parts."""
        fitting = self.toolkits
        minor = 0
        if cuda is not None:
            minor = cuda[1]
            fitting = tuple(item for item in fitting if release(item.version)[0] == cuda[0])

        def distance(toolkit: Toolkit) -> tuple[int, int]:
            return abs(release(toolkit.version)[1] - minor), len(toolkit.missing)

        return min(fitting, key=distance, default=None)

    @cached_property
    def build_toolkit(self) -> Toolkit | None:
        """The toolkit a build by torch alone would use: :attr:`cuda_home`, else the one that fits torch best."""
        return self.cuda_home or self.best_toolkit(self.torch_cuda)

    @cached_property
    def host_compiler(self) -> Compiler | None:
        """The C++ compiler a build by torch alone would use: what CXX (or CC) names, else the first g++ on PATH, else
        clang++."""
        named = self._compilers_by("CXX", "CC")
        if named:
            return named[0]
        for kind in ("g++", "clang++", "cl", "gcc"):
            for compiler in self.machine.compilers.value or ():
                # setuptools finds Visual Studio by its own list, so cl need not be on PATH
                within_reach = "PATH" in compiler.found_via or kind == "cl"
                plain = compiler.path.endswith((kind, f"{kind}.exe"))
                if compiler.kind == kind and within_reach and plain:
                    return compiler
        return None

    @cached_property
    def nvcc_host_compiler(self) -> Compiler | None:
        """The host compiler that nvcc calls in a build by torch, which is another one than torch's where only CXX is set.

        torch hands CC to nvcc as ``-ccbin`` (``unix_cuda_flags`` of torch/utils/cpp_extension.py); of several nvcc takes the
        last. Without one it takes NVCC_CCBIN, then gcc on PATH (nvcc 13.0, ``--dryrun``); CXX and CUDAHOSTCXX are not asked.
        """
        variables = ("NVCC_APPEND_FLAGS -ccbin", "CC", "NVCC_PREPEND_FLAGS -ccbin", "NVCC_CCBIN")
        for compiler in self._compilers_by(*variables):
            if compiler.kind != "cl":
                return compiler
        if self.machine.system == "linux":
            on_path = {PurePosixPath(item.path).name: item for item in reversed(self._compilers_by("PATH"))}
            gcc, gxx = on_path.get("gcc"), on_path.get("g++")
            # they come together, though not every record of a machine names both
            if gxx and (gcc is None or gcc.version == gxx.version):
                return gxx
            if gcc:
                return gcc
        return self.host_compiler

    def _compilers_by(self, *origins: str) -> list[Compiler]:
        """Return the compilers that were found by these variables, or on PATH, those of the first first."""
        compilers: list[Compiler] = []
        for origin in origins:
            compilers += (item for item in self.machine.compilers.value or () if origin in item.found_via)
        return compilers
