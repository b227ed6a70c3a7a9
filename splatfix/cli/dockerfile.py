"""``splatfix dockerfile``: an image for a checkout."""

from pathlib import Path
from typing import Annotated, Literal, Optional

from splatfix.cli import options
from splatfix.cli.options import finish, option


def dockerfile(
    repo: Annotated[Path, option("dockerfile.repo")],
    target: options.Targets = None,
    out: Annotated[Optional[Path], option("dockerfile.out")] = None,
    toolkit: Annotated[Literal["image", "wheels"], option("dockerfile.toolkit")] = "image",
    torch: Annotated[str, option("dockerfile.torch")] = "",
    jobs: Annotated[int, option("dockerfile.jobs")] = 4,
    force: Annotated[bool, option("dockerfile.force")] = False,
    as_json: options.Json = False,
) -> None:
    """Write a Dockerfile that builds a checkout's extensions for a GPU, proves them, and ships them without a compiler."""
    from splatfix.app import dockerfile as use_case

    named = {"checkout": str(repo), "targets": options.archs_or_auto(target)}
    request = options.request_of(use_case.DockerfileRequest, locals(), **named)
    finish(use_case.make_dockerfile(request), as_json)
