"""Checks of what only Windows can lack: cl on PATH, the 64-bit compiler, the runtime of Visual C++."""

from __future__ import annotations

from collections.abc import Iterator

from splatfix.checks.model import Evidence, Outcome, Status, fail, outcome, warn
from splatfix.checks.registry import check
from splatfix.context import Context
from splatfix.core.step import say, set_variable

_PROMPT = (
    'Open "x64 Native Tools Command Prompt for VS", or run vcvars64.bat, and build from there, with '
    "set DISTUTILS_USE_SDK=1."
)


@check("msvc-not-on-path", family="compiler", title="cl.exe is where torch looks for it")
def msvc_not_on_path(context: Context) -> Iterator[Outcome]:
    """setuptools finds Visual Studio by its own list, but torch asks `where cl` before it compiles at first use: "Command
    '['where', 'cl']' returned non-zero exit status 1", and nvcc says "Cannot find compiler 'cl.exe' in PATH". Source:
    `get_compiler_abi_compatibility_and_version` and `_get_vc_env` of torch/utils/cpp_extension.py."""
    compiler = context.host_compiler
    if (
        context.machine.system != "windows"
        or compiler is None
        or compiler.kind != "cl"
        or context.torch_cuda is None
    ):
        return
    if any(item.kind == "cl" and "PATH" in item.found_via for item in context.machine.compilers.value or ()):
        return
    later = context.compiles_at_first_use
    if not later:
        return  # a setup.py finds it all the same
    yield warn(
        f"Visual Studio is here, but cl.exe is not on PATH: {', '.join(later)} cannot compile at the first import.",
        evidence=(
            Evidence(compiler.path, compiler.version or "version not known", ", ".join(compiler.found_via)),
        ),
        remedy=(say(_PROMPT),),
    )


@check("msvc-x86-host", family="compiler", title="Visual Studio's compiler makes 64-bit code")
def msvc_x86_host(context: Context) -> Iterator[Outcome]:
    """In the plain "Developer Command Prompt" cl.exe compiles for 32 bits: torch's headers end in "'_addcarry_u64': identifier
    not found", the linker in unresolved symbols. The folder of cl.exe names host and target (Hostx64\\x64); VSCMD_ARG_TGT_ARCH
    says what the prompt was opened for."""
    if context.machine.system != "windows":
        return
    prompt = context.machine.variables.get("VSCMD_ARG_TGT_ARCH", "")
    for item in context.machine.compilers.value or ():
        place = item.path.replace("/", "\\").lower()
        if item.kind != "cl" or "PATH" not in item.found_via:
            continue
        if place.endswith("\\x86\\cl.exe") or "\\hostx86\\" in place or prompt == "x86":
            yield fail(
                "The cl.exe on PATH is the 32-bit one: torch's headers do not compile with it.",
                subject=item.path,
                evidence=(
                    Evidence("cl.exe", item.path, "PATH"),
                    Evidence("VSCMD_ARG_TGT_ARCH", prompt or "not set"),
                ),
                remedy=(say(_PROMPT),),
            )
        return  # the first on PATH is the one that is called


@check("distutils-use-sdk-unset", family="compiler", title="torch may build from Visual Studio's prompt")
def distutils_use_sdk_unset(context: Context) -> Iterator[Outcome]:
    """In a prompt of Visual Studio torch stops every setup.py with "It seems that the VC environment is activated but
    DISTUTILS_USE_SDK is not set". Source: `_check_abi` of torch/utils/cpp_extension.py, which a test reads."""
    variables = context.machine.variables
    if (
        context.machine.system != "windows"
        or context.torch_cuda is None
        or "VSCMD_ARG_TGT_ARCH" not in variables
    ):
        return
    if "DISTUTILS_USE_SDK" in variables:
        return
    waiting = [item.source.label for item in context.sources_to_build if item.source.uses_torch_builder]
    yield outcome(
        Status.WARN if waiting else Status.SKIP,
        f"Visual Studio's prompt is open, and DISTUTILS_USE_SDK is not set: torch stops {waiting[0] if waiting else 'a build'}.",
        evidence=(
            Evidence("VSCMD_ARG_TGT_ARCH", variables["VSCMD_ARG_TGT_ARCH"], "environment variable"),
            Evidence("DISTUTILS_USE_SDK", "not set", "environment variable"),
        ),
        remedy=(set_variable("DISTUTILS_USE_SDK", "1"),),
    )


@check("msvc-runtime-missing", family="torch", title="The Visual C++ runtime that torch loads is here")
def msvc_runtime_missing(context: Context) -> Iterator[Outcome]:
    """torch's Windows wheels load vcruntime140_1.dll and msvcp140.dll from System32. Without the Visual C++ redistributable
    `import torch` ends in "[WinError 126] The specified module could not be found. Error loading c10.dll". Source: torch's
    own message in torch/__init__.py, which asks for the redistributable."""
    lost, python = context.machine.missing_msvc_runtime, context.environment.interpreter.value
    if context.torch is None or not lost.value or (python is not None and python.kind == "conda"):
        return  # conda's Python brings its own copy
    yield warn(
        f"{', '.join(lost.value)} of the Visual C++ redistributable is not in System32.",
        evidence=(Evidence("System32", "lacks " + ", ".join(lost.value), lost.found_via),),
        remedy=(
            say("Install the Visual C++ redistributable: https://aka.ms/vs/17/release/vc_redist.x64.exe"),
        ),
    )
