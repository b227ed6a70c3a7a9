"""From the folders a person named to extension sources: a source folder itself, or all those inside a stack's checkout."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from packaging.utils import canonicalize_name

from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.shell import quoted
from splatfix.core.step import run, say
from splatfix.facts import MOST_FOLDERS, Facts, Source, read_source, walk_extensions
from splatfix.plan.folders import is_checkout, no_checkout, other_spellings, stacks_of
from splatfix.plan.programs import refuse_program
from splatfix.plan.recipes import Recipe, recipe
from splatfix.plan.swap_table import known_names


def sources_in(
    named: Iterable[str], facts: Facts | None = None
) -> tuple[tuple[Source, ...], tuple[str, ...]]:
    """Every extension source that these folders stand for, each once, and notes for the person.

    Args:
        facts: of the machine; with them a refused program (LichtFeld, OpenSplat, brush) says what it would find here.

    Raises:
        SplatfixError: ``not-a-folder``, ``not-an-extension``, ``source-unreadable`` (exit 2), ``source-incomplete``,
            ``same-name-twice``, ``no-extension-of-its-own``, ``not-a-python-extension``.
    """
    found: dict[str, Source] = {}
    notes: list[str] = []
    for text in named:
        folder = _folder(text)
        _refuse_whole_disks(folder)
        known = _recipe_of(folder)
        if known and known.needs and facts:
            raise refuse_program(folder, known, facts)
        if known is None and any((folder / name).is_file() for name in ("setup.py", "pyproject.toml")):
            inside = [folder]
        elif known is None and not is_checkout(folder):
            raise no_checkout(folder)
        else:
            inside, unreadable = _extensions_of(folder, known)
            notes += _what_it_is(folder, inside, known)
            notes += [f"{path} cannot be read and was not looked into" for path in unreadable]
        for path in inside:
            found[str(path)] = _checked(path)
    _refuse_same_names(found.values())
    return tuple(found.values()), tuple(notes)


def _folder(text: str) -> Path:
    folder = Path(text).expanduser()
    if folder.is_dir():
        return folder.resolve()
    what = "is a file, not a folder" if folder.is_file() else "is not there"
    if meant := other_spellings(text):
        raise usage_error(
            "not-a-folder", f"{text} is no folder, which is what splatfix installs from.", *meant
        )
    todo = [say("Give the folder that holds the extension's setup.py, or a checkout.")]
    if text.replace("-", "_") in known_names():
        todo.append(
            run("splatfix", "install", text, "--backend", "pure", text="For the drop-in of that name")
        )
    raise usage_error("not-a-folder", f"{text} {what}.", *todo)


def _recipe_of(folder: Path) -> Recipe | None:
    """The recipe of the stack whose checkout this is."""
    stacks = stacks_of(folder)
    return recipe(stacks[0].key) if stacks else None


def _refuse_whole_disks(folder: Path) -> None:
    """``splatfix install`` typed where a terminal opens: whatever lies below is many things, not one."""
    what = {Path(folder.anchor): "the root of a disk", Path.home().resolve(): "your home folder"}.get(folder)
    if what and not (folder / "setup.py").is_file():
        raise usage_error(
            "not-a-checkout",
            f"{folder} is {what}, not a checkout.",
            run(
                "splatfix",
                "install",
                "PATH/TO/CHECKOUT",
                "--target",
                "ARCH",
                text="Go into the checkout first, or name it",
            ),
        )


def _extensions_of(folder: Path, known: Recipe | None) -> tuple[list[Path], tuple[Path, ...]]:
    """The extensions of a checkout, in the recipe's order, then all others by name; and folders that cannot be read."""
    empty = _empty_submodules(folder)
    if empty:
        raise usage_error(
            "source-incomplete",
            f"{folder} is incomplete: {', '.join(empty)} is missing or empty.",
            run("git", "-C", folder, "submodule", "update", "--init", "--recursive", text="In the checkout"),
            say("Or name the extensions to build one by one."),
        )
    parts = [part for part in known.parts if part.path] if known else []
    ours = [(folder / part.path).resolve() for part in parts if part.builder == "setup.py"]
    others = {(folder / part.path).resolve() for part in parts if part.builder != "setup.py"}
    # a fork may have left a part out; a folder that is there and holds no source is what a plain clone or a zip leaves
    ours = [path for path in ours if path.is_dir()]
    lacking = [path for path in ours if not any((path / n).is_file() for n in ("setup.py", "pyproject.toml"))]
    if lacking:
        raise usage_error(
            "source-incomplete",
            f"{folder} is incomplete: {', '.join(os.path.relpath(path, folder) for path in lacking)} "
            f"holds no setup.py, and {known.name if known else 'it'} needs it.",
            run("git", "-C", folder, "submodule", "update", "--init", "--recursive", text="In the checkout"),
            say(f"Where it is no submodule, take it back from git: git -C {quoted(folder)} checkout -- ."),
        )
    if folder in ours:
        return ours, ()
    walk = walk_extensions(folder)
    if not walk.complete:
        raise usage_error(
            "not-a-checkout",
            f"{folder} is no checkout: it holds more than {MOST_FOLDERS} folders.",
            say("Name the checkout, or the folder that holds the extension's setup.py."),
        )
    found = [path for path in walk.found if path not in others]
    if not found and known:
        raise _no_extension(folder, known)
    if not found:
        raise usage_error(
            "not-an-extension",
            f"{folder} holds neither setup.py nor pyproject.toml, and no extension below it has one.",
            say("Give the folder that holds the extension's setup.py, or a checkout."),
            *(say(f"Not looked into, because it cannot be read: {path}") for path in walk.unreadable),
        )
    return [*ours, *(path for path in found if path not in ours)], walk.unreadable


def _no_extension(folder: Path, known: Recipe) -> SplatfixError:
    said = [part.note for part in known.parts if part.note] or [known.note]
    return SplatfixError(
        "no-extension-of-its-own",
        f"{folder} is a checkout of {known.name}, which has no native Python extension of its own to build.",
        meaning=" ".join(f"{text[0].upper()}{text[1:]}." for text in said if text),
        todo=(run("splatfix", "diagnose", text="See what this machine has for it"),),
    )


def _empty_submodules(folder: Path) -> list[str]:
    """Extensions that git has not fetched. Viewers and the like, outside of ``submodules``, are not needed here."""
    try:
        text = (folder / ".gitmodules").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    paths = [match.strip() for match in re.findall(r"^\s*path\s*=\s*(.+)$", text, re.MULTILINE)]
    wanted = [path for path in paths if re.match(r"(.*/)?submodules/", path)]
    return [
        path
        for path in wanted
        if not (folder / path).is_dir() or next((folder / path).iterdir(), None) is None
    ]


def _what_it_is(folder: Path, inside: list[Path], known: Recipe | None) -> list[str]:
    name = f"a checkout of {known.name}" if known else "a checkout of an unknown stack"
    notes = [f"{folder} is {name}; its extensions: {', '.join(path.name for path in inside)}"]
    for part in known.parts if known else ():
        if part.path and part.builder == "setup.py" and not (folder / part.path).is_dir():
            notes.append(f"{part.path} is not in this checkout, although {name} has it; it is left out")
        elif part.note:
            notes.append(f"{part.path}: {part.note}" if part.path else part.note)
    return notes


def _checked(folder: Path) -> Source:
    source = read_source(folder)
    if source.error:
        raise usage_error(
            "source-unreadable", f"{folder}: {source.error}.", say("Repair that file, then run this again.")
        )
    lacking = [*source.missing_folders, *(item for module in source.modules for item in module.missing)]
    if lacking:
        raise usage_error(
            "source-incomplete",
            f"{source.label} is incomplete: {', '.join(lacking)} is missing or empty.",
            run("git", "-C", folder, "submodule", "update", "--init", "--recursive", text="In the checkout"),
        )
    return source


def _refuse_same_names(sources: Iterable[Source]) -> None:
    by_name: dict[str, str] = {}
    for source in sources:
        other = by_name.setdefault(canonicalize_name(source.label), source.folder)
        if other != source.folder:
            raise SplatfixError(
                "same-name-twice",
                f"{other} and {source.folder} are both called {source.label}.",
                meaning="One environment holds one of them; the second would replace the first.",
                todo=(say("Name the one you want."),),
            )
