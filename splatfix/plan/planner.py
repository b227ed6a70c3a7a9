"""Makes the plan: checks what was asked against the facts, chooses tools, and puts the actions in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.utils import canonicalize_name

from splatfix import __version__
from splatfix.context import Rejected
from splatfix.context.targets import each_target
from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.step import say
from splatfix.core.versions import release
from splatfix.facts import Facts, Source, read_source
from splatfix.plan.arch_choice import ArchChoice, Decider, choose
from splatfix.plan.build_environment import build_environment, job_count
from splatfix.plan.checkout import sources_in
from splatfix.plan.condemned import variants_of_source, who_loses_it
from splatfix.plan.cuda_tools import CudaTools, cuda_tools
from splatfix.plan.edits import PlannedEdit, build_conditions, edited, needed_edits
from splatfix.plan.plan import (
    Action,
    BuildWheel,
    CheckImport,
    EditSource,
    InstallWheel,
    MakeSwap,
    Plan,
    Reason,
    Request,
    VerifyWheel,
)
from splatfix.plan.requirements import check_build_tools, interpreter_of, replaced_version, torch_of
from splatfix.plan.sharing import share_jobs
from splatfix.plan.swaps import choose_swaps


def make_plan(request: Request, facts: Facts) -> Plan:
    """What to do to the environment of ``facts`` to get what ``request`` asks for. Changes nothing.

    Raises:
        SplatfixError: one of many, each naming what is wrong with the request, the sources, the environment or the machine.
    """
    each_target(request.targets)
    makers = {"native": _native_plan, "pure": _pure_plan, "auto": _native_or_pure}
    if request.backend not in makers:
        raise usage_error(
            "unknown-backend", f"{request.backend!r} is no backend.", say("Choose native, pure or auto.")
        )
    made = makers[request.backend](request, facts)
    folders = tuple(str(Path(s).expanduser().resolve()) if Path(s).is_dir() else s for s in request.sources)
    return replace(made, request=replace(request, sources=folders))


# What speaks against a native build on this machine, and not against what was asked for.
_NOT_HERE = frozenset(
    {"cpu-only-torch", "no-gpu-to-target", "no-matching-toolkit", "no-host-compiler", "arch-unknown-to-torch"}
)


def _native_or_pure(request: Request, facts: Facts) -> Plan:
    """Native where this machine can build it; else the drop-ins, with the reason as the road not taken."""
    try:
        return _native_plan(request, facts)
    except SplatfixError as error:
        if error.code not in _NOT_HERE:
            raise
        why = error
    try:
        made = _pure_plan(request, facts)
    except SplatfixError as refusal:
        raise why from refusal
    road = Rejected("native build", why.what)
    note = f"pure PyTorch, because a native build is not possible here: {why.what}"
    return replace(made, roads_not_taken=(road,), notes=(note, *made.notes))


def _native_plan(request: Request, facts: Facts) -> Plan:
    sources, notes = sources_in(request.sources, facts)
    interpreter = interpreter_of(facts)
    tools = cuda_tools(request, facts) if any(source.needs_cuda for source in sources) else None
    roads: list[Rejected] = []
    if tools:
        roads += tools.rejected
        roads += _torch_own_choice(facts, tools.toolkit.toolkit.root)
    builds: list[BuildWheel] = []
    for source in sources:
        check_build_tools(facts, source)
        if tools and source.needs_cuda:
            action, more = _cuda_build(source, request, facts, tools)
            builds.append(action)
            roads += more
        else:
            if source.uses_torch_builder:
                torch_of(facts, cuda=False)
            builds.append(_plain_build(source, request, facts))
    targets = tools.targets if tools else ()
    if tools and tools.mismatch:
        risk = "two CUDA runtimes in one process; it may crash or compute wrongly, and torch refuses it for that reason"
        notes = (*notes, f"--force-cuda-mismatch: {tools.mismatch}: {risk}")
    notes = (
        *notes,
        *_replaced(facts, {source.label: variants_of_source(source.folder) for source in sources}),
    )
    shared, jobs = share_jobs(builds, sources)
    actions = _in_order(facts, shared, in_place=request.in_place)
    if tools and tools.provide:
        actions = (tools.provide, *actions)
    return Plan(
        interpreter.executable,
        interpreter.prefix,
        "native",
        targets,
        actions,
        tuple(dict.fromkeys(roads)),
        notes,
        jobs=jobs,
    )


def _cuda_build(
    source: Source, request: Request, facts: Facts, tools: CudaTools
) -> tuple[BuildWheel, list[Rejected]]:
    choice, edits = _arch_and_edits(source, facts, tools)
    made = build_environment(
        facts,
        tools.toolkit.toolkit,
        tools.toolkit.why,
        tools.compilers,
        choice.variables,
        choice.why,
        request.jobs,
        source,
    )
    reasons = (*made.reasons, *(() if choice.variables else (Reason(choice.why),)))
    action = BuildWheel(
        subject=source.label,
        source=source.folder,
        targets=tools.targets,
        cuda_mismatch=tools.mismatch,
        variables=made.variables,
        unset=made.unset,
        path_first=made.path_first,
        edits=edits,
        reasons=(*reasons, *(Reason(f"edit {edit.rule}: {edit.cures}", edit.source) for edit in edits)),
    )
    return action, _arch_roads(choice)


def _arch_and_edits(
    source: Source, facts: Facts, tools: CudaTools
) -> tuple[ArchChoice, tuple[PlannedEdit, ...]]:
    """Who decides on architectures, and the edits needed; what setup.py decides itself is edited away where it is wrong."""
    archs, version, ptx = tools.toolkit.build_archs, tools.torch.version, tools.toolkit.ptx
    conditions = build_conditions(
        source, tools.toolkit.version, release(version), facts.machine.system, archs
    )
    refusal: SplatfixError | None = None
    choice: ArchChoice | None = None
    try:
        choice = choose(source, archs, version, ptx)
    except SplatfixError as error:
        refusal = error
    edits = needed_edits(source, conditions)
    if choice is not None and choice.decider is not Decider.COMPUTED:
        return choice, edits
    without = needed_edits(source, replace(conditions, arch_missing=True))
    setup = Path(source.folder) / "setup.py"
    if any("setup.py" in edit.files for edit in without):
        text = edited("setup.py", setup.read_text(encoding="utf-8", errors="surrogateescape"), without)
        other = choose(read_source(Path(source.folder), text), archs, version, ptx)
        if other.decider is Decider.TORCH:
            why = "an edit takes the architectures out of its setup.py, so torch decides, and torch reads this variable"
            return replace(other, why=why), without
    if choice is None:
        assert refusal is not None
        raise refusal
    return choice, edits


def _plain_build(source: Source, request: Request, facts: Facts) -> BuildWheel:
    """A source without CUDA code: whatever compiler is set up here will do."""
    count, why = (request.jobs, "as asked") if request.jobs else job_count(facts)
    return BuildWheel(
        subject=source.label,
        source=source.folder,
        targets=(),
        variables={"MAX_JOBS": str(count)},
        unset=(),
        path_first=(str(Path(interpreter_of(facts).executable).parent),),
        reasons=(
            Reason("no CUDA code in it, so no toolkit and no GPU architecture play a part"),
            Reason(f"MAX_JOBS={count}: {why}"),
        ),
    )


def _pure_plan(request: Request, facts: Facts) -> Plan:
    swaps = choose_swaps(request.sources)
    interpreter = interpreter_of(facts)
    torch_of(facts, cuda=False)
    made: list[Action] = [
        MakeSwap(s.distribution, s.module, swap_version(), s.variant, (Reason(s.note),)) for s in swaps
    ]
    roads = tuple(
        Rejected(
            f"native build of {swap.name}", "--backend pure was asked for; it needs no toolkit and no GPU"
        )
        for swap in swaps
    )
    notes = tuple(f"{swap.name}: {swap.note}" for swap in swaps)
    notes += _replaced(facts, {swap.distribution: swap.serves for swap in swaps})
    return Plan(interpreter.executable, interpreter.prefix, "pure", (), _in_order(facts, made), roads, notes)


def _replaced(facts: Facts, coming: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
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
        if (sentence := who_loses_it(package, meant.get(name, ())))
    )


def swap_version() -> str:
    """The version drop-ins carry: below every real release, and saying where it comes from."""
    return f"0+splatfix.{__version__}"


def _in_order(facts: Facts, makers: Sequence[Action], *, in_place: bool = False) -> tuple[Action, ...]:
    """Everything is made and verified before the first thing is installed."""
    verifications = [
        VerifyWheel(item.subject, item.targets if isinstance(item, BuildWheel) else ()) for item in makers
    ]
    installs: list[Action] = []
    for item in makers:
        if in_place and isinstance(item, BuildWheel) and item.edits:
            installs.append(EditSource(item.subject, item.source, item.edits))
        installs.append(InstallWheel(item.subject, replaced_version(facts, item.subject)))
        installs.append(CheckImport(item.subject))
    return (*makers, *verifications, *installs)


def _torch_own_choice(facts: Facts, root: str) -> list[Rejected]:
    choice = facts.environment.toolkit_choice.value
    if choice is None or choice.root is None or Path(choice.root).resolve() == Path(root).resolve():
        return []
    why = f"torch would take it ({choice.rule})"
    why += f", but that nvcc belongs to {choice.real_root}" if choice.real_root else ""
    why += "" if choice.has_headers else "; there are no CUDA headers below it"
    return [Rejected(f"CUDA_HOME={choice.root}", why)]


def _arch_roads(choice: ArchChoice) -> list[Rejected]:
    if choice.decider is Decider.TORCH:
        return [
            Rejected(
                "leave TORCH_CUDA_ARCH_LIST unset", "torch would build for the GPUs it sees here, or stop"
            )
        ]
    return [Rejected("set TORCH_CUDA_ARCH_LIST", choice.why)]
