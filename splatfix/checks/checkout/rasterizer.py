"""Checks of whether a checkout's calls and imports of extensions fit what is installed."""

from collections.abc import Iterator

from splatfix.checks.checkout.rasterizer_calls import alternatives, call_words, fewest, installed_face
from splatfix.checks.checkout.recognition import stack_of
from splatfix.checks.checkout.submodules import fetching
from splatfix.checks.extension.packages import fingerprint, installed_modules, leaf, variant_names
from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context
from splatfix.context.imports import brought_by
from splatfix.context.submodules import module_of
from splatfix.core.step import Step, run, say
from splatfix.knowledge import stacks
from splatfix.model import Checkout, Evidence, Finding, SplatPackage

check = checks_of("checkout")


@check("rasterizer-api-mismatch", of_environment=True)
def rasterizer_api_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    checkout, packages = context.checkout, context.environment.packages
    if checkout is None:
        return
    groups = alternatives(checkout.calls)
    if groups and packages.value is None:
        reason = packages.error or "the facts are of an older splatfix"
        yield this.unknown(evidence=Evidence("reason", reason))
        return
    installed = {package.module: package for package in reversed(packages.value or ())}
    for (file, function, module), calls in groups.items():
        package = installed.get(module)
        if package is None or package.settings is None:
            continue  # ext-not-installed tells of the first; of the second nothing is known
        variant = " or ".join(variant_names(package)) or "an unknown variant"
        if package.dropin:
            variant = f"splatfix's drop-in {package.dropin}"
        report, remedy = this.ok, tuple[Step, ...]()
        problems = fewest(calls, installed_face(package))
        if problems:
            report, remedy = this.fail, _own_rasterizer(context, checkout, module)
        yield report(
            subject=f"{file}:{function}",
            evidence=(
                Evidence(f"{file}:{calls[0].line}", call_words(calls[0]), "its syntax tree"),
                Evidence(package.folder, fingerprint(package), packages.found_via),
            ),
            remedy=remedy,
            function=function,
            module=module,
            variant=variant,
            problems="; ".join(problems),
        )


@check("ext-not-installed", of_environment=True)
def ext_not_installed(context: Context, this: Check) -> Iterator[Finding]:
    checkout, installed = context.checkout, installed_modules(context)
    if checkout is None or installed is None:
        return
    # what a checkout that is itself a package (gsplat) provides need not be installed to be imported there
    own: set[str] = set()
    for item in checkout.sources:
        if item.path == ".":
            own |= {*item.source.packages, *item.source.modules}
            own |= {shadow.module for shadow in checkout.shadows}
    listed = ", ".join(sorted(installed)) or "no splatting package"
    evidence = Evidence("installed", listed, context.environment.packages.found_via)
    for name in checkout.imports:
        if not {name, name.removesuffix("_cuda")} & own and name not in installed:
            remedy = _own_rasterizer(context, checkout, name)
            yield this.fail(subject=name, evidence=evidence, remedy=remedy, name=name)


@check("silent-fallback", of_environment=True)
def silent_fallback(context: Context, this: Check) -> Iterator[Finding]:
    checkout, installed = context.checkout, installed_modules(context)
    if checkout is None or installed is None:
        return
    packages = {package.module: package for package in reversed(context.packages)}
    for item in checkout.guarded:
        module = item.module.partition(".")[0]
        package = packages.get(module)
        if module not in installed and module in checkout.imports:
            continue  # another file imports it without a guard: ext-not-installed tells
        # classes alone: the source of a package tells nothing of the functions that a compiled part brings
        classes = {name for name in item.names if name[:1].isupper()}
        stack, broken = _does_without(checkout, module), _broken(context, package)
        report, case, remedy = this.ok, "", tuple[Step, ...]()
        if module not in installed and stack:
            report, case = this.skip, "not-needed"
        elif module not in installed or broken:
            report, case = this.warn, "broken"
            remedy = _own_rasterizer(context, checkout, module)
            if not broken:
                case = "not-installed"
        elif package and package.classes and not classes <= set(package.classes):
            report, case = this.skip, "other-variant"
        guard = f"import of {item.module} catches {item.catches}"
        yield report(
            case,
            subject=module,
            evidence=Evidence(f"{item.file}:{item.line}", guard, "its syntax tree"),
            remedy=remedy,
            file=item.file,
            names=", ".join(item.names) or module,
            stack=stack,
            broken=broken,
        )


def _does_without(checkout: Checkout, module: str) -> str:
    """The stack's name, where this is another stack's rasterizer, which it neither needs nor brings; "" otherwise."""
    stack = stack_of(checkout)
    if stack is None or not any(variant.kind == "rasterizer" for variant in stacks.variants(module)):
        return ""
    needed = {variant.module for variant in map(stacks.variant, stack.needs) if variant}
    brought = {submodule.path.rpartition("/")[2].replace("-", "_") for submodule in checkout.submodules}
    brought |= brought_by(item.source for item in checkout.sources)
    if not needed or module in brought | needed:
        return ""
    return stack.name


def _own_rasterizer(context: Context, checkout: Checkout, module: str) -> tuple[Step, ...]:
    """Build the checkout's own copy of an extension; where that is not in it, say what is needed."""
    for item in checkout.sources:
        if module in brought_by((item.source,)):
            build_it = say("Build the checkout's own, in an environment of its own:")
            return (build_it, context.install(item.source.folder))
    empty = [one for one in checkout.submodules if one.empty and module_of(one, checkout) == module]
    if empty:
        return (*fetching(context, empty), context.install(f"{checkout.folder}/{empty[0].path}"))
    stack = stack_of(checkout)
    if stack is not None:
        for part in stack.parts:
            # a release on PyPI is no variant of the tables: gsplat==1.5.3 is imported by its own name
            variant, provided = stacks.variant(part.variant), part.install.partition("==")[0]
            if variant is not None:
                provided = variant.module
            if part.install and module == provided:
                return bringing(context, part.clone, part.install)
    # an address that is read out of the README, or known as what a name on PyPI does not hold
    addresses = list(checkout.clones)
    lookalike = stacks.lookalike(module)
    if lookalike:
        addresses.append(lookalike.wanted)
    for address in addresses:
        name = address.rstrip("/").rpartition("/")[2].removesuffix(".git")
        if "://" in address and name.replace("-", "_") == module:
            return bringing(context, address.removeprefix("git+"), f"./{name}")
    return (say(f"Install {module} as the README of the checkout says, with --no-build-isolation."),)


def bringing(context: Context, address: str, source: str) -> tuple[Step, ...]:
    """Clone what is in no folder of the checkout ("": nothing to clone), and install it."""
    install = context.install(source)
    if not address:
        return (install,)
    return (run("git", "clone", "--recursive", address, kind="clone"), install)


def _broken(context: Context, package: SplatPackage | None) -> str:
    """Why importing an installed package fails, as far as other checks tell; "" for nothing known."""
    if package is None:
        return ""
    if package.native_missing:
        return f"no {', '.join(package.native_missing)}"
    for item in context.extensions:
        of_package = item.distribution in package.distributions or item.path.startswith(f"{leaf(package)}/")
        linkage = item.linkage
        if of_package and linkage and (linkage.torch_missing or linkage.own_missing or linkage.unresolved):
            return "its compiled part does not load"
    return ""
