"""Runs inside the target environment: which files a process has loaded, and whether bytecode is what its source compiles to.

At its end a process writes them as ``loaded-PID.json`` into the folder that :data:`VARIABLE` names; without that it writes
nothing. Imports the standard library alone; Python 3.8.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import json
import marshal
import os
import re
import sys
import sysconfig
from types import CodeType, FunctionType, ModuleType
from typing import Any, Dict, Iterator, List, Tuple

VARIABLE = "SPLATFIX_LOADED"
TRAINED_BY = re.compile(
    r"torch|torch\.(_C\._nn|_tensor|functional|linalg|optim|autograd|nn\.functional|nn\.init|nn\.modules\.(module|conv))(\..+)?"
    r"|numpy|PIL(\..+)?|(smoke_trainer|splatfix|gsplat)(\..+)?|\w*(ssim|knn|raster|splat)\w*(\..+)?"
)
"""Modules whose functions and bytecode are looked at: what computes, reads images and takes the steps of a training."""
_HEADER = 16
"""Bytes of a ``.pyc`` before its code: see PEP 552."""


def at_exit() -> None:
    """Have this process write what it loaded when it ends."""
    folder = os.environ.get(VARIABLE)
    if folder:
        atexit.register(write, folder)


def write(folder: str) -> None:
    """Write ``loaded-PID.json``, whole or not at all."""
    modules: Dict[str, Tuple[str, str]] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            modules[name] = (_real(file), _bytecode(module))
    paths = sysconfig.get_paths()
    document = {
        "path": [os.path.realpath(folder) for folder in sys.path if os.path.isdir(folder)],
        "python": sorted({os.path.realpath(paths[name]) for name in ("stdlib", "platstdlib")}),
        "modules": modules,
        "libraries": sorted(mapped()),
        "replaced": dict(_replaced()),
    }
    path = os.path.join(folder, f"loaded-{os.getpid()}.json")
    with open(path + ".partial", "w", encoding="utf-8") as file:
        json.dump(document, file)
    os.replace(path + ".partial", path)


def _bytecode(module: ModuleType) -> str:
    """The ``.pyc`` that Python takes in place of the source; "" where there is none."""
    cached = getattr(getattr(module, "__spec__", None), "cached", None)
    if isinstance(cached, str) and os.path.isfile(cached):
        return _real(cached)
    return ""


def mapped(process: str = "self") -> Iterator[str]:
    """Native files that a process holds; none on a system that does not tell, where modules name theirs."""
    try:
        with open(f"/proc/{process}/maps", encoding="utf-8", errors="surrogateescape") as file:
            paths = {line.split(None, 5)[-1].rstrip("\n") for line in file if "/" in line}
    except OSError:
        return
    for path in paths:
        if re.search(r"\.(so|pyd)(\.[\d.]+)?$", path):
            yield _real(path)


def _replaced() -> Iterator[Tuple[str, str]]:
    """Functions, by their full names, whose code is of a file outside of the package that defines them."""
    for name, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType) or not TRAINED_BY.fullmatch(name):
            continue
        home = _home(name)
        if not home:
            continue
        for owner, attributes in _scopes(name, module):
            for key, value in attributes.items():
                value = getattr(value, "__func__", getattr(value, "fget", value))
                if not isinstance(value, FunctionType):
                    continue
                file = _real(value.__code__.co_filename)
                if file and not file.startswith(home):
                    yield f"{owner}.{key}", file


def _scopes(name: str, module: ModuleType) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """The names of a module, and those of each class that it defines."""
    yield name, dict(vars(module))
    for key, value in list(vars(module).items()):
        if isinstance(value, type) and value.__module__ == name:
            yield f"{name}.{key}", dict(vars(value))


@functools.lru_cache(maxsize=None)
def _real(file: str) -> str:
    """Its folder with every link followed, and its own name: installers may link single files; "" for ``<string>``."""
    if file.startswith("<"):
        return ""
    folder, name = os.path.split(os.path.abspath(file))
    return os.path.join(os.path.realpath(folder), name)


@functools.lru_cache(maxsize=None)
def _home_of(top: str) -> str:
    file = getattr(sys.modules.get(top), "__file__", None)
    if not isinstance(file, str):
        return ""
    folder, name = os.path.split(_real(file))
    if name.startswith("__init__."):
        return os.path.join(folder, "")
    return os.path.join(folder, name)


def _home(name: str) -> str:
    """The folder of the package that a module is in, or its own file; "" where it has none."""
    return _home_of(name.partition(".")[0])


def differing(pairs: List[Tuple[str, str]]) -> Iterator[str]:
    """Of pairs of a source and its ``.pyc``: the ``.pyc`` files that this Python would run, and that are not what it makes
    of the source."""
    for source, cached in pairs:
        with open(cached, "rb") as file:
            content = file.read()
        with open(source, "rb") as file:
            text = file.read()
        if content[:4] != importlib.util.MAGIC_NUMBER:
            continue
        flags = int.from_bytes(content[4:8], "little")
        status = os.stat(source)
        stamp = (int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
        named = (int.from_bytes(content[8:12], "little"), int.from_bytes(content[12:16], "little"))
        if not flags and stamp != named:
            continue  # Python compiles it anew
        code = compile(text, source, "exec", dont_inherit=True, optimize=_optimization(cached))
        if _parts(code) != _parts(marshal.loads(content[_HEADER:])):  # nosec B302 - Python itself would run it
            yield cached


def _optimization(cached: str) -> int:
    level = re.search(r"\.opt-(\d)\.pyc$", cached)
    return int(level.group(1)) if level else 0


def _parts(code: Any) -> Any:
    """What a code object does, apart from where it was compiled."""
    if isinstance(code, (tuple, frozenset)):
        return type(code)(map(_parts, code))
    if not isinstance(code, CodeType):
        return type(code), repr(code)
    return (
        code.co_code,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_flags,
        tuple(map(_parts, code.co_consts)),
    )


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as pairs_file:
        json.dump(list(differing(json.load(pairs_file))), sys.stdout)
