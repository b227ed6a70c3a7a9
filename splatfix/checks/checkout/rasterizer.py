"""Checks of whether a checkout's calls and imports of extensions fit what is installed."""

from __future__ import annotations

from collections.abc import Iterator

from splatfix.checks.checkout.rasterizer_calls import alternatives, call_words, fewest, installed_face
from splatfix.checks.checkout.recognition import stack_of
from splatfix.checks.checkout.submodules import fetching
from splatfix.checks.extension.packages import fingerprint, installed_modules, leaf, variant_names
from splatfix.checks.model import Evidence, Finding
from splatfix.checks.registry import Check, check
from splatfix.context import Context
from splatfix.context.submodules import module_of
from splatfix.core.step import Step, run, say
from splatfix.facts import Checkout, SplatPackage
from splatfix.knowledge import stacks


@check(
    "rasterizer-api-mismatch", family="checkout", title="The checkout calls the rasterizer that is installed"
)
def rasterizer_api_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    """Each stack calls its own variant of the rasterizer: other settings, other parameters, another number of results. The
    call in the checkout is compared with the installed package's source, both read as syntax trees. A mismatch ends in
    "unexpected keyword argument 'antialiasing'" or "too many values to unpack"."""
    found = context.checkout
    packages = context.environment.packages
    if found is None:
        return
    groups = alternatives(found.calls)
    if groups and packages.value is None:
        yield this.unknown(
            "Which rasterizer is installed is not known.",
            evidence=Evidence("reason", packages.error or "the facts are of an older splatfix"),
        )
        return
    for (file, function, module), calls in groups.items():
        installed = next((item for item in packages.value or () if item.module == module), None)
        if installed is None or installed.settings is None:
            continue  # ext-not-installed tells of the first; of the second nothing is known
        problems = fewest(calls, installed_face(installed))
        evidence = (
            Evidence(f"{file}:{calls[0].line}", call_words(calls[0]), "its syntax tree"),
            Evidence(installed.folder, fingerprint(installed), packages.found_via),
        )
        kind = f"splatfix's drop-in {installed.dropin}" if installed.dropin else ""
        names = kind or " or ".join(variant_names(installed)) or "an unknown variant"
        if problems:
            yield this.fail(
                f"{function}() does not fit the installed {module} ({names}): {'; '.join(problems)}.",
                subject=f"{file}:{function}",
                evidence=evidence,
                remedy=_own_rasterizer(context, found, module),
            )
        else:
            yield this.ok(
                f"{function}() fits the installed {module} ({names}).",
                subject=f"{file}:{function}",
                evidence=evidence,
            )


@check("ext-not-installed", family="checkout", title="Extensions that the checkout imports are installed")
def ext_not_installed(context: Context, this: Check) -> Iterator[Finding]:
    """The checkout's Python files import splatting extensions by name. One that is not in the target environment ends the
    start of training in "No module named ...", unless the import is guarded (see silent-fallback)."""
    found = context.checkout
    have = installed_modules(context)
    if found is None or have is None:
        return
    own = {
        name
        for item in found.sources
        if item.path == "."
        for name in (*item.source.packages, *(module.name for module in item.source.modules))
    }
    if any(item.path == "." for item in found.sources):
        own |= {item.module for item in found.shadows}
    for name in found.imports:
        if name in have or name in own or name.removesuffix("_cuda") in own:
            continue
        yield this.fail(
            f"The checkout imports {name}, which is not installed.",
            subject=name,
            evidence=Evidence(
                "installed",
                ", ".join(sorted(have)) or "no splatting package",
                context.environment.packages.found_via,
            ),
            remedy=_own_rasterizer(context, found, name),
        )


@check("silent-fallback", family="checkout", title="Nothing is replaced by a slow path without a word")
def silent_fallback(context: Context, this: Check) -> Iterator[Finding]:
    """Some stacks wrap the import of fused_ssim or SparseGaussianAdam in a bare `except`. A broken or absent extension is
    then replaced by a slow path, and nothing says so. splatfix looks whether what such an import asks for is there."""
    found = context.checkout
    have = installed_modules(context)
    if found is None or have is None:
        return
    for item in found.guarded:
        module = item.module.partition(".")[0]
        package = next((one for one in context.packages if one.module == module), None)
        evidence = Evidence(
            f"{item.file}:{item.line}", f"import of {item.module} catches {item.catches}", "its syntax tree"
        )
        asked = [name for name in item.names if name[:1].isupper()]
        lacking = [name for name in asked if package and package.classes and name not in package.classes]
        broken = _broken(context, package)
        what = f"{item.file}: {', '.join(item.names) or module}"
        if module not in have and module in found.imports:
            continue  # another file imports it without a guard: ext-not-installed tells
        if module not in have and (stack := _does_without(found, module)):
            yield this.skip(
                f"{what} is not installed; {stack} does not bring it and goes on without it.",
                subject=module,
                evidence=evidence,
            )
        elif module not in have:
            yield this.warn(
                f"{what} is not installed; the code goes on without it, slower.",
                subject=module,
                evidence=evidence,
                remedy=_own_rasterizer(context, found, module),
            )
        elif broken:
            yield this.warn(
                f"{what} is broken ({broken}); the code goes on without it, slower.",
                subject=module,
                evidence=evidence,
                remedy=_own_rasterizer(context, found, module),
            )
        elif lacking:
            yield this.skip(
                f"{what}: the installed variant does not have it; the code goes on without it.",
                subject=module,
                evidence=evidence,
            )
        else:
            yield this.ok(f"{what} is there.", subject=module, evidence=evidence)


def _does_without(found: Checkout, module: str) -> str:
    """The stack's name, where this is another stack's rasterizer, which it neither needs nor brings; "" otherwise."""
    stack = stack_of(found)
    needed = [variant for key in (stack.needs if stack else ()) if (variant := stacks.variant(key))]
    modules = [module.name for item in found.sources for module in item.source.modules]
    brought = {name.partition(".")[0] for item in found.sources for name in item.source.packages}
    brought |= {name.partition(".")[0] for name in modules}
    brought |= {item.path.rpartition("/")[2].replace("-", "_") for item in found.submodules}
    foreign = any(variant.kind == "rasterizer" for variant in stacks.variants(module))
    if stack is None or not foreign or not needed or module in brought | {item.module for item in needed}:
        return ""
    return stack.name


def _own_rasterizer(context: Context, found: Checkout, module: str) -> tuple[Step, ...]:
    """Build the checkout's own copy of an extension; where that is not in it, say what is wanted."""
    for item in found.sources:
        modules = {one.name.partition(".")[0] for one in item.source.modules}
        if module in {*item.source.packages, *modules, (item.source.name or "").replace("-", "_")}:
            return (
                say("Build the checkout's own, in an environment of its own:"),
                context.install(item.source.folder),
            )
    if empty := [item for item in found.submodules if item.empty and module_of(item, found) == module]:
        return (*fetching(context, empty), context.install(f"{found.folder}/{empty[0].path}"))
    stack = stack_of(found)
    known = stacks.recipe(stack.key) if stack else None
    for part in known.parts if known else ():
        row = stacks.variant(part.variant)
        if part.install and module == (row.module if row else part.install.partition("==")[0]):
            return bringing(context, part.clone, part.install)
    named = stacks.lookalike(module)
    for address in (*found.clones, *([named.wanted] if named else [])):
        name = address.rstrip("/").rpartition("/")[2].removesuffix(".git")
        if "://" in address and name.replace("-", "_") == module:
            return bringing(context, address.removeprefix("git+"), f"./{name}")
    return (say(f"Install {module} as the README of the checkout says, with --no-build-isolation."),)


def bringing(context: Context, address: str, source: str) -> tuple[Step, ...]:
    """Clone what is in no folder of the checkout ("": nothing to clone), and install it."""
    clone = (run("git", "clone", "--recursive", address),) if address else ()
    return (*clone, context.install(source))


def _broken(context: Context, package: SplatPackage | None) -> str:
    """Why importing an installed package fails, as far as other checks found; "" for nothing known."""
    if package is None:
        return ""
    if package.native_missing:
        return f"no {', '.join(package.native_missing)}"
    for item in context.extensions:
        of_package = item.distribution in package.distributions or item.path.startswith(f"{leaf(package)}/")
        if (
            of_package
            and item.linkage
            and (item.linkage.torch_missing or item.linkage.own_missing or item.linkage.unresolved)
        ):
            return "its compiled part does not load"
    return ""
