"""Checks of what only Windows can lack: cl on PATH, the 64-bit compiler, the runtime of Visual C++."""

from __future__ import annotations

from collections.abc import Iterator

from splatfix.checks._common import (
    compiles_at_first_use,
    host_compiler,
    sources_to_build,
    torch_cuda,
    torch_of,
)
from splatfix.checks.model import Evidence, Finding, Goal, Status
from splatfix.checks.registry import check
from splatfix.core.step import say, set_variable
from splatfix.facts import Facts

_PROMPT = (
    'Open "x64 Native Tools Command Prompt for VS", or run vcvars64.bat, and build from there, with '
    "set DISTUTILS_USE_SDK=1."
)


@check("msvc-not-on-path", "compiler", "cl.exe is where torch looks for it")
def msvc_not_on_path(facts: Facts, goal: Goal) -> Iterator[Finding]:
    """setuptools finds Visual Studio by its own list, but torch asks `where cl` before it compiles at first use: "Command
    '['where', 'cl']' returned non-zero exit status 1", and nvcc says "Cannot find compiler 'cl.exe' in PATH". Source:
    `get_compiler_abi_compatibility_and_version` and `_get_vc_env` of torch/utils/cpp_extension.py."""
    compiler = host_compiler(facts)
    if (
        facts.machine.system != "windows"
        or compiler is None
        or compiler.kind != "cl"
        or torch_cuda(facts) is None
    ):
        return
    if any(item.kind == "cl" and "PATH" in item.found_via for item in facts.machine.compilers.value or ()):
        return
    later = compiles_at_first_use(facts)
    if not later:
        return  # a setup.py finds it all the same
    yield Finding(
        "msvc-not-on-path",
        Status.WARN,
        f"Visual Studio is here, but cl.exe is not on PATH: {', '.join(later)} cannot compile at the first import.",
        evidence=(
            Evidence(compiler.path, compiler.version or "version not known", ", ".join(compiler.found_via)),
        ),
        remedy=(say(_PROMPT),),
    )


@check("msvc-x86-host", "compiler", "Visual Studio's compiler makes 64-bit code")
def msvc_x86_host(facts: Facts, goal: Goal) -> Iterator[Finding]:
    """In the plain "Developer Command Prompt" cl.exe compiles for 32 bits: torch's headers end in "'_addcarry_u64': identifier
    not found", the linker in unresolved symbols. The folder of cl.exe names host and target (Hostx64\\x64); VSCMD_ARG_TGT_ARCH
    says what the prompt was opened for."""
    if facts.machine.system != "windows":
        return
    prompt = facts.machine.variables.get("VSCMD_ARG_TGT_ARCH", "")
    for item in facts.machine.compilers.value or ():
        place = item.path.replace("/", "\\").lower()
        if item.kind != "cl" or "PATH" not in item.found_via:
            continue
        if place.endswith("\\x86\\cl.exe") or "\\hostx86\\" in place or prompt == "x86":
            yield Finding(
                "msvc-x86-host",
                Status.FAIL,
                "The cl.exe on PATH is the 32-bit one: torch's headers do not compile with it.",
                subject=item.path,
                evidence=(
                    Evidence("cl.exe", item.path, "PATH"),
                    Evidence("VSCMD_ARG_TGT_ARCH", prompt or "not set"),
                ),
                remedy=(say(_PROMPT),),
            )
        return  # the first on PATH is the one that is called


@check("distutils-use-sdk-unset", "compiler", "torch may build from Visual Studio's prompt")
def distutils_use_sdk_unset(facts: Facts, goal: Goal) -> Iterator[Finding]:
    """In a prompt of Visual Studio torch stops every setup.py with "It seems that the VC environment is activated but
    DISTUTILS_USE_SDK is not set". Source: `_check_abi` of torch/utils/cpp_extension.py, which a test reads."""
    variables = facts.machine.variables
    if (
        facts.machine.system != "windows"
        or torch_cuda(facts) is None
        or "VSCMD_ARG_TGT_ARCH" not in variables
    ):
        return
    if "DISTUTILS_USE_SDK" in variables:
        return
    waiting = [item.source.label for item in sources_to_build(facts) if item.source.uses_torch_builder]
    yield Finding(
        "distutils-use-sdk-unset",
        Status.WARN if waiting else Status.SKIP,
        f"Visual Studio's prompt is open, and DISTUTILS_USE_SDK is not set: torch stops {waiting[0] if waiting else 'a build'}.",
        evidence=(
            Evidence("VSCMD_ARG_TGT_ARCH", variables["VSCMD_ARG_TGT_ARCH"], "environment variable"),
            Evidence("DISTUTILS_USE_SDK", "not set", "environment variable"),
        ),
        remedy=(set_variable("DISTUTILS_USE_SDK", "1"),),
    )


@check("msvc-runtime-missing", "torch", "The Visual C++ runtime that torch loads is here")
def msvc_runtime_missing(facts: Facts, goal: Goal) -> Iterator[Finding]:
    """torch's Windows wheels load vcruntime140_1.dll and msvcp140.dll from System32. Without the Visual C++ redistributable
    `import torch` ends in "[WinError 126] The specified module could not be found. Error loading c10.dll". Source: torch's
    own message in torch/__init__.py, which asks for the redistributable."""
    lost, python = facts.machine.missing_msvc_runtime, facts.environment.interpreter.value
    if torch_of(facts) is None or not lost.value or (python is not None and python.kind == "conda"):
        return  # conda's Python brings its own copy
    yield Finding(
        "msvc-runtime-missing",
        Status.WARN,
        f"{', '.join(lost.value)} of the Visual C++ redistributable is not in System32.",
        evidence=(Evidence("System32", "lacks " + ", ".join(lost.value), lost.found_via),),
        remedy=(
            say("Install the Visual C++ redistributable: https://aka.ms/vs/17/release/vc_redist.x64.exe"),
        ),
    )
