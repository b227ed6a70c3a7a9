"""A stack's checkout, read as text: commit, submodules, pins, extension sources, how it renders."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from splatfix.core.redact import redacted
from splatfix.core.source_pattern import SourcePattern
from splatfix.facts.model.fact import Fact, unknown
from splatfix.facts.model.source import (
    Checkout,
    CheckoutSource,
    GuardedImport,
    Pin,
    RenderCall,
    Shadow,
)
from splatfix.facts.source.extension import code_matches, extension_folders, read_source
from splatfix.facts.source.folder import (
    children_of,
    commit_of,
    files_below,
    git_folder,
    read_submodules,
    remote_of,
    telling_paths,
    text_of,
)
from splatfix.facts.source.python_source import SPLAT_MODULE, guarded_imports, imported_modules, render_calls
from splatfix.facts.source.setup_py import own_path_in_flags, read_setup_script, standard_flags

# A file that mentions none of these is not parsed.
_MENTIONS = re.compile(r"rasteriz|fused_ssim|simple_knn|gsplat", re.IGNORECASE)

_COLMAP_OPTION = re.compile(r"--((?:Sift|Feature)(?:Extraction|Matching)\.use_gpu)\b")
_PIN_NAMES = re.compile(r"[A-Za-z][\w.-]*")


def read_checkout(folder: Path, patterns: Iterable[SourcePattern]) -> Fact[Checkout]:
    """Read a checkout; nothing in it is executed, and git is not asked. Unknown when the folder is not there.

    Args:
        folder: the checkout.
        patterns: what to look for in the sources of its extensions.
    """
    if not folder.is_dir():
        return unknown(f"{folder} is not a folder")
    root = folder.resolve()
    git = git_folder(root)
    python = _PythonFiles(root)
    checkout = Checkout(
        folder=str(root),
        paths=telling_paths(root),
        remote=remote_of(git),
        commit=commit_of(git),
        submodules=read_submodules(root),
        pins=tuple(read_pins(root)),
        sources=tuple(_sources(root, tuple(patterns))),
        imports=python.imports,
        guarded=python.guarded,
        calls=python.calls,
        shadows=tuple(_shadows(root)),
        colmap_options=tuple(dict.fromkeys(_COLMAP_OPTION.findall(text_of(root / "convert.py")))),
        unreadable=python.unreadable,
    )
    return Fact(redacted(checkout), "files of the checkout, read as text")


def _sources(root: Path, patterns: Iterable[SourcePattern]) -> Iterator[CheckoutSource]:
    for folder in extension_folders(root):
        script = read_setup_script(folder / "setup.py")
        yield CheckoutSource(
            path=folder.relative_to(root).as_posix(),
            source=read_source(folder),
            cxx_flags=standard_flags(script),
            own_path_in_flags=own_path_in_flags(script),
            matches=tuple(code_matches(folder, patterns)),
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


def read_pins(root: Path) -> Iterator[Pin]:
    """Every requirement in the top folder's files, in order of the files' names."""
    for item in children_of(root):
        if re.fullmatch(r"requirements.*\.txt", item.name):
            yield from _requirements(item)
        elif re.fullmatch(r"(environment|requirements|conda).*\.ya?ml", item.name):
            yield from _conda_file(item)
        elif item.name == "pyproject.toml":
            yield from _project_file(item)


def _requirements(file: Path) -> Iterator[Pin]:
    for line in text_of(file).splitlines():
        if pin := _pin(file.name, line.partition("#")[0]):
            yield pin


def _project_file(file: Path) -> Iterator[Pin]:
    """The dependencies of a project that describes itself, as nerfstudio does."""
    from splatfix.core.toml import parse_toml  # few sources need it

    try:
        wanted = parse_toml(text_of(file)).get("project", {}).get("dependencies", ())
    except (ValueError, AttributeError):
        return  # setup-unreadable tells of a damaged file where it matters
    for line in wanted if isinstance(wanted, list) else ():
        if isinstance(line, str) and (pin := _pin(file.name, line)):
            yield pin


def _conda_file(file: Path) -> Iterator[Pin]:
    """The list items under ``dependencies`` of a conda environment file, and those for pip inside of it."""
    inside = False
    for line in text_of(file).splitlines():
        if re.match(r"\S", line):
            inside = line.startswith("dependencies:") or (inside and line.startswith("-"))
        item = re.match(r"\s*-\s+((?:[^:#]|::)+?)\s*(#.*)?$", line)
        if inside and item and (pin := _pin(file.name, item.group(1).strip("\"'"))):
            yield pin


def _pin(file: str, text: str) -> Pin | None:
    """``torch==1.12.1``, conda's ``pytorch=1.12.1=build`` or ``channel::name``; paths, addresses and options are no pins."""
    text = text.strip().rpartition("::")[2]
    match = _PIN_NAMES.match(text)
    if not match or "/" in text.partition(";")[0] or "@" in text:
        return None
    rest = re.sub(r"^\[[^\]]*\]", "", text[match.end() :].partition(";")[0].strip())
    if conda := re.fullmatch(r"=([^=\s]+)(=\S+)?", rest):
        rest = f"=={conda.group(1)}"
    if rest and not re.match(r"[=<>!~]", rest):
        return None
    return Pin(file, match.group(0), rest.replace(" ", ""))
