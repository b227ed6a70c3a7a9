"""Training, from a configuration to a result: read `train_step` for the algorithm, `train` for the run around it."""

from __future__ import annotations

import math
import time
import traceback
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional

import torch
from torch import Tensor

from smoke_trainer import checkpoint, report
from smoke_trainer.config import TrainConfig
from smoke_trainer.data.images import ImageStore
from smoke_trainer.data.load import load_scene
from smoke_trainer.data.scene import Scene, View
from smoke_trainer.densify import Strategy, make_strategy
from smoke_trainer.device import check_device
from smoke_trainer.errors import CannotWrite, SmokeTrainerError, TrainingFailed
from smoke_trainer.interrupt import StopWish
from smoke_trainer.losses import photometric_loss
from smoke_trainer.metrics import Quality, QualityMean
from smoke_trainer.model import Gaussians, gaussians_from_points
from smoke_trainer.monitor import Monitor, gradient_norms
from smoke_trainer.parts import Part, as_it_ran, make_knn, make_ssim
from smoke_trainer.perceptual import find_lpips
from smoke_trainer.renderers import RenderCamera, Renderer, make_renderer
from smoke_trainer.schedule import position_rate, set_position_rate

Progress = Callable[[Dict[str, Any]], None]


@dataclass
class Run:
    """Everything that one training run holds on to."""

    config: TrainConfig
    device: torch.device
    scene: Scene
    photos: ImageStore
    model: Gaussians
    renderer: Renderer
    ssim: Part
    knn: Part
    strategy: Strategy
    monitor: Monitor
    initial_count: int
    done: int = 0  # iterations behind us
    begun_at: int = 0  # of which an earlier run did this many
    bag: List[int] = field(default_factory=list)  # training views not yet seen in this round
    cameras: Dict[int, RenderCamera] = field(default_factory=dict)  # by the view's id: names may come twice
    seconds: Dict[str, float] = field(default_factory=dict)
    initial_quality: Optional[Quality] = None

    def camera(self, view: View) -> RenderCamera:
        """The view's matrices, made once."""
        if id(view) not in self.cameras:
            self.cameras[id(view)] = RenderCamera.of(view, self.device)
        return self.cameras[id(view)]

    def next_view(self) -> View:
        """Training views in random order, each once before any comes again."""
        if not self.bag:
            order = torch.randperm(len(self.scene.train), generator=self.strategy.generator)
            self.bag = [int(index) for index in order]
        return self.scene.train[self.bag.pop()]

    def background(self) -> Tensor:
        """The colour behind everything in this iteration, [3]."""
        if self.config.background == "random":
            return torch.rand(3, generator=self.strategy.generator).to(self.device)
        return self.plain_background()

    def plain_background(self) -> Tensor:
        """The colour that evaluation uses: white where the run asked for white, black otherwise."""
        return torch.full((3,), 1.0 if self.config.background == "white" else 0.0, device=self.device)


def train_step(run: Run, iteration: int) -> None:
    """One iteration of 3D Gaussian Splatting: draw a view, compare, descend, and adapt the set of Gaussians."""
    config, model, clock = run.config, run.model, run.monitor.clock
    clock.start()
    # Positions take ever smaller steps; view-dependent colour is allowed one degree after the other.
    rate = position_rate(config.rates, run.scene.extent, iteration, config.iterations)
    set_position_rate(model.optimizer, rate)
    if iteration % config.sh_every == 0:
        model.raise_sh_degree()
    view, background = run.next_view(), run.background()
    photo = run.photos.get(view)
    clock.lap("data")

    # Draw the Gaussians as this camera sees them, and compare with its photo.
    output = run.renderer.render(run.camera(view), model.splats(), background)
    loss = photometric_loss(
        output.color, photo.over(background), run.ssim.function, config.dssim_weight, photo.mask
    )
    penalty = run.strategy.penalty(
        model
    )  # MCMC asks for little opacity and size as well; the others for nothing
    clock.lap("forward")

    total = loss.total if penalty is None else loss.total + penalty
    total.backward()  # type: ignore[no-untyped-call, unused-ignore]
    clock.lap("backward")

    # The strategy notes where on screen Gaussians want to move, before Adam moves them.
    norms = gradient_norms(model)
    run.strategy.observe(iteration, model, output)
    model.optimizer.step()
    model.optimizer.zero_grad(set_to_none=True)
    clock.lap("optimizer")

    # On schedule: more Gaussians where detail lacks, fewer where they do nothing. (MCMC's noise is as large as the steps.)
    event = run.strategy.update(iteration, model, rate)
    clock.lap("densify")
    if len(model) == 0:
        raise TrainingFailed(
            f"no Gaussians are left after iteration {iteration}",
            "all of them became transparent or too large",
            "check the scene's scale and poses; a renderer without gradients leads here too",
        )
    run.monitor.record(iteration, loss, norms, len(model), event)
    run.done = iteration


def prepare(config: TrainConfig) -> Run:
    """Load the scene and build model, renderer and strategy; everything that cannot work is an error here."""
    started = time.perf_counter()
    device = check_device(config.device)
    torch.manual_seed(config.seed)
    renderer = make_renderer(config.renderer, device, config.antialiasing)
    ssim, knn = make_ssim(config.ssim, device), make_knn(config.knn, device)
    scene = load_scene(config.scene, config.resolution, config.random_points, config.seed)
    model = gaussians_from_points(scene.points, config.sh_degree, config.rates, knn.function, device)
    knn = as_it_ran(knn)
    generator = torch.Generator().manual_seed(config.seed)
    strategy = make_strategy(config.strategy, config.densify, scene.extent, len(model), generator)
    config.out.mkdir(parents=True, exist_ok=True)
    monitor = Monitor(config.out, device, config.tensorboard, append=config.resume is not None)
    photos = ImageStore(device, check_device(config.data_device), config.cache_mb << 20)
    run = Run(config, device, scene, photos, model, renderer, ssim, knn, strategy, monitor, len(model))
    if config.resume is not None:
        checkpoint.resume(run, config.resume)
    run.seconds["setup"] = time.perf_counter() - started
    return run


@torch.no_grad()
def evaluate(run: Run, previews: Optional[str] = None) -> Quality:
    """Held-out quality, one view at a time and without gradients.

    `previews` is for the last evaluation: it names PNGs to write under renders/, and LPIPS is measured too.
    """
    started = time.perf_counter()
    run.monitor.memory.begin()
    background, splats = run.plain_background(), run.model.splats()
    mean = QualityMean(run.ssim.function)
    if previews is not None:
        size = run.scene.test[0].camera
        mean = QualityMean(run.ssim.function, *find_lpips(run.device, min(size.width, size.height)))
    for view in run.scene.test:
        photo = run.photos.get(view)
        truth = photo.over(background)
        drawn = run.renderer.render(run.camera(view), splats, background).color
        mean.add(drawn, truth, photo.mask)
        if previews is not None:
            # Flat: a name may hold folders, and even lead out of them (../).
            flat = view.name.replace("/", "_").replace("\\", "_")
            report.write_preview(run.config.out / "renders" / f"{previews}_{flat}", drawn, truth)
    run.monitor.memory.end("eval")
    run.seconds["eval"] = run.seconds.get("eval", 0.0) + time.perf_counter() - started
    quality = mean.result()
    if not math.isfinite(quality.psnr + quality.ssim + quality.l1):
        raise TrainingFailed(
            f"the held-out quality is not a number after iteration {run.done}",
            "the renderer or the SSIM gave infinities for a view that was not trained on",
            "run again with --renderer torch on the CPU: if that works, the GPU kernels are at fault",
        )
    return quality


def train(config: TrainConfig, progress: Optional[Progress] = None) -> report.Result:
    """Train to the end and leave result.json, metrics.jsonl, the PLY and previews in `config.out`.

    What an earlier run left there is moved aside, unless this one resumes. The first Ctrl-C leaves a checkpoint. Errors that
    a person can act on come back as a result with their message and code.
    """
    started = time.perf_counter()
    run: Optional[Run] = None
    try:
        if config.resume is None:
            report.set_aside(config.out)
        run = prepare(config)
        status = _train(run, progress)
        quality = _last_evaluation(run)
        run.seconds["total"] = time.perf_counter() - started
        return report.write_result(run, status, quality)
    except SmokeTrainerError as error:
        return report.write_error(config, error)
    except (
        OSError
    ) as error:  # reading has its own errors: this is a folder that is none, no permission, a full disk
        return report.write_error(config, _unwritable(config, error))
    except (RuntimeError, TypeError, ValueError) as error:
        # What torch and foreign kernels raise: CUDA errors, memory, calls that an extension does not understand.
        where = "before the first iteration" if run is None else f"after iteration {run.done}"
        return report.write_error(config, _broken(error, where), traceback.format_exc())
    finally:
        if run is not None:
            run.monitor.close()


def _last_evaluation(run: Run) -> Quality:
    """Held-out quality at the end. It may take long: a Ctrl-C meanwhile must not lose what was trained."""
    try:
        return evaluate(run, previews=f"{run.done:06d}")
    except KeyboardInterrupt:
        checkpoint.save(run)
        raise KeyboardInterrupt(run.config.out / "checkpoint.pt") from None


def _unwritable(config: TrainConfig, error: OSError) -> CannotWrite:
    return CannotWrite(
        f"cannot write {error.filename or config.out}: {error.strerror or error}",
        "what this run would leave behind is lost, wholly or in part",
        "make room there, or choose another folder with --out",
    )


def _broken(error: Exception, where: str) -> TrainingFailed:
    words = str(error).strip().splitlines() or [""]
    return TrainingFailed(
        f"{type(error).__name__} {where}: {words[0][:300]}",
        "the renderer, the SSIM or the kNN under test failed, or the device ran out of memory",
        "read the traceback in result.json; `splatfix diagnose` knows the signatures of the common causes",
    )


def _train(run: Run, progress: Optional[Progress]) -> str:
    """The loop; returns `ok` or `interrupted`."""
    config = run.config
    if run.initial_quality is None:
        run.initial_quality = evaluate(run)
    run.seconds["train"], run.begun_at = 0.0, run.done
    run.monitor.memory.begin()
    with StopWish() as stop:
        while run.done < config.iterations and not stop.wished:
            began = time.perf_counter()
            train_step(run, run.done + 1)
            run.seconds["train"] += time.perf_counter() - began
            if progress is not None:
                progress(_state(run))
            if _due(config.checkpoint_every, run.done):
                checkpoint.save(run)
            if _due(config.evaluate_every, run.done) and run.done < config.iterations:
                _evaluate_between(run, progress)
    if stop.wished:
        checkpoint.save(run)
    run.monitor.flush()
    run.monitor.memory.end("train")
    run.seconds["iterations"] = float(run.done - run.begun_at)
    return "interrupted" if stop.wished else "ok"


def _due(every: int, iteration: int) -> bool:
    return every > 0 and iteration % every == 0


def _evaluate_between(run: Run, progress: Optional[Progress]) -> None:
    """Held-out quality on the way, with its memory kept apart from training's."""
    run.monitor.memory.end("train")
    quality = evaluate(run)
    run.monitor.memory.begin()
    if progress is not None:
        progress(dict(_state(run), heldout_psnr=quality.psnr))


def _state(run: Run) -> Dict[str, Any]:
    """What a progress line shows."""
    losses, seconds = run.monitor.losses, run.seconds["train"]
    return {
        "iteration": run.done,
        "iterations": run.config.iterations,
        "loss": losses[-1] if losses else None,
        **run.monitor.latest,
        "gaussians": len(run.model),
        "seconds": round(seconds, 3),
        "iterations_per_second": round((run.done - run.begun_at) / seconds, 3) if seconds > 0 else 0.0,
    }
