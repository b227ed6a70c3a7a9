"""Checks of the extension sources inside a checkout: whether they compile here, for which GPUs, and how pip builds them."""

import re
from collections.abc import Iterator

from splatfix.checks.evidence import file_of, torch_version
from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context
from splatfix.context.architectures import ArchChoice, Decider, choose_archs, own_choice
from splatfix.context.commands import pip
from splatfix.context.compilers import family_of
from splatfix.core.step import set_variable
from splatfix.core.versions import dotted, release
from splatfix.core.words import counted
from splatfix.knowledge.archs import Arch, cubin_runs_on, ptx_runs_on
from splatfix.knowledge.breakages import Breakage, CheckText, breakage, breakages
from splatfix.knowledge.cpp_extension import arch_flags_switched_off
from splatfix.model import CheckoutSource, Evidence, Finding, Status

check = checks_of("checkout")

# As g++ and nvcc spell them; what is not here is no C++ standard.
_STANDARDS = {"11": 11, "14": 14, "17": 17, "1z": 17, "20": 20, "2a": 20}


@check("build-isolation-enabled", "pip builds the sources where torch is", done_by_install=True)
def build_isolation(context: Context, this: Check) -> Iterator[Finding]:
    """The setup.py of a splatting extension imports torch. pip builds in a fresh environment that has none ("No module named
    'torch'"), or, where pyproject.toml names torch, another torch than the one installed, so that the extension does not
    fit it. pip before 25.3 did so only for sources with a pyproject.toml, or where setuptools or (from 23.1 on) wheel is
    missing; pip 25.3 and uv do it always. Source: pip's changelog, 25.3 ("--use-pep517 is now always on"), and its
    `load_pyproject_toml` before."""
    torch, builder = context.torch, _who_isolates(context)
    if torch is None or context.torch_cuda is None or not builder:
        return
    waiting = [item for item in context.sources_to_build if item.source.uses_torch_builder]
    pin = f"torch=={torch.version.partition('+')[0]}"
    version, apart = release(builder)[:2], []
    # pip's own condition (``load_pyproject_toml``): since 23.1 it isolates where wheel is missing as well
    without_wheel = version >= (23, 1) and not context.distribution("wheel")
    always = builder == "uv" or version >= (25, 3) or without_wheel or not context.distribution("setuptools")
    for item in waiting:
        requires = [text.replace(" ", "") for text in item.source.build_requires]
        if (always or "pyproject.toml" in item.source.build_files) and pin not in requires:
            apart.append(item)
    evidence = [Evidence("build with", builder, context.environment.distributions.found_via)]
    if apart:
        for item in apart:
            named = " ".join(item.source.build_requires) or "not there"
            evidence.append(Evidence(file_of(item, "pyproject.toml"), named, "build-system.requires"))
        names = ", ".join(item.source.label for item in apart)
        yield this.warn(
            f"{builder} builds {names} apart from this environment, where torch {torch.version} is not.",
            evidence=evidence,
            remedy=[
                pip(context.facts, "install", "--no-build-isolation", item.source.folder) for item in apart
            ],
        )
    elif waiting:
        yield this.ok(
            f"{builder} builds {counted(len(waiting), 'source')} where torch is.", evidence=evidence
        )


@check("msvc-std-ambiguous", "Visual Studio reads torch's headers in CUDA files")
def msvc_std_ambiguous(context: Context, this: Check) -> Iterator[Finding]:
    """On Windows nvcc and Visual Studio stumble over torch/csrc/dynamo/compiled_autograd.h: "error C2872: 'std': ambiguous
    symbol". torch has a way around it that only works with USE_CUDA defined. Source: pytorch#144707, pytorch#188952,
    cubvh#31; seen with torch 2.9 to 2.11."""
    torch, record = context.torch, breakage("msvc-std-ambiguous")
    if torch is None or context.build_toolkit is None:
        return
    if not record.when.holds({"torch": release(torch.version)[:2]}, context.machine.system):
        return
    for item in context.sources_to_build:
        flags = item.source.nvcc_flags
        if item.source.uses_torch_builder and not any("USE_CUDA" in flag for flag in flags):
            yield this.warn(
                f"{item.source.label} may end in C2872 ('std': ambiguous symbol) with torch {torch.version}.",
                subject=item.path,
                evidence=(
                    torch_version(context),
                    Evidence(f"{item.path}/setup.py", " ".join(flags) or "no nvcc flags"),
                ),
                remedy=set_variable("NVCC_APPEND_FLAGS", "-DUSE_CUDA"),
            )


def _who_isolates(context: Context) -> str:
    """``pip 25.3``, ``uv``, or "" where it is not known who builds here."""
    pip = context.distribution("pip")
    if pip:
        return f"pip {pip.version}"
    python, installer = context.interpreter, context.environment.installer.value
    if installer and installer.program and installer.kind != "uv":
        return f"pip {installer.version}"
    if (installer and installer.program) or (python and python.kind == "uv"):
        return "uv"
    return ""


def _register(record: Breakage, text: CheckText) -> None:
    """The check of one known breakage; all have the same logic, their records (``patches/``) say the rest."""

    def look(context: Context, this: Check) -> Iterator[Finding]:
        when = breakage(record.key).when  # a user's --knowledge may have changed its versions
        compiler, cuda = context.nvcc_host_compiler, _build_cuda(context)
        versions = {"cuda": cuda or ()}
        if compiler and family_of(compiler) == "gcc":
            versions["gcc"] = release(compiler.version)
        if not when.holds(versions, context.machine.system):
            return
        cause = f"CUDA {dotted(versions['cuda'])}"
        if "gcc" in when.versions:
            cause = f"g++ {dotted(versions['gcc'])}"
        elif cuda is None:
            return  # without CUDA nothing of it is compiled
        for item in context.sources_to_build:
            match = next((match for match in item.matches if match.breakage == record.key), None)
            if match is None:
                continue
            label = item.source.label
            yield this.finding(
                Status(text.status),
                text.summary.format(source=label, cause=cause, file=match.file, line=match.line),
                subject=item.path,
                evidence=Evidence(f"{file_of(item, match.file)}:{match.line}", match.text, "read as text"),
                remedy=(
                    f"In the source: {record.cure}. Or let splatfix do it on a copy:",
                    context.install(item.source.folder),
                ),
            )

    look.__doc__ = text.page
    check(text.code, text.title)(look)


for _record in breakages():
    if _record.check and not _record.uses:
        _register(_record, _record.check)


@check("cxx-standard-forced", "No source forces a C++ standard that torch or nvcc refuses")
def cxx_standard_forced(context: Context, this: Check) -> Iterator[Finding]:
    """torch 2.1 asks for C++17 and torch 2.13 for C++20; a setup.py that forces an older one ends in "#error: C++17 (or 20) or
    later compatible compiler is required". Forcing C++20 fails the other way round, with nvcc before 12.0."""
    torch, cuda = context.torch, _build_cuda(context)
    if torch is None:
        return
    version = release(torch.version)[:2]
    needed = 14
    for year in (17, 20):
        if breakage(f"cxx-standard-{year}").when.holds({"torch": version}):
            needed = year
    for item in context.sources_to_build:
        for flag in item.cxx_flags:
            match = re.search(r"(?:c|gnu)\+\+(\w+)", flag)
            standard = _STANDARDS.get(match[1]) if match else None  # 17 of ``-std=c++1z``
            if standard is None:
                continue
            evidence = (Evidence(file_of(item), flag, "its syntax tree"), torch_version(context))
            if standard < needed:
                # torch 2.13 has C++20 in its headers, the #error that refuses C++17 outright comes with 2.14
                report = this.warn
                if standard < 17 or version >= (2, 14):
                    report = this.fail
                yield report(
                    f"{item.source.label} forces {flag}; torch {torch.version} needs C++{needed}.",
                    subject=item.path,
                    evidence=evidence,
                    remedy=(
                        f"Remove {flag} from {file_of(item)}; torch adds the right one itself. Or, on a copy:",
                        context.install(item.source.folder),
                    ),
                )
            elif standard >= 20 and cuda is not None and cuda < (12, 0):
                yield this.fail(
                    f"{item.source.label} forces {flag}; nvcc {dotted(cuda)} does not support C++20.",
                    subject=item.path,
                    evidence=(*evidence, Evidence("nvcc", dotted(cuda))),
                    remedy=f"Remove {flag} from {file_of(item)}, or build with CUDA 12 or newer.",
                )


@check("arch-list-ignored", "Sources build for the GPU that is meant")
def arch_list_ignored(context: Context, this: Check) -> Iterator[Finding]:
    """torch adds no architecture flags once any nvcc flag contains "arch"; TORCH_CUDA_ARCH_LIST is then ignored without a
    word. fused-ssim does it on purpose (CUDA_ARCHITECTURES rules it, else the visible GPU, else 7.5, 8.0 and 8.9 without
    PTX), tiny-cuda-nn blanks torch's list as well (TCNN_CUDA_ARCHITECTURES rules it); others hard-code numbers, or only meant
    -march=native. The numbers written down are judged against each GPU."""
    # without a torch by the rules of a recent one, which is what will be installed
    version = context.torch_version or "2.9"
    for item in context.sources_to_build:
        choice = choose_archs(item.source, context.archs, version)
        if isinstance(choice, ArchChoice) and choice.decider is Decider.TORCH:
            continue
        flags = item.source.nvcc_flags
        fixed = item.source.sets.get("TORCH_CUDA_ARCH_LIST")
        shown = arch_flags_switched_off(flags, version) or f"TORCH_CUDA_ARCH_LIST={fixed or '...'}"
        evidence = Evidence(file_of(item), shown, "its syntax tree")
        own, variable, by = own_choice(item.source, context.archs, version), "", ""
        if own is not None:
            variable = own[0].name
            by = f" ({variable})"
        unserved = [target for target in context.targets if not _serves(item, fixed, target.arch)]
        asks_for_gpu = item.source.switches.asks_gpu or "-arch=" in "".join(flags)
        seen_at_build = context.nvidia_gpus and not context.goal.targets and asks_for_gpu
        label = item.source.label
        if own and unserved and not seen_at_build and not context.variables.get(variable):
            yield this.warn(
                f"{label} ignores TORCH_CUDA_ARCH_LIST; without {variable} it has no code for {unserved[0].label}.",
                subject=item.path,
                evidence=evidence,
                remedy=set_variable(variable, own[1]),
            )
        elif own or seen_at_build or (context.targets and not unserved):
            yield this.ok(
                f"{label} chooses its architectures itself{by}; TORCH_CUDA_ARCH_LIST is ignored.",
                subject=item.path,
                evidence=evidence,
            )
        elif unserved:
            yield this.fail(
                f"{label} builds for the architectures in its setup.py only, none of which runs on "
                f"{unserved[0].label}.",
                subject=item.path,
                evidence=evidence,
                remedy=(
                    "Take the architecture flags out of setup.py, so that torch adds the right ones. Or, on a copy:",
                    context.install(item.source.folder),
                ),
            )
        else:
            yield this.skip(
                f"{label} ignores TORCH_CUDA_ARCH_LIST; no GPU here and no --target to judge it for.",
                subject=item.path,
                evidence=evidence,
            )


@check("arch-in-path", "No folder name switches the architecture flags off")
def arch_in_path(context: Context, this: Check) -> Iterator[Finding]:
    """torch adds no architecture flags once any nvcc flag contains the letters "arch", and it does not ask where they stand.
    Inria's setup.py hands nvcc its own absolute path (for glm): in a folder such as ~/research/ or /archive/ the flags
    vanish, nvcc falls back to its oldest architecture, and nothing says so."""
    for item in context.sources_to_build:
        if item.own_path_in_flags and "arch" in item.source.folder:
            yield this.fail(
                f'{item.source.label} is in a folder with "arch" in its path; torch then ignores TORCH_CUDA_ARCH_LIST.',
                subject=item.path,
                evidence=Evidence(file_of(item), f"-I{item.source.folder}/...", "its syntax tree"),
                remedy=(
                    'Move the checkout to a path without the letters "arch". Or build on a copy:',
                    context.install(item.source.folder),
                ),
            )


@check("toolkit-dropped-arch", "The toolkit still compiles for the architectures that are written down")
def toolkit_dropped_arch(context: Context, this: Check) -> Iterator[Finding]:
    """CUDA 13 compiles for sm_75 and newer only. A setup.py with older numbers written in it ends in "nvcc fatal: Unsupported
    gpu architecture 'compute_60'", even where the GPU itself is new. nvcc's own list decides."""
    toolkit = context.build_toolkit
    if toolkit is None or not toolkit.archs:
        return
    numbers = [release(name)[0] for name in toolkit.archs]
    for item in context.sources_to_build:
        if any("-arch=" in flag for flag in item.source.nvcc_flags):
            continue  # it chooses architectures by itself; the numbers are a fallback that is not used here
        fixed = item.source.sets.get("TORCH_CUDA_ARCH_LIST")
        named = sorted({arch.sm for arch, _ in _written_down(item, fixed)}, key=release)
        # nvcc lists plain numbers; what it makes of a letter is not in its list
        refused = [name for name in named if name not in toolkit.archs and name[-1].isdigit()]
        if not refused:
            continue
        obstacle = "does not compile"
        if any(release(name)[0] < min(numbers) for name in refused):
            obstacle = "no longer compiles"
        elif all(release(name)[0] > max(numbers) for name in refused):
            obstacle = "does not compile yet"
        names = ", ".join(refused)
        yield this.fail(
            f"{item.source.label} asks for {names}, which nvcc {toolkit.version} {obstacle}.",
            subject=item.path,
            evidence=(
                Evidence(file_of(item), " ".join(named), "its syntax tree"),
                Evidence(toolkit.root, " ".join(toolkit.archs), "nvcc --list-gpu-code"),
            ),
            remedy=(
                f"Remove {names} from {file_of(item)}. Or, on a copy:",
                context.install(item.source.folder),
            ),
        )


@check("setup-unreadable", "Build files of the extensions can be read")
def setup_unreadable(context: Context, this: Check) -> Iterator[Finding]:
    """A setup.py or pyproject.toml that is no Python or no TOML (a merge conflict left in it, a file of Python 2) cannot be
    built by anything. splatfix reads both as syntax and executes neither. Nor does pip build a folder whose setup.py calls
    setup() twice in one run: "More than one .egg-info directory found". install builds its packages one by one where their
    names and modules stand in its text."""
    for item in context.sources:
        if item.source.error:
            yield this.fail(
                f"{item.path}: {item.source.error}.",
                subject=item.path,
                evidence=Evidence(item.path, item.source.error, "parsed"),
                remedy="Repair that file, or check out the commit again.",
            )
        if not item.source.packages_apart:
            names = ", ".join(item.source.setups)
            yield this.fail(
                f"{item.path}: its setup.py calls setup() more than once in one run.",
                subject=item.path,
                evidence=Evidence(file_of(item), f"setup() of {names}", "its syntax tree"),
                remedy="Do what its README says, or give each package a folder and a setup.py.",
            )


def _build_cuda(context: Context) -> tuple[int, ...] | None:
    """The CUDA version a build here would use."""
    if context.build_toolkit is None:
        return context.torch_cuda
    return release(context.build_toolkit.version)[:2]


def _written_down(item: CheckoutSource, fixed: str | None) -> Iterator[tuple[Arch, bool]]:
    """Architectures that setup.py names in numbers, each with whether it means PTX."""
    named: list[tuple[str, bool]] = []
    for flag in item.source.nvcc_flags:
        for kind, number in re.findall(r"(?:code=\[?\"?|^-arch=)(sm|compute)_(\d+[af]?)", flag):
            named.append((f"sm_{number}", kind == "compute"))
    for number, plus in re.findall(r"(?<![^;\s])(\d+\.\d+[af]?)(\+PTX)?(?![^;\s])", fixed or ""):
        named.append((number, False))
        if plus:
            named.append((number, True))
    for name, ptx in named:
        arch = Arch.known(name)
        if arch:
            yield arch, ptx


def _serves(item: CheckoutSource, fixed: str | None, arch: Arch) -> bool:
    numbers = _written_down(item, fixed)
    return any(ptx_runs_on(own, arch) if ptx else cubin_runs_on(own, arch) for own, ptx in numbers)
