"""The process of a run: required packages, Ctrl-C, and a closed pipe on standard output."""

from __future__ import annotations

import importlib
import signal
import sys
import threading
from typing import Any, Dict, List

from smoke_trainer.errors import PackageMissing

# Module -> the name of its package.
PACKAGES: Dict[str, str] = {"torch": "torch", "numpy": "numpy", "PIL": "Pillow"}
NEEDS = "the smoke trainer needs torch, numpy and Pillow"


def require() -> None:
    """Import the packages; raises PackageMissing that names all that are not installed, or the first that does not load."""
    missing: List[str] = []
    for module, package in PACKAGES.items():
        try:
            importlib.import_module(module)
        except (ImportError, OSError) as error:
            if isinstance(error, ModuleNotFoundError) and error.name == module:
                missing.append(package)
            else:  # a shared library is missing or does not match, or a part of it is not there
                raise _broken(module, error) from None
    if missing:
        raise PackageMissing(
            f"{sys.executable} lacks {', '.join(missing)}",
            NEEDS,
            f"use the Python of your splatting environment, or run: {sys.executable} -m pip install {' '.join(missing)}",
        )


def _broken(module: str, error: Exception) -> PackageMissing:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return PackageMissing(
        f"{PACKAGES[module]} is installed for {sys.executable} but cannot be loaded: {lines[0][:300]}",
        NEEDS,
        "run `splatfix diagnose` to find the cause",
    )


class GracefulInterrupt:
    """A context in which the first SIGINT sets `requested`; a second one raises KeyboardInterrupt, as usual."""

    def __init__(self) -> None:
        self.requested = False
        self._previous: Any = None

    def __enter__(self) -> GracefulInterrupt:
        # Python lets only the main thread handle signals; elsewhere nothing changes.
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _handle(self, number: int, frame: Any) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


def end_with_the_pipe() -> None:
    """End without a word, as other programs do, where the reader of standard output has gone (`... | head`)."""
    if hasattr(signal, "SIGPIPE"):  # not on Windows
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
