"""``splatfix verify``: do the kernels of this environment compute what they should."""

from __future__ import annotations

from typing import Annotated

import typer

from splatfix.cli import interrupted, options


def verify(
    python: options.Python = None,
    device: Annotated[
        options.Device, typer.Option("--device", help="Where the kernels run.")
    ] = options.Device.auto,
    as_json: options.Json = False,
) -> None:
    """Hold SSIM, kNN and rasterizer, native and swapped side by side, against float64 references."""
    from splatfix.certify import device_for, idle_gpu
    from splatfix.certify import verify as check
    from splatfix.core.files import dumps
    from splatfix.facts import gather, resolve_python
    from splatfix.report import certificate, console

    with interrupted.on_interrupt(
        lambda: "Interrupted: no kernel was found right or wrong; nothing was changed."
    ):
        target = resolve_python(python)
        facts = gather(target)
        where = device_for(device.value, facts)
        kernels = check(target, where, facts=facts)
    if as_json:
        typer.echo(dumps(certificate.kernels_document(kernels, where)), nl=False)
    else:
        certificate.kernels_terminal(console.out(), kernels, where, idle_gpu(facts, where))
    raise typer.Exit(int(certificate.kernels_exit_code(kernels)))
