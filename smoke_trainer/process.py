"""The process of a run: required packages, Ctrl-C, and a closed pipe on standard output."""

from __future__ import annotations

import importlib
import signal
import sys
import threading
from typing import Any, Dict

from smoke_trainer.errors import PackageMissing

# Module -> the name of its package.
PACKAGES: Dict[str, str] = {"torch": "torch", "numpy": "numpy", "PIL": "Pillow"}


def require() -> None:
    """Import the packages; raises PackageMissing that names all that are not installed, or do not load, each with the reason."""
    failed: Dict[str, str] = {}
    for module, package in PACKAGES.items():
        try:
            importlib.import_module(module)
        except (ImportError, OSError) as error:  # OSError: a shared library is missing or does not match
            failed[package] = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
    if failed:
        reasons = "; ".join(f"{package} ({reason})" for package, reason in failed.items())
        raise PackageMissing(
            f"{sys.executable} cannot load {reasons}",
            "the smoke trainer needs torch, numpy and Pillow",
            f"use the Python of your splatting environment, or run: {sys.executable} -m pip install {' '.join(failed)}; "
            "`splatfix diagnose` finds why one that is installed does not load",
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
