"""What the target environment must hold before anything is built or installed in it, with one clear refusal for each lack."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from splatfix.checks.torch import torch_for
from splatfix.context import Context
from splatfix.context.commands import installer_of, make_environment, pip, python_option, python_to_be
from splatfix.context.imports import MissingModules, brought_by, missing_modules, pip_arguments
from splatfix.context.requirements import met, name_of, unmet, version_of, version_there
from splatfix.core.errors import SplatfixError
from splatfix.core.step import run, say
from splatfix.facts import Facts, ImportedModule, Interpreter, Source, Torch, read_pins
from splatfix.knowledge import Arch
from splatfix.knowledge.imports import Repository, repository_of

# setuptools >= 70.1 writes wheels itself; before, the wheel project did
_WHEEL_INSIDE = Version("70.1")


def usable_python(facts: Facts) -> Interpreter:
    """The target interpreter, able to be installed into.

    Raises:
        SplatfixError: ``interpreter-unusable``, ``externally-managed``, ``no-pip``.
    """
    fact = facts.environment.interpreter
    if fact.value is None:
        text = "Name another with --python, such as a fresh venv"
        raise SplatfixError(
            "interpreter-unusable",
            f"The target Python cannot be used: {fact.error}.",
            meaning="Nothing can be built for an interpreter that does not start.",
            todo=(run("python3", "-m", "venv", "my-env", text=text),),
        )
    interpreter = fact.value
    if interpreter.externally_managed:
        raise SplatfixError(
            "externally-managed",
            f"{interpreter.executable} is managed by the operating system or by uv, and refuses installations (PEP 668).",
            meaning="Installing there could break the system's own tools; nothing was changed.",
            todo=(
                make_environment(interpreter),
                say(f"Then run this again; elsewhere with --python {python_to_be(facts)}."),
            ),
        )
    if installer_of(facts) is None:
        raise SplatfixError(
            "no-pip",
            f"The environment of {interpreter.executable} has no pip, and nothing else was found that installs there.",
            meaning="splatfix builds and installs with pip or uv.",
            todo=(
                run(interpreter.executable, "-m", "ensurepip", text="Add pip to it"),
                run(sys.executable, "-m", "pip", "install", "uv", text="Or install uv beside splatfix"),
            ),
        )
    return interpreter


def usable_targets(context: Context) -> tuple[Arch, ...]:
    """The architectures to build for.

    Raises:
        SplatfixError: ``no-gpu-to-target`` where this machine's own GPU is meant and there is none.
    """
    if context.no_target:
        raise context.no_target.error()
    return context.archs


def usable_torch(context: Context, *, cuda: bool) -> Torch:
    """The target environment's torch.

    Args:
        cuda: it must be a CUDA build.

    Raises:
        SplatfixError: ``no-torch``, ``torch-unreadable``, ``cpu-only-torch``.
    """
    facts = context.facts
    python = facts.environment.interpreter.value
    where = python.executable if python else "the target Python"
    torch = facts.environment.torch
    if facts.environment.torch_installed.value is False:
        # what diagnose advises too; the drop-ins run with any torch
        install = torch_for(context, context.targets)[0] if cuda else pip(facts, "install", "torch")
        raise SplatfixError(
            "no-torch",
            f"torch is not installed in the environment of {where}.",
            meaning="Extensions are compiled against the installed torch and work with that one only.",
            todo=(install, say("Then run this again.")),
        )
    if torch.value is None:
        reinstall = pip(facts, "install", "--force-reinstall", "--no-deps", "torch", text="Reinstall it")
        raise SplatfixError(
            "torch-unreadable",
            f"torch in the environment of {where} cannot be read: {torch.error}.",
            meaning="Its version and CUDA build decide everything else.",
            todo=(reinstall,),
        )
    if cuda and torch.value.cuda is None:
        build = "ROCm" if torch.value.hip else "CPU-only"
        raise SplatfixError(
            "cpu-only-torch",
            f"torch {torch.value.version} in the environment of {where} is a {build} build.",
            meaning="CUDA extensions can neither be built against it nor run with it.",
            todo=(
                *torch_for(context, context.targets)[:1],
                say("Or take the drop-ins, which need no CUDA: the same command with --backend pure."),
            ),
        )
    return torch.value


def require_build_tools(
    facts: Facts, source: Source, together: Sequence[Source] = (), *, installing: bool = False
) -> None:
    """That a build has all it needs (setuptools, wheel, ninja, pyproject.toml's), and what the package imports is there.

    The build runs without isolation and the wheel is installed without dependencies, so all must be there already; else
    it would fail at the first import, after a build of many minutes. Without CUDA code any C compiler will do, but there
    must be one.

    Args:
        together: the sources that are installed with it, which may import each other.
        installing: what pip can bring is installed first, and is no obstacle.

    Raises:
        SplatfixError: ``build-tools-missing`` naming all of them at once, ``import-not-built``, ``python-does-not-fit``,
            ``torch-does-not-fit``, ``no-host-compiler``.
    """
    _require_python(facts, source)
    if source.modules and not source.needs_cuda and facts.machine.compilers.value == ():
        raise SplatfixError(
            "no-host-compiler",
            f"No C compiler was found on this machine ({facts.machine.compilers.found_via}).",
            meaning=f"{source.label} has C or C++ code to compile.",
            todo=(
                run("sudo", "apt-get", "install", "build-essential", text="On Debian and Ubuntu"),
                say("Or name one: CC=/path/to/gcc"),
            ),
        )
    to_build, to_import = _lacking(facts, source, together)
    for text in (*to_build, *to_import):
        installed = version_there(facts, "torch")
        if name_of(text) == "torch" and installed is not None:
            raise SplatfixError(
                "torch-does-not-fit",
                f"{source.label} asks for {text}, and torch {installed} is installed.",
                meaning="splatfix never changes torch by itself: everything else in the environment depends on it.",
                todo=(say("Use an environment whose torch fits, and name it with --python."),),
            )
    if repositories := undeclared(facts, source, together).repositories:
        raise _not_built(facts, source, repositories)
    missing = {name_of(text): text for text in (*to_build, *to_import)}.values()
    interpreter = facts.environment.interpreter.value
    if not missing or interpreter is None or installing:
        return
    purposes = []
    if to_build:
        purposes.append(f"{', '.join(dict.fromkeys(to_build))} to be built")
    if to_import:
        purposes.append(f"{', '.join(dict.fromkeys(to_import))} to be imported")
    raise SplatfixError(
        "build-tools-missing",
        f"The environment of {interpreter.executable} lacks what {source.label} needs: {' and '.join(purposes)}.",
        meaning="The build runs inside the target environment, because it must see the installed torch; splatfix itself "
        "adds no packages to it unasked.",
        todo=(pip(facts, "install", *pip_arguments(facts, missing)),),
    )


def lacking_requirements(facts: Facts, source: Source, together: Sequence[Source] = ()) -> tuple[str, ...]:
    """What pip has to bring before a source is built, once each; see :func:`require_build_tools`."""
    to_build, to_import = _lacking(facts, source, together)
    return tuple({name_of(item): item for item in (*to_build, *to_import)}.values())


def undeclared(facts: Facts, source: Source, together: Sequence[Source] = ()) -> MissingModules:
    """What its packages are seen to import, and nothing here has; its own requirements.txt tells what brings that."""
    declared = (pin.name for pin in read_pins(Path(source.folder)))
    return missing_modules(facts, source.needs, declared=declared, brought=brought_by((source, *together)))


def _lacking(facts: Facts, source: Source, together: Sequence[Source]) -> tuple[list[str], list[str]]:
    """(what is lacking to be built, what is lacking to be imported)."""
    to_build = [name for name in _build_tools(facts, source) if version_of(facts, name) is None]
    to_build += [text for text in source.build_requires if not met(facts, text)]
    listed = {name_of(text) for text in to_build}
    to_build += [text for text in for_setup(facts, source).requirements if name_of(text) not in listed]
    # what has to be compiled against the installed torch, pip cannot bring
    compiled = {item.module for item in declared_repositories(facts, source)}
    to_import = [text for text in unmet(facts, source) if _module_of(text) not in compiled]
    listed = {name_of(text) for text in (*to_build, *to_import)}
    imported = undeclared(facts, source, together).requirements
    to_import += [text for text in imported if name_of(text) not in listed]
    if "ninja" in facts.machine.tools:  # the machine's own, found through PATH, serves as well
        to_build = [text for text in to_build if text != "ninja"]
        to_import = [text for text in to_import if text != "ninja"]
    return to_build, to_import


def for_setup(facts: Facts, source: Source) -> MissingModules:
    """The modules that its setup.py imports and nothing here has."""
    return missing_modules(facts, (ImportedModule(name, "setup.py", 0) for name in source.build_imports))


def declared_repositories(facts: Facts, source: Source) -> tuple[Repository, ...]:
    """What it declares and lacks and pip cannot bring: it has to be compiled against the installed torch."""
    repositories = (repository_of(_module_of(text)) for text in unmet(facts, source))
    return tuple(filter(None, repositories))


def _module_of(requirement: str) -> str:
    return name_of(requirement).replace("-", "_")


def _not_built(facts: Facts, source: Source, repositories: Sequence[Repository]) -> SplatfixError:
    """It imports something else that has to be compiled against the installed torch."""
    names = ", ".join(item.module for item in repositories)
    steps = []
    for item in repositories:
        steps.append(run("git", "clone", "--recursive", item.address))
        steps.append(run("splatfix", "install", item.clone, *python_option(facts)))
    return SplatfixError(
        "import-not-built",
        f"{source.label} imports {names} when it is imported, and {names} is not installed.",
        meaning="It would fail at its first import, after the whole build. Nothing was built and nothing was changed.",
        todo=(*steps, say("Then run this again.")),
    )


def _require_python(facts: Facts, source: Source) -> None:
    """pip refuses the finished wheel of a source that does not take this Python; that is known before it is compiled."""
    interpreter = facts.environment.interpreter.value
    if not source.python or interpreter is None:
        return
    try:
        fits = SpecifierSet(source.python).contains(interpreter.version, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return  # setuptools itself will say what is wrong with it
    if fits:
        return
    raise SplatfixError(
        "python-does-not-fit",
        f"{source.label} asks for Python {source.python}, and {interpreter.executable} is Python {interpreter.version}.",
        meaning="pip would refuse to install what was built; nothing was built and nothing was changed.",
        todo=(
            say("Use an environment whose Python fits, and name it with --python."),
            say("Or check out a version of the source that takes this Python."),
        ),
    )


def replaced_version(facts: Facts, name: str) -> str:
    """The version that installing ``name`` will replace; "" when there is none inside the environment itself.

    A distribution that the environment only sees (another environment's, through a .pth file) stays where it is.
    """
    interpreter = facts.environment.interpreter.value
    prefix = interpreter.prefix if interpreter else ""
    normalised = canonicalize_name(name)
    for item in facts.environment.distributions.value or ():
        if canonicalize_name(item.name) == normalised and PurePath(item.location).is_relative_to(prefix):
            return item.version
    return ""


def _build_tools(facts: Facts, source: Source) -> Iterable[str]:
    yield "setuptools"
    try:
        inside = Version(version_of(facts, "setuptools") or "0") >= _WHEEL_INSIDE
    except InvalidVersion:
        inside = False
    if not inside:
        yield "wheel"
    if source.uses_torch_builder:
        yield "ninja"
