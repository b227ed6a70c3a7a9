"""What sources and their training scripts import and the environment lacks: named before a build, or installed with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from splatfix.context.commands import pip, python_option, target_options
from splatfix.context.imports import MissingModules, brought_by, missing_modules, pip_arguments
from splatfix.context.requirements import name_of, unmet
from splatfix.core.errors import Problem
from splatfix.core.step import run
from splatfix.facts import Facts, Source, read_pins, read_scripts, resolved_folder
from splatfix.plan.option import Request
from splatfix.plan.requirements import (
    declared_repositories,
    for_setup,
    lacking_requirements,
    missing_build_tools,
    undeclared,
)
from splatfix.plan.steps import InstallDependencies, Reason


@dataclass(frozen=True)
class Dependencies:
    """What is done about them."""

    step: InstallDependencies | None = None
    """To be done before anything is built; None where nothing is missing or nobody asked for it."""
    notes: tuple[str, ...] = ()
    """What packages and training scripts will lack after all, each as a sentence."""


def plan_dependencies(request: Request, facts: Facts, sources: Sequence[Source]) -> Dependencies | Problem:
    """What builds and packages lack is refused, or installed too; what only the scripts lack is named, or installed too.

    Refused: what :func:`missing_build_tools` refuses; with ``--with-dependencies`` only what pip cannot cure.
    """
    wanted: dict[str, str] = {}
    modules: dict[str, None] = {}
    optional: dict[str, None] = {}
    optional_modules: dict[str, None] = {}
    notes: list[str] = []
    for source in sources:
        problem = missing_build_tools(facts, source, sources, installing=request.with_dependencies)
        if problem and problem.code == "build-tools-missing":
            words = (
                "splatfix",
                "install",
                *request.sources,
                *target_options(request.targets),
                *python_option(facts),
            )
            again = run(
                *words, "--with-dependencies", text="Or let splatfix install them too, in the same journal"
            )
            return replace(problem, todo=(*problem.todo, again))
        if problem:
            return _without_it(problem, request, facts, source, sources)
        lacking = lacking_requirements(facts, source, sources)
        wanted |= dict.fromkeys(lacking, f"{source.label} needs it")
        lost = undeclared(facts, source, sources)
        notes += _unknown(f"the setup.py of {source.label} imports", for_setup(facts, source))
        optional |= dict.fromkeys(_only_declared(facts, source, lost))
        modules |= dict.fromkeys(lost.modules)
        notes += _unknown(f"{source.label} imports", lost)
        notes += [
            f"{source.label} asks for {item.module}, which has to be built from {item.address}"
            for item in declared_repositories(facts, source)
        ]
    for text in request.sources:
        lost = _lacked_by_scripts(text, facts, sources)
        have = {name_of(name) for name in wanted}
        more = [name for name in lost.requirements if name_of(name) not in have]
        wanted |= dict.fromkeys(more, "its scripts import it")
        optional |= dict.fromkeys(more)
        optional_modules |= dict.fromkeys(name for name in lost.modules if name not in modules)
        notes += _notes(lost, facts, installing=request.with_dependencies)
    if not request.with_dependencies or not wanted:
        return Dependencies(notes=tuple(notes))
    # torch itself is held by the constraints of the installation
    arguments = pip_arguments(facts, wanted)
    index = arguments[-1] if "--extra-index-url" in arguments else ""
    reasons = tuple(Reason(f"{name}: {why}", "the text of its Python files") for name, why in wanted.items())
    step = InstallDependencies(
        requirements=tuple(wanted),
        modules=tuple(modules),
        optional=tuple(name for name in wanted if name in optional),
        optional_modules=tuple(optional_modules),
        index=index,
        reasons=reasons,
    )
    return Dependencies(step, tuple(notes))


def _without_it(
    problem: Problem, request: Request, facts: Facts, source: Source, sources: Sequence[Source]
) -> Problem:
    """The same, with the command that builds the sources that nothing speaks against."""
    others = [
        item.folder
        for item in sources
        if item is not source
        and not ((other := missing_build_tools(facts, item, sources)) and other.code != "build-tools-missing")
    ]
    if problem.code != "import-not-built" or not others:
        return problem
    more = ("--with-dependencies",) if request.with_dependencies else ()
    argv = ("splatfix", "install", *others, *target_options(request.targets), *more, *python_option(facts))
    return replace(problem, todo=(*problem.todo, run(*argv, text="Or install the others of them alone")))


def _only_declared(facts: Facts, source: Source, lost: MissingModules) -> list[str]:
    """What it declares and lacks, and is not seen to import when it is imported, nor to need for its build."""
    needed = {name_of(text) for text in (*lost.requirements, *source.build_requires)}
    return [] if lost.unknown else [text for text in unmet(facts, source) if name_of(text) not in needed]


def _lacked_by_scripts(text: str, facts: Facts, sources: Sequence[Source]) -> MissingModules:
    folder = resolved_folder(text)
    if folder is None:
        return MissingModules()
    scripts, _ = read_scripts(folder)
    declared = (pin.name for pin in read_pins(folder))
    needed = (item for item in scripts.imports if not item.beside)
    return missing_modules(facts, needed, declared=declared, brought=brought_by(sources))


def _notes(lost: MissingModules, facts: Facts, *, installing: bool) -> list[str]:
    notes = []
    if lost.requirements and not installing:
        step = pip(facts, "install", *pip_arguments(facts, lost.requirements))
        names = ", ".join(lost.requirements)
        notes.append(
            f"its scripts import what is not installed ({names}): {step.line()}; or add --with-dependencies"
        )
    for item in lost.repositories:
        notes.append(f"its scripts import {item.module}, which has to be built from {item.address}")
    return notes + _unknown("its scripts import", lost)


def _unknown(who: str, lost: MissingModules) -> list[str]:
    told = f"{who} {', '.join(lost.unknown)}, not installed; what brings it is for its README to say"
    return [told] if lost.unknown else []
