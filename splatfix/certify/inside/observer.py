"""Observes a trainer from within its own process: losses, gradients, counts, which extensions ran, and how it ended.

Nothing of the trainer is edited. Hooked are ``Tensor.backward``, ``Optimizer.__init__`` (to know the parameter groups) and the
functions and modules of the splatting extensions that it imports. Each backward pass is one line of ``metrics.jsonl``; the
rest is ``observed-PID.json``, written every few seconds and at the end, so that a killed trainer leaves what was seen till then.
"""

from __future__ import annotations

import atexit
import functools
import glob
import hashlib
import json
import math
import os
import sys
import threading
import time
import traceback
import weakref
from types import ModuleType
from typing import Any, Optional

from splatfix.certify.inside import cuda_on_cpu, importing, loaded, loads
from splatfix.certify.inside.phases import Phases

POSITIONS = ("xyz", "means", "anchor", "means3d", "positions", "points")
"""Parameter groups whose rows are Gaussians (or Scaffold's anchors), by the names that trainers give them."""
TROUBLE = "inside.txt"
"""Beside the records: tracebacks of hooks that could not be set."""
EVERY = 2.0
"""Seconds between two writings of ``observed.json``."""
FOLLOWED = frozenset((2, 10, 30, 100, 300, 1000, 3000, 10_000, 29_999))
"""Steps of an optimizer after which it is looked whether every group moved."""
_DRAWS = ("gaussianraster", "surfelraster", "rasteriz")
"""How the names begin of what draws a picture, in lower case."""
_OF_TORCH = (os.sep + "torch" + os.sep, os.sep + "splatfix" + os.sep + "certify" + os.sep + "inside" + os.sep)


class Record:
    """What was seen, and where it is written."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        self.out = configuration["out"]
        self.root = os.path.join(os.path.abspath(configuration["checkout"]), "")
        self.state: dict[str, Any] = {
            "argv": None,
            "python": sys.version.split()[0],
            "torch": None,
            "rehearsed": bool(configuration["cpu"]),
            "started": time.time(),
            "backward": 0,
            "losses": [],
            "groups": {},
            "optimizers": {},
            "counts": [],
            "reached": {"share": None, "steps": 0},
            "updates": {},
            "sh_degree": None,
            "resolution": None,
            "extensions": {},
            "failed_imports": [],
            "placeholders": [],
            "weights": [],
            "not_tensors": [],
            "refused_loads": [],
            "unloadable": [],
            "error": None,
            "rss": 0,
            "vram": 0,
            "gpu": None,
            "phases": {},
        }
        self.phases: Optional[Phases] = None
        self.pid = os.getpid()
        self._written = 0.0
        self._lock = threading.Lock()
        self._lines: Optional[Any] = None

    def once(self, kind: str, row: dict[str, Any]) -> None:
        """Something that happened at a place of the checkout, and may happen there again and again."""
        if row not in self.state[kind]:
            self.state[kind].append(row)

    def not_observed(self) -> None:
        """What is being handled kept a hook from being set: ``inside.txt`` says it, and the trainer goes on without."""
        with open(os.path.join(self.out, TROUBLE), "a", encoding="utf-8") as file:
            file.write(traceback.format_exc())

    def line(self, row: dict[str, Any]) -> None:
        """One backward pass."""
        if self._lines is None:
            self._lines = open(os.path.join(self.out, "metrics.jsonl"), "a", encoding="utf-8", buffering=1)
        self._lines.write(json.dumps(row) + "\n")
        if time.monotonic() - self._written > EVERY:
            self.write()

    def write(self) -> None:
        """Write ``observed.json`` whole or not at all. A process that only forks off the trainer writes none."""
        if os.getpid() != self.pid:
            return
        with self._lock:
            self.state["argv"] = self.state["argv"] or list(getattr(sys, "argv", []))
            self.state["rss"] = max(self.state["rss"], resident())
            self.state["seconds"] = round(time.time() - self.state["started"], 3)
            path = os.path.join(self.out, f"observed-{self.pid}.json")
            with open(path + ".partial", "w", encoding="utf-8") as file:
                json.dump(self.state, file)
            os.replace(path + ".partial", path)
            self._written = time.monotonic()


def resident() -> int:
    """Peak of this process's memory in bytes; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024


def start(record: Record, configuration: dict[str, Any]) -> None:
    """Hook what is to be seen, as soon as it is imported."""
    extensions = _Extensions(record)

    def on_torch(torch: ModuleType) -> None:
        record.state["torch"] = str(torch.__version__)
        if configuration["cpu"]:
            cuda_on_cpu.land(torch, resident)
            loads.go_without(torch, record.state["weights"])
        loads.collect_refused(torch, record, configuration["written"])
        _Training(record, torch).hook()

    def on_vision(extension: ModuleType) -> None:
        record.state["declared_operators"] = cuda_on_cpu.declare_operators(extension)

    actions: dict[str, importing.Action] = {"torch": on_torch}
    if configuration["cpu"]:
        actions["torchvision.extension"] = on_vision
    actions.update({f"{name}.*": extensions.watch for name in configuration["extensions"]})
    sys.meta_path.insert(0, importing.AfterImport(actions, record))
    ending = sys.excepthook

    def on_error(kind: Any, error: BaseException, trace: Any) -> None:
        record.state["error"] = describe(kind, error, trace, record.root)
        ending(kind, error, trace)

    sys.excepthook = on_error

    def at_end() -> None:
        if record.state["torch"] or record.state["error"]:
            record.write()

    atexit.register(at_end)
    loaded.at_exit()


def describe(kind: Any, error: BaseException, trace: Any, root: str) -> dict[str, Any]:
    """An exception that ended the trainer: its words, and the innermost place in the checkout."""
    frames = [
        (os.path.relpath(frame.filename, root), frame.lineno, frame.name)
        for frame in traceback.extract_tb(trace)
        if os.path.abspath(frame.filename).startswith(root)
    ]
    description = {
        "type": getattr(kind, "__name__", str(kind)),
        "message": str(error)[:2000],
        "module": None,
        "place": None,
        "function": None,
    }
    if isinstance(error, ImportError):
        description["module"] = error.name
    if frames:
        file, line, description["function"] = frames[-1]
        description["place"] = f"{file}:{line}"
    return description


class _Extensions:
    """Counts the calls of what an extension offers, by module and name."""

    def __init__(self, record: Record) -> None:
        self.record = record

    def watch(self, module: ModuleType) -> None:
        """Wrap its public functions and the ``forward`` of its torch modules; note where it came from."""
        last = module.__name__.rpartition(".")[2]
        if last.startswith("_") and last != "_C":  # how it is made inside
            return
        torch, top = sys.modules.get("torch"), module.__name__.partition(".")[0]
        file = getattr(module, "__file__", None)
        row: dict[str, Any] = {"file": file, "sha256": _digest(file), "dropin": _is_dropin(file), "calls": {}}
        self.record.state["extensions"][module.__name__] = row
        for name, value in list(vars(module).items()):
            if name.startswith("_"):
                continue
            origin = getattr(value, "__module__", None) or module.__name__
            # compiled modules are called _C by their own functions
            if origin.partition(".")[0] not in (top, last):
                continue
            if isinstance(value, type):
                if torch is not None and issubclass(value, torch.nn.Module) and origin == module.__name__:
                    setattr(value, "forward", self._counted(getattr(value, "forward"), row["calls"], name))  # noqa: B009, B010 - any class
            elif callable(value) and not hasattr(value, "__wrapped__"):
                setattr(module, name, self._counted(value, row["calls"], name))

    def _counted(self, function: Any, calls: dict[str, int], name: str) -> Any:
        calls[name] = 0

        @functools.wraps(function, updated=())
        def counted(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            self._settings(args)
            phases = self.record.phases
            if phases is None or not name.lower().startswith(_DRAWS):
                return function(*args, **kwargs)
            phases.drawing()
            drawn = function(*args, **kwargs)
            phases.drawn()
            return drawn

        return counted

    def _settings(self, args: tuple[Any, ...]) -> None:
        """Degree of the harmonics and size of the image, from the settings of a rasterizer of Inria's family."""
        settings = getattr(args[0], "raster_settings", None) if args else None
        degree, state = getattr(settings, "sh_degree", None), self.record.state
        if isinstance(degree, int):
            state["sh_degree"] = max(degree, state["sh_degree"] or 0)
        size = (getattr(settings, "image_width", None), getattr(settings, "image_height", None))
        if state["resolution"] is None and all(isinstance(item, int) for item in size):
            state["resolution"] = list(size)


def _digest(file: Optional[str]) -> Optional[str]:
    if not file or not os.path.isfile(file):
        return None
    with open(file, "rb") as opened:
        return hashlib.sha256(opened.read()).hexdigest()


def _is_dropin(file: Optional[str]) -> bool:
    """By the manifest beside the code, which what splatfix compiled has too: that is the stack's own code."""
    folder = os.path.dirname(file or "")
    for manifest in glob.glob(f"{glob.escape(folder)}-*.dist-info/splatfix.json"):
        with open(manifest, encoding="utf-8") as opened:
            document = json.load(opened)
        return bool(document.get("kind") == "drop-in")
    return False


class _Training:
    """Backward passes and the parameter groups of every optimizer."""

    def __init__(self, record: Record, torch: Any) -> None:
        self.record, self.torch = record, torch
        self.optimizers: list[Any] = []
        self.updates: Any = None
        self._reached: Optional[Any] = None
        self._steps = 0
        record.phases = self.phases = Phases(
            torch, not record.state["rehearsed"] and bool(torch.cuda.is_available())
        )
        record.state["phases"] = self.phases.state
        self._rows: Optional[int] = None
        self._inside = False

    def hook(self) -> None:
        """Wrap ``Tensor.backward`` and ``Optimizer.__init__``."""
        optimizer, tensor = self.torch.optim.Optimizer, self.torch.Tensor
        begin, backward = optimizer.__init__, tensor.backward

        @functools.wraps(begin)
        def begin_seen(this: Any, *args: Any, **kwargs: Any) -> None:
            begin(this, *args, **kwargs)
            self.optimizers.append(weakref.ref(this))
            kind = type(this)
            file = getattr(sys.modules.get(kind.__module__), "__file__", None)
            made = {"file": file, "sha256": _digest(file), "steps": 0}
            name = f"{kind.__module__}.{kind.__qualname__}"
            row: dict[str, Any] = self.record.state["optimizers"].setdefault(name, made)
            # held by nothing of ours: a trainer may make another optimizer, and drop this one with its parameters
            this.register_step_pre_hook(lambda stepped, *_: self._before_step(stepped, row))
            this.register_step_post_hook(lambda *_: self._after_step(row))

        @functools.wraps(backward)
        def backward_seen(this: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside:  # torch hands a call on to its own wrapped name where a mode is active
                return backward(this, *args, **kwargs)
            self._inside = True
            self.phases.backward()
            try:
                done = backward(this, *args, **kwargs)
            finally:
                self._inside = False
            self.after(this)
            return done

        optimizer.__init__, tensor.backward = begin_seen, backward_seen

    def _before_step(self, optimizer: Any, row: dict[str, Any]) -> None:
        self.phases.stepping()
        if row["steps"] + 1 not in FOLLOWED:
            return
        try:
            from smoke_trainer.updates import UpdateCheck

            self.updates = self.updates or UpdateCheck()
            for number, group in enumerate(optimizer.param_groups):
                if not group.get("lr", 1.0):  # held on purpose, as Scaffold-GS holds its anchors
                    continue
                for parameter in group["params"][:2]:
                    self.updates.before(str(group.get("name") or f"group {number + 1}"), parameter)
        except Exception:
            self.record.not_observed()

    def _after_step(self, row: dict[str, Any]) -> None:
        self.phases.stepped()
        row["steps"] += 1
        if self.updates is not None and row["steps"] in FOLLOWED:
            self.updates.after()
            summary = self.updates.summary()
            self.record.state["updates"] = {name: vars(counts) for name, counts in summary.items()}

    def after(self, root: Any) -> None:
        """One backward pass ended: its loss, the gradients of every group, and the number of Gaussians."""
        state, rows = self.record.state, self._rows
        state["backward"] += 1
        loss: Optional[float] = None
        norms: dict[str, Any] = {}
        with self.torch.no_grad():
            if root.numel() == 1:
                loss = float(root.detach())
            if loss is not None and not math.isfinite(loss):
                loss = None
            groups: dict[str, list[Any]] = {}
            for position, optimizer in enumerate(self._alive()):
                for number, group in enumerate(optimizer.param_groups):
                    name = str(group.get("name") or f"optimizer {position + 1} group {number + 1}")
                    groups.setdefault(name, []).extend(group["params"])
            for name, params in groups.items():
                norm = self._norm(name, params)
                if norm is not None and not math.isfinite(norm):
                    norms[name] = str(norm)  # JSON has no infinity
                else:
                    norms[name] = norm
        if not state["not_tensors"]:
            state["not_tensors"] = self._not_tensors()
        state["losses"].append(loss)
        line: dict[str, Any] = {
            "iteration": state["backward"],
            "loss": loss,
            "gaussians": self._rows,
            "rss_gb": round(resident() / 2**30, 4),
            "ms": self.phases.passed(rows is not None and rows != self._rows),
            "gradients": norms,
        }
        line.update(self._gpu())
        if self._rows is not None and (not state["counts"] or state["counts"][-1][1] != self._rows):
            state["counts"].append([state["backward"], self._rows])
        self.record.line(line)

    def _gpu(self) -> dict[str, float]:
        """What is allocated on the GPU now; its peak is kept, also where the trainer resets torch's own."""
        cuda, state = self.torch.cuda, self.record.state
        if state["rehearsed"] or not cuda.is_initialized():
            return {}
        state["vram"] = max(state["vram"], int(cuda.max_memory_allocated()))
        state["gpu"] = state["gpu"] or str(cuda.get_device_name())
        return {"vram_allocated_gb": round(int(cuda.memory_allocated()) / 2**30, 4)}

    def _not_tensors(self) -> list[str]:
        """NumPy numbers in the optimizers' options, such as a learning rate that np.exp made: a checkpoint with them is no file
        of tensors alone, which is all that torch.load takes from 2.6 on."""
        kinds = set()
        for optimizer in self._alive():
            for group in optimizer.param_groups:
                for key, value in group.items():
                    if type(value).__module__ == "numpy":
                        kind = type(value).__name__
                        kinds.add(f"{key} of {group.get('name') or 'a group'}: numpy.{kind}")
        return sorted(kinds)

    def _alive(self) -> list[Any]:
        """The optimizers that the trainer still has."""
        return [item for item in (reference() for reference in self.optimizers) if item is not None]

    def _norm(self, name: str, params: list[Any]) -> Optional[float]:
        """The norm over a group's gradients; None where none of it has one. Adds it to what the group showed so far."""
        row = self.record.state["groups"].setdefault(
            name,
            {
                "steps": 0,
                "zero_steps": 0,  # those without any gradient, which none_steps are, among them
                "none_steps": 0,
                "trained": False,
                "non_finite_steps": 0,
                "max": 0.0,
                "last_step": 0,
                "shape": None,
            },
        )
        row["steps"] += 1
        row["trained"] = any(param.requires_grad for param in params)
        row["shape"] = [list(param.shape) for param in params][:4]
        if name.lstrip("_") in POSITIONS and params:
            self._reach(params[0])
        grads = [param.grad for param in params if param.grad is not None]
        if not grads:
            row["zero_steps"] += 1
            row["none_steps"] += 1
            return None
        # summed as float64 without a copy of that type, which a GPU may have no room for
        squares = 0.0
        for grad in (param_grad.detach() for param_grad in grads if param_grad.numel()):
            values = grad.coalesce().values() if grad.is_sparse else grad
            squares += float(self.torch.linalg.vector_norm(values, dtype=self.torch.float64)) ** 2
        norm = math.sqrt(squares)
        if not math.isfinite(norm):
            row["non_finite_steps"] += 1
        elif norm == 0.0:
            row["zero_steps"] += 1
        else:
            row["last_step"] = self.record.state["backward"]
            row["max"] = max(row["max"], norm)
        return norm

    def _reach(self, positions: Any) -> None:
        """Which rows had a gradient, gathered until their number changes."""
        count = int(positions.shape[0])
        if count != self._rows:
            self._rows, self._reached, self._steps = count, None, 0
        if positions.grad is None or positions.grad.is_sparse or not count:
            return
        rows = (positions.grad.detach() != 0).reshape(count, -1).any(dim=1)
        if self._reached is not None:
            rows = rows | self._reached
        self._reached = rows
        self._steps += 1
        self.record.state["reached"] = {"share": float(self._reached.float().mean()), "steps": self._steps}
