"""Asks a setup.py what it would build, and holds the plan against the answer before anything is compiled."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.binaries import Binary, EntryKind
from splatfix.context import Context, make_context
from splatfix.context.coverage import targets_by_module
from splatfix.core.codec import from_json, parse_json
from splatfix.core.errors import Rejected
from splatfix.core.limits import MOST_SOURCE
from splatfix.core.reading import read_start
from splatfix.core.words import few
from splatfix.facts.source.extension import BUILD_BACKEND
from splatfix.install.environment import Environment, child_environment, open_environment
from splatfix.install.scratch import Scratch, copy_to_build, scratch_folder
from splatfix.knowledge import Arch
from splatfix.model import Code, Facts, FatbinGroup
from splatfix.model.inquiry import DeclaredModule, Inquiry, SetupAnswer
from splatfix.model.option import Plan
from splatfix.model.steps import BuildWheel

_RECORDER = Path(__file__).with_name("setup_recorder.py")
# Loading torch takes seconds, from a slow network disk a minute; what takes longer hangs.
_TIMEOUT = 120.0
_ADDRESS = re.compile(r"\b(?:https?|ftp|ssh|git)://\S+|\bgit@[\w.-]+:\S+")
_SAYS_ALL = re.compile(r"-gencode|--generate-code|(?:-arch|--gpu-architecture)[= ]sm_")
_ENTRIES = {"sm": EntryKind.SASS, "compute": EntryKind.PTX}


def ask_setup(
    step: BuildWheel,
    scratch: Scratch,
    context: Context,
    environment: Environment,
    variables: Mapping[str, str],
    stop: threading.Event | None = None,
) -> Inquiry:
    """Run the step's setup.py under its variables with recorders in the place of compilers; never raises for what it does.

    It runs in a copy of the scratch copy, as torch would see this machine's GPU, and once more the other way round where it
    asks for one. ``stop``, set by another thread, ends it.
    """
    if not (scratch.source / "setup.py").is_file():
        return Inquiry(step.subject, unknown="it has no setup.py")
    pyproject = read_start(scratch.source / "pyproject.toml", MOST_SOURCE)
    backend = BUILD_BACKEND.search(pyproject.decode(errors="replace"))
    if backend and not backend[1].startswith("setuptools"):
        return Inquiry(step.subject, unknown=f"it is built by {backend[1]}, which runs no setup.py")
    copy = scratch.root / "asked" / scratch.copy.name
    folder = copy / scratch.source.relative_to(scratch.copy)
    archs = [target.arch for target in context.own_targets] or [*step.targets, Arch(9, 0)]
    environ = child_environment(variables, step.unset, step.path_first)

    def run(*, sees_gpu: bool) -> Inquiry:
        argv: list[str | Path] = [environment.python, _RECORDER, folder, scratch.root]
        if sees_gpu:
            argv.append(archs[0].plain.cc)
        done = environment.runner.run(argv, timeout=_TIMEOUT, env=environ, stop=stop)
        try:
            answer = from_json(SetupAnswer, parse_json(done.stdout.strip().rpartition("\n")[2]))
        except ValueError:
            unknown = f"setup.py gave no answer: {done.why()}"
            return Inquiry(step.subject, unknown=unknown, seconds=done.seconds)
        if step.setup_call:
            answer = replace(answer, setups=answer.setups[step.setup_call - 1 :][:1])
        unknown = "; ".join(filter(None, [answer.error, *(call.error for call in answer.setups)]))
        if not (answer.setups or unknown):
            unknown = "it calls no setup()"
        return Inquiry(step.subject, answer, unknown=unknown, seconds=done.seconds)

    try:
        shutil.copytree(scratch.copy, copy, symlinks=True)
        as_here = bool(context.has_working_gpu)
        inquiry = run(sees_gpu=as_here)
        if inquiry.answer.asks_gpu:
            other = run(sees_gpu=not as_here)
            inquiry = replace(inquiry, otherwise=other.answer, seconds=inquiry.seconds + other.seconds)
        return inquiry
    except OSError as error:
        return Inquiry(step.subject, unknown=f"it cannot be copied once more ({error})")
    finally:
        shutil.rmtree(copy.parent, ignore_errors=True)  # the build may need the room


def contradiction(
    step: BuildWheel, inquiry: Inquiry, context: Context, environment: Environment
) -> Rejected | None:
    """Return why the plan cannot come true by what setup.py answered; None where it can, and where that is not known."""
    answer = inquiry.answer
    subject = step.subject
    names = list(dict.fromkeys(canonicalize_name(call.name) for call in answer.setups))
    if len(names) > 1:
        return Rejected.of("install.asked-several-setups", subject=subject, names=names)
    planned = " ".join(step.downloads)
    fetched = [*answer.downloads, *(text for text in answer.children if _ADDRESS.search(text))]
    unplanned = [text for text in fetched if text not in planned]
    if unplanned:
        return Rejected.of("install.asked-download", subject=subject, addresses=few(unplanned, between="; "))
    # what it puts into the environment is moved out after the build
    own = [folder.resolve() for folder in (environment.prefix, *environment.sites)]
    elsewhere = [text for text in answer.written if not any(map(Path(text).is_relative_to, own))]
    if elsewhere:
        return Rejected.of("install.asked-writes", subject=subject, paths=few(elsewhere))
    # a child that was not started, or a command of its own, may make what is not there yet
    makes_sources = bool(answer.children) or any(set(call.commands) - {"build_ext"} for call in answer.setups)
    missing = [name for module in answer.modules for name in module.missing]
    if missing and not (inquiry.unknown or makes_sources):
        return Rejected.of("install.asked-missing", subject=subject, names=few(missing))
    # what they are computed from may be what a child would have said, or whether a GPU is in sight
    if answer.children or (inquiry.otherwise and context.has_working_gpu is None):
        return None
    return _other_archs(step, answer, context)


def _other_archs(step: BuildWheel, answer: SetupAnswer, context: Context) -> Rejected | None:
    """Return why what nvcc would be told leaves a target out, by the rule that the finished wheel is held to."""
    modules = {module.name.replace(".", "/"): module for module in answer.modules if _groups(module)}
    binaries = [Binary(name, "elf", "", 0) for name in modules]
    for name, targets in targets_by_module(binaries, step.targets).items():
        for target in targets:
            groups = _groups(modules[name])
            if context.judge(groups, target).usable:
                continue
            flags = dict.fromkeys(flag for archs in modules[name].archs for flag in archs)
            reads = [text for text in answer.reads if "ARCH" in text.upper() or "CUDA" in text.upper()]
            carries = [f"{code.kind.value} {code.arch}" for group in groups for code in group.entries]
            return Rejected.of(
                "install.asked-archs",
                details={"module": modules[name].name, "target": str(target), "carries": carries},
                subject=step.subject,
                module=modules[name].name,
                flags=" ".join(flags),
                target=target,
                reads=", ".join(reads) or "none",
            )
    return None


def _groups(module: DeclaredModule) -> list[FatbinGroup]:
    """Return what its fatbins would hold; nothing where the flags say less than that, as ``native`` does."""
    groups = []
    for flags in module.archs:
        entries: list[Code] = []
        for flag in flags:
            codes = re.findall(r"\b(sm|compute)_(\d+[af]?)\b", flag.rpartition("code=")[2])
            if not codes or not _SAYS_ALL.match(flag):
                return []
            entries += [Code(_ENTRIES[kind], f"sm_{number}") for kind, number in codes]
            if "code=" not in flag:  # -arch=sm_90 embeds PTX too
                entries += [Code(EntryKind.PTX, f"sm_{number}") for _, number in codes]
        if not entries:
            return []
        groups.append(FatbinGroup(tuple(entries), 1))
    return groups


def ask_plan(
    plan: Plan, facts: Facts, tell: Callable[[str], None]
) -> Iterator[tuple[Inquiry, Rejected | None]]:
    """Ask the setup.py of every build of a plan in a scratch copy; nothing is compiled, and nothing else is changed.

    Raises ``no-scratch``, ``cannot-copy``, ``disk-full``, ``interpreter-unusable``.
    """
    environment, context = open_environment(plan.python), make_context(facts)
    for step in plan.steps:
        if isinstance(step, BuildWheel):
            tell(step.subject)
            with scratch_folder(source=step.source) as empty:
                scratch = copy_to_build(step, empty)
                variables = {**step.variables, "TMPDIR": str(scratch.temporary)}
                inquiry = ask_setup(step, scratch, context, environment, variables)
            yield inquiry, contradiction(step, inquiry, context, environment)
