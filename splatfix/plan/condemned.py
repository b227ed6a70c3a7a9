"""Whether an installed extension can be used as it is: what checks found of it, and whether it is the variant that is meant."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TypedDict

from packaging.utils import canonicalize_name

from splatfix.checks import Finding, Status
from splatfix.checks.packages import leaf, variant_names
from splatfix.facts import Extension, Facts, SplatPackage, read_package_source
from splatfix.knowledge.stacks import explain_mismatch, identify, stacks, variant, variants


def what_condemns(
    package: SplatPackage, files: Iterable[Extension], findings: Iterable[Finding]
) -> tuple[str, ...]:
    """Summaries of the failures that are about an installed package: their subject names it, or they stand on its files."""
    mine = [item for item in findings if item.status is Status.FAIL and is_about(item, package, files)]
    return tuple(dict.fromkeys(item.summary.rstrip(".") for item in mine))


def files_of(package: SplatPackage, facts: Facts) -> list[Extension]:
    """The native files of an installed package."""
    below = f"{package.module.replace('.', '/')}/"
    return [
        item
        for item in facts.environment.extensions.value or ()
        if item.path.startswith(below) or item.distribution in package.distributions
    ]


def is_about(finding: Finding, package: SplatPackage, files: Iterable[Extension]) -> bool:
    """Its subject names the package, or it stands on the package's files."""
    places = {package.folder, *(item.path for item in files)}
    if any(item.name in places for item in finding.evidence):
        return True
    subject = finding.subject.partition(" ")[0]  # "simple_knn on sm_120 (--target)", "simple_knn._C"
    names = {canonicalize_name(name) for name in (package.module, leaf(package), *package.distributions)}
    return bool(subject) and (canonicalize_name(subject) in names or subject.startswith(f"{package.module}."))


def its_call_fits(package: SplatPackage, findings: Iterable[Finding]) -> bool:
    """A checkout's own call of the package was compared with it, and fits: that says more than the variant's name."""
    return any(
        item.code == "rasterizer-api-mismatch"
        and item.status is Status.PASS
        and any(one.name == package.folder for one in item.evidence)
        for item in findings
    )


def other_variant(package: SplatPackage, meant: Collection[str]) -> str:
    """Why an installed rasterizer is not the one that is meant; "" where it may be, or where that cannot be told.

    Args:
        meant: keys of the variants that would do.
    """
    wanted = [row for key in meant if (row := variant(key)) and row.kind == "rasterizer"]
    if not wanted or package.settings is None or package.error:
        return ""
    have = _kinds(package)
    called_alike = {row.key for row in wanted if not explain_mismatch(row.key, **_face(package))}
    if set(have) & set(meant) or (called_alike and not variant_names(package)):
        return ""
    kind = f"the variant {' or '.join(have)}" if have else "a variant that splatfix does not know"
    return f"what is installed is {kind}, and {' or '.join(row.key for row in wanted)} is meant"


def _kinds(package: SplatPackage) -> tuple[str, ...]:
    """What it is by all its traits; where that is no variant (a drop-in has no compiled part), by how it is called."""
    found = identify(leaf(package), **_face(package))
    return variant_names(package) or tuple(match.variant.key for match in found)


def _face(package: SplatPackage) -> _Face:
    return {"settings": package.settings, "returns": package.returns}


class _Face(TypedDict):
    """How a trainer calls a rasterizer."""

    settings: tuple[str, ...] | None
    returns: int | None


def who_loses_it(package: SplatPackage, meant: Collection[str]) -> str:
    """Whose trainer calls the installed variant and will not find it once another one takes its place, as a sentence."""
    if not other_variant(package, meant):
        return ""
    have = set(_kinds(package))
    losers = [row.name for row in stacks() if have & set(row.needs) and not set(meant) & set(row.needs)]
    if not losers:
        return f"the installed {package.module} is of another kind; what calls it will no longer run in this environment"
    return (
        f"the installed {package.module} is that of {' and '.join(losers)}; "
        f"{'its trainer' if len(losers) == 1 else 'their trainers'} will no longer run in this environment"
    )


def variants_of_source(folder: str) -> tuple[str, ...]:
    """Keys of the variants that an extension's source folder can be, by its own ``__init__.py``; () where none is known."""
    found: list[str] = []
    for file in sorted(Path(folder).glob("*/__init__.py")):
        module = file.parent.name
        if not variants(module):
            continue
        try:
            shown = read_package_source(module, file.read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError):  # what is wrong with the source is for the build to say
            continue
        matches = identify(
            module,
            settings=shown.settings,
            exports=shown.exports or None,
            returns=shown.returns,
            forward=shown.forward,
            classes=shown.classes,
        )
        best = len(matches[0].agreements) if matches else 0
        found += [match.variant.key for match in matches if len(match.agreements) == best]
    return tuple(found)
