"""The Python, the targets and the torch that an installation needs, or one clear rejection for each."""

import sys

from splatfix.checks.torch import torch_for
from splatfix.context import Context, NotHere
from splatfix.context.commands import installer_of, make_environment, pip, python_to_be
from splatfix.core.errors import Rejected
from splatfix.core.step import say
from splatfix.core.versions import dotted, release
from splatfix.model import Facts, Interpreter, Torch


class NoCuda(NotHere, frozen=True, kw_only=True):
    """The installed torch is no build for CUDA; the first step puts one in its place."""


def usable_python(facts: Facts) -> Interpreter | Rejected:
    """Return the target interpreter, where it can be installed into."""
    interpreter = facts.environment.interpreter.value
    if interpreter is None:
        return Rejected.of("plan.interpreter-unusable", error=facts.environment.interpreter.error)
    if interpreter.externally_managed:
        again = say(f"Then run this again; elsewhere with --python {python_to_be(facts)}.")
        todo = (make_environment(interpreter), again)
        return Rejected.of("plan.externally-managed", todo=todo, executable=interpreter.executable)
    if installer_of(facts) is None:
        return Rejected.of("plan.no-pip", executable=interpreter.executable, own=sys.executable)
    return interpreter


def usable_headers(facts: Facts) -> NotHere | None:
    """Reject a Python that is known to lack the headers against which extensions are compiled."""
    interpreter = facts.environment.interpreter.value
    if interpreter is None or interpreter.headers is not False:
        return None
    version = dotted(release(interpreter.version)[:2])
    return NotHere.of("plan.no-python-headers", executable=interpreter.executable, version=version)


def usable_torch(context: Context, *, cuda: bool) -> Torch | Rejected:
    """Return the target environment's torch; where CUDA is needed, another build is rejected as :class:`NoCuda`."""
    facts, torch, python = context.facts, context.torch, context.interpreter
    where = "the target Python"
    if python:
        where = python.executable
    if facts.environment.torch_installed.value is False:
        install = pip(facts, "install", "torch")  # the drop-ins run with any
        if cuda:
            install = torch_for(context, context.targets)[0]
        return Rejected.of("plan.no-torch", todo=(install, say("Then run this again.")), where=where)
    if torch is None:
        reinstall = pip(facts, "install", "--force-reinstall", "--no-deps", "torch", text="Reinstall it")
        error = facts.environment.torch.error
        return Rejected.of("plan.torch-unreadable", todo=(reinstall,), where=where, error=error)
    if torch.cuda or not cuda:
        return torch
    todo, build = torch_for(context, context.targets)[:1], "CPU-only"
    if torch.hip:
        build = "ROCm"
    return NoCuda.of("plan.cpu-only-torch", todo=todo, version=torch.version, where=where, build=build)
