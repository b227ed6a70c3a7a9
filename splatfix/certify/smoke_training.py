"""Trains the scenes of a suite with the smoke trainer, and judges each by its criteria."""

from __future__ import annotations

import glob
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from splatfix.certify import criteria, run_levels
from splatfix.certify.advice import advised, explained
from splatfix.certify.certificate import Measured
from splatfix.certify.criteria.criterion import criterion
from splatfix.certify.criteria.resources import clock_agrees, memory_agrees
from splatfix.certify.criteria.running import no_cuda_error
from splatfix.certify.criteria.truth import held_out_as_pictured, photos_decoded
from splatfix.certify.inside import loaded
from splatfix.certify.kernels import check_kernels
from splatfix.certify.loaded_files import LoadedFiles
from splatfix.certify.model import Criterion, KernelCheck, Outcome, SceneRun
from splatfix.certify.prerequisites import require_device, require_packages, require_visible_gpu
from splatfix.certify.record import TrainingRecord
from splatfix.certify.report_folder import MAX_IMAGES, TRAINING_LOG, make_room
from splatfix.certify.scenes import samples_folder
from splatfix.certify.smoke import (
    FINISHED,
    child_variables,
    ended_early,
    sentences,
    source_digests,
)
from splatfix.certify.subject import SmokeSubject
from splatfix.context import make_context
from splatfix.core.files import make_folder
from splatfix.core.lenient import object_in
from splatfix.core.limits import MOST_TEXT
from splatfix.core.reading import as_text, read_start
from splatfix.core.runner import Completed, Runner
from splatfix.core.words import counted, few
from splatfix.facts import Facts, Gpu
from splatfix.facts.machine.nvml import NvmlMeter

Tell = Callable[[str, Mapping[str, Any]], None]
OWN_ADVICE = ("cuda-oom-runtime",)
"""Classes whose cure is an option of the smoke trainer, which other trainers do not have."""
OF_STACKS = {
    "fused_ssim": (("--ssim", "fused-ssim"), ("inria", "gsplat")),
    "simple_knn._C": (("--knn", "simple-knn"), ("inria",)),
}
"""What a stack's trainer calls beside its rasterizer, the smoke trainer's options for it, and the renderers whose trainers do:
train.py and gaussian_model.py of Inria's, simple_trainer.py of gsplat's examples."""
PHOTOS_OF_SAMPLES, PHOTOS_OF_OTHERS = 8, 2
"""That are decoded again; large ones take Python a second or more."""
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

    def __init__(
        self,
        subject: SmokeSubject,
        facts: Facts,
        runner: Runner,
        folder: Path,
        journal: Mapping[str, str],
    ) -> None:
        self._subject, self._facts, self._runner, self._folder = subject, facts, runner, folder
        told = folder / "loaded"
        self._loaded = LoadedFiles(facts, subject.python, runner, told, [folder, subject.out], journal)
        self._kernels: tuple[KernelCheck, ...] = ()
        self._sources: dict[str, str] = {}
        self._variables: dict[str, str] = {}

    def prepare(self, progress: Tell) -> None:
        """Check the environment and its kernels; a run level that only diagnoses runs nothing."""
        subject, level = self._subject, self._subject.request.level
        progress("environment", {})
        needs = run_levels.NEEDS[level or run_levels.FULL]
        require_packages(self._facts, subject.python, "certify", needs)
        if level == 1:
            require_visible_gpu(subject.device, self._facts)
        else:
            staged = subject.stage_files(self._folder)
            self._sources = source_digests(staged)
            self._variables = {**child_variables(staged), loaded.VARIABLE: str(self._loaded.folder)}
            progress("kernels", {})
            self._kernels = check_kernels(
                self._runner, subject.python, subject.device, self._folder, self._variables
            )
            require_device(self._kernels, subject.device)
            self._loaded.look()
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
        self._loaded.look()
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
        """Kernels, the digests of what ran, and what was loaded with it; not while that is compared, unless all was run."""
        code = self._loaded.result(wait=finished)
        return Measured(kernels=self._kernels, sources=self._sources, loaded=code)

    def _train(self, scene: str, tell: Tell) -> SceneRun:
        subject = self._subject
        folder = make_folder(subject.out / scene)
        latest: dict[str, Any] = {}
        clocks: list[tuple[float, float]] = []
        libraries: list[str] = []
        resident: list[int] = []

        def on_line(line: str) -> None:
            if line.startswith("{"):
                try:
                    state = json.loads(line)
                except ValueError:
                    return  # only looks like JSON; it is in the log
                if state.get("event") == "progress":
                    latest.update(state)
                    clocks.append((float(state.get("seconds") or 0.0), time.monotonic()))
                    if process := process_of(str(folder)):
                        libraries[:] = sorted(loaded.mapped(process)) or libraries
                        resident.extend(resident_memory(process))
                    tell(scene, latest)

        shares = []
        gpu = make_context(self._facts).gpu_of(subject.device)
        if subject.device != "cpu":
            shares.append(busy_gpu(gpu))
        began = time.monotonic()
        done = self._runner.run(
            [*self._argv(scene), "--out", str(folder), "--json-progress"],
            timeout=subject.suite.timeout,
            env={**self._variables, loaded.VARIABLE: str(self._loaded.folder_of(scene))},
            cwd=folder,
            on_line=on_line,
            log=folder / TRAINING_LOG,
        )
        seconds = round(time.monotonic() - began, 1)
        if done.ok:
            self._loaded.trained(scene, libraries)
        if subject.device != "cpu":
            shares.append(busy_gpu(gpu))
        busy = max((share for share in shares if share is not None), default=None)
        result = object_in(folder / "result.json")
        if isinstance(result.get("steadiness"), dict):
            result["steadiness"]["gpu_busy"] = busy
        record = TrainingRecord.of(result)
        verdicts, unreadable = judge_run(subject, record, done, latest, folder)
        if record.iterations is not None:
            # first, since what else is measured goes by them
            verdicts = (clock_agrees(record, clocks), memory_agrees(record, resident), *verdicts)
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
        return [subject.python, "-m", "smoke_trainer", *arguments, *self._kernels_of_the_stack()]

    def _kernels_of_the_stack(self) -> list[str]:
        """The environment's own SSIM and kNN, where they were checked and the trainers of this rasterizer call them."""
        good = {item.implementation for item in self._kernels if item.outcome is Outcome.MET}
        arguments: list[str] = []
        for module, (options, renderers) in OF_STACKS.items():
            if module in good and self._subject.request.renderer in renderers:
                arguments += options
        return arguments


def judge_run(
    subject: SmokeSubject, record: TrainingRecord, done: Completed, latest: Mapping[str, Any], folder: Path
) -> tuple[tuple[Criterion, ...], str]:
    """The criteria of one run, and the loader's error where a scene of the user's could not be read.

    Args:
        done: how the trainer ended.
        latest: its last progress object.
        folder: that it wrote into.
    """
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
        met = criteria.judge(record, subject.request.renderer, subject.suite.iterations, folder)
        files, most = _files_of(record, subject.suite.data)
        photos = photos_decoded(record, folder, files, most), held_out_as_pictured(record, folder)
        return (*met, *photos, *cuda), ""
    else:
        failed = ended_early(done, latest)
    return (explained(failed, output, own=OWN_ADVICE),), ""


def _files_of(record: TrainingRecord, data: Path | None) -> tuple[Path, int]:
    """The sample's folder as splatfix has it, or that of the user's scene, at or below the folder of the data; and how many
    photos in it are decoded again."""
    scene = record.scene or "."
    if data is None:
        return samples_folder() / scene, PHOTOS_OF_SAMPLES
    folders = (data, data / scene, *sorted(data.glob(f"*/{glob.escape(scene)}")))
    first = record.photos[0].file if record.photos else ""
    folder = next((folder for folder in folders if (folder / first).is_file()), data)
    return folder, PHOTOS_OF_OTHERS


def process_of(argument: str) -> str:
    """The number of the process with that argument, by the system and not by itself; "" where it does not tell."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.fsencode(argument) in (folder / "cmdline").read_bytes().split(b"\0"):
                return folder.name
    return ""


def resident_memory(process: str) -> Iterator[int]:
    """The bytes that a process holds now, as proc_pid_statm(5) has them; none where that cannot be read."""
    with suppress(OSError, ValueError, IndexError):
        yield int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def busy_gpu(trains: Gpu | None, meter: NvmlMeter | None = None, settle: float = 1.0) -> float | None:
    """Return the share of time in which programs computed on the GPU that trains, before or after the training; where it is not
    known which does, on the busiest; None where NVML does not tell. ``settle``: seconds in which what a training took leaves
    NVML's sampling period."""
    time.sleep(settle)
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
            document: Any = json.loads(line)
        except ValueError:
            break
        loss = None
        if isinstance(document, Mapping):
            loss = document.get("loss")
        if not isinstance(loss, (int, float)) or not math.isfinite(loss):
            break
        losses.append(float(loss))
    return losses
