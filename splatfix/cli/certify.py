"""``splatfix certify``: does this environment really train 3D Gaussians, here or inside a container."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from splatfix.cli import interrupted, options
from splatfix.core.step import say


class Renderer(str, Enum):
    """The rasterizers the trainer can draw with."""

    torch = "torch"
    gsplat = "gsplat"
    inria = "inria"


def certify(
    suite: Annotated[
        Optional[str],
        typer.Option(
            "--suite",
            help="quick (three scenes) or standard (all sample scenes).",
            show_default="quick, or the lane's own",
        ),
    ] = None,
    data: Annotated[
        Optional[Path],
        typer.Option(
            "--data",
            help="Train the scenes of this folder instead: the public ones (garden, truck, ...) by name, any other "
            "COLMAP, Blender or nerfstudio scene too.",
            metavar="ROOT",
        ),
    ] = None,
    iterations: Annotated[
        Optional[int],
        typer.Option(
            "--iterations",
            help="Length of each training.",
            show_default="the suite's; with --data 300 on a CPU, 7000 on a GPU",
            min=1,
        ),
    ] = None,
    resolution: Annotated[
        Optional[int],
        typer.Option(
            "--resolution",
            help="1, 2, 4, 8: divisor of the images' size; larger: width in pixels.",
            show_default="the suite's; with --data 320 on a CPU, each scene's usual one on a GPU",
            min=1,
        ),
    ] = None,
    python: options.Python = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for the report.", metavar="DIR")] = Path(
        "splatfix-report"
    ),
    renderer: Annotated[
        Renderer, typer.Option("--renderer", help="Which rasterizer trains.")
    ] = Renderer.torch,
    device: Annotated[
        options.Device, typer.Option("--device", help="Where it trains.")
    ] = options.Device.auto,
    seed: Annotated[
        int, typer.Option("--seed", help="Of every random choice in the training.", min=0, max=2**32 - 1)
    ] = 0,
    baseline: Annotated[
        Optional[Path],
        typer.Option("--baseline", help="An earlier certificate.json to hold this one against."),
    ] = None,
    container: Annotated[
        Optional[str],
        typer.Option(
            "--container", help="Do it inside this container lane (dockerfiles/lanes.toml).", metavar="LANE"
        ),
    ] = None,
    docker_host: Annotated[
        Optional[str], typer.Option("--docker-host", help="Address of the Docker engine.")
    ] = None,
    base_image: Annotated[
        Optional[str], typer.Option("--base-image", help="Start the lane from this image.")
    ] = None,
    ca_certificates: Annotated[
        Optional[Path],
        typer.Option(
            "--ca-certificates", help="PEM file that the image build's package sources need.", metavar="FILE"
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Train scenes, bundled ones or yours, in the target environment and report what was really shown."""
    from splatfix.core.files import dumps

    here = {"--data": data, "--iterations": iterations, "--resolution": resolution, "--python": python}
    here |= {"--renderer": renderer is not Renderer.torch, "--device": device is not options.Device.auto}
    here |= {"--seed": seed, "--baseline": baseline}
    inside = {"--docker-host": docker_host, "--base-image": base_image, "--ca-certificates": ca_certificates}
    _fit_together(suite, data, container, here, inside)
    if container is not None:
        with interrupted.on_interrupt(_nothing_certified):
            _in_container(container, suite, out, docker_host, base_image, ca_certificates, as_json)
    from splatfix import facts
    from splatfix.certify import Request, data_suite, device_for, require_gpu, run_and_report, sample_suite
    from splatfix.report import certificate as report
    from splatfix.report import console
    from splatfix.report.progress import training

    with interrupted.on_interrupt(_nothing_certified):
        target = facts.resolve_python(python)
        known = facts.gather(target)
        where = device_for(device.value, known)
        require_gpu(renderer.value, where, known)
        request = Request(
            python=target,
            suite=data_suite(data, target, where, iterations, resolution)
            if data is not None
            else sample_suite(suite or "quick", iterations, resolution),
            out=out.absolute(),
            renderer=renderer.value,
            device=where,
            seed=seed,
            baseline=_baseline(baseline, renderer.value, where) if baseline else None,
        )
        with training(console.err()) as progress:
            result, _ = run_and_report(request, progress, known)
    if as_json:
        typer.echo(dumps(report.document(result, known)), nl=False)
    else:
        report.terminal(console.out(), result)
        console.out().print(f"\nreport: {out / 'certificate.md'}", markup=False, soft_wrap=True)
    raise typer.Exit(int(report.exit_code(result)))


def _nothing_certified() -> str:
    from splatfix.certify import Interrupted

    return str(Interrupted())


def _fit_together(
    suite: str | None,
    data: Path | None,
    container: str | None,
    here: Mapping[str, object],
    inside: Mapping[str, object],
) -> None:
    """Refuse options that contradict each other, or that would be passed over, before anything runs.

    Args:
        here: options that only a certification on this machine knows; ``inside``: those that only a container knows.
    """
    from splatfix.core.errors import usage_error

    if data is not None and suite is not None:
        raise usage_error(
            "suite-and-data", "--suite and --data both choose the scenes.", say("Give one of them, not both.")
        )
    unfit = ", ".join(name for name, value in (inside if container is None else here).items() if value)
    if unfit and container is not None:
        raise usage_error(
            "not-in-a-container",
            f"A container lane trains its suite as it is: {unfit} does not reach into it.",
            say("Leave that out, or certify an environment of this machine with --python."),
        )
    if unfit:
        raise usage_error(
            "only-in-a-container",
            f"{unfit} says how to make a container, and none was asked for.",
            say("Add --container LANE, or leave that out."),
        )


def _baseline(path: Path, renderer: str, device: str) -> dict[str, Any]:
    """An earlier certificate of the same renderer and device.

    Raises:
        SplatfixError: exit code 2 for anything else, before anything is trained.
    """
    from splatfix.core.errors import usage_error
    from splatfix.core.files import read_json

    document = read_json(path, "an earlier certificate.json")
    if not isinstance(document, dict) or document.get("kind") != "certificate" or not document.get("scenes"):
        raise usage_error("not-a-certificate", f"{path} is no certificate.json of splatfix certify.")
    if (document.get("renderer"), document.get("device")) != (renderer, device):
        raise usage_error(
            "another-baseline",
            f"{path} was certified with {document.get('renderer')} on {document.get('device')}, not {renderer} on {device}.",
            say("Compare like with like: give the same --renderer and --device."),
        )
    return document


def _in_container(
    lane: str,
    suite: str | None,
    out: Path,
    docker_host: str | None,
    base_image: str | None,
    ca_certificates: Path | None,
    as_json: bool,
) -> None:
    from rich.markup import escape

    from splatfix.containers import certify_in_container
    from splatfix.core.files import dumps
    from splatfix.report import console
    from splatfix.report.layout import prose

    result = certify_in_container(
        lane,
        suite=suite,
        out=out.absolute(),
        docker_host=docker_host,
        base_image=base_image,
        ca_certificates=ca_certificates,
        progress=lambda line: console.err().print(line, style="dim", markup=False, soft_wrap=True),
    )
    if as_json:
        typer.echo(dumps(result.certificate), nl=False)
    else:
        word = "GRANTED" if result.certificate.get("granted") else "REFUSED"
        prose(console.out(), "", escape(f"{word} in lane {lane}: {result.certificate.get('claim', '')}"))
        for reason in result.certificate.get("reasons", ()):
            prose(console.out(), "  ✗ ", escape(str(reason)))
        console.out().print(f"report: {out / 'certificate.md'}", markup=False, soft_wrap=True)
    raise typer.Exit(result.exit_code)
