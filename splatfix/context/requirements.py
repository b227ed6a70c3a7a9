"""What Python packages say they need, and whether the target environment has it."""

import re

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from splatfix.context.installed import Inventory
from splatfix.core.versions import release
from splatfix.model import Facts, Source


def unmet(facts: Facts, source: Source) -> tuple[str, ...]:
    """Return what a source declares that it needs when it is imported, and the environment does not have."""
    newer = outgrown(facts, source)
    return tuple(text for text in source.requires if not met(facts, text) and text not in newer)


def outgrown(facts: Facts, source: Source) -> tuple[str, ...]:
    """Return what a source declares with an upper limit that the installed version is past, torch apart.

    Nothing is put back for it: ``numpy<=1.21`` of torch-points-kernels has no wheel for a Python of today.
    """
    past = []
    for text in source.requires:
        if name_of(text) == "torch" or met(facts, text):
            continue
        requirement = Requirement(text)
        lower = [str(limit) for limit in requirement.specifier if not limit.operator.startswith("<")]
        requirement.specifier = SpecifierSet(",".join(lower))
        if met(facts, str(requirement)):
            past.append(text)
    return tuple(past)


def name_of(requirement: str) -> str:
    """Return the normalised name in ``gsplat[cu]>=1.5; python_version < "3.12"``."""
    return canonicalize_name(re.split(r"[<>=!~\[;@ ]", requirement.strip())[0])


def version_of(facts: Facts, name: str) -> str | None:
    """Return the installed version of a distribution in the target environment, or None."""
    return Inventory(facts).version_of(name) or None


def needs_wheel(facts: Facts) -> bool:
    """Tell whether the wheel project is needed: before 70.1, which took over its bdist_wheel, setuptools alone makes no wheel."""
    return release(version_of(facts, "setuptools"))[:2] < (70, 1)


def met(facts: Facts, text: str) -> bool:
    """Tell whether the environment satisfies a requirement, or its marker leaves it out."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return True  # pip itself will say what is wrong with it
    interpreter = facts.environment.interpreter.value
    theirs = {}
    if interpreter:
        theirs["python_full_version"] = interpreter.version
        theirs["python_version"] = ".".join(interpreter.version.split(".")[:2])
    if requirement.marker is not None and not requirement.marker.evaluate(theirs):
        return True
    installed = version_of(facts, requirement.name)
    if installed is None:
        return False
    try:
        return requirement.specifier.contains(installed, prereleases=True)
    except InvalidVersion:
        return True
