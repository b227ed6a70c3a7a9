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
from splatfix.core.step import run
from splatfix.core.versions import dotted, release
from splatfix.core.words import few
from splatfix.knowledge import torch_releases
from splatfix.knowledge.breakages import breakages
from splatfix.model import AlteredFile, Evidence, Finding, Shadow

check = checks_of("environment")


@check("interpreter-broken", bears_on=RungName.RESOLVED)
def interpreter_broken(context: Context, this: Check) -> Iterator[Finding]:
    interpreter = context.environment.interpreter
    python = interpreter.value
    if interpreter.absent:
        yield this.unknown(error=interpreter.error)
    elif python is None:
        yield this.fail(evidence=reason(interpreter.error))
    else:
        evidence = Evidence("executable", python.executable, interpreter.found_via)
        yield this.ok(evidence=evidence, python=python)


@check("no-installer")
def no_installer(context: Context, this: Check) -> Iterator[Finding]:
    python, installers = context.interpreter, context.environment.installer
    if python is None or context.environment.distributions.value is None:
        return
    via = context.environment.interpreter.found_via
    evidence = [Evidence("Python", f"{python.executable} ({python.kind})", via)]
    if python.externally_managed:
        yield this.warn(evidence=evidence, python=python, make=make_environment(python))
        return
    installer = installer_of(context.facts)
    if installer is None:
        if installers.error:
            yield this.finding(lack_for_builds(context), "none", evidence=evidence, python=python)
        return
    name = "the environment's own pip"
    if installer.version:
        name = f"{installer.kind} {installer.version}"
    if installer.program:
        evidence.append(Evidence(installer.program, installer.version, installers.found_via))
    case, command = "", removed_by(context.facts)
    if command:
        case = "locked"
        evidence.append(Evidence("lock file", python.lock_file))
    yield this.ok(case, evidence=evidence, name=name, command=command)


@check("build-tools-missing")
def build_tools_missing(context: Context, this: Check) -> Iterator[Finding]:
    if context.environment.distributions.value is None or context.torch_cuda is None:
        return
    missing = []
    if context.distribution("setuptools") is None:
        imported = context.torch.builder_imports if context.torch else ()
        # below the release that dropped what this torch's builder imports of it; the table begins with the oldest
        limits = [f"setuptools<{limit}" for name, limit in SETUPTOOLS_DROPPED.items() if name in imported]
        missing += limits[:1] or ["setuptools"]
    if not context.distribution("wheel") and needs_wheel(context.facts):
        missing.append("wheel")
    if not context.distribution("ninja") and "ninja" not in context.machine.tools:
        missing.append("ninja")
    evidence = [version_of(context, name) for name in ("setuptools", "wheel", "ninja")]
    if missing:
        names = ", ".join(requirement.partition("<")[0] for requirement in missing)
        install = pip(context.facts, "install", *missing)
        yield this.finding(
            lack_for_builds(context), "missing", evidence=evidence, remedy=install, names=names
        )
    else:
        yield this.ok(evidence=evidence)


@check("setuptools-incompatible")
def setuptools_incompatible(context: Context, this: Check) -> Iterator[Finding]:
    torch, setuptools = context.torch, context.distribution("setuptools")
    if torch is None or setuptools is None:
        return
    importers = [(f"torch {torch.version}", "cpp_extension.py", torch.builder_imports)]
    for item in context.sources_to_build:
        importers.append((item.source.label, f"{item.path}/setup.py", item.source.imports))
    for name, limit in SETUPTOOLS_DROPPED.items():
        for importer, file, imports in importers:
            if name in imports and release(setuptools.version)[:1] >= (limit,):
                imported = Evidence(file, f"imports {name}", "its source text")
                yield this.fail(
                    evidence=(version_of(context, "setuptools"), imported),
                    remedy=pip(context.facts, "install", f"setuptools<{limit}"),
                    importer=importer,
                    name=name,
                    setuptools=setuptools,
                )
                return


@check("import-shadowing")
def import_shadowing(context: Context, this: Check) -> Iterator[Finding]:
    installed = {item.module for item in context.packages} | {"torch", "torchvision", "numpy"}
    shadows: dict[str, Shadow] = {item.path: item for item in context.environment.shadows.value or ()}
    if context.checkout:
        shadows |= {item.path: item for item in context.checkout.shadows}
    for shadow in shadows.values():
        if not shadow.native and shadow.module in installed:
            evidence = Evidence("searched first", shadow.path, "names in the current folder")
            yield this.warn(subject=shadow.module, evidence=evidence, shadow=shadow)


@check("package-altered")
def package_altered(context: Context, this: Check) -> Iterator[Finding]:
    altered: dict[str, list[AlteredFile]] = {}
    fact = context.environment.altered
    for item in fact.value or ():
        altered.setdefault(f"{item.distribution} {item.version}", []).append(item)
    for name, files in altered.items():
        distribution, report = files[0].distribution, this.warn
        cures = {path for record in breakages() if record.installed for path in record.installed.files}
        if cures.issuperset(item.path for item in files):
            report = this.skip
        command = ("splatfix", "install", "--repair", distribution, *python_option(context.facts))
        yield report(
            subject=distribution,
            evidence=[Evidence(item.path, item.found, fact.found_via) for item in files],
            name=name,
            paths=few([item.path for item in files], 2),
            distribution=distribution,
            repair=run(*command, text="Put it back as that version's wheel has it"),
        )


@check("installed-package-breaks")
def installed_package_breaks(context: Context, this: Check) -> Iterator[Finding]:
    edited = {item.path for item in context.environment.altered.value or ()}
    versions = python_versions(context.facts)
    for record in breakages():
        broken = record.installed
        if broken is None:
            continue
        name, version = broken.distribution, context.version_of(broken.distribution)
        if not (record.breaks_installed(name, version) and record.when.holds(versions)):
            continue
        report = this.warn
        if edited.issuperset(broken.files):
            report = this.ok
        command = ("splatfix", "install", name, "--in-place", *python_option(context.facts))
        yield report(
            subject=name,
            evidence=Evidence(f"{name} {version}", record.cure, "patches/" + record.key),
            name=name,
            version=version,
            symptom=record.symptom,
            edit=run(*command, text="Edit it where it is installed, backed up first"),
        )
    trainer = context.distribution("nerfstudio")
    for pin in trainer.pins if trainer else ():
        name, _, expected = pin.partition("==")
        version = context.version_of(name)
        if trainer is None or not version or version.partition("+")[0] == expected:
            continue
        yield this.fail(
            subject=trainer.name,
            evidence=Evidence(trainer.name, pin, "its metadata"),
            remedy=pip(context.facts, "install", pin),
            trainer=trainer,
            name=name,
            expected=expected,
            version=version,
        )


@check("editable-source-gone")
def editable_source_gone(context: Context, this: Check) -> Iterator[Finding]:
    for item in context.distributions:
        if item.source_gone:
            evidence = Evidence(item.name, item.origin, "direct_url.json or egg-link")
            uninstall = pip(context.facts, "uninstall", item.name)
            yield this.fail(subject=item.name, evidence=evidence, item=item, uninstall=uninstall)


@check("python-version-unsupported")
def python_version_unsupported(context: Context, this: Check) -> Iterator[Finding]:
    python, version = context.interpreter, context.python
    if python is None or context.environment.torch_installed.value is not False:
        return
    rows = torch_releases.releases()
    fitting, undecided = [], []
    for row in rows:
        supported = version and row.supports_python(version)
        if supported:
            fitting.append(row.release)
        elif supported is None:
            undecided.append(row.release)
    # the newest Python that the table says anything about
    known = max(max((row.python_max or row.python_min, *row.python_experimental)) for row in rows)
    report, case = this.fail, ""
    if python.platform_tag in ("win32", "linux-i686", "linux-armv7l"):
        case = "of-32-bits"
    elif python.implementation != "CPython":
        case = "other-implementation"
    elif fitting:
        report, case = this.ok, "undecided" if undecided else ""
    elif version and version > known:
        report = this.unknown
    kind = f"{python.version} ({python.implementation}, {python.platform_tag})"
    latest = max(rows, key=lambda row: release(row.release))
    yield report(
        case,
        evidence=Evidence("Python", kind, python.executable),
        python=python,
        newest=max(fitting, key=release, default=""),
        undecided=max(undecided, key=release, default=""),
        lower=dotted(latest.python_min),
        upper=dotted(latest.python_max or ()) or "the newest",
    )


@check("no-matching-wheel")
def no_matching_wheel(context: Context, this: Check) -> Iterator[Finding]:
    python, libc = context.interpreter, context.machine.libc
    if python is None or context.environment.torch_installed.value is not False:
        return
    if libc.value and libc.value.startswith("musl"):
        yield this.fail(evidence=Evidence("C library", libc.value, libc.found_via), libc=libc)
        return
    pin = pinned_torch(context)
    if pin is None:
        return
    row = torch_releases.release(pin.spec.removeprefix("=="))
    if row is None:
        return
    platform = context.platform or "linux"
    has = {"python": context.python, "glibc": context.glibc}
    obstacles = [torch_releases.wheel_obstacle(build, platform, **has) for build in row.builds]
    if obstacles and all(obstacles):
        yield this.warn(
            evidence=(
                Evidence(pin.file, f"{pin.name}{pin.spec}", "its text"),
                Evidence("Python", python.version, python.executable),
                Evidence("glibc", context.machine.glibc or "not known", libc.found_via),
            ),
            pin=pin,
            version=pin.spec.removeprefix("=="),
            obstacle=obstacles[0],
        )


@check("unreadable-file")
def unreadable_file(context: Context, this: Check) -> Iterator[Finding]:
    yield from unread_files(this, context.facts.unreadable, "")
