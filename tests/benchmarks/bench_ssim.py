"""SSIM forward and backward against its peers in one run: time ratios, errors against float64, peak extra memory.

    python tests/benchmarks/bench_ssim.py [--size 540 960] [--rounds 15] [--memory] [--json FILE]

Peers: the dense 11x11 depthwise form of the Inria code (written out here), and pytorch_msssim and torchmetrics where
installed. Calls are interleaved. A ratio is the median over the rounds of what a peer took against what ours took in the same
round, which a busy machine disturbs least; the milliseconds are the fastest of all rounds.
"""

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable

import measuring
import torch
import torch.nn.functional as F
from measuring import PeakMemory, conditions, keep

from splatfix.kernels.ssim import WINDOW, fused_ssim

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def dense(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Five dense depthwise convolutions, autograd through all of them."""
    weights = torch.tensor(WINDOW, dtype=x.dtype)
    window = torch.outer(weights, weights).expand(x.shape[1], 1, 11, 11).contiguous()

    def blur(image: torch.Tensor) -> torch.Tensor:
        return F.conv2d(image, window, padding=5, groups=x.shape[1])

    m1, m2 = blur(x), blur(y)
    s1, s2, s12 = blur(x * x) - m1 * m1, blur(y * y) - m2 * m2, blur(x * y) - m1 * m2
    return (
        ((2 * m1 * m2 + 1e-4) * (2 * s12 + 9e-4)) / ((m1 * m1 + m2 * m2 + 1e-4) * (s1 + s2 + 9e-4))
    ).mean()


def pair(height: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(1, 3, height // 8 + 2, width // 8 + 2, generator=generator)
    y = F.interpolate(coarse, size=(height, width), mode="bicubic").clamp(0, 1)
    x = (
        F.avg_pool2d(F.pad(y, [1] * 4, mode="replicate"), 3, 1)
        + 0.03 * torch.randn(y.shape, generator=generator)
    ).clamp(0, 1)
    return x, y


def contestants() -> dict[str, Loss]:
    result: dict[str, Loss] = {
        "splatfix": fused_ssim,
        "dense 11x11 (Inria form)": dense,
    }
    if importlib.util.find_spec("pytorch_msssim"):
        from pytorch_msssim import ssim

        result["pytorch_msssim"] = lambda x, y: ssim(x, y, data_range=1.0)
    if importlib.util.find_spec("torchmetrics"):
        from torchmetrics.functional.image import structural_similarity_index_measure as metric

        result["torchmetrics"] = lambda x, y: metric(x, y, data_range=1.0)
    return result


def timed(
    names: dict[str, Loss], x: torch.Tensor, y: torch.Tensor, repeats: int, backward: bool
) -> dict[str, list[float]]:
    """Milliseconds of each loss in each round, after a round that warms up."""
    took: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(repeats + 1):
        for name, loss in names.items():
            image = x.clone().requires_grad_(backward)
            start = time.perf_counter()
            value = loss(image, y)
            if backward:
                value.backward()
            took[name].append(1e3 * (time.perf_counter() - start))
    return {name: milliseconds[1:] for name, milliseconds in took.items()}


def ratio(peer: list[float], ours: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(peer, ours, strict=True))


def peak_memory(name: str, height: int, width: int) -> float:
    """Images' worth of memory (3 planes each) that forward and backward hold beyond the two images, in a fresh process."""
    command = [sys.executable, __file__, "--size", str(height), str(width), "--memory-of", name]
    return float(measuring.run(command).output.split()[-1])


def memory_of(name: str, height: int, width: int) -> float:
    x, y = pair(height, width)
    loss = contestants()[name]
    small = (t[..., :64, :64].contiguous() for t in (x, y))
    first, second = small
    loss(first.requires_grad_(), second).backward()  # loads code and thread pools, which are not counted
    x.requires_grad_()
    with PeakMemory() as peak:
        loss(x, y).backward()
    return peak.bytes / (4 * x.numel())


def main() -> None:
    parser = measuring.parser(__doc__, rounds=15)
    parser.add_argument("--size", type=int, nargs=2, default=[540, 960], metavar=("H", "W"))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--memory", action="store_true", help="also peak extra memory, one process each (Linux)"
    )
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    height, width = args.size
    if args.memory_of:
        print(memory_of(args.memory_of, height, width))
        return
    x, y = pair(height, width)
    names = contestants()
    with torch.no_grad():
        forward = timed(names, x, y, args.rounds, backward=False)
    both = timed(names, x, y, args.rounds, backward=True)
    exact = x.double().requires_grad_()
    value = dense(exact, y.double())
    (gradient,) = torch.autograd.grad(value, exact)
    rows = []
    for name, loss in names.items():
        image = x.clone().requires_grad_()
        result = loss(image, y)
        result.backward()
        result = result.detach()
        same_padding = name.startswith(("splatfix", "dense"))
        row = {
            "name": name,
            "forward_ms": min(forward[name]),
            "forward_backward_ms": min(both[name]),
            "forward_ratio": ratio(forward[name], forward["splatfix"]),
            "forward_backward_ratio": ratio(both[name], both["splatfix"]),
            "value_error": abs(float(result) - float(value.detach())) if same_padding else None,
            "gradient_error": float((image.grad.double() - gradient).abs().max() / gradient.abs().max())
            if same_padding
            else None,
        }
        if args.memory:
            row["extra_images"] = peak_memory(name, height, width)
        rows.append(row)
    print(f"SSIM 3x{height}x{width}, torch {torch.__version__}, {args.threads} threads, {args.rounds} rounds")
    print(
        f"{'':32}{'fwd ms':>9}{'fwd+bwd':>9}{'fwd x':>8}{'both x':>8}{'|dS|':>10}{'rel grad':>10}{'extra memory, images':>22}"
    )
    for row in rows:
        errors = [
            f"{row[key]:10.1e}" if row[key] is not None else f"{'padding':>10}"
            for key in ("value_error", "gradient_error")
        ]
        print(
            f"{row['name']:32}{row['forward_ms']:9.1f}{row['forward_backward_ms']:9.1f}"
            f"{row['forward_ratio']:8.2f}{row['forward_backward_ratio']:8.2f}{''.join(errors)}"
            f"{row.get('extra_images', float('nan')):22.1f}"
        )
    record = {
        "what": "SSIM forward and backward of one image pair, interleaved rounds in one process",
        "ratios": "median over the rounds of (this row's time / splatfix's time in the same round)",
        **conditions("torch", "pytorch-msssim", "torchmetrics"),
        "threads": args.threads,
        "size": [3, height, width],
        "rounds": args.rounds,
        "rows": rows,
    }
    keep(record, args.json)


if __name__ == "__main__":
    main()
