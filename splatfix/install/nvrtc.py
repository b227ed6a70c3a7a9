"""Compiles a drop-in's kernels in the target environment, by torch's NVRTC, and proves for which GPUs the code is."""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from splatfix.binaries import BinaryError, read_binary
from splatfix.context.coverage import judge
from splatfix.core.errors import SplatfixError
from splatfix.core.proof import Rung, RungName
from splatfix.core.resources import KERNELS
from splatfix.core.runner import Runner
from splatfix.core.scratch import temporary_folder
from splatfix.core.step import say
from splatfix.install.environment import Environment, child_environment
from splatfix.knowledge import Arch
from splatfix.knowledge.dropins import Dropin

_TIMEOUT = 300.0
"""Seconds for all kernels and targets; one module for one GPU takes NVRTC one to three."""
# What a training asks for: images and all gradients, and the gradients of the colors alone, each with and without the absolute
# gradients by which some variants densify (see rasterizer_cuda.py).
# Other numbers of channels, and images of 32,768 tiles or more, are compiled at their first call.
_OPTIONS: dict[str, tuple[dict[str, object], ...]] = {
    "binning.cu": ({"KEY": "short"},),
    "surfels.cu": ({"COLORS": 3},),
    # of gsplat: colors, and with a depth, each with and without the absolute gradients that it densifies by
    "gsplat_pixels.cu": tuple(
        {"COLORS": colors, **absolute} for colors in (3, 4) for absolute in ({}, {"ABSOLUTE": 1})
    ),
    "gsplat_surfels.cu": ({"COLORS": 4}, {"COLORS": 4, "ABSOLUTE": 1}),
    "blending.cu": tuple(
        {"COLORS": 3, "EXTRAS": extras, "ABSOLUTE": absolute} for extras in (3, 0) for absolute in (0, 1)
    ),
}


def variants_of(dropin: Dropin, source: str) -> tuple[dict[str, object], ...]:
    """Return the definitions that a source of a drop-in is compiled with, once each."""
    variants: tuple[dict[str, object], ...] = _OPTIONS.get(source, ({},))
    if source == "blending.cu" and dropin.gives_used:
        variants += ({"COLORS": 3, "EXTRAS": 3, "ABSOLUTE": 0, "USED": 1},)
    return variants


def compile_cuda_kernels(
    dropin: Dropin, targets: Sequence[Arch], environment: Environment, runner: Runner, log: Path
) -> tuple[dict[str, bytes], Rung]:
    """(code of our own kernels by file name, what was shown of it).

    Raises:
        SplatfixError: ``nvrtc-failed`` with its words, ``wrong-gpu-code`` for code that is not for the target.
    """
    jobs: list[list[object]] = []
    for name in dropin.cuda:
        source = Path(name).name
        if not source.endswith(".cu"):
            continue  # a header
        for options in variants_of(dropin, source):
            jobs += [[source, options, arch.number] for arch in targets]
    with temporary_folder() as scratch:
        argv = [environment.python, str(KERNELS / "nvrtc.py"), str(scratch), json.dumps(jobs)]
        # in the target environment: its torch brings the NVRTC that will compile there too
        completed = runner.run(argv, timeout=_TIMEOUT, env=child_environment())
        log.write_text(completed.stdout + completed.stderr, encoding="utf-8")
        answer: Any = None
        with suppress(ValueError):  # its last line is a JSON object, where it came so far
            answer = json.loads(completed.stdout.rpartition("\n")[2])
        if not isinstance(answer, dict):
            answer = {}
        if not completed.ok or "files" not in answer:
            reason = answer.get("error") or completed.why()
            raise SplatfixError(
                "nvrtc-failed",
                f"The CUDA kernels of {dropin.name} were not compiled: {reason}.",
                meaning="Nothing was installed.",
                todo=(say("Take --backend pure, which compiles nothing."),),
                details={"log": str(log)},
            )
        code: dict[str, bytes] = {}
        proofs: list[str] = []
        for name, source, number in answer["files"]:
            file = Path(scratch, name)
            code[name] = file.read_bytes()
            target = next(arch for arch in targets if arch.number == number)
            # what it holds is read from itself and not from its name
            try:
                binary = read_binary(file)
            except BinaryError as error:
                raise SplatfixError.of("install.unreadable-gpu-code", source=source, error=error) from error
            coverage = judge(binary.fatbins, target)
            if not coverage.usable:
                raise SplatfixError.of(
                    "install.wrong-gpu-code", source=source, sm=target.sm, reason=coverage.reason
                )
            means = "native code" if coverage.via == "sass" else "PTX, which the driver compiles"
            proofs.append(f"{source} for {target.sm} ({means})")
    shown = "; ".join(dict.fromkeys(proofs))
    shown_by = f"compiled by NVRTC {answer['nvrtc']}: {shown}"
    return code, Rung(RungName.BUILT, True, shown_by)
