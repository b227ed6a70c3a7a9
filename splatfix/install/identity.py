"""What a wheel is built with, in words: the part of the wheel cache's key that does not lie in the source."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from splatfix import __version__
from splatfix.facts import Facts
from splatfix.plan.plan import BuildWheel

# Variables of the person's own that reach the compilers, whatever the source: of setuptools, gcc, nvcc, CMake.
_FLAG_VARIABLES = (
    "CC",
    "CXX",
    "LDSHARED",
    "ARCHFLAGS",
    "CFLAGS",
    "CXXFLAGS",
    "CPPFLAGS",
    "LDFLAGS",
    "CUDAFLAGS",
    "CMAKE_ARGS",
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
    "LD_RUN_PATH",
    "NVCC_FLAGS",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "NVCC_CCBIN",
    "DEBUG",
)
# What changes how fast a wheel is made, and not what is in it.
_WITHOUT_EFFECT = frozenset(
    {
        "MAX_JOBS",
        "PYTORCH_NVCC",
        "TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES",
        "CMAKE_C_COMPILER_LAUNCHER",
        "CMAKE_CXX_COMPILER_LAUNCHER",
        "CMAKE_CUDA_COMPILER_LAUNCHER",
        # read by a setup.py they say where things lie on this machine
        "PATH",
        "HOME",
        "TMPDIR",
        "PWD",
    }
)


def identity_of(
    action: BuildWheel, built_with: Mapping[str, str], reads: Iterable[str] = ()
) -> dict[str, str]:
    """Everything beside the source's bytes that decides what comes out of a build.

    Args:
        reads: variables that the source's setup.py reads, such as gsplat's ``WITH_SYMBOLS``.
    """
    variables = {name: value for name, value in action.variables.items() if name not in _WITHOUT_EFFECT}
    theirs = {*_FLAG_VARIABLES, *reads} - {*_WITHOUT_EFFECT, *action.unset}
    kept = {name: os.environ[name] for name in sorted(theirs) if name in os.environ}
    return {
        "subject": action.subject,
        "splatfix": __version__,
        "mismatch": action.cuda_mismatch,
        **built_with,
        **kept,
        **variables,
    }


def versions_of(facts: Facts, action: BuildWheel) -> dict[str, str]:
    """Versions of what a build uses, from the facts: interpreter, torch, toolkit, compilers, setuptools."""
    interpreter, torch = facts.environment.interpreter.value, facts.environment.torch.value
    found = {"python": f"{interpreter.version} {interpreter.abi_tag}" if interpreter else ""}
    found["torch"] = f"{torch.version} {torch.cuda}" if torch else ""
    for toolkit in facts.machine.toolkits.value or ():
        if toolkit.root == action.variables.get("CUDA_HOME"):
            found["toolkit"] = toolkit.version or ""
    for compiler in facts.machine.compilers.value or ():
        if compiler.path == action.variables.get("CXX", compiler.path):
            found[f"compiler {compiler.path}"] = compiler.version or ""
    for item in facts.environment.distributions.value or ():
        if item.name in ("setuptools", "wheel", "pip", "pybind11"):
            found[item.name] = item.version
    return found
