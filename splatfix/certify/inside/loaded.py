"""Write which files a process has loaded, and tell what splatfix put there; runs inside the target environment.

At its end a process writes them as ``loaded-PID.json`` into the folder that :data:`VARIABLE` names; without that it writes
nothing. Imports the standard library alone; Python 3.8.
"""

from __future__ import annotations

import atexit
import functools
import importlib.metadata
import json
import os
import re
import sys
from typing import Any, Dict

VARIABLE = "SPLATFIX_LOADED"


def at_exit() -> None:
    """Have this process write what it loaded when it ends."""
    folder = os.environ.get(VARIABLE)
    if folder:
        atexit.register(write_loaded, folder)


def write_loaded(folder: str) -> None:
    """Write ``loaded-PID.json``."""
    modules: Dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            modules[name] = _real(file)
    libraries = set()
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            paths = {line.split(None, 5)[-1].rstrip("\n") for line in maps if "/" in line}
    except OSError:
        paths = set()  # a system that does not tell, where modules name theirs
    for path in paths:
        if re.search(r"\.(so|pyd)(\.[\d.]+)?$", path):
            libraries.add(_real(path))
    document = {"modules": modules, "libraries": sorted(libraries)}
    write_whole(os.path.join(folder, f"loaded-{os.getpid()}.json"), document)


def write_whole(path: str, document: Dict[str, Any]) -> None:
    """Write JSON whole or not at all."""
    with open(path + ".partial", "w", encoding="utf-8") as file:
        json.dump(document, file)
    os.replace(path + ".partial", path)


@functools.lru_cache(maxsize=None)
def is_dropin(package: str) -> bool:
    """Tell whether a drop-in of splatfix replaces a package; what splatfix compiled has a manifest too, and is a stack's own."""
    for distribution in importlib.metadata.distributions():
        manifest = json.loads(distribution.read_text("splatfix.json") or "{}")
        if manifest.get("kind") == "drop-in" and manifest["replaces"] == package:
            return True
    return False


@functools.lru_cache(maxsize=None)
def _real(file: str) -> str:
    """Its folder with every link followed, and its own name: installers may link single files."""
    folder, name = os.path.split(os.path.abspath(file))
    return os.path.join(os.path.realpath(folder), name)
