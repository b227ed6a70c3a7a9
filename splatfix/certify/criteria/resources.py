"""Criteria about how a run went rather than what it learned: memory and time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from splatfix.certify.criteria.criterion import criterion, unless_short
from splatfix.certify.model import Criterion, Outcome
from splatfix.certify.record import TrainingRecord
from splatfix.core.words import few

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
LEAST_LOST = 0.5
"""Seconds. A quick run on a fast GPU is over in half a second: a single stall of the system is a tenth of it."""
MAX_DRIFT = 1.5
"""Iterations of one number of Gaussians may become this many times slower."""
IDLE = 0.1
"""Of a core that other programs take in a run on an idle CPU: one core's work during as much of a run as it takes to fail
``throughput-steady``, a tenth. Processor time grows with theirs: beside a compiler on two cores it was 1.9 times as much."""
BUSY_GPU = 0.1
"""Share of a GPU's time that others take: their kernels come between ours, so that each may lose as much."""


def evaluation_memory(record: TrainingRecord) -> Criterion:
    """Evaluation holds no more memory than training: allocated on the GPU, or resident beyond what the process began with."""
    host, cuda = record.memory.host, record.memory.cuda
    train, evaluation = host.train, host.eval
    if cuda:
        train, evaluation = cuda.train.allocated, cuda.eval.allocated
    elif host.start is None or train is None or evaluation is None:
        train = evaluation = None
    else:
        train, evaluation = train - host.start, evaluation - host.start
    allocator = _allocator_slack(record)
    met = _if_known(record, "memory")
    measured = "this system does not tell the peaks of training and evaluation apart"
    if train is not None and evaluation is not None:
        met = evaluation <= MAX_EVALUATION * train or evaluation - train < allocator
        measured = f"{_mib(evaluation)} in evaluation, {_mib(train)} in training, "
        measured += "allocated on the GPU" if cuda else "resident beyond Python and torch"
    return criterion("evaluation-memory", met, measured, most=MAX_EVALUATION, allocator=_mib(allocator))


def memory_growth(record: TrainingRecord) -> Criterion:
    """Memory does not grow but by what the model grows."""
    growth, memory = record.memory.growth, record.memory
    rate, peak = growth.per_1000, memory.rss
    if memory.cuda:
        peak = memory.cuda.train.allocated
    allocator = _allocator_slack(record)
    start, end = growth.start or 0, growth.end or 0
    met = _if_known(record, "memory")
    measured = "the run was too short, or memory cannot be read here"
    if rate is not None:
        between = f"iterations {start} to {end}"
        measured = f"{_mib(rate)} per 1,000 iterations beyond the model ({between}), peak {_mib(peak or 0)}"
        if peak is not None:
            met = rate < MAX_GROWTH * peak or rate * (end - start) / 1000 < allocator
    return criterion("memory-growth", met, measured, most=MAX_GROWTH, allocator=_mib(allocator))


def memory_utilisation(record: TrainingRecord) -> Criterion:
    """Memory is not all but full."""
    memory, kind = record.memory, ""
    share: float | None = None
    met, measured = _if_known(record, "memory"), "not known on this system"
    if memory.cuda and record.machine.gpu_integrated:
        measured = (
            "not judged: this GPU shares the machine's memory, and what files are cached in counts as used"
        )
    elif memory.cuda:
        share, kind = memory.cuda.used_share, "of the GPU's memory in use, by all programs"
    elif memory.rss is not None and memory.limit:
        share = memory.rss / memory.limit
        kind = f"of the {memory.limit / 2**30:.1f} GiB that this process may use"
    if share is not None:
        met, measured = share < MAX_USED, f"{share:.1%} {kind}"
    return criterion("memory-utilisation", met, measured, most=MAX_USED)


def memory_spill(record: TrainingRecord) -> Iterator[Criterion]:
    """Nothing was moved to host memory, which Windows' driver does, also under WSL2, where others refuse; of others nothing is
    said."""
    cuda = record.memory.cuda
    if cuda is None:
        return
    spilled = cuda.spill
    total, reserved = record.machine.gpu_memory, cuda.train.reserved
    if total and reserved and reserved > total:
        spilled = max(spilled or 0, reserved - total)
    if spilled is not None:
        yield criterion("memory-spill", spilled == 0, f"at least {_mib(spilled)}")


def time_by_phase(record: TrainingRecord) -> Criterion:
    """The phases of an iteration account for the time of the training."""
    phases = {name: seconds or 0.0 for name, seconds in record.phases.items()}
    total, timed = record.seconds.get("train") or 0.0, sum(phases.values())
    measured = "not recorded"
    if timed and total:
        shares = sorted(((seconds / timed, name) for name, seconds in phases.items()), reverse=True)
        listed = ", ".join(f"{name} {share:.0%}" for share, name in shares)
        measured = f"{listed}; {bound_by(phases)}; {timed:.1f} of {total:.1f} s timed"
    both = phases.get("forward", 0.0) > 0 and phases.get("backward", 0.0) > 0
    item = criterion(
        "time-by-phase", total > 0 and both and timed >= MIN_TIMED * total, measured, least=MIN_TIMED
    )
    # beside other programs a few steps lose more than that between them
    return unless_short(item, record, measured=both)


def bound_by(phases: Mapping[str, float]) -> str:
    """Which phase takes most, and how much all would gain if it took no time (Amdahl's law): where others bound the gain."""
    slowest = max(phases, key=lambda name: phases[name])
    others = sum(phases.values()) - phases[slowest]
    if others <= 0:
        return f"all in {slowest}"
    return (
        f"most in {slowest}: {1.0 + phases[slowest] / others:.2f} times as fast in all if that took no time"
    )


def throughput_steady(record: TrainingRecord) -> Criterion:
    """Iterations do not become slower without more to do; on a CPU or GPU that others used it is not judged."""
    lost, drift = record.steadiness.lost, record.steadiness.drift
    measured = "the run was too short"
    met = _if_known(record, "steadiness")
    if lost is not None:
        seconds = lost * ((record.seconds.get("train") or 0.0) - (record.seconds.get("warm_up") or 0.0))
        stalled = lost > MAX_LOST and seconds > LEAST_LOST
        met = not stalled and (drift is None or drift <= MAX_DRIFT)
        measured = f"{lost:.1%} of the time, {seconds:.1f} s, lost in slow iterations"
        if record.steadiness.slow:
            measured += f", slow: {few([str(number) for number in record.steadiness.slow])}"
        if drift is not None:
            measured += f"; {drift:.2f} times as slow at the end as after the last densification"
    item = criterion(
        "throughput-steady", met, measured, lost=MAX_LOST, seconds=LEAST_LOST, drift=MAX_DRIFT, idle=IDLE
    )
    load = _load_of_others(record)
    if item.outcome is not Outcome.FAILED or lost is None or not load:
        return item
    return replace(
        item,
        outcome=Outcome.NOT_MEASURED,
        measured=f"{measured}; not judged: {load}",
        why="",
        advice="Certify again while nothing else runs on this machine: then it is judged.",
    )


def _load_of_others(record: TrainingRecord) -> str:
    """What other programs took of the device; "" where it was too little to slow a training down."""
    steadiness = record.steadiness
    if record.config.device != "cpu":
        if (steadiness.gpu_busy or 0.0) < BUSY_GPU:
            return ""
        return f"other programs kept the GPU {steadiness.gpu_busy:.0%} busy just before or after"
    if steadiness.others is None:
        return "how busy it was is not known meanwhile"
    if steadiness.others < IDLE:
        return ""
    return f"other programs kept {steadiness.others:.1f} of its cores busy meanwhile"


def _if_known(record: TrainingRecord, part: str) -> bool | None:
    """A measurement that the system does not give leaves the criterion unmeasured; one that is left out fails it."""
    return None if record.has(part) else False


def _mib(size: float) -> str:
    return f"{size / 2**20:,.0f} MiB"


def _allocator_slack(record: TrainingRecord) -> int:
    """Bytes by which memory may differ because of its allocator alone."""
    return LEAST_GPU_GROWTH if record.memory.cuda else LEAST_GROWTH
