"""Drop-ins and each source installed for the GPU that is here; at the end all of it is taken back."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ..context import Context, changes, contents, error_of, outcome_items
from ..needs import SOURCES
from ..record import Notes

RUNGS = ("built", "loads", "computes")
DROPINS = ("fused_ssim", "simple_knn", "diff_gaussian_rasterization@v1")


class Job(NamedTuple):
    """An installation: its limit in seconds, further arguments of the command, and the environment that comes before it.

    Limits hold a build and a kernel that hangs until verify gives it up (180 s), so that it is taken back within them. Expected,
    from builds on two cores (tests/records/native_builds.json): 4 files of an Inria rasterizer 2 to 4 minutes of one core,
    gsplat's 25 files 25 minutes; so on 16 cores the stack in 2 minutes beside gsplat, gsplat on half of them in 3 to 4.
    """

    limit: float
    arguments: tuple[str, ...] = ()
    after: str = ""


JOBS = {
    "stack": Job(400),
    "gsplat": Job(430, ("--jobs", str(max(1, (os.cpu_count() or 1) // 2)))),
    "inria-2024": Job(360, after="stack"),
    "mip-splatting": Job(360, after="stack"),
    "taming-3dgs": Job(360, after="stack"),
}
"""By the environment that is installed into."""


def environment(context: Context, notes: Notes, name: str, *more: str) -> None:
    """Install what is tried in one environment; ``more`` are further words of the command."""
    names = [source for source, where in SOURCES.items() if where == name and source in context.sources]
    if not names:
        expected = ", ".join(source for source, where in SOURCES.items() if where == name)
        pytest.skip(f"GPU_SOURCES holds none of: {expected}")
    sources = [context.sources[source] for source in names]
    _install(context, notes, name, sources, more, JOBS[name].limit)


def dropins(context: Context, notes: Notes) -> None:
    """The three drop-ins with code for this GPU that NVRTC compiles: what needs no compiler and no source."""
    backend = "pure" if context.rehearsal else "nvrtc"  # a CPU build of torch takes no other
    _install(context, notes, "dropins", DROPINS, ("--backend", backend), 60)


def _install(
    context: Context, notes: Notes, name: str, subjects: Sequence[str], options: Sequence[str], limit: float
) -> None:
    python = context.python(name)
    before = contents(python)
    _before(context, name).write_text(json.dumps(before), encoding="utf-8")
    argv = ["install", *subjects, "--python", python, "--yes", *options]
    code, document = context.splatfix(*argv, timeout=limit)
    names = ", ".join(Path(subject).name for subject in subjects)
    if not notes.expect(code == 0, f"{names} installs", error_of(document) or f"exit code {code}"):
        left = changes(before, contents(python))
        notes.expect(
            not left, "a failed installation leaves nothing behind", ", ".join(left[:5]) or "nothing"
        )
        return
    items = {item["subject"]: _rungs(item) for item in outcome_items(document)}
    notes.numbers["proof"] = items
    notes.numbers["seconds"] = {item["subject"]: round(item["seconds"]) for item in outcome_items(document)}
    for subject, proof in items.items():
        for rung in RUNGS:
            reached, shown_by = proof[rung]
            # what has no reference is said so in the proof; that is no failure of the installation
            if reached or rung != "computes":
                notes.expect(bool(reached), f"{subject} {rung}", shown_by)


def built(context: Context, notes: Notes, name: str) -> None:
    """What an installation showed, once it has ended; raises what it raised."""
    shown = context.builds[name].result()
    notes.claims, notes.problems, notes.numbers = shown.claims, shown.problems, shown.numbers


def take_back(context: Context, notes: Notes) -> None:
    """Revert every installation that is still there; each environment must be what it was before the first."""
    environments = dict.fromkeys(["dropins", *(SOURCES[name] for name in context.sources)])
    for environment in environments:
        earlier = _before(context, environment)
        if not earlier.is_file():
            continue
        python = context.python(environment)
        code, document = context.splatfix("revert", "--all", "--python", python, timeout=60)
        error = document.get("error") or {}
        if error.get("code") != "nothing-to-revert":  # the installation had failed
            notes.expect(code == 0, f"revert ends well in {environment}", error_of(document) or "exit code 0")
        differing = changes(json.loads(earlier.read_text(encoding="utf-8")), contents(python))
        shown = ", ".join(differing[:5]) or "every file has the content that it had"
        notes.expect(not differing, f"revert leaves {environment} as it was", shown)


def _before(context: Context, environment: str) -> Path:
    return context.folder("before") / f"{environment}.json"


def _rungs(item: Any) -> dict[str, tuple[bool | None, str]]:
    return {rung["name"]: (rung["reached"], rung["shown_by"]) for rung in item["proof"]}
