"""Compile the extensions: with an installed toolkit, with PTX for a newer GPU, or with a toolkit that comes first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from splatfix.context import Context
from splatfix.context.commands import sources_of
from splatfix.context.submodules import FETCH
from splatfix.core.errors import Rejected
from splatfix.core.step import Step, target_options
from splatfix.knowledge import cubin_runs_on
from splatfix.model import Considered, Torch
from splatfix.model.option import OptionKind, Plan
from splatfix.model.steps import BuildWheel, FetchWheel, ProvideToolkit, Reason
from splatfix.plan.backends.ready import why_prebuilt
from splatfix.plan.case import Case, installation, names_of_archs, not_applicable
from splatfix.plan.dependencies import plan_dependencies
from splatfix.plan.tools import (
    Tools,
    tools_by_hand,
    tools_for_request,
    tools_from_wheels,
    tools_here,
    usable_python,
)
from splatfix.plan.wheel_build import Jobs, compiled_later, cuda_build, job_count, plain_build, share_jobs

# Where the tools of each kind of build come from, and the option of ``splatfix install`` that asks for it.
_TOOLS: dict[OptionKind, tuple[Callable[[Context, Torch], Tools | Rejected], tuple[str, ...]]] = {
    OptionKind.REBUILD: (tools_here, ()),
    OptionKind.REBUILD_PTX: (partial(tools_here, ptx=True), ("--ptx",)),
    OptionKind.PROVIDE_TOOLKIT: (tools_from_wheels, ("--provide-toolkit",)),
    OptionKind.INSTALL_TOOLKIT: (tools_by_hand, ()),
}


def native(case: Case, kind: OptionKind) -> Plan | Rejected:
    """Compile with the tools of that kind; a missing host compiler is the user's to install first."""
    against, unsure = case.torch_obstacles()
    if case.kept and len(case.kept) == len(case.parts):
        against.append(f"{', '.join(case.kept)} must not change (--keep)")
    torch = case.context.torch
    if against or torch is None:
        return not_applicable(*against)
    here: Tools | Rejected | None = None
    if kind in (OptionKind.PROVIDE_TOOLKIT, OptionKind.INSTALL_TOOLKIT):
        # the tools of this machine may lack only a compiler
        here = tools_here(case.context, torch)
        if isinstance(here, Tools) and not here.before:
            return not_applicable("not needed: a toolkit that fits is here")
        toolkits = case.context.machine.toolkits
        if toolkits.value is None:
            fits = "one that fits would make this unnecessary"
            unsure.append(f"which toolkits are here ({toolkits.error}); {fits}")
    find_tools, options = _TOOLS[kind]
    tools = find_tools(case.context, torch)
    if isinstance(tools, Rejected):
        return tools
    if isinstance(here, Tools) and tools.manual > here.manual:
        only = "the installed toolkit fits; only a host compiler is missing"
        return not_applicable(f"{only}, which another toolkit would need too")
    reasons = tools.reasons
    if kind is OptionKind.REBUILD_PTX:
        ptx, own = tools.chosen.ptx, tools.chosen.build_archs
        if ptx is None:
            return not_applicable(f"not needed: CUDA {tools.cuda} here makes machine code for {case.names}")
        # a GPU newer than the toolkit: machine code of an older major does not load there, PTX does
        newer = [arch for arch in case.context.archs if not any(cubin_runs_on(old, arch) for old in own)]
        why_ptx = (
            f"CUDA {tools.cuda} does not support {names_of_archs(newer)}, and {ptx.sm} machine code does not load "
            f"there (it runs within one major only), so {ptx.compute} PTX is embedded"
        )
        reasons = (Reason(why_ptx), *reasons)
        unsure += filter(None, [tools.chosen.unsure])
    return case.make_option(kind, build_steps(case, tools, *options), reasons, unsure)


def build_steps(case: Case, tools: Tools, *options: str, everything: bool = False) -> tuple[Step, ...]:
    """List the steps that get the tools, compile by a command with these options, and confirm the result; with ``everything``
    also of what serves the targets already, because the torch below it changes."""
    # a drop-in runs as it is, unless another variant is meant
    ours = [part for part in case.parts if part.name not in case.kept and (part.unfit or not part.dropin)]
    # those that are not there, cannot be used, or lack code for a target; or all where none is known to
    lacking = []
    for part in ours:
        unusable = not part.installed or part.error or part.unfit
        verdicts = (case.code_serves(part.code, arch).ok for arch in case.context.archs)
        if not everything and (unusable or (not part.anywhere and False in verdicts)):
            lacking.append(part)
    names = tuple(part.name for part in lacking or ours)
    sources = case.sources.named or sources_of(case.context.facts, names) or ("SOURCE",)
    if case.sources.fetch:
        options = (*options, FETCH)
    targets = case.context.archs
    command = case.splatfix("install", *sources, *target_options(targets), *options)
    last: tuple[Step, ...] = (case.confirm(),)
    built_from = [case.sources.built_from.get(name) for name in names]
    if names and all(source and not source.needs_cuda for source in built_from):
        targets, last = (), ()
    arch_list = [arch.cc for arch in dict.fromkeys(tools.chosen.build_archs)]
    if tools.chosen.ptx:
        arch_list.append(f"{tools.chosen.ptx.cc}+PTX")
    variables = {"TORCH_CUDA_ARCH_LIST": ";".join(arch_list)}
    # where a toolkit or compiler is installed first, its path is not known yet
    if not tools.toolkit_steps:
        variables["CUDA_HOME"] = tools.chosen.toolkit.root
    if not isinstance(tools.compilers, Rejected):
        variables["CXX"] = tools.compilers.cxx
    build = BuildWheel(
        command=command,
        subjects=names,
        first=case.nothing_installed,
        targets=targets,
        cuda=tools.cuda,
        variables=variables,
    )
    return (*case.sources.prepare, *tools.before, build, *last)


def build_sources(case: Case) -> Plan | Rejected:
    """Build, verify and install the sources that were read, each or its prebuilt wheel: what ``install`` executes."""
    context, request, prebuilt = case.context, case.request, case.prebuilt or {}
    sources = tuple(case.sources.built_from.values())
    to_build = tuple(source for source in sources if source.label not in prebuilt)
    python = usable_python(context.facts)
    if isinstance(python, Rejected):
        return python
    tools: Tools | None = None
    considered: list[Considered] = []
    notes = list(case.sources.notes)
    if any(source.needs_cuda for source in to_build):
        answer = tools_for_request(request, context)
        if isinstance(answer, Rejected):
            return answer
        tools = answer
        considered += [*tools.rejected, *_torch_own_choice(context, tools)]
    jobs = job_count(context.facts)
    if request.jobs:
        jobs = Jobs(request.jobs, "as asked")
    builds: list[BuildWheel] = []
    for source, share in zip(to_build, share_jobs(jobs, to_build), strict=True):
        if tools and source.needs_cuda:
            made = cuda_build(source, context, tools, share)
            if isinstance(made, Rejected):
                return made
            builds.append(made[0])
            considered.append(made[1])
        else:
            build, later = plain_build(source, context, share), compiled_later(source, context)
            if isinstance(build, Rejected):
                return build
            if isinstance(later, Rejected):
                return later
            builds.append(build)
            notes += later
    notes += map(why_prebuilt, prebuilt.values())
    kind = OptionKind.WHEEL
    if builds:
        kind = OptionKind.REBUILD
    provide: tuple[ProvideToolkit, ...] = ()
    if tools:
        provide = tuple(step for step in tools.toolkit_steps if isinstance(step, ProvideToolkit))
        if tools.chosen.ptx:
            kind = OptionKind.REBUILD_PTX
        elif provide:
            kind = OptionKind.PROVIDE_TOOLKIT
        if tools.mismatch:
            risk = "two CUDA runtimes in one process; it may crash or compute wrongly, and torch refuses it for that reason"
            notes.append(f"--force-cuda-mismatch: {tools.mismatch}: {risk}")
    # last: what no package cures is said before somebody installs one
    dependencies = plan_dependencies(request, context.facts, sources, prebuilt)
    if isinstance(dependencies, Rejected):
        return dependencies
    title, targets = kind.title(), context.archs
    if builds and not tools:
        title = "build without a CUDA toolkit: there is no CUDA code"
    if not (tools or prebuilt):
        targets = ()
    draft = Plan(
        kind, title, considered=tuple(considered), notes=tuple(notes), targets=targets, jobs=jobs.count
    )
    makers: list[BuildWheel | FetchWheel] = [*prebuilt.values(), *builds]
    return installation(case, draft, makers, case.sources.variants, dependencies, provide)


def _torch_own_choice(context: Context, tools: Tools) -> tuple[Considered, ...]:
    """Name what torch itself would take for CUDA_HOME, where that is another toolkit."""
    choice = context.environment.toolkit_choice.value
    if choice is None or choice.root is None:
        return ()
    if tools.chosen.toolkit.root in (choice.root, choice.resolved):
        return ()
    reason = f"torch would take it ({choice.rule})"
    if choice.real_root:
        reason += f", but that nvcc belongs to {choice.real_root}"
    if not choice.has_headers:
        reason += "; there are no CUDA headers below it"
    return (Considered(f"CUDA_HOME={choice.root}", reason),)
