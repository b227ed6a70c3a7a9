"""The criteria of a stack's own trainer: that it ran as it is, on its extensions, to its end, and saved what it learned."""

from __future__ import annotations

from collections.abc import Mapping

from splatfix.certify.advice import end_of, steps_in_words
from splatfix.certify.criteria.criterion import STACK, Measure, Measures, StackRun, Training, criterion
from splatfix.core.words import counted, few

MENDS, OBSERVED = "runs-as-it-is", "observed"
RENDERING, METRICS = "rendering", "metrics"
"""The scripts that run after the training, as their criteria and errors are named."""

_NOT_THERE = "cannot import name"
"""Of Python's ImportError: the module is there, and has no such name."""


@criterion(
    OBSERVED,
    title="The trainer was observed",
    required="every hook is set in the trainer's process",
    why="The observer could not be set up in this environment: what it missed cannot be told from a fault of the trainer.",
    source="the observer's own traceback, in observer.log of the report",
    of=(STACK,),
    without_result=True,
)
def observed(training: Training) -> Measures:
    """Look whether all was hooked that the others are judged by: what is missed would look like a fault of the trainer."""
    observer = training.record.observer
    trouble = observer.trouble.strip().splitlines()
    # a trainer that ends before it imports torch leaves no record, and its exit code says enough
    if not trouble and (observer.started or not training.done.ok):
        return Measure(True, "every hook was set")
    advice = "Rehearse it with torch 2.0 or newer; where that is what is installed, report it to splatfix."
    measured = trouble[-1] if trouble else "no record was written"
    return Measure(False, measured, advice=advice, undetermined=True)


@criterion(
    "scene-fits",
    title="The scene is one that the trainer reads",
    required="the layout and the camera models that the trainer's source names",
    why="The scene is not one that this trainer reads.",
    source="literals of the checkout's own Python code",
    of=(STACK,),
    without_result=True,
)
def scene_fits(training: Training) -> Measures:
    """Tell by the trainer's source; a trainer that took the scene nonetheless was read wrongly, and is not refused."""
    problems = _run(training).scene_problems
    if not problems:
        return None
    measured = " ".join(f"{problem.summary} [{problem.code}]" for problem in problems)
    advice = steps_in_words(step for problem in problems for step in problem.remedy)
    if training.record.iterations:
        return Measure(None, f"{measured} It trained nonetheless.", advice=advice)
    return Measure(False, measured, advice=advice)


@criterion(
    "training-finishes",
    title="Training finishes",
    required="all iterations that were asked for, exit code 0",
    why="The trainer stopped early.",
    source="what was asked for",
    of=(STACK,),
    without_result=True,
)
def stack_finished(training: Training) -> Measures:
    """Count the backward passes of a stack's own trainer, and say how its process ended."""
    record, done = training.record, training.done
    passes, expected = record.iterations or 0, record.config.iterations or 0
    required = f"{counted(expected, 'iteration')}, exit code 0"
    if done.ok:
        why = "The trainer ended well, and trained less than it was asked to."
        return Measure(
            passes >= expected, f"{counted(passes, 'iteration')}, exit code 0", required=required, why=why
        )
    how = "killed" if done.returncode is None else f"exit code {done.returncode}"
    ending = end_of(record.error, done)
    return Measure(False, f"{counted(passes, 'iteration')}, {how}: {ending}", required=required)


@criterion(
    MENDS,
    title="The checkout runs as it is",
    required="no module missing, nothing mended",
    why="The checkout does not run in this environment as it is; it was run with placeholders, or on a copy that was mended.",
    source="the checks of splatfix diagnose --repo",
    of=(STACK,),
    without_result=True,
)
def runs_as_it_is(training: Training) -> Measures:
    """Name what had to be mended."""
    mends = _run(training).mends
    measured = [f"{mend.summary.rstrip('.')} [{mend.code}]." for mend in mends]
    steps = [step for mend in mends for step in mend.remedy]
    todo = [step.command.shell(windows=False) if step.command else step.text for step in steps]
    return Measure(not mends, " ".join(measured) or "nothing had to be mended", advice="; ".join(todo))


@criterion(
    "extensions-ran",
    title="Its extensions ran",
    required="calls of the extensions that the checkout imports",
    why="The trainer never drew with its rasterizer.",
    source="what the checkout imports",
    of=(STACK,),
    without_result=True,
)
def extensions_ran(training: Training) -> Measures:
    """Count the calls of every extension."""
    record, extensions = training.record, _run(training).extensions
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
    # an extension beside the rasterizer may be for a mode that this run does not take
    met = bool(ran) and not any("raster" in name for name in idle)
    required = f"calls of {few(list(extensions)) or 'a rasterizer'}"
    return Measure(met, "; ".join(calls) or "none was called", required=required)


@criterion(
    "no-silent-fallback",
    title="No silent fallback",
    required="every extension that is asked for is there",
    why="An import failed and the code went on without it: something slower, or something else, ran in its place.",
    source="field report: a trainer that used a slow SSIM for weeks",
    of=(STACK,),
    without_result=True,
)
def no_silent_fallback(training: Training) -> Measures:
    """Name imports of extensions that failed, and that the code went on without."""
    record = training.record
    fatal = record.error.module if record.error else None
    without, of_variants = [], []
    for failed in record.failed_imports:
        top = _top(failed.name)
        if top not in _run(training).extensions or top == fatal:
            continue
        # a trainer for several variants of a rasterizer asks for what only some have, to find out which it is
        of_a_variant = "raster" in top or failed.name.rpartition(".")[2][:1].isupper()
        if _NOT_THERE in failed.error and of_a_variant:
            of_variants.append(
                f"{failed.place} goes on without {failed.name}, which this variant does not have"
            )
        else:
            without.append(f"{failed.place}: {failed.name}: {failed.error}")
    return Measure(not without, "; ".join([*without, *of_variants]) or "no import of an extension failed")


@criterion(
    "point-cloud-saved",
    title="What was trained was saved",
    required="a PLY file with every Gaussian, all values finite",
    why="What was trained was not saved whole.",
    source="the trainer's own folder point_cloud/iteration_N",
    of=(STACK,),
)
def point_cloud_saved(training: Training) -> Measures:
    """Look into the point clouds that were saved: whole, finite, and the last with every Gaussian."""
    record = training.record
    expected = str(record.config.iterations)
    sound, listed = expected in record.saves, []
    for iteration, cloud in record.saves.items():
        sound = sound and not (cloud.error or cloud.non_finite or cloud.whole is False)
        text = f"iteration {iteration}: {cloud.error or counted(cloud.count or 0, 'Gaussian')}"
        if cloud.non_finite:
            text += f", {counted(cloud.non_finite, 'non-finite value')}"
        listed.append(text)
    if sound:
        final, trained = record.saves[expected].count, record.gaussians.final
        sound = final is not None and (trained is None or final == trained)
    required = f"a PLY file of iteration {expected} with every Gaussian, all values finite"
    return Measure(sound, ", ".join(listed) or "no point_cloud.ply was found", required=required)


_SCRIPT = {"required": "exit code 0", "source": "what was asked for", "of": (STACK,)}


@criterion(
    f"{RENDERING}-finishes",
    title="Rendering finishes",
    why="render.py does not run after the training.",
    **_SCRIPT,
)
def rendering_finishes(training: Training) -> Measures:
    """Take how ``render.py`` ended."""
    return _script(training, RENDERING)


@criterion(
    f"{METRICS}-finishes",
    title="Metrics finish",
    why="metrics.py does not run after the training.",
    **_SCRIPT,
)
def metrics_finish(training: Training) -> Measures:
    """Take how ``metrics.py`` ended."""
    return _script(training, METRICS)


def _script(training: Training, name: str) -> Measure | None:
    ended = _run(training).scripts.get(name)
    if ended is None:
        return None
    if ended.ok:
        return Measure(True, "exit code 0")
    return Measure(False, end_of(training.record.script_errors.get(name), ended))


def _run(training: Training) -> StackRun:
    return training.stack or StackRun()


def _top(module: str) -> str:
    return module.partition(".")[0]
