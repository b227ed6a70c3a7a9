"""Trains the scenes of a suite with the smoke trainer, and judges each by its criteria."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from splatfix.certify import criteria, run_levels
from splatfix.certify.advice import advised, explained
from splatfix.certify.certificate import Measured
from splatfix.certify.criteria.criterion import criterion
from splatfix.certify.criteria.running import no_cuda_error
from splatfix.certify.inside import loaded
from splatfix.certify.kernels import check_kernels
from splatfix.certify.loaded_files import LoadedFiles
from splatfix.certify.model import Criterion, KernelCheck, Outcome, SceneRun
from splatfix.certify.prerequisites import gpu_obstacle, packages_obstacle, require_device
from splatfix.certify.record import TrainingRecord
from splatfix.certify.report_folder import MAX_IMAGES, TRAINING_LOG, make_room
from splatfix.certify.smoke import FINISHED, child_variables, ended_early, sentences, source_digests
from splatfix.certify.subject import SmokeSubject
from splatfix.context import make_context
from splatfix.core.files import make_folder, object_in
from splatfix.core.limits import MOST_TEXT
from splatfix.core.reading import as_text, read_start
from splatfix.core.runner import Completed, Runner
from splatfix.core.words import counted, few
from splatfix.facts.machine.nvml import NvmlMeter
from splatfix.model import Facts, Gpu

Tell = Callable[[str, Mapping[str, Any]], None]
OWN_ADVICE = ("cuda-oom-runtime",)
"""Classes whose cure is an option of the smoke trainer, which other trainers do not have."""
OF_STACKS = {
    "fused_ssim": (("--ssim", "fused-ssim"), ("inria", "gsplat")),
    "simple_knn._C": (("--knn", "simple-knn"), ("inria",)),
}
"""What a stack's trainer calls beside its rasterizer, the smoke trainer's options for it, and the renderers whose trainers do:
train.py and gaussian_model.py of Inria's, simple_trainer.py of gsplat's examples."""
REPEATED = 30
"""Iterations of the second run; none of the presets densifies before, which would carry a difference of one bit on to other
Gaussians."""
CPU_TOLERANCE = 1e-6
"""Relative difference of a loss. On a CPU two runs of one seed are equal to the last digit."""
GPU_TOLERANCE = 1e-2
"""Relative difference of a loss. Atomics add in an order that changes; how far that carries in 30 iterations was not
measured on a GPU. Another seed or another order of views differs by far more."""


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
        needs = run_levels.NEEDS[level or run_levels.FULL]
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

    def train(self, scene: str, tell: Tell, *, first: bool) -> SceneRun:
        """Train one scene; the first one's beginning twice, to see whether training repeats."""
        scenes = self._subject.scenes
        position = {"scene": scenes.index(scene) + 1, "scenes": len(scenes)}

        def tell_position(where: str, state: Mapping[str, Any]) -> None:
            tell(where, {**state, **position})

        tell_position(scene, {})
        run = self._train(scene, tell_position)
        if first and run.record.status == "ok":
            tell_position(f"{scene}, again", {})
            run = replace(run, criteria=(*run.criteria, self._repeats(scene)))
        renderer, device = self._subject.request.renderer, self._subject.device
        return replace(run, criteria=tuple(advised(item, renderer, device) for item in run.criteria))

    def obstacle(self) -> str:
        """Why no scene is trained: minutes of training show nothing where kernels are wrong already. "" where none is."""
        failed = [item.implementation for item in self._kernels if item.outcome is Outcome.FAILED]
        if not failed:
            return ""
        return f"not run, because {few(failed)} failed the checks of kernels"

    def save(self) -> None:
        """Nothing: the trainer writes into the report's folder itself."""

    def measured(self, *, finished: bool) -> Measured:
        """Kernels, the digests of what ran, and at the end what was loaded with it, for which it is all read."""
        code = None
        if finished and self._variables:
            code = self._loaded.compare()
        return Measured(kernels=self._kernels, sources=self._sources, loaded=code)

    def _train(self, scene: str, tell: Tell) -> SceneRun:
        subject = self._subject
        folder = make_folder(subject.out / scene)
        latest: dict[str, Any] = {}

        def on_line(line: str) -> None:
            if line.startswith("{"):
                try:
                    state = json.loads(line)
                except ValueError:
                    return  # only looks like JSON; it is in the log
                if state.get("event") == "progress":
                    latest.update(state)
                    tell(scene, latest)

        shares = []
        gpu = make_context(self._facts).gpu_of(subject.device)
        if subject.device != "cpu":
            shares.append(busy_gpu(gpu))
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
        if subject.device != "cpu":
            shares.append(busy_gpu(gpu))
        busy = max((share for share in shares if share is not None), default=None)
        result = object_in(folder / "result.json")
        if isinstance(result.get("steadiness"), dict):
            result["steadiness"]["gpu_busy"] = busy
        record = TrainingRecord.of(result)
        verdicts, unreadable = judge_run(subject, record, done, latest)
        images = sorted(path.relative_to(subject.out).as_posix() for path in folder.glob("renders/**/*.png"))
        log = f"{scene}/{TRAINING_LOG}"
        return SceneRun(scene, verdicts, seconds, result, tuple(images[:MAX_IMAGES]), log, unreadable)

    def _repeats(self, scene: str) -> Criterion:
        """Train the beginning once more, with the same seed, and compare the losses with those of the first run."""
        again = self._folder / "again"
        command = [*self._argv(scene), "--out", str(again), "--stop-after", str(REPEATED)]
        done = self._runner.run(
            command, timeout=self._subject.suite.timeout, env=self._variables, cwd=again.parent
        )
        pairs = list(zip(_losses(self._subject.out / scene), _losses(again), strict=False))
        gaps = [abs(before - after) / max(abs(before), 1e-12) for before, after in pairs]
        allowed = CPU_TOLERANCE if self._subject.device == "cpu" else GPU_TOLERANCE
        measured = f"the second run left no losses: {done.why() or 'none were written'}"
        if gaps:
            measured = f"losses of {counted(len(gaps), 'iteration')} differ by at most {max(gaps):.2g} of their value"
        return criterion(
            "training-repeats", bool(gaps) and done.ok and max(gaps) <= allowed, measured, allowed=allowed
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


def judge_run(
    subject: SmokeSubject, record: TrainingRecord, done: Completed, latest: Mapping[str, Any]
) -> tuple[tuple[Criterion, ...], str]:
    """Return the criteria of one run, and the loader's error where a scene of the user's could not be read."""
    printed = f"{done.stdout}\n{done.stderr}"
    error = sentences(record.error) if record.error else ""
    output = f"{printed}\n{error}"
    cuda = tuple(explained(item, output, own=OWN_ADVICE) for item in no_cuda_error(printed, subject.device))
    if record.iterations is None and any(item.outcome is Outcome.FAILED for item in cuda):
        return cuda, ""
    if record.error:
        # a bundled scene that cannot be read is our failure
        if subject.suite.data is not None and record.error.code == "unreadable-scene":
            unread = Criterion("scene-readable", Outcome.NOT_MEASURED, error, "a readable scene")
            return (unread,), error
        failed = Criterion("training-finishes", Outcome.FAILED, error, FINISHED)
    elif record.iterations is not None:
        met = criteria.judge(record, subject.request.renderer, subject.suite.iterations)
        return (*met, *cuda), ""
    else:
        failed = ended_early(done, latest)
    return (explained(failed, output, own=OWN_ADVICE),), ""


def busy_gpu(trains: Gpu | None, meter: NvmlMeter | None = None, settle: float = 1.0) -> float | None:
    """Return the share of time in which programs compute on the GPU that trains; where it is not known which does, on the
    busiest; None where NVML does not tell."""
    time.sleep(settle)  # what the training took leaves NVML's sampling period
    uses = (meter or NvmlMeter()).read()
    own = [use for use in uses if trains and trains.uuid and use.uuid == trains.uuid]
    shares = [use.utilisation for use in own or uses if use.utilisation is not None]
    if not shares:
        return None
    return max(shares) / 100


def _losses(folder: Path) -> list[float]:
    """Of each iteration in ``metrics.jsonl``, up to the first that is not a number; [] where it was not written."""
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
