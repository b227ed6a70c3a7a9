"""Unpacks a CUDA toolkit from PyPI wheels into splatfix's own cache, mends it, and sees that it compiles and links."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.files import write_json
from splatfix.core.runner import Runner
from splatfix.core.step import say
from splatfix.install.owned import temporary_folder
from splatfix.plan.plan import ProvideToolkit
from splatfix.plan.provided import MARKER

_DOWNLOAD_TIMEOUT = 3600.0
# Settings of a person's pip that would send the wheels elsewhere; where to download from is left as they have it.
_TAKEN_OUT = {"PIP_TARGET", "PIP_USER", "PIP_PREFIX", "PIP_ROOT", "PIP_NO_INDEX", "PIP_REQUIRE_VIRTUALENV"}
# What a build takes of a toolkit at the least; see facts.toolkits.NEEDED_HEADERS.
_NEEDED = (
    "bin/nvcc",
    "bin/ptxas",
    "include/cuda_runtime.h",
    "include/cublas_v2.h",
    "include/cusparse.h",
    "include/cusolverDn.h",
    "include/cccl/cub/cub.cuh",
    "include/cccl/thrust/device_vector.h",
    "lib/libcudart.so",
)
_PROBE = """#include <cub/block/block_reduce.cuh>
#include <cuda_runtime.h>
__global__ void twice(float *values) { values[threadIdx.x] *= 2; }
extern "C" int run() { twice<<<1, 32>>>(nullptr); return (int)cudaGetLastError(); }
"""


def provide_toolkit(
    action: ProvideToolkit, python: str, runner: Runner, log: Path, doing: Callable[[str], None]
) -> Path:
    """Make the action's toolkit; afterwards it is there whole, or nothing of it is. Returns its root.

    Raises:
        SplatfixError: ``toolkit-not-provided`` with what pip or the probe said.
    """
    folder = Path(action.folder)
    root = folder / Path(action.root).relative_to(folder)
    if (folder / MARKER).is_file():
        return root
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with temporary_folder(".making-", folder.parent) as making:
            doing(f"downloading {action.requirements[0]}")
            whole = making / "toolkit"
            whole.mkdir()
            _pip(action, python, whole, runner, log)
            made = whole / root.relative_to(folder)
            _mend(made, action.links)
            doing("compiling a probe with it")
            _prove(made, runner, making / "probe", log)
            write_json(whole / MARKER, {"schema_version": 1, "requirements": list(action.requirements)})
            shutil.rmtree(folder, ignore_errors=True)  # what an older splatfix left without a marker
            whole.replace(folder)
    except OSError as error:
        raise _failed(f"{folder} cannot be written: {error.strerror or error}", log) from error
    return root


def _pip(action: ProvideToolkit, python: str, making: Path, runner: Runner, log: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in _TAKEN_OUT}
    argv = [python, "-m", "pip", "--no-input", "--disable-pip-version-check", "install", "--no-cache-dir"]
    argv += ["--only-binary", ":all:", "--target", str(making), *action.requirements]
    done = runner.run(argv, timeout=_DOWNLOAD_TIMEOUT, env=environment, log=log)
    if not done.ok:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("ERROR")]
        raise _failed(f"pip could not download it: {said[-1] if said else done.why()}", log)


def _mend(root: Path, links: tuple[tuple[str, str], ...]) -> None:
    """The unversioned names that linkers ask for, which wheels cannot carry; execute bits, where an unzip lost them."""
    for path, points_to in links:
        if not (root / path).exists() and (root / path).parent.is_dir():
            (root / path).symlink_to(points_to)
    for folder in (root / "bin", root / "nvvm" / "bin"):
        for program in folder.glob("*") if folder.is_dir() else ():
            if program.is_file():
                program.chmod(program.stat().st_mode | 0o111)


def _prove(root: Path, runner: Runner, folder: Path, log: Path) -> None:
    """Every file that builds need, and a kernel compiled for the newest architecture it lists and linked as torch links."""
    lacking = [name for name in _NEEDED if not (root / name).exists()]
    if lacking:
        raise _failed(f"the wheels left out {', '.join(lacking)}", log)
    folder.mkdir()
    (folder / "probe.cu").write_text(_PROBE)
    nvcc = str(root / "bin" / "nvcc")
    argv = [nvcc, "-arch=sm_90", "-Xcompiler", "-fPIC", "-shared", "-cudart", "shared", "probe.cu"]
    argv += [f"-L{root / 'lib'}", "-lcudart", "-o", "probe.so"]
    done = runner.run(argv, timeout=300.0, cwd=folder, log=log)
    if not done.ok:
        said = (done.stderr or done.stdout or done.why()).strip().splitlines()
        raise _failed(f"it does not compile: {said[0] if said else done.why()}", log)


def _failed(what: str, log: Path) -> SplatfixError:
    return SplatfixError(
        "toolkit-not-provided",
        f"A CUDA toolkit could not be put into splatfix's cache: {what}.",
        meaning="Nothing of it was kept, and the environment was not changed.",
        todo=(
            say("Check the network and the disk, then run this again."),
            say("Or install a toolkit yourself and name it with --cuda-home."),
            say(f"Full log: {log}"),
        ),
    )
