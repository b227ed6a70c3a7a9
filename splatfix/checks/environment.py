"""Checks of the target environment: its Python, its build tools, and whether torch has wheels for it."""

from __future__ import annotations

from collections.abc import Iterator

from splatfix.checks.evidence import lack_for_builds, reason, unread_files, version_of
from splatfix.checks.registry import Check, checks_of
from splatfix.checks.torch import pinned_torch
from splatfix.context import Context
from splatfix.context.commands import installer_of, make_environment, pip, python_option, removed_by
from splatfix.context.installed import SETUPTOOLS_DROPPED, python_versions
from splatfix.context.requirements import needs_wheel
from splatfix.core.proof import RungName
from splatfix.core.step import Step, run
from splatfix.core.versions import dotted, release
from splatfix.core.words import few
from splatfix.knowledge import torch_releases
from splatfix.knowledge.breakages import breakages
from splatfix.model import AlteredFile, Evidence, Finding, Shadow

check = checks_of("environment")


@check("interpreter-broken", "The target Python works", bears_on=RungName.RESOLVED)
def interpreter_answers(context: Context, this: Check) -> Iterator[Finding]:
    """splatfix touches the target environment only through a child process. If that process crashes, hangs or prints
    nonsense, the environment itself is broken, and everything below it stays unknown."""
    interpreter = context.environment.interpreter
    if interpreter.absent:
        yield this.unknown(
            f"No environment was judged, only the machine: {interpreter.error}.",
            remedy="Activate one, go to the folder that holds its .venv, or give --python path/to/venv.",
        )
        return
    if interpreter.value is None:
        yield this.fail(
            "The target environment's Python does not work.",
            evidence=reason(interpreter.error),
            remedy="Recreate the environment, or choose another one with --python.",
        )
        return
    python = interpreter.value
    yield this.ok(
        f"Python {python.version} ({python.kind}) at {python.prefix}",
        evidence=Evidence("executable", python.executable, interpreter.found_via),
    )


@check("no-installer", "Packages can be installed in the environment")
def no_installer(context: Context, this: Check) -> Iterator[Finding]:
    """uv and Poetry make environments without pip, where `python -m pip` fails; uv installs there, or the pip of another
    Python (`pip --python`, pip 22.3 and newer). A Python that the system or uv manages refuses every installation (PEP
    668). splatfix builds and installs with the pip inside, else with uv, else with the pip beside itself."""
    python, installers = context.interpreter, context.environment.installer
    if python is None or context.environment.distributions.value is None:
        return
    via = context.environment.interpreter.found_via
    evidence = [Evidence("Python", f"{python.executable} ({python.kind})", via)]
    if python.externally_managed:
        yield this.warn(
            f"{python.executable} refuses installations (PEP 668).",
            evidence=evidence,
            remedy=(
                make_environment(python),
                "splatfix then finds it from this folder; elsewhere name it with --python.",
            ),
        )
        return
    installer = installer_of(context.facts)
    if installer is None:
        if installers.error:
            yield this.finding(
                lack_for_builds(context),
                "The environment has no pip, and neither uv nor another pip that installs there was found.",
                evidence=evidence,
                remedy=run(python.executable, "-m", "ensurepip", text="Add pip to it"),
            )
        return
    name = "the environment's own pip"
    if installer.version:
        name = f"{installer.kind} {installer.version}"
    if installer.program:
        evidence.append(Evidence(installer.program, installer.version, installers.found_via))
    lock_note = ""
    command = removed_by(context.facts)
    if command:
        evidence.append(Evidence("lock file", python.lock_file))
        lock_note = f"; `{command}` removes again what is not in its lock file"
    yield this.ok(f"Packages are installed by {name}{lock_note}.", evidence=evidence)


@check("build-tools-missing", "Build tools installed")
def build_tools(context: Context, this: Check) -> Iterator[Finding]:
    """Splatting extensions are built with `--no-build-isolation`, so what builds them must be in the environment itself:
    setuptools (and wheel before setuptools 70.1); ninja makes torch compile files side by side."""
    if context.environment.distributions.value is None or context.torch_cuda is None:
        return
    setuptools = context.distribution("setuptools")
    missing = []
    if setuptools is None:
        requirement = "setuptools"
        # below the release that dropped what this torch's builder imports of it; the table begins with the oldest
        for name, limit in SETUPTOOLS_DROPPED.items():
            if context.torch is not None and name in context.torch.builder_imports:
                requirement = f"setuptools<{limit}"
                break
        missing.append(requirement)
    if not context.distribution("wheel") and needs_wheel(context.facts):
        missing.append("wheel")
    if not context.distribution("ninja") and "ninja" not in context.machine.tools:
        missing.append("ninja")
    evidence = [version_of(context, name) for name in ("setuptools", "wheel", "ninja")]
    if missing:
        names = ", ".join(requirement.partition("<")[0] for requirement in missing)
        yield this.finding(
            lack_for_builds(context),
            f"Missing to build extensions: {names}.",
            evidence=evidence,
            remedy=pip(context.facts, "install", *missing),
        )
    else:
        yield this.ok("Build tools installed.", evidence=evidence)


@check("setuptools-incompatible", "setuptools is compatible with the build scripts")
def setuptools_incompatible(context: Context, this: Check) -> Iterator[Finding]:
    """torch.utils.cpp_extension of older releases imports pkg_resources, which setuptools 82 removed, or
    pkg_resources.packaging, which setuptools 70 removed. Every build of an extension then ends before it begins. The
    setup.py of tiny-cuda-nn imports pkg_resources itself, whatever torch does."""
    torch, setuptools = context.torch, context.distribution("setuptools")
    if torch is None or setuptools is None:
        return
    importers = [(f"torch {torch.version}", "cpp_extension.py", torch.builder_imports)]
    for item in context.sources_to_build:
        importers.append((item.source.label, f"{item.path}/setup.py", item.source.imports))
    for name, limit in SETUPTOOLS_DROPPED.items():
        if release(setuptools.version)[:1] < (limit,):
            continue
        for importer, file, imports in importers:
            if name in imports:
                yield this.fail(
                    f"{importer} imports {name}; setuptools {setuptools.version} no longer has it.",
                    evidence=(
                        version_of(context, "setuptools"),
                        Evidence(file, f"imports {name}", "its source text"),
                    ),
                    remedy=pip(context.facts, "install", f"setuptools<{limit}"),
                )
                return


@check("import-shadowing", "No file in the current folder shadows an installed package")
def import_shadowing(context: Context, this: Check) -> Iterator[Finding]:
    """Python searches the folder of the script, or the current one, before site-packages. A source folder of the same name
    is then imported instead of the installed package: "cannot import name '_C' from partially initialized module". A
    folder that holds compiled modules itself is an installation in place and counts as such."""
    installed = {item.module for item in context.packages} | {"torch", "torchvision", "numpy"}
    shadows: dict[str, Shadow] = {item.path: item for item in context.environment.shadows.value or ()}
    if context.checkout:
        shadows |= {item.path: item for item in context.checkout.shadows}
    for shadow in shadows.values():
        if not shadow.native and shadow.module in installed:
            yield this.warn(
                f"{shadow.path} shadows the installed {shadow.module}.",
                subject=shadow.module,
                evidence=Evidence("searched first", shadow.path, "names in the current folder"),
                remedy=f"Run from another folder, or rename {shadow.path}.",
            )


@check("package-altered", "Packages are as they were installed")
def package_altered(context: Context, this: Check) -> Iterator[Finding]:
    """A file of torch, numpy, Pillow or a splatting package that was edited by hand, is damaged or is gone, by the RECORD of
    its wheel: torch's cpp_extension.py, whose check of the CUDA version people take out, an optimizer, a loss. What is
    observed then is of no version that anybody else has. Looked at are the sources that decide what a training computes, by
    their digests, and native files by their size; `splatfix certify` compares every file that ran."""
    altered: dict[str, list[AlteredFile]] = {}
    fact = context.environment.altered
    for item in fact.value or ():
        altered.setdefault(f"{item.distribution} {item.version}", []).append(item)
    for name, files in altered.items():
        paths = few([item.path for item in files], 2)
        distribution = files[0].distribution
        summary = f"{name} is not as it was installed: {paths}."
        evidence = [Evidence(item.path, item.found, fact.found_via) for item in files]
        command = ("splatfix", "install", "--repair", distribution, *python_option(context.facts))
        report = this.warn
        remedy: Step | str = run(*command, text="Put it back as that version's wheel has it")
        cures = {path for record in breakages() if record.installed for path in record.installed.files}
        if cures.issuperset(item.path for item in files):
            in_place = f"splatfix install {distribution} --in-place"
            report, remedy = this.skip, f"Leave it if {in_place} did that; splatfix revert takes it back."
        yield report(summary, subject=distribution, evidence=evidence, remedy=remedy)


@check(
    "installed-package-breaks", "Installed trainers run beside this torch and numpy, and beside what they pin"
)
def installed_package_breaks(context: Context, this: Check) -> Iterator[Finding]:
    """A trainer that pip installs (nerfstudio) was made for the torch of its day and for one gsplat: nerfstudio 1.1.5 pins gsplat
    1.4.0, whose successor changed the shape of radii, and its checkpoints are refused by torch 2.6 and newer. The records are
    in `patches/` (`[installed]`); `splatfix install nerfstudio --in-place` makes their edits where it is installed, and
    `splatfix revert` takes them back."""
    edited = {item.path for item in context.environment.altered.value or ()}
    versions = python_versions(context.facts)
    for record in breakages():
        broken = record.installed
        if broken is None:
            continue
        name, version = broken.distribution, context.version_of(broken.distribution)
        if not (record.breaks_installed(name, version) and record.when.holds(versions)):
            continue
        evidence = Evidence(f"{name} {version}", record.cure, "patches/" + record.key)
        if edited.issuperset(broken.files):
            yield this.ok(
                f"{name} {version} was edited where it breaks here.", subject=name, evidence=evidence
            )
            continue
        yield this.warn(
            f"{name} {version}: {record.symptom}.",
            subject=name,
            evidence=evidence,
            remedy=run(
                *("splatfix", "install", name, "--in-place", *python_option(context.facts)),
                text="Edit it where it is installed, backed up first",
            ),
        )
    trainer = context.distribution("nerfstudio")
    for pin in trainer.pins if trainer else ():
        name, _, expected = pin.partition("==")
        version = context.version_of(name)
        if trainer is None or not version or version.partition("+")[0] == expected:
            continue
        yield this.fail(
            f"{trainer.name} {trainer.version} pins {name} {expected}; {version} is installed.",
            subject=trainer.name,
            evidence=Evidence(trainer.name, pin, "its metadata"),
            remedy=pip(context.facts, "install", pin),
        )


@check("editable-source-gone", "Sources of editable installs exist")
def editable_source_gone(context: Context, this: Check) -> Iterator[Finding]:
    """`pip install -e` (SuGaR's install.py does it) only links to the source folder. When that folder is moved or removed,
    pip still lists the package and importing it fails."""
    for item in context.distributions:
        if item.source_gone:
            yield this.fail(
                f"{item.name} was installed from {item.origin}, which is gone.",
                subject=item.name,
                evidence=Evidence(item.name, item.origin, "direct_url.json or egg-link"),
                remedy=(
                    pip(context.facts, "uninstall", item.name),
                    "Then reinstall it, not editable, from the folder where its source is now.",
                ),
            )


@check("python-version-unsupported", "torch has wheels for this Python")
def python_version_unsupported(context: Context, this: Check) -> Iterator[Finding]:
    """torch publishes wheels for a few minors of CPython, 64 bits only; on another Python pip says "No matching distribution
    found for torch" and no more. Said only where torch is not installed yet. Source: knowledge/data/torch_releases.json."""
    python = context.interpreter
    if python is None or context.environment.torch_installed.value is not False:
        return
    version, kind = context.python, f"{python.implementation}, {python.platform_tag}"
    evidence = Evidence("Python", f"{python.version} ({kind})", python.executable)
    rows = torch_releases.releases()
    if python.platform_tag in ("win32", "linux-i686", "linux-armv7l"):
        obstacle = "it is a 32-bit build"
    elif python.implementation != "CPython":
        obstacle = f"it is {python.implementation}"
    else:
        obstacle = "no release in splatfix's tables has wheels for it"
        fitting, undecided = [], []
        for row in rows:
            supported = version and row.supports_python(version)
            if supported:
                fitting.append(row.release)
            elif supported is None:
                undecided.append(row.release)
        if fitting:
            newest = max(fitting, key=release)
            open_end = ""
            if undecided:
                open_end = f"; of {max(undecided, key=release)} that is not known"
            yield this.ok(
                f"torch up to {newest} has wheels for Python {python.version}{open_end}.", evidence=evidence
            )
            return
        # the newest Python that the table says anything about
        known = [max((row.python_max or row.python_min, *row.python_experimental)) for row in rows]
        if version and version > max(known):
            yield this.unknown(
                f"Whether torch has wheels for Python {python.version} is not in splatfix's tables.",
                evidence=evidence,
            )
            return
    latest = max(rows, key=lambda row: release(row.release))
    lower = dotted(latest.python_min)
    upper = dotted(latest.python_max or ()) or "the newest"
    yield this.fail(
        f"torch has no wheels for this Python {python.version}: {obstacle}.",
        evidence=evidence,
        remedy=f"Recreate the environment with 64-bit CPython {lower} to {upper}.",
    )


@check("no-matching-wheel", "The pinned torch has a wheel for this machine")
def no_matching_wheel(context: Context, this: Check) -> Iterator[Finding]:
    """The torch that a checkout pins must have a wheel for this Python and C library: torch 1.12 ends at Python 3.10, wheels
    from 2.7 on need glibc 2.28, and musl (Alpine) has none at all. pip then says "Could not find a version that satisfies
    the requirement". Said only where torch is not installed yet. Source: knowledge/data/torch_releases.json."""
    python, libc = context.interpreter, context.machine.libc
    if python is None or context.environment.torch_installed.value is not False:
        return
    if libc.value and libc.value.startswith("musl"):
        yield this.fail(
            f"torch has no wheels for {libc.value}.",
            evidence=Evidence("C library", libc.value, libc.found_via),
            remedy="Use a distribution or an image with glibc (Debian, Ubuntu, RHEL); Alpine's musl cannot load torch.",
        )
        return
    pin = pinned_torch(context)
    if pin is None:
        return
    pinned = pin.spec.removeprefix("==")
    row = torch_releases.release(pinned)
    if row is None:
        return
    platform = context.platform or "linux"
    has = {"python": context.python, "glibc": context.glibc}
    obstacles = [
        torch_releases.wheel_obstacle(build, platform, context.machine.machine, **has) for build in row.builds
    ]
    if obstacles and all(obstacles):
        yield this.warn(
            f"{pin.file} pins torch {pinned}: {obstacles[0]}",
            evidence=(
                Evidence(pin.file, f"{pin.name}{pin.spec}", "its text"),
                Evidence("Python", python.version, python.executable),
                Evidence("glibc", context.machine.glibc or "not known", libc.found_via),
            ),
            remedy="Ignore that pin and install a torch build for this GPU, or use another Python.",
        )


@check("unreadable-file", "Files of the machine and the environment can be read")
def unreadable_file(context: Context, this: Check) -> Iterator[Finding]:
    """Only regular files are read, and only up to a limit: what is a pipe, a device, endless or for others' eyes stays
    unread, and what hangs on it unknown."""
    yield from unread_files(this, context.facts.unreadable, "")
