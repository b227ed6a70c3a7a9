"""A machine as it would be once a step was taken: with another torch or driver, in an environment that is yet to be made; or
for other targets."""

from __future__ import annotations

from msgspec.structs import replace

from splatfix.context import Context, make_context
from splatfix.context.commands import python_to_be
from splatfix.knowledge import Arch
from splatfix.knowledge.cpp_extension import behaviour
from splatfix.knowledge.torch_releases import COMPANIONS, TorchBuild
from splatfix.model import Distribution, Driver, EnvironmentFacts, Fact, Torch

_FOUND_VIA = "as it would be"


def context_to_be(
    context: Context,
    *,
    torch: Torch | None = None,
    driver: Driver | None = None,
    new_environment: bool = False,
) -> Context:
    """Return the same machine and goal with one of these.

    Args:
        torch: with no companion (torchvision) of another build.
        new_environment: with nothing in it but pip, beside a Python that refuses installations (PEP 668).
    """
    facts = context.facts
    machine, environment = facts.machine, facts.environment
    python, installed = environment.interpreter.value, environment.distributions.value
    if driver:
        machine = replace(machine, driver=Fact(driver, _FOUND_VIA))
    if torch:
        if installed is not None:
            installed = tuple(item for item in installed if item.name.lower() not in COMPANIONS)
        environment = replace(
            environment,
            torch=Fact(torch, _FOUND_VIA),
            torch_installed=Fact(True, _FOUND_VIA),
            distributions=replace(environment.distributions, value=installed),
        )
    if new_environment and python:
        venv = replace(python, executable=python_to_be(facts), kind="venv", externally_managed=False)
        environment = EnvironmentFacts(
            interpreter=Fact(venv, _FOUND_VIA),
            distributions=Fact((Distribution("pip", "", ""),), _FOUND_VIA),
            torch_installed=Fact(False, _FOUND_VIA),
            extensions=Fact((), _FOUND_VIA),
            packages=Fact((), _FOUND_VIA),
        )
    return make_context(replace(facts, machine=machine, environment=environment), context.goal)


def for_targets(context: Context, targets: tuple[Arch, ...] = ()) -> Context:
    """Return the same machine for other targets; without any for its own GPUs."""
    if targets == context.goal.targets:
        return context
    return make_context(context.facts, replace(context.goal, targets=targets))


def cuda_of(build: TorchBuild) -> str:
    """Return the CUDA of a published build, as torch.version.cuda says it."""
    return ".".join(map(str, build.cuda))


def as_torch(build: TorchBuild) -> Torch:
    """Return what the facts would say of a published build, once it is installed."""
    version = build.torch.replace("*", "0") + f"+{build.tag}"
    torch = Torch(version, cuda_of(build), None, "")
    rules = behaviour(version)
    if rules is None:
        return torch
    return replace(torch, knows_archs=rules.supported_arches)
