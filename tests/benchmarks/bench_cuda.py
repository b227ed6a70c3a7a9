"""Our CUDA kernels by CUDA events, stage by stage, and beside others, in turns in one process; the ratios are what counts.

    python tests/benchmarks/bench_cuda.py [--repeats N] [--trained PLY] KERNEL:ENGINES:SCENE ...

KERNEL is one of MAKERS; ENGINES, joined by `+`, are `nvrtc` (our CUDA kernels), `torch` (ours in PyTorch), or what a package
brings: `inria`, `gsplat`, `fused_ssim`, `simple_knn._C`. SCENE is NAME-WIDTHxCOUNT, 16:9: `synthetic`, a cube of Gaussians that
just touch (7.4 tiles a Gaussian at 1080p and a million), or `trained`: what a view of a training sees, split (2.5).
A line of JSON for each engine of a job. Needs an NVIDIA GPU; `make gpu-check` runs it with a scene of its own.
"""

import argparse
import functools
import importlib
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import measuring  # which puts the tests' own kernels on the path
import pytest
import torch
from kernels.compare import ARGUMENTS, SURFELS, gaussians_of, in_precision
from kernels.cuda import emulator
from kernels.scenes import cloud, discs, look_at

from smoke_trainer.data.load import load_scene
from smoke_trainer.model import Splats
from smoke_trainer.ply import read_gaussians
from smoke_trainer.rasterizers import Reference, RenderCamera
from smoke_trainer.renderers import make_renderer
from splatfix.kernels import (
    contributions_cuda,
    knn_cuda,
    rasterizer,
    rasterizer_cuda,
    ssim_cuda,
    surfels_cuda,
)
from splatfix.kernels.contributions import contributions
from splatfix.kernels.knn import distCUDA2
from splatfix.kernels.rasterizer import rasterize
from splatfix.kernels.ssim import fused_ssim
from splatfix.kernels.surfels import rasterize_surfels

DEVICE = torch.device("cuda")
COURTYARD = measuring.ROOT / "smoke_trainer" / "samples" / "courtyard"
ORDER = ("means3D", "scales", "rotations", "opacities", "shs")
"""Of Splats."""
JOBS = (
    "gaussians:nvrtc:synthetic-1920x1000000",
    "ssim:torch+nvrtc:synthetic-1920x1",
    "knn:nvrtc:synthetic-1920x1000000",
)
LONG = 6.0
"""Seconds; an engine that took so long is not called again."""
PARTS = ("forward_ms", "backward_ms", "whole_ms")
ALLOWED = {"torch": 1e-3, "peer": 1e-2}
"""Sum of differences by sum of what was expected. PyTorch in float32 is 5e-6 off PyTorch in float64 at most (60,000 Gaussians,
640 pixels, surfels' rotations); a gradient that is halved for a hundredth of the rows is above it. A peer's image differs by
its order of equal depths and its limits."""
Results = dict[str, torch.Tensor]
Forward = Callable[[], Results]
"""Its result named `out` is the one whose gradients are asked for."""


class Scene:
    """Settings, camera and leaves of one view; `kind` makes random Gaussians or surfels."""

    def __init__(self, text: str, trained: Path | None, kind: Callable[..., Results] = cloud) -> None:
        name, _, size = text.partition("-")
        self.width, self.count = map(int, size.split("x"))
        if name == "trained":
            assert trained is not None
            self._trained(trained)
        else:
            side = 2.0 / self.count ** (1 / 3)
            inputs = kind(self.count, size=(0.2 * side, side))
            self.settings = in_precision(
                look_at(self.width, self.width * 9 // 16), torch.float32, str(DEVICE)
            )
            focal = [self.width / (2 * self.settings.tanfovx), 0.0, self.width / 2]
            height = self.settings.image_height
            intrinsics = torch.tensor([focal, [0.0, focal[0], height / 2], [0.0, 0.0, 1.0]], device=DEVICE)
            view = self.settings
            poses = (view.viewmatrix, view.projmatrix, intrinsics, view.campos)
            self.camera = RenderCamera(self.width, height, view.tanfovx, view.tanfovy, *poses)
            self.leaves = {key: value.float().to(DEVICE).requires_grad_() for key, value in inputs.items()}

    def _trained(self, path: Path) -> None:
        """Split what a view of the courtyard sees into so many, each as large in pixels as there, at places drawn from them."""
        view, height = load_scene(str(COURTYARD)).train[0], self.width * 9 // 16
        old, grown = view.camera, self.width / view.camera.width
        lens = {name: getattr(old, name) * grown for name in ("fx", "fy", "cx")}
        lens["cy"] = old.cy * grown - (old.height * grown - height) / 2
        camera = replace(view, camera=replace(old, width=self.width, height=height, **lens))
        self.camera = RenderCamera.of(camera, DEVICE)
        given = {key: torch.from_numpy(value) for key, value in read_gaussians(path).items()}
        clip = torch.nn.functional.pad(given["xyz"], (0, 1), value=1.0) @ self.camera.world_to_clip.cpu()
        seen = (clip[:, 3] > 0.2) & (clip[:, :2].abs() < clip[:, 3:]).all(1)
        times = -(-self.count // int(seen.sum()))
        many = {
            key: value[seen].repeat(times, *[1] * (value.dim() - 1))[: self.count]
            for key, value in given.items()
        }
        rotations = torch.nn.functional.normalize(many["rotation"])
        w, axis = rotations[:, :1], rotations[:, 1:]
        moved = torch.randn(self.count, 3, generator=torch.Generator().manual_seed(0)) * many["scaling"].exp()
        across = torch.linalg.cross(axis, moved)
        values = {
            "means3D": many["xyz"] + moved + 2 * (w * across + torch.linalg.cross(axis, across)),
            "scales": many["scaling"].exp() / grown,
            "rotations": rotations,
            "opacities": many["opacity"].sigmoid(),
            "shs": torch.cat([many["f_dc"], many["f_rest"]], 1),
        }
        self.leaves = {key: value.contiguous().to(DEVICE).requires_grad_() for key, value in values.items()}
        background = torch.zeros(3, device=DEVICE)
        self.settings = Reference(rasterizer).settings(self.camera, self.splats(), background)

    def splats(self) -> Splats:
        return Splats(*(self.leaves[name] for name in ORDER), sh_degree=3)


def ssim(engine: str, scene: Scene) -> tuple[Forward, Results]:
    shape, generator = (1, 3, scene.width * 9 // 16, scene.width), torch.Generator().manual_seed(0)
    first = torch.rand(shape, generator=generator).to(DEVICE).requires_grad_()
    second = torch.rand(shape, generator=generator).to(DEVICE)
    if engine == "nvrtc":
        return lambda: {"out": ssim_cuda.mean_ssim(first, second, "same")}, {"image": first}
    call = fused_ssim if engine == "torch" else importlib.import_module(engine).fused_ssim
    return lambda: {"out": call(first, second)}, {"image": first}


def knn(engine: str, scene: Scene) -> tuple[Forward, Results]:
    points = scene.leaves["means3D"].detach()
    if engine == "torch":
        return lambda: {"distances": distCUDA2(points, engine="torch")}, {}
    search = knn_cuda.mean_of_three if engine == "nvrtc" else importlib.import_module(engine).distCUDA2
    return lambda: {"distances": search(points)}, {}


def gaussians(engine: str, scene: Scene) -> tuple[Forward, Results]:
    leaves = scene.leaves
    if engine in ("torch", "nvrtc"):
        draw = rasterize if engine == "torch" else rasterizer_cuda.rasterize
        screen = torch.zeros(scene.count, 3, device=DEVICE, requires_grad=True)
        given = [screen if name == "means2D" else scene.leaves.get(name) for name in ARGUMENTS]
        return lambda: {"out": draw(scene.settings, *given)[0]}, leaves
    renderer = make_renderer(engine, DEVICE)
    return lambda: {"out": renderer.render(scene.camera, scene.splats(), scene.settings.bg).color}, leaves


def surfels(engine: str, scene: Scene) -> tuple[Forward, Results]:
    draw: Any = rasterize_surfels if engine == "torch" else surfels_cuda.rasterize
    screen = torch.zeros(scene.count, 3, device=DEVICE, requires_grad=True)
    given = [screen if name == "means2D" else scene.leaves.get(name) for name in SURFELS]
    return lambda: {"out": draw(scene.settings, *given)[0]}, scene.leaves


def sums(engine: str, scene: Scene) -> tuple[Forward, Results]:
    inputs = {name: value.detach() for name, value in scene.leaves.items() if name != "shs"}
    if engine == "torch":
        return lambda: contributions(scene.settings, **inputs)._asdict(), {}
    given = gaussians_of(inputs, torch.float32, str(DEVICE), colors=1)
    few = {name: value[:1].cpu() for name, value in inputs.items()}
    names = contributions(look_at(8, 8), **few)._fields
    return lambda: dict(zip(names, contributions_cuda.sums(scene.settings, given, None), strict=True)), {}


MAKERS = {"ssim": ssim, "knn": knn, "gaussians": gaussians, "surfels": surfels, "contributions": sums}


class Stages:
    """Puts CUDA events about every launch of ours and every sort; what they took in each call, by name, in milliseconds."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, Any, Any]] = []
        patch.setattr(torch, "sort", self._between("sort", torch.sort))
        for caller in (rasterizer_cuda, ssim_cuda, knn_cuda):
            patch.setattr(caller, "module", self._module(caller.module))

    def _between(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*arguments: Any, **options: Any) -> Any:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            result = call(*arguments, **options)
            end.record()
            self.seen.append((name, start, end))
            return result

        return measured

    def _module(self, module: Callable[..., Any]) -> Callable[..., Any]:
        class Watched:
            def __init__(watched, *arguments: Any) -> None:
                watched.inner = module(*arguments)

            def launch(watched, name: str, grid: Any, threads: int, arguments: Any) -> None:
                if name == "blend":
                    self.ranges, self.lasts = arguments[0], arguments[12]
                self._between(name, watched.inner.launch)(name, grid, threads, arguments)

        return Watched

    def taken(self) -> dict[str, float]:
        """Return the sums of one call, by name, and forget them."""
        torch.cuda.synchronize()
        result: dict[str, float] = {}
        for name, start, end in self.seen:
            result[name] = result.get(name, 0.0) + start.elapsed_time(end)
        self.seen.clear()
        return result

    def lists(self) -> dict[str, float]:
        """Return how long the tiles' lists are, and how much of them lies before the last Gaussian that any pixel took."""
        lengths = (self.ranges[:, 1] - self.ranges[:, 0]).double()
        height, width = self.lasts.shape
        padded = torch.nn.functional.pad(self.lasts.double(), (0, -width % 16, 0, -height % 16))
        rows, columns = padded.shape[0] // 16, padded.shape[1] // 16
        walked = padded.reshape(rows, 16, columns, 16).amax((1, 3)).reshape(-1)
        return {
            "pairs": float(lengths.sum()),
            "pairs a tile": round(float(lengths.mean()), 1),
            "share before the last taken": round(float(walked.sum() / lengths.sum().clamp_min(1)), 3),
        }


def timed(
    engines: dict[str, tuple[Forward, Results]], repeats: int
) -> dict[str, tuple[Results, dict[str, Any]]]:
    """Let the engines take turns: results, and medians of forward, backward and both in milliseconds, with the peak of memory.

    The first turn is not among them: it loads code and fills the allocator.
    """
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
    answers: dict[str, tuple[Results, dict[str, Any]]] = {}
    for turn in range(repeats + 1):
        for name, (forward, leaves) in engines.items():
            if sum(map(sum, times[name])) > LONG * 1000:
                continue
            torch.cuda.reset_peak_memory_stats()
            held = torch.cuda.memory_allocated()
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
            marks[0].record()
            results = forward()
            marks[1].record()
            if leaves:
                weights = torch.linspace(-1, 1, results["out"].numel(), device=DEVICE).view_as(results["out"])
                gradients = torch.autograd.grad(results["out"], list(leaves.values()), weights)
                results |= {f"gradient of {key}": one for key, one in zip(leaves, gradients, strict=True)}
            marks[2].record()
            torch.cuda.synchronize()
            if turn == 0:
                results = {key: value.detach() for key, value in results.items()}
                answers[name] = (results, {"peak_mib": 0})
            else:
                times[name].append((marks[0].elapsed_time(marks[1]), marks[1].elapsed_time(marks[2])))
            peak = torch.cuda.max_memory_allocated() - held
            answers[name][1]["peak_mib"] = max(answers[name][1]["peak_mib"], peak >> 20)
    for name, taken in times.items():
        parts = (*zip(*taken, strict=True), [sum(one) for one in taken]) if taken else ()
        for key, values in zip(PARTS, parts, strict=False):
            answers[name][1][key] = round(statistics.median(values), 4)
            answers[name][1]["calls"] = len(values)
    return answers


def difference(result: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the sum of the absolute differences by that of what was expected; a wrong row is seen in it."""
    exact = expected.double()
    return float((result.double() - exact).abs().sum() / exact.abs().sum().clamp_min(1e-30))


scene_of = functools.cache(Scene)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--trained", type=Path)
    parser.add_argument("jobs", nargs="*", default=JOBS)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("not run: no NVIDIA GPU here")
        return
    if not torch.zeros(1, device=DEVICE).is_cuda:  # a rehearsal
        emulator.use_kernels(emulator.emulated_module, pytest.MonkeyPatch())
    for job in options.jobs:
        for row in done(job, options.repeats, options.trained):
            print(json.dumps(row), flush=True)
        torch.cuda.empty_cache()


def done(job: str, repeats: int, trained: Path | None) -> list[dict[str, Any]]:
    """Return a row for each engine of a job: its times, its peak of memory, and how it stands to ours."""
    kernel, names, text = job.split(":")
    scene = scene_of(text, trained, discs if kernel == "surfels" else cloud)
    rows = {name: {"job": f"{kernel} {text}", "engine": name} for name in names.split("+")}
    engines = {}
    for name, row in rows.items():
        started = time.perf_counter()
        try:
            engines[name] = MAKERS[kernel](name, scene)
            if repeats:  # a profiler wants one launch of each
                engines[name][0]()
                torch.cuda.synchronize()
                row["first_s"] = round(time.perf_counter() - started, 4)
        except (RuntimeError, ImportError) as error:  # the others are timed
            engines.pop(name, None)
            row["error"] = f"{type(error).__name__}: {error}".partition("\n")[0][:300]
    answers = timed(engines, repeats)
    for name, (results, measured) in answers.items():
        sizes = [float(value.double().abs().sum()) for value in results.values()]
        rows[name] |= measured | {"finite": all(map(math.isfinite, sizes)) and any(sizes)}
    if "nvrtc" in answers:
        ours = rows["nvrtc"]
        for name in answers.keys() - {"nvrtc"}:
            given, expected = answers["nvrtc"][0], answers[name][0]
            apart = {
                key: difference(given[key], expected[key]) for key in sorted(given.keys() & expected.keys())
            }
            # what a peer culls and caps moves its gradients: they are only written down
            judged = {key: value for key, value in apart.items() if name == "torch" or "gradient" not in key}
            worst = max(judged, key=judged.__getitem__)
            allowed = ALLOWED.get(name, ALLOWED["peer"])
            rows[name] |= {
                "apart": apart,
                "worst": worst,
                "agrees": judged[worst] <= allowed,
                "allowed": allowed,
            }
            parts = [key for key in PARTS if ours.get(key) and (engines[name][1] or key != "backward_ms")]
            rows[name]["times of ours"] = {key: round(rows[name][key] / ours[key], 2) for key in parts}
        if repeats and kernel in ("gaussians", "ssim", "knn"):
            ours |= staged(*engines["nvrtc"], repeats, kernel == "gaussians")
    return list(rows.values())


def staged(forward: Forward, leaves: Results, repeats: int, lists: bool) -> dict[str, Any]:
    """Return the medians of the stages of ours, in calls of their own: the events cost a little."""
    with pytest.MonkeyPatch.context() as patch:
        stages, calls = Stages(patch), []
        for _ in range(repeats):
            out = forward()
            if leaves:
                torch.autograd.grad(out["out"].sum(), list(leaves.values()))
            calls.append(stages.taken())
        medians = {key: round(statistics.median(call[key] for call in calls), 4) for key in calls[0]}
        return {"stages_ms": medians, **({"lists": stages.lists()} if lists else {})}


if __name__ == "__main__":
    main()
