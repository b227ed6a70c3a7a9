"""Checks of the host compiler against the limits of nvcc and of torch, which differ; and of Visual Studio's prompt."""

from collections.abc import Iterator

from splatfix.checks.evidence import host_compiler, lack_for_builds, reason, torch_version, variable
from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context
from splatfix.context.compilers import family_of, msc_version, newest_for_nvcc
from splatfix.core.step import Command, PlainStep, Step, say, set_variable
from splatfix.core.versions import release
from splatfix.knowledge import cpp_extension, host_compilers
from splatfix.model import Evidence, Finding, Toolkit

check = checks_of("compiler")


@check("host-compiler-missing", "A C++ compiler is installed")
def host_compiler_missing(context: Context, this: Check) -> Iterator[Finding]:
    """nvcc only compiles device code itself; a host C++ compiler does the rest, and torch's headers need C++17 or newer."""
    compilers, compiler = context.machine.compilers, context.host_compiler
    if not compilers.known:
        unknown = reason(compilers.error)
        yield this.unknown("The C++ compilers of this machine could not be determined.", evidence=unknown)
    elif compiler is not None:
        version = compiler.version or compiler.error
        yield this.ok(
            f"{compiler.kind} {compiler.version or '(version not known)'}",
            evidence=Evidence(compiler.path, version, ", ".join(compiler.found_via)),
        )
    elif context.torch_cuda is not None:
        package = "g++"
        if context.windows:
            package = "the Visual Studio Build Tools (C++ workload)"
        yield this.finding(
            lack_for_builds(context),
            "No C++ compiler was found: extensions cannot be built here.",
            evidence=Evidence("searched", compilers.found_via),
            remedy=f"Install {package}.",
        )


@check("host-gcc-too-new", "nvcc supports the host compiler")
def host_gcc_too_new(context: Context, this: Check) -> Iterator[Finding]:
    """nvcc's `crt/host_config.h` refuses gcc and clang beyond a major ("unsupported GNU version! gcc versions later than N
    are not supported"). The limit is read from the toolkit's own header. nvcc calls what CC or NVCC_CCBIN names, else
    gcc on PATH; CXX alone does not change that."""
    toolkit, compiler = context.build_toolkit, context.nvcc_host_compiler
    if toolkit is None or compiler is None or not release(compiler.version):
        return
    family, major = family_of(compiler), release(compiler.version)[0]
    if family == "cl":
        return
    limit = newest_for_nvcc(toolkit, family)
    nvcc, name = f"nvcc {toolkit.version}", f"{compiler.kind} {compiler.version}"
    evidence = (
        host_compiler(compiler),
        Evidence("nvcc's limit", f"{family} {limit or 'not known'}", f"crt/host_config.h of {toolkit.root}"),
    )
    # somebody may have switched off nvcc's look at its host compiler; nvcc takes one dash or two
    switches, allowing = {"-allow-unsupported-compiler", "-D__NV_NO_HOST_COMPILER_CHECK=1"}, ""
    for setting in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"):
        flags = context.variables.get(setting, "").replace("--allow", "-allow").split()
        if switches & set(flags):
            allowing = setting
    if limit is None:
        yield this.unknown(f"nvcc's limit for {family} is not known.", evidence=evidence)
    elif family == "gcc" and host_compilers.library_unreadable(release(toolkit.version), major):
        yield this.fail(
            f"{nvcc} cannot read the C++ library of {name}, though its header "
            "accepts it (\"parameter packs not expanded with '...'\" in std_function.h).",
            evidence=evidence,
            remedy=_other_compiler(context, toolkit, "gcc", 10),
        )
    elif major <= limit:
        yield this.ok(f"{nvcc} accepts {name} (up to {limit}).", evidence=evidence)
    elif allowing:
        yield this.skip(
            f"{name} is newer than {nvcc} knows ({family} {limit}); {allowing} allows it anyway.",
            evidence=evidence,
        )
    else:
        yield this.fail(
            f"{name} is newer than {nvcc} accepts ({family} {limit}).",
            evidence=evidence,
            remedy=_other_compiler(context, toolkit, family, limit),
        )


@check("host-gcc-too-old", "torch's headers support the host compiler")
def host_gcc_too_old(context: Context, this: Check) -> Iterator[Finding]:
    """torch's own headers refuse an old gcc ("You're trying to build PyTorch with a too old version of GCC. We need GCC 9
    or later."). RHEL 8 and its kin bring gcc 8; newer ones come as modules, gcc-toolset packages or from conda."""
    compiler, torch = context.host_compiler, context.torch
    if compiler is None or torch is None or context.torch_cuda is None or family_of(compiler) != "gcc":
        return
    version, oldest = release(compiler.version), host_compilers.oldest_gcc_of_torch(torch.version)
    if oldest is None or not version or version[0] >= oldest:
        return
    yield this.warn(
        f"{compiler.kind} {compiler.version} is too old for the headers of torch {torch.version}, which need gcc {oldest}.",
        evidence=(host_compiler(compiler), torch_version(context)),
        remedy=_newer_gcc(context, oldest),
    )


@check("host-msvc-too-new", "nvcc supports Visual Studio's compiler")
def host_msvc_too_new(context: Context, this: Check) -> Iterator[Finding]:
    """nvcc's `crt/host_config.h` refuses `_MSC_VER` beyond a bound ("unsupported Microsoft Visual Studio version!"). Visual
    Studio 2022 17.10 moved it to 1940, which CUDA before 12.4 refuses; and its standard library then asks for CUDA 12.4
    by itself (error STL1002), so that `-allow-unsupported-compiler` alone does not help."""
    toolkit, compiler = context.build_toolkit, context.host_compiler
    if toolkit is None or compiler is None or compiler.kind != "cl" or toolkit.msvc_max is None:
        return
    number = msc_version(compiler)
    if len(release(compiler.version)) < 2:
        yield this.unknown(
            "The version of cl is not known.",
            evidence=Evidence(compiler.path, compiler.error or "no version"),
        )
        return
    evidence = (
        Evidence("host compiler", f"{compiler.path} (_MSC_VER {number})", ", ".join(compiler.found_via)),
        Evidence("nvcc's limit", f"_MSC_VER {toolkit.msvc_max}", f"crt/host_config.h of {toolkit.root}"),
    )
    if number <= toolkit.msvc_max:
        yield this.ok(f"nvcc {toolkit.version} accepts cl {compiler.version}.", evidence=evidence)
        return
    toolset = f"14.{toolkit.msvc_max % 100}"
    yield this.fail(
        f"cl {compiler.version} is newer than nvcc {toolkit.version} accepts (19.{toolkit.msvc_max % 100}).",
        evidence=evidence,
        remedy=(
            (
                f'In the Visual Studio Installer add the individual component "MSVC v143 C++ build tools ({toolset})", '
                f"open a prompt with vcvars64.bat -vcvars_ver={toolset}, and set DISTUTILS_USE_SDK=1 for the build."
            ),
            "Or use a CUDA toolkit that accepts this compiler (12.4 or newer takes Visual Studio 17.10).",
        ),
    )


@check("host-compiler-refused-by-torch", "torch supports the host compiler")
def host_compiler_refused_by_torch(context: Context, this: Check) -> Iterator[Finding]:
    """torch keeps a table of its own, and in places it is stricter than nvcc: torch 2.11 refuses gcc 14 with CUDA 12.8,
    which nvcc accepts. Where its table has no row for a CUDA version it only warns; with TORCH_DONT_CHECK_COMPILER_ABI, and
    in a torch that was built from source, it does not look."""
    toolkit, compiler, torch = context.build_toolkit, context.host_compiler, context.torch
    if toolkit is None or compiler is None or torch is None or context.machine.system != "linux":
        return
    rules, family = cpp_extension.behaviour(torch.version), family_of(compiler)
    if rules is None or family == "cl" or not release(compiler.version):
        return
    setting = context.variables.get("TORCH_DONT_CHECK_COMPILER_ABI")
    skipped = host_compilers.compiler_check_skipped(torch.version, setting)
    if skipped:
        yield this.skip(
            f"torch does not check the host compiler: {skipped}.", evidence=torch_version(context)
        )
        return
    cuda, version = release(toolkit.version), release(compiler.version)
    bounds = rules.bounds(family, cuda)
    if bounds is None:
        return  # torch only warns there
    rule = f"torch {torch.version} with CUDA {toolkit.version}"
    evidence = (host_compiler(compiler), Evidence(rule, f"{family} {bounds}", "torch/utils/cpp_extension.py"))
    if bounds.allows(version):
        yield this.ok(
            f"torch accepts {compiler.kind} {compiler.version} with CUDA {toolkit.version}.",
            evidence=evidence,
        )
        return
    remedy = _other_compiler(context, toolkit, family, bounds.max_exclusive[0] - 1)
    if version < bounds.min:
        remedy = _newer_gcc(context, bounds.min[0])
    yield this.fail(
        f"torch {torch.version} refuses {compiler.kind} {compiler.version} with CUDA {toolkit.version}.",
        evidence=evidence,
        remedy=remedy,
    )


def _newer_gcc(context: Context, oldest: int) -> Step:
    """Advise a gcc that torch's headers take; nvcc has its own limit, where there is a toolkit."""
    toolkit, newest = context.build_toolkit, None
    if toolkit is not None:
        newest = toolkit.gcc_max
    ways = "module load gcc, gcc-toolset, or conda's gxx_linux-64"
    install = f"Load or install gcc {oldest} or newer ({ways}) and set CC, CXX and CUDAHOSTCXX to it."
    return _compiler_within(context, "gcc", oldest, newest, install)


def _other_compiler(context: Context, toolkit: Toolkit, family: str, limit: int) -> Step:
    """Advise a compiler that a toolkit takes, up to this major."""
    oldest, name = None, f"clang-{limit}"
    if family == "gcc":
        oldest, name = host_compilers.oldest_gcc_of_torch(context.torch_version), f"g++-{limit}"
    use = f"Install {name} and set CC, CXX and CUDAHOSTCXX to it"
    newer = f"use a newer CUDA toolkit than {toolkit.version}"
    return _compiler_within(context, family, oldest, limit, f"{use}; or {newer}.")


def _compiler_within(
    context: Context, family: str, oldest: int | None, newest: int | None, otherwise: str
) -> Step:
    """Use the newest C++ compiler of a family that is here and lies within these majors; else say what a person is to do.

    torch asks CXX, setuptools CC, CMake CUDAHOSTCXX; nvcc gets CC from torch, and NVCC_CCBIN from everything else.
    """
    fitting = []
    for compiler in context.machine.compilers.value or ():
        version = release(compiler.version)
        if compiler.kind not in ("g++", "clang++") or family_of(compiler) != family or not version:
            continue
        if (oldest or 0) <= version[0] <= (newest or 999):
            fitting.append(compiler)
    if not fitting:
        return say(otherwise)
    best = max(fitting, key=lambda compiler: release(compiler.version))
    folder, slash, name = best.path.rpartition("/")
    c_compiler = folder + slash + name.replace("clang++", "clang").replace("g++", "gcc")
    by_name = dict.fromkeys(("CXX", "CUDAHOSTCXX", "NVCC_CCBIN"), best.path)
    return PlainStep(command=Command(env=(("CC", c_compiler), *by_name.items())))


_PROMPT = (
    'Open "x64 Native Tools Command Prompt for VS", or run vcvars64.bat, and build from there, with '
    "set DISTUTILS_USE_SDK=1."
)


@check("msvc-not-on-path", "cl.exe is on PATH")
def msvc_not_on_path(context: Context, this: Check) -> Iterator[Finding]:
    """setuptools finds Visual Studio by its own list, but torch asks `where cl` before it compiles at first use: "Command
    '['where', 'cl']' returned non-zero exit status 1", and nvcc says "Cannot find compiler 'cl.exe' in PATH". Source:
    `get_compiler_abi_compatibility_and_version` and `_get_vc_env` of torch/utils/cpp_extension.py."""
    compiler = context.host_compiler
    if not context.windows or compiler is None or compiler.kind != "cl" or context.torch_cuda is None:
        return
    if any(item.kind == "cl" and "PATH" in item.found_via for item in context.machine.compilers.value or ()):
        return
    names = ", ".join(context.compiles_at_first_use)
    if not names:
        return  # a setup.py finds it all the same
    version, via = compiler.version or "version not known", ", ".join(compiler.found_via)
    yield this.warn(
        f"Visual Studio is installed, but cl.exe is not on PATH: {names} cannot compile at the first import.",
        evidence=Evidence(compiler.path, version, via),
        remedy=_PROMPT,
    )


@check("msvc-x86-host", "Visual Studio's compiler targets 64 bits")
def msvc_x86_host(context: Context, this: Check) -> Iterator[Finding]:
    """In the plain "Developer Command Prompt" cl.exe compiles for 32 bits: torch's headers end in "'_addcarry_u64': identifier
    not found", the linker in unresolved symbols. The folder of cl.exe names host and target (Hostx64\\x64); VSCMD_ARG_TGT_ARCH
    says what the prompt was opened for."""
    if not context.windows:
        return
    prompt = context.variables.get("VSCMD_ARG_TGT_ARCH", "")
    for item in context.machine.compilers.value or ():
        if item.kind != "cl" or "PATH" not in item.found_via:
            continue
        path = item.path.replace("/", "\\").lower()
        if path.endswith("\\x86\\cl.exe") or "\\hostx86\\" in path or prompt == "x86":
            yield this.fail(
                "The cl.exe on PATH is the 32-bit one: torch's headers do not compile with it.",
                subject=item.path,
                evidence=(
                    Evidence("cl.exe", item.path, "PATH"),
                    Evidence("VSCMD_ARG_TGT_ARCH", prompt or "not set"),
                ),
                remedy=_PROMPT,
            )
        return  # the first on PATH is the one that is called


@check("distutils-use-sdk-unset", "torch can build from Visual Studio's prompt")
def distutils_use_sdk_unset(context: Context, this: Check) -> Iterator[Finding]:
    """In a prompt of Visual Studio torch stops every setup.py with "It seems that the VC environment is activated but
    DISTUTILS_USE_SDK is not set". Source: `_check_abi` of torch/utils/cpp_extension.py, which a test reads."""
    variables = context.variables
    if not context.windows or context.torch_cuda is None or "VSCMD_ARG_TGT_ARCH" not in variables:
        return
    if "DISTUTILS_USE_SDK" in variables:
        return
    report, stopped = this.skip, "a build"
    for item in context.sources_to_build:
        # CMake and a plain setuptools build go through: the check is in torch's BuildExtension
        if item.source.uses_torch_builder:
            report, stopped = this.warn, item.source.label
            break
    yield report(
        f"Visual Studio's prompt is open, and DISTUTILS_USE_SDK is not set: torch stops {stopped}.",
        evidence=(variable(context, "VSCMD_ARG_TGT_ARCH"), variable(context, "DISTUTILS_USE_SDK")),
        remedy=set_variable("DISTUTILS_USE_SDK", "1"),
    )
