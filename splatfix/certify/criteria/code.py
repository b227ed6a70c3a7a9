"""Which code ran: each part's, that it repeats, files as their wheels installed them, extensions built for the GPUs named."""

from __future__ import annotations

from smoke_trainer.record import Implementation
from splatfix.certify.criteria.criterion import SMOKE, Measure, Measures, Registered, Training, criterion
from splatfix.certify.criteria.running import OTHER_PACKAGES
from splatfix.certify.loaded_files import LoadedCode
from splatfix.certify.model import CODE_AS_INSTALLED, Criterion
from splatfix.core.step import Command
from splatfix.core.words import counted, few

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


_AS_INSTALLED = Registered(
    code=CODE_AS_INSTALLED,
    title="Every file that ran is as its wheel installed it",
    why="Other code ran than the versions in this certificate name.",
    source="the RECORD of each wheel (PEP 376); SunshineWYC/BlockGaussian#2: another version of the rasterizer lay there",
)
EXTENSIONS_BUILT = Registered(
    code="extensions-built",
    title="The installed extensions carry code for the GPUs that were named",
    why="They cannot run there. No GPU was used here: what trained is plain PyTorch.",
    source="their own binaries, as splatfix inspect reads them; nerfstudio-project/gsplat#1053: no kernel image for the GPU",
)


def as_installed(code: LoadedCode, python: str) -> Criterion:
    """Name each file that ran and differs from what its wheel installed, and what has no digest to compare with; ``python`` is
    the interpreter for the commands that mend it."""
    texts = [item.text for item in code.differences]
    if not texts and code.compared:
        files = counted(code.compared, "file")
        texts.append(f"{files} of {few(code.distributions)} are as they were installed")
    if code.unknown:
        texts.append(f"not known: {few(code.unknown, 3)}")
    advice: dict[str, None] = {}
    for item in code.differences:
        repair = Command(("splatfix", "install", "--repair", item.distribution, "--python", python))
        remove = "look into the named files, and remove what is not wanted (a .pth file or sitecustomize loads them)"
        advice[repair.shell(windows=False) if item.distribution else remove] = None
    met = not code.differences if code.differences or code.compared else None
    return _AS_INSTALLED.criterion(Measure(met, few(texts, between="; "), advice="; ".join(advice)))
