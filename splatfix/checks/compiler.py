"""Checks of the host compiler against the limits of nvcc and of torch, which differ; and of Visual Studio's prompt."""

from collections.abc import Iterator

from splatfix.checks.evidence import host_compiler, lack_for_builds, reason, torch_version, variable
from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context
from splatfix.context.compilers import family_of, msc_version, newest_for_nvcc
from splatfix.core.step import Command, PlainStep, Step, say
from splatfix.core.versions import release
from splatfix.knowledge import cpp_extension, host_compilers
from splatfix.model import Evidence, Finding, Toolkit

check = checks_of("compiler")


@check("host-compiler-missing")
def host_compiler_missing(context: Context, this: Check) -> Iterator[Finding]:
    compilers, compiler = context.machine.compilers, context.host_compiler
    if not compilers.known:
        yield this.unknown(evidence=reason(compilers.error))
    elif compiler is not None:
        via = ", ".join(compiler.found_via)
        yield this.ok(
            evidence=Evidence(compiler.path, compiler.version or compiler.error, via),
            kind=compiler.kind,
            version=compiler.version or "(version not known)",
        )
    elif context.torch_cuda is not None:
        yield this.finding(
            lack_for_builds(context),
            "missing-on-windows" if context.windows else "missing",
            evidence=Evidence("searched", compilers.found_via),
        )


@check("host-gcc-too-new")
def host_gcc_too_new(context: Context, this: Check) -> Iterator[Finding]:
    toolkit, compiler = context.build_toolkit, context.nvcc_host_compiler
    if toolkit is None or compiler is None or not release(compiler.version):
        return
    family, major = family_of(compiler), release(compiler.version)[0]
    if family == "cl":
        return
    limit = newest_for_nvcc(toolkit, family)
    # somebody may have switched off nvcc's look at its host compiler; nvcc takes one dash or two
    switches, allowing = {"-allow-unsupported-compiler", "-D__NV_NO_HOST_COMPILER_CHECK=1"}, ""
    for setting in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"):
        flags = context.variables.get(setting, "").replace("--allow", "-allow").split()
        if switches & set(flags):
            allowing = setting
    report, case, remedy = this.fail, "", None
    if limit is None:
        report = this.unknown
    elif family == "gcc" and host_compilers.library_unreadable(release(toolkit.version), major):
        case, remedy = "library-unreadable", _other_compiler(context, toolkit, "gcc", 10)
    elif major <= limit:
        report = this.ok
    elif allowing:
        report = this.skip
    else:
        remedy = _other_compiler(context, toolkit, family, limit)
    by_header = f"crt/host_config.h of {toolkit.root}"
    yield report(
        case,
        evidence=(
            host_compiler(compiler),
            Evidence("nvcc's limit", f"{family} {limit or 'not known'}", by_header),
        ),
        remedy=remedy,
        toolkit=toolkit,
        compiler=compiler,
        family=family,
        limit=limit,
        allowing=allowing,
    )


@check("host-gcc-too-old")
def host_gcc_too_old(context: Context, this: Check) -> Iterator[Finding]:
    compiler, torch = context.host_compiler, context.torch
    if compiler is None or torch is None or context.torch_cuda is None or family_of(compiler) != "gcc":
        return
    version, oldest = release(compiler.version), host_compilers.oldest_gcc_of_torch(torch.version)
    if oldest is None or not version or version[0] >= oldest:
        return
    yield this.warn(
        evidence=(host_compiler(compiler), torch_version(context)),
        remedy=_newer_gcc(context, oldest),
        compiler=compiler,
        torch=torch,
        oldest=oldest,
    )


@check("host-msvc-too-new")
def host_msvc_too_new(context: Context, this: Check) -> Iterator[Finding]:
    toolkit, compiler = context.build_toolkit, context.host_compiler
    if toolkit is None or compiler is None or compiler.kind != "cl" or toolkit.msvc_max is None:
        return
    if len(release(compiler.version)) < 2:
        yield this.unknown(evidence=Evidence(compiler.path, compiler.error or "no version"))
        return
    number, via = msc_version(compiler), ", ".join(compiler.found_via)
    report = this.fail
    if number <= toolkit.msvc_max:
        report = this.ok
    yield report(
        evidence=(
            Evidence("host compiler", f"{compiler.path} (_MSC_VER {number})", via),
            Evidence("nvcc's limit", f"_MSC_VER {toolkit.msvc_max}", f"crt/host_config.h of {toolkit.root}"),
        ),
        compiler=compiler,
        toolkit=toolkit,
        minor=toolkit.msvc_max % 100,
    )


@check("host-compiler-refused-by-torch")
def host_compiler_refused_by_torch(context: Context, this: Check) -> Iterator[Finding]:
    toolkit, compiler, torch = context.build_toolkit, context.host_compiler, context.torch
    if toolkit is None or compiler is None or torch is None or context.machine.system != "linux":
        return
    rules, family = cpp_extension.behaviour(torch.version), family_of(compiler)
    version = release(compiler.version)
    if rules is None or family == "cl" or not version:
        return
    setting = context.variables.get("TORCH_DONT_CHECK_COMPILER_ABI")
    skipped = host_compilers.compiler_check_skipped(torch.version, setting)
    if skipped:
        yield this.skip(evidence=torch_version(context), skipped=skipped)
        return
    bounds = rules.bounds(family, release(toolkit.version))
    if bounds is None:
        return  # torch only warns there
    report, remedy = this.fail, None
    if bounds.allows(version):
        report = this.ok
    elif version < bounds.min:
        remedy = _newer_gcc(context, bounds.min[0])
    else:
        remedy = _other_compiler(context, toolkit, family, bounds.max_exclusive[0] - 1)
    rule = f"torch {torch.version} with CUDA {toolkit.version}"
    yield report(
        evidence=(
            host_compiler(compiler),
            Evidence(rule, f"{family} {bounds}", "torch/utils/cpp_extension.py"),
        ),
        remedy=remedy,
        torch=torch,
        compiler=compiler,
        toolkit=toolkit,
    )


def _newer_gcc(context: Context, oldest: int) -> Step:
    """Advise a gcc that torch's headers take; nvcc has its own limit, where there is a toolkit."""
    toolkit = context.build_toolkit
    newest = toolkit.gcc_max if toolkit else None
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


@check("msvc-not-on-path")
def msvc_not_on_path(context: Context, this: Check) -> Iterator[Finding]:
    compiler, names = context.host_compiler, ", ".join(context.compiles_at_first_use)
    if not context.windows or compiler is None or compiler.kind != "cl" or context.torch_cuda is None:
        return
    on_path = any(
        "PATH" in item.found_via for item in context.machine.compilers.value or () if item.kind == "cl"
    )
    if names and not on_path:  # a setup.py finds it all the same
        version, via = compiler.version or "version not known", ", ".join(compiler.found_via)
        yield this.warn(evidence=Evidence(compiler.path, version, via), names=names)


@check("msvc-x86-host")
def msvc_x86_host(context: Context, this: Check) -> Iterator[Finding]:
    if not context.windows:
        return
    prompt = context.variables.get("VSCMD_ARG_TGT_ARCH", "")
    for item in context.machine.compilers.value or ():
        if item.kind != "cl" or "PATH" not in item.found_via:
            continue
        path = item.path.replace("/", "\\").lower()
        if path.endswith("\\x86\\cl.exe") or "\\hostx86\\" in path or prompt == "x86":
            asked_for = Evidence("VSCMD_ARG_TGT_ARCH", prompt or "not set")
            yield this.fail(subject=item.path, evidence=(Evidence("cl.exe", item.path, "PATH"), asked_for))
        return  # the first on PATH is the one that is called


@check("distutils-use-sdk-unset")
def distutils_use_sdk_unset(context: Context, this: Check) -> Iterator[Finding]:
    variables = context.variables
    if not context.windows or context.torch_cuda is None or "VSCMD_ARG_TGT_ARCH" not in variables:
        return
    if "DISTUTILS_USE_SDK" in variables:
        return
    # CMake and a plain setuptools build go through: the check is in torch's BuildExtension
    stopped = [item.source.label for item in context.sources_to_build if item.source.uses_torch_builder]
    report = this.warn if stopped else this.skip
    yield report(
        evidence=(variable(context, "VSCMD_ARG_TGT_ARCH"), variable(context, "DISTUTILS_USE_SDK")),
        stopped=stopped,
    )
