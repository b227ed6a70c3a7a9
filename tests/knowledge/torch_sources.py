"""Finds torch's own source files on this machine and runs single definitions out of them, without importing torch.

Looked at: the installed torch, the native lane's torch (SPLATFIX_NATIVE_PYTHON, or where make puts it), and every
site-packages (or unpacked wheel) named in SPLATFIX_TORCH_SITES, separated as PATH is:
SPLATFIX_TORCH_SITES=torch24/lib/python3.11/site-packages:wheels/torch-2.7
"""

import __future__

import ast
import functools
import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class TorchSource:
    root: Path  # the folder ``torch``

    @functools.cached_property
    def version(self) -> str:
        found = re.search(r"__version__ = '([^']+)'", (self.root / "version.py").read_text())
        return found[1]

    @property
    def minor(self) -> tuple[int, int]:
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)

    def text(self, path: str) -> str:
        return (self.root / path).read_text(encoding="utf-8")

    def definitions(self, path: str, wanted: set[str], stubs: dict[str, Any]) -> dict[str, Any]:
        """Run the top-level definitions and assignments named ``wanted`` of one file, over the names in ``stubs``."""
        body: list[ast.stmt] = []
        for node in ast.parse(self.text(path)).body:
            names = {getattr(node, "name", None)}
            if isinstance(node, ast.Assign):
                names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names = {node.target.id}
            if names & wanted:
                body.append(node)
        space = dict(stubs)
        # annotations stay text: what they name is not among the stubs
        flags = __future__.annotations.compiler_flag
        exec(compile(ast.Module(body, []), str(self.root / path), "exec", flags), space)
        return space


@functools.cache
def torch_sources() -> tuple[TorchSource, ...]:
    roots = []
    spec = importlib.util.find_spec("torch")
    if spec and spec.origin:
        roots.append(Path(spec.origin).parent)
    lane = Path.home() / ".cache/splatfix/native-lane/venv/lib"
    roots += sorted(lane.glob("python3*/site-packages/torch"))
    if python := os.environ.get("SPLATFIX_NATIVE_PYTHON"):
        roots += sorted((Path(python).parent.parent / "lib").glob("python3*/site-packages/torch"))
    named = os.environ.get("SPLATFIX_TORCH_SITES", "")
    roots += [Path(site) / "torch" for site in named.split(os.pathsep) if site]
    found = {root.resolve(): TorchSource(root) for root in roots if (root / "version.py").is_file()}
    return tuple(found.values())
