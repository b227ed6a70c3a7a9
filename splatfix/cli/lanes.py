"""Container lanes: ``splatfix lanes``."""

from __future__ import annotations

from typing import Annotated

import typer

from splatfix.cli import options
from splatfix.cli.options import finish

lanes_app = typer.Typer(help="List the container lanes of certify --container.", no_args_is_help=True)


@lanes_app.command("list", epilog="Example: splatfix lanes list")
def list_lanes(as_json: options.Json = False) -> None:
    """List the lanes: torch, GPU, what extensions are built for."""
    from splatfix.app import lanes

    finish(lanes.list_lanes(), as_json)


@lanes_app.command("show", epilog="Example: splatfix lanes show cuda-from-pypi")
def show_lane(
    name: Annotated[str, typer.Argument(help="Name of the lane.", metavar="LANE")],
    as_json: options.Json = False,
) -> None:
    """Show everything about one lane: images, packages, what it can prove without a GPU, what was run of it."""
    from splatfix.app import lanes

    finish(lanes.show_lane(name), as_json)
