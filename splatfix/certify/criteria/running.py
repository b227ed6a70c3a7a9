"""What ran, and to which end: its length, its renderer, no error of CUDA."""

from __future__ import annotations

import re

from smoke_trainer.record import Implementation, TrainerError
from splatfix.certify.criteria.criterion import SMOKE, Measure, Measures, Training, criterion
from splatfix.core.runner import Completed
from splatfix.core.words import counted

_CUDA_ERROR = re.compile(
    r"CUDA (?:runtime |driver )?error|no kernel image is available|illegal memory access|device-side assert triggered"
    r"|misaligned address|unspecified launch failure|\bcudaError[A-Z]\w+|CUDA_ERROR_[A-Z_]+",
    re.IGNORECASE,
)
_LONGEST_LINE = 300
_SIGNALS = {
    9: "No program ends itself this way: where memory runs out the kernel ends the one that holds most "
    "(dmesg and journalctl -k say so), otherwise a person or a batch system did.",
    11: "Compiled code read or wrote memory that is not its own: an extension that does not fit this torch or driver.",
    6: "Compiled code gave up; what it said is in the trainer's log.",
    4: "Compiled code has instructions that this processor lacks.",
}
"""What a signal that ended a trainer means, by its number (signal(7))."""
OTHER_PACKAGES = (
    "Run splatfix diagnose: it names packages that are not what their name says, and which one is imported."
)


@criterion(
    "scene-readable",
    title="The scene can be read",
    required="a readable scene",
    why="",
    source="the trainer's own readers",
    of=(SMOKE,),
    without_result=True,
)
def scene_readable(training: Training) -> Measures:
    """Leave a scene of the user's that cannot be read unjudged; that a bundled one cannot is a failed training."""
    if not is_unreadable(training):
        return None
    advice = "Run splatfix scenes check on the scene's folder: it names what the scene lacks."
    return Measure(None, sentences(training.record.error), advice=advice)


@criterion(
    "training-finishes",
    title="Training finishes",
    required="a finished training with a result.json",
    why="The trainer stopped early.",
    source="what was asked for; graphdeco-inria/gaussian-splatting#99: kNN's first kernel ended it",
    advice="Read the end of the scene's trainer.log, and run splatfix diagnose. Where memory ran out, train at a smaller "
    "--resolution.",
    of=(SMOKE,),
    without_result=True,
)
def finished(training: Training) -> Measures:
    """Count the iterations; of a trainer that left no result say what ended it, how far it had come, and what it said last."""
    record = training.record
    if record.error is not None:
        return None if is_unreadable(training) else Measure(False, sentences(record.error))
    if record.iterations is None:
        return _ended_early(training.done, training.latest)
    expected = training.iterations or record.config.iterations or 0
    # "failed" after all iterations: the saved point cloud differs, which is a criterion of its own
    met = record.iterations == expected and record.status in ("ok", "failed")
    measured = f"{counted(record.iterations, 'iteration')}, {record.status}"
    return Measure(met, measured, required=counted(expected, "iteration"))


def _ended_early(done: Completed, latest: str) -> Measure:
    after = f" after {latest}" if latest else " before its first iteration"
    signal = -(done.returncode or 0)
    lines = [line for line in done.stdout.splitlines() if line.strip() and not line.startswith("{")]
    errors = [line for line in lines if line.startswith("error[")]  # followed by lines of advice
    if done.error:
        return Measure(False, f"The trainer failed{after}: {done.error}.")
    if signal > 0:
        return Measure(False, f"The trainer was {done.why()}{after}.", why=_SIGNALS.get(signal, ""))
    if errors:
        return Measure(False, errors[-1].partition(": ")[2].strip())
    if lines:
        return Measure(False, lines[-1].strip())
    return Measure(False, done.why() or "The trainer wrote no result.")


def is_unreadable(training: Training) -> bool:
    """Return whether the loader refused a scene of the user's; a bundled one that cannot be read is splatfix's failure."""
    error = training.record.error
    return training.own_scene and error is not None and error.code == "unreadable-scene"


def sentences(error: TrainerError | None) -> str:
    """Return the trainer's error for a report: what happened, what it means, what to do."""
    if error is None:
        return ""
    return " ".join(sentence(text) for text in (error.message, error.note, error.hint)).strip()


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop; "" stays empty."""
    text = text.strip().rstrip(".")
    return text and f"{text[0].upper()}{text[1:]}."


@criterion(
    "renderer-as-asked",
    title="The renderer is the one asked for",
    required="the renderer that was asked for",
    why="A different renderer ran than the one requested.",
    source="what was asked for; graphdeco-inria/gaussian-splatting#1163: another branch of the rasterizer ran, and all was black",
    advice=OTHER_PACKAGES,
    of=(SMOKE,),
)
def renderer_as_asked(training: Training) -> Measures:
    """Compare the renderer that ran with the one that was asked for."""
    ran = training.record.implementations.get("renderer", Implementation())
    return Measure(ran.kind == training.renderer, f"{ran.kind} ({ran.name})", required=training.renderer)


@criterion(
    "no-cuda-error",
    title="No CUDA error",
    required="no CUDA error in the trainer's output",
    why="A kernel did not run, or wrote where it must not: what was computed after it cannot be trusted.",
    source="reports of no kernel image on RTX 50 cards, and of illegal addresses that a later call reported",
    advice="Run splatfix diagnose: it names the binaries without code for this GPU; splatfix install rebuilds them.",
    without_result=True,
)
def no_cuda_error(training: Training) -> Measures:
    """Look for CUDA's errors in all that the trainer and the libraries below it printed; of a CPU nothing is said without one."""
    line = next((line.strip() for line in training.output.splitlines() if _CUDA_ERROR.search(line)), "")
    if training.device == "cpu" and (not line or training.stack):
        return None
    return Measure(not line, line[:_LONGEST_LINE] or "none was printed")
