"""What sources and their training scripts import and the environment lacks: named before a build, or installed with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from splatfix.context.commands import pip, python_option
from splatfix.context.imports import MissingModules, brought_by, missing_modules, pip_arguments
from splatfix.context.requirements import name_of, unmet
from splatfix.core.errors import SplatfixError
from splatfix.core.step import run, target_options
from splatfix.facts import Facts, Source, read_pins, read_scripts, resolved_folder
from splatfix.plan.option import Request
from splatfix.plan.requirements import (
    declared_repositories,
    for_setup,
    lacking_requirements,
    require_build_tools,
    undeclared,
)
from splatfix.plan.steps import InstallDependencies, Reason


@dataclass(frozen=True)
class Dependencies:
    """What is done about them."""

    steps: tuple[InstallDependencies, ...] = ()
    """To be done before anything is built; () where nothing is missing or nobody asked for it."""
    notes: tuple[str, ...] = ()
    """What packages and training scripts will lack after all, each as a sentence."""


@dataclass
class _Gathered:
    """What is missing, collected over sources and scripts; insertion order is pip's order."""

    reasons: dict[str, str] = field(default_factory=dict)
    """By requirement, why it is installed."""
    modules: dict[str, None] = field(default_factory=dict)
    optional: dict[str, None] = field(default_factory=dict)
    """Requirements without which the packages can be built and imported."""
    optional_modules: dict[str, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def plan_dependencies(request: Request, facts: Facts, sources: Sequence[Source]) -> Dependencies:
    """What builds and packages lack is refused, or installed too; what only the scripts lack is named, or installed too.

    Raises:
        SplatfixError: as :func:`require_build_tools`; with ``--with-dependencies`` only for what pip cannot cure.
    """
    gathered = _Gathered()
    for source in sources:
        _require_tools(request, facts, source, sources)
        _gather_of_source(gathered, facts, source, sources)
    for text in request.sources:
        _gather_of_scripts(gathered, request, facts, text, sources)
    notes = tuple(gathered.notes)
    if not request.with_dependencies or not gathered.reasons:
        return Dependencies(notes=notes)
    # torch itself is held by the constraints of the installation
    arguments = pip_arguments(facts, gathered.reasons)
    index = arguments[-1] if "--extra-index-url" in arguments else ""
    reasons = [
        Reason(f"{name}: {text}", "the text of its Python files") for name, text in gathered.reasons.items()
    ]
    step = InstallDependencies(
        requirements=tuple(gathered.reasons),
        modules=tuple(gathered.modules),
        optional=tuple(name for name in gathered.reasons if name in gathered.optional),
        optional_modules=tuple(gathered.optional_modules),
        index=index,
        reasons=tuple(reasons),
    )
    return Dependencies((step,), notes)


def _gather_of_source(gathered: _Gathered, facts: Facts, source: Source, sources: Sequence[Source]) -> None:
    for requirement in lacking_requirements(facts, source, sources):
        gathered.reasons[requirement] = f"{source.label} needs it"
    missing = undeclared(facts, source, sources)
    gathered.optional |= dict.fromkeys(_only_declared(facts, source, missing))
    gathered.modules |= dict.fromkeys(missing.modules)
    gathered.notes += _unknown(f"the setup.py of {source.label} imports", for_setup(facts, source))
    gathered.notes += _unknown(f"{source.label} imports", missing)
    for repository in declared_repositories(facts, source):
        gathered.notes.append(
            f"{source.label} asks for {repository.module}, which has to be built from {repository.address}"
        )


def _gather_of_scripts(
    gathered: _Gathered, request: Request, facts: Facts, source: str, sources: Sequence[Source]
) -> None:
    missing = _missing_in_scripts(source, facts, sources)
    listed = {name_of(requirement) for requirement in gathered.reasons}
    for requirement in missing.requirements:
        if name_of(requirement) not in listed:
            gathered.reasons[requirement] = "its scripts import it"
            gathered.optional[requirement] = None
    for module in missing.modules:
        if module not in gathered.modules:
            gathered.optional_modules[module] = None
    if missing.requirements and not request.with_dependencies:
        step = pip(facts, "install", *pip_arguments(facts, missing.requirements))
        names = ", ".join(missing.requirements)
        gathered.notes.append(
            f"its scripts import what is not installed ({names}): {step.line()}; or add --with-dependencies"
        )
    for repository in missing.repositories:
        gathered.notes.append(
            f"its scripts import {repository.module}, which has to be built from {repository.address}"
        )
    gathered.notes += _unknown("its scripts import", missing)


def _require_tools(request: Request, facts: Facts, source: Source, sources: Sequence[Source]) -> None:
    """Refuse a source that lacks something, with the command that goes on all the same."""
    try:
        require_build_tools(facts, source, sources, installing=request.with_dependencies)
    except SplatfixError as error:
        targets, python = target_options(request.targets), python_option(facts)
        if error.code == "build-tools-missing":
            argv = ("splatfix", "install", *request.sources, *targets, *python, "--with-dependencies")
            text = "Or let splatfix install them too, in the same journal"
            raise error.with_todo(*error.todo, run(*argv, text=text)) from error
        if error.code != "import-not-built":
            raise
        others = [
            item.folder for item in sources if item is not source and _is_buildable(facts, item, sources)
        ]
        if not others:
            raise
        more = ("--with-dependencies",) if request.with_dependencies else ()
        argv = ("splatfix", "install", *others, *targets, *more, *python)
        again = run(*argv, text="Or install the others of them alone")
        raise error.with_todo(*error.todo, again) from error


def _is_buildable(facts: Facts, source: Source, sources: Sequence[Source]) -> bool:
    """Nothing speaks against it but what pip can bring."""
    try:
        require_build_tools(facts, source, sources)
    except SplatfixError as error:
        return error.code == "build-tools-missing"
    return True


def _only_declared(facts: Facts, source: Source, missing: MissingModules) -> list[str]:
    """What it declares and lacks, and is not seen to import when it is imported, nor to need for its build."""
    if missing.unknown:
        return []
    needed = {name_of(text) for text in (*missing.requirements, *source.build_requires)}
    return [text for text in unmet(facts, source) if name_of(text) not in needed]


def _missing_in_scripts(source: str, facts: Facts, sources: Sequence[Source]) -> MissingModules:
    folder = resolved_folder(source)
    if folder is None:
        return MissingModules()
    scripts, _ = read_scripts(folder)
    declared = (pin.name for pin in read_pins(folder))
    imports = (item for item in scripts.imports if not item.beside)
    return missing_modules(facts, imports, declared=declared, brought=brought_by(sources))


def _unknown(importer: str, missing: MissingModules) -> list[str]:
    if not missing.unknown:
        return []
    names = ", ".join(missing.unknown)
    return [f"{importer} {names}, not installed; what brings it is for its README to say"]
