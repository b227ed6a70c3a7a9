"""What sources and their training scripts need and the environment lacks: rejected or named before a build, or installed."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from splatfix.context import NotHere
from splatfix.context.commands import pip, python_option
from splatfix.context.imports import MissingModules, brought_by, from_git, missing_modules, pip_arguments
from splatfix.context.requirements import met, name_of, needs_wheel, outgrown, unmet, version_of
from splatfix.core.errors import Rejected
from splatfix.core.reading import resolved_folder
from splatfix.core.step import Step, run, say
from splatfix.facts.checkout import read_pins, read_scripts, trainer_around
from splatfix.knowledge.imports import Repository, repository_of
from splatfix.knowledge.torch_releases import COMPANIONS
from splatfix.model import Facts, ImportedModule, Pin, Source
from splatfix.model.option import Request
from splatfix.model.steps import InstallDependencies, Reason


class Dependencies(Struct, frozen=True):
    """What is done about what is missing."""

    steps: tuple[InstallDependencies, ...] = ()
    """To be done before anything is built; () where nothing is missing or nobody asked for it."""
    notes: tuple[str, ...] = ()
    """What packages and training scripts will lack after all, each as a sentence."""


class Lacks(Struct, frozen=True):
    """What one source needs and the target environment does not have, as requirements for pip."""

    source: Source
    to_build: Sequence[str]
    to_import: Sequence[str]
    declared: Sequence[str]
    """Those that it declares itself, also what pip cannot bring."""
    imported: MissingModules
    """What its packages are seen to import; its own requirements.txt tells what brings that."""
    unknown_to_setup: Sequence[str]
    """Modules that its setup.py imports, and of which it is not known what brings them."""

    @property
    def requirements(self) -> tuple[str, ...]:
        """What pip has to bring before it is built, once each."""
        return tuple({name_of(text): text for text in (*self.to_build, *self.to_import)}.values())


def plan_dependencies(
    request: Request, facts: Facts, sources: Sequence[Source], prebuilt: Collection[str] = ()
) -> Dependencies | Rejected:
    """Plan for what is missing: what builds and packages need is installed, or rejected; what only scripts need is named.

    A build runs without isolation and its wheel is installed without dependencies, so all must be there already; else it
    would fail at the first import, after a build of many minutes. With ``--with-dependencies`` only what pip cannot cure is
    rejected. What is ``prebuilt``, by its label, needs only what its packages import.
    """
    reasons: dict[str, str] = {}  # by requirement, in the order for pip
    optional: set[str] = set()  # of them, those without which the packages can be built and imported
    modules: dict[str, None] = {}
    optional_modules: dict[str, None] = {}
    notes: list[str] = []
    for source in sources:
        lacks = _lacks_of(facts, source, sources, built=source.label not in prebuilt)
        if rejection := _rejection(request, facts, lacks, sources):
            return rejection
        reasons.update(dict.fromkeys(lacks.requirements, f"{source.label} needs it"))
        modules.update(dict.fromkeys(lacks.imported.modules))
        # what it declares, and is not seen to import when it is imported, nor to need for its build, can be left out
        if not lacks.imported.unknown:
            needed = {name_of(text) for text in (*lacks.imported.requirements, *source.build_requires)}
            optional.update(text for text in lacks.declared if name_of(text) not in needed)
        notes += _notes_of(facts, lacks)
    # what a checkout says comes before what an extension in it says
    pins: list[Pin] = []
    for folder in filter(None, map(resolved_folder, request.sources)):
        declared = list(read_pins(folder))
        pins += declared
        imports = [item for item in read_scripts(folder)[0].imports if not item.beside]
        missing = missing_modules(facts, imports, declared=declared, brought=brought_by(sources))
        of_scripts = _unlisted(missing.requirements, list(reasons))
        reasons.update(dict.fromkeys(of_scripts, "its scripts import it"))
        optional.update(of_scripts)
        optional_modules.update(dict.fromkeys(name for name in missing.modules if name not in modules))
        notes += _notes_of_scripts(request, facts, missing)
    if not request.with_dependencies or not reasons:
        return Dependencies(notes=tuple(notes))
    # torch itself is held by the constraints of the installation
    arguments, index = pip_arguments(facts, reasons), ""
    if "--extra-index-url" in arguments:
        index = arguments[-1]
    for source in sources:
        pins += read_pins(Path(source.folder))
    # of several requirements of one package the first, for what is not installed; torch is there, and what goes with one
    # build of it (torchvision) follows it
    pinned: dict[str, str] = {}
    for pin in pins:
        name = canonicalize_name(pin.name)
        if pin.spec and name not in ("torch", *COMPANIONS) and version_of(facts, name) is None:
            with suppress(InvalidRequirement):  # pip itself would refuse the whole list for it
                pinned.setdefault(name, str(Requirement(f"{pin.name}{pin.spec}")))
    step = InstallDependencies(
        requirements=tuple(reasons),
        modules=tuple(modules),
        optional=tuple(name for name in reasons if name in optional),
        optional_modules=tuple(optional_modules),
        index=index,
        pins=tuple(pinned.values()),
        reasons=tuple(
            Reason(f"{pinned.get(name_of(name), name)}: {reason}", "the text of its Python files")
            for name, reason in reasons.items()
        ),
    )
    return Dependencies((step,), tuple(notes))


def _lacks_of(facts: Facts, source: Source, together: Sequence[Source], *, built: bool) -> Lacks:
    """Compare a source with the environment, and with those installed together with it, which may import each other."""
    pins, brought = read_pins(Path(source.folder)), brought_by((source, *together))
    imported = missing_modules(facts, source.needs, declared=pins, brought=brought)
    to_build: list[str] = []
    by_setup = MissingModules()
    if built:
        imports_of_setup = [ImportedModule(name, "setup.py", 0) for name in source.build_imports]
        by_setup = missing_modules(facts, imports_of_setup)
        tools = {"setuptools": True, "wheel": needs_wheel(facts), "ninja": source.uses_torch_builder}
        to_build = [name for name, needed in tools.items() if needed and version_of(facts, name) is None]
        to_build += [text for text in source.build_requires if not met(facts, text)]
        to_build += _unlisted(by_setup.requirements, to_build)
    declared = unmet(facts, source)
    to_import = [text for text in declared if not _repository(text)]
    to_import += _unlisted(imported.requirements, [*to_build, *to_import])
    if "ninja" in facts.machine.tools:  # the machine's own, found through PATH, serves as well
        to_build = [text for text in to_build if text != "ninja"]
        to_import = [text for text in to_import if text != "ninja"]
    return Lacks(source, to_build, to_import, declared, imported, by_setup.unknown)


def _repository(requirement: str) -> Repository | None:
    """Return what pip cannot bring a requirement from: it has to be compiled against the installed torch."""
    return repository_of(name_of(requirement).replace("-", "_"))


def _unlisted(requirements: Sequence[str], listed: Sequence[str]) -> list[str]:
    """Return those that are not among the listed ones under another version already."""
    names = {name_of(text) for text in listed}
    return [text for text in requirements if name_of(text) not in names]


def _rejection(request: Request, facts: Facts, lacks: Lacks, together: Sequence[Source]) -> Rejected | None:
    """Reject a source for what splatfix does not cure by itself, or was not asked to."""
    source, label, interpreter = lacks.source, lacks.source.label, facts.environment.interpreter.value
    python = python_option(facts)
    if source.python and interpreter:
        # pip refuses the finished wheel of a source that does not take this Python; that is known before it is compiled
        with suppress(InvalidSpecifier, InvalidVersion):  # setuptools itself will say what is wrong with it
            if not SpecifierSet(source.python).contains(interpreter.version, prereleases=True):
                return Rejected.of(
                    "plan.python-does-not-fit",
                    source_label=label,
                    python=source.python,
                    executable=interpreter.executable,
                    interpreter_version=interpreter.version,
                )
    # without CUDA code any C compiler will do, but there must be one
    if source.modules and not source.needs_cuda and facts.machine.compilers.value == ():
        found_via = facts.machine.compilers.found_via
        return NotHere.of("plan.no-host-compiler", found_via=found_via, source_label=label)
    installed = version_of(facts, "torch")
    for text in lacks.requirements:
        if name_of(text) == "torch" and installed is not None:
            return Rejected.of("plan.torch-does-not-fit", source_label=label, text=text, installed=installed)
    if repositories := lacks.imported.repositories:
        # something else that has to be compiled against the installed torch
        todo: list[Step] = []
        for item in repositories:
            todo.append(run("git", "clone", "--recursive", item.address))
            todo.append(request.install(item.clone, *python))
        todo.append(say("Then run this again."))
        # of those that are installed with it
        others: list[str] = []
        willing = replace(request, sources=(), with_dependencies=True)
        for other in together:
            if other is not source and isinstance(plan_dependencies(willing, facts, [other]), Dependencies):
                others.append(other.folder)
        if others:
            text = "Or install the others of them alone"
            todo.append(run("splatfix", "install", *others, *request.options, *python, text=text))
        names = [item.module for item in repositories]
        return Rejected.of("plan.import-not-built", todo=tuple(todo), label=label, names=names)
    if not interpreter or not lacks.requirements or request.with_dependencies:
        return None
    purposes = []
    for requirements, purpose in ((lacks.to_build, "to be built"), (lacks.to_import, "to be imported")):
        if requirements:
            purposes.append(f"{', '.join(dict.fromkeys(requirements))} {purpose}")
    text = "Or let splatfix install them too, in the same journal"
    with_them = replace(request, with_dependencies=True)
    return Rejected.of(
        "plan.build-tools-missing",
        todo=(
            pip(facts, "install", *pip_arguments(facts, lacks.requirements)),
            with_them.command(*request.sources, more=python, text=text),
        ),
        executable=interpreter.executable,
        label=label,
        purposes=" and ".join(purposes),
    )


def _notes_of(facts: Facts, lacks: Lacks) -> list[str]:
    """Name what a source will lack after all."""
    source, notes = lacks.source, []
    for text in outgrown(facts, source):
        installed = version_of(facts, name_of(text))
        notes.append(f"{source.label} declares {text}; {installed} is installed, and stays")
    notes += _unknown(f"the setup.py of {source.label} imports", lacks.unknown_to_setup)
    # but for what lies in the checkout around it, in which its trainer runs
    root = trainer_around(Path(source.folder))
    unknown = [name for name in lacks.imported.unknown if root is None or not resolved_folder(root / name)]
    notes += _unknown(f"{source.label} imports", unknown)
    for module, address in lacks.imported.addresses.items():
        notes.append(f"{source.label} imports {module}, which its requirements take from {address}")
    for repository in filter(None, map(_repository, lacks.declared)):
        notes.append(f"{source.label} asks for {repository.words}")
    return notes


def _notes_of_scripts(request: Request, facts: Facts, missing: MissingModules) -> list[str]:
    notes = []
    if missing.requirements and not request.with_dependencies:
        names = ", ".join(missing.requirements)
        notes.append(f"its scripts import what is not installed: {names} (--with-dependencies installs that)")
    notes += [f"its scripts import {repository.words}" for repository in missing.repositories]
    notes += _unknown("its scripts import", missing.unknown)
    for step in from_git(facts, missing):
        names = ", ".join(missing.addresses)
        notes.append(f"its scripts import {names}, which its requirements take from git: {step.line()}")
    return notes


def _unknown(importer: str, modules: Sequence[str]) -> list[str]:
    if not modules:
        return []
    names = ", ".join(modules)
    return [f"{importer} {names}, not installed; which package brings it is not known here: see its README"]
