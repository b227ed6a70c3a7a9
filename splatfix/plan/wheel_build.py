"""The build of one source: who decides on architectures, its edits and variables, and how many compilers run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath

from msgspec import Struct
from msgspec.structs import replace

from splatfix.checks.build import MEMORY_PER_JOB
from splatfix.checks.checkout.cuda_code import bring
from splatfix.context import Context
from splatfix.context.architectures import TORCH_VARIABLE, ArchChoice, Decider, choose_archs, own_variables
from splatfix.context.commands import pip
from splatfix.context.installed import python_versions
from splatfix.core.errors import Rejected
from splatfix.core.step import say
from splatfix.core.versions import release
from splatfix.core.words import counted, few
from splatfix.facts import checkout as disk
from splatfix.facts import is_arch_variable
from splatfix.knowledge.breakages import breakage, cures_of_include
from splatfix.model import Considered, Facts, Source, Toolkit
from splatfix.model.steps import BuildWheel, PlannedEdit, Reason
from splatfix.plan.edits import Cures, edited, needed_cures
from splatfix.plan.tools import OWN_TOOLKIT, Tools, usable_headers, usable_torch

# Settings of other builds. They would silently change this one: flags for nvcc may carry an architecture, a path for
# Python another torch, and pip's own settings another destination.
_REMOVED = (
    *("TORCH_CUDA_ARCH_LIST", "CUDA_PATH", "CUDAHOSTCXX", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"),
    *("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "PYTORCH_NVCC"),
)


class Jobs(Struct, frozen=True):
    """How many compilers a build may run at once, and why."""

    count: int
    why: str


class Settings(Struct):
    """What a build is told in variables, and why."""

    variables: dict[str, str] = {}
    reasons: list[Reason] = []

    def decide(self, values: Mapping[str, str], why: str, source: str = "") -> None:
        self.variables.update(values)
        self.reasons += [Reason(f"{name}={value}: {why}", source) for name, value in values.items()]


def cuda_build(
    source: Source, context: Context, tools: Tools, jobs: Jobs
) -> tuple[BuildWheel, Considered] | Rejected:
    """Plan the build of a CUDA source, and say what else could have decided on its architectures."""
    decided = _archs_and_cures(source, context, tools)
    if isinstance(decided, Rejected):
        return decided
    archs, cures = decided
    build = _build(source, context, tools, _settings(context.facts, source, tools, archs, jobs), cures)
    if isinstance(build, Rejected):
        return build
    here = context.variables
    removed = [*_REMOVED, *filter(is_arch_variable, here), *source.switches.off]
    build = replace(
        build,
        # what declares C++ alone (an OptiX tracer) has no fatbin to look into
        targets=() if source.cpu_only else context.archs,
        cuda_mismatch=tools.mismatch,
        unset=tuple(name for name in removed if name in here and name not in build.variables),
        path_first=(*build.path_first, str(PurePath(tools.chosen.toolkit.nvcc or "nvcc").parent)),
    )
    if archs.decider is Decider.TORCH:
        reason = "torch would build for the GPUs it sees here, or stop"
        return build, Considered(f"leave {TORCH_VARIABLE} unset", reason)
    return build, Considered(f"set {TORCH_VARIABLE}", archs.why)


def plain_build(source: Source, context: Context, jobs: Jobs) -> BuildWheel | Rejected:
    """Plan the build of a source without CUDA code: whatever compiler is set up here will do."""
    for obstacle in (usable_torch(context, cuda=False), usable_headers(context.facts)):
        if source.uses_torch_builder and isinstance(obstacle, Rejected):
            return obstacle
    no_cuda = Reason("no CUDA code in it, so no toolkit and no GPU architecture play a part")
    settings = Settings(reasons=[no_cuda])
    settings.decide({"MAX_JOBS": str(jobs.count)}, jobs.why)
    return _build(source, context, None, settings, Cures())


def _build(
    source: Source, context: Context, tools: Tools | None, settings: Settings, cures: Cures
) -> BuildWheel | Rejected:
    """Plan a build in this environment, with what its scratch copy asks for: what is copied beside the source, edits."""
    downloads = _downloads(source, context.facts, tools, cures.edits)
    if isinstance(downloads, Rejected):
        return downloads
    folder, reasons = Path(source.folder), settings.reasons
    repository = disk.repository_of(folder)
    copied = ""
    if repository != folder:
        copied = str(repository)
        reasons.append(Reason(f"copies {repository}: its build reads files above {folder}"))
    if "setup.py" in source.build_files:
        reasons.append(Reason("sources and flags: known once setup.py is asked, before anything is compiled"))
    if source.version_from_git:
        commit = disk.commit_of(next(filter(None, map(disk.git_folder, (folder, *folder.parents))), None))
        version = "0"
        if commit:
            version = f"0+g{commit[:9]}"
        reason = "setuptools-scm asks git for the version, and the scratch copy has no git folder"
        settings.decide({"SETUPTOOLS_SCM_PRETEND_VERSION": version}, reason)
    reasons += [Reason(f"its build downloads {address}", "its text") for address in downloads]
    for record in cures.by_variables:
        settings.decide(record.variables, record.symptom, "; ".join(record.sources))
    reasons += [Reason(f"edit {edit.rule}: {edit.cures}", edit.source) for edit in cures.edits]
    assert context.interpreter is not None, "it is usable"
    return BuildWheel(
        subject=source.label,
        source=source.folder,
        repository=copied,
        setup_call=source.setup_call,
        variables=settings.variables,
        path_first=(str(PurePath(context.interpreter.executable).parent),),
        edits=cures.edits,
        downloads=downloads,
        reasons=tuple(reasons),
    )


def _archs_and_cures(source: Source, context: Context, tools: Tools) -> tuple[ArchChoice, Cures] | Rejected:
    """Tell who decides on architectures, and the cures needed; what setup.py decides itself is edited away where it is wrong."""
    waits = waits_for_gpu(source, context)
    if isinstance(waits, Rejected):
        return waits
    versions = dict(python_versions(context.facts))
    # breakages of the C++ standard library come with g++, whoever calls it
    if not isinstance(tools.compilers, Rejected) and "g++" in Path(tools.compilers.cxx).name:
        versions["gcc"] = release(tools.compilers.version)[:2]
    versions |= {"cuda": tools.chosen.version[:2], "torch": release(tools.torch.version)[:2]}
    if archs := tools.chosen.build_archs:
        versions["arch"] = divmod(min(arch.number for arch in archs), 10)
    texts = dict(disk.source_texts(Path(source.folder)))
    needed = partial(needed_cures, source, texts, versions, context.machine.system, gpu_missing=waits)
    by = (tools.chosen.build_archs, tools.torch.version, tools.chosen.ptx)
    cures, choice = needed(), choose_archs(source, *by)
    if isinstance(cures, Rejected):
        return cures
    if isinstance(choice, ArchChoice) and choice.decider is not Decider.COMPUTED:
        return choice, cures
    # setup.py has numbers of its own that leave a target out, or computes them: without them torch would decide
    without = needed(arch_missing=True)
    if isinstance(without, Rejected):
        return without
    if any("setup.py" in edit.files for edit in without.edits):
        text = edited("setup.py", texts["setup.py"], without.edits)
        without_numbers = choose_archs(disk.read_source(Path(source.folder), text), *by)
        if isinstance(without_numbers, Rejected):
            return without_numbers
        if without_numbers.decider is Decider.TORCH:
            reason = "an edit takes the architectures out of its setup.py, so torch decides, and torch reads this variable"
            return replace(without_numbers, why=reason), without
    if isinstance(choice, Rejected):
        return choice
    return choice, cures


def waits_for_gpu(source: Source, context: Context) -> bool | Rejected:
    """Tell whether an edit has to make this build compile its CUDA code, as no GPU is in sight; rejected where none does."""
    # a variable that changes that is set
    waits = source.switches.by_gpu and not source.switches.on
    if not waits or context.has_working_gpu is True:
        return False
    find = breakage("gpu-at-build").find
    assert find is not None
    is_edited = find.find(dict(disk.source_texts(Path(source.folder))).get("setup.py", ""))
    # told that there is a GPU it would ask which, and fail; one that is told the architectures need not ask
    asks_which = source.switches.asks_gpu and not own_variables(source)
    if not asks_which and is_edited:
        return True
    return Rejected.of("plan.gpu-needed-to-build", source_label=source.label, source_folder=source.folder)


def _downloads(
    source: Source, facts: Facts, tools: Tools | None, edits: Sequence[PlannedEdit]
) -> dict[str, str] | Rejected:
    """Return the addresses that a build downloads what is not here from, each with the package that spares that. Reject what the
    compiler would, or CMake: headers that nothing here has, and no edit takes out; without CUDA code those of the system."""
    rules = {edit.rule for edit in edits}
    lacking, downloads = [], {}
    for item in disk.missing_headers_of(source, facts):
        if item.address:
            downloads[item.address] = item.package
            continue
        owner_lacks = bool(item.package or item.clone)
        if tools:
            # what no toolkit is named for is torch's; a toolkit that is yet to be unpacked is not among them
            owner_lacks = not item.toolkits or tools.chosen.toolkit.root in item.toolkits
        if owner_lacks and not rules.intersection(cures_of_include(item.header)):
            lacking.append(item)
    if not lacking:
        return downloads
    first, cures = lacking[0], bring(lacking)
    if not all(item.package or item.clone for item in lacking):
        cures.append(say("Install the part that holds them, or use a version that does."))
    if first.package or first.clone or tools is None:
        owner = "this system"
    elif first.toolkits:
        owner = f"CUDA {tools.cuda} in {tools.chosen.toolkit.root}"
    else:
        owner = f"torch {tools.torch.version}"
    return Rejected.of(
        "plan.headers-missing",
        todo=(*cures, say("Or check out a version of the source that does without.")),
        label=source.label,
        names=[item.header for item in lacking],
        owner=owner,
        place=f"{first.file} line {first.line}",
    )


def compiled_later(source: Source, context: Context) -> tuple[str, ...] | Rejected:
    """Say what CUDA code is compiled only at its import or first run; rejected where the machine lacks what its import needs."""
    if source.modules:
        return ()
    uses = disk.compiled_at_first_use(Path(source.folder))
    if not uses:
        return ()
    newest, lines = max(uses, key=lambda use: release(use.cmake)), few([item.place for item in uses])
    text = f"no build compiles the CUDA code of {source.label}: {newest.builder} does when it first runs, in {lines}"
    lacking = []
    cmake = context.machine.tools.get("cmake", "none")
    if release(cmake) < release(newest.cmake):
        lacking.append(f"CMake on PATH: {cmake}")
    if context.machine.toolkits.value == ():
        lacking.append("CUDA toolkits here: none")
    # where it is yet to be installed, it brings a CMake of its own
    if newest.cmake and lacking and context.version_of("charonload"):
        by_pip = "CMake by pip, in an environment that is activated"
        todo = (
            pip(context.facts, "install", f"cmake>={newest.cmake}", text=by_pip),
            say("CUDA by a toolkit whose nvcc is on PATH; splatfix diagnose says which fits this torch."),
        )
        return Rejected.of("plan.compiled-at-import", todo=todo, text=text, lacking="; ".join(lacking))
    return (text,)


def _settings(facts: Facts, source: Source, tools: Tools, archs: ArchChoice, jobs: Jobs) -> Settings:
    """Decide everything a build needs to know, in variables, so that nothing is left to what happens to be set; and why."""
    toolkit, compilers = tools.chosen.toolkit, tools.compilers
    assert not isinstance(compilers, Rejected), "it was rejected before"
    settings = Settings()
    decide, variables, reasons = settings.decide, settings.variables, settings.reasons
    # its real root: torch would take the folder above the first nvcc on PATH, which may be a wrapper script
    decide({"CUDA_HOME": toolkit.root}, tools.chosen.why)
    variables |= {"CC": compilers.cc, "CXX": compilers.cxx}
    reasons.append(Reason(f"CC={compilers.cc}, CXX={compilers.cxx}: {compilers.why}"))
    decide({"MAX_JOBS": str(jobs.count)}, jobs.why)
    decide(archs.variables, archs.why)
    switches, by_setup = source.switches, "setup.py"
    decide(switches.on, "its setup.py compiles CUDA code then, also where no GPU is in sight", by_setup)
    decide(switches.also, "its setup.py compiles nothing of its own without it", by_setup)
    # folders that the compilers must search too
    headers = {}
    if toolkit.found_via == OWN_TOOLKIT:
        # nvcc finds CCCL through nvcc.profile, the host compiler does not
        headers[f"{toolkit.root}/include/cccl"] = "the wheels keep cub and thrust in a folder of their own"
    if borrowed := dict.fromkeys(toolkit.elsewhere.values()):
        short = ", ".join(f"include/{header}" for header in toolkit.elsewhere)
        headers[os.pathsep.join(borrowed)] = f"headers that the toolkit lacks ({short})"
    for folder, why in headers.items():
        decide({"CPATH": folder}, why)
    cached, why_cached = compiler_cache(facts, toolkit, source)
    variables |= cached
    reasons += why_cached
    if headers:
        # what the user has there is searched after what the build cannot do without
        theirs = facts.machine.variables.get("CPATH", "")
        variables["CPATH"] = os.pathsep.join(filter(None, [*headers, theirs]))
    if not archs.variables:
        reasons.append(Reason(archs.why))
    return settings


def compiler_cache(facts: Facts, toolkit: Toolkit, source: Source) -> tuple[dict[str, str], list[Reason]]:
    """Return variables that put a compiler cache of this machine in front of nvcc and the C++ compiler, and why.

    Torch's builder takes the nvcc to call from PYTORCH_NVCC, and only when it builds with ninja (torch/utils/
    cpp_extension.py, _write_ninja_file); CMake takes launchers from variables of its own (CMake 3.17).
    """
    # ccache first: it needs no server, and knows nvcc's -MD
    program = next((name for name in ("ccache", "sccache") if name in facts.machine.tools), None)
    if program is None or facts.machine.system == "windows":
        return {}, []
    version = facts.machine.tools[program]
    if source.uses_torch_builder:
        nvcc = f"{program} {toolkit.nvcc or f'{toolkit.root}/bin/nvcc'}"
        text = f"PYTORCH_NVCC={nvcc}: {program} {version} is here; what it has compiled before is not compiled again"
        of_cxx = f"CXX is called through {program} too, by a script of its name in the scratch folder"
        variables = {"PYTORCH_NVCC": nvcc}
        if program == "sccache":
            # torch's own comment there: sccache does not support nvcc's -MD
            variables["TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES"] = "1"
        return variables, [Reason(text, "PATH"), Reason(of_cxx)]
    if "CMakeLists.txt" not in source.build_files:
        return {}, []
    text = f"CMAKE_*_COMPILER_LAUNCHER={program}: {program} {version} is here"
    launchers = {f"CMAKE_{language}_COMPILER_LAUNCHER": program for language in ("C", "CXX", "CUDA")}
    return launchers, [Reason(text, "PATH")]


def job_count(facts: Facts) -> Jobs:
    """Tell how many compilers may run at once, from cores and free memory."""
    resources = facts.machine.resources
    cores = resources.cores or os.cpu_count() or 1
    available = resources.memory_available
    if available is None:
        return Jobs(cores, f"{counted(cores, 'core')}; free memory is not known")
    by_memory = max(1, available // MEMORY_PER_JOB)
    text = f"{counted(cores, 'core')}, {available / 2**30:.1f} GiB of memory free, {MEMORY_PER_JOB / 2**30:.1f} GiB for each job"
    return Jobs(min(cores, by_memory), text)


def share_jobs(total: Jobs, sources: Sequence[Source]) -> list[Jobs]:
    """Share out among several builds the compilers that may run at once: by the number of files, never more than a build has, and
    at least one (it waits until an earlier build has ended, where none is left)."""
    # files that are compiled one by one, as far as setup.py names them; 0 of what compiles nothing
    files = []
    for source in sources:
        built = source.uses_torch_builder or "CMakeLists.txt" in source.build_files
        compiles = built or source.modules or source.needs_cuda
        files.append((len(source.files) or total.count) if compiles else 0)
    shares, free = [], total.count
    for index, count in enumerate(files):
        share = total
        if not count:
            share = Jobs(1, "it compiles nothing")
        elif sum(map(bool, files)) > 1:
            fair = round(free * count / sum(files[index:]))
            share = Jobs(max(1, min(count, fair)), f"its share of {total.count} ({total.why})")
            free = max(0, free - share.count)
        shares.append(share)
    return shares
