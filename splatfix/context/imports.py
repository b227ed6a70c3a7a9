"""Which modules that Python code imports the target environment lacks, and where each comes from."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from splatfix.context.installed import python_versions, torch_family
from splatfix.facts import Facts, ImportedModule, Source
from splatfix.knowledge.breakages import breakages
from splatfix.knowledge.imports import Repository, repository_of, requirement_of
from splatfix.knowledge.torch_releases import COMPANIONS, TorchBuild, index_url, replacing_words


@dataclass(frozen=True)
class MissingModules:
    """Modules that code imports when it starts, and that are not there."""

    places: tuple[ImportedModule, ...] = ()
    """Each with where it is imported first."""
    requirements: tuple[str, ...] = ()
    """What pip brings them by."""
    modules: tuple[str, ...] = ()
    """What ``requirements`` bring, as it is imported."""
    repositories: tuple[Repository, ...] = ()
    """What has to be compiled against the installed torch."""
    unknown: tuple[str, ...] = ()
    """Modules of which it is not known what brings them."""


def missing_modules(
    facts: Facts,
    needs: Iterable[ImportedModule],
    *,
    declared: Iterable[str] = (),
    brought: Collection[str] = (),
) -> MissingModules:
    """What of ``needs`` the environment lacks; nothing where its modules are not known.

    torch itself is left to torch's own checks, and what a known breakage tells of (``pkg_resources``) to the breakage's.

    Args:
        declared: distributions that the code's own lists of requirements name.
        brought: modules that the code's own sources will bring.
    """
    have = facts.environment.modules.value
    if have is None:
        return MissingModules()
    names = {canonicalize_name(name): name for name in declared}
    skipped = {"torch", *brought, *_told_elsewhere(facts), *sys.stdlib_module_names}
    places: list[ImportedModule] = []
    requirements: dict[str, None] = {}
    modules: list[str] = []
    repositories: list[Repository] = []
    unknown: list[str] = []
    for item in needs:
        there = "tensorboard" if item.name == "torch.utils.tensorboard" else item.name
        if there in have or item.name in skipped or any(item.name == other.name for other in places):
            continue
        places.append(item)
        if repository := repository_of(item.name):
            repositories.append(repository)
        elif wanted := requirement_of(item.name) or names.get(canonicalize_name(item.name)):
            requirements[wanted] = None
            modules.append(there)
        else:
            unknown.append(item.name)
    return MissingModules(
        tuple(places), tuple(requirements), tuple(modules), tuple(repositories), tuple(unknown)
    )


def brought_by(sources: Iterable[Source]) -> frozenset[str]:
    """Top-level modules that these sources install."""
    return frozenset(
        name.partition(".")[0].replace("-", "_")
        for source in sources
        for name in (source.name or "", *source.packages, *(module.name for module in source.modules))
        if name
    )


def pip_arguments(
    facts: Facts, requirements: Iterable[str], instead: TorchBuild | None = None
) -> tuple[str, ...]:
    """What follows ``pip install`` for requirements, so that torch stays as it is where one of its companions is among them.

    Args:
        instead: the build that takes the place of the installed one; then that one stays.
    """
    wanted, torch = tuple(requirements), facts.environment.torch.value
    if torch is None or not set(COMPANIONS) & set(wanted):
        return wanted
    pin, tag = f"torch=={torch.version}", torch.version.partition("+")[2]
    if instead is not None:
        words = replacing_words(instead.torch, instead.tag, torch_family(facts))[1]
        pin, tag = next(word for word in words if word.startswith("torch==")), instead.tag
    return (*wanted, pin, *(("--extra-index-url", index_url(tag)) if tag else ()))


def _told_elsewhere(facts: Facts) -> frozenset[str]:
    versions = python_versions(facts)
    found = (record.uses for record in breakages() if record.uses and record.when.holds(versions))
    return frozenset(name for pattern in found for name in pattern.names if name)
