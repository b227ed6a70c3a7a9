"""What an extension's source folder says about its own build, and code in it that is known to break; nothing is executed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splatfix.core.redact import redacted
from splatfix.core.source_pattern import SourcePattern, without_comments
from splatfix.facts.model.source import CodeMatch, NativeModule, Source
from splatfix.facts.source.folder import files_below, read_submodules, text_of
from splatfix.facts.source.setup_py import SetupScript, read_setup_script

# A checkout three levels deep has some hundred folders; a home folder or a disk has many thousands.
MOST_FOLDERS = 3000
_OF_SETUPTOOLS = ("pkg_resources", "distutils")
_OUTPUT = {"build", "dist", "__pycache__", "node_modules", "venv", "env", "output", "data"}


def read_source(folder: Path, setup_text: str | None = None) -> Source:
    """Read one extension's source folder; ``folder`` must exist. Nothing in it is executed.

    Args:
        setup_text: read this in the place of setup.py's content, to see what an edit would come to.
    """
    files = tuple(
        name for name in ("setup.py", "pyproject.toml", "CMakeLists.txt") if (folder / name).is_file()
    )
    pyproject, toml_error = _pyproject(folder / "pyproject.toml")
    script = read_setup_script(folder / "setup.py", setup_text) if "setup.py" in files else SetupScript()
    project = pyproject.get("project", {})
    system = pyproject.get("build-system", {})
    modules = tuple(_modules(folder, script))
    source = Source(
        folder=str(folder),
        build_files=files,
        name=script.text("name") or _text(project.get("name")),
        version=script.text("version") or _text(project.get("version")),
        packages=script.texts("packages"),
        modules=modules,
        needs_cuda=_needs_cuda(folder, script, modules),
        uses_torch_builder=script.mentions("CUDAExtension", "CppExtension", "BuildExtension"),
        build_requires=tuple(item for item in system.get("requires", ()) if isinstance(item, str)),
        requires=(*script.texts("install_requires"), *_texts(project.get("dependencies"))),
        python=_text(project.get("requires-python"))
        or script.text("python_requires")
        or _in_setup_cfg(folder / "setup.cfg", "options", "python_requires"),
        reads=script.reads,
        sets=script.sets,
        nvcc_flags=script.nvcc_flags,
        libraries=script.libraries,
        imports=tuple(name for name in script.imports if name.partition(".")[0] in _OF_SETUPTOOLS),
        missing_folders=tuple(_missing_folders(folder, script)),
        error="; ".join(filter(None, (script.error, toml_error))),
    )
    return redacted(source)


@dataclass(frozen=True)
class FolderWalk:
    """What a look through a folder for extensions came to."""

    found: tuple[Path, ...]
    """In order of name."""
    unreadable: tuple[Path, ...] = ()
    complete: bool = True
    """False when there were too many folders, and the rest was not looked at."""


def extension_folders(folder: Path, depth: int = 3) -> tuple[Path, ...]:
    """Folders at or below ``folder`` whose setup.py declares native modules, in order of name.

    Looks ``depth`` levels down, not into build output and not below an extension it found.
    """
    return walk_extensions(folder, depth).found


def walk_extensions(folder: Path, depth: int = 3, most: int = MOST_FOLDERS) -> FolderWalk:
    """The same, with what could not be read; the nearest folders first, and no more than ``most`` of them."""
    pending, found, unreadable = [(folder, depth)], list[Path](), list[Path]()
    seen = 0
    while pending:
        here, left = pending.pop(0)
        if seen == most:
            return FolderWalk(tuple(sorted(found)), tuple(unreadable), complete=False)
        seen += 1
        try:
            if _declares_modules(here):
                found.append(here)
            elif left:
                with os.scandir(here) as listing:
                    inside = sorted(item.name for item in listing if item.is_dir(follow_symlinks=False))
                names = [name for name in inside if not name.startswith(".") and name not in _OUTPUT]
                pending += [(here / name, left - 1) for name in names]
        except OSError:
            unreadable.append(here)
    return FolderWalk(tuple(sorted(found)), tuple(unreadable))


def _declares_modules(folder: Path) -> bool:
    if not (folder / "setup.py").is_file():
        return False
    script = read_setup_script(folder / "setup.py")
    return script.mentions("CUDAExtension", "CppExtension", "Extension", "ext_modules")


def _modules(folder: Path, script: SetupScript) -> Iterator[NativeModule]:
    for call in script.calls("CUDAExtension", "CppExtension", "Extension"):
        name = script.value(call, "name", position=0)
        declared = script.value(call, "sources", position=1)
        sources = (
            tuple(item for item in declared if isinstance(item, str)) if isinstance(declared, list) else ()
        )
        yield NativeModule(
            name=name if isinstance(name, str) else "",
            sources=sources,
            missing=tuple(item for item in sources if not (folder / item).exists()),
            cuda=SetupScript.callee(call) == "CUDAExtension",
        )


def _needs_cuda(folder: Path, script: SetupScript, modules: tuple[NativeModule, ...]) -> bool:
    if script.mentions("CUDAExtension") or any(text.endswith(".cu") for text in script.literals):
        return True
    listed = bool(modules) and all(module.sources for module in modules)
    return not listed and next(folder.rglob("*.cu"), None) is not None


def _missing_folders(folder: Path, script: SetupScript) -> Iterator[str]:
    """Submodules git has not fetched, and include folders named in setup.py that hold nothing."""
    wanted = [item.path for item in read_submodules(folder)]
    # "-I" + os.path.join(here, "third_party/glm/") is how the whole Inria family names its one include folder
    wanted += [
        text
        for text in (*script.nvcc_flags, *script.include_dirs)
        if text.strip("/").startswith("third_party")
    ]
    seen: set[str] = set()
    for path in wanted:
        clean = path.removeprefix("-I").strip().strip("/")
        if clean in seen or not clean:
            continue
        seen.add(clean)
        place = folder / clean
        if not place.is_dir() or next(place.iterdir(), None) is None:
            yield clean


def _pyproject(file: Path) -> tuple[dict[str, Any], str]:
    from splatfix.core.toml import parse_toml  # few sources need it

    try:
        return parse_toml(file.read_text(encoding="utf-8")), ""
    except OSError:
        return {}, ""
    except ValueError as error:  # damaged TOML and damaged UTF-8 alike
        return {}, f"pyproject.toml cannot be read: {error}"


def _in_setup_cfg(file: Path, section: str, name: str) -> str:
    """One entry of setup.cfg; "" where there is none, also because the file cannot be read: its build will say so."""
    if not (text := text_of(file)):
        return ""
    import configparser  # slow to import, and few sources have the file

    config = configparser.ConfigParser(interpolation=None)
    try:
        config.read_string(text)
    except configparser.Error:
        return ""
    return config.get(section, name, fallback="").strip()


def _texts(value: Any) -> Iterator[str]:
    yield from (item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def code_matches(folder: Path, patterns: Iterable[SourcePattern]) -> Iterator[CodeMatch]:
    """The first place of each pattern in each file of an extension's source folder.

    What a pattern asks a file to lack may also stand in a local header that the file includes, one level deep.
    """
    wanted = tuple(patterns)
    for file in files_below(folder, (".cu", ".cuh", ".h", ".hpp", ".cpp", ".cc"), depth=3):
        here = [pattern for pattern in wanted if pattern.looks_at(file.name)]
        if not here:
            continue
        name, text = file.relative_to(folder).as_posix(), without_comments(file.name, text_of(file))
        included = [text_of(file.parent / header) for header in re.findall(r'#\s*include\s*"([^"]+)"', text)]
        for pattern in here:
            if match := pattern.find(text, *included):
                line = text.count("\n", 0, match.start()) + 1
                yield CodeMatch(pattern.key, name, line, text.splitlines()[line - 1].strip()[:160])
