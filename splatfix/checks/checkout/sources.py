"""Checks of the extension sources inside a checkout: whether they compile here, for which GPUs, and how pip builds them."""

import re
from collections.abc import Iterator

from splatfix.checks.evidence import file_of, torch_version
from splatfix.checks.registry import Check, Wording, Words, checks_of
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


@check("build-isolation-enabled", done_by_install=True)
def build_isolation_enabled(context: Context, this: Check) -> Iterator[Finding]:
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
        remedy = []
        for item in apart:
            named = " ".join(item.source.build_requires) or "not there"
            evidence.append(Evidence(file_of(item, "pyproject.toml"), named, "build-system.requires"))
            remedy.append(pip(context.facts, "install", "--no-build-isolation", item.source.folder))
        names = ", ".join(item.source.label for item in apart)
        yield this.warn(evidence=evidence, remedy=remedy, builder=builder, names=names, torch=torch)
    elif waiting:
        yield this.ok(evidence=evidence, builder=builder, sources=counted(len(waiting), "source"))


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


@check("msvc-std-ambiguous")
def msvc_std_ambiguous(context: Context, this: Check) -> Iterator[Finding]:
    torch, record = context.torch, breakage("msvc-std-ambiguous")
    if torch is None or context.build_toolkit is None:
        return
    if not record.when.holds({"torch": release(torch.version)[:2]}, context.machine.system):
        return
    for item in context.sources_to_build:
        flags = " ".join(item.source.nvcc_flags)
        if item.source.uses_torch_builder and "USE_CUDA" not in flags:
            setup = Evidence(f"{item.path}/setup.py", flags or "no nvcc flags")
            evidence = (torch_version(context), setup)
            yield this.warn(subject=item.path, evidence=evidence, label=item.source.label, torch=torch)


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
            if match is not None:
                yield this.finding(
                    Status(text.status),
                    subject=item.path,
                    evidence=Evidence(
                        f"{file_of(item, match.file)}:{match.line}", match.text, "read as text"
                    ),
                    source=item.source.label,
                    cause=cause,
                    file=match.file,
                    line=match.line,
                    cure=record.cure,
                    install=context.install(item.source.folder),
                )

    remedy = ("In the source: {cure}. Or let splatfix do it on a copy:", "{install}")
    check(text.code, Wording(text.title, text.page, {text.status: Words(text.summary, remedy)}))(look)


for _record in breakages():
    if _record.check and not _record.uses:
        _register(_record, _record.check)


@check("cxx-standard-forced")
def cxx_standard_forced(context: Context, this: Check) -> Iterator[Finding]:
    torch, cuda = context.torch, _build_cuda(context)
    if torch is None:
        return
    version, needed = release(torch.version)[:2], 14
    for year in (17, 20):
        if breakage(f"cxx-standard-{year}").when.holds({"torch": version}):
            needed = year
    for item in context.sources_to_build:
        for flag in item.cxx_flags:
            match = re.search(r"(?:c|gnu)\+\+(\w+)", flag)
            standard = _STANDARDS.get(match[1]) if match else None  # 17 of ``-std=c++1z``
            if standard is None:
                continue
            evidence = [Evidence(file_of(item), flag, "its syntax tree"), torch_version(context)]
            if standard < needed:
                # torch 2.13 has C++20 in its headers, the #error that refuses C++17 outright comes with 2.14
                report = this.fail if standard < 17 or version >= (2, 14) else this.warn
                case = "too-old"
            elif standard >= 20 and cuda is not None and cuda < (12, 0):
                report, case = this.fail, "unknown-to-nvcc"
                evidence.append(Evidence("nvcc", dotted(cuda)))
            else:
                continue
            yield report(
                case,
                subject=item.path,
                evidence=evidence,
                label=item.source.label,
                flag=flag,
                torch=torch,
                needed=needed,
                cuda=dotted(cuda or ()),
                file=file_of(item),
                install=context.install(item.source.folder),
            )


@check("arch-list-ignored")
def arch_list_ignored(context: Context, this: Check) -> Iterator[Finding]:
    # without a torch by the rules of a recent one, which is what will be installed
    version = context.torch_version or "2.9"
    for item in context.sources_to_build:
        choice = choose_archs(item.source, context.archs, version)
        if isinstance(choice, ArchChoice) and choice.decider is Decider.TORCH:
            continue
        flags, fixed = item.source.nvcc_flags, item.source.sets.get("TORCH_CUDA_ARCH_LIST")
        shown = arch_flags_switched_off(flags, version) or f"TORCH_CUDA_ARCH_LIST={fixed or '...'}"
        own, name, remedy = own_choice(item.source, context.archs, version), "setup.py", None
        if own is not None:
            name = own[0].name
        unserved = [target for target in context.targets if not _serves(item, fixed, target.arch)]
        asks_for_gpu = item.source.switches.asks_gpu or "-arch=" in "".join(flags)
        seen_at_build = context.nvidia_gpus and not context.goal.targets and asks_for_gpu
        if own and unserved and not seen_at_build and not context.variables.get(name):
            report, remedy = this.warn, set_variable(name, own[1])
        elif own or seen_at_build or (context.targets and not unserved):
            report = this.ok
        elif unserved:
            report = this.fail
        else:
            report = this.skip
        yield report(
            subject=item.path,
            evidence=Evidence(file_of(item), shown, "its syntax tree"),
            remedy=remedy,
            label=item.source.label,
            name=name,
            unserved=unserved,
            install=context.install(item.source.folder),
        )


@check("arch-in-path")
def arch_in_path(context: Context, this: Check) -> Iterator[Finding]:
    for item in context.sources_to_build:
        if item.own_path_in_flags and "arch" in item.source.folder:
            yield this.fail(
                subject=item.path,
                evidence=Evidence(file_of(item), f"-I{item.source.folder}/...", "its syntax tree"),
                label=item.source.label,
                install=context.install(item.source.folder),
            )


@check("toolkit-dropped-arch")
def toolkit_dropped_arch(context: Context, this: Check) -> Iterator[Finding]:
    toolkit = context.build_toolkit
    if toolkit is None or not toolkit.archs:
        return
    for item in context.sources_to_build:
        if any("-arch=" in flag for flag in item.source.nvcc_flags):
            continue  # it chooses architectures by itself; the numbers are a fallback that is not used here
        fixed = item.source.sets.get("TORCH_CUDA_ARCH_LIST")
        named = sorted({arch.sm for arch, _ in _written_down(item, fixed)}, key=release)
        # nvcc lists plain numbers; what it makes of a letter is not in its list
        refused = [name for name in named if name not in toolkit.archs and name[-1].isdigit()]
        if not refused:
            continue
        yield this.fail(
            subject=item.path,
            evidence=(
                Evidence(file_of(item), " ".join(named), "its syntax tree"),
                Evidence(toolkit.root, " ".join(toolkit.archs), "nvcc --list-gpu-code"),
            ),
            label=item.source.label,
            names=", ".join(refused),
            toolkit=toolkit,
            file=file_of(item),
            install=context.install(item.source.folder),
        )


@check("setup-unreadable")
def setup_unreadable(context: Context, this: Check) -> Iterator[Finding]:
    for item in context.sources:
        if item.source.error:
            evidence = Evidence(item.path, item.source.error, "parsed")
            yield this.fail(subject=item.path, evidence=evidence, item=item)
        if not item.source.packages_apart:
            names = ", ".join(item.source.setups)
            evidence = Evidence(file_of(item), f"setup() of {names}", "its syntax tree")
            yield this.fail("several-setups", subject=item.path, evidence=evidence, item=item)


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
