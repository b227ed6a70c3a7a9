"""What a stack's checkout says about itself, read as text: commit, submodules, pins, extension sources, how it renders."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from splatfix.facts.code_matches import own_path_in_flags, passages_of, standard_flags
from splatfix.facts.git_folder import branch_of, commit_of, git_folder, remote_of
from splatfix.facts.model import (
    Checkout,
    CheckoutSource,
    Fact,
    GuardedImport,
    RenderCall,
    Shadow,
    Submodule,
    unknown,
)
from splatfix.facts.pins import read_pins
from splatfix.facts.python_source import SPLAT_MODULE, guarded_imports, imported_modules, render_calls
from splatfix.facts.setup_py import read_setup_script
from splatfix.facts.source import extension_folders, read_source
from splatfix.facts.text_files import children_of, files_below, text_of

# Folders whose contents tell stacks apart; what else lies in a checkout is the user's own.
_TELLING = (
    "submodules",
    "utils",
    "gsplat",
    "examples",
    "nerfstudio",
    "nerfstudio/models",
    "rasterizer",
    "crates",
    "configs",
    "scene",
)
# A file that mentions none of these is not parsed.
_MENTIONS = re.compile(r"rasteriz|fused_ssim|simple_knn|gsplat", re.IGNORECASE)

_COLMAP_OPTION = re.compile(r"--((?:Sift|Feature)(?:Extraction|Matching)\.use_gpu)\b")


def read_checkout(folder: Path) -> Fact[Checkout]:
    """Read a checkout; nothing in it is executed, and git is not asked. Unknown when the folder is not there."""
    if not folder.is_dir():
        return unknown(f"{folder} is not a folder")
    root = folder.resolve()
    git = git_folder(root)
    python = _PythonFiles(root)
    submodules = tuple(_submodules(root))
    checkout = Checkout(
        folder=str(root),
        paths=_telling_paths(root),
        remote=remote_of(git),
        commit=commit_of(git),
        branch=branch_of(git),
        submodules=submodules,
        pins=tuple(read_pins(root)),
        sources=tuple(_sources(root)),
        imports=python.imports,
        guarded=python.guarded,
        calls=python.calls,
        shadows=tuple(_shadows(root)),
        colmap_options=tuple(dict.fromkeys(_COLMAP_OPTION.findall(text_of(root / "convert.py")))),
        unreadable=python.unreadable,
    )
    return Fact(checkout, "files of the checkout, read as text")


def _submodules(root: Path) -> Iterator[Submodule]:
    text = text_of(root / ".gitmodules")
    for block in re.split(r"^\s*\[submodule\b.*$", text, flags=re.MULTILINE)[1:]:
        values = dict(re.findall(r"^\s*(path|url)\s*=\s*(\S.*?)\s*$", block, re.MULTILINE))
        if "path" not in values:
            continue
        place = root / values["path"]
        yield Submodule(
            path=values["path"],
            url=values.get("url", ""),
            empty=not _has_content(place),
            commit=commit_of(git_folder(place)),
        )


def _has_content(folder: Path) -> bool:
    try:
        return any(item.name != ".git" for item in folder.iterdir())
    except OSError:
        return False


def _telling_paths(root: Path) -> tuple[str, ...]:
    found = [item.name for item in children_of(root)]
    for inner in _TELLING:
        found += [f"{inner}/{item.name}" for item in children_of(root / inner)]
    return tuple(sorted(found))


def _sources(root: Path) -> Iterator[CheckoutSource]:
    for folder in extension_folders(root):
        script = read_setup_script(folder / "setup.py")
        yield CheckoutSource(
            path=folder.relative_to(root).as_posix(),
            source=read_source(folder),
            cxx_flags=standard_flags(script),
            own_path_in_flags=own_path_in_flags(script),
            passages=tuple(passages_of(folder)),
        )


class _PythonFiles:
    """What the checkout's own Python files import and call; its extensions' files are left to ``sources``."""

    def __init__(self, root: Path) -> None:
        modules: dict[str, None] = {}
        guarded: list[GuardedImport] = []
        calls: list[RenderCall] = []
        unreadable: list[str] = []
        for file in files_below(root, (".py",), depth=3, skip=("submodules",)):
            text = text_of(file)
            if not _MENTIONS.search(text):
                continue
            name = file.relative_to(root).as_posix()
            try:
                tree = ast.parse(text)
            except (SyntaxError, ValueError, RecursionError):
                unreadable.append(name)
                continue
            here = tuple(guarded_imports(name, tree))
            found = imported_modules(tree, without_lines={item.line for item in here})
            modules.update(
                dict.fromkeys(item.partition(".")[0] for item in found if SPLAT_MODULE.fullmatch(item))
            )
            guarded += here
            calls += render_calls(name, tree)
        self.imports = tuple(sorted(modules))
        self.guarded = tuple(guarded)
        self.calls = tuple(calls)
        self.unreadable = tuple(unreadable)


def _shadows(root: Path) -> Iterator[Shadow]:
    """Packages of splatting names in the checkout's top folder, which Python searches first when a script there runs."""
    for item in children_of(root):
        module = item.name.removesuffix(".py")
        if not SPLAT_MODULE.fullmatch(module) or (item.is_dir() and not (item / "__init__.py").is_file()):
            continue
        if item.is_dir() or item.suffix == ".py":
            native = item.is_dir() and any(child.suffix in (".so", ".pyd") for child in children_of(item))
            yield Shadow(module, str(item), native)
