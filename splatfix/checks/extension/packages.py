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


@check("splat-variant-unknown", "Which variant of a splatting extension is installed")
def splat_variant(context: Context, this: Check) -> Iterator[Finding]:
    """At least nine incompatible packages are all called diff_gaussian_rasterization, and none has a telling version. They
    are told apart by the fields of their Settings tuple, the classes and parameters of their Python source, the number of
    values a forward returns, and the functions of their compiled part."""
    packages = context.environment.packages
    for package in packages.value or ():
        module = package.module
        if not stacks.variants(leaf(package)):
            continue
        if is_dropin(context, package):
            if package.dropin:
                yield this.ok(
                    f"{module} is splatfix's drop-in {package.dropin}.",
                    subject=module,
                    evidence=Evidence("splatfix.json", package.dropin, "the manifest of its distribution"),
                )
            continue
        if package.error:
            yield this.unknown(
                f"Which variant {module} is could not be read.",
                subject=module,
                evidence=reason(package.error),
            )
            continue
        if not (package.settings or package.classes or package.exports):
            continue  # simple_knn's Python side is empty: it tells nothing
        evidence = Evidence(f"{module}/__init__.py", fingerprint(package), packages.found_via)
        names = variant_names(package)
        if names:
            summary = f"{module} is the variant {' or '.join(names)}."
            yield this.ok(summary, subject=module, evidence=evidence)
        else:
            yield this.skip(
                f"{module} is not a variant that splatfix knows.", subject=module, evidence=evidence
            )


@check("compiled-part-missing", "Splatting packages have their compiled part")
def compiled_part_missing(context: Context, this: Check) -> Iterator[Finding]:
    """A package can be installed without its CUDA module: built on a machine without nvcc, copied by hand, or run from its
    source folder. Some then fail at import; `import fused_ssim` succeeds where torch sees no GPU, and fails at its first
    call instead. splatfix looks for the file of every compiled module that the Python source imports."""
    for package in context.packages:
        expected = sorted({row.extension for row in stacks.variants(leaf(package))})
        owners = [item for item in context.distributions if item.name in package.distributions]
        lookalike = any(stacks.lookalike(item.name) and _from_index(item) for item in owners)
        if not expected or package.error or is_dropin(context, package) or lookalike:
            continue
        missing = list(package.native_missing)
        if not package.native and not missing:
            missing = expected
            if len(expected) > 1:
                missing = [f"one of {', '.join(expected)}"]
        if missing:
            names = ", ".join(missing)
            distribution = next(iter(package.distributions), None)
            yield this.fail(
                f"{package.module} is installed without its compiled part ({names}).",
                subject=package.module,
                evidence=Evidence(package.folder, f"no file for {names}", "its source text and its folder"),
                remedy=context.reinstall(distribution, text=f"Build {leaf(package)} from its source folder"),
            )


@check("compiled-part-mismatch", "Python source and compiled part belong together")
def compiled_part_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    """Installing one variant over another can leave the Python files of one beside the compiled module of the other. The
    source then calls functions that the module does not have: "module '..._C' has no attribute ...". The names are
    looked for in the module's bytes."""
    for package in context.packages:
        if package.exports_missing:
            calls = "calls " + ", ".join(package.exports)
            missing = ", ".join(package.exports_missing)
            yield this.fail(
                f"The compiled part of {package.module} lacks {missing}, which its source calls.",
                subject=package.module,
                evidence=Evidence(package.folder, calls, "source text and bytes of the module"),
                remedy=f"Uninstall {leaf(package)} until pip finds no more of it, then install the one variant you want.",
            )


@check("module-name-clash", "One package per module name")
def module_name_clash(context: Context, this: Check) -> Iterator[Finding]:
    """Stacks ship different packages under one module name. Two of them in one environment overwrite each other's files,
    or the one that comes first on the path hides the other. Each stack needs an environment of its own."""
    by_module: dict[str, list[SplatPackage]] = {}
    for package in context.packages:
        by_module.setdefault(package.module, []).append(package)
    # the compiled module of another package is meant to lie in its folder
    guests = {
        item.name for item in context.distributions if (made := dropin_named(item.dropin)) and made.host
    }
    for module, copies in by_module.items():
        owners = [name for package in copies for name in package.distributions if name not in guests]
        if len(copies) > 1:
            clash = f"is in {len(copies)} places; {copies[0].folder} is the one imported"
        elif len({name.lower().replace("-", "_") for name in owners}) > 1:
            clash = f"belongs to {' and '.join(owners)} at once"
        else:
            continue
        evidence = []
        for package in copies:
            variants, variant = variant_names(package), "an unknown variant"
            if variants:
                variant = f"the variant {' or '.join(variants)}"
            text = f"{', '.join(package.distributions) or 'no distribution'}; {variant}"
            evidence.append(Evidence(package.folder, text, "RECORD and top_level.txt"))
        yield this.warn(
            f"{module} {clash}.",
            subject=module,
            evidence=evidence,
            remedy=(
                f"Uninstall all but the {module} that your stack calls, then reinstall that one; "
                "give every stack an environment of its own."
            ),
        )


@check("arch-below-minimum", "The GPU is new enough for the code", gpu_code=True, cured_by_rebuild=False)
def arch_below_minimum(context: Context, this: Check) -> Iterator[Finding]:
    """gsplat from 1.0 on and FastGS use warp functions that exist from compute capability 7.0 on ("labeled_partition is
    undefined"). On a Pascal card they cannot be compiled, whatever toolkit is installed. Said of what is installed and of
    sources that wait to be built."""
    # gsplat's is asked of pip: its own __version__ is code, which nothing here runs
    installed_version = context.version_of("gsplat")
    versions = {package.module: (installed_version, package.folder) for package in context.packages}
    for item in context.sources_to_build:
        for name in (item.source.name or "", *item.source.packages):
            module = name.replace("-", "_")
            versions.setdefault(module, (item.source.version or "", item.source.folder))
    for module, (version, folder) in versions.items():
        name = module
        if module == "gsplat" and release(version)[:1] >= (1,):
            name = f"gsplat {version}"
        elif module != "diff_gaussian_rasterization_fastgs":
            continue
        for target in context.targets:
            if release(target.arch.cc) < (7, 0):
                via = context.environment.packages.found_via
                yield this.fail(
                    f"{name} needs compute capability 7.0; {target.label} has {target.arch.cc}.",
                    subject=f"{module} on {target.label}",
                    evidence=Evidence(module, f"{version} in {folder}".strip(), via),
                    remedy="Use a stack of Inria's family on this GPU, or gsplat 0.1.11 where the code allows it.",
                )


@check("lookalike-package", "Packages are what their names promise")
def lookalike_package(context: Context, this: Check) -> Iterator[Finding]:
    """`pip install simple-knn` brings an unrelated classifier, and `pip install gaussian-splatting` a repackaging with
    its own copies of torch's libraries. The extensions of a stack are not on PyPI; they are built from its submodules. Tools
    beside them have namesakes there too: `pip install pixi` brings a downloader of pictures."""
    for item in context.distributions:
        lookalike = stacks.lookalike(item.name)
        if lookalike is None or item.made_by_splatfix or not _from_index(item):
            continue
        native = any(extension.distribution == item.name for extension in context.extensions)
        if lookalike.name == "simple-knn" and native:
            continue  # it holds CUDA code, so it is the real one
        if lookalike.found is None:
            continue  # nothing of that name was on the index; whoever built this knows what it is
        report = this.fail
        need = f"The stack needs {lookalike.wanted}."
        if lookalike.tool:
            need = f"If that was meant, take {lookalike.wanted}."
        # a repackaging with compiled code may well do what is asked of it; a program is in nobody's way
        if native or lookalike.tool:
            report = this.warn
        yield report(
            f"{item.name} {item.version} is {lookalike.really}.",
            subject=item.name,
            evidence=Evidence(item.name, f"{item.version} in {item.location}", "its metadata"),
            remedy=(need, pip(context.facts, "uninstall", item.name)),
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


@check("torch-not-imported-first", "Extensions that find libtorch only after torch")
def import_torch_first(context: Context, this: Check) -> Iterator[Finding]:
    """Compiled modules link libc10 and libtorch without saying where they lie. Most packages import torch themselves before
    their compiled part; one that does not (simple_knn) must be imported after torch, else it ends in "libc10.so: cannot
    open shared object file". Nothing is broken; only the order of the imports matters."""
    packages = {package.module: package for package in context.packages}
    for item in context.extensions:
        owner = packages.get(item.path.rpartition("/")[0].replace("/", "."))
        if not item.importable or not item.links_torch or owner is None or owner.imports_torch is not False:
            continue
        libraries = ", ".join(name for name in item.needed if TORCH_LIBRARY.match(name))
        yield this.skip(
            f"Import torch before {owner.module}: it does not do so itself.",
            subject=owner.module,
            evidence=(
                Evidence(item.path, f"needs {libraries}", "its dynamic section"),
                Evidence(f"{owner.module}/__init__.py", "no import of torch", "its text"),
            ),
            remedy="Write import torch above it.",
        )


@check("egl-missing", "OpenGL headers are here for nvdiffrast's GL rasterizer")
def egl_missing(context: Context, this: Check) -> Iterator[Finding]:
    """nvdiffrast's RasterizeGLContext is compiled at its first use and includes EGL/egl.h: "fatal error: EGL/egl.h: No such
    file or directory", or an undefined symbol eglCreateContext in its cached plugin. RasterizeCudaContext needs none of it; since
    0.3 it has a plugin of its own, so that only programs that ask for the GL one are stopped."""
    missing, plugin = context.machine.missing_graphics, context.distribution("nvdiffrast")
    including = []
    for item in context.sources_to_build:
        if {"EGL", "GL"} & set(item.source.libraries):
            including.append(item.source.label)
    if not missing.value or (plugin is None and not including):
        return
    headers, name = ", ".join(missing.value), next(iter(including), "nvdiffrast")
    report = this.skip
    # before 0.3 nvdiffrast had one plugin, which the CUDA rasterizer needs too
    if including or (plugin is not None and release(plugin.version)[:2] < (0, 3)):
        report = this.warn
    yield report(
        f"{name} compiles against OpenGL, and {headers} is not here.",
        evidence=Evidence("headers", f"not there: {headers}", missing.found_via),
        remedy=(
            "Use nvdiffrast's RasterizeCudaContext, or install libegl1-mesa-dev, libgl1-mesa-dev and "
            "libgles2-mesa-dev, then remove nvdiffrast_plugin from torch's extension cache."
        ),
    )
