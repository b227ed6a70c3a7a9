"""The extensions that are meant: which are installed, what GPU code they have, and whether they can be used as they are."""

from collections.abc import Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.checks import FAMILIES, run_checks, select
from splatfix.checks.extension.packages import is_dropin, leaf, variant_names
from splatfix.context import Context
from splatfix.context.pending_builds import distributions_of, files_installed, names_built
from splatfix.core.words import few
from splatfix.knowledge.stacks import Traits, best_matches, explain_mismatch, stacks, variant, variants
from splatfix.model import Extension, Facts, FatbinGroup, Finding, PackageSource, SplatPackage, Status
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
    checkout means what it imports. What is installed is judged for the targets."""
    findings: tuple[Finding, ...] = ()
    if context.environment.packages.value:
        families = (family.name for family in FAMILIES.values() if family.of_packages)
        findings = run_checks(context, select(families))
    sources = {item.source.label: item.source for item in context.sources}
    # those of the sources that were named; else the checkout's, of which no variant is known yet
    variants_by_name = dict(summary.variants) or dict.fromkeys(sources, ())
    sources |= summary.built_from
    if not variants_by_name:
        meant = imported_names(context)
        installed = [_installed(context, package, (), findings) for package in context.packages]
        by_name = {part.name: part for part in installed if part}
        return tuple(part for part in by_name.values() if not meant or part.names & meant)
    parts = []
    for name, keys in variants_by_name.items():
        key, source, folder = next(iter(keys), ""), sources.get(name), ""
        # the normalised names under which it can be installed
        names = frozenset[str]({canonicalize_name(name)})
        if source:
            names, folder = names | names_built(source), source.folder
        packages = [item for item in context.packages if names_of(item) & names]
        files = [item for item in files_installed(context.facts, names, folder) if item.importable]
        if files and not packages:
            # installed, and none of the packages that the facts know by their names
            top = files[0].module.partition(".")[0]
            owners = dict.fromkeys(item.distribution for item in files if item.distribution)
            modules = tuple(item.module for item in files)
            packages = [SplatPackage(top, f"{files[0].folder}/{top}", tuple(owners), modules)]
        present = (_installed(context, package, keys, findings) for package in packages)
        if part := next(filter(None, present), None):
            parts.append(replace(part, variant=part.variant or key))
        elif source and not source.needs_cuda and distributions_of(context.facts, names, folder):
            # no GPU code to look for in it: that pip lists it is all that can be known
            parts.append(NativePart(name, key, installed=True, cpu=True, names=names))
        else:
            parts.append(NativePart(name, key))
    return tuple(parts)


def imported_names(context: Context) -> frozenset[str]:
    """Collect the normalised names of the extensions that the checkout imports."""
    if context.checkout is None:
        return frozenset()
    return frozenset(map(canonicalize_name, context.checkout.imports))


def names_of(package: SplatPackage) -> frozenset[str]:
    """Return the normalised names of an installed package: the module's and those of its distributions."""
    return frozenset(map(canonicalize_name, (package.module, leaf(package), *package.distributions)))


def _installed(
    context: Context, package: SplatPackage, keys: Collection[str], findings: Sequence[Finding]
) -> NativePart | None:
    """Judge an installed package, by which these variants are meant, and what checks found of it; None: it is no extension."""
    files, dropin = files_of(package, context.facts), is_dropin(context, package)
    code = tuple(group for item in files for group in item.code)
    error = next((item.error for item in files if item.error), package.error)
    if not dropin and not files and not error:
        error = "its compiled part is not there"
    known = variants(leaf(package))
    if not (code or dropin or error or package.native or package.native_missing or known):
        return None
    unfit = []
    for item in findings:
        if item.status is Status.FAIL and is_about(item, package, context.facts):
            unfit.append(item.summary.rstrip("."))
    objection, conflict = other_variant(package, keys)
    # a checkout's own call of the package was compared with it, and fits: that says more than the variant's name
    compared = (
        item for item in findings if item.code == "rasterizer-api-mismatch" and item.status is Status.PASS
    )
    if not any(fact.name == package.folder for item in compared for fact in item.evidence):
        unfit.append(objection)
    key = ""
    if known:
        key = next(iter(variant_names(package)), "")
    name, objections = next(iter(package.distributions), package.module), filter(None, dict.fromkeys(unfit))
    part = NativePart(name, key, True, dropin, code, error, tuple(objections))
    return replace(part, names=names_of(package), conflict=conflict)


def files_of(package: SplatPackage, facts: Facts) -> list[Extension]:
    """List the native files of an installed package."""
    below = f"{package.module.replace('.', '/')}/"
    return [
        item
        for item in facts.environment.extensions.value or ()
        if item.path.startswith(below)
        or item.module == package.module
        or item.distribution in package.distributions
    ]


def is_about(finding: Finding, package: SplatPackage, facts: Facts) -> bool:
    """Tell whether its subject names the package, or it stands on the package's files."""
    places = {package.folder, *(item.path for item in files_of(package, facts))}
    if any(item.name in places for item in finding.evidence):
        return True
    subject = finding.subject.partition(" ")[0]  # "simple_knn on sm_120 (--target)", "simple_knn._C"
    named = bool(subject) and canonicalize_name(subject) in names_of(package)
    return named or subject.startswith(f"{package.module}.")


def other_variant(package: SplatPackage, expected: Collection[str]) -> tuple[str, str]:
    """Say why an installed rasterizer is none of the variants that are meant, and whose trainer will not find it once one of them
    takes its place, as sentences; "" where it may be one, or where that cannot be told."""
    rows = [row for row in map(variant, expected) if row and row.kind == "rasterizer"]
    if not rows or package.settings is None or package.error:
        return "", ""
    by_traits, called = variant_names(package), Traits(settings=package.settings, returns=package.returns)
    # a drop-in has no compiled part by which it could be told from its twins: how it is called must do
    kinds = by_traits or best_matches(leaf(package), called)
    called_alike = any(not explain_mismatch(row.key, called) for row in rows)
    if {*kinds} & {*expected} or (called_alike and not by_traits):
        return "", ""
    kind, owner = "a variant that splatfix does not know", "of another kind"
    if kinds:
        kind = f"the variant {' or '.join(kinds)}"
    losers = [row.name for row in stacks() if {*kinds} & {*row.needs} and not {*expected} & {*row.needs}]
    if losers:
        owner = f"that of {few(losers, 2)}"
    return (
        f"what is installed is {kind}, and {' or '.join(row.key for row in rows)} is meant",
        f"the installed {package.module} is {owner}; what calls it will no longer run in this environment",
    )


def variants_of_face(face: PackageSource) -> tuple[str, ...]:
    """Return the keys of the variants that a package can be by its Python source, the best matches only."""
    traits = Traits(face.settings, face.exports or None, face.returns, face.forward, face.classes)
    return best_matches(face.module, traits)
