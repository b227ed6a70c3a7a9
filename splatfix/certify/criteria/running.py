"""What ran, and to which end: its length, its renderer and extensions, no error of CUDA; that a stack's trainer ran as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from smoke_trainer.record import Implementation
from splatfix.certify.advice import end_of, steps_in_words
from splatfix.certify.criteria.criterion import SMOKE, STACK, Measure, Measures, Training, criterion
from splatfix.core.words import counted

MENDS = "runs-as-it-is"
RENDER, METRICS = "render.py", "metrics.py"
"""The scripts that run after a stack's training."""
OTHER_PACKAGES = (
    "Run splatfix diagnose: it names packages that are not what their name says, and which one is imported."
)
_CUDA_ERROR = re.compile(
    r"CUDA (?:runtime |driver )?error|no kernel image is available|illegal memory access|device-side assert triggered"
    r"|misaligned address|unspecified launch failure|\bcudaError[A-Z]\w+|CUDA_ERROR_[A-Z_]+",
    re.IGNORECASE,
)
_SIGNALS = {
    9: "No program ends itself this way: where memory runs out the kernel ends the one that holds most "
    "(dmesg and journalctl -k say so), otherwise a person or a batch system did.",
    11: "Compiled code read or wrote memory that is not its own: an extension that does not fit this torch or driver.",
}
"""What a signal that ended a trainer means, by its number (signal(7))."""


@criterion(
    "observed",
    title="Every hook is set in the trainer's process",
    why="The observer could not be set up in this environment: what it missed cannot be told from a fault of the trainer.",
    source="the observer's own traceback, in observer.log of the report",
    of=STACK,
    without_result=True,
)
def observed(training: Training) -> Measure:
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
    MENDS,
    title="The checkout runs as it is: no module missing, nothing mended",
    why="The checkout does not run in this environment as it is; it was run with placeholders, or on a copy that was mended.",
    source="the checks of splatfix diagnose --repo",
    of=STACK,
    without_result=True,
)
def runs_as_it_is(training: Training) -> Measures:
    mends = training.mends
    measured = "; ".join(f"{mend.summary.rstrip('.')} [{mend.code}]" for mend in mends)
    advice = steps_in_words(step for mend in mends for step in mend.remedy)
    return Measure(not mends, measured or "nothing had to be mended", advice=advice)


@criterion(
    "training-finishes",
    title="Training finishes, with all iterations that were asked for",
    why="It trained less than it was asked to: it stopped early.",
    source="what was asked for; graphdeco-inria/gaussian-splatting#99: kNN's first kernel ended it",
    advice="Read the end of the scene's trainer.log, and run splatfix diagnose. Where memory ran out, train at a smaller "
    "--resolution.",
    without_result=True,
)
def finished(training: Training) -> Measures:
    """Count the iterations; of a trainer that ended early say what ended it, and how far it had come."""
    record, done = training.record, training.done
    if training.unreadable:
        return None
    iterations, expected = record.iterations or 0, record.config.iterations or 0
    required = counted(expected, "iteration") if expected else ""
    measured = ", ".join(filter(None, (counted(iterations, "iteration"), record.status)))
    # ours says "failed" after all iterations where the saved point cloud differs, which is a criterion of its own
    ended = done.ok if training.stack else record.status in ("ok", "failed")
    if ended and record.error is None:
        return Measure(iterations >= expected, measured, required=required)
    measured = ": ".join(filter(None, (training.latest or measured, end_of(record.error, done))))
    return Measure(False, measured, required=required, why=_SIGNALS.get(-(done.returncode or 0), ""))


@criterion(
    "renderer-as-asked",
    title="The renderer is the one asked for",
    source="what was asked for; graphdeco-inria/gaussian-splatting#1163: another branch of the rasterizer ran, and all was black",
    advice=OTHER_PACKAGES,
    of=SMOKE,
)
def renderer_as_asked(training: Training) -> Measures:
    ran = training.record.implementations.get("renderer", Implementation())
    asked = training.record.config.renderer
    return Measure(ran.kind == asked, f"{ran.kind} ({ran.name})", required=str(asked))


@criterion(
    "implementations-identified",
    title="Each part's code is what was named, and ran in every iteration",
    why="Another implementation ran than the report names, or none: its result says nothing about the one that was meant.",
    source="field report: an extension silently replaced by a slow path",
    advice=OTHER_PACKAGES,
    of=SMOKE,
)
def implementations_identified(training: Training) -> Measures:
    iterations = training.record.iterations or 0
    problems, digests = [], []
    for part in ("renderer", "ssim", "knn", "optimizer"):
        ran = training.record.implementations.get(part, Implementation())
        digests.append(f"{part} {ran.file} {str(ran.sha256)[:12]}")
        name, module = str(ran.name), str(ran.module)
        package = name.removesuffix("._C")  # a drop-in's function may come from a file beside it
        calls = ran.calls if isinstance(ran.calls, int) else 0
        least = 1 if part == "knn" else iterations  # neighbors are looked for once, at the start
        if not module.startswith(package.lower()) and not package.startswith(module):
            problems.append(f"{part}: {name} was named, and {module} ran")
        elif calls < least:
            problems.append(f"{part}: {name} had {counted(calls, 'call')}")
    return Measure(iterations > 0 and not problems, "; ".join(problems or digests))


@criterion(
    "no-cuda-error",
    title="No CUDA error in the trainer's output",
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
    return Measure(not line, line[:300] or "none was printed")


@criterion(
    "extensions-ran",
    title="The extensions that the checkout imports ran",
    why="The trainer never drew with its rasterizer.",
    of=STACK,
    without_result=True,
)
def extensions_ran(training: Training) -> Measures:
    record, extensions = training.record, training.extensions
    known = {_top(name) for name in (*record.implementations, *(item.name for item in record.failed_imports))}
    idle = [name for name in extensions if name not in known]
    calls = []
    for name, extension in record.implementations.items():
        if isinstance(extension.calls, Mapping):
            listed = ", ".join(f"{function} {count}" for function, count in extension.calls.items())
            calls.append(f"{name} ({extension.name}): {listed}")
    if idle:
        calls.append(f"never called: {', '.join(idle)}")
    # an extension beside the rasterizer may be for a mode that this run does not take
    met = bool(record.implementations) and not any("raster" in name for name in idle)
    return Measure(met, "; ".join(calls) or "none was called")


@criterion(
    "no-silent-fallback",
    title="Every extension that is asked for is there",
    why="An import failed and the code went on without it: something slower, or something else, ran in its place.",
    source="field report: a trainer that used a slow SSIM for weeks",
    of=STACK,
    without_result=True,
)
def no_silent_fallback(training: Training) -> Measures:
    record = training.record
    fatal = record.error.module if record.error else None
    without, of_variants = [], []
    for failed in record.failed_imports:
        top = _top(failed.name)
        if top not in training.extensions or top == fatal:
            continue
        # a trainer for several variants of a rasterizer asks for what only some have, to find out which it is
        of_a_variant = "raster" in top or failed.name.rpartition(".")[2][:1].isupper()
        if of_a_variant and "cannot import name" in failed.error:  # the module is there
            text = f"{failed.place} goes on without {failed.name}, which this variant does not have"
            of_variants.append(text)
        else:
            without.append(f"{failed.place}: {failed.name}: {failed.error}")
    return Measure(not without, "; ".join([*without, *of_variants]) or "no import of an extension failed")


def script_finishes(script: str, training: Training) -> Measures:
    """Say how a script ended that runs after the training; nothing where it did not run."""
    done = training.scripts.get(script)
    if done is None:
        return None
    return Measure(done.ok, "exit code 0" if done.ok else end_of(None, done))


for _name, _script in (("rendering", RENDER), ("metrics", METRICS)):
    criterion(
        f"{_name}-finishes",
        title=f"The script for {_name} ends well",
        of=STACK,
    )(partial(script_finishes, _script))


def _top(module: str) -> str:
    return module.partition(".")[0]
