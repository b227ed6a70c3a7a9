"""``splatfix certify``: does this environment really train 3D Gaussians, here or inside a container."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from splatfix.cli import options


def certify(
    suite: Annotated[
        Optional[str],
        typer.Option(
            "--suite",
            help="quick (two scenes) or standard (all sample scenes).",
            show_default="quick, or the lane's own",
        ),
    ] = None,
    python: options.Python = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for the report.", metavar="DIR")] = Path(
        "splatfix-report"
    ),
    renderer: Annotated[str, typer.Option("--renderer", help="torch, gsplat or inria.")] = "torch",
    device: Annotated[str, typer.Option("--device", help="cpu or cuda.")] = "cpu",
    seed: Annotated[int, typer.Option("--seed", help="Of every random choice in the training.")] = 0,
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
    """Train the bundled scenes in the target environment and report what was really shown."""
    from splatfix.core.files import dumps

    if container is not None:
        _in_container(container, suite, out, docker_host, base_image, ca_certificates, as_json)
    from splatfix import facts
    from splatfix.certify import Request, run_and_report
    from splatfix.certify import suite as suite_named
    from splatfix.core.files import read_json
    from splatfix.report import certificate as report
    from splatfix.report import console
    from splatfix.report.progress import training

    request = Request(
        python=facts.resolve_python(python),
        suite=suite_named(suite or "quick"),
        out=out.absolute(),
        renderer=renderer,
        device=device,
        seed=seed,
        baseline=read_json(baseline, "an earlier certificate.json") if baseline else None,
    )
    with training(console.err()) as progress:
        result, known = run_and_report(request, progress)
    if as_json:
        typer.echo(dumps(report.document(result, known)), nl=False)
    else:
        report.terminal(console.out(), result)
        console.out().print(f"\nreport: {out / 'certificate.md'}", soft_wrap=True)
    raise typer.Exit(int(report.exit_code(result)))


def _in_container(
    lane: str,
    suite: str | None,
    out: Path,
    docker_host: str | None,
    base_image: str | None,
    ca_certificates: Path | None,
    as_json: bool,
) -> None:
    from splatfix.containers import certify_in_container
    from splatfix.core.files import dumps
    from splatfix.report import console

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
        console.out().print(f"{word} in lane {lane}: {result.certificate.get('claim', '')}", soft_wrap=True)
        for reason in result.certificate.get("reasons", ()):
            console.out().print(f"  ✗ {reason}", markup=False, soft_wrap=True)
        console.out().print(f"report: {out / 'certificate.md'}", soft_wrap=True)
    raise typer.Exit(result.exit_code)
