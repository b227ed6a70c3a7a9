"""Checks of the installed packages: which splatting variant is here, lookalikes, clashes, shadows, and torch's companions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from splatfix.checks.evidence import reason
from splatfix.checks.extension.linkage import TORCH_LIBRARY
from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context
from splatfix.context.commands import pip
from splatfix.core.versions import release
from splatfix.core.words import counted
from splatfix.knowledge import stacks
from splatfix.knowledge.dropins import dropin_named
from splatfix.model import Distribution, Evidence, Finding, SplatPackage

check = checks_of("extension")


@check("splat-variant-unknown")
def splat_variant_unknown(context: Context, this: Check) -> Iterator[Finding]:
    packages = context.environment.packages
    for package in packages.value or ():
        module, names = package.module, " or ".join(variant_names(package))
        if not stacks.variants(leaf(package)) or (is_dropin(context, package) and not package.dropin):
            continue
        report, case = this.skip, ""
        evidence = Evidence(f"{module}/__init__.py", fingerprint(package), packages.found_via)
        if package.dropin:
            report, case = this.ok, "drop-in"
            evidence = Evidence("splatfix.json", package.dropin, "the manifest of its distribution")
        elif package.error:
            report, evidence = this.unknown, reason(package.error)
        elif not (package.settings or package.classes or package.exports):
            continue  # simple_knn's Python side is empty: it tells nothing
        elif names:
            report = this.ok
        yield report(case, subject=module, evidence=evidence, package=package, names=names)


@check("compiled-part-missing")
def compiled_part_missing(context: Context, this: Check) -> Iterator[Finding]:
    for package in context.packages:
        expected = sorted({row.extension for row in stacks.variants(leaf(package))})
        owners = [item for item in context.distributions if item.name in package.distributions]
        lookalike = any(stacks.lookalike(item.name) and _from_index(item) for item in owners)
        if not expected or package.error or is_dropin(context, package) or lookalike:
            continue
        names = ", ".join(package.native_missing)
        if not package.native and not names:
            names = ", ".join(expected)
            if len(expected) > 1:
                names = f"one of {names}"
        if names:
            distribution = next(iter(package.distributions), None)
            yield this.fail(
                subject=package.module,
                evidence=Evidence(package.folder, f"no file for {names}", "its source text and its folder"),
                remedy=context.reinstall(distribution, text=f"Build {leaf(package)} from its source folder"),
                package=package,
                names=names,
            )


@check("compiled-part-mismatch")
def compiled_part_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    for package in context.packages:
        if package.exports_missing:
            calls = "calls " + ", ".join(package.exports)
            yield this.fail(
                subject=package.module,
                evidence=Evidence(package.folder, calls, "source text and bytes of the module"),
                package=package,
                missing=", ".join(package.exports_missing),
                leaf=leaf(package),
            )


@check("module-name-clash")
def module_name_clash(context: Context, this: Check) -> Iterator[Finding]:
    by_module: dict[str, list[SplatPackage]] = {}
    for package in context.packages:
        by_module.setdefault(package.module, []).append(package)
    # the compiled module of another package is meant to lie in its folder
    guests = {
        item.name for item in context.distributions if (made := dropin_named(item.dropin)) and made.host
    }
    for module, copies in by_module.items():
        owners = [name for package in copies for name in package.distributions if name not in guests]
        if len(copies) == 1 and len({name.lower().replace("-", "_") for name in owners}) <= 1:
            continue
        evidence = []
        for package in copies:
            variants, variant = variant_names(package), "an unknown variant"
            if variants:
                variant = f"the variant {' or '.join(variants)}"
            text = f"{', '.join(package.distributions) or 'no distribution'}; {variant}"
            evidence.append(Evidence(package.folder, text, "RECORD and top_level.txt"))
        yield this.warn(
            "" if len(copies) > 1 else "shared",
            subject=module,
            evidence=evidence,
            module=module,
            places=len(copies),
            first=copies[0],
            owners=" and ".join(owners),
        )


@check("arch-below-minimum", gpu_code=True, cured_by_rebuild=False)
def arch_below_minimum(context: Context, this: Check) -> Iterator[Finding]:
    # gsplat's is asked of pip: its own __version__ is code, which nothing here runs
    installed_version = context.version_of("gsplat")
    versions = {package.module: (installed_version, package.folder) for package in context.packages}
    for item in context.sources_to_build:
        for name in (item.source.name or "", *item.source.packages):
            module = name.replace("-", "_")
            versions.setdefault(module, (item.source.version or "", item.source.folder))
    via = context.environment.packages.found_via
    for module, (version, folder) in versions.items():
        name = module
        if module == "gsplat" and release(version)[:1] >= (1,):
            name = f"gsplat {version}"
        elif module != "diff_gaussian_rasterization_fastgs":
            continue
        for target in context.targets:
            if release(target.arch.cc) < (7, 0):
                evidence = Evidence(module, f"{version} in {folder}".strip(), via)
                subject = f"{module} on {target.label}"
                yield this.fail(subject=subject, evidence=evidence, name=name, target=target)


@check("lookalike-package")
def lookalike_package(context: Context, this: Check) -> Iterator[Finding]:
    for item in context.distributions:
        lookalike = stacks.lookalike(item.name)
        if lookalike is None or item.made_by_splatfix or not _from_index(item):
            continue
        native = any(extension.distribution == item.name for extension in context.extensions)
        if lookalike.name == "simple-knn" and native:
            continue  # it holds CUDA code, so it is the real one
        if lookalike.found is None:
            continue  # nothing of that name was on the index; whoever built this knows what it is
        # a repackaging with compiled code may well do what is asked of it; a program is in nobody's way
        report = this.warn if native or lookalike.tool else this.fail
        yield report(
            "tool" if lookalike.tool else "extension",
            subject=item.name,
            evidence=Evidence(item.name, f"{item.version} in {item.location}", "its metadata"),
            item=item,
            lookalike=lookalike,
            uninstall=pip(context.facts, "uninstall", item.name),
        )


def installed_modules(context: Context) -> set[str] | None:
    """Return the modules of splatting packages in the environment; None when that is not known."""
    packages = context.environment.packages.value
    extensions = context.environment.extensions.value
    if packages is None or extensions is None:
        return None
    modules = {package.module.partition(".")[0] for package in packages}
    # a compiled module may lie beside the packages, in none of them
    return modules | {re.split(r"[./]", item.path)[0] for item in extensions if item.importable}


def leaf(item: SplatPackage) -> str:
    """Return ``simple_knn`` of ``gaussian_splatting.simple_knn``."""
    return item.module.rpartition(".")[2]


def variant_names(package: SplatPackage) -> tuple[str, ...]:
    """Return the variants that an installed package can be, the best matches only; those that a drop-in stands for."""
    dropin = dropin_named(package.dropin)
    if dropin:
        return dropin.serves
    traits = stacks.Traits(
        package.settings, package.exports or None, package.returns, package.forward, package.classes or None
    )
    return stacks.best_matches(leaf(package), traits)


def fingerprint(package: SplatPackage) -> str:
    """Describe the traits that tell variants apart, for people."""
    traits = []
    if package.settings:
        traits.append(f"{counted(len(package.settings), 'setting')} ending in {package.settings[-1]}")
    if package.returns:
        traits.append(f"returns {counted(package.returns, 'value')}")
    if package.exports:
        traits.append("functions " + " ".join(package.exports))
    return "; ".join(traits) or f"compiled modules {' '.join(package.native) or 'none'}"


def is_dropin(context: Context, item: SplatPackage) -> bool:
    """Tell whether it is one of splatfix's own drop-ins, which have no compiled part by design."""
    return bool(item.dropin) or any(
        one.made_by_splatfix == "drop-in" and one.name in item.distributions for one in context.distributions
    )


def _from_index(item: Distribution) -> bool:
    """Tell what was not installed from a folder or a repository; the source releases of these packages say version 0.0.0."""
    return not item.origin and not item.editable and item.version not in ("", "0.0.0")


@check("torch-not-imported-first")
def torch_not_imported_first(context: Context, this: Check) -> Iterator[Finding]:
    packages = {package.module: package for package in context.packages}
    for item in context.extensions:
        owner = packages.get(item.path.rpartition("/")[0].replace("/", "."))
        if not item.importable or not item.links_torch or owner is None or owner.imports_torch is not False:
            continue
        libraries = ", ".join(name for name in item.needed if TORCH_LIBRARY.match(name))
        yield this.skip(
            subject=owner.module,
            evidence=(
                Evidence(item.path, f"needs {libraries}", "its dynamic section"),
                Evidence(f"{owner.module}/__init__.py", "no import of torch", "its text"),
            ),
            owner=owner,
        )


@check("egl-missing")
def egl_missing(context: Context, this: Check) -> Iterator[Finding]:
    missing, plugin = context.machine.missing_graphics, context.distribution("nvdiffrast")
    including = []
    for item in context.sources_to_build:
        if {"EGL", "GL"} & set(item.source.libraries):
            including.append(item.source.label)
    if not missing.value or (plugin is None and not including):
        return
    headers, report = ", ".join(missing.value), this.skip
    # before 0.3 nvdiffrast had one plugin, which the CUDA rasterizer needs too
    if including or (plugin is not None and release(plugin.version)[:2] < (0, 3)):
        report = this.warn
    evidence = Evidence("headers", f"not there: {headers}", missing.found_via)
    yield report("missing", evidence=evidence, name=next(iter(including), "nvdiffrast"), headers=headers)
