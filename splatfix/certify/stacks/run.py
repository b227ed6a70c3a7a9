"""Runs a stack's own trainer, its rendering and its metrics as children of the target environment, and judges what was observed.

On a GPU it runs as it is. Without one it is rehearsed: calls for CUDA land on the CPU, drop-ins serve its extensions.
"""

import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from smoke_trainer.record import MemoryGrowth, Observer, TrainerError, TrainingRecord
from splatfix.certify.certificate import Measured
from splatfix.certify.criteria import judge
from splatfix.certify.criteria.criterion import Training
from splatfix.certify.criteria.running import METRICS as OF_METRICS
from splatfix.certify.criteria.running import RENDERING
from splatfix.certify.inside import loaded
from splatfix.certify.loaded_files import LoadedFiles
from splatfix.certify.model import Mend, SceneRun, TestedStack
from splatfix.certify.phase_costs import GIB, SERIES, growth_of
from splatfix.certify.report_folder import MAX_IMAGES, TRAINING_LOG, make_room
from splatfix.certify.smoke import child_variables, stage
from splatfix.certify.smoke_training import record_of
from splatfix.certify.stacks.child import copy_scene, stage_inside, training_arguments
from splatfix.certify.stacks.progress import following
from splatfix.certify.stacks.subject import METRICS, PICKLES, RENDER, StackSubject
from splatfix.core.codec import from_json
from splatfix.core.errors import SplatfixError
from splatfix.core.files import make_folder, object_in, write_json
from splatfix.core.limits import MOST_TEXT
from splatfix.core.reading import as_text, read_start
from splatfix.core.runner import Completed, Runner
from splatfix.core.step import Command, say
from splatfix.core.words import few
from splatfix.facts.checkout import read_arguments
from splatfix.model import Facts

Tell = Callable[[str, Mapping[str, Any]], None]

TIMEOUT, GPU_TIMEOUT = 3600.0, 4 * 3600.0
_COMPARING_TIMEOUT = 600.0
_KEPT = {SERIES: SERIES, "inside.txt": "observer.log"}
"""What the observer writes, and what it is called in the report."""
_NAMES = {RENDER: RENDERING, METRICS: OF_METRICS}
"""Of the scripts after the training, in criteria and errors."""


class StackTrainer:
    """A stack's own trainer on its scene, with what it needs in a temporary folder."""

    def __init__(self, subject: StackSubject, facts: Facts, runner: Runner, folder: Path) -> None:
        self._subject, self._facts, self._runner, self._folder = subject, facts, runner, folder
        own = [folder, subject.out, subject.folder, subject.source]
        if subject.dropins is not None:
            own.append(subject.dropins)
        self._loaded = LoadedFiles(facts, folder / "loaded", own)
        self._scene = subject.scene.name
        self._report = subject.out / self._scene
        self._model = folder / "model"
        self._arguments: list[str] = []
        self._shown: list[str] = []
        """The arguments, without the temporary folder."""
        self._weights: dict[str, None] = {}
        self._mends: dict[Mend, None] = {}
        self._scripts: dict[str, Completed] = {}
        """How render.py and metrics.py ended, by their names in criteria."""
        self._script_errors: dict[str, TrainerError] = {}
        """The exceptions that ended them, as the observer describes them."""
        self._observed: Path | None = None
        """Where train.py's observer writes."""

    def prepare(self, progress: Tell) -> None:
        """Copy the scene, and word the training.

        Raises:
            SplatfixError: ``no-trainer`` or ``not-our-folder`` (exit code 2), ``no-length`` (3), ``cannot-write``.
        """
        subject = self._subject
        options = read_arguments(subject.source, subject.script)
        if "iterations" not in options and not subject.request.train_arguments:
            script = subject.folder / subject.script
            raise SplatfixError.of("certify.no-length", script=script, checkout=subject.folder)
        copy = copy_scene(subject.scene, self._folder / self._scene)
        self._arguments = training_arguments(subject, options, copy, self._model)
        names = {str(copy): "SCENE", str(self._model): "MODEL"}
        self._shown = [names.get(word, word) for word in self._arguments]
        make_room(subject.out, subject.scenes)
        make_folder(self._report)

    def train(self, scene: str, tell: Tell, *, first: bool) -> SceneRun:
        """Train, render, measure, and judge."""
        began = time.monotonic()
        subject = self._subject
        done, observed = self._run_script(subject.script, self._arguments, "trainer.log", tell)
        if done.ok and (subject.source / RENDER).is_file():
            self._render(tell)
        rendered = RENDERING not in self._scripts or self._scripts[RENDERING].ok
        if done.ok and rendered and (subject.source / METRICS).is_file():
            self._run_script(METRICS, ["-m", str(self._model)], "metrics.log", tell)
        record = self._record(observed, done, self._compare(tell))
        write_json(self._report / "result.json", asdict(record))
        training = Training(
            record=record,
            done=done,
            device=subject.device,
            stack=True,
            extensions=subject.extensions,
            mends=(*subject.mends, *self._mends),
            scripts=self._scripts,
        )
        criteria = judge(training)
        pictures = sorted(self._report.glob("renders/**/*.png"))[:MAX_IMAGES]
        images = tuple(path.relative_to(subject.out).as_posix() for path in pictures)
        seconds = round(time.monotonic() - began, 1)
        return SceneRun(scene, criteria, seconds, record, images, f"{scene}/{TRAINING_LOG}")

    def _record(
        self, observed: Mapping[str, Any], done: Completed, compared: Mapping[str, Any]
    ) -> TrainingRecord:
        """What was observed of the training, what was compared of what it left, and the reservations."""
        seen = {"iterations": 0, "seconds": {"total": done.seconds}, **observed.get("record", {})}
        record = record_of({**seen, **compared})
        memory, growth = record.memory, growth_of(self._report / SERIES)
        if growth:
            per_1000, start, end = growth
            memory = replace(memory, growth=MemoryGrowth(per_1000 * GIB, start, end))
        notes = []
        # what of a drop-in's face could not be read, and is taken for the usual
        for item in self._subject.replacement.dropins:
            if self._subject.rehearsed and item.declared and item.declared.assumed:
                notes.append(f"{item.module}: {item.declared.assumed}")
        if self._weights:
            lost = "; ".join(self._weights)
            notes.append(f"pretrained weights could not be loaded, random ones took their place: {lost}")
        if self._subject.resumes and observed.get("not_tensors"):
            notes.append(
                "no checkpoint was loaded, and one with this trainer's optimizer would be refused by "
                f"{few(list(self._subject.resumes))}: torch.load has no weights_only there, and the optimizer holds "
                f"{few(observed['not_tensors'], most=2)}"
            )
        if observed.get("declared_operators"):
            notes.append(
                "torchvision's compiled part does not load beside this torch (operator torchvision::nms does not exist); "
                "its operators were declared so that it imports, and none was run"
            )
        return replace(
            record,
            status="ok" if done.ok else "failed",
            config=replace(record.config, iterations=self._subject.iterations),
            memory=memory,
            notes=notes,
            script_errors=self._script_errors,
            observer=Observer("record" in observed, observed["trouble"]),
        )

    def obstacle(self) -> str:
        """Return nothing: its kernels are checked by nothing but its training."""
        return ""

    def save(self) -> None:
        """Put what the observer of train.py has written so far into the report."""
        for name, copy in _KEPT.items():
            if self._observed is not None and (self._observed / name).is_file():
                shutil.copyfile(self._observed / name, self._report / copy)

    def measured(self, *, finished: bool) -> Measured:
        """Return the trainer, what it depended on, and at the end what was loaded."""
        subject = self._subject
        stack = TestedStack(
            name=subject.name,
            folder=subject.checkout.folder,
            remote=subject.checkout.remote,
            commit=subject.checkout.commit or "",
            command=Command((subject.python, str(subject.folder / subject.script), *self._shown)),
            rehearsed=subject.rehearsed,
            dropins=subject.dropin_names,
            mends=(*subject.mends, *self._mends),
            weights=tuple(self._weights),
        )
        environment = {
            "stack": ", ".join(filter(None, (stack.name, stack.remote, stack.commit))),
            "training": stack.command.shell(windows=False),
            "drop-ins": ", ".join(stack.dropins),
            "threads": f"{subject.threads} ({subject.threads_because})" if subject.threads else "",
        }
        return Measured(
            loaded=self._loaded.compare() if finished else None,
            stack=stack,
            environment={name: text for name, text in environment.items() if text},
        )

    def _run_script(
        self, script: str, arguments: list[str], log: str, tell: Tell
    ) -> tuple[Completed, dict[str, Any]]:
        """Run one script of the checkout to its end; how it ended, and what was observed."""
        subject = self._subject
        where = f"{self._scene}: {script}"
        tell(where, {})
        folder = make_folder(self._folder / f"observed-{Path(script).stem}-{log}")
        inside = make_folder(self._folder / "inside")
        variables = stage_inside(inside, subject, folder, (self._model, subject.work))
        variables[loaded.VARIABLE] = str(self._loaded.folder)
        with ExitStack() as stack:
            if script == subject.script:
                self._observed = folder
                lines = folder / SERIES
                stack.enter_context(following(lines, subject.iterations, lambda state: tell(where, state)))
            done = self._runner.run(
                [subject.python, str(subject.source / script), *arguments],
                timeout=TIMEOUT if subject.rehearsed else GPU_TIMEOUT,
                env=variables,
                cwd=subject.work,
                on_line=lambda line: None,
                log=self._report / log,
            )
        self.save()
        observed = read_observed(folder, script)
        if script != subject.script:
            self._scripts[_NAMES[script]] = done
            if not done.ok and (error := observed.get("record", {}).get("error")):
                self._script_errors[_NAMES[script]] = from_json(TrainerError, error)
        self._note(script, observed)
        return done, observed

    def _note(self, script: str, observed: Mapping[str, Any]) -> None:
        """Keep what stopped a script and was passed over, each once."""
        for text in observed.get("weights", ()):
            self._weights[f"{script}: {text}"] = None
        for row in observed.get("refused_loads", ()):
            summary = f"{row['place'] or script} loads {row['file']}, which torch refuses without weights_only=False."
            advice = "Give weights_only=False to that torch.load, if nobody else's files are loaded there."
            self._mends[Mend(PICKLES, summary, (say(advice),))] = None
        for text in observed.get("unloadable", ()):
            library = text.partition(": ")[2].partition(":")[0]
            advice = f"Install the package of the system that brings {library} (apt-file search {library} names it)."
            self._mends[Mend("library-missing", f"{text}: no such file.", (say(advice),))] = None

    def _render(self, tell: Tell) -> None:
        """Render the test views after the first iteration and the last, the training views after the last."""
        options = read_arguments(self._subject.source, RENDER)
        arguments = ["-m", str(self._model)]
        if "iteration" in options and any(self._model.glob("point_cloud/iteration_1/*.ply")):
            skip = [options[name] for name in ("skip_train", "skip_mesh") if name in options]
            first = [*arguments, "--iteration", "1", *skip]
            done, _ = self._run_script(RENDER, first, "render-first.log", tell)
            if not done.ok:
                return
        if "iteration" in options:
            arguments += ["--iteration", str(self._subject.iterations)]
        self._run_script(RENDER, arguments, "render.log", tell)

    def _compare(self, tell: Tell) -> Mapping[str, Any]:
        """Our own metric of the renderings, and what the point clouds hold, by the names of a record."""
        left = (*self._model.glob("point_cloud/iteration_*/*.ply"), *self._model.glob("*/*_*/*/*.png"))
        if not left:
            return {}
        tell(f"{self._scene}: comparing", {})
        staged = stage(make_folder(self._folder / "compare"))
        script = staged / "compare_renders.py"
        shutil.copyfile(Path(__file__).with_name(script.name), script)
        answer, last = self._folder / "compared.json", str(self._subject.iterations)
        done = self._runner.run(
            [self._subject.python, str(script), str(self._model), last, str(self._report), str(answer)],
            timeout=_COMPARING_TIMEOUT,
            env=child_variables(staged),
        )
        return object_in(answer) if done.ok else {"saves": {last: {"error": done.why()}}}


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
    return {**most, "trouble": as_text(read_start(folder / "inside.txt", MOST_TEXT))}
