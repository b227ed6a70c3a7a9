"""Milliseconds of CUDA kernels on three GPUs, ESTIMATED from their machine code and what they read and write; none was measured.

A kernel takes the longest of four: issuing its instructions, its double-precision arithmetic, its atomic additions, its memory.
A warp that goes by a Gaussian which none of its pixels takes runs the shortest way round the loop, else all of it.
kernel_estimates.toml has the work of a frame, the GPUs and every assumption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from splatfix.core.toml import table_beside

ASSUMPTIONS = table_beside(__file__)
_WARP, _SCHEDULERS, _OF_BANDWIDTH = 32, 4, 0.8
Counts = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By architecture ("sm_90"), by module, by kernel: what tools/cuda_kernels.py counts."""


def estimates(ours: Counts, peers: Counts) -> dict[str, dict[str, dict[str, float]]]:
    """Milliseconds, by GPU, by group of kernels, by kernel and in all."""
    result: dict[str, dict[str, dict[str, float]]] = {}
    for name, gpu in ASSUMPTIONS["gpus"].items():
        groups: dict[str, dict[str, float]] = {}
        for kernel in ASSUMPTIONS["kernels"]:
            modules = {**ours[f"sm_{gpu['architecture']}"], **peers[f"sm_{gpu['architecture']}"]}
            counted = modules[kernel["module"]][kernel["kernel"]]
            which = f"{kernel['module']}: {kernel['kernel']}"
            groups.setdefault(kernel["group"], {})[which] = round(_milliseconds(kernel, counted, gpu), 3)
        for times in groups.values():
            times["in all"] = round(sum(times.values()), 3)
        result[name] = groups
    return result


def _milliseconds(kernel: Mapping[str, Any], counted: Mapping[str, Any], gpu: Mapping[str, Any]) -> float:
    gaussians, work = ASSUMPTIONS["gaussians"], ASSUMPTIONS["work"]
    clocks = gpu["multiprocessors"] * gpu["gigahertz"] * 1e9
    doubles = counted["doubles"] * gaussians if kernel["kind"] == "gaussian" else 0
    atomics = 0.0
    if kernel["kind"] == "walk":
        # of Gaussians in lanes an addition for a pair, of pixels in lanes one for each that takes it
        each = work["pairs"] if any(loop["shuffles"] for loop in counted["loops"]) else work["lanes"]
        atomics = counted["atomics"] * each * gaussians
    # read and written of every Gaussian, pair or pixel
    pairs = work["pairs_of_squares" if kernel.get("squares") else "pairs"]
    number = {"gaussian": gaussians, "pair": pairs * gaussians, "pixel": ASSUMPTIONS["pixels"]}
    moved = sum((read + written) * number[what] for what, (read, written) in kernel["bytes"].items())
    seconds = (
        _instructions(kernel, counted) / (clocks * _SCHEDULERS * gpu["issued"]),
        doubles / (clocks * gpu["double"]),
        atomics / (clocks * gpu["atomics"]),
        moved / (_OF_BANDWIDTH * gpu["bandwidth"]),
    )
    return 1e3 * float(max(seconds))


def _instructions(kernel: Mapping[str, Any], counted: Mapping[str, Any]) -> float:
    """Of all warps."""
    if kernel["kind"] == "gaussian":
        return float(counted["instructions"] * ASSUMPTIONS["gaussians"] / _WARP)
    if kernel["kind"] == "text":
        warps = 3 * ASSUMPTIONS["pixels"] / kernel["pixels_of_warp"]  # of three channels
        return float(counted["instructions"] * kernel["rounds"] * warps)
    return float(sum(_steps(kernel, counted)) * ASSUMPTIONS["gaussians"])


def _steps(kernel: Mapping[str, Any], counted: Mapping[str, Any]) -> Iterator[float]:
    """Instructions of a warp for a Gaussian, in the loops over Gaussians and, where Gaussians are in lanes, over pixels."""
    work = ASSUMPTIONS["work"]
    walked = work["walked_squares" if kernel.get("squares") else "walked"]
    walks = [loop for loop in counted["loops"] if loop["steps"] and not loop["shuffles"]]
    travels = [loop for loop in counted["loops"] if loop["steps"] and loop["shuffles"]]
    for loop, all_steps, taken in (
        *((loop, walked, work["taken"]) for loop in walks[:1]),
        *((loop, work["steps"], work["steps_taken"]) for loop in travels[:1]),
    ):
        whole, short = loop["instructions"] / loop["steps"], loop["shortest"] / loop["steps"]
        yield whole * taken + short * (all_steps - taken)


def markdown(record: Mapping[str, Any]) -> str:
    """The page's tables: estimated times, and what was counted, before and now."""
    parts = ["| GPU, estimated | " + " | ".join(_GROUPS) + " |", "|---" * (len(_GROUPS) + 1) + "|"]
    for gpu, groups in record["estimated_milliseconds"].items():
        times = [f"{groups[group]['in all']:.2f} ms" for group in _GROUPS]
        parts.append(f"| {gpu} | {' | '.join(times)} |")
    parts += ["", f"| kernel | {' | '.join(_COLUMNS)} |", "|---" * (len(_COLUMNS) + 1) + "|"]
    before = record["before"]["architectures"]
    for architecture, modules in before.items():
        for module, kernels in modules.items():
            now = record["architectures"][architecture][module]
            for kernel in sorted(kernels.keys() & now.keys()):
                both = ((column(kernels[kernel]), column(now[kernel])) for column in _COLUMNS.values())
                cells = [" → ".join(dict.fromkeys(figures)) for figures in both]
                parts.append(f"| `{kernel}` ({module}), {architecture} | {' | '.join(cells)} |")
    for architecture, files in record["peers"]["architectures"].items():
        for file, kernels in files.items():
            for kernel, counted in kernels.items():
                cells = [column(counted) for column in _COLUMNS.values()]
                parts.append(f"| *`{kernel}`* ({file}), {architecture} | {' | '.join(cells)} |")
    return "\n".join(parts)


def _a_step(counted: Mapping[str, Any]) -> str:
    """Instructions of a pair of a Gaussian and a pixel, in each loop over pairs."""
    loops = [loop for loop in counted["loops"] if loop["steps"]]
    each = {f"{loop['instructions'] / loop['steps']:.0f}" for loop in loops if not loop["shuffles"]}
    travelling = {f"{loop['instructions'] / loop['steps']:.0f}" for loop in loops if loop["shuffles"]}
    return " + ".join("/".join(sorted(some)) for some in (each, travelling) if some)


_GROUPS = ("ours", "Inria", "ours, SSIM", "fused-ssim")
_COLUMNS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "instructions": lambda counted: str(counted["instructions"]),
    "of a step": _a_step,
    "in double": lambda counted: str(counted["doubles"]),
    "registers": lambda counted: str(counted.get("registers", "")),
    "shared bytes": lambda counted: str(counted.get("shared", "")),
    "occupancy": lambda counted: str(counted.get("occupancy", "")),
}
