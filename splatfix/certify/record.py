"""What a trainer recorded of one run, typed: the smoke trainer's ``result.json``, or what was observed of a stack's own.

A trainer may be broken, or its document a stranger's: what is missing, or of another type, is None or empty here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from splatfix.core.codec import fitting

LARGEST = 1e60
"""No measurement is larger: float32 ends at 3.4e38, and what is beyond cannot be drawn."""
Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Count = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Config(Struct, frozen=True):
    """The settings that results are judged and compared by. ``TrainingRecord.settings`` has all, as the trainer wrote them."""

    iterations: Count | None = None
    """As many as were asked for."""
    psnr_floor: Number | None = None
    """In dB; None where there is no reference for this scene, length and size."""
    renderer: str | None = None
    device: str | None = None
    resolution: Count | None = None
    strategy: str | None = None
    sh_degree: Count | None = None
    seed: Count | str | None = None
    """A stack's own trainer does not tell its number."""
    groups: tuple[str, ...] = ()
    """Parameter groups of a stack's own trainer; those of the smoke trainer are always the same."""


class Split(Struct, frozen=True):
    """Names of the views, or digests of their pixels where a trainer renders them without names."""

    train: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    """Images that are, byte for byte, in both."""


class Implementation(Struct, frozen=True):
    """The code of one part that ran, as it was seen from inside the run."""

    name: str | None = None
    version: str | None = None
    engine: str | None = None
    kind: str | None = None
    """Of a renderer: as it was asked for."""
    module: str | None = None
    file: str | None = None
    sha256: str | None = None
    """Of that file."""
    calls: Count | Mapping[str, Count] | None = None
    """Of an extension that a stack's own trainer called: by function."""


class TrainingMachine(Struct, frozen=True):
    """What it ran on; memory in bytes."""

    cpu: str | None = None
    cores: Count | None = None
    threads: Count | None = None
    memory: Count | None = None
    gpu: str | None = None
    gpu_memory: Count | None = None
    gpu_integrated: bool | None = None
    """It shares the machine's memory (GB10, Thor, Jetson); None where that was not told."""


class ImageQuality(Struct, frozen=True):
    """Means over views."""

    psnr: Number | None = None
    """In dB."""
    ssim: Number | None = None
    views: Count | None = None
    lpips: Number | None = None
    lpips_note: str = ""
    """Why LPIPS was not measured."""


class TrainLoss(Struct, frozen=True):
    """The loss of training views; None where it was not finite."""

    first: Number | None = None
    """Mean of the first ten iterations."""
    last: Number | None = None


class GaussianCounts(Struct, frozen=True):
    """How many there were, and what densification did."""

    initial: Count | None = None
    final: Count | None = None
    cloned: Count | None = None
    split: Count | None = None
    pruned: Count | None = None
    added: Count | None = None
    """From outside clones and splits are not told apart."""
    removed: Count | None = None


class GroupGradients(Struct, frozen=True):
    """Norms of the gradient of one parameter group, over the steps in which it was trained."""

    steps: Count | None = None
    zero_steps: Count | None = None
    """Those with no gradient at all included."""
    none_steps: Count | None = None
    non_finite_steps: Count | None = None
    max: Number | None = None
    last_step: Count | None = None
    """The last iteration with a gradient that was not zero."""
    trained: bool = True
    """``requires_grad`` is on."""
    shape: tuple[tuple[Count, ...], ...] = ()
    """Of the group's first parameters."""


class GroupUpdates(Struct, frozen=True):
    """Whether an optimizer moved one group in the steps that were looked at; see ``smoke_trainer/updates.py``."""

    steps: Count | None = None
    """Those in which the group had a gradient."""
    moved: Count | None = None
    """Those of them in which it moved."""


class Reached(Struct, frozen=True):
    """The share of the Gaussians that a gradient reached in the last steps."""

    share: Number | None = None
    steps: Count | None = None


class HostPeaks(Struct, frozen=True):
    """Resident bytes: what the process held at the start, and the peaks of both phases."""

    start: Count | None = None
    train: Count | None = None
    eval: Count | None = None


class MemoryGrowth(Struct, frozen=True):
    """Bytes per 1,000 iterations beyond what the model grew by, and the iterations between which they were measured."""

    per_1000: Number | None = None
    start: Count | None = field(default=None, name="from")
    end: Count | None = field(default=None, name="to")


class CudaPeak(Struct, frozen=True):
    """Peak bytes of one phase."""

    allocated: Count | None = None
    reserved: Count | None = None


class CudaMemory(Struct, frozen=True):
    """Memory of the GPU."""

    train: CudaPeak = field(default_factory=CudaPeak)
    eval: CudaPeak = field(default_factory=CudaPeak)
    used_share: Number | None = None
    """Of all its memory, by all programs."""
    spill: Count | None = None
    """Bytes that Windows' driver, also under WSL2, moved to host memory, at least; None where no driver does that."""


class Memory(Struct, frozen=True):
    """Memory of a run in bytes."""

    rss: Count | None = None
    """The peak of resident memory."""
    limit: Count | None = None
    """What the process may use."""
    host: HostPeaks = field(default_factory=HostPeaks)
    growth: MemoryGrowth = field(default_factory=MemoryGrowth)
    cuda: CudaMemory | None = None
    """None on a CPU."""


class Steadiness(Struct, frozen=True):
    """How even the iterations were; see ``smoke_trainer.timing``."""

    slow: tuple[Count, ...] = ()
    lost: Number | None = None
    drift: Number | None = None
    others: Number | None = None
    """Cores that other programs kept busy meanwhile."""
    gpu_busy: Number | None = None
    """Share of the time in which other programs computed on the GPU that trained, just before or after, whichever was more."""


class PlyCheck(Struct, frozen=True):
    """The saved point cloud, rendered again."""

    bytes: Count | None = None
    round_trip_difference: Number | None = None
    """The largest difference of a pixel (0..1) from what was trained."""
    tolerance: Number | None = None


class SavedCloud(Struct, frozen=True):
    """A PLY file that a stack's own trainer wrote."""

    count: Count | None = None
    non_finite: Count | None = None
    whole: bool | None = None
    """It has as many values as its header says."""
    error: str | None = None


class FailedImport(Struct, frozen=True):
    """An import in a stack's checkout that failed, and that its code went on without."""

    name: str = ""
    place: str = ""
    """File and line."""
    error: str = ""


class TrainerError(Struct, frozen=True):
    """What ended a trainer: an error that the smoke trainer knows (``code``), or an exception of another (``type``)."""

    code: str | None = None
    message: str = ""
    note: str | None = None
    hint: str | None = None
    type: str | None = None
    module: str | None = None
    """That could not be imported."""
    place: str | None = None
    """File and line in the checkout."""
    function: str | None = None


class Observer(Struct, frozen=True):
    """Whether the code inside a stack's trainer could watch it."""

    started: bool = False
    trouble: str = ""
    """Tracebacks of hooks that could not be set."""


class TrainingRecord(Struct, frozen=True):
    """One run. Made by :meth:`of`; ``document`` is what the trainer wrote, and what a certificate holds."""

    document: Mapping[str, Any] = field(default_factory=dict)
    scene_sha256: str | None = None
    status: str | None = None
    """``ok``, ``failed``, ``interrupted``, or the code of an error."""
    config: Config = field(default_factory=Config)
    iterations: Count | None = None
    """As many as were done; None where the run did not come to a result."""
    resolution: tuple[Count, ...] = ()
    """Width and height in pixels."""
    split: Split = field(default_factory=Split)
    notes: tuple[str, ...] = ()
    """What the scene's files lacked, with what the trainer did about it."""
    implementations: Mapping[str, Implementation] = field(default_factory=dict)
    """By part: ``renderer``, ``ssim``, ``knn``, ``optimizer``; of a stack's own trainer by module."""
    versions: Mapping[str, str | None] = field(default_factory=dict)
    machine: TrainingMachine = field(default_factory=TrainingMachine)
    iterations_per_second: Number | None = None
    heldout: ImageQuality = field(default_factory=ImageQuality)
    training_views: ImageQuality = field(default_factory=ImageQuality)
    initial_heldout: ImageQuality = field(default_factory=ImageQuality)
    train_loss: TrainLoss = field(default_factory=TrainLoss)
    gaussians: GaussianCounts = field(default_factory=GaussianCounts)
    gradients: Mapping[str, GroupGradients] = field(default_factory=dict)
    updates: Mapping[str, GroupUpdates] = field(default_factory=dict)
    reached: Reached = field(default_factory=Reached)
    memory: Memory = field(default_factory=Memory)
    phases: Mapping[str, Number | None] = field(default_factory=dict)
    """Seconds of each phase of an iteration."""
    steadiness: Steadiness = field(default_factory=Steadiness)
    seconds: Mapping[str, Number | None] = field(default_factory=dict)
    """Of each stage: ``setup``, ``train``, ``eval``, ``warm_up``, ``total``."""
    ply: PlyCheck = field(default_factory=PlyCheck)
    error: TrainerError | None = None
    # Of a stack's own trainer only:
    saves: Mapping[str, SavedCloud] = field(default_factory=dict)
    """By iteration."""
    failed_imports: tuple[FailedImport, ...] = ()
    script_errors: Mapping[str, TrainerError] = field(default_factory=dict)
    """Of ``rendering`` and ``metrics``."""
    observer: Observer = field(default_factory=Observer)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> TrainingRecord:
        """The record in a trainer's document; of none, and of one that is no object, everything is empty."""
        return replace(fitting(cls, document), document=document)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Every setting in the trainer's own order, to be shown; what is judged is in ``config``."""
        settings = self.document.get("config")
        return settings if isinstance(settings, Mapping) else {}

    def has(self, name: str) -> bool:
        """Return whether the trainer wrote this part, be it that it cannot be known here (null): what it left out fails."""
        return name in self.document
