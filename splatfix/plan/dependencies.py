"""What sources and their training scripts need and the environment lacks: refused or named before a build, or installed."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from splatfix.context.commands import pip, python_option
from splatfix.context.imports import MissingModules, brought_by, from_git, missing_modules, pip_arguments
from splatfix.context.requirements import (
    met,
    name_of,
    needs_wheel,
    outgrown,
    unmet,
    version_of,
)
from splatfix.core.errors import SplatfixError
from splatfix.core.step import Step, run, say
from splatfix.knowledge.imports import Repository, repository_of
from splatfix.knowledge.torch_releases import COMPANIONS
from splatfix.model import Facts, ImportedModule, Pin, Source
from splatfix.model.option import Request
from splatfix.model.steps import InstallDependencies, Reason
from splatfix.plan.checkout import declared_by, incomplete, modules_of_scripts, not_around


class Lacks(Struct, frozen=True):
    """What one source needs and the target environment does not have."""

    to_build: tuple[str, ...]
    """Requirements of its build."""
    to_import: tuple[str, ...]
    """Requirements of its packages that pip can bring."""
    declared: tuple[str, ...]
    """Those that it declares itself."""
    imported: MissingModules
    """What its packages are seen to import; its own requirements.txt tells what brings that."""
    by_setup: MissingModules
    """What its setup.py imports."""
    to_compile: tuple[Repository, ...]
    """What it declares and pip cannot bring: it has to be compiled against the installed torch."""

    @property
    def requirements(self) -> tuple[str, ...]:
        """What pip has to bring before it is built, once each."""
        return tuple({name_of(text): text for text in (*self.to_build, *self.to_import)}.values())


def _lacks_of(facts: Facts, source: Source, together: Sequence[Source]) -> Lacks:
    by_setup = missing_modules(facts, (ImportedModule(name, "setup.py", 0) for name in source.build_imports))
    imported = missing_modules(
        facts,
        source.needs,
        declared=declared_by(Path(source.folder)),
        brought=brought_by((source, *together)),
    )
    tools = ["setuptools"]
    if needs_wheel(facts):
        tools.append("wheel")
    if source.uses_torch_builder:
        tools.append("ninja")
    to_build = [name for name in tools if version_of(facts, name) is None]
    to_build += [text for text in source.build_requires if not met(facts, text)]
    _add_unlisted(to_build, by_setup.requirements, to_build)
    declared = tuple(unmet(facts, source))
    to_import: list[str] = []
    to_compile: list[Repository] = []
    for text in declared:
        repository = repository_of(name_of(text).replace("-", "_"))
        if repository:
            to_compile.append(repository)
        else:
            to_import.append(text)
    _add_unlisted(to_import, imported.requirements, [*to_build, *to_import])
    if "ninja" in facts.machine.tools:  # the machine's own, found through PATH, serves as well
        to_build = [text for text in to_build if text != "ninja"]
        to_import = [text for text in to_import if text != "ninja"]
    return Lacks(tuple(to_build), tuple(to_import), declared, imported, by_setup, tuple(to_compile))


def _add_unlisted(requirements: list[str], more: Sequence[str], listed: Sequence[str]) -> None:
    """Add what is not among the listed ones under another version already."""
    names = {name_of(text) for text in listed}
    requirements += [text for text in more if name_of(text) not in names]


def require_build_tools(
    facts: Facts,
    source: Source,
    together: Sequence[Source] = (),
    request: Request | None = None,
    *,
    built: bool = True,
) -> Lacks:
    """See that a build has all it needs (setuptools, wheel, ninja, pyproject.toml's), and what its package imports.

    Gives what it lacks all the same.

    The build runs without isolation and the wheel is installed without dependencies, so all must be there already; else
    it would fail at the first import, after a build of many minutes. Without CUDA code any C compiler will do, but there
    must be one.

    Args:
        together: the sources that are installed with it, which may import each other.
        request: what asks for them. With its dependencies, what pip can bring is installed first, and is no obstacle.
        built: it is; a wheel that is there needs only what its packages import.

    Raises:
        SplatfixError: ``build-tools-missing`` naming all of them at once, ``import-not-built``, ``python-does-not-fit``,
            ``torch-does-not-fit``, ``no-host-compiler``.
    """
    interpreter = facts.environment.interpreter.value
    if source.python and interpreter:
        # pip refuses the finished wheel of a source that does not take this Python; that is known before it is compiled
        with suppress(InvalidSpecifier, InvalidVersion):  # setuptools itself will say what is wrong with it
            if not SpecifierSet(source.python).contains(interpreter.version, prereleases=True):
                raise SplatfixError.of(
                    "plan.python-does-not-fit",
                    source_label=source.label,
                    python=source.python,
                    executable=interpreter.executable,
                    interpreter_version=interpreter.version,
                )
    if source.modules and not source.needs_cuda and facts.machine.compilers.value == ():
        raise SplatfixError.of(
            "plan.no-host-compiler", found_via=facts.machine.compilers.found_via, source_label=source.label
        )
    todo: list[Step] = []
    lacks = _lacks_of(facts, source, together)
    if not built:
        lacks = replace(lacks, to_build=(), by_setup=MissingModules())
    installed = version_of(facts, "torch")
    for text in (*lacks.to_build, *lacks.to_import):
        if name_of(text) == "torch" and installed is not None:
            raise SplatfixError.of(
                "plan.torch-does-not-fit", source_label=source.label, text=text, installed=installed
            )
    if lacks.imported.repositories:
        # something else that has to be compiled against the installed torch
        for item in lacks.imported.repositories:
            todo.append(run("git", "clone", "--recursive", item.address))
            todo.append(run("splatfix", "install", item.clone, *python_option(facts)))
        todo.append(say("Then run this again."))
        # _is_buildable comes here again, without a request
        if request and (others := [item.folder for item in together if _is_buildable(facts, item, together)]):
            argv = ("splatfix", "install", *others, *request.options, *python_option(facts))
            todo.append(run(*argv, text="Or install the others of them alone"))
        names = ", ".join(item.module for item in lacks.imported.repositories)
        raise SplatfixError.of("plan.import-not-built", todo=tuple(todo), label=source.label, names=names)
    if not lacks.requirements or interpreter is None or (request and request.with_dependencies):
        return lacks
    todo = [pip(facts, "install", *pip_arguments(facts, lacks.requirements))]
    if request:
        options = replace(request, with_dependencies=True).options
        argv = ("splatfix", "install", *request.sources, *options, *python_option(facts))
        todo.append(run(*argv, text="Or let splatfix install them too, in the same journal"))
    purposes = []
    for requirements, purpose in ((lacks.to_build, "to be built"), (lacks.to_import, "to be imported")):
        if requirements:
            purposes.append(f"{', '.join(dict.fromkeys(requirements))} {purpose}")
    raise SplatfixError.of(
        "plan.build-tools-missing",
        todo=tuple(todo),
        executable=interpreter.executable,
        label=source.label,
        purposes=" and ".join(purposes),
    )


def _is_buildable(facts: Facts, source: Source, together: Sequence[Source]) -> bool:
    """Tell whether nothing speaks against it but what pip can bring."""
    try:
        require_build_tools(facts, source, together)
    except SplatfixError as error:
        return error.code == "build-tools-missing"
    return True


class Dependencies(Struct, frozen=True):
    """What is done about them."""

    steps: tuple[InstallDependencies, ...] = ()
    """To be done before anything is built; () where nothing is missing or nobody asked for it."""
    notes: tuple[str, ...] = ()
    """What packages and training scripts will lack after all, each as a sentence."""


class _Gathered(Struct):
    """What is missing, collected over sources and scripts; insertion order is pip's order."""

    reasons: dict[str, str] = field(default_factory=dict)
    """By requirement, why it is installed."""
    modules: dict[str, None] = field(default_factory=dict)
    optional: dict[str, None] = field(default_factory=dict)
    """Requirements without which the packages can be built and imported."""
    optional_modules: dict[str, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    declared: list[Pin] = field(default_factory=list)
    """What the checkouts' files ask for."""


def require_submodules(facts: Facts, sources: Sequence[Source]) -> None:
    """Refuse a source that imports what an empty submodule of its own brings: it would be built, and taken back at its import.

    Raises:
        SplatfixError: ``source-incomplete``.
    """
    for source in sources:
        lacking = missing_modules(facts, source.needs, brought=brought_by(sources)).unknown
        empty = [item.path for item in source.submodules if item.empty and Path(item.path).name in lacking]
        if empty:
            raise incomplete(source.label, Path(source.folder), empty)


def plan_dependencies(
    request: Request, facts: Facts, sources: Sequence[Source], prebuilt: Collection[str] = ()
) -> Dependencies:
    """What builds and packages lack is refused, or installed too; what only the scripts lack is named, or installed too.

    Args:
        prebuilt: labels of the sources that are not built.

    Raises:
        SplatfixError: as :func:`require_build_tools`; with ``--with-dependencies`` only for what pip cannot cure.
    """
    gathered = _Gathered()
    for source in sources:
        built = source.label not in prebuilt
        lacks = require_build_tools(facts, source, sources, request, built=built)
        _gather_of_source(gathered, facts, source, lacks)
    for text in request.sources:
        _gather_of_scripts(gathered, request, facts, text, sources)
    notes = tuple(gathered.notes)
    if not request.with_dependencies or not gathered.reasons:
        return Dependencies(notes=notes)
    # slow, and seldom needed
    from packaging.requirements import InvalidRequirement, Requirement

    # torch itself is held by the constraints of the installation
    arguments = pip_arguments(facts, gathered.reasons)
    index = ""
    if "--extra-index-url" in arguments:
        index = arguments[-1]
    # what a checkout says comes before what an extension in it says
    for source in sources:
        gathered.declared += declared_by(Path(source.folder))
    # by name the first of several; torch is there, and what goes with one build of it (torchvision) follows it
    pins: dict[str, str] = {}
    for pin in gathered.declared:
        distribution = canonicalize_name(pin.name)
        if (
            pin.spec
            and distribution not in ("torch", *COMPANIONS)
            and version_of(facts, distribution) is None
        ):
            with suppress(InvalidRequirement):  # pip itself would refuse the whole list for it
                pins.setdefault(distribution, str(Requirement(f"{pin.name}{pin.spec}")))
    reasons: list[Reason] = []
    for name, text in gathered.reasons.items():
        pinned = pins.get(name_of(name), name)
        reasons.append(Reason(f"{pinned}: {text}", "the text of its Python files"))
    step = InstallDependencies(
        requirements=tuple(gathered.reasons),
        modules=tuple(gathered.modules),
        optional=tuple(name for name in gathered.reasons if name in gathered.optional),
        optional_modules=tuple(gathered.optional_modules),
        index=index,
        pins=tuple(pins.values()),
        reasons=tuple(reasons),
    )
    return Dependencies((step,), notes)


def _gather_of_source(gathered: _Gathered, facts: Facts, source: Source, lacks: Lacks) -> None:
    for requirement in lacks.requirements:
        gathered.reasons[requirement] = f"{source.label} needs it"
    missing = lacks.imported
    # what it declares, and is not seen to import when it is imported, nor to need for its build, can be left out
    if not missing.unknown:
        needed = {name_of(text) for text in (*missing.requirements, *source.build_requires)}
        gathered.optional |= dict.fromkeys(text for text in lacks.declared if name_of(text) not in needed)
    gathered.modules |= dict.fromkeys(missing.modules)
    for text in outgrown(facts, source):
        installed = version_of(facts, name_of(text))
        gathered.notes.append(f"{source.label} declares {text}; {installed} is installed, and stays")
    gathered.notes += _unknown(f"the setup.py of {source.label} imports", lacks.by_setup)
    foreign = replace(missing, unknown=not_around(source, missing.unknown))
    gathered.notes += _unknown(f"{source.label} imports", foreign)
    for module, address in missing.addresses.items():
        gathered.notes.append(f"{source.label} imports {module}, which its requirements take from {address}")
    for repository in lacks.to_compile:
        gathered.notes.append(f"{source.label} asks for {repository.words}")


def _gather_of_scripts(
    gathered: _Gathered, request: Request, facts: Facts, source: str, sources: Sequence[Source]
) -> None:
    imports, declared = modules_of_scripts(source)
    gathered.declared += declared
    missing = missing_modules(facts, imports, declared=declared, brought=brought_by(sources))
    listed = {name_of(requirement) for requirement in gathered.reasons}
    for requirement in missing.requirements:
        if name_of(requirement) not in listed:
            gathered.reasons[requirement] = "its scripts import it"
            gathered.optional[requirement] = None
    for module in missing.modules:
        if module not in gathered.modules:
            gathered.optional_modules[module] = None
    if missing.requirements and not request.with_dependencies:
        names = ", ".join(missing.requirements)
        gathered.notes.append(
            f"its scripts import what is not installed: {names} (--with-dependencies installs that)"
        )
    for repository in missing.repositories:
        gathered.notes.append(f"its scripts import {repository.words}")
    gathered.notes += _unknown("its scripts import", missing)
    for step in from_git(facts, missing):
        names = ", ".join(missing.addresses)
        gathered.notes.append(
            f"its scripts import {names}, which its requirements take from git: {step.line()}"
        )


def _unknown(importer: str, missing: MissingModules) -> list[str]:
    if not missing.unknown:
        return []
    names = ", ".join(missing.unknown)
    return [f"{importer} {names}, not installed; which package brings it is not known here: see its README"]
