"""A certificate as data: measured criteria, and the levels that were verified."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import Struct, field

from smoke_trainer.record import TrainingRecord
from splatfix.core.proof import Rung
from splatfix.core.step import Command, Step


class Outcome(str, Enum):
    """The result of a criterion or kernel check; ``not-measured`` is neither success nor failure."""

    MET = "met"
    FAILED = "failed"
    NOT_MEASURED = "not-measured"
    UNDETERMINED = "undetermined"
    """Measured, and not met, but the run was too short to be judged by it."""


class Verdict(str, Enum):
    """The result of a certification."""

    CERTIFIED = "certified"
    REHEARSED = "rehearsed"
    """A stack's own trainer met every criterion that the CPU can show; nothing is said about CUDA."""
    NOT_CERTIFIED = "not-certified"
    UNDETERMINED = "undetermined"
    """Nothing failed, but a scene of the user's could not be read, its run was too short to judge, part of a run level could
    not be judged, or not all was run."""


class Criterion(Struct, frozen=True):
    """One requirement on a training run, with what was measured."""

    code: str
    """Kebab-case and stable."""
    outcome: Outcome
    measured: str
    required: str
    why: str = ""
    """For a failure: what it means in practice."""
    source: str = ""
    """Where the threshold comes from."""
    advice: str = ""
    """For a failure, or what stayed open: what to do about it."""
    title: str = ""
    """The requirement as a statement, which is then met or failed."""


def reason_of(item: Criterion) -> str:
    """Return what was measured and what that means, in a line."""
    return f"{item.code}: {item.measured.rstrip('.')}. {item.why}".rstrip()


CODE_AS_INSTALLED = "code-as-installed"
"""The criterion that other code ran than was installed, which explains what failed besides."""


class KernelCheck(Struct, frozen=True):
    """One kernel compared with its float64 reference. Errors are relative to the largest reference value."""

    name: str
    implementation: str
    outcome: Outcome
    value_error: float | None = None
    value_allowed: float = 0.0
    gradient_error: float | None = None
    gradient_allowed: float | None = None
    detail: str = ""
    kind: str = ""
    """``torch`` (its own arithmetic), ``ours``, ``drop-in`` (made by splatfix), ``native`` (compiled), ``python``; "" where
    nothing is installed."""
    version: str = ""
    file: str = ""
    """Of the module that implements it."""
    imported: bool = True
    """False where importing it, or what calls it, raised."""
    pytorch_half: bool = False
    """A drop-in with CUDA kernels, of which a CPU ran none."""

    @property
    def sentence(self) -> str:
        """What is wrong, with the implementation, what was measured and its limit."""
        name = " ".join(filter(None, (self.implementation, self.version)))
        if self.file:
            name += f" of {self.file}"
        parts = []
        for quantity, error, allowed in (
            ("value", self.value_error, self.value_allowed),
            ("gradient", self.gradient_error, self.gradient_allowed or 0.0),
        ):
            if error is not None and error > allowed:
                parts.append(f"{quantity} off by {error:.2g}, allowed {allowed:.2g}")
        return f"{name}: {'; '.join(filter(None, [*parts, self.detail])) or 'not a number'}"

    def advice(self, python: tuple[str, ...]) -> str:
        """What to do where it failed; ``python`` is the option that names its environment."""
        module = self.implementation.partition(".")[0]
        package = module.replace("_", "-")
        if not self.imported:
            look = Command(("splatfix", "diagnose", *python)).shell(windows=False)
            return f"See what keeps {self.implementation} from its import: {look}"
        if self.kind == "native":
            return f"Install {module} anew from its source: splatfix install SOURCE"
        if self.kind == "ours":
            return (
                "Reinstall splatfix: torch's arithmetic is right, and its own kernels are not what they were."
            )
        repair = Command(("splatfix", "install", "--repair", package, *python)).shell(windows=False)
        return f"Put {package} back; where that changes nothing, sitecustomize or a .pth file changes it: {repair}"

    @property
    def native_not_measured(self) -> bool:
        """An installed extension that is not proven: it needs a GPU, or splatfix has no reference or no call for it."""
        return self.kind == "native" and self.outcome is Outcome.NOT_MEASURED


class SceneRun(Struct, frozen=True):
    """One scene trained in the target environment, and its criteria."""

    scene: str
    criteria: tuple[Criterion, ...]
    """What only one fault leads to comes before what many lead to."""
    seconds: float
    record: TrainingRecord = field(default_factory=TrainingRecord, name="result")
    """What the trainer recorded, its ``result.json``; without iterations where there is none."""
    images: tuple[str, ...] = ()
    """Held-out views beside their ground truth, as paths relative to the report."""
    log: str = ""
    """The trainer's output, as a path relative to the report."""
    unreadable: str = ""
    """The loader's error for a scene of the user's; it says nothing about the environment."""

    @property
    def failed(self) -> tuple[Criterion, ...]:
        """Those that failed."""
        return tuple(item for item in self.criteria if item.outcome is Outcome.FAILED)

    @property
    def passed(self) -> bool | None:
        """No criterion failed; None where one could not be judged."""
        outcomes = {item.outcome for item in self.criteria}
        if Outcome.FAILED in outcomes:
            return False
        return None if Outcome.UNDETERMINED in outcomes else True


class Skipped(Struct, frozen=True):
    """A scene that was not trained."""

    scene: str
    reason: str


class Compared(Struct, frozen=True):
    """One measure of a scene beside the baseline's."""

    name: str
    """``speed``, ``train-memory``, ``eval-memory``, ``psnr``, ``ssim`` or ``lpips``."""
    unit: str
    """``it/s``, ``B``, ``dB``, or "" for a ratio."""
    now: float | None
    baseline: float | None
    outcome: Outcome
    """``not-measured`` stands for what is shown and not judged."""
    tolerance: float | None = None
    """Relative, by how much it may be worse; None where it is not judged."""
    why: str = ""
    """What failed, or why it is not judged."""

    @property
    def change(self) -> float | None:
        """Relative to the baseline; None where either is missing or the baseline is zero."""
        if self.now is None or not self.baseline:
            return None
        return self.now / self.baseline - 1


class SceneComparison(Struct, frozen=True):
    """One scene beside the baseline's."""

    scene: str
    outcome: Outcome
    """``failed`` where a measure is worse than tolerated, ``not-measured`` where nothing can be judged."""
    measures: tuple[Compared, ...] = ()
    why: str = ""
    """What failed, or why it is not judged."""


class Comparison(Struct, frozen=True):
    """A certificate beside an earlier one, or beside published figures."""

    baseline: str
    """The name of the published figures; "" for an earlier certificate."""
    source: str
    """Where the baseline comes from, in words."""
    scenes: tuple[SceneComparison, ...]


class Mend(Struct, frozen=True):
    """Something in a checkout or its environment that must be mended before the trainer runs as it is."""

    code: str
    """Of the finding: ``imports-missing``, ``numpy-alias-removed``."""
    summary: str
    remedy: tuple[Step, ...] = ()
    edited: bool = False
    """It was mended in the scratch copy that was run, so that the trainer came further."""


class TestedStack(Struct, frozen=True):
    """A stack's own trainer that was certified."""

    name: str
    """Of the stack it is or was made from; the folder's name where it is none that splatfix knows."""
    folder: str
    remote: str
    commit: str
    """"" where git does not tell."""
    command: Command
    """The training, as it was started."""
    rehearsed: bool
    """On the CPU, with drop-ins; False: on the GPU, with its own extensions."""
    dropins: tuple[str, ...] = ()
    """Which stood in for extensions."""
    mends: tuple[Mend, ...] = ()
    weights: tuple[str, ...] = ()
    """Pretrained weights that could not be had, with the reason; a network kept its random ones."""


class Problem(Struct, frozen=True):
    """One reason why a certificate is not one of success."""

    kind: str
    """``diagnosis``, ``kernel``, ``criterion``, ``level``, ``scene`` or ``run``."""
    where: str
    """The scene; its kind for what is no scene's."""
    criterion: Criterion
    """What failed or could not be judged. Its code is that of the criterion or finding, the name of a kernel or level, or
    ``interrupted``, ``unfinished``."""


def _problem(kind: str, code: str, measured: str, outcome: Outcome, advice: str = "") -> Problem:
    return Problem(kind, kind, Criterion(code, outcome, measured, required="", advice=advice))


class Certificate(Struct, frozen=True):
    """The outcome of one certification."""

    verdict: Verdict
    summary: str
    """What was verified, and what was not, in a sentence or two."""
    reasons: tuple[str, ...]
    """Why it was not certified; empty for any other verdict."""
    suite: str
    renderer: str
    device: str
    proof: tuple[Rung, ...]
    kernels: tuple[KernelCheck, ...]
    scenes: tuple[SceneRun, ...]
    environment: Mapping[str, str]
    """The versions and the hardware it is valid for."""
    repeat: Command
    """The command line that does it again."""
    issued: str
    """UTC, ISO 8601."""
    seconds: float
    skipped: tuple[Skipped, ...] = ()
    interrupted: bool = False
    """Not all scenes of the suite were trained, because somebody ended it."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each source file of the trainer and its kernels, as they were handed to the environment."""
    comparison: Comparison | None = None
    """Each scene beside the baseline's, where one was given."""
    unfinished: bool = False
    """Written while it ran, to be replaced at its end. Where no splatfix runs any more, it was killed."""
    under_way: Mapping[str, Any] = field(default_factory=dict)
    """Of a run that is not finished: what ran, as ``where``, and the trainer's last progress object; empty otherwise."""
    level: int | None = None
    """The run level that was asked for, 1 to 4; None where none was."""
    diagnosis: tuple[Criterion, ...] = ()
    """What ran, compared with what was installed; and where a run level was asked for, the findings of a diagnosis that matter
    for the device."""
    stack: TestedStack | None = None
    """The trainer, where it was a stack's own and not splatfix's."""

    @property
    def python(self) -> tuple[str, ...]:
        """The option that names the environment; () in a container."""
        argv = self.repeat.argv
        return ("--python", argv[argv.index("--python") + 1]) if "--python" in argv else ()

    @property
    def notes(self) -> tuple[Skipped, ...]:
        """Reservations: those of each scene, and warnings of the diagnosis."""
        warnings = (item for item in self.diagnosis if item.outcome is Outcome.NOT_MEASURED)
        return (
            *(Skipped(run.scene, note) for run in self.scenes for note in run.record.notes),
            *(Skipped(item.code, item.measured) for item in warnings),
        )

    @property
    def unreadable(self) -> tuple[Skipped, ...]:
        """Scenes that could not be read, with the loader's error."""
        return tuple(Skipped(run.scene, run.unreadable) for run in self.scenes if run.unreadable)

    @property
    def problems(self) -> list[Problem]:
        """Why it is none of success: what failed, that it did not come to its end, then what could not be judged. Altered code
        before a wrong kernel, for either may be the cause of all that follows; a level fails by what it consists of, and only
        without that it speaks for itself."""
        judged = [Problem("diagnosis", "diagnosis", item) for item in self.diagnosis]
        for kernel in self.kernels:
            judged.append(
                _problem("kernel", kernel.name, kernel.sentence, kernel.outcome, kernel.advice(self.python))
            )
        for run in self.scenes:
            judged += [Problem("criterion", run.scene, item) for item in run.criteria]
            if run.unreadable:
                judged.append(_problem("scene", "scene-readable", run.unreadable, Outcome.UNDETERMINED))
        failed = [item for item in judged if item.criterion.outcome is Outcome.FAILED]
        for rung in () if failed else self.proof:
            if rung.reached is False:
                failed.append(_problem("level", rung.name.value, rung.shown_by, Outcome.FAILED))
        ended = []
        for code in ("interrupted", "unfinished"):
            if getattr(self, code):
                ended.append(_problem("run", code, self.summary, Outcome.UNDETERMINED, "run it again"))
        open_ones = [item for item in judged if item.criterion.outcome is Outcome.UNDETERMINED]
        found = [*failed, *ended, *open_ones]
        if self.verdict is Verdict.UNDETERMINED and not found:
            found.append(_problem("run", "no-reason-recorded", self.summary, Outcome.UNDETERMINED))
        return found
