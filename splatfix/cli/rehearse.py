"""``splatfix rehearse``: a stack's own trainer, where there is no GPU on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from splatfix.cli import certify, options
from splatfix.cli.options import finish

Scene = Annotated[
    Optional[Path],
    typer.Option(
        "--scene",
        help="Folder of the scene to train; it is copied, and never written into.",
        show_default="a bundled one",
        metavar="FOLDER",
        rich_help_panel=certify.SCENES,
    ),
]
Iterations = Annotated[
    Optional[int],
    typer.Option(
        "--iterations",
        help="Length of the training; densification and saving are shortened with it.",
        show_default="120 on a CPU, 1000 on a GPU",
        min=1,
        rich_help_panel=certify.TRAINING,
    ),
]
Resolution = Annotated[
    Optional[int],
    typer.Option(
        "--resolution",
        help="What the trainer's own --resolution is given.",
        show_default="128 with --scene on a CPU",
        min=1,
        rich_help_panel=certify.TRAINING,
    ),
]


def rehearse(
    checkout: Annotated[Path, typer.Argument(help="Folder of a stack's checkout.", metavar="CHECKOUT")],
    words: Annotated[
        Optional[list[str]],
        typer.Argument(help="After --: words for its train.py.", metavar="[-- WORD...]", show_default=False),
    ] = None,
    scene: Scene = None,
    python: options.Python = None,
    iterations: Iterations = None,
    resolution: Resolution = None,
    out: certify.Out = Path("splatfix-report"),
    device: certify.TrainingDevice = options.Device.auto,
    target: certify.Target = None,
    verbose: options.Verbose = False,
    form: certify.FormOption = certify.Form.text,
    exit_codes: certify.ExitCodesOption = certify.ExitCodes.splatfix,
    as_json: options.Json = False,
) -> None:
    """Run a stack's own trainer on a small scene: on a GPU as it is, without one on the CPU, and report what was verified."""
    from splatfix.app.certify import rehearse as run
    from splatfix.certify.request import RehearseRequest

    request = RehearseRequest(
        checkout=checkout,
        scene=scene,
        train_arguments=tuple(words or ()),
        python=python,
        out=out,
        device=device.value,
        iterations=iterations,
        resolution=resolution,
        targets=options.archs(target),
        verbose=verbose,
        monitoring=exit_codes is certify.ExitCodes.monitoring,
    )
    finish(run(request), as_json, form.value)
