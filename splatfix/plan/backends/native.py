"""Compile the extensions: with an installed toolkit, with PTX for a newer GPU, or with a toolkit that comes first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from splatfix.context import Choice, Context
from splatfix.context.commands import sources_of
from splatfix.context.submodules import FETCH
from splatfix.context.toolkits import BuildToolkit, choose_toolkit
from splatfix.core.errors import SplatfixError, require
from splatfix.core.step import Step, run, say, target_options
from splatfix.knowledge import cubin_runs_on
from splatfix.knowledge.toolkits import provision
from splatfix.model import Considered, Facts, Torch
from splatfix.model.option import InstallPlan, NotApplicable, Option, OptionKind, Request
from splatfix.model.steps import BuildWheel, FetchWheel, ProvideToolkit, Reason, Rebuild
from splatfix.plan.assessment import Assessment, lacks_code, names_of_archs, torch_obstacles
from splatfix.plan.backends.wheels import why_prebuilt
from splatfix.plan.build_environment import Jobs, job_count, share_jobs
from splatfix.plan.checkout import read_sources, variants_of_source
from splatfix.plan.compose import Wheels, confirm, installation, make_option, splatfix
from splatfix.plan.dependencies import missing_submodules, plan_dependencies
from splatfix.plan.requirements import usable_headers, usable_python, usable_targets, usable_torch
from splatfix.plan.tools import (
    Tools,
    provided_toolkit,
    ptx_tools,
    tools_by_hand,
    tools_from_wheels,
    tools_here,
    tools_with,
)
from splatfix.plan.wheel_build import compiled_later, cuda_build, plain_build

# Where the tools of each kind of build come from, and the option of ``splatfix install`` that asks for it.
_TOOLS: dict[OptionKind, tuple[Callable[[Context, Torch], Tools], tuple[str, ...]]] = {
    OptionKind.REBUILD: (tools_here, ()),
    OptionKind.REBUILD_PTX: (ptx_tools, ("--ptx",)),
    OptionKind.PROVIDE_TOOLKIT: (tools_from_wheels, ("--provide-toolkit",)),
    OptionKind.INSTALL_TOOLKIT: (tools_by_hand, ()),
}

# The options of a machine


def native(assessment: Assessment, kind: OptionKind) -> Option:
    """Compile with the tools of that kind; a missing host compiler is the user's to install first.

    Raises:
        NotApplicable: why it cannot be done here, or need not be.
    """
    against, unsure = torch_obstacles(assessment)
    if assessment.kept and len(assessment.kept) == len(assessment.parts):
        against.append(f"{', '.join(assessment.kept)} must not change (--keep)")
    torch = assessment.context.torch
    if against or torch is None:
        raise NotApplicable("; ".join(against))
    here: Tools | None = None
    if kind in (OptionKind.PROVIDE_TOOLKIT, OptionKind.INSTALL_TOOLKIT):
        # the tools of this machine may lack only a compiler
        with suppress(SplatfixError):
            here = tools_here(assessment.context, torch)
        if here and not here.before:
            raise NotApplicable("not needed: a toolkit that fits is here")
        toolkits = assessment.context.facts.machine.toolkits
        if toolkits.value is None:
            unsure.append(
                f"which toolkits are here ({toolkits.error}); one that fits would make this unnecessary"
            )
    find_tools, options = _TOOLS[kind]
    try:
        tools = find_tools(assessment.context, torch)
    except SplatfixError as error:
        raise NotApplicable(error.what) from error
    reasons = tools.reasons
    if kind is OptionKind.REBUILD_PTX:
        chosen = tools.chosen
        if chosen.ptx is None:
            raise NotApplicable(
                f"not needed: CUDA {tools.cuda} here makes machine code for {assessment.names}"
            )
        # a GPU newer than the toolkit: machine code of an older major does not load there, PTX does
        newer = []
        for arch in assessment.context.archs:
            if not any(cubin_runs_on(own, arch) for own in chosen.build_archs):
                newer.append(arch)
        why_ptx = (
            f"CUDA {tools.cuda} does not support {names_of_archs(newer)}, and {chosen.ptx.sm} machine code does not load "
            f"there (it runs within one major only), so {chosen.ptx.compute} PTX is embedded"
        )
        reasons = (Reason(why_ptx), *reasons)
        if chosen.unsure:
            unsure.append(chosen.unsure)
    if kind is OptionKind.INSTALL_TOOLKIT and here is not None and tools.manual > here.manual:
        raise NotApplicable(
            "the installed toolkit fits; only a host compiler is missing, which another toolkit would need too"
        )
    return make_option(assessment, kind, rebuild_steps(assessment, tools, *options), reasons, unsure)


def rebuild_steps(
    assessment: Assessment, tools: Tools, *options: str, everything: bool = False
) -> tuple[Step, ...]:
    """Get the tools, compile, and confirm the result.

    Args:
        options: of ``splatfix install``.
        everything: also what serves the targets already, because the torch below it changes.
    """
    ours = []
    for part in assessment.parts:
        # a drop-in runs as it is, unless another variant is meant
        if (not part.dropin or part.unfit) and part.name not in assessment.kept:
            ours.append(part)
    # those that lack code for a target, or all where none is known to
    lacking = [part for part in ours if not everything and lacks_code(assessment, part)]
    names = tuple(part.name for part in lacking or ours)
    sources = assessment.sources.named or sources_of(assessment.context.facts, names) or ("SOURCE",)
    if assessment.sources.fetch:
        options = (*options, FETCH)
    command = splatfix(assessment, "install", *sources, *target_options(assessment.context.archs), *options)
    arch_list = [arch.cc for arch in dict.fromkeys(tools.chosen.build_archs)]
    if tools.chosen.ptx:
        arch_list.append(f"{tools.chosen.ptx.cc}+PTX")
    sources_of_names = [assessment.sources.built_from.get(name) for name in names]
    targets = assessment.context.archs
    last: tuple[Step, ...] = (confirm(assessment),)
    if names and all(source and not source.needs_cuda for source in sources_of_names):
        targets, last = (), ()
    step = Rebuild(
        command=command,
        subjects=names,
        targets=targets,
        arch_list=";".join(arch_list),
        cuda=tools.cuda,
        toolkit=tools.root,
        compiler=tools.cxx,
        first=assessment.nothing_installed,
    )
    return (*assessment.sources.prepare, *tools.before, step, *last)


# The plan for sources at hand


def native_plan(
    request: Request, context: Context, prebuilt: Mapping[str, FetchWheel] | None = None
) -> InstallPlan:
    """Build, verify and install the sources of a request.

    Args:
        prebuilt: by the label of a source or a name, the wheel that takes the place of its build.

    Raises:
        SplatfixError: what is wrong with the sources, the environment or the machine.
    """
    facts, prebuilt = context.facts, prebuilt or {}
    # a name that has a wheel is no folder to read
    folders = tuple(text for text in request.sources if text not in prebuilt)
    rest = replace(request, sources=folders)
    read = require(read_sources(folders, facts, request=rest))
    sources, notes = read.sources, read.notes
    if incomplete := missing_submodules(facts, sources, rest):
        raise incomplete.error()
    to_build = tuple(source for source in sources if source.label not in prebuilt)
    interpreter = require(usable_python(facts))
    tools: Tools | None = None
    considered: list[Considered] = []
    if any(source.needs_cuda for source in to_build):
        tools = tools_to_install_with(request, context)
        considered += [*tools.rejected, *_torch_own_choice(facts, tools)]
    jobs = job_count(facts)
    if request.jobs:
        jobs = Jobs(request.jobs, "as asked")
    builds: list[BuildWheel] = []
    for source, share in zip(to_build, share_jobs(jobs, to_build), strict=True):
        if tools and source.needs_cuda:
            build, alternative = cuda_build(source, context, tools, share)
            considered.append(alternative)
        else:
            if source.uses_torch_builder:
                require(usable_torch(context, cuda=False))
                if no_headers := usable_headers(facts):
                    raise no_headers.error()
            build = plain_build(source, facts, str(Path(interpreter.executable).parent), share)
            notes += compiled_later(source, facts)
        builds.append(build)
    notes = (*notes, *map(why_prebuilt, prebuilt.values()))
    kind = OptionKind.REBUILD if builds else OptionKind.WHEEL
    provide: tuple[ProvideToolkit, ...] = ()
    if tools:
        provide = tuple(step for step in tools.toolkit_steps if isinstance(step, ProvideToolkit))
        if tools.chosen.ptx:
            kind = OptionKind.REBUILD_PTX
        elif provide:
            kind = OptionKind.PROVIDE_TOOLKIT
        if tools.mismatch:
            risk = "two CUDA runtimes in one process; it may crash or compute wrongly, and torch refuses it for that reason"
            notes += (f"--force-cuda-mismatch: {tools.mismatch}: {risk}",)
    wheels = Wheels(
        kind=kind,
        makers=(*prebuilt.values(), *builds),
        variants={source.label: variants_of_source(source.folder) for source in sources},
        # last: what no package cures is said before somebody installs one
        dependencies=require(plan_dependencies(request, facts, sources, prebuilt)),
        first=provide,
        considered=tuple(considered),
        notes=notes,
        targets=context.archs if prebuilt or tools else (),
        jobs=jobs.count,
    )
    return installation(request, context, wheels)


def tools_to_install_with(request: Request, context: Context) -> Tools:
    """Toolkit and compilers for what was asked: those here, PTX where it was allowed, else splatfix's own toolkit.

    Raises:
        SplatfixError: there is no torch, target, toolkit or compiler that fits.
    """
    torch = require(usable_torch(context, cuda=True))
    targets = require(usable_targets(context))
    choice = context.toolkit
    if request.cuda_home or request.force_cuda_mismatch:
        choice = choose_toolkit(
            context.facts, torch, targets, request.cuda_home, any_major=request.force_cuda_mismatch
        )
    code = ""
    if choice.problem:
        code = choice.problem.code
    if request.ptx and code in ("no-matching-toolkit", "arch-unknown-to-torch"):
        tools = ptx_tools(context, torch, request.cuda_home)
    elif code == "no-matching-toolkit" and not request.cuda_home:
        tools = _own_toolkit(request, context, torch, choice)
    else:
        tools = tools_with(context, torch, choice)
    if tools.no_compiler:
        raise tools.no_compiler.error()
    return tools


def _own_toolkit(request: Request, context: Context, torch: Torch, none_here: Choice[BuildToolkit]) -> Tools:
    """splatfix's own toolkit where none of the machine's fits: the one in its cache, or one to be downloaded.

    Raises:
        SplatfixError: there is none for this torch, or nobody asked for a download.
    """
    assert none_here.problem is not None
    error = none_here.problem.error()
    ours = provided_toolkit(torch, context.machine.system)
    if ours is None:
        if request.provide_toolkit:
            system, major = context.machine.system, int((torch.cuda or "0").partition(".")[0])
            why = f"--provide-toolkit has no toolkit of CUDA {torch.cuda} for {system}."
            offer = provision(major)
            if system == "linux" and offer is not None:
                why = f"--provide-toolkit cannot help: PyPI has no compiler of CUDA {major} ({offer.holds})."
            raise error.with_todo(say(why), *error.todo)
        raise error
    toolkit, step, is_there = ours
    if not (is_there or request.provide_toolkit):
        text = f"Or let splatfix download one ({step.unpacked_gb:.1f} GB) into its own cache"
        argv = ("splatfix", "install", *request.sources, *request.options, "--provide-toolkit")
        raise error.with_todo(*error.todo, run(*argv, text=text))
    chosen = choose_toolkit(context.facts, torch, context.archs, instead=toolkit)
    choice = Choice(chosen.value, none_here.rejected, chosen.problem)
    if is_there:
        return tools_with(context, torch, choice)
    return tools_with(context, torch, choice, step)


def _torch_own_choice(facts: Facts, tools: Tools) -> tuple[Considered, ...]:
    """What torch itself would take for CUDA_HOME, where that is another toolkit."""
    root = tools.chosen.toolkit.root
    choice = facts.environment.toolkit_choice.value
    if choice is None or choice.root is None or root in (choice.root, choice.resolved):
        return ()
    reason = f"torch would take it ({choice.rule})"
    if choice.real_root:
        reason += f", but that nvcc belongs to {choice.real_root}"
    if not choice.has_headers:
        reason += "; there are no CUDA headers below it"
    return (Considered(f"CUDA_HOME={choice.root}", reason),)
