"""Does it compute, and does it train: ``splatfix verify``, ``certify``, ``monitor`` and ``scenes``."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from splatfix.cli import conflicts, options
from splatfix.cli.options import finish

scenes_app = typer.Typer(help="List, check or export the sample scenes.", no_args_is_help=True)

SCENES = "Scenes"
TRAINING = "Training"
CONTAINER = "Container"


class Renderer(str, Enum):
    """The rasterizers the trainer can draw with."""

    torch = "torch"
    gsplat = "gsplat"
    inria = "inria"


class Form(str, Enum):
    """What ``certify`` prints."""

    text = "text"
    markdown = "markdown"
    junit = "junit"
    prometheus = "prometheus"
    issue = "issue"
    appendix = "appendix"


class ExitCodes(str, Enum):
    """Whose exit codes: ``monitoring`` are those of Nagios' plugins, 0 ok, 1 warning, 2 critical, 3 unknown."""

    splatfix = "splatfix"
    monitoring = "monitoring"


FormOption = Annotated[
    Form,
    typer.Option(
        "--format",
        help="Print text, Markdown, JUnit's XML, Prometheus' text format, what a bug report needs, or an "
        "artifact-evaluation appendix.",
        rich_help_panel=options.OUTPUT,
    ),
]
ExitCodesOption = Annotated[
    ExitCodes,
    typer.Option(
        "--exit-codes",
        help="monitoring: 0 certified, 1 with reservations, 2 not certified, 3 undetermined or not run.",
        rich_help_panel=options.OUTPUT,
    ),
]
DeviceOption = Annotated[options.Device, typer.Option("--device", help="Where the kernels run.")]
Suite = Annotated[
    Optional[str],
    typer.Option(
        "--suite",
        help="quick (three scenes) or standard (all sample scenes).",
        show_default="quick, or the lane's own",
        rich_help_panel=SCENES,
    ),
]
Data = Annotated[
    Optional[Path],
    typer.Option(
        "--data",
        help="Train the scenes in this folder instead: the public ones (garden, truck, ...) by name, any other "
        "COLMAP, Blender or nerfstudio scene too.",
        metavar="ROOT",
        rich_help_panel=SCENES,
    ),
]
Level = Annotated[
    Optional[int],
    typer.Option(
        "--level",
        help="How much to run, each with all below it: 1 diagnosis, 2 kernels, 3 quick suite, 4 standard suite, or with "
        "--data the thirteen public scenes. A level skips nothing that belongs to it.",
        min=1,
        max=4,
        metavar="1-4",
        show_default="the suite, without a diagnosis",
        rich_help_panel=SCENES,
    ),
]
Repo = Annotated[
    Optional[Path],
    typer.Option(
        "--repo",
        help="Run this checkout's own trainer instead of splatfix's; see splatfix rehearse.",
        metavar="CHECKOUT",
        rich_help_panel=SCENES,
    ),
]
Scene = Annotated[
    Optional[str],
    typer.Option(
        "--scene",
        help="Train this sample scene only. With --repo: the folder of the scene that the stack's own trainer trains; it is "
        "copied, and never written into.",
        show_default="the suite's, or a bundled one with --repo",
        metavar="NAME|FOLDER",
        rich_help_panel=SCENES,
    ),
]
Iterations = Annotated[
    Optional[int],
    typer.Option(
        "--iterations",
        help="Length of each training.",
        show_default="the suite's; with --data 300 on a CPU, 7000 on a GPU",
        min=1,
        rich_help_panel=TRAINING,
    ),
]
Resolution = Annotated[
    Optional[int],
    typer.Option(
        "--resolution",
        help="1, 2, 4, 8: divisor of the image size; larger: width in pixels.",
        show_default="the suite's; with --data 320 on a CPU, each scene's usual one on a GPU",
        min=1,
        rich_help_panel=TRAINING,
    ),
]
RendererOption = Annotated[
    Renderer, typer.Option("--renderer", help="Rasterizer to train with.", rich_help_panel=TRAINING)
]
TrainingDevice = Annotated[
    options.Device, typer.Option("--device", help="Where to train.", rich_help_panel=TRAINING)
]
Seed = Annotated[
    int, typer.Option("--seed", help="Random seed.", min=0, max=2**32 - 1, rich_help_panel=TRAINING)
]
Out = Annotated[
    Path, typer.Option("--out", help="Folder for the report.", metavar="DIR", rich_help_panel=options.OUTPUT)
]
Baseline = Annotated[
    Optional[str],
    typer.Option(
        "--baseline",
        help="An earlier certificate.json to compare with; or, with --data, published figures: inria-2023, "
        "inria-2023-7k, gsplat-30k, gsplat-7k, mip-splatting, 3dgs-mcmc, taming-3dgs. Trains as they were measured.",
        metavar="FILE|NAME",
        rich_help_panel=options.OUTPUT,
    ),
]
Sign = Annotated[
    Optional[Path],
    typer.Option(
        "--sign",
        help="Sign the report with this ed25519 private key (PEM or OpenSSH), as an in-toto statement.",
        metavar="KEY",
        rich_help_panel=options.OUTPUT,
    ),
]
Appendix = Annotated[
    bool,
    typer.Option(
        "--appendix",
        help="Also write an artifact-evaluation appendix: appendix.md and appendix.tex.",
        rich_help_panel=options.OUTPUT,
    ),
]
ContainerLane = Annotated[
    Optional[str],
    typer.Option(
        "--container",
        help="Certify inside these container lanes, such as cpu or cpu,cu130; see splatfix lanes list.",
        metavar="LANE[,LANE]",
        rich_help_panel=CONTAINER,
    ),
]
LaneJobs = Annotated[int, typer.Option("--jobs", help="Lanes at a time.", min=1, rich_help_panel=CONTAINER)]
Extension = Annotated[
    Optional[list[str]],
    typer.Option(
        "--extension",
        help="Source folder of a CUDA extension to build inside, in a lane with a toolkit; repeatable.",
        metavar="SOURCE",
        rich_help_panel=CONTAINER,
    ),
]
KeepContainer = Annotated[
    bool, typer.Option("--keep", help="Leave the container, to look into it.", rich_help_panel=CONTAINER)
]
Target = Annotated[
    Optional[list[str]],
    typer.Option(
        "--target",
        "-t",
        help="Without a GPU: judge the CUDA extensions for this architecture, such as sm_120; in a container, build them "
        "for it. Repeatable.",
        metavar="ARCH",
        rich_help_panel=TRAINING,
    ),
]
DockerHost = Annotated[
    Optional[str],
    typer.Option("--docker-host", help="Address of the Docker engine.", rich_help_panel=CONTAINER),
]
BaseImage = Annotated[
    Optional[str],
    typer.Option("--base-image", help="Base image to use instead of the lane's.", rich_help_panel=CONTAINER),
]
CaCertificates = Annotated[
    Optional[Path],
    typer.Option(
        "--ca-certificates",
        help="PEM file of certificate authorities for the image build.",
        show_default="what pip uses here",
        metavar="FILE",
        rich_help_panel=CONTAINER,
    ),
]


def verify(
    python: options.Python = None,
    device: DeviceOption = options.Device.auto,
    as_json: options.Json = False,
) -> None:
    """Check kernels against float64 references: SSIM, kNN and rasterizer, native and drop-in."""
    from splatfix.app.verify import verify as run

    finish(run(python, device.value), as_json)


def certify(
    context: typer.Context,
    level: Level = None,
    suite: Suite = None,
    data: Data = None,
    repo: Repo = None,
    scene: Scene = None,
    iterations: Iterations = None,
    resolution: Resolution = None,
    python: options.Python = None,
    out: Out = Path("splatfix-report"),
    renderer: RendererOption = Renderer.torch,
    device: TrainingDevice = options.Device.auto,
    seed: Seed = 0,
    baseline: Baseline = None,
    sign: Sign = None,
    appendix: Appendix = False,
    target: Target = None,
    container: ContainerLane = None,
    jobs: LaneJobs = 1,
    extension: Extension = None,
    keep: KeepContainer = False,
    docker_host: DockerHost = None,
    base_image: BaseImage = None,
    ca_certificates: CaCertificates = None,
    verbose: options.Verbose = False,
    form: FormOption = Form.text,
    exit_codes: ExitCodesOption = ExitCodes.splatfix,
    as_json: options.Json = False,
) -> None:
    """Train scenes, bundled ones or yours, in the target environment and report what was verified."""
    from splatfix.app import certify as app
    from splatfix.app import lanes
    from splatfix.certify.request import RehearseRequest, Request

    options.one_form(as_json, form.value)
    monitoring = exit_codes is ExitCodes.monitoring
    conflicts.refuse(conflicts.CERTIFY, context, {f"--level {level}"})
    if container is not None:
        in_lanes = lanes.ContainerRequest(
            lanes=tuple(dict.fromkeys(name.strip() for name in container.split(","))),
            out=out,
            jobs=jobs,
            sign=sign,
            suite=suite,
            targets=options.arch_names(target),
            repo=repo,
            extensions=tuple(extension or ()),
            docker_host=docker_host,
            base_image=base_image,
            ca_certificates=ca_certificates,
            keep=keep,
        )
        finish(lanes.certify_in_container(in_lanes), as_json)
    if repo is not None:
        of_checkout = RehearseRequest(
            checkout=repo,
            scene=Path(scene) if scene else None,
            python=python,
            out=out,
            device=device.value,
            iterations=iterations,
            resolution=resolution,
            targets=options.archs(target),
            verbose=verbose,
            monitoring=monitoring,
        )
        finish(app.rehearse(of_checkout), as_json, form.value)
    request = Request(
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
        verbose=verbose,
        monitoring=monitoring,
    )
    finish(app.certify(request), as_json, form.value)


def monitor(
    words: Annotated[
        list[str],
        typer.Argument(help="PID of a running process, or a command to start.", metavar="PID|COMMAND..."),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            help="Folder for the series and the summary.",
            metavar="DIR",
            callback=options.folder_to_write,
        ),
    ] = Path("splatfix-monitor"),
    interval: Annotated[
        float, typer.Option("--interval", help="Seconds between two samples.", min=0.05, max=86400.0)
    ] = 1.0,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard event files.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Record a trainer's VRAM (through NVML), memory and load to metrics.jsonl; exit with the command's own code.

    Options of splatfix come before the command: splatfix monitor --interval 0.5 python train.py -s scene
    """
    from splatfix.app.monitor import monitor as run

    finish(run(tuple(words), out, interval=interval, tensorboard=tensorboard, as_json=as_json), as_json)


Names = Annotated[
    Optional[list[str]], typer.Argument(help="Sample scenes.", show_default="all", metavar="[NAME...]")
]


@scenes_app.command("list", epilog="Example: splatfix scenes list")
def list_scenes(as_json: options.Json = False) -> None:
    """List the sample scenes: layout, number and size of views, kind."""
    from splatfix.app import scenes

    finish(scenes.list_scenes(), as_json)


@scenes_app.command("export", epilog="Example: splatfix scenes export fruit --out scenes")
def export_scenes(
    names: Names = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            help="Folder to write one folder per scene into.",
            metavar="DIR",
            callback=options.folder_to_write,
        ),
    ] = Path("splatfix-scenes"),
    as_json: options.Json = False,
) -> None:
    """Copy sample scenes to a folder."""
    from splatfix.app import scenes

    finish(scenes.export_scenes(tuple(names or ()), out), as_json)


@scenes_app.command("check", epilog="Example: splatfix scenes check ./my-scene")
def check_scenes(
    names: Annotated[
        Optional[list[str]],
        typer.Argument(
            help="Sample scenes, or folders with scenes of yours.",
            show_default="all samples",
            metavar="[NAME|FOLDER...]",
        ),
    ] = None,
    root: Annotated[
        Optional[Path],
        typer.Option(
            "--root", help="Folder with one folder per scene.", show_default="the bundled ones", metavar="DIR"
        ),
    ] = None,
    python: options.Python = None,
    as_json: options.Json = False,
) -> None:
    """Compare sample scenes with their checksums; load scenes of yours as training would, and say what they lack."""
    from splatfix.app import scenes

    finish(scenes.check_scenes(tuple(names or ()), root, python), as_json)
