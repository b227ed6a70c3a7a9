"""The plan of one installation: checks what was asked against the facts, chooses tools, and puts the steps in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.utils import canonicalize_name

from splatfix import __version__
from splatfix.context import Context, Rejected
from splatfix.context.commands import removed_by
from splatfix.context.submodules import FETCH
from splatfix.core.errors import Problem, usage_problem
from splatfix.core.proof import RungName
from splatfix.core.step import Command, run, say
from splatfix.facts import (
    Facts,
    resolved_folder,
)
from splatfix.plan.build_environment import (
    Jobs,
    job_count,
    share_jobs,
)
from splatfix.plan.checkout import sources_in
from splatfix.plan.dependencies import plan_dependencies
from splatfix.plan.dropins import choose_dropins
from splatfix.plan.native_build import cuda_build, cuda_tools, plain_build
from splatfix.plan.option import InstallPlan, Limit, OptionKind, Request
from splatfix.plan.parts import conflict_with, variants_of_source
from splatfix.plan.requirements import replaced_version, usable_python, usable_torch
from splatfix.plan.steps import (
    BuildWheel,
    CheckImport,
    EditSource,
    InstallStep,
    InstallWheel,
    MakeDropin,
    Reason,
    VerifyWheel,
)

# What rules out a native build on this machine, whatever was asked for.
_NOT_HERE = frozenset(
    {"cpu-only-torch", "no-gpu-to-target", "no-matching-toolkit", "no-host-compiler", "arch-unknown-to-torch"}
)
_NOT_RUN = (
    Limit(RungName.COMPUTES, "nothing is run; splatfix verify does that"),
    Limit(RungName.TRAINS, "nothing is trained; splatfix certify does that"),
)


def plan_install(request: Request, context: Context) -> InstallPlan | Problem:
    """What to do to the environment of a context to get what ``request`` asks for; else what is wrong with the request,
    the sources, the environment or the machine. Changes nothing.

    Args:
        context: its goal has the targets of the request.
    """
    makers = {"native": _native_plan, "pure": _pure_plan, "nvrtc": _nvrtc_plan, "auto": _native_or_pure}
    if request.backend not in makers:
        return usage_problem(
            "unknown-backend",
            f"{request.backend!r} is not a backend.",
            say("Choose native, pure, nvrtc or auto."),
        )
    made = makers[request.backend](request, context)
    if isinstance(made, Problem):
        return made
    folders = tuple(str(resolved_folder(text) or text) for text in request.sources)
    notes = made.notes
    if command := removed_by(context.facts):
        notes += (
            f"`{command}` removes again what is not in the project's lock file: install it again after that",
        )
    return replace(made, request=replace(request, sources=folders), notes=notes)


def _native_or_pure(request: Request, context: Context) -> InstallPlan | Problem:
    """Native where this machine can build it; else the drop-ins, with CUDA kernels where torch and a target allow them."""
    native = _native_plan(request, context)
    if not isinstance(native, Problem) or native.code not in _NOT_HERE:
        return native
    made, chosen = _nvrtc_plan(request, context), choose_dropins(request.sources, context.checkout)
    how = "CUDA kernels by NVRTC"
    if isinstance(made, Problem):
        made, how = _pure_plan(request, context), "pure PyTorch"
    if isinstance(made, Problem) or isinstance(chosen, Problem) or chosen.native:
        return native
    note = f"{how}, because a native build is not possible here: {native.what}"
    return replace(made, considered=(Rejected("native build", native.what),), notes=(note, *made.notes))


def _native_plan(request: Request, context: Context) -> InstallPlan | Problem:
    facts = context.facts
    read = sources_in(request.sources, facts)
    if isinstance(read, Problem):
        return _as_asked(read, request)
    sources, notes = read
    interpreter = usable_python(facts)
    if isinstance(interpreter, Problem):
        return interpreter
    tools = cuda_tools(request, context) if any(source.needs_cuda for source in sources) else None
    if isinstance(tools, Problem):
        return tools
    jobs = Jobs(request.jobs, "as asked") if request.jobs else job_count(facts)
    builds: list[BuildWheel] = []
    considered = list(tools.rejected) if tools else []
    dependencies = plan_dependencies(request, facts, sources)
    if isinstance(dependencies, Problem):
        return dependencies
    for source, share in zip(sources, share_jobs(jobs, sources), strict=True):
        if tools and source.needs_cuda:
            built = cuda_build(source, facts, tools, share)
            if isinstance(built, Problem):
                return built
            build, not_taken = built
            builds.append(build)
            considered.append(not_taken)
            continue
        if source.uses_torch_builder and isinstance(torch := usable_torch(context, cuda=False), Problem):
            return torch
        builds.append(plain_build(source, str(Path(interpreter.executable).parent), share))
    if tools and tools.mismatch:
        risk = "two CUDA runtimes in one process; it may crash or compute wrongly, and torch refuses it for that reason"
        notes = (*notes, f"--force-cuda-mismatch: {tools.mismatch}: {risk}")
    notes = (*notes, *_conflicts(facts, {item.label: variants_of_source(item.folder) for item in sources}))
    notes = (*notes, *dependencies.notes)
    provide = tools.provide if tools else None
    kind = OptionKind.PROVIDE_TOOLKIT if provide else OptionKind.REBUILD
    if tools and tools.toolkit.ptx:
        kind = OptionKind.REBUILD_PTX
    return InstallPlan(
        kind,
        kind.label,
        steps=(
            *([dependencies.step] if dependencies.step else []),
            *([provide] if provide else []),
            *_in_order(facts, builds, in_place=request.in_place),
        ),
        proves=(RungName.RESOLVED, RungName.BUILT, RungName.LOADS),
        cannot_prove=_NOT_RUN,
        considered=tuple(dict.fromkeys(considered)),
        notes=notes,
        targets=tuple(arch.sm for arch in tools.targets) if tools else (),
        python=interpreter.executable,
        prefix=interpreter.prefix,
        jobs=jobs.count,
    )


def _as_asked(problem: Problem, request: Request) -> Problem:
    """The same; a command that fetches submodules and goes on names the sources and targets of the request."""
    targets = (word for target in request.targets for word in ("--target", target))
    argv = ("splatfix", "install", *request.sources, *targets, FETCH)
    todo = (
        replace(step, command=Command(argv)) if step.command and step.command.argv[-1] == FETCH else step
        for step in problem.todo
    )
    return replace(problem, todo=tuple(todo))


def _pure_plan(request: Request, context: Context) -> InstallPlan | Problem:
    chosen = choose_dropins(request.sources, context.checkout)
    if isinstance(chosen, Problem):
        return chosen
    dropins, facts = chosen.dropins, context.facts
    interpreter = usable_python(facts)
    if isinstance(interpreter, Problem):
        return interpreter
    if isinstance(torch := usable_torch(context, cuda=False), Problem):
        return torch
    if isinstance(dependencies := plan_dependencies(request, facts, ()), Problem):
        return dependencies
    made = [
        MakeDropin(
            subject=item.distribution,
            module=item.module,
            version=dropin_version(),
            variant=item.variant,
            reasons=(Reason(item.note),),
        )
        for item in dropins
    ]
    why = "--backend pure was asked for; it needs no toolkit and no GPU"
    notes = (
        *(f"not replaced, and to be built natively: {item.words}" for item in chosen.native),
        *(f"{item.name}: {item.note}" for item in dropins),
        *dependencies.notes,
    )
    return InstallPlan(
        OptionKind.DROPIN,
        OptionKind.DROPIN.label,
        steps=(*([dependencies.step] if dependencies.step else []), *_in_order(facts, made)),
        proves=(RungName.RESOLVED, RungName.LOADS),
        cannot_prove=(Limit(RungName.BUILT, "nothing native is built"), *_NOT_RUN),
        considered=(
            *(
                Rejected(f"a drop-in for {item.module}", item.why or "none was made")
                for item in chosen.native
            ),
            *(Rejected(f"native build of {item.name}", why) for item in dropins),
        ),
        notes=(*notes, *_conflicts(facts, {item.distribution: item.serves for item in dropins})),
        python=interpreter.executable,
        prefix=interpreter.prefix,
    )


def _nvrtc_plan(request: Request, context: Context) -> InstallPlan | Problem:
    """The drop-ins with CUDA kernels. Whether torch's NVRTC knows the targets shows when it compiles."""
    if context.no_target is not None:
        return context.no_target
    if isinstance(torch := usable_torch(context, cuda=True), Problem):
        return torch
    made, chosen = _pure_plan(request, context), choose_dropins(request.sources, context.checkout)
    if isinstance(made, Problem) or isinstance(chosen, Problem):
        return chosen if isinstance(chosen, Problem) else made
    without = [item.name for item in chosen.dropins if not item.cuda]
    if without:
        return Problem(
            "no-cuda-kernels",
            f"splatfix has no CUDA kernels of its own for {', '.join(without)}.",
            meaning="It has them for fused_ssim, simple_knn and the rasterizers of the Inria family.",
            todo=(run("splatfix", "install", *request.sources, "--backend", "pure", text="In pure PyTorch"),),
        )
    targets = tuple(arch.sm for arch in context.archs)
    steps = (replace(step, targets=targets) if isinstance(step, MakeDropin) else step for step in made.steps)
    never = "No GPU has run these kernels yet: on a CPU, emulated, they agree with the pure-PyTorch ones to rounding"
    return replace(
        made,
        steps=tuple(steps),
        targets=targets,
        proves=(RungName.RESOLVED, RungName.BUILT, RungName.LOADS),
        cannot_prove=_NOT_RUN,
        notes=(
            never,
            *(
                note
                for note in made.notes
                if not any(note.startswith(f"{item.name}: ") for item in chosen.dropins)
            ),
        ),
    )


def _conflicts(facts: Facts, coming: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Whose rasterizer the plan replaces by another stack's, each as a sentence.

    Args:
        coming: by the name of a distribution, keys of the variants that it can be.
    """
    meant = {canonicalize_name(name): keys for name, keys in coming.items()}
    return tuple(
        sentence
        for package in facts.environment.packages.value or ()
        for name in dict.fromkeys(
            canonicalize_name(text) for text in (package.module, *package.distributions)
        )
        if (sentence := conflict_with(package, meant.get(name, ())))
    )


def dropin_version() -> str:
    """The version drop-ins carry: below every real release, and saying where it comes from."""
    return f"0+splatfix.{__version__}"


def _in_order(
    facts: Facts, makers: Sequence[BuildWheel | MakeDropin], *, in_place: bool = False
) -> tuple[InstallStep, ...]:
    """Everything is made and verified before the first thing is installed."""
    verifications = [
        VerifyWheel(subject=item.subject, targets=item.targets if isinstance(item, BuildWheel) else ())
        for item in makers
    ]
    installs: list[InstallStep] = []
    for item in makers:
        if in_place and isinstance(item, BuildWheel) and item.edits:
            installs.append(EditSource(subject=item.subject, source=item.source, edits=item.edits))
        installs.append(InstallWheel(subject=item.subject, replaces=replaced_version(facts, item.subject)))
        installs.append(CheckImport(subject=item.subject))
    return (*makers, *verifications, *installs)
