"""The native build of one source: torch, toolkit and compilers for it, who decides on architectures, edits, variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from splatfix.context import Choice, Context, Rejected, make_context
from splatfix.context.architectures import ArchChoice, Decider, choose_archs, own_variables
from splatfix.context.compilers import HostCompilers, choose_compilers
from splatfix.context.installed import python_versions
from splatfix.context.toolkits import BuildToolkit, choose_ptx, choose_toolkit
from splatfix.core.errors import Problem
from splatfix.core.step import run, say
from splatfix.core.versions import release
from splatfix.facts import (
    Facts,
    Source,
    Torch,
    commit_of,
    git_folder,
    read_source,
    repository_of,
    source_texts,
)
from splatfix.knowledge import Arch
from splatfix.plan.build_environment import Jobs, build_environment
from splatfix.plan.edits import PlannedEdit, build_conditions, edited, needed_edits
from splatfix.plan.option import Request
from splatfix.plan.provided import provided_toolkit, why_none_provided
from splatfix.plan.requirements import usable_torch
from splatfix.plan.steps import BuildWheel, ProvideToolkit, Reason


@dataclass(frozen=True)
class CudaTools:
    """What every CUDA source of one plan shares."""

    torch: Torch
    targets: tuple[Arch, ...]
    toolkit: BuildToolkit
    compilers: HostCompilers
    rejected: tuple[Rejected, ...]
    """Toolkits and compilers that were considered."""
    provide: ProvideToolkit | None = None
    """To be done first: the toolkit is not there yet."""

    @property
    def mismatch(self) -> str:
        """What is silenced when the toolkit is of another major than torch's; "" when it is not."""
        theirs = self.torch.cuda or ""
        if self.toolkit.version[0] == release(theirs)[0]:
            return ""
        return f"compiled with CUDA {self.toolkit.toolkit.version}, torch is built with CUDA {theirs}"


def cuda_tools(request: Request, context: Context) -> CudaTools | Problem:
    """Torch, targets, toolkit and compilers for what was asked."""
    facts, targets = context.facts, context.archs
    torch = usable_torch(context, cuda=True)
    if problem := torch if isinstance(torch, Problem) else context.no_target:
        return problem
    assert isinstance(torch, Torch)
    provide: ProvideToolkit | None = None
    any_major = request.force_cuda_mismatch
    found = (
        choose_toolkit(facts, torch, targets, request.cuda_home, any_major=any_major)
        if request.cuda_home or any_major
        else context.toolkit
    )
    code = found.problem.code if found.problem else ""
    if request.ptx and code in ("no-matching-toolkit", "arch-unknown-to-torch"):
        found = choose_ptx(facts, torch, targets, request.cuda_home)
    elif code == "no-matching-toolkit" and not request.cuda_home:
        found, provide = _own_toolkit(request, context, torch, found)
    if found.problem:
        return found.problem
    toolkit = found.required()
    compilers = choose_compilers(facts, torch, toolkit.toolkit, toolkit.version)
    if compilers.problem:
        return compilers.problem
    rejected = (*found.rejected, *compilers.rejected, *_torch_own_choice(facts, toolkit.toolkit.root))
    return CudaTools(torch, targets, toolkit, compilers.required(), rejected, provide)


def _own_toolkit(
    request: Request, context: Context, torch: Torch, none: Choice[BuildToolkit]
) -> tuple[Choice[BuildToolkit], ProvideToolkit | None]:
    """splatfix's own toolkit where none of the machine's fits: the one in its cache, or one to be downloaded.

    Args:
        none: the choice among the machine's; where there is no other, or nobody asked for one, it comes back with what
            could be done.
    """
    ours, problem = provided_toolkit(torch, context.machine.system), none.problem
    assert problem is not None
    if ours is None:
        unhelpful = say(why_none_provided(torch, context.machine.system))
        todo = (unhelpful, *problem.todo) if request.provide_toolkit else problem.todo
        return replace(none, problem=replace(problem, todo=todo)), None
    if not (ours.there or request.provide_toolkit):
        words = f"Or let splatfix download one ({ours.unpacked_gb:.1f} GB) into its own cache"
        again = run("splatfix", "install", *request.sources, "--provide-toolkit", text=words)
        return replace(none, problem=replace(problem, todo=(*problem.todo, again))), None
    found = choose_toolkit(context.facts, torch, context.archs, instead=ours.toolkit)
    toolkit = replace(found, rejected=none.rejected)
    if ours.there:
        return toolkit, None
    provide = ProvideToolkit(
        cuda=ours.toolkit.version or "",
        unpacked_gb=ours.unpacked_gb,
        folder=ours.folder,
        root=ours.toolkit.root,
        requirements=ours.requirements,
        links=ours.links,
        reasons=(Reason("no toolkit of this machine fits, and --provide-toolkit was given"),),
    )
    return toolkit, provide


def cuda_build(
    source: Source, facts: Facts, tools: CudaTools, jobs: Jobs
) -> tuple[BuildWheel, Rejected] | Problem:
    """The build of a CUDA source, and what else could have decided on its architectures."""
    chosen = _archs_and_edits(source, facts, tools)
    if isinstance(chosen, Problem):
        return chosen
    archs, edits = chosen
    made = build_environment(facts, source, tools.toolkit, tools.compilers, archs, jobs)
    copied = _copied(source)
    build = BuildWheel(
        subject=source.label,
        source=source.folder,
        repository=copied.repository,
        targets=tools.targets,
        cuda_mismatch=tools.mismatch,
        variables={**made.variables, **copied.variables},
        unset=made.unset,
        path_first=made.path_first,
        edits=edits,
        reasons=(
            *made.reasons,
            *copied.reasons,
            *(Reason(f"edit {edit.rule}: {edit.cures}", edit.source) for edit in edits),
        ),
    )
    if archs.decider is Decider.TORCH:
        why = "torch would build for the GPUs it sees here, or stop"
        return build, Rejected("leave TORCH_CUDA_ARCH_LIST unset", why)
    return build, Rejected("set TORCH_CUDA_ARCH_LIST", archs.why)


def _gcc(compilers: HostCompilers) -> dict[str, tuple[int, ...]]:
    return {"gcc": release(compilers.version)[:2]} if "g++" in Path(compilers.cxx).name else {}


def _archs_and_edits(
    source: Source, facts: Facts, tools: CudaTools
) -> tuple[ArchChoice, tuple[PlannedEdit, ...]] | Problem:
    """Who decides on architectures, and the edits needed; what setup.py decides itself is edited away where it is wrong."""
    archs, version, ptx = tools.toolkit.build_archs, tools.torch.version, tools.toolkit.ptx
    conditions = build_conditions(
        *(source, tools.toolkit.version, release(version), facts.machine.system, archs),
        python={**python_versions(facts), **_gcc(tools.compilers)},
    )
    conditions = replace(conditions, gpu_missing=_waits_for_gpu(source, facts))
    choice = choose_archs(source, archs, version, ptx)
    edits = needed_edits(source, conditions)
    if isinstance(edits, Problem):
        return edits
    if conditions.gpu_missing and (
        not any(edit.rule == "gpu-at-build" for edit in edits) or _asks_gpu(source)
    ):
        return _needs_gpu(source)
    if not isinstance(choice, Problem) and choice.decider is not Decider.COMPUTED:
        return choice, edits
    without = needed_edits(source, replace(conditions, arch_missing=True))
    if isinstance(without, Problem):
        return without
    if any("setup.py" in edit.files for edit in without):
        text = edited("setup.py", dict(source_texts(Path(source.folder)))["setup.py"], without)
        other = choose_archs(read_source(Path(source.folder), text), archs, version, ptx)
        if isinstance(other, Problem):
            return other
        if other.decider is Decider.TORCH:
            why = "an edit takes the architectures out of its setup.py, so torch decides, and torch reads this variable"
            return replace(other, why=why), without
    return choice if isinstance(choice, Problem) else (choice, edits)


def _waits_for_gpu(source: Source, facts: Facts) -> bool:
    """Without a GPU in sight it would compile none of its CUDA code, and it reads no variable that changes that."""
    return (
        source.switches.by_gpu and not source.switches.on and make_context(facts).has_working_gpu is not True
    )


def _asks_gpu(source: Source) -> bool:
    """Told that there is a GPU it would ask which, and fail; one that is told the architectures need not ask."""
    return source.switches.asks_gpu and not own_variables(source)


def _needs_gpu(source: Source) -> Problem:
    return Problem(
        "gpu-needed-to-build",
        f"{source.label} compiles its CUDA code only where torch sees a GPU, and none is in sight here.",
        meaning="Its setup.py asks torch.cuda.is_available() and reads no variable such as FORCE_CUDA; here a package "
        "without GPU code would come out. Nothing was built and nothing was changed.",
        todo=(
            say("Build it on a machine with a GPU, or pass the GPU through to this container."),
            say(
                f"Or let {source.folder}/setup.py read a variable in the place of torch.cuda.is_available()."
            ),
        ),
    )


def plain_build(source: Source, scripts: str, jobs: Jobs) -> BuildWheel:
    """A source without CUDA code: whatever compiler is set up here will do."""
    copied = _copied(source)
    return BuildWheel(
        subject=source.label,
        source=source.folder,
        repository=copied.repository,
        variables={"MAX_JOBS": str(jobs.count), **copied.variables},
        path_first=(scripts,),
        reasons=(
            Reason("no CUDA code in it, so no toolkit and no GPU architecture play a part"),
            jobs.reason,
            *copied.reasons,
        ),
    )


@dataclass(frozen=True)
class _Copied:
    """What the scratch copy asks of a build."""

    repository: str = ""
    """What must be copied beside the source itself; "" for nothing."""
    variables: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()


def _copied(source: Source) -> _Copied:
    folder = Path(source.folder)
    repository = repository_of(folder)
    reasons = (
        [Reason(f"copies {repository}: its build reads files above {folder}")] if repository != folder else []
    )
    variables = {}
    if source.version_from_git:
        around = (git_folder(place) for place in (folder, *folder.parents))
        commit = commit_of(next((git for git in around if git), None))
        version = f"0+g{commit[:9]}" if commit else "0"
        variables["SETUPTOOLS_SCM_PRETEND_VERSION"] = version
        why = "setuptools-scm asks git for the version, and the scratch copy has no git folder"
        reasons.append(Reason(f"SETUPTOOLS_SCM_PRETEND_VERSION={version}: {why}"))
    return _Copied(str(repository) if repository != folder else "", variables, tuple(reasons))


def _torch_own_choice(facts: Facts, root: str) -> tuple[Rejected, ...]:
    """What torch itself would take for CUDA_HOME, where that is another toolkit."""
    choice = facts.environment.toolkit_choice.value
    if choice is None or choice.root is None or root in (choice.root, choice.resolved):
        return ()
    why = f"torch would take it ({choice.rule})"
    why += f", but that nvcc belongs to {choice.real_root}" if choice.real_root else ""
    why += "" if choice.has_headers else "; there are no CUDA headers below it"
    return (Rejected(f"CUDA_HOME={choice.root}", why),)
