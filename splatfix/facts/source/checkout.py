"""A stack's checkout, read as text: commit, submodules, pins, extension sources, how it renders."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from splatfix.core.redact import redacted
from splatfix.core.source_pattern import NamePattern, SourcePattern
from splatfix.core.table import Table
from splatfix.facts.model.fact import Fact, unknown
from splatfix.facts.model.source import (
    Checkout,
    CheckoutSource,
    ExtensionCall,
    GuardedImport,
    PackageSource,
    Pin,
    RenderCall,
    Shadow,
    Submodule,
)
from splatfix.facts.source.extension import code_matches, extension_folders, read_source
from splatfix.facts.source.extension_calls import extension_calls
from splatfix.facts.source.folder import (
    cloned_in_readme,
    commit_of,
    git_folder,
    has_build_file,
    photos_alone,
    read_submodules,
    remote_of,
    telling_paths,
)
from splatfix.facts.source.includes import IncludeFolders, missing_headers
from splatfix.facts.source.program import read_packages_of, read_scripts
from splatfix.facts.source.python_source import (
    guarded_imports,
    imported_modules,
    is_splat_module,
    read_package_source,
)
from splatfix.facts.source.reader import FolderReader, NotPython, is_folder, is_there
from splatfix.facts.source.setup_py import own_path_in_flags, read_setup_script, standard_flags

# A file that mentions none of these is not parsed.
_MENTIONS = re.compile(r"rasteriz|fused_ssim|simple_knn|gsplat", re.IGNORECASE)

_COLMAP_OPTION = re.compile(r"--((?:Sift|Feature)(?:Extraction|Matching)\.use_gpu)\b")
_MOST_SOURCES = 100
_MOST_CALLS = 1000
_MOST_PINS = 5000
_MOST_USES = 3
_PIN_NAMES = re.compile(r"[A-Za-z][\w.-]*")


def read_checkout(
    folder: Path,
    patterns: Iterable[SourcePattern | NamePattern],
    headers: IncludeFolders | None = None,
) -> Fact[Checkout]:
    """Read a checkout; nothing in it is executed, and git is not asked. Unknown when the folder is not there.

    Args:
        folder: the checkout.
        patterns: what to look for in the sources of its extensions.
        headers: where compilers look for headers here; None: nobody is to be told what is missing.
    """
    if not folder.is_dir():
        return unknown(f"{folder} is not a folder")
    root, reader = folder.resolve(), FolderReader()
    identity, wanted = _identity(root, reader), tuple(patterns)
    names = tuple(item for item in wanted if isinstance(item, NamePattern))
    scripts, apart = read_scripts(root, names)
    sources = tuple(_sources(root, wanted, headers or IncludeFolders(), reader))
    alone = has_build_file(root) and not any(item.path == "." for item in sources)
    checkout = replace(
        identity,
        submodules=_with_uses(root, identity.submodules, reader),
        pins=tuple(read_pins(root, reader)),
        sources=sources,
        package=read_source(root, reader=reader) if alone else None,
        colmap_options=tuple(dict.fromkeys(_COLMAP_OPTION.findall(reader.text(root / "convert.py")))),
        needs=scripts.imports,
        python_matches=scripts.matches,
        photos=photos_alone(root, reader),
        unreadable=tuple(dict.fromkeys((*reader.left_out, *apart.left_out))),
    )
    return Fact(redacted(checkout), "files of the checkout, read as text")


def read_identity(folder: Path) -> Fact[Checkout]:
    """The part of a checkout that tells which stack it is: names of files, addresses, imports, calls."""
    if not folder.is_dir():
        return unknown(f"{folder} is not a folder")
    found = _identity(folder.resolve(), FolderReader())
    return Fact(redacted(found), "files of the checkout, read as text")


def _identity(root: Path, reader: FolderReader) -> Checkout:
    git = git_folder(root, reader)
    shadows = tuple(_shadows(root, reader))
    python = _PythonFiles(root, reader, shadows)
    return Checkout(
        folder=str(root),
        paths=telling_paths(root, reader),
        remote=remote_of(git, reader),
        clones=tuple(dict.fromkeys(cloned_in_readme(root, reader))),
        commit=commit_of(git, reader),
        submodules=read_submodules(root, reader),
        imports=python.imports,
        guarded=python.guarded,
        calls=python.calls,
        extension_calls=python.extension_calls,
        shadows=shadows,
    )


_USES = ((".py",), (".txt", ".yml", ".yaml", ".toml", ".sh", ".cmake"))


def _with_uses(root: Path, submodules: tuple[Submodule, ...], reader: FolderReader) -> tuple[Submodule, ...]:
    """The same, the empty ones with the files that import them or have their folder in a text."""
    names = {item.path: item.path.rpartition("/")[2] for item in submodules if item.empty}
    uses: dict[str, list[str]] = {path: [] for path in names}
    patterns = {path: _use_of(name) for path, name in names.items()}
    kinds = _USES if patterns else ()
    for file in (file for endings in kinds for file in reader.files_below(root, endings, depth=3)):
        text = reader.text(file)
        for path, pattern in patterns.items():
            if pattern.search(text) and len(uses[path]) < _MOST_USES:
                uses[path].append(file.relative_to(root).as_posix())
    return tuple(replace(item, named_in=tuple(uses.get(item.path, ()))) for item in submodules)


def _use_of(name: str) -> re.Pattern[str]:
    """An import of the module of a folder's name, or the folder in a path or text."""
    module, text = re.escape(name.replace("-", "_")), re.escape(name)
    return re.compile(
        rf"^[ \t]*(?:from|import)[ \t]+(?:[\w.]*\.)?{module}(?![\w-])|[/\"'\\]{text}(?=[/\"'\\\s)]|$)",
        re.MULTILINE,
    )


def _sources(
    root: Path,
    patterns: tuple[SourcePattern | NamePattern, ...],
    headers: IncludeFolders,
    reader: FolderReader,
) -> Iterator[CheckoutSource]:
    names = tuple(item for item in patterns if isinstance(item, NamePattern))
    found = extension_folders(root, reader=reader)
    if len(found) > _MOST_SOURCES:
        reader.leave_out(root, f"it holds more than {_MOST_SOURCES} extensions; the others are not looked at")
    for folder in found[:_MOST_SOURCES]:
        script = read_setup_script(folder / "setup.py", reader)
        source = read_source(folder, reader=reader)
        python = read_packages_of(folder, source.packages, source.modules, names)
        yield CheckoutSource(
            path=folder.relative_to(root).as_posix(),
            source=source,
            cxx_flags=standard_flags(script),
            own_path_in_flags=own_path_in_flags(script),
            matches=(*code_matches(folder, patterns, reader), *python.matches),
            headers_missing=tuple(
                missing_headers(folder, source, script.include_dirs, root, headers, reader)
            ),
            faces=tuple(_faces(folder, reader)),
        )


def _faces(folder: Path, reader: FolderReader) -> Iterator[PackageSource]:
    for item in reader.children(folder):
        file = folder / item.name / "__init__.py"
        if is_splat_module(item.name) and (text := reader.text(file)):
            try:
                yield read_package_source(item.name, text, reader.parse)
            except NotPython as error:
                reader.leave_out(file, f"it is not Python that this version can read: {error}")


class _PythonFiles:
    """What the checkout's own Python files import and call; its extensions' files are left to ``sources``."""

    def __init__(self, root: Path, reader: FolderReader, shadows: tuple[Shadow, ...]) -> None:
        modules: dict[str, None] = {}
        guarded: list[GuardedImport] = []
        calls: list[RenderCall] = []
        others: list[ExtensionCall] = []
        own = {item.module for item in shadows}
        for file in reader.files_below(root, (".py",), depth=3, skip=("submodules",)):
            text = reader.text(file)
            if not _MENTIONS.search(text) or (tree := reader.python(file, text)) is None:
                continue
            name = file.relative_to(root).as_posix()
            nodes = tuple(ast.walk(tree))
            here = tuple(guarded_imports(name, nodes))
            found = imported_modules(nodes, without_lines={item.line for item in here})
            modules.update(dict.fromkeys(item.partition(".")[0] for item in found if is_splat_module(item)))
            guarded += here
            most = _MOST_CALLS - len(calls) - len(others)
            rasterizers, functions = extension_calls(name, nodes, most)
            calls += rasterizers
            others += (item for item in functions if item.module.partition(".")[0] not in own)
            if len(calls) + len(others) == _MOST_CALLS:
                reader.leave_out(
                    root, f"its files hold {_MOST_CALLS} calls of extensions or more, and no further are told"
                )
        self.imports = tuple(sorted(modules))
        self.guarded = tuple(guarded)
        self.calls = tuple(calls)
        self.extension_calls = tuple(others)


def _shadows(root: Path, reader: FolderReader) -> Iterator[Shadow]:
    """Packages of splatting names in the checkout's top folder, which Python searches first when a script there runs."""
    for item in reader.children(root):
        module, inside = item.name.removesuffix(".py"), is_folder(item.path)
        if not is_splat_module(module) or not is_there(f"{item.path}/__init__.py" if inside else item.path):
            continue
        if inside or item.name.endswith(".py"):
            names = [child.name for child in reader.children(root / item.name)] if inside else []
            yield Shadow(module, item.path, any(name.endswith((".so", ".pyd")) for name in names))


def read_pins(root: Path, reader: FolderReader | None = None) -> Iterator[Pin]:
    """Every requirement in the top folder's files, in order of the files' names."""
    reader = reader or FolderReader()
    for number, pin in enumerate(_pins(root, reader)):
        if number == _MOST_PINS:
            reader.leave_out(
                root, f"its files name more than {_MOST_PINS} requirements; the others are not read"
            )
            return
        yield pin


def _pins(root: Path, reader: FolderReader) -> Iterator[Pin]:
    for item in reader.children(root):
        if re.fullmatch(r"requirements.*\.txt", item.name):
            yield from _requirements(item, reader)
        elif re.fullmatch(r"(environment|requirements|conda).*\.ya?ml", item.name):
            yield from _conda_file(item, reader)
        elif item.name == "pyproject.toml":
            yield from _project_file(item, reader)


def _requirements(file: os.DirEntry[str], reader: FolderReader) -> Iterator[Pin]:
    for line in _lines(file, reader):
        if pin := _pin(file.name, line.partition("#")[0]):
            yield pin


def _project_file(file: os.DirEntry[str], reader: FolderReader) -> Iterator[Pin]:
    """The dependencies of a project that describes itself, as nerfstudio does."""
    from splatfix.core.toml import parse_toml  # few sources need it

    try:
        document = Table(parse_toml(reader.text(Path(file.path))), file.name)
    except ValueError:
        return  # setup-unreadable tells of a damaged file where it matters
    for line in document.table("project").texts("dependencies"):
        if pin := _pin(file.name, line):
            yield pin


def _conda_file(file: os.DirEntry[str], reader: FolderReader) -> Iterator[Pin]:
    """The list items under ``dependencies`` of a conda environment file, and those for pip inside of it."""
    inside = False
    for line in _lines(file, reader):
        if re.match(r"\S", line):
            inside = line.startswith("dependencies:") or (inside and line.startswith("-"))
        item = re.match(r"\s*-\s+([^\s#][^#]*)", line)
        text = item.group(1).strip() if inside and item else ""
        # a colon alone is that of a key, as in "- pip:"
        if text and not re.search(r"(?<!:):(?!:)", text) and (pin := _pin(file.name, text.strip("\"'"))):
            yield pin


def _lines(file: os.DirEntry[str], reader: FolderReader) -> Iterator[str]:
    """Lines of a list of requirements, without those that are as long as none is."""
    return (line for line in reader.text(Path(file.path)).splitlines() if len(line) < 1000)


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
