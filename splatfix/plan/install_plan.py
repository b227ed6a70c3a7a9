"""The plan of one installation: the backend that was asked for, or the first that is possible here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from splatfix.context import Context, Rejected
from splatfix.context.commands import python_option, removed_by
from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.step import run, say, target_options
from splatfix.facts import resolved_folder
from splatfix.plan.assessment import assess
from splatfix.plan.backends.keep import keep
from splatfix.plan.backends.native import native_plan
from splatfix.plan.backends.nvrtc import nvrtc_plan
from splatfix.plan.backends.pure import pure_plan
from splatfix.plan.backends.warp import warp_plan
from splatfix.plan.dropins import choose_dropins
from splatfix.plan.option import InstallPlan, NotApplicable, Request
from splatfix.plan.options import summarise
from splatfix.plan.requirements import usable_python

# What rules out a native build on this machine, whatever was asked for.
_NOT_HERE = frozenset(
    {"cpu-only-torch", "no-gpu-to-target", "no-matching-toolkit", "no-host-compiler", "arch-unknown-to-torch"}
)
_WITHOUT_COMPILER = {
    "nvrtc": "CUDA kernels by NVRTC",
    "warp": "gswarp by NVIDIA Warp",
    "pure": "pure PyTorch",
}
"""The backends that need no compiler, the best first."""


def plan_install(request: Request, context: Context) -> InstallPlan:
    """What to do to the environment of a context to get what ``request`` asks for. Changes nothing.

    Args:
        context: its goal has the targets of the request.

    Raises:
        SplatfixError: what is wrong with the request, the sources, the environment or the machine.
    """
    if request.backend not in _MAKERS:
        raise usage_error(
            "unknown-backend",
            f"{request.backend!r} is not a backend.",
            say(f"Choose {', '.join(_MAKERS)}."),
        )
    try:
        plan = _MAKERS[request.backend](request, context)
    except SplatfixError as error:
        if request.backend in ("nvrtc", "warp"):
            raise _with_next_best(error, request, context) from error
        raise
    folders = tuple(str(resolved_folder(text) or text) for text in request.sources)
    notes = plan.notes
    if command := removed_by(context.facts):
        notes += (
            f"`{command}` removes again what is not in the project's lock file: install it again after that",
        )
    return replace(plan, request=replace(request, sources=folders), notes=notes)


def _first_possible(request: Request, context: Context) -> InstallPlan:
    """Native where this machine can build it, or what serves is there already; else the drop-ins: by NVRTC, by Warp, pure."""
    try:
        return native_plan(request, context)
    except SplatfixError as error:
        plan = _instead_of_native(request, context, error) if error.code in _NOT_HERE else None
        if plan is None:
            raise
        return plan


def _instead_of_native(request: Request, context: Context, native: SplatfixError) -> InstallPlan | None:
    """What serves where this machine cannot build; None where only a native build would."""
    kept = _kept(request, context, native)
    if kept:
        return kept
    considered = [Rejected("native build", native.what)]
    try:
        replacement = choose_dropins(request.sources, context.checkout)
    except SplatfixError:
        return None
    if replacement.native:
        return None
    for backend, text in _WITHOUT_COMPILER.items():
        try:
            plan = _MAKERS[backend](request, context)
        except SplatfixError as error:
            considered.append(Rejected(text, error.what))
            continue
        note = f"{text}, because a native build is not possible here: {native.what}"
        return replace(plan, considered=tuple(considered), notes=(note, *plan.notes))
    return None


def _kept(request: Request, context: Context, native: SplatfixError) -> InstallPlan | None:
    """Nothing to do, where what is installed of the sources is known to have native code for every target."""
    if context.no_target:
        return None
    assessment = assess(context, summarise(request.sources, context.facts))
    if not any(part.code for part in assessment.parts):
        return None
    try:
        python = usable_python(context.facts)
        option = keep(assessment)
    except (NotApplicable, SplatfixError):
        return None
    if option.unsure:
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


def _with_next_best(error: SplatfixError, request: Request, context: Context) -> SplatfixError:
    """The same, with the command for the best of the other backends that needs no compiler."""
    names_backend = any(step.command and "--backend" in step.command.argv for step in error.todo)
    # a CPU-only torch is told of --backend pure already, with no command of its own
    if names_backend or error.code == "cpu-only-torch":
        return error
    for backend in _WITHOUT_COMPILER:
        if backend == request.backend or not _is_possible(backend, request, context):
            continue
        argv = ("splatfix", "install", *request.sources, "--backend", backend)
        options = (*target_options(request.targets), *python_option(context.facts))
        return error.with_todo(*error.todo, run(*argv, *options, text="Next best here"))
    return error


def _is_possible(backend: str, request: Request, context: Context) -> bool:
    try:
        _MAKERS[backend](request, context)
    except SplatfixError:
        return False
    return True


_MAKERS: Mapping[str, Callable[[Request, Context], InstallPlan]] = {
    "native": native_plan,
    "nvrtc": nvrtc_plan,
    "warp": warp_plan,
    "pure": pure_plan,
    "auto": _first_possible,
}
