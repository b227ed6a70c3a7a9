"""Short runs of the smoke trainer by which ``splatfix vram --calibrate`` fits what it foretells."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from splatfix import facts as machine_facts
from splatfix.app.result import target_python
from splatfix.budget.memory import card_phases
from splatfix.budget.model import Need, Span
from splatfix.certify.environment import packages_obstacle
from splatfix.certify.scenes import SAMPLES, find_samples
from splatfix.certify.staging import child_variables, stage
from splatfix.context import make_context
from splatfix.context.commands import TRAINING_NEEDS
from splatfix.core.codec import parse_json
from splatfix.core.errors import SplatfixError
from splatfix.core.reading import read_text
from splatfix.core.runner import Runner
from splatfix.core.scratch import temporary_folder
from splatfix.core.step import value_options
from splatfix.knowledge.vram import families, stack_memory

RENDERERS: Mapping[str, str] = {"inria": "inria", "gsplat": "gsplat", "smoke": "torch"}
"""By family: what the smoke trainer draws with to stand for it."""
ITERATIONS = 300
DENSIFIED_TWICE = 101
"""Iterations of such a run after which two of its six densifications are done."""
WIDTHS = (160, 640)
SECONDS = 900.0
_OVERHEADS = ("allocator", "CUDA context")


def calibrated(
    need: Need, scene: Path | None, python: str | None, runner: Runner | None = None
) -> tuple[Need, str]:
    """The training with what short runs say of it, and that in words.

    On a GPU the memory of two sizes is compared with the model's. The smoke trainer on a CPU tells its own count instead, by the
    first third of a run, in which it densifies twice.

    Raises:
        SplatfixError: ``no-gpu`` (exit code 3) for any stack but the smoke trainer where there is none;
            ``calibration-failed`` (3).
    """
    stack = stack_memory(need.stack)
    if stack is None or stack.family not in RENDERERS:
        what = f"There is nothing that short runs could tell of {need.stack}."
        raise SplatfixError.of("app.calibration-failed", what=what)
    family = stack.family
    interpreter = target_python(python)
    facts = machine_facts.gather(interpreter)
    if obstacle := packages_obstacle(facts, interpreter, TRAINING_NEEDS):
        raise obstacle.error()
    if family != "smoke" and not make_context(facts).visible_gpus:
        raise SplatfixError.of("app.no-gpu-to-calibrate")
    folder = scene or SAMPLES / next(iter(find_samples()))
    with temporary_folder() as staged:
        stage(staged)

        def trained(*options: str) -> dict[str, Any]:
            argv = [interpreter, "-m", "smoke_trainer", str(folder), "--iterations", str(ITERATIONS)]
            out = staged / f"out-{options[-1]}"
            argv += value_options(
                {"--strategy": need.strategy, "--renderer": RENDERERS[family], "--out": out}
            )
            argv += options
            done = (runner or Runner()).run(argv, timeout=SECONDS, env=child_variables(staged), cwd=staged)
            text = read_text(out / "result.json")
            if done.returncode or not isinstance(text, str):
                what = f"The short run did not come to its end: {done.why()}."
                raise SplatfixError.of("app.calibration-failed", what=what)
            result: dict[str, Any] = parse_json(text)
            return result

        if family == "smoke":
            early = trained("--device", "cpu", "--stop-after", str(DENSIFIED_TWICE))["gaussians"]["final"]
            count = early * families()[family].after_two
            note = f"{early} Gaussians after two densifications of a short run here"
            return replace(need, gaussians=Span(0.8 * count, count, 1.25 * count)), note
        products = squares = 0.0
        for width in WIDTHS:
            record = trained("--device", "cuda", "--resolution", str(width))
            foretold, stated = _beyond_stated(need, record)
            measured = record["memory"]["cuda"]["train"]["allocated"] - stated
            products, squares = products + measured * foretold, squares + foretold * foretold
    factor = max(0.1, products / squares)
    note = f"parts known from published runs take {factor:.2f} times as much here"
    return replace(need, calibrated=factor), note


def _beyond_stated(need: Need, record: Mapping[str, Any]) -> tuple[float, float]:
    """What published runs say of a short run beyond the stated parts, and those, in bytes."""
    count = float(record["gaussians"]["peak"])
    width, height = record["resolution"]
    small = replace(need, photos_on_cpu=True, width=width, height=height, gaussians=Span(count, count, count))
    phase = card_phases(small)["training"]
    if phase is None:
        what = f"Nothing is known of a training of {need.stack}."
        raise SplatfixError.of("app.calibration-failed", what=what)
    parts = [part for part in phase.parts if part.name not in _OVERHEADS]
    published = sum(part.bytes for part in parts if part.kind == "published")
    return float(published), float(sum(part.bytes for part in parts) - published)
