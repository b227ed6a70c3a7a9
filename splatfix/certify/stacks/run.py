"""Runs a stack's own trainer, its rendering and its metrics as children of the target environment, and judges what was observed.

On a GPU it runs as it is. Without one it is rehearsed: calls for CUDA land on the CPU, drop-ins serve its extensions.
"""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from splatfix.certify.certificate import Measured
from splatfix.certify.criteria import judge
from splatfix.certify.criteria.criterion import StackRun, Training
from splatfix.certify.criteria.stack import METRICS as OF_METRICS
from splatfix.certify.criteria.stack import RENDERING
from splatfix.certify.inside import loaded
from splatfix.certify.loaded_files import LoadedFiles
from splatfix.certify.model import Certificate, Mend, SceneRun
from splatfix.certify.phase_costs import SERIES, growth_of
from splatfix.certify.report_folder import MAX_IMAGES, TRAINING_LOG, make_room
from splatfix.certify.smoke import child_variables, stage
from splatfix.certify.smoke_training import record_of
from splatfix.certify.stacks.certificate import stack_certificate
from splatfix.certify.stacks.child import copy_scene, stage_inside, training_arguments
from splatfix.certify.stacks.observed import read_observed, result_of
from splatfix.certify.stacks.progress import following
from splatfix.certify.stacks.scene_layout import scene_problems
from splatfix.certify.stacks.subject import METRICS, RENDER, StackSubject, Started
from splatfix.core.errors import SplatfixError
from splatfix.core.files import make_folder, object_in, write_json
from splatfix.core.proof import Rung
from splatfix.core.runner import Completed, Runner
from splatfix.core.step import say
from splatfix.core.words import few
from splatfix.facts.checkout import read_arguments
from splatfix.model import Facts, Finding

Tell = Callable[[str, Mapping[str, Any]], None]

PICKLES = "torch-load-pickles"
"""Of the finding of a file of pickled objects that torch refuses."""
TIMEOUT, GPU_TIMEOUT = 3600.0, 4 * 3600.0
_COMPARING_TIMEOUT = 600.0
_KEPT = {SERIES: SERIES, "inside.txt": "observer.log"}
"""What the observer writes, and what it is called in the report."""


class StackTrainer:
    """A stack's own trainer on its scene, with what it needs in a temporary folder."""

    def __init__(self, subject: StackSubject, facts: Facts, runner: Runner, folder: Path) -> None:
        self._subject, self._facts, self._runner, self._folder = subject, facts, runner, folder
        own = [folder, subject.out, subject.checkout, subject.source]
        if subject.dropins is not None:
            own.append(subject.dropins)
        self._loaded = LoadedFiles(facts, folder / "loaded", own)
        self._scene = subject.scene.folder.name
        self._report = subject.out / self._scene
        self._model = folder / "model"
        self._arguments: list[str] = []
        self._started = Started()
        self._script_errors: dict[str, Any] = {}
        """The exceptions that ended render.py or metrics.py, as the observer describes them."""
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
            script = subject.checkout / subject.script
            raise SplatfixError.of("certify.no-length", script=script, checkout=subject.checkout)
        # a trainer may write into its scene, as Inria's does with points3D.ply
        copy = copy_scene(subject.scene.folder, self._folder / self._scene)
        self._arguments = training_arguments(subject, options, copy, self._model)
        names = {str(copy): "SCENE", str(self._model): "MODEL"}
        self._started = Started(tuple(names.get(word, word) for word in self._arguments))
        make_room(subject.out, subject.scenes)
        make_folder(self._report)

    def train(self, scene: str, tell: Tell, *, first: bool) -> SceneRun:
        """Train, render, measure."""
        began = time.monotonic()
        subject = self._subject
        problems = scene_problems(subject.source, subject.scene.folder, subject.scene.images)
        done, observed = self._run_script(subject.script, self._arguments, "trainer.log", tell)
        scripts: dict[str, Completed] = {}
        if done.ok and (subject.source / RENDER).is_file():
            scripts[RENDERING] = self._render(tell)
        rendered = RENDERING not in scripts or scripts[RENDERING].ok
        if done.ok and rendered and (subject.source / METRICS).is_file():
            scripts[OF_METRICS], _ = self._run_script(METRICS, ["-m", str(self._model)], "metrics.log", tell)
        quality, saves = self._compare(tell)
        result = result_of(observed, done, subject.iterations, quality, saves)
        result["script_errors"] = self._script_errors
        if growth := growth_of(self._report / SERIES):
            per_1000, start, end = growth
            result["memory"]["growth"] = {"per_1000": per_1000 * (1 << 30), "start": start, "end": end}
        write_json(self._report / "result.json", result)
        result["notes"] = self._reservations(observed)
        record = record_of(result)
        run = StackRun(
            extensions=subject.extensions,
            mends=(*subject.gaps.mends, *self._started.mends),
            scripts=scripts,
            scene_problems=problems,
        )
        criteria = judge(Training(record=record, done=done, device=subject.device, stack=run))
        pictures = sorted(self._report.glob("renders/**/*.png"))[:MAX_IMAGES]
        images = tuple(path.relative_to(subject.out).as_posix() for path in pictures)
        seconds = round(time.monotonic() - began, 1)
        return SceneRun(scene, criteria, seconds, record, images, f"{scene}/{TRAINING_LOG}")

    def _reservations(self, observed: Mapping[str, Any]) -> list[str]:
        """What was passed over, and what the run did not come to."""
        notes = list(self._subject.assumed)
        if self._started.weights:
            lost = "; ".join(self._started.weights)
            notes.append(f"pretrained weights could not be loaded, random ones took their place: {lost}")
        if self._subject.resumes and (kinds := observed.get("not_tensors")):
            notes.append(
                "no checkpoint was loaded, and one with this trainer's optimizer would be refused by "
                f"{few(list(self._subject.resumes))}: torch.load has no weights_only there, and the optimizer holds "
                f"{few(list(kinds), most=2)}"
            )
        if observed.get("declared_operators"):
            notes.append(
                "torchvision's compiled part does not load beside this torch (operator torchvision::nms does not exist); "
                "its operators were declared so that it imports, and none was run"
            )
        return notes

    def obstacle(self) -> str:
        """Nothing: its kernels are checked by nothing but its training."""
        return ""

    def save(self) -> None:
        """Put what the observer of train.py has written so far into the report."""
        if self._observed is None:
            return
        for name, copy in _KEPT.items():
            if (self._observed / name).is_file():
                shutil.copyfile(self._observed / name, self._report / copy)

    def measured(self, *, finished: bool) -> Measured:
        """How the training was started, what was passed over, and at the end what was loaded."""
        return Measured(loaded=self._loaded.compare() if finished else None)

    def certificate(self, measured: Measured, findings: Sequence[Finding], built: Rung | None) -> Certificate:
        """Return the certificate of what was measured."""
        return stack_certificate(self._subject, self._facts, measured, self._started, findings, built)

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
        self._note(script, observed)
        if not done.ok and script != subject.script and observed.get("error"):
            self._script_errors[RENDERING if script == RENDER else OF_METRICS] = observed["error"]
        return done, observed

    def _note(self, script: str, observed: Mapping[str, Any]) -> None:
        """Keep what stopped a script and was passed over, each once."""
        weights = dict.fromkeys(self._started.weights)
        for text in observed.get("weights", ()):
            weights[f"{script}: {text}"] = None
        mends = dict.fromkeys(self._started.mends)
        for row in observed.get("refused_loads", ()):
            if row["gone_on"]:
                summary = f"{row['place'] or script} loads {row['file']}, which torch refuses without weights_only=False."
                advice = (
                    "Give weights_only=False to that torch.load, if nobody else's files are loaded there."
                )
                mends[Mend(PICKLES, summary, (say(advice),))] = None
        for row in observed.get("unloadable", ()):
            library = str(row["words"]).partition(": ")[2].partition(":")[0]
            advice = f"Install the package of the system that brings {library} (apt-file search {library} names it)."
            mends[Mend("library-missing", f"{row['words']}: no such file.", (say(advice),))] = None
        self._started = replace(self._started, weights=tuple(weights), mends=tuple(mends))

    def _render(self, tell: Tell) -> Completed:
        """The test views after the first iteration and the last, the training views after the last."""
        options = read_arguments(self._subject.source, RENDER)
        arguments = ["-m", str(self._model)]
        if "iteration" not in options:
            done, _ = self._run_script(RENDER, arguments, "render.log", tell)
            return done
        if self._cloud(1):
            skip = [options[name] for name in ("skip_train", "skip_mesh") if name in options]
            first, _ = self._run_script(
                RENDER, [*arguments, "--iteration", "1", *skip], "render-first.log", tell
            )
            if not first.ok:
                return first
        last = ["--iteration", str(self._subject.iterations)]
        done, _ = self._run_script(RENDER, [*arguments, *last], "render.log", tell)
        return done

    def _cloud(self, iteration: int) -> Path | None:
        """The point cloud that was saved at an iteration."""
        return min(self._model.glob(f"point_cloud/iteration_{iteration}/*.ply"), default=None)

    def _compare(self, tell: Tell) -> tuple[dict[str, dict[str, Any]], dict[int, dict[str, Any]]]:
        """Our own metric of the renderings by their names in a result, and what the point clouds hold by iteration."""
        last = self._subject.iterations
        images: dict[str, dict[str, Any]] = {}
        for name, views, iteration in (
            ("initial_heldout", "test", 1),
            ("heldout", "test", last),
            ("training_views", "train", last),
        ):
            if pair := rendered_pair(self._model, views, iteration):
                renders, gt = map(str, pair)
                images[name] = {"renders": renders, "gt": gt, "previews": None}
        if "heldout" in images:
            images["heldout"]["previews"] = str(self._report / "renders" / "heldout")
        clouds = {str(iteration): str(path) for iteration in (1, last) if (path := self._cloud(iteration))}
        if not images and not clouds:
            return {}, {}
        tell(f"{self._scene}: comparing", {})
        staged = stage(make_folder(self._folder / "compare"))
        script = staged / "compare_renders.py"
        shutil.copyfile(Path(__file__).with_name(script.name), script)
        request, answer = self._folder / "questions.json", self._folder / "answers.json"
        write_json(request, {"images": images, "clouds": clouds})
        done = self._runner.run(
            [self._subject.python, str(script), str(request), str(answer)],
            timeout=_COMPARING_TIMEOUT,
            env=child_variables(staged),
        )
        answers = {name: {"error": done.why()} for name in (*images, *clouds)}
        if done.ok:
            answers = object_in(answer)
        quality = {name: answers[name] for name in images}
        return quality, {int(iteration): answers[iteration] for iteration in clouds}


def rendered_pair(model: Path, views: str, iteration: int) -> tuple[Path, Path] | None:
    """The folders of renderings and ground truth of an iteration: ``test/ours_7000/renders`` and ``gt`` in Inria's family,
    ``test_preds_1`` and ``gt_1`` in Mip-Splatting's."""
    for folder in sorted(model.glob(f"{views}/*_{iteration}")):
        images = {
            path: {image.name for image in path.glob("*.png")}
            for path in sorted(folder.iterdir())
            if path.is_dir()
        }
        gt = next((path for path in images if images[path] and path.name.startswith("gt")), None)
        if gt is None:
            continue
        for path, names in images.items():
            if names == images[gt] and ("render" in path.name or "pred" in path.name):
                return path, gt
    return None
