"""Which modules that Python code imports the target environment lacks, and where each comes from."""

import sys
from collections.abc import Collection, Iterable

from msgspec import Struct
from packaging.utils import canonicalize_name

from splatfix.context.commands import pip
from splatfix.context.installed import Inventory, python_versions, torch_family
from splatfix.core.step import Step
from splatfix.knowledge.breakages import breakages
from splatfix.knowledge.imports import Repository, repository_of, requirement_of
from splatfix.knowledge.torch_releases import COMPANIONS, TorchBuild, index_url, replacing_words
from splatfix.model import Facts, ImportedModule, Pin, Source


class MissingModules(Struct, frozen=True):
    """Modules that code imports when it starts, and that are not there."""

    places: list[ImportedModule] = []
    """Each with where it is imported first."""
    requirements: list[str] = []
    """What pip brings them by."""
    modules: list[str] = []
    """What ``requirements`` bring, as it is imported."""
    repositories: list[Repository] = []
    """What has to be compiled against the installed torch."""
    unknown: list[str] = []
    """Modules of which it is not known what brings them."""
    addresses: dict[str, str] = {}
    """Of modules that the code's own lists take from git: from where."""


def missing_modules(
    facts: Facts,
    needs: Iterable[ImportedModule],
    *,
    declared: Iterable[Pin] = (),
    brought: Collection[str] = (),
) -> MissingModules:
    """What of ``needs`` the environment lacks; nothing where its modules are not known.

    torch itself is left to torch's own checks, and what a known breakage tells of (``pkg_resources``) to the breakage's.

    Args:
        declared: what the code's own lists of requirements name.
        brought: modules that the code's own sources will bring.
    """
    installed = facts.environment.modules.value
    if installed is None:
        return MissingModules()
    pins = {canonicalize_name(pin.name): pin for pin in declared}
    versions = python_versions(facts)
    skipped = {"torch", *brought, *sys.stdlib_module_names}
    for record in breakages():
        # its own check tells of what a known breakage took away
        if record.uses and record.when.holds(versions):
            skipped |= record.uses.names
    missing = MissingModules()
    for need in needs:
        # torch has the module, which only passes on to the package
        module = need.name.replace("torch.utils.tensorboard", "tensorboard")
        if module in installed or need.name in skipped:
            continue
        skipped.add(need.name)
        missing.places.append(need)
        repository, pin = repository_of(need.name), pins.get(canonicalize_name(need.name))
        requirement = requirement_of(need.name)
        if pin:
            requirement = requirement or pin.name
        if pin and pin.address:
            missing.addresses[need.name] = pin.address
        elif repository:
            missing.repositories.append(repository)
        elif requirement:
            missing.modules.append(module)
            if requirement not in missing.requirements:
                missing.requirements.append(requirement)
        else:
            missing.unknown.append(need.name)
    return missing


def from_git(facts: Facts, missing: MissingModules) -> tuple[Step, ...]:
    """What installs the modules that lists of requirements take from git: built where torch is, as most of them need it."""
    if not missing.addresses:
        return ()
    return (pip(facts, "install", "--no-build-isolation", *dict.fromkeys(missing.addresses.values())),)


def brought_by(sources: Iterable[Source]) -> frozenset[str]:
    """Return the top-level modules that these sources install."""
    names: set[str] = set()
    for source in sources:
        names |= {source.name or "", *source.packages, *source.modules}
    return frozenset(name.partition(".")[0].replace("-", "_") for name in names if name)


def pip_arguments(
    facts: Facts, requirements: Iterable[str], replacement: TorchBuild | None = None
) -> tuple[str, ...]:
    """Return what follows ``pip install`` for requirements, so that torch stays as it is where a companion of it is among them.

    Args:
        replacement: the build that takes the place of the installed one; then that one stays.
    """
    arguments, torch = list(requirements), facts.environment.torch.value
    if torch is None or not set(COMPANIONS) & set(arguments):
        return tuple(arguments)
    # torch says "+cu130" of itself also where it came from PyPI, whose builds of all have no such part
    by_pip = Inventory(facts).distribution("torch") or torch
    tag = by_pip.version.partition("+")[2]
    pin = f"torch=={torch.version.partition('+')[0]}"
    if replacement is not None:
        tag = replacement.tag
        _, command = replacing_words(replacement.torch, tag, torch_family(facts))
        pin = next(argument for argument in command if argument.startswith("torch=="))
    arguments.append(pin)
    if tag:
        arguments += ["--extra-index-url", index_url(tag)]
    return tuple(arguments)
