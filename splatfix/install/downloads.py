"""Downloads into splatfix's own cache, never into an environment: CUDA toolkits and source distributions, with pip."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.utils import parse_wheel_filename

from splatfix.core.errors import SplatfixError
from splatfix.core.files import read_json, sha256_of, write_json
from splatfix.core.runner import Completed, ProcessRunner, Runner
from splatfix.core.scratch import temporary_folder
from splatfix.core.step import say
from splatfix.core.trust import distrust, private_cache
from splatfix.install.environment import open_environment
from splatfix.knowledge.toolkits import known_digest
from splatfix.plan.provided import MARKER
from splatfix.plan.steps import ProvideToolkit

_DOWNLOAD_TIMEOUT = 3600.0
# Settings of the user's pip that would send the wheels elsewhere; where to download from is left as it is.
_UNSET = {"PIP_TARGET", "PIP_USER", "PIP_PREFIX", "PIP_ROOT", "PIP_NO_INDEX", "PIP_REQUIRE_VIRTUALENV"}
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
_SDIST_TIMEOUT = 900.0
# Its wheel is py3-none-any and compiles at the first import; its sdist carries setup.py, all CUDA sources and glm.
FETCHABLE = re.compile(r"(gsplat)==(\d+(?:\.\d+)+)")


def provide_toolkit(
    action: ProvideToolkit, pip: Sequence[str], runner: Runner, log: Path, doing: Callable[[str], None]
) -> tuple[Path, str]:
    """Unpack the action's toolkit into the cache, whole or not at all; returns its root, and a digest of its wheels.

    Args:
        pip: how pip is called; see :meth:`splatfix.facts.Installer.pip`.

    Raises:
        SplatfixError: ``toolkit-not-provided`` with what pip or the probe said, ``cache-not-private``.
    """
    folder = Path(action.folder)
    root = folder / Path(action.root).relative_to(folder)
    private_cache(folder.parent.name, folder.parent.parent)
    if (folder / MARKER).is_file() and not distrust(folder):
        return root, _digest(read_json(folder / MARKER, "the note on a toolkit in the cache"))
    try:
        with temporary_folder(".making-", folder.parent) as making:
            doing(f"downloading {action.requirements[0]}")
            whole = making / "toolkit"
            whole.mkdir(mode=0o700)
            wheels = _unpack(action.requirements, pip, making, whole, runner, log)
            made = whole / root.relative_to(folder)
            _complete(made, action.links)
            doing("compiling a probe with it")
            _check_toolkit(made, runner, making / "probe", log)
            note = {"schema_version": 1, "requirements": list(action.requirements), "wheels": wheels}
            write_json(whole / MARKER, note)
            shutil.rmtree(folder, ignore_errors=True)  # incomplete without the marker, or somebody else's
            whole.replace(folder)
    except OSError as error:
        raise _not_provided(f"{folder} cannot be written: {error.strerror or error}", log) from error
    return root, _digest(note)


def _digest(note: Mapping[str, Any]) -> str:
    """One digest for all wheels of a toolkit; "" for one that an earlier splatfix made, which kept none."""
    wheels = note.get("wheels") or {}
    return hashlib.sha256(json.dumps(wheels, sort_keys=True).encode()).hexdigest() if wheels else ""


def _unpack(
    requirements: Sequence[str], pip: Sequence[str], making: Path, whole: Path, runner: Runner, log: Path
) -> dict[str, str]:
    """Download the wheels, then install exactly those, by hash; returns the SHA-256 of each by ``name==version``.

    pip has compared each with the hash that its index gives; one that the knowledge tables know must have that hash.
    """
    wheels, lock = making / "wheels", making / "lock.txt"
    _pip(["download", "--only-binary", ":all:", "--dest", str(wheels), *requirements], pip, runner, log)
    found: dict[str, str] = {}
    for path in sorted(wheels.glob("*.whl")):
        name, version, _, _ = parse_wheel_filename(path.name)
        found[f"{name}=={version}"] = known_digest(name, version) or sha256_of(path)
    lock.write_text("".join(f"{pin} --hash=sha256:{digest}\n" for pin, digest in found.items()))
    argv = ["install", "--no-deps", "--no-index", "--find-links", str(wheels), "--target", str(whole)]
    _pip([*argv, "--require-hashes", "--requirement", str(lock)], pip, runner, log)
    shutil.rmtree(wheels)
    return found


def pip_with_index(words: Sequence[str], pip: Sequence[str], runner: Runner, log: Path) -> Completed:
    """Run pip with the person's own indexes, and without what would send files elsewhere."""
    environment = {name: value for name, value in os.environ.items() if name not in _UNSET}
    argv = [*pip, "--no-input", "--disable-pip-version-check", *words]
    return runner.run(argv, timeout=_DOWNLOAD_TIMEOUT, env=environment, log=log)


def _pip(words: Sequence[str], pip: Sequence[str], runner: Runner, log: Path) -> None:
    done = pip_with_index(["--no-cache-dir", *words], pip, runner, log)
    if not done.ok:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("ERROR")]
        raise _not_provided(f"pip could not {words[0]} it: {said[-1] if said else done.why()}", log)


def _complete(root: Path, links: tuple[tuple[str, str], ...]) -> None:
    """Add the unversioned names that linkers ask for, which wheels cannot carry, and execute bits where they were lost."""
    for path, points_to in links:
        if not (root / path).exists() and (root / path).parent.is_dir():
            (root / path).symlink_to(points_to)
    for folder in (root / "bin", root / "nvvm" / "bin"):
        for program in folder.glob("*") if folder.is_dir() else ():
            if program.is_file():
                program.chmod(program.stat().st_mode | 0o111)


def _check_toolkit(root: Path, runner: Runner, folder: Path, log: Path) -> None:
    """Check that every file that builds need is there, and that a kernel compiles and links as torch links."""
    lacking = [name for name in _NEEDED if not (root / name).exists()]
    if lacking:
        raise _not_provided(f"the wheels left out {', '.join(lacking)}", log)
    folder.mkdir()
    (folder / "probe.cu").write_text(_PROBE)
    nvcc = str(root / "bin" / "nvcc")
    argv = [nvcc, "-arch=sm_90", "-Xcompiler", "-fPIC", "-shared", "-cudart", "shared", "probe.cu"]
    argv += [f"-L{root / 'lib'}", "-lcudart", "-o", "probe.so"]
    done = runner.run(argv, timeout=300.0, cwd=folder, log=log)
    if not done.ok:
        said = (done.stderr or done.stdout or done.why()).strip().splitlines()
        raise _not_provided(f"it does not compile: {said[0] if said else done.why()}", log)


def _not_provided(what: str, log: Path) -> SplatfixError:
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


def fetch_source(
    text: str,
    python: str,
    *,
    pip: Sequence[str] = (),
    runner: Runner | None = None,
    cache: Path | None = None,
) -> str:
    """The folder of the source that ``text`` (such as ``gsplat==1.5.3``) names; any other text as it is.

    It is unpacked into splatfix's own cache, once; no environment is touched.

    Args:
        python: the target interpreter.
        pip: how pip is called for it; () finds out.

    Raises:
        SplatfixError: ``source-not-fetched`` with what pip or the archive said, ``cache-not-private``.
    """
    named = FETCHABLE.fullmatch(text.strip())
    if named is None:
        return text
    place = private_cache("sources", cache) / f"{named.group(1)}-{named.group(2)}"
    if (place / "setup.py").is_file() and not distrust(place):
        return str(place)
    try:
        with temporary_folder(".fetching-", place.parent) as scratch:
            runner = runner or ProcessRunner()
            pip = pip or open_environment(python, runner).installer.pip(python)
            archive = _download_sdist(text.strip(), pip, scratch, runner)
            with tarfile.open(archive) as tar:
                # the oldest 3.10 and 3.11 lack the filter; pip has unpacked and run this archive by then anyway
                safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
                tar.extractall(scratch / "unpacked", **safely)  # type: ignore[arg-type]  # nosec B202
            tops = [path for path in (scratch / "unpacked").iterdir() if (path / "setup.py").is_file()]
            if len(tops) != 1:
                raise _not_fetched(
                    text, f"{archive.name} holds {len(tops) or 'no'} setup.py where one belongs"
                )
            top = tops[0]
            shutil.rmtree(place, ignore_errors=True)
            top.chmod(0o700)
            top.replace(place)
    except (OSError, ValueError, tarfile.TarError) as error:
        raise _not_fetched(text, str(error)) from error
    return str(place)


def _download_sdist(requirement: str, pip: Sequence[str], folder: Path, runner: Runner) -> Path:
    argv = [*pip, "--no-input", "--disable-pip-version-check", "download", "--no-deps"]
    argv += ["--no-binary", ":all:", "--no-build-isolation", "--dest", str(folder), requirement]
    # pip asks setup.py for the name of what it has downloaded; told to build no CUDA it needs no toolkit for that
    done = runner.run(argv, timeout=_SDIST_TIMEOUT, env={**os.environ, "BUILD_NO_CUDA": "1"})
    found = sorted(folder.glob("*.tar.gz"))
    if not done.ok or len(found) != 1:
        said = [line for line in (done.stdout + done.stderr).splitlines() if "rror" in line]
        raise _not_fetched(requirement, said[-1].strip() if said else done.why())
    return found[0]


def _not_fetched(text: str, why: str) -> SplatfixError:
    return SplatfixError(
        "source-not-fetched",
        f"The source of {text} could not be fetched: {why}.",
        meaning="Nothing was changed.",
        todo=(
            say("The target environment needs torch, setuptools and wheel, and pip a way to its index."),
            say("Or clone the source, and give its folder to splatfix install."),
        ),
    )
