"""Training, from a configuration to a result: `train_step` is the algorithm, `train` the run around it."""

from __future__ import annotations

import math
import signal
import threading
import time
import traceback
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from smoke_trainer import checkpoint, report
from smoke_trainer.backends import Kernel, check_device, make_knn, make_ssim, to_device
from smoke_trainer.config import TrainConfig, fitted_to_views
from smoke_trainer.data.images import ImageStore
from smoke_trainer.data.load import load_scene
from smoke_trainer.data.scene import Scene, View
from smoke_trainer.densify import STRATEGIES, DefaultStrategy
from smoke_trainer.errors import CPU_HINT, CannotWrite, SmokeTrainerError, TrainingFailed
from smoke_trainer.lpips import find_lpips
from smoke_trainer.metrics import QualityMean, photometric_loss
from smoke_trainer.model import GROUPS, Gaussians, gaussians_from_points, xyz_lr_at
from smoke_trainer.monitor import WARM_UP, Monitor, gradient_norms
from smoke_trainer.progress import Show, State
from smoke_trainer.rasterizers import RenderCamera
from smoke_trainer.record import ImageQuality, TrainingRecord
from smoke_trainer.renderers import Renderer, make_renderer


@dataclass
class Run:
    """The state of a training run."""

    config: TrainConfig
    device: torch.device
    scene: Scene
    images: ImageStore
    model: Gaussians
    renderer: Renderer
    ssim: Kernel
    knn: Kernel
    strategy: DefaultStrategy
    monitor: Monitor
    iteration: int = 0  # the last one that is complete
    resumed_at: int = 0  # iterations of an earlier run
    remaining_views: List[int] = field(default_factory=list)  # not yet seen in this epoch
    cameras: Dict[int, RenderCamera] = field(default_factory=dict)  # by the view's id: names may come twice
    seconds: Dict[str, float] = field(default_factory=dict)
    initial_quality: Optional[ImageQuality] = None

    def speed(self) -> Optional[float]:
        """Iterations per second of this training, without its first WARM_UP where it is longer; None where none was run."""
        count, seconds = self.iteration - self.resumed_at, self.seconds["train"]
        if count > WARM_UP:
            count, seconds = count - WARM_UP, seconds - self.seconds["warm_up"]
        if not count or seconds <= 0:
            return None
        return count / seconds

    def held_bytes(self) -> int:
        """On the device: the parameters, Adam's two moments of each, what the strategy keeps, and cached images."""
        tensors = [*self.model.params.values()] * 3 + [*self.strategy.state.values()]
        held = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        if self.device.type == "cpu":
            held += self.images.held_bytes
        return held

    def camera(self, view: View) -> RenderCamera:
        """The view's matrices, computed once."""
        if id(view) not in self.cameras:
            self.cameras[id(view)] = RenderCamera.of(view, self.device)
        return self.cameras[id(view)]

    def next_view(self) -> View:
        """Training views in random order, each once per epoch."""
        if not self.remaining_views:
            order = torch.randperm(len(self.scene.train), generator=self.strategy.generator)
            self.remaining_views = [int(index) for index in order]
        return self.scene.train[self.remaining_views.pop()]

    def background(self) -> Tensor:
        """The background colour of this iteration, [3]."""
        if self.config.background == "random":
            return to_device(torch.rand(3, generator=self.strategy.generator), self.device)
        return self.plain_background()

    def plain_background(self) -> Tensor:
        """The background colour [3] of evaluation: white if the run asks for white, black otherwise."""
        return torch.full((3,), 1.0 if self.config.background == "white" else 0.0, device=self.device)


def train_step(run: Run, iteration: int) -> None:
    """One iteration of 3D Gaussian Splatting: densify, render a view, compare, descend."""
    config, model, strategy, monitor = run.config, run.model, run.strategy, run.monitor
    monitor.start()
    # On schedule: more Gaussians where detail is missing, fewer where they contribute nothing.
    event = strategy.refine(iteration - 1, model)
    if len(model) == 0:
        raise TrainingFailed(
            f"no Gaussians are left after iteration {iteration - 1}",
            "all of them became transparent or too large",
            "check the scene's scale and poses; a renderer without gradients also leads here",
        )
    monitor.lap("densify")
    # Schedules: the learning rate of positions decays, the degree of spherical harmonics rises.
    xyz_lr = xyz_lr_at(config.lrs, run.scene.extent, iteration, config.iterations)
    model.optimizer.param_groups[GROUPS.index("xyz")]["lr"] = xyz_lr
    if iteration % config.sh_degree_interval == 0:
        model.raise_sh_degree()
    view, background = run.next_view(), run.background()
    gt = run.images.get(view)
    monitor.lap("data")

    # Render the Gaussians from this camera and compare with the ground-truth image.
    output = run.renderer.render(run.camera(view), model.splats(), background)
    loss = photometric_loss(output.color, gt.over(background), run.ssim, config.lambda_dssim, gt.mask)
    total = loss.total + strategy.regularization(model)
    monitor.lap("forward")

    if output.means2d.requires_grad:  # densification needs to know how the loss moves them
        output.means2d.retain_grad()
    total.backward()  # type: ignore[no-untyped-call, unused-ignore]
    norms = gradient_norms(model)
    monitor.reached.add(model.params["xyz"].grad, model.params["opacity"].grad)
    monitor.lap("backward")

    # Whether every group moved is looked at early, and at the end of each quarter.
    quarters = [config.iterations * quarter // 4 for quarter in (1, 2, 3, 4)]
    if iteration in (2, 10, *quarters):
        for name, parameter in model.params.items():
            monitor.updates.before(name, parameter)
    model.optimizer.step()
    monitor.updates.after()
    model.optimizer.zero_grad(set_to_none=True)
    strategy.learn(iteration, model, output, xyz_lr)
    monitor.lap("optimizer")
    monitor.record(iteration, loss, norms, len(model), event, run.held_bytes())
    run.iteration = iteration


def prepare(config: TrainConfig) -> Run:
    """Load the scene and build model, renderer and strategy; whatever cannot work raises a SmokeTrainerError here."""
    started = time.perf_counter()
    device = check_device(config.device)
    if device.type == "cuda":  # extensions launch on the current one, and events are recorded there
        torch.cuda.set_device(device)
    torch.manual_seed(config.seed)
    renderer = make_renderer(config.renderer, device, config.antialiasing)
    ssim, knn = make_ssim(config.ssim, device), make_knn(config.knn, device)
    scene = load_scene(config.scene, config.resolution, config.random_points, config.seed)
    config = fitted_to_views(config, len(scene.train))
    model = gaussians_from_points(scene.points, config, knn, device)
    generator = torch.Generator().manual_seed(config.seed)
    strategy = STRATEGIES[config.strategy](config.densify, scene.extent, len(model), generator)
    config.out.mkdir(parents=True, exist_ok=True)
    run = Run(
        config=config,
        device=device,
        scene=scene,
        images=ImageStore(device),
        model=model,
        renderer=renderer,
        ssim=ssim,
        knn=knn,
        strategy=strategy,
        monitor=Monitor(config.out, device),
    )
    if config.resume is not None:
        checkpoint.resume(run, config.resume)
    run.seconds["setup"] = time.perf_counter() - started
    return run


@torch.no_grad()
def evaluate(run: Run, previews: Optional[str] = None) -> ImageQuality:
    """Held-out quality.

    `previews` is for the last evaluation: a prefix of the PNGs to write to renders/; LPIPS is measured too.
    """
    started = time.perf_counter()
    run.monitor.memory.enter("eval")
    quality = _quality(run, run.scene.test, previews)
    run.monitor.memory.enter("between")
    run.seconds["eval"] = run.seconds.get("eval", 0.0) + time.perf_counter() - started
    if previews is None:
        return quality
    # a second time through the views: the metric's network is no memory of evaluating
    size = run.scene.test[0].camera
    network, note = find_lpips(run.device, min(size.width, size.height))
    if network is None:
        return replace(quality, lpips_note=note)
    distances = []
    for _, rendered, gt, mask in _rendered(run, run.scene.test):
        rendered = rendered.clamp(0.0, 1.0)
        if mask is not None:
            rendered, gt = rendered * mask, gt * mask
        if mask is None or bool(mask.any()):
            distances.append(network(rendered, gt))
    return replace(quality, lpips=sum(distances) / len(distances), lpips_note="")


@torch.no_grad()
def evaluate_training_views(run: Run) -> ImageQuality:
    """Quality of as many training views as there are held-out ones, spread over all: what held-out views cannot be above."""
    views = run.scene.train
    count = min(len(views), len(run.scene.test))
    return _quality(run, [views[index * len(views) // count] for index in range(count)])


def _quality(run: Run, views: Sequence[View], previews: Optional[str] = None) -> ImageQuality:
    mean = QualityMean(run.ssim)
    for view, rendered, gt, mask in _rendered(run, views):
        mean.add(rendered, gt, mask)
        if previews is not None:
            # Flat: a name may hold folders, and even lead out of them (../).
            flat = view.name.replace("/", "_").replace("\\", "_")
            report.write_preview(run.config.out / "renders" / f"{previews}_{flat}", rendered, gt)
    quality = mean.result()
    if not all(math.isfinite(value or 0.0) for value in (quality.psnr, quality.ssim, quality.l1)):
        raise TrainingFailed(
            f"the quality of {views[0].name} and others is not a number after iteration {run.iteration}",
            "the renderer or SSIM returned infinite values",
            CPU_HINT,
        )
    return quality


def _rendered(run: Run, views: Sequence[View]) -> Iterator[Tuple[View, Tensor, Tensor, Optional[Tensor]]]:
    """Each view, its rendering and its ground truth [3, H, W], and the mask."""
    background, splats = run.plain_background(), run.model.splats()
    for view in views:
        image = run.images.get(view)
        rendered = run.renderer.render(run.camera(view), splats, background).color
        yield view, rendered, image.over(background), image.mask


def train(config: TrainConfig, progress: Show = lambda state: None) -> TrainingRecord:
    """Train to the end and write result.json, metrics.jsonl, the PLY and previews to `config.out`.

    The output of an earlier run is moved aside, unless this one resumes it. The first Ctrl-C writes a checkpoint. Errors
    that a person can act on are returned as a result with their message and code.
    """
    started = time.perf_counter()
    run: Optional[Run] = None
    try:
        if config.resume is None:
            report.move_aside(config.out)
        run = prepare(config)
        status = _train_loop(run, progress)
        try:
            quality = evaluate(run, previews=f"{run.iteration:06d}")
        except KeyboardInterrupt:
            checkpoint.save(run)
            raise KeyboardInterrupt(run.config.out / "checkpoint.pt") from None
        if status == "ok":  # the last line shows what the report does
            progress(_state(run, heldout_psnr=quality.psnr))
        trained = evaluate_training_views(run)
        run.seconds["total"] = time.perf_counter() - started
        return report.write_result(run, status, quality, trained)
    except SmokeTrainerError as error:
        return report.write_error(config, error)
    except OSError as error:  # reading has its own errors: this is no folder, no permission, a full disk
        cannot_write = CannotWrite(
            f"cannot write {error.filename or config.out}: {error.strerror or error}",
            "the output of this run is lost, wholly or in part",
            "free space there, or choose another folder with --out",
        )
        return report.write_error(config, cannot_write)
    except (RuntimeError, TypeError, ValueError) as error:
        # What torch and extensions raise: CUDA errors, out of memory, arguments that an extension does not accept.
        lines = str(error).strip().splitlines() or [""]
        failed = TrainingFailed(
            f"{type(error).__name__} after iteration {run.iteration if run else 0}: {lines[0][:300]}",
            "the renderer, SSIM or kNN under test failed",
            "see the traceback in result.json; `splatfix diagnose` finds the common causes",
        )
        return report.write_error(config, failed, traceback.format_exc())
    finally:
        if run is not None:
            run.monitor.close()


def _train_loop(run: Run, progress: Show) -> str:
    """All iterations; returns `ok` or `interrupted`."""
    config = run.config
    if run.initial_quality is None:
        run.initial_quality = evaluate(run)
    run.seconds.update(train=0.0, warm_up=0.0)
    run.resumed_at = run.iteration
    run.monitor.memory.enter("train")
    with _interrupt() as interrupt:
        last = min(config.iterations, config.stop_after or config.iterations)
        while run.iteration < last and not interrupt.is_set():
            began = time.perf_counter()
            train_step(run, run.iteration + 1)
            run.seconds["train"] += time.perf_counter() - began
            if run.iteration - run.resumed_at == WARM_UP:
                # just flushed, so the GPU has finished its work
                run.seconds["warm_up"] = run.seconds["train"]
            # train() reports the last one, with its held-out PSNR
            if run.iteration < last or interrupt.is_set():
                progress(_state(run))
            if config.checkpoint_every and run.iteration % config.checkpoint_every == 0:
                checkpoint.save(run)
    if interrupt.is_set():
        checkpoint.save(run)
    began = time.perf_counter()
    run.monitor.flush()  # waits for a GPU
    run.seconds["train"] += time.perf_counter() - began
    return "interrupted" if interrupt.is_set() else "ok"


@contextmanager
def _interrupt() -> Iterator[threading.Event]:
    """An event that the first SIGINT sets; a second one raises KeyboardInterrupt, as usual."""
    requested = threading.Event()

    def handle(number: int, frame: Any) -> None:
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield requested
    finally:
        signal.signal(signal.SIGINT, previous)


def _state(run: Run, **more: Any) -> State:
    """Return the state for a progress line; the first of a run also says how it is set up."""
    state = {
        "iteration": run.iteration,
        "iterations": run.config.iterations,
        "gaussians": len(run.model),
        "seconds": round(run.seconds["train"], 3),
        "iterations_per_second": round(run.speed() or 0.0, 3),
        **run.monitor.latest,
        **more,
    }
    if run.iteration == run.resumed_at + 1:
        state["run"] = report.run_setup(run)
    return state
