"""Trains the scenes of a suite with the smoke trainer, and judges each by its criteria."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from smoke_trainer.record import TrainerError, TrainingRecord
from splatfix.certify.certificate import Measured
from splatfix.certify.criteria import judge
from splatfix.certify.criteria.criterion import Training
from splatfix.certify.inside import loaded
from splatfix.certify.kernels import check_kernels
from splatfix.certify.levels import FULL, NEEDS
from splatfix.certify.loaded_files import LoadedFiles
from splatfix.certify.model import KernelCheck, Outcome, SceneRun
from splatfix.certify.prerequisites import gpu_obstacle, packages_obstacle, require_device
from splatfix.certify.progress import words
from splatfix.certify.report_folder import MAX_IMAGES, TRAINING_LOG, make_room
from splatfix.certify.smoke import child_variables, source_digests
from splatfix.certify.subject import SmokeSubject
from splatfix.core.codec import from_json
from splatfix.core.files import make_folder, object_in
from splatfix.core.limits import MOST_TEXT
from splatfix.core.reading import as_text, read_start
from splatfix.core.runner import Runner
from splatfix.core.words import few
from splatfix.model import Facts

Tell = Callable[[str, Mapping[str, Any]], None]
OF_STACKS = {
    "fused_ssim": (("--ssim", "fused-ssim"), ("inria", "gsplat")),
    "simple_knn._C": (("--knn", "simple-knn"), ("inria",)),
}
"""What a stack's trainer calls beside its rasterizer, the smoke trainer's options for it, and the renderers whose trainers do:
train.py and gaussian_model.py of Inria's, simple_trainer.py of gsplat's examples."""
REPEATED = 30
"""Iterations of the second run; none of the presets densifies before, which would carry a difference of one bit on to other
Gaussians."""


class SmokeTrainer:
    """The smoke trainer on the scenes of a suite, staged in a temporary folder."""

    def __init__(self, subject: SmokeSubject, facts: Facts, runner: Runner, folder: Path) -> None:
        self._subject, self._facts, self._runner, self._folder = subject, facts, runner, folder
        self._loaded = LoadedFiles(facts, folder / "loaded", [folder, subject.out])
        self._kernels: tuple[KernelCheck, ...] = ()
        self._sources: dict[str, str] = {}
        self._variables: dict[str, str] = {}

    def prepare(self, progress: Tell) -> None:
        """Check the environment and its kernels; a run level that only diagnoses runs nothing."""
        subject, level = self._subject, self._subject.request.level
        progress("environment", {})
        needs = NEEDS[level or FULL]
        obstacle = packages_obstacle(self._facts, subject.python, needs)
        if level == 1 and not obstacle:
            obstacle = gpu_obstacle(subject.device, self._facts)
        if obstacle:
            raise obstacle.error()
        if level != 1:
            staged = subject.stage_files(self._folder)
            self._sources = source_digests(staged)
            self._variables = {**child_variables(staged), loaded.VARIABLE: str(self._loaded.folder)}
            progress("kernels", {})
            self._kernels = check_kernels(
                self._runner, subject.python, subject.device, self._folder, self._variables
            )
            require_device(self._kernels, subject.device)
        make_room(subject.out, subject.scenes)

    def obstacle(self) -> str:
        """Return why no scene is trained: minutes of training show nothing where kernels are wrong already; "" where none is."""
        failed = [item.implementation for item in self._kernels if item.outcome is Outcome.FAILED]
        if not failed:
            return ""
        return f"not run, because {few(failed)} failed the checks of kernels"

    def save(self) -> None:
        """Do nothing: the trainer writes into the report's folder itself."""

    def measured(self, *, finished: bool) -> Measured:
        """Return kernels, the digests of what ran, and at the end what was loaded with it, for which it is all read."""
        code = None
        if finished and self._variables:
            code = self._loaded.compare()
        return Measured(kernels=self._kernels, sources=self._sources, loaded=code)

    def train(self, scene: str, tell: Tell, *, first: bool) -> SceneRun:
        """Train one scene; the first one's beginning twice, to see whether training repeats."""
        subject = self._subject
        folder = make_folder(subject.out / scene)
        position = {"scene": subject.scenes.index(scene) + 1, "scenes": len(subject.scenes)}
        latest: dict[str, Any] = {}

        def on_line(line: str) -> None:
            if line.startswith("{"):
                try:
                    state = json.loads(line)
                except ValueError:
                    return  # only looks like JSON; it is in the log
                if state.get("event") == "progress":
                    latest.update(state)
                    tell(scene, {**latest, **position})

        tell(scene, position)
        began = time.monotonic()
        done = self._runner.run(
            [*self._argv(scene), "--out", str(folder), "--json-progress"],
            timeout=subject.suite.timeout,
            env=self._variables,
            cwd=folder,
            on_line=on_line,
            log=folder / TRAINING_LOG,
        )
        seconds = round(time.monotonic() - began, 1)
        record = record_of(object_in(folder / "result.json"))
        repeated, repeat_ended = None, ""
        if first and record.status == "ok":
            tell(f"{scene}, again", position)
            again = self._folder / "again"
            command = [*self._argv(scene), "--out", str(again), "--stop-after", str(REPEATED)]
            second = self._runner.run(
                command, timeout=subject.suite.timeout, env=self._variables, cwd=again.parent
            )
            repeated = list(zip(_losses(folder), _losses(again), strict=False))
            repeat_ended = second.why()
        training = Training(
            record=record,
            done=done,
            device=subject.device,
            own_scene=subject.suite.data is not None,
            latest=words(latest, left=False),
            repeated=repeated,
            repeat_ended=repeat_ended,
        )
        images = sorted(path.relative_to(subject.out).as_posix() for path in folder.glob("renders/**/*.png"))
        return SceneRun(
            scene=scene,
            criteria=judge(training),
            seconds=seconds,
            record=record,
            images=tuple(images[:MAX_IMAGES]),
            log=f"{scene}/{TRAINING_LOG}",
            unreadable=training.unreadable,
        )

    def _argv(self, scene: str) -> list[str]:
        subject = self._subject
        arguments = [*subject.suite.trainer_arguments(scene), *subject.trainer_arguments]
        # the environment's own SSIM and kNN, where they were checked and the trainers of this rasterizer call them
        good = {item.implementation for item in self._kernels if item.outcome is Outcome.MET}
        for module, (options, renderers) in OF_STACKS.items():
            if module in good and subject.request.renderer in renderers:
                arguments += options
        return [subject.python, "-m", "smoke_trainer", *arguments]


def record_of(document: Mapping[str, Any]) -> TrainingRecord:
    """Return what a trainer wrote; one that ended without a result is empty, and one of another form has the error that it is."""
    try:
        return from_json(TrainingRecord, document)
    except ValueError as error:
        return TrainingRecord(
            error=TrainerError(message=f"result.json is not what this trainer writes: {error}")
        )


def _losses(folder: Path) -> list[float]:
    """Return the losses of the first iterations in ``metrics.jsonl``, up to one that is not a number; [] where it was not
    written."""
    lines = as_text(read_start(folder / "metrics.jsonl", MOST_TEXT)).splitlines()
    losses: list[float] = []
    for line in lines[:REPEATED]:
        try:
            loss = float(json.loads(line)["loss"])
        except (ValueError, TypeError, KeyError):
            break
        if not math.isfinite(loss):
            break
        losses.append(loss)
    return losses
