"""What ran, and to which end: the smoke trainer's length, its renderer, the code of every part, the file it saved."""

from __future__ import annotations

import re

from msgspec.structs import replace

from splatfix.certify.criteria.criterion import criterion
from splatfix.certify.loaded_files import LoadedCode
from splatfix.certify.model import Criterion
from splatfix.certify.record import Implementation, TrainingRecord
from splatfix.core.step import Command
from splatfix.core.words import counted, few

CODE_AS_INSTALLED = "code-as-installed"
_PARTS = ("renderer", "ssim", "knn", "optimizer")
_CUDA_ERROR = re.compile(
    r"CUDA (?:runtime |driver )?error|no kernel image is available|illegal memory access|device-side assert triggered"
    r"|misaligned address|unspecified launch failure|\bcudaError[A-Z]\w+|CUDA_ERROR_[A-Z_]+",
    re.IGNORECASE,
)
_LONGEST_LINE = 300


def finished(record: TrainingRecord, iterations: int | None) -> Criterion:
    """As many iterations as were asked for; None: as many as the preset has."""
    done, expected = record.iterations, iterations
    if expected is None:
        expected = record.config.iterations
    return criterion(
        "training-finishes",
        # "failed" after all iterations: the saved point cloud differs, which is a criterion of its own
        done is not None and done == expected and record.status in ("ok", "failed"),
        f"{counted(done or 0, 'iteration')}, {record.status}",
        expected=counted(expected or 0, "iteration"),
    )


def renderer_as_asked(record: TrainingRecord, renderer: str) -> Criterion:
    """The renderer that ran is the one that was asked for."""
    ran = record.implementations.get("renderer", Implementation())
    return criterion("renderer-as-asked", ran.kind == renderer, f"{ran.kind} ({ran.name})", renderer=renderer)


def implementations_identified(record: TrainingRecord) -> Criterion:
    """The code of each part is what its name says, known by its digest, and was called."""
    iterations = record.iterations or 0
    problems, digests = [], []
    for part in _PARTS:
        ran = record.implementations.get(part, Implementation())
        digests.append(f"{part} {ran.file} {str(ran.sha256)[:12]}")
        # neighbors are looked for once, at the start
        least = 1 if part == "knn" else iterations
        problem = _problem(ran, least)
        if problem:
            problems.append(f"{part}: {problem}")
    return criterion(
        "implementations-identified", iterations > 0 and not problems, "; ".join(problems or digests)
    )


def _problem(ran: Implementation, least_calls: int) -> str:
    name, module = str(ran.name), str(ran.module)
    package = name.removesuffix("._C")  # a drop-in's function may come from a file beside it
    if not module.startswith(package.lower()) and not package.startswith(module):
        return f"{name} was named, and {module} ran"
    if not re.fullmatch("[0-9a-f]{64}", str(ran.sha256)):
        return f"the file of {name} is not known"
    calls = ran.calls if isinstance(ran.calls, int) else 0
    if calls < least_calls:
        return f"{name} had {counted(calls, 'call')}"
    return ""


def ply_round_trip(record: TrainingRecord) -> Criterion:
    """Judge whether the saved point cloud, read back, renders as what was trained."""
    difference, tolerance = record.ply.round_trip_difference, record.ply.tolerance
    measured = "not measured" if difference is None else f"largest difference {difference:.2g}"
    met = difference is not None and tolerance is not None and difference <= tolerance
    return criterion("ply-round-trip", met, measured, tolerance=tolerance)


def no_cuda_error(output: str, device: str) -> tuple[Criterion, ...]:
    """That CUDA reported no error, by all that the trainer and the libraries below it printed; nothing where it did not run."""
    line = next((line.strip() for line in output.splitlines() if _CUDA_ERROR.search(line)), "")
    if device == "cpu" and not line:
        return ()
    item = criterion("no-cuda-error", not line, line[:_LONGEST_LINE] or "none was printed")
    return (item,)


def as_installed(code: LoadedCode | None, python: str = "python") -> tuple[Criterion, ...]:
    """Fail for each file that ran and differs from what its wheel installed, and name what has no digest to compare with.

    There is no criterion where nothing was loaded yet. ``python`` is the interpreter for the commands that mend it.
    """
    if code is None:
        return ()
    texts = [item.text for item in code.differences]
    if not texts and code.compared:
        texts.append(
            f"{counted(code.compared, 'file')} of {few(code.distributions)} are as they were installed"
        )
    if code.unknown:
        texts.append(f"not known: {few(code.unknown, 3)}")
    met: bool | None = not code.differences
    if met and not code.compared:
        met = None
    item = criterion(CODE_AS_INSTALLED, met, few(texts, between="; "))
    names = dict.fromkeys(item.distribution for item in code.differences if item.distribution)
    repairs = [Command(("splatfix", "install", "--repair", name, "--python", python)) for name in names]
    advice = [command.shell(windows=False) for command in repairs]
    if any(not item.distribution for item in code.differences):
        advice.append(
            "look into the named files, and remove what is not wanted (a .pth file or sitecustomize loads them)"
        )
    return (replace(item, advice="; ".join(advice)),)
