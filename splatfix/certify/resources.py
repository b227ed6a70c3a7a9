"""Criteria about how a run went rather than what it learned: memory, time, and which code ran."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from splatfix.certify.measured import criterion, get, number
from splatfix.certify.model import Criterion, Outcome
from splatfix.core.words import counted

MAX_EVALUATION = 1.1
"""Evaluation may hold this many times the memory of training: it needs no gradients."""
MAX_GROWTH = 0.01
"""Of the training peak, per 1,000 iterations, beyond what the model itself grows by."""
LEAST_GROWTH, LEAST_GPU_GROWTH = 16 << 20, 2 << 20
"""Bytes below which a difference in memory, over the measured part of a run or between its phases, is the allocator's. Of
resident memory: on the sample scenes it is up to 6 MiB. Of CUDA memory: the blocks that torch's allocator cuts small tensors
from."""
MAX_USED = 0.97
"""Of all memory. Above it training was 20 times slower, because the driver moves memory to the host and back."""
MIN_TIMED = 0.9
"""Of the training time that the phases must account for."""
MAX_LOST = 0.1
"""Of the time, in iterations that took 2.5 times as long as those around them."""
MAX_DRIFT = 1.5
"""Iterations of one number of Gaussians may become this many times slower."""
IDLE = 0.1
"""Of a core that other programs take in a run on an idle CPU: one core's work during as much of a run as it takes to fail
``throughput-steady``, a tenth. Processor time grows with theirs: beside a compiler on two cores it was 1.9 times as much."""

_CUDA_ERROR = re.compile(
    r"CUDA (?:runtime |driver )?error|no kernel image is available|illegal memory access|device-side assert triggered"
    r"|misaligned address|unspecified launch failure|\bcudaError[A-Z]\w+|CUDA_ERROR_[A-Z_]+",
    re.IGNORECASE,
)
_GUIDE = "field report: VRAM of mip-splatting, SuGaR and MeshSplatting on 16 GB"
_PARTS = ("renderer", "ssim", "knn", "optimizer")


def judge_resources(result: Mapping[str, Any]) -> tuple[Criterion, ...]:
    """Memory, time and code of one run."""
    return (
        _evaluation_memory(result),
        _growth(result),
        _used(result),
        _phases(result),
        _steady(result),
        _identified(result),
    )


def no_cuda_error(output: str, device: str) -> tuple[Criterion, ...]:
    """That CUDA reported no error, by all that the trainer and the libraries below it printed; nothing where it did not run."""
    line = next((line.strip() for line in output.splitlines() if _CUDA_ERROR.search(line)), "")
    if device == "cpu" and not line:
        return ()
    judged = criterion(
        "no-cuda-error",
        not line,
        line[:300] or "none was printed",
        "no CUDA error in the trainer's output",
        "A kernel did not run, or wrote where it must not: what was computed after it cannot be trusted.",
        "reports of no kernel image on RTX 50 cards, and of illegal addresses that a later call reported",
    )
    return (judged,)


def _unknown(result: Mapping[str, Any], name: str) -> bool | None:
    """A measurement that the system does not give leaves the criterion unmeasured; one that is left out fails it."""
    return None if name in result else False


def _mib(value: float) -> str:
    return f"{value / 2**20:,.0f} MiB"


def _peaks(result: Mapping[str, Any]) -> tuple[float | None, float | None, str]:
    """The peaks of training and evaluation in bytes, and what they are peaks of."""
    cuda = get(result, "memory", "cuda")
    if isinstance(cuda, Mapping):
        train, evaluation = number(get(cuda, "train", "allocated")), number(get(cuda, "eval", "allocated"))
        return train, evaluation, "allocated on the GPU"
    start = number(get(result, "memory", "host", "start"))
    train, evaluation = (number(get(result, "memory", "host", name)) for name in ("train", "eval"))
    if start is None or train is None or evaluation is None:
        return None, None, ""
    return train - start, evaluation - start, "resident beyond Python and torch"


def _allocator(result: Mapping[str, Any]) -> int:
    """Bytes by which memory may differ because of its allocator alone."""
    return LEAST_GPU_GROWTH if get(result, "memory", "cuda") else LEAST_GROWTH


def _evaluation_memory(result: Mapping[str, Any]) -> Criterion:
    train, evaluation, what = _peaks(result)
    known = train is not None and evaluation is not None
    return criterion(
        "evaluation-memory",
        evaluation <= MAX_EVALUATION * train or evaluation - train < _allocator(result)
        if train is not None and evaluation is not None
        else _unknown(result, "memory"),
        f"{_mib(evaluation or 0)} in evaluation, {_mib(train or 0)} in training, {what}"
        if known
        else "this system does not tell the peaks of training and evaluation apart",
        f"evaluation at most {MAX_EVALUATION:g} times training, or {_mib(_allocator(result))} more",
        "Evaluation keeps what only training needs, as it does where gradients are recorded: it runs out of memory first.",
        "field report: mip-splatting on a 16 GB card, whose evaluation ran with autograd on",
    )


def _growth(result: Mapping[str, Any]) -> Criterion:
    rate, (train, _, _) = number(get(result, "memory", "growth", "per_1000")), _peaks(result)
    peak = train if get(result, "memory", "cuda") else number(get(result, "memory", "rss"))
    first, last = (number(get(result, "memory", "growth", name)) or 0.0 for name in ("from", "to"))
    allocator = _allocator(result)
    good = _unknown(result, "memory")
    if rate is not None and peak is not None:
        good = rate < MAX_GROWTH * peak or rate * (last - first) / 1000 < allocator
    return criterion(
        "memory-growth",
        good,
        f"{_mib(rate or 0)} per 1,000 iterations beyond the model (iterations {first:.0f} to {last:.0f}), peak {_mib(peak or 0)}"
        if rate is not None
        else "the run was too short, or memory cannot be read here",
        f"below {MAX_GROWTH:.0%} of the peak per 1,000 iterations, or {_mib(allocator)} in all",
        "Memory creeps up without the model growing: something is kept from every iteration, and a long run will end early.",
        f"{_GUIDE}: creep",
    )


def _used(result: Mapping[str, Any]) -> Criterion:
    cuda = get(result, "memory", "cuda")
    if isinstance(cuda, Mapping):
        share, what = number(cuda.get("used_share")), "of the GPU's memory in use, by all programs"
    else:
        peak, limit = number(get(result, "memory", "rss")), number(get(result, "memory", "limit"))
        share = peak / limit if peak is not None and limit else None
        what = f"of the {(limit or 0) / 2**30:.1f} GiB that this process may use"
    return criterion(
        "memory-utilisation",
        _unknown(result, "memory") if share is None else share < MAX_USED,
        "not known on this system" if share is None else f"{share:.1%} {what}",
        f"below {MAX_USED:.0%}",
        "Memory is all but full: the system moves it to and fro, and every iteration takes many times as long.",
        _GUIDE,
    )


def _phases(result: Mapping[str, Any]) -> Criterion:
    phases = {name: number(value) or 0.0 for name, value in (get(result, "phases") or {}).items()}
    total, timed = number(get(result, "seconds", "train")), sum(phases.values())
    shares = sorted(((value / timed, name) for name, value in phases.items() if timed), reverse=True)
    forward, backward = phases.get("forward", 0.0), phases.get("backward", 0.0)
    words = ", ".join(f"{name} {share:.0%}" for share, name in shares)
    return criterion(
        "time-by-phase",
        bool(total) and forward > 0 and backward > 0 and timed >= MIN_TIMED * (total or 0.0),
        f"{words}; most in {shares[0][1]}; {timed:.1f} of {total:.1f} s timed"
        if shares and total
        else "not recorded",
        f"forward and backward timed, all phases together at least {MIN_TIMED:.0%} of the training",
        "Time goes where no phase is: a speed-up of one phase could not be told from the whole.",
        "field report: a trainer whose forward pass became 88 times faster, and its backward pass no faster",
    )


def _steady(result: Mapping[str, Any]) -> Criterion:
    lost, drift = (number(get(result, "steadiness", name)) for name in ("lost", "drift"))
    slow = get(result, "steadiness", "slow") or []
    good = (
        _unknown(result, "steadiness")
        if lost is None
        else lost <= MAX_LOST and (drift is None or drift <= MAX_DRIFT)
    )
    where = f", slow: {', '.join(map(str, slow[:5]))}{' ...' if len(slow) > 5 else ''}" if slow else ""
    measured = f"{lost or 0:.1%} of the time lost in slow iterations{where}"
    measured += (
        "" if drift is None else f"; {drift:.2f} times as slow at the end as after the last densification"
    )
    judged = criterion(
        "throughput-steady",
        good,
        measured if lost is not None else "the run was too short",
        f"at most {MAX_LOST:.0%} lost, at most {MAX_DRIFT:g} times as slow",
        "Iterations became slower without more to do: a processor that is hot and throttles, or memory that is full.",
        "field report: an RTX 5060 Ti under WSL2, speed by phase. A CPU is refused only where other programs took less than "
        f"{IDLE:g} of a core.",
    )
    others = number(get(result, "steadiness", "others"))
    on_cpu = get(result, "config", "device") == "cpu"
    if judged.outcome is not Outcome.FAILED or lost is None or not on_cpu:
        return judged
    if others is not None and others < IDLE:
        return judged
    load = (
        "how busy it was is not known"
        if others is None
        else f"other programs kept {others:.1f} of its cores busy"
    )
    return replace(
        judged,
        outcome=Outcome.NOT_MEASURED,
        measured=f"{measured}; not judged: {load} meanwhile",
        why="",
        advice="Certify again while nothing else runs on this machine: then it is judged.",
    )


def _identified(result: Mapping[str, Any]) -> Criterion:
    iterations = number(get(result, "iterations")) or 0.0
    problems: list[str] = []
    for part in _PARTS:
        ran = get(result, "implementations", part) or {}
        name, module, calls = str(ran.get("name")), str(ran.get("module")), number(ran.get("calls")) or 0.0
        least = 1 if part == "knn" else iterations
        if not module.startswith(name.lower()) and not name.startswith(module):
            problems.append(f"{part}: {name} was named, and {module} ran")
        elif not re.fullmatch("[0-9a-f]{64}", str(ran.get("sha256"))):
            problems.append(f"{part}: the file of {name} is not known")
        elif calls < least:
            problems.append(f"{part}: {name} had {counted(calls, 'call')}")
    ran_code = [
        f"{part} {get(result, 'implementations', part, 'file')} {str(get(result, 'implementations', part, 'sha256'))[:12]}"
        for part in _PARTS
    ]
    return criterion(
        "implementations-identified",
        iterations > 0 and not problems,
        "; ".join(problems or ran_code),
        "each part's code is what was named, known by its digest, and ran in every iteration",
        "Another implementation ran than the report names, or none: its result says nothing about the one that was meant.",
        "field report: an extension silently replaced by a slow path",
    )
