"""What a training left to be judged: all of ``result.json``, of the smoke trainer and of a stack's own.

The trainer fills it in, splatfix reads it (``msgspec.convert``), and a certificate carries it. Standard library, Python 3.8. None
is what could not be known; of a run that ended early everything behind ``error`` has its default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Tuple, Union

SCHEMA_VERSION = 7
"""Of result.json: a field that changes its meaning, or goes, changes this."""


@dataclass(frozen=True)
class Config:
    """The settings that results are judged and compared by."""

    preset: Optional[str] = None
    iterations: Optional[int] = None
    """As many as were asked for."""
    psnr_floor: Optional[float] = None
    """In dB; None where there is no reference for this scene, length and size."""
    renderer: Optional[str] = None
    device: Optional[str] = None
    resolution: Optional[int] = None
    strategy: Optional[str] = None
    sh_degree: Optional[int] = None
    budget: Optional[float] = None
    """Of Gaussians, where the strategy has one."""
    cap: Optional[int] = None
    background: Optional[str] = None
    seed: Union[int, str, None] = None
    """A stack's own trainer does not tell its number."""


@dataclass(frozen=True)
class Split:
    """Names of the views, or digests of their pixels where a trainer renders them without names."""

    train: List[str] = field(default_factory=list)
    test: List[str] = field(default_factory=list)
    repeated: List[str] = field(default_factory=list)
    """Images that are, byte for byte, in both."""


@dataclass(frozen=True)
class Implementation:
    """The code of one part that ran, as it was seen from inside the run."""

    name: Optional[str] = None
    version: Optional[str] = None
    engine: Optional[str] = None
    kind: Optional[str] = None
    """Of a renderer: as it was asked for."""
    module: Optional[str] = None
    file: Optional[str] = None
    sha256: Optional[str] = None
    """Of that file."""
    calls: Union[int, Dict[str, int], None] = None
    """Of an extension that a stack's own trainer called: by function."""


@dataclass(frozen=True)
class TrainingMachine:
    """What it ran on; memory of the GPU in bytes."""

    cpu: Optional[str] = None
    cores: Optional[int] = None
    threads: Optional[int] = None
    gpu: Optional[str] = None
    gpu_memory: Optional[int] = None
    gpu_integrated: Optional[bool] = None
    """It shares the machine's memory (GB10, Thor, Jetson)."""


@dataclass(frozen=True)
class ImageQuality:
    """Means over views."""

    psnr: Optional[float] = None
    """In dB."""
    ssim: Optional[float] = None
    l1: Optional[float] = None
    views: Optional[int] = None
    lpips: Optional[float] = None
    lpips_note: str = ""
    """Why LPIPS was not measured."""


@dataclass(frozen=True)
class TrainLoss:
    """The loss of training views, as means of ten iterations at either end; None where it was not finite."""

    first: Optional[float] = None
    last: Optional[float] = None


@dataclass(frozen=True)
class GaussianCounts:
    """How many there were, and what densification did."""

    initial: Optional[int] = None
    final: Optional[int] = None
    peak: Optional[int] = None
    cloned: Optional[int] = None
    split: Optional[int] = None
    pruned: Optional[int] = None
    added: Optional[int] = None
    """From outside clones and splits are not told apart."""
    removed: Optional[int] = None


@dataclass(frozen=True)
class GroupGradients:
    """Norms of the gradient of one parameter group, over the steps in which it was trained."""

    steps: Optional[int] = None
    zero_steps: Optional[int] = None
    """Those with no gradient at all included."""
    none_steps: Optional[int] = None
    non_finite_steps: Optional[int] = None
    min: Optional[float] = None
    median: Optional[float] = None
    max: Optional[float] = None
    last_step: Optional[int] = None
    """The last iteration with a gradient that was not zero."""


@dataclass(frozen=True)
class GroupUpdates:
    """Whether an optimizer moved one group in the steps that were looked at; see ``updates.py``."""

    steps: int = 0
    """Those in which the group had a gradient."""
    moved: int = 0
    """Those of them in which it moved."""


@dataclass(frozen=True)
class Reached:
    """The share of the Gaussians that a gradient reached in the last steps."""

    share: Optional[float] = None
    steps: int = 0


@dataclass(frozen=True)
class HostPeaks:
    """Resident bytes: what the process held at the start, and the peaks of both phases."""

    start: Optional[int] = None
    train: Optional[int] = None
    eval: Optional[int] = None


@dataclass(frozen=True)
class MemoryGrowth:
    """Bytes per 1,000 iterations beyond what the model grew by, and the iterations between which they were measured."""

    per_1000: float = 0.0
    start: int = 0
    end: int = 0


@dataclass(frozen=True)
class CudaPeak:
    """Peak bytes of one phase."""

    allocated: Optional[int] = None
    reserved: Optional[int] = None


@dataclass(frozen=True)
class CudaMemory:
    """Memory of the GPU."""

    train: CudaPeak = field(default_factory=CudaPeak)
    eval: CudaPeak = field(default_factory=CudaPeak)
    used_share: Optional[float] = None
    """Of all its memory, by all programs."""
    spill: Optional[int] = None
    """Bytes that Windows' driver, also under WSL2, moved to host memory, at least; None where no driver does that."""


@dataclass(frozen=True)
class Memory:
    """Memory of a run in bytes."""

    rss: Optional[int] = None
    """The peak of resident memory."""
    limit: Optional[int] = None
    """What the process may use, as certify found it."""
    host: Optional[HostPeaks] = None
    """None where the system does not tell the phases apart."""
    growth: Optional[MemoryGrowth] = None
    """None where the run was too short, or memory cannot be read."""
    cuda: Optional[CudaMemory] = None
    """None on a CPU."""

    @property
    def peaks(self) -> Tuple[Optional[int], Optional[int]]:
        """Of training and evaluation: on a GPU what tensors hold decides whether a scene fits, on a CPU all that is resident."""
        if self.cuda:
            return self.cuda.train.allocated, self.cuda.eval.allocated
        host = self.host or HostPeaks()
        return host.train, host.eval


@dataclass(frozen=True)
class PlyCheck:
    """The saved point cloud, rendered again."""

    path: str = ""
    """Below the output folder."""
    bytes: Optional[int] = None
    round_trip_difference: Optional[float] = None
    """The largest difference of a pixel (0..1) from what was trained."""
    tolerance: Optional[float] = None


@dataclass(frozen=True)
class SavedCloud:
    """A PLY file that a stack's own trainer wrote."""

    count: Optional[int] = None
    non_finite: Optional[int] = None
    error: Optional[str] = None


@dataclass(frozen=True)
class FailedImport:
    """An import in a stack's checkout that failed, and that its code went on without."""

    name: str = ""
    place: str = ""
    """File and line."""
    error: str = ""


@dataclass(frozen=True)
class TrainerError:
    """What ended a trainer: an error that the smoke trainer knows (``code``), or an exception of another (``type``)."""

    code: Optional[str] = None
    message: str = ""
    note: str = ""
    hint: str = ""
    traceback: Optional[str] = None
    type: Optional[str] = None
    module: Optional[str] = None
    """That could not be imported."""
    place: Optional[str] = None
    """File and line in the checkout."""
    function: Optional[str] = None


@dataclass(frozen=True)
class Observer:
    """Whether the code inside a stack's trainer could watch it."""

    started: bool = False
    trouble: str = ""
    """Tracebacks of hooks that could not be set."""


@dataclass(frozen=True)
class TrainingRecord:
    """One run."""

    schema_version: int = SCHEMA_VERSION
    scene: str = ""
    layout: str = ""
    scene_sha256: Optional[str] = None
    status: str = ""
    """``ok``, ``failed``, ``interrupted``, or the code of an error; "" where there is no result."""
    error: Optional[TrainerError] = None
    config: Config = field(default_factory=Config)
    iterations: Optional[int] = None
    """As many as were done; None where the run did not come to a result."""
    resolution: Optional[List[int]] = None
    """Width and height in pixels."""
    split: Split = field(default_factory=Split)
    notes: List[str] = field(default_factory=list)
    """What the scene's files lacked, with what the trainer did about it."""
    implementations: Dict[str, Implementation] = field(default_factory=dict)
    """By part: ``renderer``, ``ssim``, ``knn``, ``optimizer``; of a stack's own trainer by module."""
    versions: Dict[str, Optional[str]] = field(default_factory=dict)
    """Of the trainer, Python, torch and numpy, and the CUDA that torch was built with."""
    machine: TrainingMachine = field(default_factory=TrainingMachine)
    iterations_per_second: Optional[float] = None
    heldout: ImageQuality = field(default_factory=ImageQuality)
    training_views: ImageQuality = field(default_factory=ImageQuality)
    initial_heldout: Optional[ImageQuality] = None
    train_loss: TrainLoss = field(default_factory=TrainLoss)
    gaussians: GaussianCounts = field(default_factory=GaussianCounts)
    gradients: Dict[str, GroupGradients] = field(default_factory=dict)
    updates: Dict[str, GroupUpdates] = field(default_factory=dict)
    reached: Reached = field(default_factory=Reached)
    opacity_resets: int = 0
    sh_degree: Optional[int] = None
    """Of the spherical harmonics, at the end."""
    memory: Memory = field(default_factory=Memory)
    phases: Dict[str, float] = field(default_factory=dict)
    """Seconds of each phase of an iteration, summed up."""
    seconds: Dict[str, Optional[float]] = field(default_factory=dict)
    """Of each stage: ``setup``, ``train``, ``eval``, ``warm_up``, ``total``."""
    ply: PlyCheck = field(default_factory=PlyCheck)
    # Of a stack's own trainer only:
    saves: Dict[str, SavedCloud] = field(default_factory=dict)
    """By iteration."""
    failed_imports: List[FailedImport] = field(default_factory=list)
    observer: Observer = field(default_factory=Observer)
