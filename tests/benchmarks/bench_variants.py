"""The cost of what the variants' drop-ins draw beside v1's image: FastGS's tiles, Taming's sums, 2DGS's surfels; as ratios to v1.

python tests/benchmarks/bench_variants.py [--count 10000] [--size 128] [--rounds 5] [--threads 1]

CPU time of this process, the least of the rounds: on a busy machine wall-clock time says nothing.
"""

import resource
from collections.abc import Callable
from typing import Any

import measuring
import torch

from splatfix.kernels.contributions import contributions
from splatfix.kernels.rasterizer import rasterize
from splatfix.kernels.surfels import rasterize_surfels
from tests.kernels.scenes import cloud, discs, look_at


def main() -> None:
    parser = measuring.parser(__doc__, rounds=5)
    for name, default in (("count", 10000), ("size", 128), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    settings = look_at(given.size, given.size)
    some = {"spread": 1.2, "size": (0.01, 0.06)}
    inputs, surfels = (
        {name: item.float() for name, item in made(given.count, 1, **some).items()} for made in (cloud, discs)
    )
    upstream = torch.randn(3, given.size, given.size)
    weights = torch.rand(given.size, given.size)

    def step(draw: Callable[..., Any], scene: dict[str, torch.Tensor], **options: Any) -> Callable[[], None]:
        def run() -> None:
            leaves = {name: item.clone().requires_grad_() for name, item in scene.items()}
            points = torch.zeros(given.count, 3, requires_grad=True)
            drawn = draw(settings._replace(**options), means2D=points, **leaves)
            loss = (drawn.color * upstream).sum()
            (loss + drawn.allmap.mean() if hasattr(drawn, "allmap") else loss).backward()

        return run

    without = {name: item for name, item in inputs.items() if name != "shs"}
    cases = {
        "v1": step(rasterize, inputs),
        "FastGS, mult 0.5": step(rasterize, inputs, compact_box=0.5),
        "the sums of Taming, FastGS": lambda: contributions(settings, **without, pixel_weights=weights),
        "2DGS": step(rasterize_surfels, surfels),
    }
    base = 0.0
    for name, run in cases.items():
        seconds = measuring.least(given.rounds, run)
        base = base or seconds
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{name:28} {seconds:7.3f} s  {seconds / base:5.1f} x v1  {peak:6.0f} MiB peak so far")


if __name__ == "__main__":
    main()
