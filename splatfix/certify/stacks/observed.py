"""From what was observed of a stack's own trainer to a result of the shape of the smoke trainer's ``result.json``."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from splatfix.certify.inside.phases import of_a_run
from splatfix.core.files import object_in
from splatfix.core.limits import MOST_TEXT
from splatfix.core.reading import as_text, read_start
from splatfix.core.runner import Completed

SMOOTHED_OVER = 10
"""Iterations at either end of a run, averaged; as the smoke trainer's."""


def read_observed(folder: Path, script: str) -> dict[str, Any]:
    """What the observer wrote of the process that ran ``script``; empty where it wrote nothing that can be read.

    A trainer may start others: of several records the one with the most backward passes counts. ``trouble`` are the tracebacks
    of hooks that could not be set, in any of them; "" where all were.
    """
    tracebacks = as_text(read_start(folder / "inside.txt", MOST_TEXT))
    records: list[dict[str, Any]] = []
    for path in sorted(folder.glob("observed-*.json")):
        document = object_in(path)  # empty where the child was killed while it wrote it; the others count
        argv = document.get("argv") or [""]
        if Path(str(argv[0])).name == Path(script).name:
            records.append(document)
    most: dict[str, Any] = max(records, key=lambda item: int(item.get("backward", 0)), default={})
    return {**most, "trouble": tracebacks}


def result_of(
    observed: Mapping[str, Any],
    done: Completed,
    iterations: int,
    quality: Mapping[str, Any],
    saves: Mapping[int, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the measurements of one run; what was not observed is left out.

    ``observed`` is of ``inside/observer.py``, ``quality`` of the rendered views, ``saves`` of the point clouds.
    """
    passes = int(observed.get("backward", 0))
    seconds = float(observed.get("seconds") or done.seconds)
    rss, vram, gpu = observed.get("rss") or None, observed.get("vram"), observed.get("gpu")
    phases = observed.get("phases") or {}
    result: dict[str, Any] = {
        "schema_version": 1,
        "status": "ok" if done.ok else "failed",
        "iterations": passes,
        "config": {
            "iterations": iterations,
            "strategy": "the trainer's own",
            "seed": "the trainer's own",
            "groups": sorted(observed.get("groups", {})),
            "sh_degree": observed.get("sh_degree"),
            "psnr_floor": None,
        },
        "resolution": observed.get("resolution"),
        "implementations": implementations(observed),
        "gradients": observed.get("groups", {}),
        "reached": observed.get("reached", {}),
        "updates": observed.get("updates", {}),
        "versions": {"python": observed.get("python"), "torch": observed.get("torch")},
        "memory": {"rss": rss, "host": {"train": rss}, "cuda": None},
        "machine": {},
        "iterations_per_second": round(passes / seconds, 3) if passes and seconds else None,
        "seconds": {
            "total": seconds,
            "setup": phases.get("load"),
            "train": phases.get("train"),
            "eval": phases.get("evaluation"),
        },
        "saves": {str(name): dict(row) for name, row in saves.items()},
        "failed_imports": observed.get("failed_imports", []),
        "error": observed.get("error"),
        "observer": {"started": bool(observed.get("python")), "trouble": observed.get("trouble", "")},
    }
    held = phases.get("memory", {})
    if vram:
        result["memory"]["cuda"] = {
            "train": {"allocated": held.get("train") or vram, "reserved": held.get("reserved")},
            "eval": {"allocated": held.get("eval")},
            "used_share": held.get("used_share"),
            "spill": held.get("spill"),
        }
        result["machine"] |= {"gpu_memory": held.get("total"), "gpu_integrated": held.get("integrated")}
    elif held.get("eval"):
        result["memory"]["host"]["eval"] = held["eval"]
    if means := of_a_run(phases, passes):
        result["phases"] = means
    if gpu:
        result["machine"]["gpu"] = gpu
    if losses := list(observed.get("losses", ())):
        result["train_loss"] = {
            "first": _mean(losses[:SMOOTHED_OVER]),
            "last": _mean(losses[-SMOOTHED_OVER:]),
        }
    if counts := [int(count) for _, count in observed.get("counts", ())]:
        result["gaussians"] = {
            "initial": counts[0],
            "final": counts[-1],
            "peak": max(counts),
            "added": sum(max(0, after - before) for before, after in pairwise(counts)),
            "removed": sum(max(0, before - after) for before, after in pairwise(counts)),
        }
    for name in ("heldout", "initial_heldout", "training_views"):
        if "psnr" in quality.get(name, {}):
            result[name] = {key: value for key, value in quality[name].items() if key != "digests"}
    heldout, trained = quality.get("heldout", {}), quality.get("training_views", {})
    if "digests" in heldout:
        # images as they were rendered have no names: the digests of their pixels tell them apart
        result["split"] = {"test": heldout["digests"], "train": trained.get("digests", []), "repeated": []}
        result["resolution"] = heldout.get("size") or result["resolution"]
    return result


def implementations(observed: Mapping[str, Any]) -> dict[str, Any]:
    """Which extensions and optimizers ran: module, file, digest and calls."""
    ran: dict[str, Any] = {}
    for module, row in observed.get("extensions", {}).items():
        calls = {name: count for name, count in row["calls"].items() if count}
        if calls:
            ran[module] = {
                "name": "splatfix's drop-in" if row["dropin"] else "native",
                "module": module,
                **_file(row),
                "calls": calls,
            }
    for name, row in observed.get("optimizers", {}).items():
        if row["steps"]:
            ran[f"optimizer {name}"] = {"name": name, **_file(row), "calls": row["steps"]}
    return ran


def _file(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"file": Path(row["file"]).name if row["file"] else None, "sha256": row["sha256"]}


def _mean(values: Sequence[float | None]) -> float | None:
    """Average the values; None where one of them is not finite."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return statistics.fmean(known)
