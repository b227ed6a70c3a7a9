"""``splatfix dockerfile``: an image for a checkout."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from splatfix.cli import options
from splatfix.cli.options import finish


class Toolkit(str, Enum):
    """Where the compiler comes from."""

    image = "image"
    wheels = "wheels"


def dockerfile(
    repo: Annotated[Path, typer.Option("--repo", help="Folder of the checkout.", metavar="CHECKOUT")],
    target: options.Targets = None,
    out: Annotated[
        Optional[Path],
        typer.Option(
            "--out",
            "-o",
            help="Folder for the Dockerfile and a wheel of this splatfix, made where it is missing; or the Dockerfile itself.",
            show_default="print it",
            metavar="DIR|FILE",
        ),
    ] = None,
    toolkit: Annotated[
        Toolkit,
        typer.Option(
            help="CUDA compiler from NVIDIA's devel image, or from PyPI wheels (CUDA 13) on a plain Debian."
        ),
    ] = Toolkit.image,
    torch: Annotated[
        str,
        typer.Option(
            help="torch to take, such as 2.11.0 or 2.8.0+cu128.",
            show_default="the newest that fits",
            metavar="VERSION",
        ),
    ] = "",
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs",
            "-j",
            min=1,
            help="Parallel compiler processes, as far as MAX_JOBS is not given to the build.",
        ),
    ] = 4,
    compose: Annotated[bool, typer.Option("--compose", help="Also write compose.yaml.")] = False,
    devcontainer: Annotated[
        bool, typer.Option("--devcontainer", help="Also write .devcontainer/devcontainer.json.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
    as_json: options.Json = False,
) -> None:
    """Write a Dockerfile that builds a checkout's extensions for a GPU, proves them, and ships them without a compiler."""
    from splatfix.app.dockerfile import DockerfileRequest, make_dockerfile

    request = DockerfileRequest(
        repo=repo,
        targets=options.archs_or_auto(target),
        out=out,
        toolkit=toolkit.value,
        torch=torch,
        jobs=jobs,
        compose=compose,
        devcontainer=devcontainer,
        force=force,
    )
    finish(make_dockerfile(request), as_json)
