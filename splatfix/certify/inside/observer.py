"""Observes a trainer from within its own process: which extensions ran, what it learned, and how it ended.

Nothing of the trainer is edited. Hooked are imports, the functions and modules of the splatting extensions, and once torch is
there backward passes and optimizers (``training.py``). What was seen is ``observed-PID.json``: a record of the smoke trainer's
form, and beside it what was passed over. It is written every few seconds and at the end, so that a killed trainer leaves what was
seen till then.

Staged as ``sitecustomize``, which Python imports in every interpreter that inherits PYTHONPATH: what a trainer starts is observed
too. Nothing here stops a trainer: Python prints what a ``sitecustomize`` raises, and goes on.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import importlib.machinery
import importlib.util
import json
import os
import sys
import time
import traceback
from types import ModuleType
from typing import TYPE_CHECKING, Any, Optional

from smoke_trainer.record import Config, FailedImport, Implementation, TrainerError, TrainingRecord
from splatfix.certify.inside import importing, loaded

if TYPE_CHECKING:
    from splatfix.certify.inside.training import Training

_OWN = "the trainer's own"
_DRAWS = ("gaussianraster", "surfelraster", "rasteriz")
"""How the names begin of what draws a picture, in lower case."""


class Record:
    """What was seen of this process, and where it is written."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        self.configuration, self.out = configuration, configuration["out"]
        self.root = os.path.join(os.path.abspath(configuration["checkout"]), "")
        self.training: Optional[Training] = None
        """From torch's import on."""
        self.implementations: dict[str, Implementation] = {}
        """Extensions that were called."""
        self.failed_imports: list[FailedImport] = []
        self.error: Optional[TrainerError] = None
        self.sh_degree: Optional[int] = None
        self.resolution: Optional[list[int]] = None
        self.mends: list[dict[str, str]] = []
        """What the trainer was helped over: code, summary and advice of each."""
        self.weights: list[str] = []
        """Addresses of pretrained weights that could not be had, each with the reason."""
        self._pid = os.getpid()
        self._started = time.monotonic()

    def mend(self, code: str, summary: str, advice: str) -> None:
        """Add what the trainer was helped over, once."""
        row = {"code": code, "summary": summary, "advice": advice}
        if row not in self.mends:
            self.mends.append(row)

    def not_observed(self) -> None:
        """Write to ``observer.log`` what is being handled, which kept a hook from being set; the trainer goes on without."""
        with open(os.path.join(self.out, "observer.log"), "a", encoding="utf-8") as file:
            file.write(traceback.format_exc())

    def measured(self) -> TrainingRecord:
        """Return what was seen so far."""
        fields: dict[str, Any] = {"iterations": 0, "seconds": {}, "implementations": self.implementations}
        if self.training is not None:
            fields = self.training.fields()
        torch = sys.modules.get("torch")
        total = fields["seconds"]["total"] = round(time.monotonic() - self._started, 3)
        return TrainingRecord(
            config=Config(strategy=_OWN, seed=_OWN, sh_degree=self.sh_degree),
            resolution=self.resolution,
            versions={"python": sys.version.split()[0], "torch": getattr(torch, "__version__", None)},
            iterations_per_second=round(fields["iterations"] / max(total, 1e-3), 3) or None,
            failed_imports=self.failed_imports,
            error=self.error,
            **fields,
        )

    def write(self) -> None:
        """Write ``observed-PID.json``. A process that only forks off the trainer writes none."""
        if os.getpid() == self._pid:
            seen = dataclasses.asdict(self.measured())
            document = {"argv": sys.argv, "record": seen, "mends": self.mends, "weights": self.weights}
            loaded.write_whole(os.path.join(self.out, f"observed-{self._pid}.json"), document)


def start(path: str) -> None:
    """Hook what the configuration at ``path`` asks for, as soon as it is imported."""
    with open(path, encoding="utf-8") as file:
        configuration = json.load(file)
    record = Record(configuration)
    importing.watch_imports(record)

    def on_torch(_: ModuleType) -> None:
        from splatfix.certify.inside import cuda_on_cpu, training

        if configuration["cpu"]:
            cuda_on_cpu.land()
            importing.go_without(record)
        record.training = training.Training(record, rehearsed=configuration["cpu"])

    actions: dict[str, importing.Action] = {"torch": on_torch}
    actions.update({f"{name}.*": functools.partial(watch, record) for name in configuration["extensions"]})
    sys.meta_path.insert(0, importing.AfterImport(actions, record))
    ending = sys.excepthook

    def on_error(kind: Any, error: BaseException, trace: Any) -> None:
        place, function = importing.place_in(record.root, traceback.extract_tb(trace))
        record.error = TrainerError(
            type=type(error).__name__,
            message=str(error)[:2000],
            module=error.name if isinstance(error, ImportError) else None,
            place=place or None,
            function=function or None,
        )
        ending(kind, error, trace)

    sys.excepthook = on_error

    def at_end() -> None:
        if "torch" in sys.modules or record.error:
            record.write()

    atexit.register(at_end)


def watch(record: Record, module: ModuleType) -> None:
    """Count the calls of what an extension offers: its public functions, and the ``forward`` of its torch modules."""
    top, last = module.__name__.partition(".")[0], module.__name__.rpartition(".")[2]
    if last.startswith("_") and last != "_C":  # how it is made inside
        return
    torch = sys.modules.get("torch")
    file = getattr(module, "__file__", None)
    origin = "splatfix's drop-in" if loaded.is_dropin(top) else "native"
    calls: dict[str, int] = {}
    file_name, sha256 = importing.file_of(file)
    row = Implementation(name=origin, module=module.__name__, file=file_name, sha256=sha256, calls=calls)

    def counted(function: Any, name: str) -> Any:
        @functools.wraps(function, updated=())
        def count(*args: Any, **kwargs: Any) -> Any:
            record.implementations[module.__name__] = row
            calls[name] = calls.get(name, 0) + 1
            settings: Any = getattr(args[0], "raster_settings", None) if args else None
            if hasattr(settings, "image_width"):  # of Inria's family
                record.sh_degree = max(int(getattr(settings, "sh_degree", 0)), record.sh_degree or 0)
                record.resolution = [int(settings.image_width), int(settings.image_height)]
            if record.training is not None and name.lower().startswith(_DRAWS):
                record.training.phases.draw()
            return function(*args, **kwargs)

        return count

    for name, value in list(vars(module).items()):
        origin = getattr(value, "__module__", None) or module.__name__
        # compiled modules are called _C by their own functions
        if name.startswith("_") or origin.partition(".")[0] not in (top, last):
            continue
        if isinstance(value, type):
            if torch is not None and issubclass(value, torch.nn.Module) and origin == module.__name__:
                setattr(value, "forward", counted(getattr(value, "forward"), name))  # noqa: B009, B010 - any class
        elif callable(value) and not hasattr(value, "__wrapped__"):
            setattr(module, name, counted(value, name))


def run_the_next() -> None:
    """The environment's own ``sitecustomize``, which Python would have imported without ours."""
    here = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    try:
        if "SPLATFIX_INSIDE" in os.environ:
            start(os.environ["SPLATFIX_INSIDE"])
    finally:
        run_the_next()
