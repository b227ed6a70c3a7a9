"""Which code ran: each part's, that it repeats, and extensions built for the GPUs named."""

from __future__ import annotations

from smoke_trainer.record import Implementation
from splatfix.certify.criteria.criterion import SMOKE, Measure, Measures, Registered, Training, criterion
from splatfix.certify.criteria.running import OTHER_PACKAGES
from splatfix.core.words import counted

CPU_TOLERANCE, GPU_TOLERANCE = 1e-6, 1e-2
"""Relative difference of a loss. How far atomics carry in 30 iterations was not measured on a GPU; another seed or another order
of views differs by far more."""


@criterion(
    "implementations-identified",
    title="Each part's code is what was named, and ran in every iteration",
    why="Another implementation ran than the report names, or none: its result says nothing about the one that was meant.",
    source="field report: an extension silently replaced by a slow path",
    advice=OTHER_PACKAGES,
    of=SMOKE,
)
def implementations_identified(training: Training) -> Measures:
    """Compare the code of each part with what its name says, and count its calls."""
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
    "training-repeats",
    title="Training repeats with the same seed",
    why="Two runs of one seed differ from the start: something is random that no seed sets, or memory is read unwritten.",
    source="a CPU repeats to the last digit; on a GPU atomics add in an order that changes; nerfstudio-project/gsplat#872: the "
    "first training on an L4 was worse",
    advice="Look for what no seed sets, and for an extension that reads memory it has not written, which compute-sanitizer "
    "--tool initcheck finds; --renderer torch runs none.",
    of=SMOKE,
)
def training_repeats(training: Training) -> Measures:
    """Compare the losses of a training's beginning with those of a second run."""
    if training.repeated is None:
        return None
    allowed = CPU_TOLERANCE if training.device == "cpu" else GPU_TOLERANCE
    gaps = [abs(before - after) / max(abs(before), 1e-12) for before, after in training.repeated]
    if not gaps:
        ending = training.repeat_ended or "none were written"
        return Measure(False, f"the second run left no losses: {ending}")
    measured = f"losses of {counted(len(gaps), 'iteration')} differ by at most {max(gaps):.2g} of their value"
    met = not training.repeat_ended and max(gaps) <= allowed
    return Measure(met, measured, required=f"at most {allowed:g}")


EXTENSIONS_BUILT = Registered(
    code="extensions-built",
    title="The installed extensions carry code for the GPUs that were named",
    why="They cannot run there. No GPU was used here: what trained is plain PyTorch.",
    source="their own binaries, as splatfix inspect reads them; nerfstudio-project/gsplat#1053: no kernel image for the GPU",
)
