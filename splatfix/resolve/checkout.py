"""From the folders a person named to extension sources: a source folder itself, or all those inside a stack's checkout."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from packaging.utils import canonicalize_name

from splatfix.core.errors import SplatfixError, usage_error
from splatfix.facts.source import Source, extension_folders, read_source
from splatfix.knowledge.stacks import recognise_checkout
from splatfix.resolve.swaps import known_names


def sources_in(named: Iterable[str]) -> tuple[tuple[Source, ...], tuple[str, ...]]:
    """Every extension source that these folders stand for, each once, and notes for the person.

    Raises:
        SplatfixError: ``not-a-folder``, ``not-an-extension``, ``source-unreadable`` (exit 2), ``source-incomplete``,
            ``same-name-twice``.
    """
    found: dict[str, Source] = {}
    notes: list[str] = []
    for text in named:
        folder = _folder(text)
        if (folder / "setup.py").is_file() or (folder / "pyproject.toml").is_file():
            inside = [folder]
        else:
            inside = _extensions_of(folder)
            notes.append(_what_it_is(folder, inside))
        for path in inside:
            found[str(path)] = _checked(path)
    _refuse_same_names(found.values())
    return tuple(found.values()), tuple(notes)


def _folder(text: str) -> Path:
    folder = Path(text).expanduser()
    if folder.is_dir():
        return folder.resolve()
    what = "is a file, not a folder" if folder.is_file() else "is not there"
    todo = ["Give the folder that holds the extension's setup.py, or a checkout."]
    if text.replace("-", "_") in known_names():
        todo.append(f"For the drop-in of that name: splatfix install {text} --backend pure")
    raise usage_error("not-a-folder", f"{text} {what}.", *todo)


def _extensions_of(folder: Path) -> list[Path]:
    """The extensions of a checkout, in order of name."""
    empty = _empty_submodules(folder)
    if empty:
        raise usage_error(
            "source-incomplete",
            f"{folder} is incomplete: {', '.join(empty)} is missing or empty.",
            f"In the checkout: git -C {folder} submodule update --init --recursive",
            "Or name the extensions to build one by one.",
        )
    found = extension_folders(folder)
    if not found:
        raise usage_error(
            "not-an-extension",
            f"{folder} holds neither setup.py nor pyproject.toml, and no extension below it has one.",
            "Give the folder that holds the extension's setup.py, or a checkout.",
        )
    return list(found)


def _empty_submodules(folder: Path) -> list[str]:
    """Extensions that git has not fetched. Viewers and the like, outside of ``submodules``, are not needed here."""
    try:
        text = (folder / ".gitmodules").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    paths = [match.strip() for match in re.findall(r"^\s*path\s*=\s*(.+)$", text, re.MULTILINE)]
    wanted = [path for path in paths if path.startswith("submodules/")]
    return [
        path
        for path in wanted
        if not (folder / path).is_dir() or next((folder / path).iterdir(), None) is None
    ]


def _what_it_is(folder: Path, inside: list[Path]) -> str:
    paths = [
        os.path.relpath(path, folder).replace(os.sep, "/")
        for path in [*folder.glob("*"), *folder.glob("*/*")]
    ]
    stacks = recognise_checkout(paths)
    name = f"a checkout of {stacks[0].name}" if stacks else "a checkout of an unknown stack"
    return f"{folder} is {name}; its extensions: {', '.join(path.name for path in inside)}"


def _checked(folder: Path) -> Source:
    source = read_source(folder)
    if source.error:
        raise usage_error(
            "source-unreadable", f"{folder}: {source.error}.", "Repair that file, then run this again."
        )
    lacking = [*source.missing_folders, *(item for module in source.modules for item in module.missing)]
    if lacking:
        raise usage_error(
            "source-incomplete",
            f"{source.label} is incomplete: {', '.join(lacking)} is missing or empty.",
            f"In the checkout: git -C {folder} submodule update --init --recursive",
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
                todo=("Name the one you want.",),
            )
