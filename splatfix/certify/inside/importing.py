"""What a trainer imports and loads: what is done once a module is there, what fails, and what a rehearsal goes without.

That is a missing module until it is used, weights from a server, and torch's refusal of files that the run itself wrote.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pickle  # nosec B403 - for the name of its exception
import re
import sys
import traceback
from collections import OrderedDict
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


def go_without(record: Record) -> None:
    """Once torch is there: what it refuses to load, and what no server gives, stops no rehearsal.

    torch 2.6 made ``weights_only=True`` the default. A file that this very run wrote is as safe as the trainer that wrote it, and
    is loaded after all; any other stays refused, as torch wants it. The folders of ``written`` held nothing but files of the
    checkout, by the same names, when the run began.
    """
    import torch

    from splatfix.certify.inside.cuda_on_cpu import replace_call

    roots = [os.path.join(os.path.realpath(folder), "") for folder in record.configuration["written"]]

    def load_own(load: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return load(f, *args, **kwargs)
        except pickle.UnpicklingError as error:
            asked = "weights_only" in kwargs or not isinstance(f, (str, os.PathLike))
            if asked or "Weights only load failed" not in str(error):
                raise
            path = os.path.realpath(f)
            inside = [path[len(root) :] for root in roots if path.startswith(root)]
            if not inside or os.path.exists(os.path.join(record.root, inside[0])):
                raise
            place = place_in(record.root, traceback.extract_stack())[0] or sys.argv[0]
            record.mend(
                "torch-load-pickles",
                f"{place} loads {os.path.basename(path)}, which torch refuses without weights_only=False.",
                "Give weights_only=False to that torch.load, if nobody else's files are loaded there.",
            )
            return load(f, *args, weights_only=False, **kwargs)

    def download_or_not(download: Any, url: str, *args: Any, **kwargs: Any) -> Any:
        # trainers load VGG or AlexNet for LPIPS when they start
        try:
            return download(url, *args, **kwargs)
        except OSError as error:  # URLError is one
            record.weights.append(f"{url}: {error}")
            return OrderedDict()

    def load_or_not(load: Any, model: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        if record.weights and len(state_dict) == 0:  # it keeps its random weights
            return torch.nn.modules.module._IncompatibleKeys([], [])
        return load(model, state_dict, *args, **kwargs)

    replace_call(torch, "load", load_own)
    replace_call(torch.hub, "load_state_dict_from_url", download_or_not)
    replace_call(torch.nn.Module, "load_state_dict", load_or_not)


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
