"""The plan of one installation: checks what was asked against the facts, chooses tools, and puts the steps in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from packaging.utils import canonicalize_name

from splatfix import __version__
from splatfix.context import Context, Rejected
from splatfix.context.commands import python_option, removed_by, target_options
from splatfix.context.submodules import FETCH
from splatfix.core.errors import Problem, usage_problem
from splatfix.core.proof import RungName
from splatfix.core.step import Command, run, say
from splatfix.facts import (
    Facts,
    resolved_folder,
)
from splatfix.knowledge.warp import GSWARP
from splatfix.plan.assessment import assess
from splatfix.plan.build_environment import (
    Jobs,
    job_count,
    share_jobs,
)
from splatfix.plan.checkout import sources_in
from splatfix.plan.dependencies import plan_dependencies
from splatfix.plan.dropins import choose_dropins
from splatfix.plan.gpu_kernels import NEVER_RUN, NEVER_RUN_WARP, nvrtc_serves, warp_serves
from splatfix.plan.native_build import cuda_build, cuda_tools, plain_build
from splatfix.plan.option import InstallPlan, Limit, OptionKind, Request
from splatfix.plan.options import keep, summarise
from splatfix.plan.parts import conflict_with, variants_of_source
from splatfix.plan.requirements import replaced_version, usable_python, usable_torch
from splatfix.plan.steps import (
    BuildWheel,
    CheckImport,
    EditSource,
    InstallDependencies,
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
_ON_A_GPU = (Reason("on a GPU; for tensors on a CPU, and in double precision, plain PyTorch runs"),)
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
    if request.backend not in _MAKERS:
        return usage_problem(
            "unknown-backend",
            f"{request.backend!r} is not a backend.",
            say(f"Choose {', '.join(_MAKERS)}."),
        )
    made = _MAKERS[request.backend](request, context)
    if isinstance(made, Problem):
        return _next_best(made, request, context) if request.backend in ("nvrtc", "warp") else made
    folders = tuple(str(resolved_folder(text) or text) for text in request.sources)
    notes = made.notes
    if command := removed_by(context.facts):
        notes += (
            f"`{command}` removes again what is not in the project's lock file: install it again after that",
        )
    return replace(made, request=replace(request, sources=folders), notes=notes)


def _first_possible(request: Request, context: Context) -> InstallPlan | Problem:
    """Native where this machine can build it, or what serves is there already; else the drop-ins: by NVRTC, by Warp, pure."""
    native = _native_plan(request, context)
    if not isinstance(native, Problem) or native.code not in _NOT_HERE:
        return native
    if kept := _kept(request, context, native):
        return kept
    considered = [Rejected("native build", native.what)]
    for name, how in (
        ("nvrtc", "CUDA kernels by NVRTC"),
        ("warp", "gswarp by NVIDIA Warp"),
        ("pure", "pure PyTorch"),
    ):
        made, chosen = _MAKERS[name](request, context), choose_dropins(request.sources, context.checkout)
        if isinstance(chosen, Problem) or chosen.native:
            return native
        if not isinstance(made, Problem):
            note = f"{how}, because a native build is not possible here: {native.what}"
            return replace(made, considered=tuple(considered), notes=(note, *made.notes))
        considered.append(Rejected(how, made.what))
    return native


def _kept(request: Request, context: Context, native: Problem) -> InstallPlan | None:
    """Nothing to do, where what is installed of the sources is known to have native code for every target."""
    summary = summarise(request.sources, context.facts)
    found, python = assess(context, summary), usable_python(context.facts)
    if (
        isinstance(found, Problem)
        or isinstance(python, Problem)
        or not any(part.code for part in found.parts)
    ):
        return None
    option = keep(found)
    if option.rejected_because or option.unsure:
        return None
    return InstallPlan(
        option.kind,
        option.title,
        steps=(),
        reasons=option.reasons,
        considered=(Rejected("native build", native.what),),
        targets=option.targets,
        python=python.executable,
        prefix=python.prefix,
    )


def _next_best(problem: Problem, request: Request, context: Context) -> Problem:
    """The same, with the command for the best of the other backends that needs no compiler."""
    if any("--backend" in step.line() for step in problem.todo):
        return problem
    for backend in ("nvrtc", "warp", "pure"):
        if backend != request.backend and not isinstance(_MAKERS[backend](request, context), Problem):
            targets = target_options(request.targets)
            argv = ("splatfix", "install", *request.sources, "--backend", backend, *targets)
            return replace(
                problem,
                todo=(*problem.todo, run(*argv, *python_option(context.facts), text="Next best here")),
            )
    return problem


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
        targets=tools.targets if tools else (),
        python=interpreter.executable,
        prefix=interpreter.prefix,
        jobs=jobs.count,
    )


def _as_asked(problem: Problem, request: Request) -> Problem:
    """The same; a command that fetches submodules and goes on names the sources and targets of the request."""
    targets = target_options(request.targets)
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
    why = f"--backend {request.backend} was asked for; it needs no toolkit"
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


def _plan_with_kernels(kind: OptionKind, request: Request, context: Context) -> InstallPlan | Problem:
    """The drop-ins with CUDA kernels (``NVRTC``), or with gswarp in their place (``WARP``)."""
    made, chosen = _pure_plan(request, context), choose_dropins(request.sources, context.checkout)
    if isinstance(chosen, Problem):
        return chosen
    by_nvrtc = kind is OptionKind.NVRTC
    serves = nvrtc_serves(context) if by_nvrtc else warp_serves(context, chosen.dropins)
    if isinstance(serves, Problem):
        return serves
    if isinstance(made, Problem):
        return made
    targets = context.archs
    steps: list[InstallStep] = [
        replace(step, targets=targets, backend=kind.value, reasons=_ON_A_GPU)
        if isinstance(step, MakeDropin)
        else step
        for step in made.steps
    ]
    if serves.warp:
        first = next(number for number, step in enumerate(steps) if isinstance(step, MakeDropin))
        wanted = (GSWARP, serves.warp.requirement)
        newest = f"with CUDA {serves.warp.cuda}, the newest that these GPUs and the driver allow"
        why = Reason(f"{serves.warp.requirement} is built {newest}", "the tables")
        steps.insert(first, InstallDependencies(requirements=wanted, modules=("gswarp",), reasons=(why,)))
    slow = {f"{item.name}: {item.note}" for item in chosen.dropins}
    return replace(
        made,
        kind=kind,
        title=kind.label,
        steps=tuple(steps),
        targets=targets,
        proves=(RungName.RESOLVED, RungName.BUILT, RungName.LOADS),
        cannot_prove=_NOT_RUN,
        notes=(
            NEVER_RUN_WARP if serves.warp else NEVER_RUN,
            *(f"not known here: {text}" for text in serves.unsure),
            *(note for note in made.notes if note not in slow),
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


_MAKERS: Mapping[str, Callable[[Request, Context], InstallPlan | Problem]] = {
    "native": _native_plan,
    "nvrtc": partial(_plan_with_kernels, OptionKind.NVRTC),
    "warp": partial(_plan_with_kernels, OptionKind.WARP),
    "pure": _pure_plan,
    "auto": _first_possible,
}
