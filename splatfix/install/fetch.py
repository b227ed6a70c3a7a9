"""Fetches the source distribution of a package that installs uncompiled (gsplat), so that it can be built ahead of time."""

from __future__ import annotations

import os
import re
import shutil
import tarfile
from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.resources import user_cache
from splatfix.core.runner import ProcessRunner, Runner
from splatfix.core.step import run, say
from splatfix.install.owned import temporary_folder

_TIMEOUT = 900.0
# Its wheel is py3-none-any and compiles at the first import; its sdist carries setup.py, all CUDA sources and glm.
FETCHABLE = re.compile(r"(gsplat)==(\d+(?:\.\d+)+)")


def fetch_source(text: str, python: str, *, runner: Runner | None = None, cache: Path | None = None) -> str:
    """The folder of the source that ``text`` (such as ``gsplat==1.5.3``) names; any other text as it is.

    It is unpacked into splatfix's own cache, once; no environment is touched.

    Args:
        python: the target interpreter, whose pip downloads.

    Raises:
        SplatfixError: ``source-not-fetched`` with what pip or the archive said.
    """
    named = FETCHABLE.fullmatch(text.strip())
    if named is None:
        return text
    place = (cache or user_cache()) / "sources" / f"{named.group(1)}-{named.group(2)}"
    if (place / "setup.py").is_file():
        return str(place)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(".fetching-", place.parent) as scratch:
            archive = _download(text.strip(), python, scratch, runner or ProcessRunner())
            with tarfile.open(archive) as tar:
                # the oldest 3.10 and 3.11 lack the filter; pip has unpacked and run this archive by then anyway
                safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
                tar.extractall(scratch / "unpacked", **safely)  # type: ignore[arg-type]
            tops = [path for path in (scratch / "unpacked").iterdir() if (path / "setup.py").is_file()]
            if len(tops) != 1:
                raise _failed(text, f"{archive.name} holds {len(tops) or 'no'} setup.py where one belongs")
            top = tops[0]
            shutil.rmtree(place, ignore_errors=True)
            top.replace(place)
    except (OSError, ValueError, tarfile.TarError) as error:
        raise _failed(text, str(error)) from error
    return str(place)


def _download(requirement: str, python: str, folder: Path, runner: Runner) -> Path:
    argv = [python, "-m", "pip", "--no-input", "--disable-pip-version-check", "download", "--no-deps"]
    argv += ["--no-binary", ":all:", "--no-build-isolation", "--dest", str(folder), requirement]
    # pip asks setup.py for the name of what it has downloaded; told to build no CUDA it needs no toolkit for that
    done = runner.run(argv, timeout=_TIMEOUT, cwd=folder, env={**os.environ, "BUILD_NO_CUDA": "1"})
    found = sorted(folder.glob("*.tar.gz"))
    if not done.ok or len(found) != 1:
        said = [line for line in (done.stdout + done.stderr).splitlines() if "rror" in line]
        raise _failed(requirement, said[-1].strip() if said else done.why())
    return found[0]


def _failed(text: str, why: str) -> SplatfixError:
    return SplatfixError(
        "source-not-fetched",
        f"The source of {text} could not be fetched: {why}.",
        meaning="Nothing was changed.",
        todo=(
            say("The target environment needs torch, setuptools and wheel, and pip a way to its index."),
            run(
                "splatfix",
                "install",
                "PATH/TO/gsplat",
                "--target",
                "ARCH",
                text="Or clone the source and name its folder",
            ),
        ),
    )
