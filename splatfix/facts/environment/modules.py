"""The top-level names that an environment's Python can import, without those of Python itself."""

from __future__ import annotations

import re
from collections.abc import Iterable

from splatfix.facts.environment.packages import claimed_modules, other_roots
from splatfix.facts.model.environment import Distribution
from splatfix.facts.system.live import System

_MODULE = re.compile(r"([A-Za-z_]\w*)(\.py|\.(?:cpython|abi3|pypy|cp)[\w.-]*\.?(?:so|pyd)|\.so|\.pyd)?")


def importable_names(
    system: System, path: Iterable[str], distributions: Iterable[Distribution]
) -> tuple[str, ...]:
    """Names of modules and packages in the folders of ``sys.path``, and of what editable installs point to.

    Args:
        path: the interpreter's ``sys.path``; the folders of Python's own library are passed over.
        distributions: those that are installed; what the disk does not show of them, their metadata does.
    """
    installed = tuple(distributions)
    folders = [folder for folder in path if not _is_library(system, folder)]
    for root in other_roots(installed):
        folders += [root, f"{root}/src"]
    names: set[str] = set()
    for folder in dict.fromkeys(folders):
        for entry in system.listdir(folder):
            match = _MODULE.fullmatch(entry)
            if match:
                names.add(match.group(1))
    for distribution in installed:
        if distribution.editable:
            names |= claimed_modules(system, distribution)
    return tuple(sorted(name for name in names if name.isidentifier() and not name.startswith("__")))


def _is_library(system: System, folder: str) -> bool:
    return folder.endswith("lib-dynload") or system.exists(f"{folder}/os.py")
