"""Which compiler cache a build uses (ccache, sccache), and how this source's builder is told of it."""

from __future__ import annotations

from splatfix.facts import Facts, Source, Toolkit
from splatfix.plan.plan import Reason

# ccache first: it needs no server, and knows nvcc's -MD.
_KNOWN = ("ccache", "sccache")


def compiler_cache(
    facts: Facts, toolkit: Toolkit, source: Source
) -> tuple[dict[str, str], tuple[Reason, ...]]:
    """Variables that put a compiler cache of this machine in front of nvcc and the C++ compiler, and why.

    Torch's builder takes the nvcc to call from PYTORCH_NVCC, and only when it builds with ninja (torch/utils/
    cpp_extension.py, _write_ninja_file); CMake takes launchers from variables of its own (CMake 3.17).
    """
    program = next((name for name in _KNOWN if name in facts.machine.tools), None)
    if program is None or facts.machine.system == "windows":
        return {}, ()
    version = facts.machine.tools[program]
    if source.uses_torch_builder:
        nvcc = f"{program} {toolkit.nvcc or f'{toolkit.root}/bin/nvcc'}"
        variables = {"PYTORCH_NVCC": nvcc}
        text = f"PYTORCH_NVCC={nvcc}: {program} {version} is here; what it has compiled before is not compiled again"
        if program == "sccache":
            # torch's own comment there: sccache does not support nvcc's -MD
            variables["TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES"] = "1"
        return variables, (
            Reason(text, "PATH"),
            Reason(f"CXX is called through {program} too, by a script of its name in the scratch folder"),
        )
    if "CMakeLists.txt" in source.build_files:
        variables = {f"CMAKE_{language}_COMPILER_LAUNCHER": program for language in ("C", "CXX", "CUDA")}
        return variables, (
            Reason(f"CMAKE_*_COMPILER_LAUNCHER={program}: {program} {version} is here", "PATH"),
        )
    return {}, ()
