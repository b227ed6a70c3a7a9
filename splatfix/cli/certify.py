"""Does it compute, and does it train: ``splatfix verify``, ``certify``, ``rehearse``, ``monitor``, ``scenes`` and ``lanes``."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from splatfix import app
from splatfix.cli import conflicts, options
from splatfix.cli.options import OUTPUT, SCENES, TRAINING, finish, folder_to_write, option
from splatfix.core.errors import usage_error
from splatfix.core.step import say

scenes_app = typer.Typer(
    help="Check or mend a scene of yours; list and export the sample scenes.", no_args_is_help=True
)
lanes_app = typer.Typer(help="List the container lanes of certify --container.", no_args_is_help=True)

CONTAINER = "Container"
LANES = options.names_of(lambda: app.lanes.list_lanes(), "lanes")
SAMPLES = options.names_of(lambda: app.scenes.list_scenes(), "scenes")


class RendererChoice(str, Enum):
    """The rasterizers the trainer can draw with."""

    torch = "torch"
    gsplat = "gsplat"
    inria = "inria"


def verify(
    python: options.Python = None,
    device: Annotated[options.Device, option("--device", "Where the kernels run.")] = options.Device.auto,
    as_json: options.Json = False,
) -> None:
    """Check kernels against float64 references: SSIM, kNN and rasterizer, native and drop-in."""
    finish(app.verify.verify(python, device.value), as_json)


def certify(
    context: typer.Context,
    level: Annotated[
        Optional[int],
        option(
            "--level",
            "How much to run, each with all below it: 1 diagnosis, 2 kernels, 3 quick suite, 4 standard suite, or with --data "
            "the thirteen public scenes. A level skips nothing that belongs to it.",
            SCENES,
            "1-4",
            min=1,
            max=4,
            show_default="the suite, without a diagnosis",
        ),
    ] = None,
    suite: Annotated[
        Optional[str],
        option(
            "--suite",
            "quick (three scenes) or standard (all sample scenes).",
            SCENES,
            show_default="quick, or the lane's own",
        ),
    ] = None,
    data: Annotated[
        Optional[Path],
        option(
            "--data",
            "Train the scenes in this folder instead: the public ones (garden, truck, ...) by name, any other COLMAP, Blender "
            "or nerfstudio scene too.",
            SCENES,
            "ROOT",
        ),
    ] = None,
    repo: Annotated[
        Optional[Path],
        option(
            "--repo",
            "Run this checkout's own trainer instead of splatfix's; see splatfix rehearse.",
            SCENES,
            "CHECKOUT",
        ),
    ] = None,
    scene: Annotated[
        Optional[str],
        option(
            "--scene",
            "Train this sample scene only. With --repo: the folder of the scene that the stack's own trainer trains; it is "
            "copied, and never written into.",
            SCENES,
            "NAME|FOLDER",
            show_default="the suite's, or a bundled one with --repo",
            autocompletion=SAMPLES,
        ),
    ] = None,
    iterations: Annotated[
        Optional[int],
        option(
            "--iterations",
            "Length of each training.",
            TRAINING,
            min=1,
            show_default="the suite's; with --data 300 on a CPU, 7000 on a GPU",
        ),
    ] = None,
    resolution: Annotated[
        Optional[int],
        option(
            "--resolution",
            "1, 2, 4, 8: divisor of the image size; larger: width in pixels.",
            TRAINING,
            min=1,
            show_default="the suite's; with --data 320 on a CPU, each scene's usual one on a GPU",
        ),
    ] = None,
    python: options.Python = None,
    out: options.Out = Path("splatfix-report"),
    renderer: Annotated[
        RendererChoice, option("--renderer", "Rasterizer to train with.", TRAINING)
    ] = RendererChoice.torch,
    device: options.TrainingDevice = options.Device.auto,
    seed: Annotated[int, option("--seed", "Random seed.", TRAINING, min=0, max=2**32 - 1)] = 0,
    baseline: Annotated[
        Optional[str],
        option(
            "--baseline",
            "An earlier certificate.json to compare with; or, with --data, published figures: inria-2023, inria-2023-7k, "
            "gsplat-30k, gsplat-7k, mip-splatting, 3dgs-mcmc, taming-3dgs. Trains as they were measured.",
            OUTPUT,
            "FILE|NAME",
        ),
    ] = None,
    sign: Annotated[
        Optional[Path],
        option(
            "--sign",
            "Sign the report with this ed25519 private key (PEM or OpenSSH), as an in-toto statement.",
            OUTPUT,
            "KEY",
        ),
    ] = None,
    appendix: Annotated[
        bool,
        option(
            "--appendix",
            "Also write an artifact-evaluation appendix: appendix.md and appendix.tex.",
            OUTPUT,
        ),
    ] = False,
    host_label: Annotated[
        str,
        option("--host-label", "What the report calls this machine.", OUTPUT, show_default="not named"),
    ] = "",
    target: options.CertifyTargets = None,
    container: Annotated[
        Optional[str],
        option(
            "--container",
            "Certify inside these container lanes, such as cpu or cpu,cu130; see splatfix lanes list.",
            CONTAINER,
            "LANE[,LANE]",
            autocompletion=LANES,
        ),
    ] = None,
    jobs: Annotated[int, option("--jobs", "Lanes at a time.", CONTAINER, min=1)] = 1,
    extension: Annotated[
        Optional[list[str]],
        option(
            "--extension",
            "Source folder of a CUDA extension to build inside, in a lane with a toolkit; repeatable.",
            CONTAINER,
            "SOURCE",
        ),
    ] = None,
    keep: Annotated[bool, option("--keep", "Leave the container, to look into it.", CONTAINER)] = False,
    docker_host: Annotated[
        Optional[str], option("--docker-host", "Address of the Docker engine.", CONTAINER)
    ] = None,
    base_image: Annotated[
        Optional[str], option("--base-image", "Base image to use instead of the lane's.", CONTAINER)
    ] = None,
    ca_certificates: Annotated[
        Optional[Path],
        option(
            "--ca-certificates",
            "PEM file of certificate authorities for the image build.",
            CONTAINER,
            "FILE",
            show_default="what pip uses here",
        ),
    ] = None,
    verbose: options.Verbose = False,
    form: options.Format = options.Form.text,
    exit_codes: options.ExitCodesOption = options.ExitCodes.splatfix,
    as_json: options.Json = False,
) -> None:
    """Train scenes, bundled ones or yours, in the target environment and report what was verified."""
    options.one_form(as_json, form.value)
    monitoring = exit_codes is options.ExitCodes.monitoring
    conflicts.refuse(context, {f"--level {level}"})
    if container is not None:
        in_lanes = app.lanes.ContainerRequest(
            lanes=tuple(dict.fromkeys(name.strip() for name in container.split(","))),
            out=out,
            jobs=jobs,
            sign=sign,
            suite=suite,
            targets=options.archs(target),
            repo=repo,
            extensions=tuple(extension or ()),
            docker_host=docker_host,
            base_image=base_image,
            ca_certificates=ca_certificates,
            host_label=host_label,
            keep=keep,
        )
        finish(app.lanes.certify_in_container(in_lanes), as_json)
    if repo is not None:
        of_checkout = app.certify.RehearseRequest(
            checkout=repo,
            scene=Path(scene) if scene else None,
            python=python,
            out=out,
            device=device.value,
            iterations=iterations,
            resolution=resolution,
            targets=options.archs(target),
            host_label=host_label,
            verbose=verbose,
            monitoring=monitoring,
        )
        finish(app.certify.rehearse(of_checkout), as_json, form.value)
    request = app.certify.CertifyRequest(
        suite=suite,
        scene=scene,
        data=data,
        level=level,
        python=python,
        out=out,
        device=device.value,
        iterations=iterations,
        resolution=resolution,
        targets=options.archs(target),
        renderer=renderer.value,
        seed=seed,
        baseline=baseline,
        sign=sign,
        appendix=appendix,
        host_label=host_label,
        verbose=verbose,
        monitoring=monitoring,
    )
    finish(app.certify.certify(request), as_json, form.value)


def rehearse(
    checkout: Annotated[Path, typer.Argument(help="Folder of a stack's checkout.", metavar="CHECKOUT")],
    train_arguments: Annotated[
        Optional[list[str]],
        typer.Argument(help="After --: words for its train.py.", metavar="[-- WORD...]", show_default=False),
    ] = None,
    scene: Annotated[
        Optional[Path],
        option(
            "--scene",
            "Folder of the scene to train; it is copied, and never written into.",
            SCENES,
            "FOLDER",
            show_default="a bundled one",
        ),
    ] = None,
    script: Annotated[
        str,
        option(
            "--script",
            "The trainer, a file of the checkout.",
            TRAINING,
            "FILE",
            show_default="train.py, or the only script that trains",
        ),
    ] = "",
    face: Annotated[
        str,
        option(
            "--face",
            "What its rasterizer gives back, in order, where that cannot be read: color,radii,depth,alpha.",
            TRAINING,
            "NAMES",
            show_default="read from its source and its callers",
        ),
    ] = "",
    dry_run: Annotated[
        bool,
        option(
            "--dry-run",
            "Say from text alone which drop-ins it would run on, or why not; run nothing.",
            TRAINING,
        ),
    ] = False,
    why: Annotated[bool, option("--why", "With --dry-run: what was read where.", TRAINING)] = False,
    python: options.Python = None,
    iterations: Annotated[
        Optional[int],
        option(
            "--iterations",
            "Length of the training; densification and saving are shortened with it.",
            TRAINING,
            min=1,
            show_default="120 on a CPU, 1000 on a GPU",
        ),
    ] = None,
    resolution: Annotated[
        Optional[int],
        option(
            "--resolution",
            "What the trainer's own --resolution is given.",
            TRAINING,
            min=1,
            show_default="128 with --scene on a CPU",
        ),
    ] = None,
    out: options.Out = Path("splatfix-report"),
    device: options.TrainingDevice = options.Device.auto,
    target: options.CertifyTargets = None,
    verbose: options.Verbose = False,
    form: options.Format = options.Form.text,
    exit_codes: options.ExitCodesOption = options.ExitCodes.splatfix,
    as_json: options.Json = False,
) -> None:
    """Run a stack's own trainer on a small scene: on a GPU as it is, without one on the CPU, and report what was verified."""
    request = app.certify.RehearseRequest(
        checkout=checkout,
        scene=scene,
        script=script,
        face=face,
        train_arguments=tuple(train_arguments or ()),
        python=python,
        out=out,
        device=device.value,
        iterations=iterations,
        resolution=resolution,
        targets=options.archs(target),
        verbose=verbose,
        monitoring=exit_codes is options.ExitCodes.monitoring,
    )
    if why and not dry_run:
        raise usage_error("why-alone", "--why belongs to --dry-run.")
    if dry_run:
        finish(app.dry_run.dry_run(request, why=why), as_json)
    finish(app.certify.rehearse(request), as_json, form.value)


def monitor(
    target: Annotated[
        list[str],
        typer.Argument(help="PID of a running process, or a command to start.", metavar="PID|COMMAND..."),
    ],
    out: Annotated[
        Path,
        option("--out", "Folder for the series and the summary.", metavar="DIR", callback=folder_to_write),
    ] = Path("splatfix-monitor"),
    interval: Annotated[
        float, option("--interval", "Seconds between two samples.", min=0.05, max=86400.0)
    ] = 1.0,
    tensorboard: Annotated[bool, option("--tensorboard", "Also write TensorBoard event files.")] = False,
    as_json: options.Json = False,
) -> None:
    """Record a trainer's VRAM (through NVML), memory and load to metrics.jsonl; exit with the command's own code.

    Options of splatfix come before the command: splatfix monitor --interval 0.5 python train.py -s scene
    """
    watched = app.monitor.monitor(
        tuple(target), out, interval=interval, tensorboard=tensorboard, as_json=as_json
    )
    finish(watched, as_json)


class ModelForm(str, Enum):
    """Of a COLMAP model."""

    binary = "binary"
    text = "text"
    same = "same"


def divisors(text: str) -> tuple[int, ...]:
    """Of ``--copies``.

    Raises:
        SplatfixError: ``not-divisors`` (exit code 2).
    """
    if text in ("", "none"):
        return ()
    numbers = tuple(int(word) for word in text.split(",") if word.isdigit() and 2 <= int(word) <= 64)
    if len(numbers) != len(text.split(",")):
        raise usage_error(
            "not-divisors",
            f"--copies {text!r} is no list of numbers from 2 to 64.",
            say("Give them as 2,4,8."),
        )
    return numbers


@scenes_app.command("list", epilog="Example: splatfix scenes list")
def list_scenes(as_json: options.Json = False) -> None:
    """List the sample scenes: layout, number and size of views, kind."""
    finish(app.scenes.list_scenes(), as_json)


@scenes_app.command("export", epilog="Example: splatfix scenes export fruit --out scenes")
def export_scenes(
    names: Annotated[
        Optional[list[str]],
        typer.Argument(
            help="Sample scenes.", show_default="all", metavar="[NAME...]", autocompletion=SAMPLES
        ),
    ] = None,
    out: Annotated[
        Path,
        option(
            "--out", "Folder to write one folder per scene into.", metavar="DIR", callback=folder_to_write
        ),
    ] = Path("splatfix-scenes"),
    as_json: options.Json = False,
) -> None:
    """Copy sample scenes to a folder."""
    finish(app.scenes.export_scenes(tuple(names or ()), out), as_json)


@scenes_app.command("check", epilog="Example: splatfix scenes check ./my-scene --html scene.html")
def check_scenes(
    names: Annotated[
        Optional[list[str]],
        typer.Argument(
            help="Folders with scenes of yours, or sample scenes.",
            show_default="all samples",
            metavar="[FOLDER|NAME...]",
            autocompletion=SAMPLES,
        ),
    ] = None,
    root: Annotated[
        Optional[Path],
        option("--root", "Folder with the samples.", metavar="DIR", show_default="the bundled ones"),
    ] = None,
    html: Annotated[
        Optional[Path],
        option(
            "--html", "Also write a page: cameras and points from above, and a contact sheet.", metavar="FILE"
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Say what is wrong with a scene before hours are spent, and which trainers take it; no torch, no photo decoded.

    Sample scenes are compared with their checksums.
    """
    finish(app.scenes.check_scenes(tuple(names or ()), root, html), as_json)


@scenes_app.command(
    "fix", epilog="Example: splatfix scenes fix ./my-scene --out ./my-scene-mended --undistort"
)
def fix_scene(
    scene: Annotated[Path, typer.Argument(help="Folder of a scene; it is only read.", metavar="FOLDER")],
    out: Annotated[Path, option("--out", "New folder for the copy.", metavar="COPY")],
    copies: Annotated[
        str, option("--copies", "Divisors of the smaller copies to make; none for none.", metavar="N,N...")
    ] = "2,4,8",
    model: Annotated[ModelForm, option("--model", "Form of a COLMAP model in the copy.")] = ModelForm.binary,
    undistort: Annotated[
        bool, option("--undistort", "Make pinhole photos of those of any camera model, by pycolmap.")
    ] = False,
    split: Annotated[
        bool, option("--split", "Also hold out every eighth view, in lists that nerfstudio reads.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Make a mended copy of a scene: photos upright, images_2 to images_8, a binary model in sparse/0, a split.

    A run that was stopped goes on with what is missing. Needs the extra splatfix[scenes].
    """
    request = app.scenes.FixRequest(
        folder=scene, out=out, copies=divisors(copies), model=model.value, undistort=undistort, split=split
    )
    finish(app.scenes.fix(request), as_json)


@lanes_app.command("list", epilog="Example: splatfix lanes list")
def list_lanes(as_json: options.Json = False) -> None:
    """List the lanes: torch, GPU, what extensions are built for."""
    finish(app.lanes.list_lanes(), as_json)


@lanes_app.command("show", epilog="Example: splatfix lanes show cuda-from-pypi")
def show_lane(
    name: Annotated[str, typer.Argument(help="Name of the lane.", metavar="LANE", autocompletion=LANES)],
    as_json: options.Json = False,
) -> None:
    """Show everything about one lane: images, packages, what it can prove without a GPU, what was run of it."""
    finish(app.lanes.show_lane(name), as_json)
