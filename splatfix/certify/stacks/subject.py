"""A stack's own trainer, as it was prepared for one machine, and how it runs: its training, its rendering and its metrics, as
children of the target environment.

On a GPU it runs as it is. Without one it is rehearsed: calls for CUDA land on the CPU, drop-ins serve its extensions.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from msgspec import field

from smoke_trainer.record import TrainingRecord
from splatfix.certify.criteria.criterion import Training
from splatfix.certify.criteria.running import METRICS, RENDER
from splatfix.certify.inside import loaded
from splatfix.certify.model import Mend, SceneRun, TestedStack
from splatfix.certify.report_folder import make_room
from splatfix.certify.scenes import Suite, copy_scene, export_sample
from splatfix.certify.staging import child_variables, stage_inside
from splatfix.certify.subject import Progress, Subject
from splatfix.core.codec import from_json
from splatfix.core.errors import SplatfixError
from splatfix.core.files import make_folder, object_in, write_json
from splatfix.core.limits import MOST_TEXT
from splatfix.core.reading import as_text, read_start
from splatfix.core.runner import Completed, Runner
from splatfix.core.step import Command, say, target_options, value_options
from splatfix.facts.checkout import read_arguments
from splatfix.knowledge.schedules import short_schedule, words_for
from splatfix.model import Checkout, Facts
from splatfix.model.option import Replacement

SAMPLE = "fruit"
"""The bundled scene that is used without another: COLMAP's layout, a pinhole camera, 24 small views."""
RESOLUTION = 128
"""Pixels of width of a rehearsal on a scene of the user's."""
TIMEOUT, GPU_TIMEOUT = 3600.0, 4 * 3600.0
_COMPARING_TIMEOUT = 600.0
_LOOKS_EVERY = 2.0
"""Seconds between two looks at how far the training is, as often as the observer writes it."""


class StackSubject(Subject, kw_only=True):
    """A checkout, what stands in for its extensions, and the scene it trains."""

    checkout: Checkout
    """As far as the script reaches it."""
    source: Path
    """What is run: the checkout, or a scratch copy that was mended."""
    work: Path
    """Where it is run: a copy of the checkout, for what it opens there by relative paths and may write."""
    name: str
    key: str
    """Of the stack in the tables; "" where it is none of them."""
    script: str
    """The trainer, a file below the checkout."""
    scene: Path = Path()
    """A copy."""
    iterations: int
    mends: tuple[Mend, ...] = ()
    """What stops the trainer before its first step, and what else did and was passed over."""
    placeholders: tuple[str, ...] = ()
    """Missing modules that may be imported, though not used."""
    standins: tuple[str, ...] = ()
    """Missing compiled packages that a stand-in of splatfix's takes the place of."""
    replacement: Replacement
    """The drop-ins for its extensions, and what of these has none."""
    dropins: Path | None = None
    """A folder with them, to be searched first; None on a GPU."""
    needed: tuple[str, ...] = ()
    """Modules of others that the checkout imports and cannot do without."""
    threads: str = ""
    """CPU threads of the trainer; "" on a GPU, where it takes as many as it likes."""
    arguments: tuple[str, ...] = ()
    """What follows the script."""
    weights: tuple[str, ...] = ()
    """Pretrained weights that could not be had, with the reason."""
    scripts: dict[str, Completed] = field(default_factory=dict)
    """How each that was run ended."""

    @property
    def rehearsed(self) -> bool:
        """It runs on the CPU, which reaches the rung of that name."""
        return self.device == "cpu"

    @property
    def folder(self) -> Path:
        """The checkout's."""
        return Path(self.checkout.folder)

    @property
    def scenes(self) -> tuple[str, ...]:
        """The name of the scene."""
        return (self.scene.name,)

    @property
    def suite(self) -> Suite:
        """Its scene, as the smoke trainer's subjects have several."""
        return Suite(self.scene.name, self.scenes)

    @property
    def title(self) -> str:
        """What is certified, in words."""
        return f"{'A rehearsal of ' if self.rehearsed else ''}{self.name}'s own trainer"

    @property
    def renderer(self) -> str:
        """What it draws with."""
        return ", ".join(self.extensions) or "its own"

    @property
    def command(self) -> Command:
        """The command line that asks for the same."""
        request = self.request
        options: dict[str, object] = {
            "--repo": request.checkout,
            "--python": self.python,
            "--device": self.device,
        }
        options |= {
            "--scene": request.scene,
            "--script": request.script or None,
            "--face": request.face or None,
        }
        options |= {"--iterations": request.iterations, "--resolution": request.resolution}
        arguments = [*value_options(options), *target_options(request.targets)]
        if request.train_arguments:
            arguments += ["--", *request.train_arguments]
        return Command(("splatfix", "certify", *arguments))

    @property
    def model(self) -> Path:
        """The folder that the trainer writes to."""
        return self.scratch / "model"

    @property
    def report(self) -> Path:
        """The scene's folder in the report."""
        return self.out / self.scene.name

    @property
    def tested(self) -> TestedStack:
        """The trainer as a certificate names it, its training without the temporary folder."""
        names = {str(self.scene): "SCENE", str(self.model): "MODEL"}
        shown = (names.get(word, word) for word in self.arguments)
        return TestedStack(
            name=self.name,
            folder=self.checkout.folder,
            remote=self.checkout.remote,
            commit=self.checkout.commit or "",
            command=Command((self.python, str(self.folder / self.script), *shown)),
            rehearsed=self.rehearsed,
            dropins=(*self.replacement.names, *self.standins) if self.rehearsed else (),
            mends=self.mends,
            weights=self.weights,
        )

    @property
    def valid_for(self) -> Mapping[str, str]:
        """What the certificate is valid for besides versions and hardware."""
        stack = self.tested
        parts = {
            "stack": ", ".join(filter(None, (stack.name, stack.remote, stack.commit))),
            "training": stack.command.shell(windows=False),
            "drop-ins": ", ".join(stack.dropins),
            "threads": self.threads,
        }
        return {name: text for name, text in parts.items() if text}

    def prepare(self, facts: Facts, runner: Runner, scratch: Path, progress: Progress) -> None:
        """Copy the scene, and word the training: scene, where to write, the short schedule as far as the trainer has the options
        (by name, as they are typed), and the user's own arguments, which win.

        Raises:
            SplatfixError: ``not-our-folder`` (exit code 2), ``no-length`` (3), ``cannot-write``.
        """
        options = read_arguments(self.source, self.script)
        if "iterations" not in options and not self.request.train_arguments:
            script = self.folder / self.script
            raise SplatfixError.of("certify.no-length", script=script, checkout=self.folder)
        self.runner, self.scratch = runner, scratch
        self.loaded = make_folder(scratch / "loaded")
        self.own = (scratch, self.out, self.folder, self.source)
        if self.dropins is not None:
            self.own += (self.dropins,)
        self.memory_limit = facts.machine.resources.memory_total
        resolution, images = self.request.resolution, ""
        if self.request.scene is None:
            self.scene, resolution = export_sample(SAMPLE, scratch), resolution or 1
        else:
            scene = Path(self.request.scene).absolute()
            self.scene = copy_scene(scene, scratch / scene.name)
            if not (scene / "images").is_dir():
                images = max((path.name for path in scene.glob("images_*") if path.is_dir()), default="")
            if self.rehearsed:
                resolution = resolution or RESOLUTION
        arguments = ["--source_path", str(self.scene), "--model_path", str(self.model)]
        for name, setting in short_schedule().items():
            if name in options:
                arguments += [options[name], *setting.words(self.iterations)]
        if resolution is not None and "resolution" in options:
            arguments += [options["resolution"], str(resolution)]
        if images and "images" in options:
            arguments += [options["images"], images]
        if "port" in options:  # any that is free: Inria's family opens it for a viewer
            arguments += [options["port"], "0"]
        self.arguments = (*arguments, *words_for(self.key), *self.request.train_arguments)
        make_room(self.out, self.scenes)
        settings = {
            "out": str(make_folder(self.report)),
            "checkout": str(self.source),
            "cpu": self.rehearsed,
            "extensions": self.extensions,
            "placeholders": self.placeholders,
            "standins": self.standins,
            # on a GPU no module is passed over that lacks a library
            "needed": self.needed if self.rehearsed else (),
            "written": [str(self.model), str(self.work)],
        }
        self.variables = {
            **stage_inside(make_folder(scratch / "inside"), settings, self.dropins),
            loaded.VARIABLE: str(self.loaded),
        }
        if self.threads:
            self.variables["OMP_NUM_THREADS"] = self.threads

    def run(self, scene: str, progress: Progress) -> SceneRun:
        """Train, render, measure, and judge."""
        observed = self._run_script(self.script, self.arguments, "trainer.log", progress)
        done = self.scripts[self.script]
        if done.ok and (self.source / RENDER).is_file():
            self._render(progress)
        rendered = RENDER not in self.scripts or self.scripts[RENDER].ok
        if done.ok and rendered and (self.source / METRICS).is_file():
            self._run_script(METRICS, ("-m", str(self.model)), "metrics.log", progress)
        record = self._record(observed, done, self._compare(progress))
        write_json(self.report / "result.json", asdict(record))
        training = Training(
            record=record,
            done=done,
            device=self.device,
            stack=True,
            extensions=self.extensions,
            mends=self.mends,
            scripts=self.scripts,
        )
        return self.judged(scene, training)

    def _run_script(
        self, script: str, arguments: tuple[str, ...], log: str, progress: Progress
    ) -> dict[str, Any]:
        """Run one script of the checkout to its end, and return what was observed."""
        where = f"{self.scene.name}: {script}"
        progress(where, {})
        looked = time.monotonic()

        def on_line(_: str) -> None:
            nonlocal looked
            if time.monotonic() - looked >= _LOOKS_EVERY:
                looked = time.monotonic()
                progress(where, latest(read_observed(self.report, script), self.iterations))

        self.scripts[script] = self.runner.run(
            [self.python, str(self.source / script), *arguments],
            timeout=TIMEOUT if self.rehearsed else GPU_TIMEOUT,
            env=self.variables,
            cwd=self.work,
            on_line=on_line,
            log=self.report / log,
        )
        observed = read_observed(self.report, script)
        progress(where, latest(observed, self.iterations))
        # what stopped it and was passed over, each once
        weights = [f"{script}: {text}" for text in observed.get("weights", ())]
        rows = observed.get("mends", ())
        mends = [Mend(row["code"], row["summary"], (say(row["advice"]),)) for row in rows]
        self.weights = tuple(dict.fromkeys((*self.weights, *weights)))
        self.mends = tuple(dict.fromkeys((*self.mends, *mends)))
        return observed

    def _render(self, progress: Progress) -> None:
        """Render the test views after the first iteration and the last, the training views after the last."""
        options = read_arguments(self.source, RENDER)
        arguments: tuple[str, ...] = ("-m", str(self.model))
        if "iteration" in options:
            if any(self.model.glob("point_cloud/iteration_1/*.ply")):
                skip = [options[name] for name in ("skip_train", "skip_mesh") if name in options]
                first = (*arguments, "--iteration", "1", *skip)
                self._run_script(RENDER, first, "render-first.log", progress)
                if not self.scripts[RENDER].ok:
                    return
            arguments += ("--iteration", str(self.iterations))
        self._run_script(RENDER, arguments, "render.log", progress)

    def _compare(self, progress: Progress) -> Mapping[str, Any]:
        """Our own metric of the renderings, and what the point clouds hold, by the names of a record."""
        if not self.model.is_dir():
            return {}
        progress(f"{self.scene.name}: comparing", {})
        staged = self.scratch / "inside"
        script = staged / "splatfix" / "certify" / "compare_renders.py"
        answer, last = self.scratch / "compared.json", str(self.iterations)
        done = self.runner.run(
            [self.python, str(script), str(self.model), last, str(self.report), str(answer)],
            timeout=_COMPARING_TIMEOUT,
            env=child_variables(staged),
        )
        return object_in(answer) if done.ok else {"saves": {last: {"error": done.why()}}}

    def _record(
        self, observed: Mapping[str, Any], done: Completed, compared: Mapping[str, Any]
    ) -> TrainingRecord:
        """What was observed of the training, what was compared of what it left, and the reservations."""
        notes = []
        # what of a drop-in's face could not be read, and is taken for the usual
        for item in self.replacement.dropins:
            if self.rehearsed and item.declared and item.declared.assumed:
                notes.append(f"{item.module}: {item.declared.assumed}")
        if self.weights:
            lost = "; ".join(self.weights)
            notes.append(f"pretrained weights could not be loaded, random ones took their place: {lost}")
        seen = {"iterations": 0, "seconds": {"total": done.seconds}, **observed.get("record", {})}
        seen |= {**compared, "status": "ok" if done.ok else "failed", "notes": notes}
        seen["config"] = {**seen.get("config", {}), "iterations": self.iterations}
        seen["observer"] = {"started": "record" in observed, "trouble": observed["trouble"]}
        return from_json(TrainingRecord, seen)


def read_observed(folder: Path, script: str) -> dict[str, Any]:
    """Return what the observer wrote of the process that ran ``script``: ``record`` and what was passed over, none of it where
    nothing was written that can be read.

    A trainer may start others: of several records the one with the most backward passes counts. ``trouble`` are the tracebacks
    of hooks that could not be set, in any of them; "" where all were.
    """
    most: dict[str, Any] = {}
    for path in sorted(folder.glob("observed-*.json")):
        document = object_in(path)  # empty where the child was killed while it wrote it; the others count
        ran = (document.get("argv") or [""])[0]
        iterations = document.get("record", {}).get("iterations", 0)
        if Path(ran).name == Path(script).name and iterations >= most.get("record", {}).get("iterations", 0):
            most = document
    return {**most, "trouble": as_text(read_start(folder / "observer.log", MOST_TEXT))}


def latest(observed: Mapping[str, Any], iterations: int) -> dict[str, Any]:
    """Return the progress object of what the observer has seen so far; {} before the first iteration."""
    record = observed.get("record", {})
    if not record.get("iterations"):
        return {}
    state = {"iteration": record["iterations"], "iterations": iterations}
    state |= {"loss": record["train_loss"]["last"], "gaussians": record["gaussians"]["final"]}
    return {**state, "iterations_per_second": record["iterations"] / max(record["seconds"]["train"], 1e-3)}
