"""Compiles a drop-in's kernels in the target environment, by torch's NVRTC or by Warp, and proves for which GPUs the code is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
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
from splatfix.knowledge.warp import kernel_of

_TIMEOUT = 300.0
"""Seconds for all kernels and targets; one module for one GPU takes NVRTC one to three, and Warp one to twenty."""
# What a training asks for: images and all gradients, and the gradients of the colors alone, each with and without the absolute
# gradients by which some variants densify (see rasterizer_cuda.py).
# Other numbers of channels, and images of 32,768 tiles or more, are compiled at their first call.
_OPTIONS: dict[str, tuple[dict[str, object], ...]] = {
    "binning.cu": ({"KEY": "short"},),
    "surfels.cu": ({"COLORS": 3},),
    "blending.cu": tuple(
        {"COLORS": 3, "EXTRAS": extras, "ABSOLUTE": absolute} for extras in (3, 0) for absolute in (0, 1)
    ),
}


@dataclass(frozen=True)
class _Compiler:
    """Who compiles: ``nvrtc`` or ``warp``."""

    name: str
    words: str
    script: str
    """Of ``splatfix.kernels``, that runs in the target environment."""
    other: str
    """The other backend that needs no compiler."""


_NVRTC = _Compiler("nvrtc", "NVRTC", "nvrtc.py", "warp")
_WARP = _Compiler("warp", "Warp", "on_warp.py", "nvrtc")


def compile_cuda_kernels(
    dropin: Dropin, targets: Sequence[Arch], environment: Environment, runner: Runner, log: Path
) -> tuple[dict[str, bytes], Rung]:
    """(code of our own kernels by file name, what was shown of it).

    Raises:
        SplatfixError: ``nvrtc-failed`` with its words, ``wrong-gpu-code`` for code that is not for the target.
    """
    wanted = [
        [source, options, arch.number]
        for source in (Path(name).name for name in dropin.cuda if name.endswith(".cu"))
        for options in _OPTIONS.get(source, ({},))
        for arch in targets
    ]
    return _compiled(_NVRTC, wanted, dropin, targets, environment, runner, log)


def compile_gswarp(
    dropin: Dropin, targets: Sequence[Arch], environment: Environment, runner: Runner, log: Path
) -> Rung:
    """What was shown of the kernels of gswarp that stand behind a drop-in: Warp compiles them for the targets.

    The code is read and left: at the first call Warp compiles for itself.

    Raises:
        SplatfixError: ``warp-failed`` with its words, ``wrong-gpu-code`` for code that is not for the target.
    """
    wanted = [[kernel_of(dropin)[0]], [arch.number for arch in targets]]
    return _compiled(_WARP, wanted, dropin, targets, environment, runner, log)[1]


def _compiled(
    compiler: _Compiler,
    wanted: list[Any],
    dropin: Dropin,
    archs: Sequence[Arch],
    environment: Environment,
    runner: Runner,
    log: Path,
) -> tuple[dict[str, bytes], Rung]:
    with temporary_folder() as scratch:
        argv = [
            environment.python,
            str(kernels_folder() / compiler.script),
            str(scratch),
            json.dumps(wanted),
        ]
        done = runner.run(argv, timeout=_TIMEOUT, env=child_environment())
        log.write_text(done.stdout + done.stderr, encoding="utf-8")
        said = _answer(done.stdout)
        if not done.ok or "files" not in said:
            raise SplatfixError(
                f"{compiler.name}-failed",
                f"The CUDA kernels of {dropin.name} were not compiled: {said.get('error') or done.why()}.",
                meaning="Nothing was installed.",
                todo=(say(f"Take --backend {compiler.other}, or --backend pure, which compiles nothing."),),
                details={"log": str(log)},
            )
        made = {name: Path(scratch, name).read_bytes() for name, *_ in said["files"]}
        shown = [
            _proven(Path(scratch, name), source, _of_number(archs, number))
            for name, source, number in said["files"]
        ]
    words = f"compiled by {compiler.words} {said[compiler.name]}: {'; '.join(dict.fromkeys(shown))}"
    return made, Rung(RungName.BUILT, True, words)


def _of_number(archs: Sequence[Arch], number: int) -> Arch:
    return next(arch for arch in archs if arch.number == number)


def _answer(stdout: str) -> dict[str, Any]:
    """The JSON object that the child printed last; {} where it printed none."""
    try:
        said = json.loads(stdout.rpartition("\n")[2])
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _proven(code: Path, source: str, meant: Arch) -> str:
    """What a compiled file was found to hold, read from itself and not from its name."""
    try:
        binary = read_binary(code)
    except BinaryError as error:
        raise SplatfixError(
            "wrong-gpu-code", f"What was made of {source} cannot be read: {error}."
        ) from error
    coverage = judge(binary.fatbins, meant)
    if not coverage.usable:
        raise SplatfixError(
            "wrong-gpu-code",
            f"What was made of {source} cannot run on {meant.sm}: {coverage.reason}.",
            meaning="Nothing was installed.",
        )
    how = "native code" if coverage.via == "sass" else "PTX, which the driver compiles"
    return f"{source} for {meant.sm} ({how})"
