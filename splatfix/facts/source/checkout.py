"""A stack's checkout, read as text: commit, submodules, pins, extension sources, how it renders."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from splatfix.core.reading import is_regular_file, is_there
from splatfix.core.redact import redacted
from splatfix.core.source_pattern import NamePattern, SourcePattern
from splatfix.facts.source.extension import code_matches, read_source, walk_extensions
from splatfix.facts.source.extension_calls import extension_calls
from splatfix.facts.source.folder import (
    checkout_around,
    cloned_in_readme,
    has_build_file,
    photos_alone,
    telling_paths,
)
from splatfix.facts.source.git_files import commit_of, git_folder, read_submodules, remote_of
from splatfix.facts.source.includes import IncludeFolders, include_folders, missing_headers
from splatfix.facts.source.pins import read_pins
from splatfix.facts.source.python_source import (
    guarded_imports,
    is_splat_module,
    read_depth,
    read_package_source,
    read_projection,
)
from splatfix.facts.source.reader import FolderReader, NotPython
from splatfix.facts.source.scripts import as_started, read_packages_of, read_scripts
from splatfix.facts.source.setup_py import read_setup_script
from splatfix.facts.source.syntax import imported
from splatfix.facts.system.parallel import within
from splatfix.model import (
    Checkout,
    CheckoutSource,
    ExtensionCall,
    Fact,
    Facts,
    GuardedImport,
    MissingHeader,
    PackageSource,
    RenderCall,
    Shadow,
    Source,
    Submodule,
    unknown,
)

_PATIENCE = 120.0
"""Seconds for a checkout: a cold disk is slow, a dead network drive never answers."""
# A file that mentions none of these is not parsed.
_MENTIONS = re.compile(r"rasteriz|fused_ssim|simple_knn|gsplat", re.IGNORECASE)
_COLMAP_OPTION = re.compile(r"--((?:Sift|Feature)(?:Extraction|Matching)\.use_gpu)\b")
_MAY_NAME_A_SUBMODULE = ((".py",), (".txt", ".yml", ".yaml", ".toml", ".sh", ".cmake"))
_MOST_SOURCES = 100
_MOST_CALLS = 1000
_MOST_USES = 3
_HOW = "files of the checkout, read as text"


def with_checkout(
    facts: Facts, folder: Path, patterns: Iterable[SourcePattern | NamePattern], *, started: bool = False
) -> Facts:
    """Return the facts with those of a stack's checkout (``diagnose --repo``), in whose sources these patterns are looked for.

    Args:
        started: only with the calls and imports that are reached from what people start in it.
    """

    def read() -> Fact[Checkout]:
        checkout = read_checkout(folder, patterns, include_folders(facts.machine, facts.environment))
        if started and checkout.value:
            return replace(checkout, value=as_started(checkout.value))
        return checkout

    return replace(facts, checkout=within(_PATIENCE, read, str(folder)))


def read_checkout(
    folder: Path,
    patterns: Iterable[SourcePattern | NamePattern],
    headers: IncludeFolders | None = None,
) -> Fact[Checkout]:
    """Read a checkout; nothing in it is executed, and git is not asked. Unknown when the folder is not there.

    Args:
        headers: where compilers look for headers here; None: nobody is to be told what is missing.
    """
    if not folder.is_dir():
        return unknown(f"{folder} is not a folder")
    root, reader, patterns = folder.resolve(), FolderReader(), tuple(patterns)
    names = tuple(pattern for pattern in patterns if isinstance(pattern, NamePattern))
    identity = _identity(root, reader)
    program, reader_of_scripts = read_scripts(root, names)
    folders = walk_extensions(root, reader=reader).found
    if len(folders) > _MOST_SOURCES:
        reader.leave_out(root, f"it holds more than {_MOST_SOURCES} extensions; the others are not looked at")
    sources = []
    for inside in folders[:_MOST_SOURCES]:
        script = read_setup_script(inside / "setup.py", reader)
        source = read_source(inside, reader=reader)
        python = read_packages_of(inside, source.packages, source.modules, names)
        missing = missing_headers(inside, source, script, root, headers or IncludeFolders(), reader)
        sources.append(
            CheckoutSource(
                path=inside.relative_to(root).as_posix(),
                source=source,
                cxx_flags=script.standard_flags,
                own_path_in_flags=script.own_path_in_flags,
                matches=(*code_matches(inside, patterns, reader), *python.matches),
                headers_missing=tuple(missing),
                faces=tuple(_packages_in(inside, reader)),
            )
        )
    is_package = has_build_file(root) and root not in folders
    checkout = replace(
        identity,
        submodules=_with_uses(root, identity.submodules, reader),
        pins=tuple(read_pins(root, reader)),
        sources=tuple(sources),
        package=read_source(root, reader=reader) if is_package else None,
        colmap_options=tuple(dict.fromkeys(_COLMAP_OPTION.findall(reader.text(root / "convert.py")))),
        needs=program.imports,
        python_matches=program.matches,
        photos=photos_alone(root, reader),
        unreadable=tuple(dict.fromkeys((*reader.left_out, *reader_of_scripts.left_out))),
    )
    return Fact(redacted(checkout), _HOW)


def read_identity(folder: Path) -> Fact[Checkout]:
    """The part of a checkout that tells which stack it is: names of files, addresses, imports, calls."""
    if not folder.is_dir():
        return unknown(f"{folder} is not a folder")
    return Fact(redacted(_identity(folder.resolve(), FolderReader())), _HOW)


def _identity(root: Path, reader: FolderReader) -> Checkout:
    git = git_folder(root, reader)
    # packages of splatting names in the top folder, which Python searches first when a script there runs; without an
    # __init__.py, a package further down the path wins over it
    shadows = []
    for entry in reader.children(root):
        module = entry.name.removesuffix(".py")
        is_package = is_there(f"{entry.path}/__init__.py")
        if is_splat_module(module) and (is_package or (module != entry.name and is_regular_file(entry.path))):
            inside = reader.children(root / entry.name) if is_package else []
            native = any(child.name.endswith((".so", ".pyd")) for child in inside)
            shadows.append(Shadow(module, entry.path, native))
    return Checkout(
        folder=str(root),
        paths=telling_paths(root, reader),
        remote=remote_of(git, reader),
        clones=tuple(dict.fromkeys(cloned_in_readme(root, reader))),
        commit=commit_of(git, reader),
        submodules=read_submodules(root, reader),
        shadows=tuple(shadows),
        **_imports_and_calls(root, reader, {shadow.module for shadow in shadows}),
    )


def _with_uses(root: Path, submodules: tuple[Submodule, ...], reader: FolderReader) -> tuple[Submodule, ...]:
    """The same, the empty ones with the files that import them or have their folder in a text."""
    patterns: dict[str, re.Pattern[str]] = {}
    for item in submodules:
        if item.empty:
            name = item.path.rpartition("/")[2]
            module, text = re.escape(name.replace("-", "_")), re.escape(name)
            # an import of the module of that name, or the folder in a path or text
            patterns[item.path] = re.compile(
                rf"^[ \t]*(?:from|import)[ \t]+(?:[\w.]*\.)?{module}(?![\w-])|[/\"'\\]{text}(?=[/\"'\\\s)]|$)",
                re.MULTILINE,
            )
    uses: dict[str, list[str]] = {path: [] for path in patterns}
    # Python first: of the three uses that are kept, an import tells most
    for endings in _MAY_NAME_A_SUBMODULE if patterns else ():
        for file in reader.files_below(root, endings, depth=3):
            text = reader.text(file)
            for path, pattern in patterns.items():
                if pattern.search(text) and len(uses[path]) < _MOST_USES:
                    uses[path].append(file.relative_to(root).as_posix())
    return tuple(replace(item, named_in=tuple(uses.get(item.path, ()))) for item in submodules)


def missing_headers_of(source: Source, facts: Facts) -> tuple[MissingHeader, ...]:
    """Headers of CUDA and torch that one source includes, and that this machine and environment do not have."""
    folder, reader = Path(source.folder), FolderReader()
    script = read_setup_script(folder / "setup.py", reader)
    searched = include_folders(facts.machine, facts.environment)
    return tuple(missing_headers(folder, source, script, checkout_around(folder), searched, reader))


def _packages_in(folder: Path, reader: FolderReader) -> Iterator[PackageSource]:
    for entry in reader.children(folder):
        file = folder / entry.name / "__init__.py"
        if not is_splat_module(entry.name) or not (text := reader.text(file)):
            continue
        try:
            source = read_package_source(entry.name, text, reader)
            kernel = reader.text(folder / "cuda_rasterizer" / "forward.cu")
            yield replace(source, depth=read_depth(kernel), projection=read_projection(kernel))
        except NotPython as error:
            reader.leave_out(file, f"it is not Python that this version can read: {error}")


def _imports_and_calls(root: Path, reader: FolderReader, own_modules: set[str]) -> dict[str, Any]:
    """What the checkout's own Python files import and call, by field of Checkout; its extensions' files are left to
    ``sources``."""
    modules: set[str] = set()
    guarded: list[GuardedImport] = []
    calls: list[RenderCall] = []
    others: list[ExtensionCall] = []
    for file in reader.files_below(root, (".py",), depth=3, skip=("submodules",)):
        text = reader.text(file)
        if not _MENTIONS.search(text) or not (tree := reader.python(file, text)):
            continue
        name = file.relative_to(root).as_posix()
        nodes = tuple(ast.walk(tree))
        guarded_here = tuple(guarded_imports(name, nodes))
        guarded += guarded_here
        guarded_lines = {item.line for item in guarded_here}
        for item in chain.from_iterable(map(imported, nodes)):
            if item.line not in guarded_lines and is_splat_module(item.module):
                modules.add(item.module.partition(".")[0])
        of_rasterizers, of_functions = extension_calls(name, nodes, _MOST_CALLS - len(calls) - len(others))
        calls += of_rasterizers
        others += (call for call in of_functions if call.module.partition(".")[0] not in own_modules)
        if len(calls) + len(others) == _MOST_CALLS:
            reason = f"its files hold {_MOST_CALLS} calls of extensions or more, and no further are told"
            reader.leave_out(root, reason)
    return {
        "imports": tuple(sorted(modules)),
        "guarded": tuple(guarded),
        "calls": tuple(calls),
        "extension_calls": tuple(others),
    }
