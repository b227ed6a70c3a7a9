"""The quick suite with each renderer on the GPU, and the same seed twice."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from splatfix.certify import Suite, sample_suite
from splatfix.certify.baseline import MEMORY_TOLERANCE, quality_tolerance
from splatfix.certify.record import TrainingRecord
from splatfix.core.files import read_json

from ..context import DEVICE, ROOT, Context, error_of
from ..record import Failed, Notes

ENGINES = {"plain": "torch-cuda", "dropins": "nvrtc"}
"""Environment -> what its renderer draws with; elsewhere that is an extension."""


def suite_with(context: Context, notes: Notes, renderer: str, environment: str) -> None:
    """Certify with one renderer."""
    certificate = certify(context, renderer, environment, f"{environment}-first")
    # too short to be judged is all that a rehearsal can be
    good = ("certified", "undetermined") if context.rehearsal else ("certified",)
    verdict = certificate["verdict"] in good and not certificate["reasons"]
    notes.expect(
        verdict,
        f"the quick suite trains with {renderer}",
        "; ".join(certificate["reasons"]) or certificate["summary"],
    )
    notes.numbers["scenes"] = measures(certificate)
    engines = {scene["result"]["implementations"]["renderer"]["engine"] for scene in certificate["scenes"]}
    expected = ENGINES.get(environment, "cuda")
    # a rehearsal's gsplat is a stand-in in PyTorch
    if context.rehearsal and (environment == "dropins" or renderer == "gsplat"):
        expected = "torch-cuda"
    notes.expect(engines == {expected}, f"{renderer} drew on the GPU", f"engine {', '.join(sorted(engines))}")


def again(context: Context, notes: Notes, renderer: str = "inria", environment: str = "stack") -> None:
    """One scene of that suite twice more with the same seed, by the trainer itself: how far apart the three are."""
    folder = context.folder("train")
    first = read_json(folder / f"{environment}-first" / "certificate.json", "the first certificate")
    scene = first["scenes"][-1]["scene"]
    runs = [measures(first)[scene]]
    for name in ("second", "third"):
        out = folder / f"{renderer}-{name}"
        argv = [context.python(environment), "-m", "smoke_trainer", *suite(context).trainer_arguments(scene)]
        argv += ["--renderer", renderer, "--device", DEVICE, "--seed", "0", "--out", str(out)]
        done = context.run(argv, 50, env=context.child_variables(), cwd=folder)
        if not done.ok:
            raise Failed(f"the {name} training: {done.why()}")
        result = read_json(out / "result.json", f"the {name} result")
        runs.append(measures({"scenes": [{"scene": scene, "result": result}]})[scene])
    spread = spread_of(runs)
    notes.numbers.update(scene=scene, runs=runs, relative_spread=spread)
    quality = quality_tolerance(TrainingRecord.of(result))
    limits = {"psnr": quality, "ssim": quality, "memory": MEMORY_TOLERANCE}
    for name, limit in limits.items():
        shown = f"{spread[name]:.3%} apart of {limit:.1%} that a baseline allows"
        notes.expect(spread[name] <= limit, f"{name} of one seed, {len(runs)} runs", shown)


def spread_of(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """How far the largest and the smallest of each measure are apart, relative to the first run's."""
    spread_by_name = {}
    for name, first in runs[0].items():
        values = [run[name] for run in runs]
        spread_by_name[name] = (max(values) - min(values)) / (abs(first) or 1.0)
    return spread_by_name


def suite(context: Context) -> Suite:
    """The quick suite; in a rehearsal one tiny scene."""
    if not context.rehearsal:
        return sample_suite("quick")
    data = ROOT / "smoke_trainer" / "samples" / "figurine"
    return Suite("data", ("figurine",), 100.0, iterations=12, resolution=32, data=data)


def certify(context: Context, renderer: str, environment: str, name: str) -> dict[str, Any]:
    """A certificate of that suite."""
    requested = suite(context)
    texts: list[str | Path] = ["--suite", "quick"]
    if requested.data is not None:
        texts = ["--data", requested.data, "--iterations", f"{requested.iterations}"]
        texts += ["--resolution", f"{requested.resolution}"]
    python, out = context.python(environment), context.folder("train") / name
    argv = ["certify", *texts, "--device", DEVICE, "--renderer", renderer, "--python", python, "--out", out]
    _, document = context.splatfix(*argv, timeout=200)
    if not document.get("scenes"):
        raise Failed(f"{renderer} did not train: {error_of(document) or document.get('summary')}")
    return document


def measures(certificate: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Quality, speed and memory of each scene that was trained to its end."""
    by_scene = {}
    for scene in certificate["scenes"]:
        result = scene["result"]
        if "heldout" not in result:
            raise Failed(f"{scene['scene']} was not trained to its end: {result.get('error')}")
        memory = result["memory"]
        by_scene[scene["scene"]] = {
            "psnr": result["heldout"]["psnr"],
            "ssim": result["heldout"]["ssim"],
            "iterations_per_second": result["iterations_per_second"],
            "memory": float(memory["cuda"]["train"]["allocated"] if memory["cuda"] else memory["rss"]),
        }
    return by_scene
