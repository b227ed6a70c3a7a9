"""The quick suite with each renderer on the GPU, and the same seed twice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from splatfix.certify import Suite, sample_suite
from splatfix.certify.levels import MEMORY_TOLERANCE, QUALITY_TOLERANCE
from splatfix.core.files import read_json
from splatfix.core.runner import ProcessRunner

from ..context import DEVICE, ROOT, Context, Failed, error_of
from ..plan import Notes


def of(renderer: str, environment: str) -> Callable[[Context, Notes], None]:
    """The step that certifies with one renderer."""
    return partial(_suite, renderer, environment)


def again(renderer: str, environment: str) -> Callable[[Context, Notes], None]:
    """The step that repeats that certification with the same seed."""
    return partial(_again, renderer, environment)


def _suite(renderer: str, environment: str, context: Context, notes: Notes) -> None:
    found = certify(context, renderer, environment, f"{renderer}-first")
    notes.numbers["scenes"] = measures(found)
    # too short to be judged is all that a rehearsal can be
    good = ("certified", "undetermined") if context.rehearsal else ("certified",)
    verdict = found["verdict"] in good and not found["reasons"]
    notes.expect(
        verdict, f"the quick suite trains with {renderer}", "; ".join(found["reasons"]) or found["summary"]
    )
    engines = {scene["result"]["implementations"]["renderer"]["engine"] for scene in found["scenes"]}
    expected = {"torch-cuda"} if renderer == "torch" else {"cuda"}
    notes.expect(engines == expected, f"{renderer} drew on the GPU", f"engine {', '.join(sorted(engines))}")


def _again(renderer: str, environment: str, context: Context, notes: Notes) -> None:
    """One scene of the first suite once more, by the trainer itself."""
    folder = context.folder("train")
    first = read_json(folder / f"{renderer}-first" / "certificate.json", "the first certificate")
    scene = first["scenes"][-1]["scene"]
    argv = [context.python(environment), "-m", "smoke_trainer", *suite(context).trainer_arguments(scene)]
    argv += [
        "--renderer",
        renderer,
        "--device",
        DEVICE,
        "--seed",
        "0",
        "--out",
        str(folder / f"{renderer}-again"),
    ]
    done = ProcessRunner().run(
        argv, timeout=100 * context.patience, env=context.child_variables(), cwd=folder
    )
    if not done.ok:
        raise Failed(f"the second training: {done.why()}")
    result = read_json(folder / f"{renderer}-again" / "result.json", "the second result")
    before, now = measures(first)[scene], measures({"scenes": [{"scene": scene, "result": result}]})[scene]
    apart = {name: abs(now[name] - before[name]) / abs(before[name] or 1.0) for name in now}
    notes.numbers.update(scene=scene, first=before, again=now, relative_differences=apart)
    for name, limit in (
        ("psnr", QUALITY_TOLERANCE),
        ("ssim", QUALITY_TOLERANCE),
        ("memory", MEMORY_TOLERANCE),
    ):
        notes.expect(
            apart[name] <= limit,
            f"{name} of one seed twice",
            f"{apart[name]:.3%} apart of {limit:.1%} allowed",
        )


def suite(context: Context) -> Suite:
    """The quick suite; in a rehearsal one tiny scene."""
    if not context.rehearsal:
        return sample_suite("quick")
    data = ROOT / "smoke_trainer" / "samples" / "figurine"
    return Suite("data", ("figurine",), 100.0, iterations=12, resolution=32, data=data)


def certify(context: Context, renderer: str, environment: str, name: str) -> dict[str, Any]:
    """A certificate of that suite."""
    asked = suite(context)
    words: list[str | Path] = ["--suite", "quick"]
    if asked.data is not None:
        words = [
            "--data",
            asked.data,
            "--iterations",
            str(asked.iterations),
            "--resolution",
            str(asked.resolution),
        ]
    python, out = context.python(environment), context.folder("train") / name
    argv = ["certify", *words, "--device", DEVICE, "--renderer", renderer, "--python", python, "--out", out]
    _, document = context.splatfix(*argv, timeout=200)
    if not document.get("scenes"):
        raise Failed(f"{renderer} did not train: {error_of(document) or document.get('summary')}")
    return document


def measures(certificate: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Quality, speed and memory of each scene that was trained to its end."""
    found = {}
    for scene in certificate["scenes"]:
        result = scene["result"]
        if "heldout" not in result:
            raise Failed(f"{scene['scene']} was not trained to its end: {result.get('error')}")
        memory = result["memory"]
        found[scene["scene"]] = {
            "psnr": result["heldout"]["psnr"],
            "ssim": result["heldout"]["ssim"],
            "iterations_per_second": result["iterations_per_second"],
            "memory": float(memory["cuda"]["train"]["allocated"] if memory["cuda"] else memory["rss"]),
        }
    return found
