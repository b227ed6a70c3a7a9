"""Criteria about how a run went rather than what it learned: memory, time, whose code ran, and that it repeats."""

from __future__ import annotations

from collections.abc import Mapping

from splatfix.certify.criteria.criterion import MISSING, Measure, Measures, Training, criterion

MAX_EVALUATION = 1.1
MAX_GROWTH = 0.01
"""Of the training peak, per 1,000 iterations, beyond what the model itself grows by."""
LEAST_GROWTH, LEAST_GPU_GROWTH = 16 << 20, 2 << 20
"""Bytes below which a difference in memory, over the measured part of a run or between its phases, is the allocator's. Of
resident memory: on the sample scenes it is up to 6 MiB. Of CUDA memory: the blocks that torch's allocator cuts small tensors
from."""
_SLACK = "what an allocator keeps (16 MiB, on a GPU 2 MiB)"
MAX_USED = 0.97
"""Of all memory. Above it training was 20 times slower, because the driver moves memory to the host and back."""
MIN_TIMED = 0.9


@criterion(
    "evaluation-memory",
    title="Evaluation needs no more memory than training",
    required=f"evaluation at most {MAX_EVALUATION:g} times training, or {_SLACK} more",
    why="Evaluation keeps what only training needs, as it does where gradients are recorded: it runs out of memory first.",
    source="field report: mip-splatting on a 16 GB card, whose evaluation ran with autograd on",
    advice="Evaluate under torch.no_grad(), one view after the other, and keep numbers instead of tensors.",
)
def evaluation_memory(training: Training) -> Measures:
    """Compare the memory of evaluation and training: allocated on the GPU, or resident beyond what the process began with."""
    memory = training.record.memory
    slack = LEAST_GPU_GROWTH if memory.cuda else LEAST_GROWTH
    train, evaluation = memory.peaks
    start: int | None = 0
    held = "allocated on the GPU"
    if not memory.cuda:
        held = "resident beyond Python and torch"
        start = None if training.stack or memory.host is None else memory.host.start
    if train is None or evaluation is None or start is None:
        return Measure(None, "the peaks of training and evaluation are not told apart here")
    train, evaluation = train - start, evaluation - start
    met = evaluation <= MAX_EVALUATION * train or evaluation - train < slack
    return Measure(met, f"{_mib(evaluation)} in evaluation, {_mib(train)} in training, {held}")


@criterion(
    "memory-growth",
    title="Memory does not creep up",
    required=f"below {MAX_GROWTH:.0%} of the peak per 1,000 iterations, or {_SLACK} in all",
    why="Memory creeps up without the model growing: something is kept from every iteration, and a long run will end early.",
    source="field report: VRAM of mip-splatting, SuGaR and MeshSplatting on 16 GB: creep; "
    "WangFeng18/3d-gaussian-splatting#5: SSIM kept it",
    advice="Look for what is kept from every iteration, such as a list of losses that were not detached; splatfix monitor "
    "records the memory of any trainer.",
)
def memory_growth(training: Training) -> Measures:
    memory = training.record.memory
    slack = LEAST_GPU_GROWTH if memory.cuda else LEAST_GROWTH
    growth = memory.growth
    if growth is None:
        return Measure(None, "too few iterations with one number of Gaussians, or memory cannot be read here")
    peak = (memory.cuda.train.allocated if memory.cuda else memory.rss) or 0
    between = f"iterations {growth.start} to {growth.end}"
    grown = growth.per_1000 * (growth.end - growth.start) / 1000
    measured = f"{_mib(growth.per_1000)} per 1,000 iterations beyond the model ({between}), peak {_mib(peak)}"
    return Measure(growth.per_1000 < MAX_GROWTH * peak or grown < slack, measured)


@criterion(
    "memory-utilisation",
    title="Memory is not full",
    required=f"below {MAX_USED:.0%}",
    why="Memory is all but full: the system moves it to and fro, and every iteration takes many times as long.",
    source="field report: VRAM of mip-splatting, SuGaR and MeshSplatting on 16 GB; Linketic/CityGaussian#131: a hundredth of the "
    "speed",
    advice="End other programs that hold memory, train at a smaller --resolution, or with fewer Gaussians; splatfix vram names "
    "what else saves memory.",
)
def memory_utilisation(training: Training) -> Measures:
    memory, cuda = training.record.memory, training.record.memory.cuda
    share, kind = None, "of the GPU's memory in use, by all programs"
    if cuda and training.record.machine.gpu_integrated:
        return Measure(
            None, "this GPU shares the machine's memory, and what files are cached in counts as used"
        )
    if cuda:
        share = cuda.used_share
    elif training.stack:
        return None
    elif memory.rss is not None and memory.limit:
        share = memory.rss / memory.limit
        kind = f"of the {memory.limit / 2**30:.1f} GiB that this process may use"
    if share is None:
        return Measure(None, "not known on this system")
    return Measure(share < MAX_USED, f"{share:.1%} {kind}")


@criterion(
    "memory-spill",
    title="Nothing of the GPU's memory spills to host memory",
    why="The GPU is full, and Windows' driver goes on in host memory, which is some 20 times slower.",
    source="field report: mip-splatting under WSL2, where what the driver moves shows as shared GPU memory",
    advice="End other programs that use the GPU, and make the training fit: splatfix vram names the settings. Windows refuses "
    "instead of spilling with 'CUDA - Sysmem Fallback Policy: Prefer No Sysmem Fallback' in the NVIDIA Control Panel.",
)
def memory_spill(training: Training) -> Measures:
    """Take what Windows' driver, also under WSL2, moved to host memory, where others refuse; of others nothing is said."""
    cuda, total = training.record.memory.cuda, training.record.machine.gpu_memory
    if cuda is None:
        return None
    over = (cuda.train.reserved or 0) - total if total else 0
    if cuda.spill is None and over <= 0:
        return None
    spilled = max(cuda.spill or 0, over)
    return Measure(spilled == 0, f"at least {_mib(spilled)}")


@criterion(
    "time-by-phase",
    title="Phases account for the time",
    required=f"forward and backward timed, all phases together at least {MIN_TIMED:.0%} of the training",
    why="Time goes where no phase is: a speed-up of one phase could not be told from the whole.",
    source="field report: a trainer whose forward pass became 88 times faster, and its backward pass no faster",
    advice="Look for work between the phases: saving, logging, waiting for the GPU.",
    # beside other programs a few steps lose more than that between them
    learning=True,
)
def time_by_phase(training: Training) -> Measures:
    phases, total = training.record.phases, training.record.seconds.get("train") or 0.0
    timed = sum(phases.values())
    both = phases.get("forward", 0.0) > 0 and phases.get("backward", 0.0) > 0
    met = total > 0 and both and timed >= MIN_TIMED * total
    if training.stack and not met:
        # a trainer that draws by functions that are not watched is no fault of it
        return Measure(None, "its phases could not be told apart")
    if not timed or not total:
        return MISSING
    shares = sorted(((seconds / timed, name) for name, seconds in phases.items()), reverse=True)
    listed = ", ".join(f"{name} {share:.0%}" for share, name in shares)
    measured = f"{listed}; {bound_by(phases)}; {timed:.1f} of {total:.1f} s timed"
    return Measure(met, measured, missing=not both)


def bound_by(phases: Mapping[str, float]) -> str:
    """Return which phase takes most, and how much all would gain if it took no time, which the others bound (Amdahl's law)."""
    slowest = max(phases, key=lambda name: phases[name])
    others = sum(phases.values()) - phases[slowest]
    if others <= 0:
        return f"all in {slowest}"
    gain = 1.0 + phases[slowest] / others
    return f"most in {slowest}: {gain:.2f} times as fast in all if that took no time"


def _mib(size: float) -> str:
    return f"{size / 2**20:,.0f} MiB"
