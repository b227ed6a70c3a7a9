"""``splatfix dockerfile``: an image for a checkout."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

from splatfix import app
from splatfix.cli import options
from splatfix.cli.options import finish, option


class ToolkitChoice(str, Enum):
    """Where the compiler comes from."""

    image = "image"
    wheels = "wheels"


def dockerfile(
    repo: Annotated[Path, option("--repo", "Folder of the checkout.", metavar="CHECKOUT")],
    target: options.Targets = None,
    out: Annotated[
        Optional[Path],
        option(
            "--out -o",
            "Folder for the Dockerfile and a wheel of this splatfix, made where it is missing; or the Dockerfile itself.",
            metavar="DIR|FILE",
            show_default="print it",
        ),
    ] = None,
    toolkit: Annotated[
        ToolkitChoice,
        option(
            "", "CUDA compiler from NVIDIA's devel image, or from PyPI wheels (CUDA 13) on a plain Debian."
        ),
    ] = ToolkitChoice.image,
    torch: Annotated[
        str,
        option(
            "",
            "torch to take, such as 2.11.0 or 2.8.0+cu128.",
            metavar="VERSION",
            show_default="the newest that fits",
        ),
    ] = "",
    jobs: Annotated[
        int,
        option(
            "--jobs -j", "Parallel compiler processes, as far as MAX_JOBS is not given to the build.", min=1
        ),
    ] = 4,
    compose: Annotated[bool, option("--compose", "Also write compose.yaml.")] = False,
    devcontainer: Annotated[
        bool, option("--devcontainer", "Also write .devcontainer/devcontainer.json.")
    ] = False,
    force: Annotated[bool, option("--force", "Overwrite files that are there.")] = False,
    as_json: options.Json = False,
) -> None:
    """Write a Dockerfile that builds a checkout's extensions for a GPU, proves them, and ships them without a compiler."""
    image = app.dockerfile.ImageRequest(
        checkout=str(repo),
        targets=options.archs_or_auto(target),
        toolkit=toolkit.value,
        torch=torch,
        jobs=jobs,
    )
    request = app.dockerfile.DockerfileRequest(
        image=image,
        out=out,
        compose=compose,
        devcontainer=devcontainer,
        force=force,
    )
    finish(app.dockerfile.make_dockerfile(request), as_json)
