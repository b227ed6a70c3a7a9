"""``splatfix verify``: do the kernels of this environment compute what they should."""

from __future__ import annotations

from typing import Annotated

import typer

from splatfix.cli import interrupted, options


def verify(
    python: options.Python = None,
    device: Annotated[
        options.Device, typer.Option("--device", help="Where the kernels run.")
    ] = options.Device.cpu,
    as_json: options.Json = False,
) -> None:
    """Hold SSIM, kNN and rasterizer, native and swapped side by side, against float64 references."""
    from splatfix.certify import verify as check
    from splatfix.core.files import dumps
    from splatfix.facts import resolve_python
    from splatfix.report import certificate, console

    with interrupted.saying(lambda: "Interrupted: no kernel was found right or wrong; nothing was changed."):
        kernels = check(resolve_python(python), device.value)
    if as_json:
        typer.echo(dumps(certificate.kernels_document(kernels, device.value)), nl=False)
    else:
        certificate.kernels_terminal(console.out(), kernels)
    raise typer.Exit(int(certificate.kernels_exit_code(kernels)))
