"""What a stack's checkout says about itself, read as text: commit, submodules, pins, extension sources, how it renders."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from splatfix.facts.model import (
    Checkout,
    CheckoutSource,
    Fact,
    GuardedImport,
    Passage,
    Pin,
    RenderCall,
    Shadow,
    Submodule,
    unknown,
)
from splatfix.facts.python_source import SPLAT_MODULE, guarded_imports, imported_modules, render_calls
from splatfix.facts.setup_py import SetupScript, read_setup_script
from splatfix.facts.source import extension_folders, read_source

_MAX_FILE = 1 << 20
_MAX_FILES = 600
_NOT_CODE = frozenset({"data", "dataset", "datasets", "output", "outputs", "build", "dist", "node_modules",
                       "__pycache__", "assets", "SIBR_viewers", "third_party", "venv", "env"})  # fmt: skip
# Folders whose contents tell stacks apart; what else lies in a checkout is the user's own.
_TELLING = ("submodules", "utils", "gsplat", "examples", "nerfstudio", "nerfstudio/models", "rasterizer",
            "crates", "configs", "scene")  # fmt: skip
# A file that mentions none of these is not parsed.
_MENTIONS = re.compile(r"rasteriz|fused_ssim|simple_knn|gsplat", re.IGNORECASE)
_PIN_NAMES = re.compile(r"[A-Za-z][\w.-]*")


def read_checkout(folder: Path) -> Fact[Checkout]:
    """Read a checkout; nothing in it is executed, and git is not asked. Unknown when the folder is not there."""
    if not folder.is_dir():
        return unknown(f"{folder} is not a folder")
    root = folder.resolve()
    git = _git_folder(root)
    python = _PythonFiles(root)
    submodules = tuple(_submodules(root, git))
    checkout = Checkout(
        folder=str(root),
        paths=_telling_paths(root),
        remote=_remote(git),
        commit=_commit(git),
        branch=_branch(git),
        submodules=submodules,
        pins=tuple(_pins(root)),
        sources=tuple(_sources(root)),
        imports=python.imports,
        guarded=python.guarded,
        calls=python.calls,
        shadows=tuple(_shadows(root)),
        unreadable=python.unreadable,
    )
    return Fact(checkout, "files of the checkout, read as text")


# --- git ---------------------------------------------------------------------------------------------------------


def _git_folder(folder: Path) -> Path | None:
    """The folder with HEAD and config; a submodule's or worktree's ``.git`` is a file that names it."""
    place = folder / ".git"
    if place.is_dir():
        return place
    match = re.match(r"gitdir:\s*(.+)", _text(place))
    if not match:
        return None
    named = (folder / match.group(1).strip()).resolve()
    return named if named.is_dir() else None


def _commit(git: Path | None) -> str | None:
    if git is None:
        return None
    head = _text(git / "HEAD").strip()
    if not head.startswith("ref:"):
        return head if re.fullmatch(r"[0-9a-f]{40,64}", head) else None
    ref = head.removeprefix("ref:").strip()
    common = (git / _text(git / "commondir").strip()).resolve() if (git / "commondir").is_file() else git
    for place in (git, common):
        loose = _text(place / ref).strip()
        if re.fullmatch(r"[0-9a-f]{40,64}", loose):
            return loose
    packed = re.search(
        rf"^([0-9a-f]{{40,64}}) {re.escape(ref)}$", _text(common / "packed-refs"), re.MULTILINE
    )
    return packed.group(1) if packed else None


def _branch(git: Path | None) -> str:
    head = _text(git / "HEAD").strip() if git else ""
    return head.removeprefix("ref:").strip().removeprefix("refs/heads/") if head.startswith("ref:") else ""


def _remote(git: Path | None) -> str:
    """The address of ``origin``, without a user name or token in it."""
    config = _text(git / "config") if git else ""
    match = re.search(r'\[remote "origin"\][^\[]*?^\s*url\s*=\s*(\S+)', config, re.MULTILINE | re.DOTALL)
    if not match:
        return ""
    url = match.group(1)
    parts = urlsplit(url)
    if parts.scheme in ("http", "https"):
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, host, parts.path, "", ""))
    return url


def _submodules(root: Path, git: Path | None) -> Iterator[Submodule]:
    text = _text(root / ".gitmodules")
    for block in re.split(r"^\s*\[submodule\b.*$", text, flags=re.MULTILINE)[1:]:
        values = dict(re.findall(r"^\s*(path|url)\s*=\s*(\S.*?)\s*$", block, re.MULTILINE))
        if "path" not in values:
            continue
        place = root / values["path"]
        yield Submodule(
            path=values["path"],
            url=values.get("url", ""),
            empty=not _has_content(place),
            commit=_commit(_git_folder(place)),
        )


def _has_content(folder: Path) -> bool:
    try:
        return any(item.name != ".git" for item in folder.iterdir())
    except OSError:
        return False


# --- what it is and what it pins -----------------------------------------------------------------------------------


def _telling_paths(root: Path) -> tuple[str, ...]:
    found = [item.name for item in _children(root)]
    for inner in _TELLING:
        found += [f"{inner}/{item.name}" for item in _children(root / inner)]
    return tuple(sorted(found))


def _pins(root: Path) -> Iterator[Pin]:
    for item in _children(root):
        if re.fullmatch(r"requirements.*\.txt", item.name):
            yield from _requirements(item)
        elif re.fullmatch(r"(environment|requirements|conda).*\.ya?ml", item.name):
            yield from _conda_file(item)
        elif item.name == "pyproject.toml":
            yield from _project_file(item)


def _requirements(file: Path) -> Iterator[Pin]:
    for line in _text(file).splitlines():
        if pin := _pin(file.name, line.partition("#")[0]):
            yield pin


def _project_file(file: Path) -> Iterator[Pin]:
    """The dependencies of a project that describes itself, as nerfstudio does."""
    toml: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        wanted = toml.loads(_text(file)).get("project", {}).get("dependencies", ())
    except (ValueError, AttributeError):
        return  # setup-unreadable tells of a damaged file where it matters
    for line in wanted if isinstance(wanted, list) else ():
        if isinstance(line, str) and (pin := _pin(file.name, line)):
            yield pin


def _conda_file(file: Path) -> Iterator[Pin]:
    """The list items under ``dependencies`` of a conda environment file, and those for pip inside of it."""
    inside = False
    for line in _text(file).splitlines():
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


# --- its extensions ------------------------------------------------------------------------------------------------


def _sources(root: Path) -> Iterator[CheckoutSource]:
    for folder in extension_folders(root):
        script = read_setup_script(folder / "setup.py")
        yield CheckoutSource(
            path=folder.relative_to(root).as_posix(),
            source=read_source(folder),
            cxx_flags=_standard_flags(script),
            own_path_in_flags=_own_path_in_flags(script),
            passages=tuple(_passages(folder)),
        )


def _standard_flags(script: SetupScript) -> tuple[str, ...]:
    """Flags that force a C++ standard on a CUDA build: not those of another backend's flags in the same file."""
    lists: list[ast.expr] = []
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Dict):
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            if "nvcc" in keys:
                lists += node.values
    for call in script.calls("CUDAExtension", "CppExtension"):
        lists += [item.value for item in call.keywords if item.arg == "extra_compile_args"]
    texts = [text for item in lists if isinstance(found := script.literal(item), list) for text in found]
    texts += script.nvcc_flags
    return tuple(dict.fromkeys(text for text in texts if text and re.match(r"[-/]+std[=:]", text)))


def _own_path_in_flags(script: SetupScript) -> bool:
    """A flag is put together from "-I" and the folder that setup.py lies in, as the Inria family does for glm."""

    def speaks_of_itself(node: ast.AST, depth: int = 0) -> bool:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id == "__file__":
                return True
            if isinstance(inner, ast.Call) and SetupScript.callee(inner) in ("getcwd", "cwd"):
                return True
            named = script.assigned.get(inner.id) if isinstance(inner, ast.Name) and depth < 5 else None
            if named is not None and speaks_of_itself(named, depth + 1):
                return True
        return False

    for node in ast.walk(script.tree):
        parts = (
            node.values
            if isinstance(node, ast.JoinedStr)
            else [node.left]
            if isinstance(node, ast.BinOp)
            else []
        )
        first = parts[0] if parts else None
        if isinstance(first, ast.Constant) and str(first.value).startswith("-I") and speaks_of_itself(node):
            return True
    return False


# Symbols of CUB's old functors; CCCL 3.0 (CUDA 13.0) removed them.
_CUB = re.compile(r"\bcub::(Max|Min|Sum|Equality|Inequality)\b")
_FIXED_WIDTH = re.compile(r"\b(u?int(8|16|32|64)_t|uintptr_t)\b")
# glm's and torch's headers bring both along.
_GIVES_CSTDINT = re.compile(r"#\s*include\s*<(cstdint|stdint\.h|cinttypes|glm/.*|torch/.*|ATen/.*)>")
_GIVES_CFLOAT = re.compile(r"#\s*include\s*<(cfloat|float\.h|glm/.*|torch/.*|ATen/.*)>")


def _passages(folder: Path) -> Iterator[Passage]:
    for file in _files(folder, (".cu", ".cuh", ".h", ".hpp", ".cpp"), depth=3):
        name, text = file.relative_to(folder).as_posix(), _without_comments(_text(file))
        if match := _CUB.search(text):
            yield _passage("cub-max", name, text, match)
        # a .cu file gets the types from nvcc's own headers; a header is read by the host compiler alone, too
        header = file.suffix in (".h", ".hpp")
        match = _FIXED_WIDTH.search(text) if header else None
        if match and not any(_GIVES_CSTDINT.search(part) for part in (text, *_included(file, text))):
            yield _passage("no-cstdint", name, text, match)
        match = re.search(r"\bFLT_MAX\b", text)
        if match and not any(_GIVES_CFLOAT.search(part) for part in (text, *_included(file, text))):
            yield _passage("no-cfloat", name, text, match)


def _included(file: Path, text: str) -> Iterator[str]:
    """The local headers that a file includes, one level deep."""
    for name in re.findall(r'#\s*include\s*"([^"]+)"', text):
        yield _text(file.parent / name)


def _without_comments(text: str) -> str:
    """The text with comments blanked, so that line numbers stay."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match.group(0))

    return re.sub(r"//[^\n]*|/\*.*?\*/", blank, text, flags=re.DOTALL)


def _passage(kind: str, name: str, text: str, match: re.Match[str]) -> Passage:
    line = text.count("\n", 0, match.start()) + 1
    return Passage(kind, name, line, text.splitlines()[line - 1].strip()[:160])


# --- its Python ----------------------------------------------------------------------------------------------------


class _PythonFiles:
    """What the checkout's own Python files import and call; its extensions' files are left to ``sources``."""

    def __init__(self, root: Path) -> None:
        modules: dict[str, None] = {}
        guarded: list[GuardedImport] = []
        calls: list[RenderCall] = []
        unreadable: list[str] = []
        for file in _files(root, (".py",), depth=3, skip=("submodules",)):
            text = _text(file)
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
    for item in _children(root):
        module = item.name.removesuffix(".py")
        if not SPLAT_MODULE.fullmatch(module) or (item.is_dir() and not (item / "__init__.py").is_file()):
            continue
        if item.is_dir() or item.suffix == ".py":
            native = item.is_dir() and any(child.suffix in (".so", ".pyd") for child in _children(item))
            yield Shadow(module, str(item), native)


# --- files ---------------------------------------------------------------------------------------------------------


def _files(folder: Path, endings: tuple[str, ...], *, depth: int, skip: Iterable[str] = ()) -> Iterator[Path]:
    """Files of these endings, ``depth`` levels down, in order of name; at most six hundred."""
    left = _MAX_FILES
    pending = [(folder, depth)]
    skipped = _NOT_CODE | set(skip)
    while pending and left:
        here, levels = pending.pop(0)
        for item in _children(here):
            if item.suffix in endings and item.is_file():
                yield item
                left -= 1
                if not left:
                    return
            elif levels and item.name not in skipped and not item.is_symlink() and item.is_dir():
                pending.append((item, levels - 1))


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(item for item in folder.iterdir() if not item.name.startswith("."))
    except OSError:
        return []


def _text(file: Path) -> str:
    """A small text file's content; "" when it is not there, not readable or too big to be source."""
    try:
        if file.stat().st_size > _MAX_FILE:
            return ""
        return file.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""
