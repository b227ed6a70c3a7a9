"""The facts of a machine with an environment in which a project's file is installed."""

from __future__ import annotations

from collections.abc import Sequence

from splatfix.core.data import replace
from splatfix.facts import Code, Distribution, EntryKind, Fact, Facts, FatbinGroup, Interpreter, Torch
from splatfix.knowledge import Arch
from splatfix.knowledge.cpp_extension import behaviour
from splatfix.knowledge.drivers import Platform, ptx_isa_of_cuda
from splatfix.knowledge.torch_releases import TorchBuild, how_build_runs, place
from splatfix.projects.resolution import Resolved

_DECLARED = "the project's files"


def as_installed(facts: Facts, resolved: Resolved, archs: Sequence[Arch], python: str, numpy: str) -> Facts:
    """The same machine, with this torch, Python (``3.11``) and numpy ("" for none that is known) and nothing else."""
    interpreter = facts.environment.interpreter.value
    version = f"{python}.0"
    if interpreter is None:
        interpreter = Interpreter("python", version, "CPython", "", "", "", "", "venv", ())
    packages: tuple[Distribution, ...] = ()
    if numpy:
        packages = (Distribution("numpy", numpy, ""),)
    environment = replace(
        facts.environment,
        interpreter=Fact(replace(interpreter, version=version), _DECLARED),
        distributions=Fact(packages, _DECLARED),
        torch=Fact(_as_torch(facts, resolved, archs), resolved.why),
        torch_installed=Fact(True, resolved.why),
        toolkit_choice=Fact(),
        extensions=Fact((), _DECLARED),
        packages=Fact((), _DECLARED),
    )
    return replace(facts, environment=environment)


def how_it_runs(facts: Facts, build: TorchBuild, arch: Arch) -> str:
    """As :func:`how_build_runs`, on the machine's platform."""
    return how_build_runs(build, arch, _platform(facts), facts.machine.machine)


def _platform(facts: Facts) -> Platform:
    if facts.machine.system == "windows":
        return "windows"
    return "linux"


def _as_torch(facts: Facts, resolved: Resolved, archs: Sequence[Arch]) -> Torch:
    """A published build as its wheel would be read; without code where the table does not tell whether it runs."""
    build, rules = resolved.build, behaviour(resolved.version)
    code = None
    if build and not any(how_it_runs(facts, build, arch) == "unknown" for arch in archs):
        code = build.code.get(place(_platform(facts), facts.machine.machine))
    groups: tuple[FatbinGroup, ...] = ()
    error = f"no table has what torch {resolved.version} of {resolved.tag} carries"
    if build and code:
        entries = [Code(EntryKind.SASS, arch.sm) for arch in code.cubins]
        entries += [Code(EntryKind.PTX, arch.sm, ptx_isa_of_cuda(build.cuda)) for arch in code.ptx]
        groups, error = (FatbinGroup(tuple(entries), 1),), ""
    cuda = None
    if resolved.tag.startswith("cu"):
        cuda = f"{resolved.tag[2:-1]}.{resolved.tag[-1]}"
    return Torch(
        f"{resolved.version}+{resolved.tag}",
        cuda,
        None,
        "",
        cxx11_abi=build.cxx11_abi if build else None,
        code=groups,
        code_error=error,
        knows_archs=rules.supported_arches if rules else (),
    )
