"""The extensions that are meant: which are installed, what GPU code they have, and whether they can be used as they are."""

from collections.abc import Callable, Collection, Iterable

from msgspec import Struct
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.checks import FAMILIES, run_checks, select
from splatfix.checks.extension.packages import is_dropin, leaf, variant_names
from splatfix.context import Context
from splatfix.context.pending_builds import distributions_of, files_installed, names_built
from splatfix.knowledge.stacks import (
    Traits,
    best_matches,
    explain_mismatch,
    identify,
    stacks,
    variant,
    variants,
)
from splatfix.model import Extension, Facts, FatbinGroup, Finding, PackageSource, Source, SplatPackage, Status
from splatfix.model.option import SourceSummary


class NativePart(Struct, frozen=True):
    """One extension that is meant, and what is known of it."""

    name: str
    variant: str = ""
    """Key of the variant in the tables; "" when it is not known."""
    installed: bool = False
    dropin: bool = False
    """It is one of splatfix's own drop-ins, which runs wherever torch does."""
    code: tuple[FatbinGroup, ...] = ()
    error: str = ""
    """Why what is installed cannot be used or read; "" when it can."""
    unfit: tuple[str, ...] = ()
    """What else speaks against what is installed: failures that checks found of it, or that another variant is meant."""
    cpu: bool = False
    """Its source holds no GPU code, so that there is none to look for in what is installed."""
    names: frozenset[str] = frozenset()
    """The normalised names of what is installed: distributions and modules."""
    conflict: str = ""
    """Which other stack loses it when the variant that is meant takes its place, as a sentence; "" where none does."""

    @property
    def anywhere(self) -> bool:
        """It runs wherever torch does."""
        return self.dropin or self.cpu


def native_parts(context: Context, summary: SourceSummary) -> tuple[NativePart, ...]:
    """List the extensions that are meant: those of the sources or of the checkout; failing that, those installed, of which a
    checkout means what it imports.

    What is installed is judged for the targets.
    """
    sources: dict[str, Source] = {}
    if context.checkout:
        sources = {item.source.label: item.source for item in context.checkout.sources}
    # those of the sources that were named; else the checkout's, of which no variant is known yet
    variants_by_name = dict(summary.variants) or dict.fromkeys(sources, ())
    sources |= summary.built_from
    # the normalised names under which each can be installed
    aliases: dict[str, frozenset[str]] = {}
    for name in variants_by_name:
        built = names_built(sources[name]) if name in sources else frozenset[str]()
        aliases[name] = frozenset({canonicalize_name(name)}) | built
    packages = list(context.packages)
    for name in variants_by_name:
        loose = _loose(context, aliases[name], sources.get(name))
        if loose:
            packages.append(loose)
            aliases[name] |= names_of(loose)

    def keys_of(package: SplatPackage) -> tuple[str, ...]:
        names = names_of(package)
        return next((keys for name, keys in variants_by_name.items() if aliases[name] & names), ())

    installed = {part.name: part for part in _installed(context, packages, keys_of)}
    if not variants_by_name:
        meant = imported_names(context)
        return tuple(part for part in installed.values() if not meant or part.names & meant)
    parts = []
    for name, keys in variants_by_name.items():
        key = next(iter(keys), "")
        source = sources.get(name)
        present = next((part for part in installed.values() if part.names & aliases[name]), None)
        if present:
            parts.append(replace(present, variant=present.variant or key))
        elif (
            source and not source.needs_cuda and distributions_of(context.facts, aliases[name], source.folder)
        ):
            # no GPU code to look for in it: that pip lists it is all that can be known
            parts.append(NativePart(name, key, installed=True, cpu=True, names=aliases[name]))
        else:
            parts.append(NativePart(name, key))
    return tuple(parts)


def imported_names(context: Context) -> frozenset[str]:
    """Collect the normalised names of the extensions that the checkout imports."""
    return frozenset(
        canonicalize_name(name) for name in (context.checkout.imports if context.checkout else ())
    )


def names_of(package: SplatPackage) -> frozenset[str]:
    """Return the normalised names of an installed package: the module's and those of its distributions."""
    return frozenset(
        canonicalize_name(name) for name in (package.module, leaf(package), *package.distributions)
    )


def _loose(context: Context, aliases: frozenset[str], source: Source | None) -> SplatPackage | None:
    """Return what is installed under these names and is not among the packages that the facts know by their names."""
    if any(aliases & names_of(package) for package in context.packages):
        return None
    folder = ""
    if source:
        folder = source.folder
    files = files_installed(context.facts, aliases, folder)
    importable = next((item for item in files if item.importable), None)
    if importable is None:
        return None
    top = importable.module.partition(".")[0]
    owners = dict.fromkeys(item.distribution for item in files if item.distribution)
    modules = tuple(item.module for item in files)
    return SplatPackage(top, f"{importable.folder}/{top}", tuple(owners), modules)


def _installed(
    context: Context, packages: Iterable[SplatPackage], keys_of: Callable[[SplatPackage], tuple[str, ...]]
) -> Iterable[NativePart]:
    """List the splatting packages of the environment, with the GPU code of their native files put together.

    Args:
        keys_of: the variants that are meant by a package.
    """
    facts = context.facts
    findings: tuple[Finding, ...] = ()
    if context.environment.packages.value:
        families = (family.name for family in FAMILIES.values() if family.of_packages)
        findings = run_checks(context, select(families))
    for package in packages:
        files = files_of(package, facts)
        dropin = is_dropin(context, package)
        code = tuple(group for item in files for group in item.code)
        error = next((item.error for item in files if item.error), package.error)
        if not dropin and not files and not error:
            error = "its compiled part is not there"
        known = variants(leaf(package))
        if not (code or dropin or error or package.native or package.native_missing or known):
            continue
        keys = keys_of(package)
        failed = [item for item in findings if item.status is Status.FAIL and is_about(item, package, files)]
        unfit = list(dict.fromkeys(item.summary.rstrip(".") for item in failed))
        # a checkout's own call of the package was compared with it, and fits: that says more than the variant's name
        compared = (
            item for item in findings if item.code == "rasterizer-api-mismatch" and item.status is Status.PASS
        )
        if not any(fact.name == package.folder for item in compared for fact in item.evidence):
            unfit.append(other_variant(package, keys))
        variant_key = ""
        if known:
            variant_key = next(iter(variant_names(package)), "")
        yield NativePart(
            next(iter(package.distributions), package.module),
            variant_key,
            True,
            dropin,
            code,
            error,
            tuple(filter(None, unfit)),
            names=names_of(package),
            conflict=conflict_with(package, keys),
        )


def files_of(package: SplatPackage, facts: Facts) -> list[Extension]:
    """List the native files of an installed package."""
    below = f"{package.module.replace('.', '/')}/"
    files = []
    for item in facts.environment.extensions.value or ():
        is_inside = item.path.startswith(below) or item.module == package.module
        if is_inside or item.distribution in package.distributions:
            files.append(item)
    return files


def is_about(finding: Finding, package: SplatPackage, files: Iterable[Extension]) -> bool:
    """Tell whether its subject names the package, or it stands on the package's files."""
    places = {package.folder, *(item.path for item in files)}
    if any(item.name in places for item in finding.evidence):
        return True
    subject = finding.subject.partition(" ")[0]  # "simple_knn on sm_120 (--target)", "simple_knn._C"
    return bool(subject) and (
        canonicalize_name(subject) in names_of(package) or subject.startswith(f"{package.module}.")
    )


def other_variant(package: SplatPackage, expected: Collection[str]) -> str:
    """Say why an installed rasterizer is not the one that is meant; "" where it may be, or where that cannot be told.

    Args:
        expected: keys of the variants that would do.
    """
    rows = [row for row in map(variant, expected) if row and row.kind == "rasterizer"]
    if not rows or package.settings is None or package.error:
        return ""
    kinds = _kinds(package)
    if set(kinds) & set(expected):
        return ""
    # a drop-in has no compiled part by which it could be told from its twins: how it is called must do
    called_alike = any(not explain_mismatch(row.key, _interface(package)) for row in rows)
    if called_alike and not variant_names(package):
        return ""
    kind = "a variant that splatfix does not know"
    if kinds:
        kind = f"the variant {' or '.join(kinds)}"
    return f"what is installed is {kind}, and {' or '.join(row.key for row in rows)} is meant"


def _kinds(package: SplatPackage) -> tuple[str, ...]:
    """Return what it is by all its traits; where that is no variant (a drop-in has no compiled part), by how it is called."""
    names = variant_names(package)
    if names:
        return names
    return tuple(match.variant.key for match in identify(leaf(package), _interface(package)))


def _interface(package: SplatPackage) -> Traits:
    """Return how a trainer calls a rasterizer."""
    return Traits(settings=package.settings, returns=package.returns)


def conflict_with(package: SplatPackage, expected: Collection[str]) -> str:
    """Say whose trainer calls the installed variant and will not find it once another one takes its place, as a sentence."""
    if not other_variant(package, expected):
        return ""
    kinds = set(_kinds(package))
    losers = []
    for row in stacks():
        if kinds & set(row.needs) and not set(expected) & set(row.needs):
            losers.append(row.name)
    if not losers:
        return f"the installed {package.module} is of another kind; what calls it will no longer run in this environment"
    names, trainers = " and ".join(losers), "their trainers"
    if len(losers) > 2:
        names = f"{', '.join(losers[:2])} and others"
    elif len(losers) == 1:
        trainers = "its trainer"
    return (
        f"the installed {package.module} is that of {names}; "
        f"{trainers} will no longer run in this environment"
    )


def variants_of_face(face: PackageSource) -> tuple[str, ...]:
    """Return the keys of the variants that a package can be by its Python source, the best matches only."""
    traits = Traits(face.settings, face.exports or None, face.returns, face.forward, face.classes)
    return best_matches(face.module, traits)
