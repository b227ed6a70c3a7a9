"""What a run records: result.json, one dataclass for each of its objects, and the state that a progress line shows.

`splatfix certify` decodes the same document. A field that changes its meaning, or goes, changes SCHEMA_VERSION.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from smoke_trainer.errors import EXIT_FAILURE, EXIT_OK, EXIT_UNKNOWN

SCHEMA_VERSION = 4


def to_json(value: Any) -> Any:
    """Dataclasses as objects, field for field."""
    if dataclasses.is_dataclass(value):
        # `from` is a keyword of Python, so the field is called `from_`
        names = [field.name for field in dataclasses.fields(value)]
        return {name.rstrip("_"): to_json(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {name: to_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value


@dataclass(frozen=True)
class ConfigReport:
    """The settings that results are judged and compared by; `budget` and `cap` where the strategy has one."""

    preset: Optional[str]
    iterations: int
    psnr_floor: Optional[float]
    renderer: str
    device: str
    resolution: int
    strategy: str
    sh_degree: int
    budget: Optional[float]
    cap: Optional[int]
    background: str
    seed: int


@dataclass(frozen=True)
class ImplementationReport:
    """What really ran as one part of the trainer: the module that its function came from, that module's file (the compiled
    one where it has one) and the file's digest, None for what it does not tell; and how often it was called."""

    name: str
    version: str
    engine: str
    module: Optional[str]
    file: Optional[str]
    sha256: Optional[str]
    calls: int


@dataclass(frozen=True)
class RendererReport(ImplementationReport):
    """The renderer; `kind` is the name that it was chosen by."""

    kind: str


@dataclass(frozen=True)
class ImplementationReports:
    """The implementation of each part that ran."""

    renderer: RendererReport
    ssim: ImplementationReport
    knn: ImplementationReport
    optimizer: ImplementationReport


@dataclass(frozen=True)
class VersionReport:
    """This trainer, Python, its packages, and the CUDA that torch was built with."""

    smoke_trainer: str
    python: str
    torch: str
    numpy: str
    cuda: Optional[str]


@dataclass(frozen=True)
class HardwareReport:
    """Processor, cores this process may use, threads, memory in bytes, GPU, and whether that shares the machine's memory; None
    for what cannot be determined."""

    cpu: Optional[str]
    cores: Optional[int]
    threads: int
    memory: Optional[int]
    gpu: Optional[str]
    gpu_memory: Optional[int]
    gpu_integrated: Optional[bool]


@dataclass(frozen=True)
class RunSetup:
    """What is known with the first iteration: a run that is killed leaves it in its progress lines."""

    config: ConfigReport
    resolution: Tuple[int, int]
    implementations: ImplementationReports
    versions: VersionReport
    machine: HardwareReport


@dataclass(frozen=True)
class SplitReport:
    """Names of the views; `repeated`: held-out ones whose image is also trained on."""

    train: List[str]
    test: List[str]
    repeated: List[str]


@dataclass(frozen=True)
class Quality:
    """Means over some views; PSNR in dB from each whole image's mean squared error.

    `lpips` is None where it was not measured; then `lpips_note` says why.
    """

    psnr: float
    ssim: float
    l1: float
    views: int
    lpips: Optional[float] = None
    lpips_note: str = "not measured: LPIPS is part of the last evaluation only"

    def as_json(self) -> Dict[str, Any]:
        return dict(to_json(self))


@dataclass(frozen=True)
class LossReport:
    """Mean loss over the first and over the last iterations."""

    first: Optional[float]
    last: Optional[float]


@dataclass(frozen=True)
class CountReport:
    """How many Gaussians there were, and what densification did over the whole run."""

    initial: int
    final: int
    peak: int
    cloned: int
    split: int
    pruned: int


@dataclass(frozen=True)
class GradientReport:
    """One parameter group: number of steps, of zero and non-finite ones; min, median and max of the finite norms."""

    steps: int
    zero_steps: int
    non_finite_steps: int
    min: Optional[float]
    median: Optional[float]
    max: Optional[float]


@dataclass(frozen=True)
class ReachReport:
    """The share of the Gaussians that had a gradient within the last `steps`, in which their number stood."""

    share: Optional[float]
    steps: int


@dataclass(frozen=True)
class HostMemoryReport:
    """Resident memory in bytes: the peaks of both phases, and what the process held at the start."""

    eval: int
    train: int
    start: Optional[int]


@dataclass(frozen=True)
class GrowthReport:
    """Growth of memory in bytes per 1,000 iterations, from one iteration to another."""

    per_1000: float
    from_: int
    to: int


@dataclass(frozen=True)
class CudaPeakReport:
    """Peaks of torch's allocator in bytes."""

    allocated: int
    reserved: int


@dataclass(frozen=True)
class CudaMemoryReport:
    """Peaks of both phases; `spill` in bytes, None where it cannot be measured; `used_share` of the GPU's memory at most."""

    eval: Optional[CudaPeakReport]
    train: Optional[CudaPeakReport]
    spill: Optional[int]
    used_share: Optional[float]


@dataclass(frozen=True)
class MemoryReport:
    """In bytes; `cuda` is None on a CPU, `host` where the system does not tell the phases apart. `growth` is that of memory
    beyond the model, `limit` what the process may use."""

    rss: Optional[int]
    limit: Optional[int]
    host: Optional[HostMemoryReport]
    growth: Optional[GrowthReport]
    cuda: Optional[CudaMemoryReport]


@dataclass(frozen=True)
class SteadinessReport:
    """How even the iterations were; see `timing.steadiness`."""

    slow: List[int]
    lost: Optional[float]
    drift: Optional[float]
    others: Optional[float]


@dataclass(frozen=True)
class TensorReport:
    """A live tensor; `name` where it is one of the model's or of the image cache."""

    name: Optional[str]
    shape: List[int]
    dtype: str
    device: str
    bytes: int


@dataclass(frozen=True)
class PlyReport:
    """The PLY file: path below the output folder, and the largest difference of a pixel when it is read and rendered again."""

    path: str
    bytes: int
    round_trip_difference: float
    tolerance: float


@dataclass(frozen=True)
class TrainingReport:
    """A run that trained. `status`: ok, failed or interrupted."""

    schema_version: int
    scene: str
    layout: str
    scene_sha256: str
    status: str
    config: ConfigReport
    resolution: Tuple[int, int]
    implementations: ImplementationReports
    versions: VersionReport
    machine: HardwareReport
    iterations: int
    split: SplitReport
    notes: List[str]
    iterations_per_second: Optional[float]
    heldout: Quality
    training_views: Quality
    initial_heldout: Optional[Quality]
    train_loss: LossReport
    gaussians: CountReport
    gradients: Dict[str, GradientReport]
    updates: Dict[str, Dict[str, int]]  # by group, see `updates.UpdateReport`
    reached: ReachReport
    opacity_resets: int
    sh_degree: int
    memory: MemoryReport
    phases: Dict[str, float]
    steadiness: SteadinessReport
    seconds: Dict[str, float]
    largest_tensors: Optional[List[TensorReport]]
    ply: PlyReport

    @property
    def exit_code(self) -> int:
        return {"ok": EXIT_OK, "interrupted": EXIT_UNKNOWN}.get(self.status, EXIT_FAILURE)


@dataclass(frozen=True)
class ErrorDetails:
    """What happened, what it means, what to do; the traceback where it is not one of our own errors."""

    code: str
    message: str
    note: str
    hint: str
    traceback: Optional[str]


@dataclass(frozen=True)
class ErrorReport:
    """A run that came to no result. `status`: failed, or the error's code."""

    schema_version: int
    scene: str
    config: ConfigReport
    status: str
    error: ErrorDetails
    versions: VersionReport


@dataclass(frozen=True)
class ProgressState:
    """What is known after an iteration. PSNR is of the training view of the latest recorded one, memory in GiB."""

    iteration: int
    iterations: int
    loss: Optional[float]
    gaussians: int
    seconds: float
    iterations_per_second: float
    psnr: Optional[float] = None
    vram_allocated_gb: Optional[float] = None
    rss_gb: Optional[float] = None
    heldout_psnr: Optional[float] = None
    run: Optional[RunSetup] = None

    def as_json(self) -> Dict[str, Any]:
        """For a JSON line, without what is not known; the loss is always there."""
        document: Dict[str, Any] = to_json(self)
        return {name: value for name, value in document.items() if value is not None or name == "loss"}
