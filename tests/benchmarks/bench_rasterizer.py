"""The rasterizer against naive PyTorch rasterizers, and its cost per (Gaussian, tile) pair from 5k to 500k Gaussians.

    python tests/benchmarks/bench_rasterizer.py [--quick] [--threads N] [--operators] [--json FILE]

Scene: N random Gaussians in a 2x2x2 cube 4 units away, focal length 1.05 W, per-axis sigma 0.16 to 0.48 of the mean spacing
2 N^(-1/3), opacity 0.1 to 0.99, white background. Times are the fastest of a few calls, peers in turns in one process.

Peers, both with the full rules (1/255, 0.99, stop at 1e-4) and autograd:
  dense      every Gaussian against every pixel;
  64-px tile a loop over 64x64 tiles, every Gaussian that touches the tile against all of its pixels, as the public
             pure-torch rasterizers do it.
"""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import measuring
import torch
from measuring import conditions, keep
from torch import Tensor

from splatfix.kernels import blending, rasterizer, scene

clock: Callable[[], float] = time.perf_counter
Scene = tuple[rasterizer.GaussianRasterizationSettings, dict[str, Tensor]]


def make_scene(count: int, size: int) -> Scene:
    generator = torch.Generator().manual_seed(0)
    spacing = 2.0 * count ** (-1 / 3)
    rand = functools.partial(torch.rand, generator=generator)
    inputs = {
        "means3D": rand(count, 3) * 2 - 1,
        "opacities": 0.1 + 0.89 * rand(count, 1),
        "colors_precomp": rand(count, 3),
        "scales": spacing * (0.16 + 0.32 * rand(count, 3)),
        "rotations": torch.nn.functional.normalize(rand(count, 4) * 2 - 1),
    }
    tan = 0.5 / 1.05
    view = torch.eye(4)
    view[2, 3] = 4.0
    clip = torch.diag(torch.tensor([1 / tan, 1 / tan, 1.0, 0.0]))
    clip[2, 3], clip[3, 2] = -0.01, 1.0
    settings = rasterizer.GaussianRasterizationSettings(
        image_height=size,
        image_width=size,
        tanfovx=tan,
        tanfovy=tan,
        bg=torch.ones(3),
        scale_modifier=1.0,
        viewmatrix=view.T.contiguous(),
        projmatrix=(clip @ view).T.contiguous(),
        sh_degree=0,
        campos=torch.tensor([0.0, 0.0, -4.0]),
        prefiltered=False,
        debug=False,
    )
    return settings, {name: tensor.requires_grad_() for name, tensor in inputs.items()}


def ours(settings: rasterizer.GaussianRasterizationSettings, inputs: dict[str, Tensor]) -> Tensor:
    return rasterizer.rasterize(settings, means2D=None, **inputs).color


def peer(
    tile: int | None, settings: rasterizer.GaussianRasterizationSettings, inputs: dict[str, Tensor]
) -> Tensor:
    """A pure-torch rasterizer as one writes it first; `tile` None means the whole image at once."""
    size = settings.image_width
    focal = size / (2 * settings.tanfovx)
    x, y, z = (inputs["means3D"] @ settings.viewmatrix[:3, :3] + settings.viewmatrix[3, :3]).unbind(1)
    zero = torch.zeros_like(z)
    limit = 1.3 * settings.tanfovx
    tx, ty = (x / z).clamp(-limit, limit), (y / z).clamp(-limit, limit)
    jacobian = torch.stack(
        [
            torch.stack([focal / z, zero, -focal * tx / z], 1),
            torch.stack([zero, focal / z, -focal * ty / z], 1),
        ],
        1,
    )
    r, i, j, k = inputs["rotations"].unbind(1)
    rotation = torch.stack(
        [
            1 - 2 * (j * j + k * k),
            2 * (i * j - r * k),
            2 * (i * k + r * j),
            2 * (i * j + r * k),
            1 - 2 * (i * i + k * k),
            2 * (j * k - r * i),
            2 * (i * k - r * j),
            2 * (j * k + r * i),
            1 - 2 * (i * i + j * j),
        ],
        1,
    ).view(-1, 3, 3)
    half = jacobian @ settings.viewmatrix[:3, :3].T @ (rotation * inputs["scales"][:, None])
    cov = half @ half.transpose(1, 2) + 0.3 * torch.eye(2)
    det = cov[:, 0, 0] * cov[:, 1, 1] - cov[:, 0, 1] ** 2
    mid = 0.5 * (cov[:, 0, 0] + cov[:, 1, 1])
    radius = torch.ceil(3 * torch.sqrt(mid + torch.sqrt((mid * mid - det).clamp_min(0.1)))).detach()
    u, v = focal * x / z + 0.5 * size - 0.5, focal * y / z + 0.5 * size - 0.5
    order = torch.argsort(z.detach())
    left, right = ((u - radius) / 16).trunc() * 16, ((u + radius + 15) / 16).trunc() * 16
    top, bottom = ((v - radius) / 16).trunc() * 16, ((v + radius + 15) / 16).trunc() * 16
    rows, step = [], tile or size
    for y0 in range(0, size, step):
        row = []
        for x0 in range(0, size, step):
            w, h = min(step, size - x0), min(step, size - y0)
            touches = (right > x0) & (left < x0 + w) & (bottom > y0) & (top < y0 + h)
            chosen = order[touches[order]]
            py, px = torch.meshgrid(torch.arange(y0, y0 + h), torch.arange(x0, x0 + w), indexing="ij")
            px, py = px.reshape(1, -1), py.reshape(1, -1)
            dx, dy = u[chosen, None] - px, v[chosen, None] - py
            a, b, c, d = (t[chosen, None] for t in (cov[:, 0, 0], cov[:, 0, 1], cov[:, 1, 1], det))
            power = -0.5 * (c * dx * dx + a * dy * dy) / d + b * dx * dy / d
            alpha = (inputs["opacities"][chosen] * torch.exp(power)).clamp_max(0.99)
            reached = (px >= left[chosen, None]) & (px < right[chosen, None])
            reached = reached & (py >= top[chosen, None]) & (py < bottom[chosen, None]) & (alpha >= 1 / 255)
            alpha = torch.where(reached, alpha, torch.zeros_like(alpha))
            after = torch.cumprod(1 - alpha, 0)
            before = torch.cat([torch.ones_like(after[:1]), after[:-1]])
            weight = torch.where(after >= 1e-4, alpha * before, torch.zeros_like(alpha))
            color = inputs["colors_precomp"][chosen].T @ weight
            row.append((color + (1 - weight.sum(0)) * settings.bg[:, None]).view(-1, h, w))
        rows.append(torch.cat(row, 2))
    return torch.cat(rows, 1)


def timed(render: Callable[..., Tensor], scene: Scene, rounds: int) -> tuple[float, float, Tensor]:
    """Fastest forward and backward, seconds, and the image."""
    settings, inputs = scene
    upstream = torch.randn(
        3, settings.image_height, settings.image_width, generator=torch.Generator().manual_seed(1)
    )
    forward = backward = float("inf")
    for _ in range(rounds):
        begun = clock()
        image = render(settings, inputs)
        rendered = clock()
        torch.autograd.grad(image, list(inputs.values()), upstream)
        forward, backward = min(forward, rendered - begun), min(backward, clock() - rendered)
        image = image.detach()
    return forward, backward, image


def against_peers(rounds: int, quick: bool) -> list[dict[str, Any]]:
    print(f"{'scene':>12} {'renderer':>11} {'fwd ms':>9} {'bwd ms':>9} {'times ours':>10} {'max diff':>9}")
    table = []
    for count, size, with_dense in ((500, 128, True), (5_000, 256, False), (5_000, 512, False))[
        : 2 if quick else 3
    ]:
        scene = make_scene(count, size)
        forward, backward, image = timed(ours, scene, rounds + 2)
        renderers: list[tuple[str, Callable[..., Tensor]]] = [("64-px tile", functools.partial(peer, 64))]
        if with_dense:
            renderers.append(("dense", functools.partial(peer, None)))
        results = [("ours", forward, backward, image)]
        results += [(name, *timed(render, scene, max(1, rounds - 1))) for name, render in renderers]
        for name, f, b, other in results:
            ratio, difference = (f + b) / (forward + backward), float((other - image).abs().max())
            print(
                f"{count:>6}@{size:<5} {name:>11} {f * 1e3:9.1f} {b * 1e3:9.1f} {ratio:10.1f} {difference:9.1e}"
            )
            table.append(
                {"gaussians": count, "size": size, "renderer": name, "fwd_s": f, "bwd_s": b}
                | {"times_ours": ratio, "max_difference": difference}
            )
    return table


def scaling(rounds: int, quick: bool) -> list[dict[str, Any]]:
    """Nanoseconds per pair; pairs that stopped pixels spare are listed but never blended."""
    counts: dict[str, int] = {}
    list_pairs, alpha = scene.list_pairs, blending._alpha

    def listed(*arguments: Any) -> Any:
        pairs = list_pairs(*arguments)
        counts["listed"] = pairs.gaussian.numel()
        return pairs

    def blended(*arguments: Any) -> Any:
        state = alpha(*arguments)
        counts["blended"] = counts.get("blended", 0) + state.rows.numel()
        return state

    print(
        f"\n{'scene':>12} {'listed':>9} {'blended':>9} {'fwd ms':>9} {'bwd ms':>9} {'ns/listed':>9} {'ns/blended':>10}"
    )
    table = []
    for count in (5_000, 50_000) if quick else (5_000, 50_000, 500_000):
        for size in (128, 256, 512) if quick else (128, 256, 512, 1024):
            settings, inputs = make_scene(count, size)
            forward, backward, _ = timed(ours, (settings, inputs), rounds)
            counts.clear()
            scene.list_pairs, blending._alpha = listed, blended
            try:
                with torch.no_grad():
                    ours(settings, inputs)
            finally:
                scene.list_pairs, blending._alpha = list_pairs, alpha
            total = (forward + backward) * 1e9
            row = {"gaussians": count, "size": size, **counts, "fwd_s": forward, "bwd_s": backward}
            row |= {"ns_per_listed": total / counts["listed"], "ns_per_blended": total / counts["blended"]}
            table.append(row)
            print(
                f"{count:>6}@{size:<5} {counts['listed']:9d} {counts['blended']:9d} {forward * 1e3:9.1f} "
                f"{backward * 1e3:9.1f} {row['ns_per_listed']:9.0f} {row['ns_per_blended']:10.0f}"
            )
    return table


def fit(table: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Least squares of the relative error of: time = constant + per Gaussian + per listed pair + per blended pair, none of
    them negative (the columns are nearly dependent: noise would split a cost into a large one less another)."""
    columns = [[1e3, r["gaussians"], r["listed"], r["blended"]] for r in table]
    seconds = torch.tensor([r["fwd_s"] + r["bwd_s"] for r in table], dtype=torch.float64)
    weighted = torch.tensor(columns, dtype=torch.float64) / seconds[:, None]
    solution, kept = torch.zeros(4, dtype=torch.float64), list(range(4))
    while kept:
        found_now = torch.linalg.lstsq(weighted[:, kept], torch.ones_like(seconds)[:, None]).solution[:, 0]
        if float(found_now.min()) >= 0:
            solution[kept] = found_now
            break
        del kept[int(found_now.argmin())]
    worst = float((weighted @ solution - 1).abs().max())
    names = ("constant_us", "ns_per_gaussian", "ns_per_listed_pair", "ns_per_blended_pair")
    nanoseconds = dict(zip(names, (solution * 1e9).tolist(), strict=True))
    print(
        "\nlinear fit: "
        + ", ".join(f"{k} {v:.1f}" for k, v in nanoseconds.items())
        + f"; worst error {worst:.0%}"
    )
    return nanoseconds | {"worst_relative_error": worst}


def operators(count: int, size: int) -> dict[str, float]:
    """Share of the time of each torch operator, the operators it calls left out, forward and backward together."""
    settings, inputs = make_scene(count, size)
    timed(ours, (settings, inputs), 1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        timed(ours, (settings, inputs), 1)
    spent = {event.key: event.self_cpu_time_total for event in profiler.key_averages()}
    total = sum(spent.values())
    shares = {k: v / total for k, v in sorted(spent.items(), key=lambda item: -item[1])[:12]}
    print(f"\noperators, {count} at {size}x{size}")
    for name, share in shares.items():
        print(f"  {name:28s} {share:6.1%}")
    return shares


def main(arguments: Sequence[str] | None = None) -> int:
    global clock
    parser = measuring.parser(__doc__, rounds=3)
    parser.add_argument("--quick", action="store_true", help="small scenes only")
    parser.add_argument("--threads", type=int, help="torch threads (default: torch's choice)")
    parser.add_argument(
        "--cpu-time", action="store_true", help="processor time, for a busy machine (with --threads 1)"
    )
    parser.add_argument("--operators", action="store_true", help="also tell where the time goes")
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.cpu_time:
        clock = time.process_time
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    report: dict[str, Any] = {
        "what": "the rasterizer against naive pure-torch peers, and its cost per listed and per blended (Gaussian, tile) pair",
        "method": f"fastest of {options.rounds} calls, forward and backward each; the fit minimises the relative error",
        **conditions("torch"),
        "threads": torch.get_num_threads(),
    }
    report["peers"] = against_peers(options.rounds, options.quick)
    report["scaling"] = scaling(options.rounds, options.quick)
    report["fit"] = fit(report["scaling"])
    if options.operators:
        report["operators"] = {
            f"{count}@{size}": operators(count, size)
            for count, size in ((5_000, 256), (50_000, 512), (500_000, 256))
        }
    keep(report, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
