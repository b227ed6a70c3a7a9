"""What is certified, resolved from a request for one machine: splatfix's own trainer on a suite of scenes, and how it runs."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from smoke_trainer.progress import words
from smoke_trainer.record import TrainingRecord
from splatfix.certify.baseline import require_alike
from splatfix.certify.criteria import judge
from splatfix.certify.criteria.criterion import Training
from splatfix.certify.environment import device_for, gpu_obstacle, packages_obstacle, renderer_for
from splatfix.certify.inside import loaded
from splatfix.certify.kernels import check_kernels
from splatfix.certify.levels import FULL, FULL_ITERATIONS, NEEDS, TRAINS_FROM
from splatfix.certify.model import Certificate, KernelCheck, Outcome, SceneRun
from splatfix.certify.report_folder import MAX_IMAGES, TRAINING_LOG, make_room
from splatfix.certify.request import CertifyRequest
from splatfix.certify.scenes import Suite, data_suite, sample_suite
from splatfix.certify.staging import child_variables, stage
from splatfix.core.codec import from_json, json_object
from splatfix.core.errors import SplatfixError
from splatfix.core.files import make_folder, object_in, sha256_of
from splatfix.core.limits import MOST_TEXT
from splatfix.core.reading import as_text, read_start
from splatfix.core.runner import Runner
from splatfix.core.step import Command, target_options, value_options
from splatfix.core.words import few
from splatfix.knowledge.published import Method, methods
from splatfix.model import Facts

Progress = Callable[[str, Mapping[str, Any]], None]
"""Called with what runs now (scene or stage) and the trainer's own progress object."""
_OF_STACKS = {
    "fused_ssim": (("--ssim", "fused-ssim"), ("inria", "gsplat")),
    "simple_knn._C": (("--knn", "simple-knn"), ("inria",)),
}
"""What a stack's trainer calls beside its rasterizer, the smoke trainer's options for it, and the renderers whose trainers do:
train.py and gaussian_model.py of Inria's, simple_trainer.py of gsplat's examples."""
REPEATED = 30
"""Iterations of the second run; none of the presets densifies before, which would carry a difference of one bit on to other
Gaussians."""


class Subject(Struct, kw_only=True):
    """A trainer in one environment, and what is known of it once it is prepared."""

    request: CertifyRequest
    python: str
    device: str
    runner: Runner = field(default_factory=Runner)
    scratch: Path = Path()
    """A temporary folder, for what it needs."""
    kernels: tuple[KernelCheck, ...] = ()
    sources: Mapping[str, str] = {}
    """SHA-256 of each source file of splatfix's that it runs."""
    loaded: Path | None = None
    """The folder in which its processes tell what they loaded; None where none is started."""
    own: tuple[Path, ...] = ()
    """Folders of what is not the environment's: what splatfix put there, and a checkout."""
    not_run: str = ""
    """Why no scene is trained."""
    variables: dict[str, str] = field(default_factory=dict)
    """Of its processes."""
    memory_limit: int | None = None
    """Bytes that its processes may use."""
    extensions: tuple[str, ...] = ()
    """Top-level modules that a checkout calls, which alone are judged."""
    baseline: Certificate | Method | None = None
    """An earlier certificate to compare with, or published figures."""

    @property
    def out(self) -> Path:
        """The report's folder."""
        return self.request.out.absolute()

    def judged(self, scene: str, training: Training) -> SceneRun:
        """Return what came of a training, with its pictures and its log as paths in the report."""
        memory = dataclasses.replace(training.record.memory, limit=self.memory_limit)
        record = dataclasses.replace(training.record, memory=memory)
        training = replace(training, record=record)
        pictures = sorted((self.out / scene).glob("renders/**/*.png"))[:MAX_IMAGES]
        return SceneRun(
            scene=scene,
            criteria=judge(training),
            seconds=round(training.done.seconds, 1),
            record=record,
            images=tuple(path.relative_to(self.out).as_posix() for path in pictures),
            log=f"{scene}/{TRAINING_LOG}",
            unreadable=training.unreadable,
        )


class SmokeSubject(Subject, kw_only=True):
    """Splatfix's own trainer in one environment."""

    suite: Suite
    stage_files: Callable[[Path], Path] = stage
    """Puts trainer and kernels into a folder and returns the PYTHONPATH entry."""
    # what a stack's own trainer has
    rehearsed: ClassVar[bool] = False
    tested: ClassVar[None] = None
    valid_for: ClassVar[Mapping[str, str]] = {}

    @property
    def title(self) -> str:
        """What is certified, in words."""
        level = self.request.level
        return f"Run level {level} of {FULL}" if level else "Training 3D Gaussians"

    @property
    def renderer(self) -> str:
        """What it draws with."""
        return self.request.renderer

    @property
    def scenes(self) -> tuple[str, ...]:
        """Those to be trained."""
        return self.suite.scenes

    @property
    def command(self) -> Command:
        """The command line that asks for the same."""
        request, suite = self.request, self.suite
        options: dict[str, object] = {"--python": self.python, "--data": suite.data, "--level": request.level}
        if request.level is None:
            options["--suite"] = None if suite.data else suite.name
            options |= {"--scene": request.scene, "--iterations": suite.iterations}
            options["--resolution"] = suite.resolution
        if suite.scenes:
            options |= {"--renderer": request.renderer, "--seed": request.seed}
        options["--device"] = self.device
        # the file of an earlier certificate may be gone, or another
        options["--baseline"] = self.baseline.name if isinstance(self.baseline, Method) else None
        return Command(("splatfix", "certify", *value_options(options), *target_options(request.targets)))

    def prepare(self, facts: Facts, runner: Runner, scratch: Path, progress: Progress) -> None:
        """Check the environment and its kernels; a run level that only diagnoses runs nothing.

        Raises:
            SplatfixError: ``environment-not-ready`` or ``no-gpu`` (exit code 3), ``not-our-folder`` (2), ``cannot-write``.
        """
        self.runner, self.scratch, level = runner, scratch, self.request.level
        self.memory_limit = facts.machine.resources.memory_total
        progress("environment", {})
        obstacle = packages_obstacle(facts, self.python, NEEDS[level or FULL])
        if level == 1 and not obstacle:
            obstacle = gpu_obstacle(self.device, facts)
        if obstacle:
            raise obstacle.error()
        if level != 1:
            staged = self.stage_files(scratch)
            files = sorted(staged.rglob("*.py"))
            self.sources = {path.relative_to(staged).as_posix(): sha256_of(path) for path in files}
            self.loaded, self.own = make_folder(scratch / "loaded"), (scratch, self.out)
            self.variables = {**child_variables(staged), loaded.VARIABLE: str(self.loaded)}
            progress("kernels", {})
            self.kernels = check_kernels(runner, self.python, self.device, scratch, self.variables)
            if self.device != "cpu" and all(item.outcome is Outcome.NOT_MEASURED for item in self.kernels):
                reason = self.kernels[0].detail
                raise SplatfixError.of("certify.no-gpu-to-run", device=self.device, reason=reason)
            # minutes of training show nothing where kernels are wrong already
            failed = [item.implementation for item in self.kernels if item.outcome is Outcome.FAILED]
            if failed:
                self.not_run = f"not run, because {few(failed)} failed the checks of kernels"
        make_room(self.out, self.scenes)

    def run(self, scene: str, progress: Progress) -> SceneRun:
        """Train one scene, and judge it; the first one's beginning twice, to see whether training repeats."""
        folder = make_folder(self.out / scene)
        request, suite = self.request, self.suite
        options = {
            "--preset": None if suite.data else suite.name,
            "--data": suite.data,
            "--iterations": suite.iterations,
            "--resolution": suite.resolution,
            "--strategy": suite.strategy or None,
            "--renderer": request.renderer,
            "--device": self.device,
            "--seed": request.seed,
        }
        arguments = [scene, *value_options(options)]
        # the environment's own SSIM and kNN, where they were checked and the trainers of this rasterizer call them
        good = {item.implementation for item in self.kernels if item.outcome is Outcome.MET}
        for module, (choice, renderers) in _OF_STACKS.items():
            if module in good and request.renderer in renderers:
                arguments += choice
        command = [self.python, "-m", "smoke_trainer", *arguments]
        latest: dict[str, Any] = {}

        def on_line(line: str) -> None:
            state = json_object(line)
            if state.get("event") == "progress":
                latest.update(state)
                progress(scene, latest)

        progress(scene, {})
        done = self.runner.run(
            [*command, "--out", str(folder), "--json-progress"],
            timeout=suite.timeout,
            env=self.variables,
            cwd=folder,
            on_line=on_line,
            log=folder / TRAINING_LOG,
        )
        record = from_json(TrainingRecord, object_in(folder / "result.json"))
        repeated, repeat_ended = None, ""
        if scene == self.scenes[0] and record.status == "ok":
            progress(f"{scene}, again", {})
            again = self.scratch / "again"
            command += ["--out", str(again), "--stop-after", str(REPEATED)]
            second = self.runner.run(command, timeout=suite.timeout, env=self.variables, cwd=self.scratch)
            repeated = list(zip(_losses(folder), _losses(again), strict=False))
            repeat_ended = second.why()
        training = Training(
            record=record,
            done=done,
            device=self.device,
            own_scene=suite.data is not None,
            latest=words(latest, left=False),
            repeated=repeated,
            repeat_ended=repeat_ended,
        )
        return self.judged(scene, training)


def _losses(folder: Path) -> list[float]:
    """Return the losses of the first iterations in ``metrics.jsonl``, up to one that is no number or a line that was cut."""
    losses: list[float] = []
    for line in as_text(read_start(folder / "metrics.jsonl", MOST_TEXT)).splitlines()[:REPEATED]:
        loss = json_object(line).get("loss")
        if loss is None:
            break
        losses.append(loss)
    return losses


def smoke_subject(
    request: CertifyRequest, python: str, facts: Facts, baseline: Certificate | Method | None = None
) -> SmokeSubject:
    """Return the suite, device and renderer that a request means on this machine; ``baseline`` is what it names.

    Raises:
        SplatfixError: wrong options (exit code 2), an environment that cannot run the trainer (3).
    """
    device = device_for(request.device, facts)
    renderer = renderer_for(request.renderer, device, facts)
    # extensions are judged for other GPUs where none is used: one that is needs no others
    targets = request.targets if device == "cpu" else ()
    request = replace(request, renderer=renderer, targets=targets)
    suite = _suite(request, baseline if isinstance(baseline, Method) else None, device)
    if isinstance(baseline, Certificate):
        require_alike(Path(str(request.baseline)), baseline, renderer, device)
    return SmokeSubject(request=request, python=python, device=device, suite=suite, baseline=baseline)


def _suite(request: CertifyRequest, method: Method | None, device: str) -> Suite:
    """Return the scenes that were asked for, those of a run level, or none."""
    level, length = request.level, request.iterations
    if level is not None and level < TRAINS_FROM:
        return Suite()
    if request.data is None:
        name = request.suite
        if level is not None:
            name = "standard" if level == FULL else "quick"
        return sample_suite(name, length, request.resolution, only=request.scene)
    if level == FULL:
        if device == "cpu":
            raise SplatfixError.of("certify.level-needs-gpu", full=FULL, full_iterations=FULL_ITERATIONS)
        length = length or FULL_ITERATIONS
    elif method and device != "cpu":
        length = length or method.iterations
    suite = data_suite(request.data, device, length, request.resolution)
    return replace(suite, strategy=method.strategy) if method else suite


def published_method(request: CertifyRequest) -> Method | None:
    """Return the published figures that ``--baseline`` names; None where it names a file.

    Raises:
        SplatfixError: ``unknown-baseline`` (exit code 2) for neither, ``baseline-needs-data`` for sample scenes.
    """
    if request.baseline is None:
        return None
    method = methods().get(request.baseline)
    if method is None and not Path(request.baseline).exists():
        raise SplatfixError.of("certify.unknown-baseline", name=request.baseline, known=tuple(methods()))
    if method is not None and request.data is None:
        raise SplatfixError.of("certify.baseline-needs-data", baseline=request.baseline)
    return method
