"""Compiles a drop-in's CUDA kernels with the NVRTC of the target environment, and proves for which GPUs the code is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from splatfix.binaries import BinaryError, read_binary
from splatfix.context.coverage import judge
from splatfix.core.errors import SplatfixError
from splatfix.core.proof import Rung, RungName
from splatfix.core.resources import kernels_folder
from splatfix.core.runner import Runner
from splatfix.core.scratch import temporary_folder
from splatfix.core.step import say
from splatfix.install.environment import Environment, child_environment
from splatfix.knowledge import Arch
from splatfix.knowledge.dropins import Dropin

_TIMEOUT = 300.0
"""Seconds for all kernels and targets; one module for one GPU takes one to three."""
# What a training asks for: images and all gradients, and the gradients of the colors alone, each with and without the absolute
# gradients by which some variants densify (see rasterizer_cuda.py).
# Other numbers of channels, and images of 32,768 tiles or more, are compiled at their first call.
_OPTIONS: dict[str, tuple[dict[str, object], ...]] = {
    "binning.cu": ({"KEY": "short"},),
    "blending.cu": tuple(
        {"COLORS": 3, "EXTRAS": extras, "ABSOLUTE": absolute} for extras in (3, 0) for absolute in (0, 1)
    ),
}


def compile_cuda_kernels(
    dropin: Dropin, targets: Sequence[str], environment: Environment, runner: Runner, log: Path
) -> tuple[dict[str, bytes], Rung]:
    """(code by file name, what was shown of it).

    Raises:
        SplatfixError: ``nvrtc-failed`` with its words, ``wrong-gpu-code`` for code that is not for the target.
    """
    archs = [Arch.parse(name) for name in targets]
    sources = [Path(name).name for name in dropin.cuda if name.endswith(".cu")]
    wanted = [
        [source, options, arch.number]
        for source in sources
        for options in _OPTIONS.get(source, ({},))
        for arch in archs
    ]
    with temporary_folder() as scratch:
        argv = [environment.python, str(kernels_folder() / "nvrtc.py"), str(scratch), json.dumps(wanted)]
        done = runner.run(argv, timeout=_TIMEOUT, env=child_environment())
        log.write_text(done.stdout + done.stderr, encoding="utf-8")
        said = _answer(done.stdout)
        if not done.ok or "files" not in said:
            raise SplatfixError(
                "nvrtc-failed",
                f"The CUDA kernels of {dropin.name} were not compiled: {said.get('error') or done.why()}.",
                meaning="Nothing was installed.",
                todo=(say("Take --backend pure, which compiles nothing."),),
                details={"log": str(log)},
            )
        made = {name: Path(scratch, name).read_bytes() for name, _ in said["files"]}
        shown = [_proven(Path(scratch, name), source, archs) for name, source in said["files"]]
    words = f"compiled by NVRTC {said['nvrtc']}: {'; '.join(dict.fromkeys(shown))}"
    return made, Rung(RungName.BUILT, True, words)


def _answer(stdout: str) -> dict[str, Any]:
    """The JSON object that the child printed; {} where it printed none."""
    try:
        said = json.loads(stdout)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _proven(code: Path, source: str, archs: Sequence[Arch]) -> str:
    """What a compiled file was found to hold, read from itself and not from its name."""
    try:
        binary = read_binary(code)
    except BinaryError as error:
        raise SplatfixError(
            "wrong-gpu-code", f"What NVRTC made of {source} cannot be read: {error}."
        ) from error
    meant = next(arch for arch in archs if f"-sm_{arch.number}-" in code.name)
    coverage = judge(binary.fatbins, meant)
    if not coverage.usable or coverage.via != "sass":
        raise SplatfixError(
            "wrong-gpu-code",
            f"What NVRTC made of {source} cannot run on {meant.sm}: {coverage.reason}.",
            meaning="Nothing was installed.",
        )
    return f"{source} for {meant.sm} (native code)"
