"""The build of one source: who decides on architectures, which edits it needs, which variables it gets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath

from msgspec.structs import replace

from splatfix.checks.checkout.cuda_code import bring
from splatfix.context import Context
from splatfix.context.architectures import ArchChoice, Decider, choose_archs, own_variables
from splatfix.context.commands import pip
from splatfix.context.installed import python_versions
from splatfix.context.requirements import version_of
from splatfix.core.errors import Rejected
from splatfix.core.step import say
from splatfix.core.versions import release
from splatfix.core.words import few
from splatfix.facts.checkout import (
    commit_of,
    compiled_at_first_use,
    git_folder,
    missing_headers_of,
    read_source,
    repository_of,
    source_texts,
)
from splatfix.knowledge.breakages import breakage, cures_of_include
from splatfix.model import Considered, Facts, Interpreter, Source
from splatfix.model.steps import BuildWheel, PlannedEdit, Reason
from splatfix.plan.build_environment import Jobs, build_environment, variables_removed
from splatfix.plan.edits import BuildConditions, Cures, edited, needed_cures
from splatfix.plan.requirements import usable_headers, usable_torch
from splatfix.plan.tools import Tools


def cuda_build(
    source: Source, context: Context, tools: Tools, jobs: Jobs
) -> tuple[BuildWheel, Considered] | Rejected:
    """Plan the build of a CUDA source, and say what else could have decided on its architectures."""
    assert tools.compilers is not None
    decided = _archs_and_cures(source, context, tools)
    if isinstance(decided, Rejected):
        return decided
    archs, cures = decided
    downloads = _downloads(source, context.facts, tools, cures.edits)
    if isinstance(downloads, Rejected):
        return downloads
    variables, reasons = build_environment(context.facts, source, tools.chosen, tools.compilers, archs, jobs)
    repository, of_copy, copy_reasons = _copy_of(source, downloads)
    reasons += copy_reasons
    variables |= of_copy
    for record in cures.by_variables:
        for name, value in record.variables.items():
            variables[name] = value
            reasons.append(Reason(f"{name}={value}: {record.symptom}", "; ".join(record.sources)))
    reasons += [Reason(f"edit {edit.rule}: {edit.cures}", edit.source) for edit in cures.edits]
    interpreter, toolkit = context.facts.environment.interpreter.value, tools.chosen.toolkit
    assert interpreter is not None
    build = BuildWheel(
        subject=source.label,
        source=source.folder,
        repository=repository,
        setup_call=source.setup_call,
        # what declares C++ alone (an OptiX tracer) has no fatbin to look into
        targets=() if source.cpu_only else context.archs,
        cuda_mismatch=tools.mismatch,
        variables=variables,
        unset=tuple(name for name in variables_removed(context.facts, source) if name not in variables),
        path_first=(
            str(PurePath(interpreter.executable).parent),
            str(PurePath(toolkit.nvcc or "nvcc").parent),
        ),
        edits=cures.edits,
        downloads=downloads,
        reasons=tuple(reasons),
    )
    if archs.decider is Decider.TORCH:
        reason = "torch would build for the GPUs it sees here, or stop"
        return build, Considered("leave TORCH_CUDA_ARCH_LIST unset", reason)
    return build, Considered("set TORCH_CUDA_ARCH_LIST", archs.why)


def _archs_and_cures(source: Source, context: Context, tools: Tools) -> tuple[ArchChoice, Cures] | Rejected:
    """Tell who decides on architectures, and the cures needed; what setup.py decides itself is edited away where it is wrong."""
    waits = waits_for_gpu(source, context)
    if isinstance(waits, Rejected):
        return waits
    versions = dict(python_versions(context.facts))
    # breakages of the C++ standard library come with g++, whoever calls it
    if tools.compilers and "g++" in Path(tools.compilers.cxx).name:
        versions["gcc"] = release(tools.compilers.version)[:2]
    versions |= {"cuda": tools.chosen.version[:2], "torch": release(tools.torch.version)[:2]}
    if archs := tools.chosen.build_archs:
        versions["arch"] = divmod(min(arch.number for arch in archs), 10)
    conditions = BuildConditions(versions, context.machine.system, gpu_missing=waits)
    texts = dict(source_texts(Path(source.folder)))
    by = (tools.chosen.build_archs, tools.torch.version, tools.chosen.ptx)
    cures, choice = needed_cures(source, texts, conditions), choose_archs(source, *by)
    if isinstance(cures, Rejected):
        return cures
    if isinstance(choice, ArchChoice) and choice.decider is not Decider.COMPUTED:
        return choice, cures
    # setup.py has numbers of its own that leave a target out, or computes them: without them torch would decide
    without = needed_cures(source, texts, replace(conditions, arch_missing=True))
    if isinstance(without, Rejected):
        return without
    if any("setup.py" in edit.files for edit in without.edits):
        text = edited("setup.py", texts["setup.py"], without.edits)
        without_numbers = choose_archs(read_source(Path(source.folder), text), *by)
        if isinstance(without_numbers, Rejected):
            return without_numbers
        if without_numbers.decider is Decider.TORCH:
            reason = "an edit takes the architectures out of its setup.py, so torch decides, and torch reads this variable"
            return replace(without_numbers, why=reason), without
    if isinstance(choice, Rejected):
        return choice
    return choice, cures


def waits_for_gpu(source: Source, context: Context) -> bool | Rejected:
    """Tell whether a build would compile none of its CUDA code here for want of a GPU in sight, which an edit changes; rejected
    where no edit does."""
    # a variable that changes that is set
    waits = source.switches.by_gpu and not source.switches.on
    if not waits or context.has_working_gpu is True:
        return False
    find = breakage("gpu-at-build").find
    assert find is not None
    is_edited = find.find(dict(source_texts(Path(source.folder))).get("setup.py", ""))
    # told that there is a GPU it would ask which, and fail; one that is told the architectures need not ask
    asks_which = source.switches.asks_gpu and not own_variables(source)
    if not asks_which and is_edited:
        return True
    return Rejected.of("plan.gpu-needed-to-build", source_label=source.label, source_folder=source.folder)


def _downloads(
    source: Source, facts: Facts, tools: Tools | None, edits: Sequence[PlannedEdit] = ()
) -> dict[str, str] | Rejected:
    """Reject what the compiler would, or CMake: headers that nothing here has, and no edit takes out.

    Args:
        tools: None for a source without CUDA code, which needs no more than the system's packages.

    Returns:
        Addresses that the build downloads what is not here from, each with the package that spares that.
    """
    rules = {edit.rule for edit in edits}
    lacking, downloads = [], {}
    for item in missing_headers_of(source, facts):
        if item.address:
            downloads[item.address] = item.package
            continue
        if tools is None:
            owner_lacks = bool(item.package or item.clone)
        else:
            # what no toolkit is named for is torch's; a toolkit that is yet to be unpacked is not among them
            owner_lacks = not item.toolkits or tools.chosen.toolkit.root in item.toolkits
        if owner_lacks and not rules.intersection(cures_of_include(item.header)):
            lacking.append(item)
    if not lacking:
        return downloads
    names = ", ".join(item.header for item in lacking)
    first = lacking[0]
    cures = bring(lacking)
    if not all(item.package or item.clone for item in lacking):
        cures.append(say("Install the part that holds them, or use a version that does."))
    if first.package or first.clone or tools is None:
        owner = "this system"
    elif first.toolkits:
        owner = f"CUDA {tools.cuda} in {tools.chosen.toolkit.root}"
    else:
        owner = f"torch {tools.torch.version}"
    without = say("Or check out a version of the source that does without.")
    return Rejected.of(
        "plan.headers-missing",
        todo=(*cures, without),
        label=source.label,
        names=names,
        owner=owner,
        place=f"{first.file} line {first.line}",
    )


def plain_build(source: Source, context: Context, python: Interpreter, jobs: Jobs) -> BuildWheel | Rejected:
    """Plan the build of a source without CUDA code: whatever compiler is set up here will do."""
    if source.uses_torch_builder:
        torch, no_headers = usable_torch(context, cuda=False), usable_headers(context.facts)
        if isinstance(torch, Rejected):
            return torch
        if no_headers:
            return no_headers
    downloads = _downloads(source, context.facts, None)
    if isinstance(downloads, Rejected):
        return downloads
    repository, of_copy, copy_reasons = _copy_of(source, downloads)
    no_cuda = Reason("no CUDA code in it, so no toolkit and no GPU architecture play a part")
    return BuildWheel(
        subject=source.label,
        source=source.folder,
        repository=repository,
        setup_call=source.setup_call,
        variables={**jobs.variables, **of_copy},
        path_first=(str(Path(python.executable).parent),),
        downloads=downloads,
        reasons=(no_cuda, Reason(f"MAX_JOBS={jobs.count}: {jobs.why}"), *copy_reasons),
    )


def compiled_later(source: Source, facts: Facts) -> tuple[str, ...] | Rejected:
    """Give the sentence for CUDA code that no build compiles, which it is when it is imported or first runs; () for none.

    Rejected where the machine lacks what its import needs.
    """
    if source.modules:
        return ()
    uses = compiled_at_first_use(Path(source.folder))
    if not uses:
        return ()
    newest, lines = max(uses, key=lambda use: release(use.cmake)), few([item.place for item in uses])
    cmake = newest.cmake
    text = f"no build compiles the CUDA code of {source.label}: {newest.builder} does when it first runs, in {lines}"
    lacking = []
    here = facts.machine.tools.get("cmake", "none")
    if release(here) < release(cmake):
        lacking.append(f"CMake on PATH: {here}")
    if facts.machine.toolkits.value == ():
        lacking.append("CUDA toolkits here: none")
    # where it is yet to be installed, it brings a CMake of its own
    if cmake and lacking and version_of(facts, "charonload") is not None:
        todo = (
            pip(
                facts, "install", f"cmake>={cmake}", text="CMake by pip, in an environment that is activated"
            ),
            say("CUDA by a toolkit whose nvcc is on PATH; splatfix diagnose says which fits this torch."),
        )
        return Rejected.of("plan.compiled-at-import", todo=todo, text=text, lacking="; ".join(lacking))
    return (text,)


def _copy_of(source: Source, downloads: Iterable[str]) -> tuple[str, dict[str, str], list[Reason]]:
    """Tell what the scratch copy asks of a build: what is copied beside the source itself ("" for nothing), variables, why."""
    folder = Path(source.folder)
    repository = repository_of(folder)
    reasons, copied = [], ""
    if repository != folder:
        copied = str(repository)
        reasons.append(Reason(f"copies {repository}: its build reads files above {folder}"))
    if "setup.py" in source.build_files:
        reasons.append(Reason("sources and flags: known once setup.py is asked, before anything is compiled"))
    variables = {}
    if source.version_from_git:
        around = (git_folder(path) for path in (folder, *folder.parents))
        commit = commit_of(next((git for git in around if git), None))
        version = "0"
        if commit:
            version = f"0+g{commit[:9]}"
        variables["SETUPTOOLS_SCM_PRETEND_VERSION"] = version
        reason = "setuptools-scm asks git for the version, and the scratch copy has no git folder"
        reasons.append(Reason(f"SETUPTOOLS_SCM_PRETEND_VERSION={version}: {reason}"))
    reasons += [Reason(f"its build downloads {address}", "its text") for address in downloads]
    return copied, variables, reasons
