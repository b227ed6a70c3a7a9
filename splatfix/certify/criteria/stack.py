"""The criteria of a stack's own trainer: that it ran as it is, on its extensions, to its end; and that it learned."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from splatfix.certify.advice import explained, steps_in_words
from splatfix.certify.criteria import gradients, learning, resources
from splatfix.certify.criteria.criterion import criterion, not_measured
from splatfix.certify.model import Criterion, Mend, Outcome
from splatfix.certify.record import SavedCloud, TrainerError, TrainingRecord
from splatfix.core.runner import Completed
from splatfix.core.words import counted, few

LONG = 1000
"""Iterations from which on a stranger's trainer must have learned as much as splatfix's own on the sample scenes."""
SLOW_LOSS_FACTOR = 0.95
LEAST_GAIN_DB = 0.5
"""What counts as learning in a shorter run: the last loss as a share of the first, and what held-out PSNR gains."""
MENDS = "runs-as-it-is"
"""The criterion whose steps stand with the stack's mends."""
RENDERING, METRICS = "rendering", "metrics"
"""The scripts that run after the training, as their criteria and errors are named."""

_OF_RENDERINGS = ("held-out-views", "held-out-psnr-rises", "held-out-not-above-training")
_LEARNS_SLOWLY = "It learns, though less than a run of this length shows with splatfix's own trainer: more iterations decide it."
_NOT_THERE = "cannot import name"
"""Of Python's ImportError: the module is there, and has no such name."""


def judge_stack(
    record: TrainingRecord,
    done: Completed,
    extensions: Sequence[str],
    mends: Sequence[Mend],
    scripts: Mapping[str, Completed],
    scene_problems: Sequence[Mend] = (),
) -> tuple[Criterion, ...]:
    """Judge one run by all criteria.

    Args:
        extensions: top-level modules that the checkout calls.
        mends: what had to be left out or mended so that it ran at all.
        scene_problems: what does not fit the trainer by its source, see :mod:`splatfix.certify.stacks.scene_layout`.
    """
    measured = [f"{mend.summary.rstrip('.')} [{mend.code}]." for mend in mends]
    mended = criterion(MENDS, not mends, " ".join(measured) or "nothing had to be mended")
    steps = [step for mend in mends for step in mend.remedy]
    todo = [step.command.shell(windows=False) if step.command else step.text for step in steps]
    criteria: tuple[Criterion, ...] = (
        *_scene_fits(record, scene_problems),
        _finished(record, done),
        replace(mended, advice="; ".join(todo)),
        _extensions_ran(record, extensions),
        _no_silent_fallback(record, extensions),
    )
    if record.iterations:  # else nothing more was seen
        criteria += _of_training(record, done, scripts)
    observed = _observed(record, done)
    if observed.outcome is not Outcome.MET:
        # no failure is one of the trainer's where a hook is missing; what had to be mended was seen without
        blind = {"outcome": Outcome.UNDETERMINED, "why": "It was not observed as a whole."}
        criteria = tuple(
            replace(item, **blind) if item.outcome is Outcome.FAILED and item.code != MENDS else item
            for item in criteria
        )
    return (observed, *criteria)


def _of_training(
    record: TrainingRecord, done: Completed, scripts: Mapping[str, Completed]
) -> tuple[Criterion, ...]:
    learned = [
        *(_unless_slow(item, record) for item in learning.for_any_trainer(record)),
        *gradients.of_any_trainer(record),
        gradients.parameters_move(record),
        learning.densification(record, from_outside=True),
        _point_cloud_saved(record),
    ]
    cut = not_rendered = ""
    rendering = scripts.get(RENDERING)
    if not done.ok:
        cut = not_rendered = "the training did not end well"
    elif rendering is None:
        not_rendered = "it has no render.py"
    elif not rendering.ok:
        not_rendered = "its test views were not rendered"
    obstacles = dict.fromkeys(_OF_RENDERINGS, not_rendered)
    criteria = []
    for item in learned:
        # what cannot be met because something before it failed is told there, and not again
        obstacle = obstacles.get(item.code, cut)
        of_training = item.code in ("finite-values", "parameters-move") or item.code.startswith("gradients-")
        if obstacle and item.outcome is Outcome.FAILED and not of_training:
            item = not_measured(item.code, f"{item.measured}: {obstacle}", item.required)
        criteria.append(item)
    for name, ended in scripts.items():
        measured = "exit code 0" if ended.ok else end_of(record.script_errors.get(name), ended)
        script = "render.py" if name == RENDERING else "metrics.py"
        criteria.append(
            criterion("script-finishes", ended.ok, measured, code=f"{name}-finishes", script=script)
        )
    criteria += _of_resources(record)
    unseen = "only the trainer could render before and after saving"
    criteria.append(not_measured("ply-round-trip", unseen, "not observed"))
    return tuple(criteria)


def _of_resources(record: TrainingRecord) -> Iterator[Criterion]:
    """Time and memory by phase, as the observer's clock has them; memory of a GPU only."""
    time = resources.time_by_phase(record)
    if time.outcome is not Outcome.MET:
        # a trainer that draws by functions that are not watched is no fault of it
        time = not_measured("time-by-phase", "its phases could not be told apart", time.measured)
    yield time
    if record.memory.cuda is None or record.memory.cuda.eval.allocated is None:
        yield not_measured("evaluation-memory", "no evaluation was seen, or none on a GPU", "not observed")
    else:
        yield resources.evaluation_memory(record)
    if record.memory.cuda is not None:
        yield resources.memory_utilisation(record)
    if record.memory.growth.per_1000 is None:
        # while Gaussians come, what belongs to the model and what to the trainer is not told apart from outside
        yield not_measured(
            "memory-growth", "too few iterations ran with one number of Gaussians", "not observed"
        )
    else:
        yield resources.memory_growth(record)
    yield from resources.memory_spill(record)


def end_of(error: TrainerError | None, done: Completed) -> str:
    """Why a script ended, in its own words: the exception with its place in the checkout, else its last line of output."""
    if error is not None:
        ending = str(error.type)
        if error.message.strip():
            ending += f": {error.message.strip().splitlines()[0]}"
        if error.place:
            ending += f" ({error.place}, in {error.function})"
        return ending
    if done.error:
        return done.error
    # progress bars end their lines with a carriage return
    output = re.split(r"[\r\n]+", f"{done.stdout}\n{done.stderr}")
    lines = list(filter(None, map(str.strip, output)))
    for line in reversed(lines):
        if re.search(r"\berror\b", line, re.IGNORECASE):
            return line
    if lines:
        return lines[-1]
    return done.why()


def _observed(record: TrainingRecord, done: Completed) -> Criterion:
    """Whether all that the others are judged by was hooked: what the observer misses would look like a fault of the trainer."""
    trouble = record.observer.trouble.strip().splitlines()
    # a trainer that ends before it imports torch leaves no record, and its exit code says enough
    recorded = record.observer.started or not done.ok
    if trouble:
        measured = trouble[-1]
    elif recorded:
        measured = "every hook was set"
    else:
        measured = "no record was written"
    item = criterion("observed", recorded and not trouble, measured)
    if item.outcome is Outcome.MET:
        return item
    advice = "Rehearse it with torch 2.0 or newer; where that is what is installed, report it to splatfix."
    return replace(item, outcome=Outcome.UNDETERMINED, advice=advice)


def _finished(record: TrainingRecord, done: Completed) -> Criterion:
    passes, expected = record.iterations or 0, record.config.iterations or 0
    measured, asked = counted(passes, "iteration"), counted(expected, "iteration")
    if done.ok:
        measured = f"{measured}, exit code 0"
        return criterion("training-finishes/short", passes >= expected, measured, expected=asked)
    ending = end_of(record.error, done)
    how = "killed"
    if done.returncode is not None:
        how = f"exit code {done.returncode}"
    item = criterion("training-finishes/stack", False, f"{measured}, {how}: {ending}", expected=asked)
    message, error = "", ending
    if record.error is not None:
        message = error = f"{record.error.type}: {record.error.message}"
    return explained(item, f"{done.stdout}\n{done.stderr}\n{message}", error=error)


def _scene_fits(record: TrainingRecord, problems: Sequence[Mend]) -> Iterator[Criterion]:
    """By the trainer's source; a trainer that took the scene nonetheless was read wrongly, and is not refused."""
    if not problems:
        return
    measured = " ".join(f"{problem.summary} [{problem.code}]" for problem in problems)
    met: bool | None = False
    if record.iterations:
        met, measured = None, f"{measured} It trained nonetheless."
    item = criterion("scene-fits", met, measured)
    remedies = [step for problem in problems for step in problem.remedy]
    yield replace(item, advice=steps_in_words(remedies))


def _extensions_ran(record: TrainingRecord, extensions: Sequence[str]) -> Criterion:
    ran = {_top(name) for name in record.implementations}
    gone_without = {_top(failed.name) for failed in record.failed_imports}
    idle = [name for name in extensions if name not in ran and name not in gone_without]
    calls = []
    for name, extension in record.implementations.items():
        if isinstance(extension.calls, Mapping):
            listed = ", ".join(f"{function} {count}" for function, count in extension.calls.items())
            calls.append(f"{name} ({extension.name}): {listed}")
    if idle:
        calls.append(f"never called: {', '.join(idle)}")
    named = few(list(extensions)) or "a rasterizer"
    # an extension beside the rasterizer may be for a mode that this run does not take
    met = bool(ran) and not any("raster" in name for name in idle)
    return criterion("extensions-ran", met, "; ".join(calls) or "none was called", extensions=named)


def _no_silent_fallback(record: TrainingRecord, extensions: Sequence[str]) -> Criterion:
    fatal = record.error.module if record.error else None
    lost, of_variants = [], []
    for failed in record.failed_imports:
        top = _top(failed.name)
        if top not in extensions or top == fatal:
            continue
        # a trainer for several variants of a rasterizer asks for what only some have, to find out which it is
        of_a_variant = "raster" in top or failed.name.rpartition(".")[2][:1].isupper()
        if _NOT_THERE in failed.error and of_a_variant:
            of_variants.append(
                f"{failed.place} goes on without {failed.name}, which this variant does not have"
            )
        else:
            lost.append(f"{failed.place}: {failed.name}: {failed.error}")
    return criterion(
        "no-silent-fallback", not lost, "; ".join([*lost, *of_variants]) or "no import of an extension failed"
    )


def _top(module: str) -> str:
    return module.partition(".")[0]


def _unless_slow(item: Criterion, record: TrainingRecord) -> Criterion:
    """A trainer that learns, and slower than ours, is not refused for a short run: how far is for a longer one to show."""
    if item.outcome is not Outcome.FAILED or (record.iterations or 0) >= LONG:
        return item
    if item.code == "loss-falls":
        first, last = record.train_loss.first, record.train_loss.last
        learns = first is not None and last is not None and last <= SLOW_LOSS_FACTOR * first
    elif item.code == "held-out-psnr-rises":
        before, after = record.initial_heldout.psnr, record.heldout.psnr
        learns = before is not None and after is not None and after >= before + LEAST_GAIN_DB
    else:
        return item
    if not learns:
        return item
    advice = "Give it more with --iterations."
    return replace(item, outcome=Outcome.UNDETERMINED, why=_LEARNS_SLOWLY, advice=advice)


def _point_cloud_saved(record: TrainingRecord) -> Criterion:
    expected = str(record.config.iterations)
    final = record.saves.get(expected, SavedCloud()).count
    sound = True
    listed = []
    for iteration, cloud in record.saves.items():
        sound = sound and not (cloud.error or cloud.non_finite or cloud.whole is False)
        text = f"iteration {iteration}: {cloud.error or counted(cloud.count or 0, 'Gaussian')}"
        if cloud.non_finite:
            text += f", {counted(cloud.non_finite, 'non-finite value')}"
        listed.append(text)
    trained = record.gaussians.final
    return criterion(
        "point-cloud-saved",
        sound and final is not None and (trained is None or final == trained),
        ", ".join(listed) or "no point_cloud.ply was found",
        expected=expected,
    )
