"""Changes modules in memory, right after they were loaded: their files stay as they are. Standard library only.

It runs in the target's interpreter: in the recorder, and as the ``sitecustomize`` of a build, with calls at its end. Python runs
that of the first folder on its path at every start, so also in the children that pip starts.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any


class AfterImport:
    """Finds one module, and has ``change`` called with it once it is loaded."""

    def __init__(self, name: str, change: Callable[[Any], None]) -> None:
        self.name, self.change = name, change
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the module's own spec, with a loader that also changes it."""
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec and spec.loader:
            load = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                load(module)
                self.change(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def silence(cpp_extension: Any) -> None:
    """Have torch not compare the toolkit's CUDA with its own."""

    def silenced(*_: Any, **__: Any) -> None:
        print("splatfix: --force-cuda-mismatch: torch's check of the CUDA version is silenced", flush=True)  # noqa: T201

    cpp_extension._check_cuda_version = silenced


def act_once(number: int) -> Callable[[Any], None]:
    """Have only the call of ``setup()`` of this number act, from one on.

    pip asks for the metadata and builds the wheel in processes of their own, each of which runs setup.py once.
    """

    def change(_: Any) -> None:
        import distutils.core

        setup = distutils.core.setup
        calls: list[Any] = []

        def setup_or_pass(**attributes: Any) -> Any:
            calls.append(attributes)
            return setup(**attributes) if len(calls) == number else None

        distutils.core.setup = setup_or_pass  # setuptools' own calls it

    return change
