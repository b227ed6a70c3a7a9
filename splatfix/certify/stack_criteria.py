"""The criteria of a run of a stack's own trainer: that it ran as it is, on its extensions, to its end; and that it learned."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from splatfix.certify.cause import explained, steps_in_words
from splatfix.certify.measured import criterion, get
from splatfix.certify.model import Criterion, Mend, Outcome
from splatfix.certify.stack_training import judge_training
from splatfix.core.runner import Completed
from splatfix.core.words import counted, few
from splatfix.knowledge.failures import explain_message

_OF_RENDERINGS = ("held-out-views", "held-out-psnr-rises", "held-out-not-above-training")
_NO_RENDER = "it has no render.py"
_UNOBSERVED = {
    "evaluation-memory": "the trainer does not say when it evaluates",
    "memory-growth": "what belongs to the model and what to the trainer is not told apart from outside",
    "time-by-phase": "its phases are its own",
    "ply-round-trip": "only the trainer could render before and after saving",
}


def judge_stack(
    result: Mapping[str, Any],
    done: Completed,
    extensions: Sequence[str],
    mends: Sequence[Mend],
    others: Mapping[str, Completed],
    problems: Sequence[Mend] = (),
) -> tuple[Criterion, ...]:
    """All criteria for one run.

    Args:
        result: see :func:`splatfix.certify.stack_result.result_of`.
        done: how the training ended.
        extensions: top-level modules that the checkout calls.
        mends: what had to be left out or mended so that it ran at all.
        others: how ``render.py`` and ``metrics.py`` ended, where they were run.
        problems: what of the scene does not fit the trainer by its source, see :mod:`splatfix.certify.scene_layout`.
    """
    judged = (*_scene_fits(result, problems), *_judged(result, done, extensions, mends, others))
    seen = _observed(result, done)
    if seen.outcome is Outcome.MET:
        return (seen, *judged)
    return (seen, *(_unless_blind(item) for item in judged))


def _judged(
    result: Mapping[str, Any],
    done: Completed,
    extensions: Sequence[str],
    mends: Sequence[Mend],
    others: Mapping[str, Completed],
) -> tuple[Criterion, ...]:
    ran = (
        _finished(result, done),
        _as_it_is(mends),
        _extensions(result, extensions),
        _fallbacks(result, extensions),
    )
    if not result.get("iterations"):  # nothing more was seen
        return ran
    judged = judge_training(result)
    rendering = others.get("rendering")
    cut = "" if done.ok else "the training did not end well"
    unseen = cut or (
        "" if rendering and rendering.ok else "its test views were not rendered" if rendering else _NO_RENDER
    )
    return (
        *ran,
        *(_unless_cut(item, unseen if item.code in _OF_RENDERINGS else cut) for item in judged),
        *(_ended(name, run, get(result, "script_errors", name)) for name, run in others.items()),
        *(Criterion(code, Outcome.NOT_MEASURED, why, "not observed") for code, why in _UNOBSERVED.items()),
    )


def reason(result: Mapping[str, Any], done: Completed) -> str:
    """Why a trainer ended, in its own words: the exception with its place in the checkout, else its last line of output."""
    error = result.get("error")
    if isinstance(error, Mapping):
        said = str(error.get("message") or "").strip().splitlines()
        place = f" ({error['place']}, in {error['function']})" if error.get("place") else ""
        return f"{error.get('type')}{': ' + said[0] if said else ''}{place}"
    if done.error:
        return done.error
    lines = [line.strip() for line in re.split(r"[\r\n]+", f"{done.stdout}\n{done.stderr}") if line.strip()]
    told = next((line for line in reversed(lines) if re.search(r"\berror\b", line, re.IGNORECASE)), "")
    return told or (lines[-1] if lines else done.why())


def _observed(result: Mapping[str, Any], done: Completed) -> Criterion:
    """Whether all that the others are judged by was hooked: what the observer misses would look like a fault of the trainer."""
    trouble = str(get(result, "observer", "trouble") or "").strip().splitlines()
    # a trainer that ends before it imports torch leaves no record, and its exit code says enough
    there = bool(get(result, "observer", "started")) or not done.ok
    judged = criterion(
        "observed",
        there and not trouble,
        trouble[-1] if trouble else "every hook was set" if there else "no record was written",
        "every hook is set in the trainer's process",
        "The observer could not be set up in this environment: what it missed cannot be told from a fault of the trainer.",
        "the observer's own traceback, in observer.log of the report",
    )
    if judged.outcome is Outcome.MET:
        return judged
    advice = "Rehearse it with torch 2.0 or newer; where that is what is installed, report it to splatfix."
    return replace(judged, outcome=Outcome.UNDETERMINED, advice=advice)


def _unless_blind(judged: Criterion) -> Criterion:
    """No failure is one of the trainer's where a hook is missing; what had to be mended was seen without."""
    if judged.outcome is not Outcome.FAILED or judged.code == "runs-as-it-is":
        return judged
    return replace(judged, outcome=Outcome.UNDETERMINED, why="It was not observed as a whole.")


def _finished(result: Mapping[str, Any], done: Completed) -> Criterion:
    passes, wanted = int(result.get("iterations") or 0), int(get(result, "config", "iterations") or 0)
    ended = f"exit code {done.returncode}" if done.returncode is not None else "killed"
    measured = f"{counted(passes, 'iteration')}, {ended}"
    judged = criterion(
        "training-finishes",
        done.ok and passes >= wanted,
        measured if done.ok else f"{measured}: {reason(result, done)}",
        f"{counted(wanted, 'iteration')}, exit code 0",
        "The trainer stopped early."
        if not done.ok
        else "The trainer ended well, and trained less than it was asked to.",
        "what was asked for",
    )
    known = None if done.ok else explain_message(_said(result) or reason(result, done))
    if not done.ok:
        judged = explained(judged, f"{done.stdout}\n{done.stderr}\n{_said(result)}")
    return replace(judged, advice=f"{known.meaning} {steps_in_words(known.steps)}") if known else judged


def _said(result: Mapping[str, Any]) -> str:
    error = result.get("error")
    return f"{error.get('type')}: {error.get('message')}" if isinstance(error, Mapping) else ""


def _as_it_is(mends: Sequence[Mend]) -> Criterion:
    judged = criterion(
        "runs-as-it-is",
        not mends,
        " ".join(f"{item.summary.rstrip('.')} [{item.code}]." for item in mends)
        or "nothing had to be mended",
        "no module missing, nothing mended",
        "The checkout does not run in this environment as it is; it was run with placeholders, or on a copy that was mended.",
        "the checks of splatfix diagnose --repo",
    )
    todo = [
        step.command.shell(windows=False) if step.command else step.text
        for item in mends
        for step in item.remedy
    ]
    return replace(judged, advice="; ".join(todo))


def _scene_fits(result: Mapping[str, Any], problems: Sequence[Mend]) -> Iterator[Criterion]:
    """By the trainer's source; a trainer that took the scene nonetheless was read wrongly, and is not refused."""
    if not problems:
        return
    words = " ".join(f"{item.summary} [{item.code}]" for item in problems)
    judged = criterion(
        "scene-fits",
        None if result.get("iterations") else False,
        f"{words} It trained nonetheless." if result.get("iterations") else words,
        "the layout and the camera models that the trainer's source names",
        "The scene is not one that this trainer reads.",
        "literals of the checkout's own Python code",
    )
    yield replace(judged, advice=steps_in_words(step for item in problems for step in item.remedy))


def _extensions(result: Mapping[str, Any], extensions: Sequence[str]) -> Criterion:
    ran = {name.partition(".")[0] for name in get(result, "implementations") or {}}
    idle = [name for name in extensions if name not in ran and not _gone_without(result, name)]
    calls = [
        f"{name} ({row['name']}): " + ", ".join(f"{key} {count}" for key, count in row["calls"].items())
        for name, row in (get(result, "implementations") or {}).items()
        if isinstance(row.get("calls"), Mapping)
    ]
    rasterizers = [name for name in extensions if "raster" in name]
    return criterion(
        "extensions-ran",
        bool(ran) and not [name for name in idle if name in rasterizers],
        "; ".join([*calls, *([f"never called: {', '.join(idle)}"] if idle else [])]) or "none was called",
        f"calls of {few(list(extensions))}" if extensions else "calls of a rasterizer",
        "The trainer never drew with its rasterizer.",
        "what the checkout imports",
    )


def _gone_without(result: Mapping[str, Any], name: str) -> bool:
    return any(str(row["name"]).partition(".")[0] == name for row in result.get("failed_imports", ()))


def _fallbacks(result: Mapping[str, Any], extensions: Sequence[str]) -> Criterion:
    failed = result.get("failed_imports", ())
    fatal = get(result, "error", "module")
    whole = [
        row
        for row in failed
        if row["name"].partition(".")[0] in extensions and row["name"].partition(".")[0] != fatal
    ]
    # what one variant of a module has and another has not is asked for to find out which it is
    asked = [row for row in whole if "cannot import name" in row["error"] and _of_a_variant(row["name"])]
    lost = [row for row in whole if row not in asked]
    words = [f"{row['place']}: {row['name']}: {row['error']}" for row in lost]
    words += [
        f"{row['place']} goes on without {row['name']}, which this variant does not have" for row in asked
    ]
    return criterion(
        "no-silent-fallback",
        not lost,
        "; ".join(words) or "no import of an extension failed",
        "every extension that is asked for is there",
        "An import failed and the code went on without it: something slower, or something else, ran in its place.",
        "field report: a trainer that used a slow SSIM for weeks",
    )


def _unless_cut(judged: Criterion, why: str) -> Criterion:
    """What cannot be met because something before it failed is told there, and not again."""
    told = judged.code == "finite-values" or judged.code.startswith("gradients-")
    if not why or judged.outcome is not Outcome.FAILED or told:
        return judged
    return Criterion(judged.code, Outcome.NOT_MEASURED, f"{judged.measured}: {why}", judged.required)


def _of_a_variant(name: str) -> bool:
    """Rasterizers come in variants: a trainer for several asks for what only some have."""
    return "raster" in name.partition(".")[0] or name.rpartition(".")[2][:1].isupper()


def _ended(name: str, run: Completed, error: object) -> Criterion:
    return criterion(
        f"{name}-finishes",
        run.ok,
        "exit code 0" if run.ok else reason({"error": error}, run),
        "exit code 0",
        f"{'render' if name == 'rendering' else name}.py does not run after the training.",
        "what was asked for",
    )
