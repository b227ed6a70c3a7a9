"""Imports of a trainer: actions after a module was imported, imports that fail, and placeholders for missing modules."""

from __future__ import annotations

import builtins
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable, Optional

from smoke_trainer.record import FailedImport

if TYPE_CHECKING:
    from splatfix.certify.inside.observer import Record

_NO_LIBRARY = re.compile(r"\S+\.so[\d.]*: cannot open shared object file")
Action = Callable[[ModuleType], None]


class AfterImport(importlib.abc.MetaPathFinder):
    """Runs an action once on each module whose top-level name has one, after its own code ran and before its importer goes on."""

    def __init__(self, actions: dict[str, Action], record: Record) -> None:
        self.actions, self.record = actions, record
        self._busy: set[str] = set()
        """Names that are looked for: another finder may ask all of them again, as this one does."""

    def find_spec(
        self, name: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        """The spec that the other finders have, with the action added to its loader."""
        action = self.actions.get(name) or self.actions.get(name.partition(".")[0] + ".*")
        if action is None or name in self._busy:
            return None
        self._busy.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._busy.discard(name)
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return spec
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            try:
                action(module)
            except Exception:  # the import is the trainer's, and its own
                self.record.not_observed()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class Placeholders(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules that are missing can be imported, so that what else stops the trainer comes up; using one fails as an import.

    It comes last among the finders: a module that is there is never replaced, unless it was found to lack a library.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = dict.fromkeys(names, "")
        """With what the import of the module said, where it is there."""

    def find_spec(
        self, name: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        """A spec for the missing modules and everything below them."""
        if name.partition(".")[0] not in self.names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def take_place(self, top: str, why: str) -> None:
        """Put a placeholder where a module is that cannot be loaded."""
        for name in [item for item in sys.modules if item.partition(".")[0] == top]:
            del sys.modules[name]
        self.names[top] = why
        sys.modules[top] = importlib.util.module_from_spec(
            importlib.machinery.ModuleSpec(top, self, is_package=True)
        )
        self.exec_module(sys.modules[top])

    def exec_module(self, module: ModuleType) -> None:
        """Every name of it is a class that cannot be used."""

        def absent(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            why = self.names[module.__name__.partition(".")[0]]
            return _Absent(name, (), {"__module__": module.__name__, "_why": why})

        module.__getattr__ = absent  # type: ignore[method-assign]


class _Absent(type):
    """Of annotations, which are made at the import (``Shaped[Tensor, "n"] | None``), nothing is wanted but to be there."""

    def __or__(cls, other: Any) -> Any:
        return cls

    __ror__ = __getitem__ = __or__

    def __call__(cls, *_: Any, **__: Any) -> Any:
        top, name = cls.__module__.partition(".")[0], f"{cls.__module__}.{cls.__name__}"
        if cls._why:
            raise ImportError(f"{cls._why} ({name} is used)", name=top)
        raise ModuleNotFoundError(f"No module named {top!r} ({name} is used)", name=top)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls()


def watch_imports(record: Record) -> None:
    """Write down every import that fails in a file of the checkout, whether or not the code goes on without it."""
    original, configuration = builtins.__import__, record.configuration
    placeholders = Placeholders(configuration["placeholders"])
    sys.meta_path.append(placeholders)

    def failed(name: str, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"[:500]
        row = FailedImport(name, place_in(record.root, traceback.extract_stack())[0], text)
        if row not in record.failed_imports:
            record.failed_imports.append(row)

    def watched(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> ModuleType:
        file = str((globals or {}).get("__file__") or "")
        if not file or not os.path.abspath(file).startswith(record.root):
            return original(name, globals, locals, fromlist, level)
        path = list(sys.path)
        try:
            module = original(name, globals, locals, fromlist, level)
        except Exception as error:
            failed(name, error)
            top = name.partition(".")[0]
            lacks = _NO_LIBRARY.search(str(error))
            if lacks is None or top not in configuration["needed"] or top in placeholders.names:
                raise
            why = f"{top} cannot be loaded: {lacks.group()}"
            library = lacks.group().partition(":")[0]
            advice = f"Install the package of the system that brings {library} (apt-file search {library} names it)."
            record.mend("library-missing", f"{why}: no such file.", advice)
            placeholders.take_place(top, why)
            sys.path[:] = path  # cv2 puts its own folder in front, and with it a package called utils
            module = original(name, globals, locals, fromlist, level)
        for item in fromlist or ():
            whole = f"{module.__name__}.{item}"
            if item != "*" and not hasattr(module, item) and whole not in sys.modules:
                text = f"cannot import name {item!r} from {module.__name__!r}"
                failed(f"{name}.{item}", ImportError(text))
        return module

    builtins.__import__ = watched


def place_in(root: str, frames: Sequence[traceback.FrameSummary]) -> tuple[str, str]:
    """Return ``file:line`` of the innermost statement in the checkout, and the function that it is in; "" where none is."""
    for frame in reversed(frames):
        if os.path.abspath(frame.filename).startswith(root):
            return f"{os.path.relpath(frame.filename, root)}:{frame.lineno}", frame.name
    return "", ""


def file_of(path: Optional[str]) -> tuple[Optional[str], Optional[str]]:
    """Return the name of a module's file and its SHA-256, as a record has them."""
    if not path or not os.path.isfile(path):
        return os.path.basename(path or "") or None, None
    with open(path, "rb") as opened:
        return os.path.basename(path), hashlib.sha256(opened.read()).hexdigest()
