"""Does it compute, and does it train: ``splatfix certify``, ``monitor`` and ``scenes``."""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import typer

from splatfix.cli import conflicts, options
from splatfix.cli.options import examples, finish, folder_to_write, option, request_of
from splatfix.core.errors import SplatfixError

scenes_app = typer.Typer(
    help="Check or mend a scene of yours; list and export the sample scenes.", no_args_is_help=True
)

LANES = options.names_of(lambda: import_module("splatfix.app.lanes").list_lanes(), "lanes")
SAMPLES = options.names_of(lambda: import_module("splatfix.app.scenes").list_scenes(), "scenes")


def certify(
    context: typer.Context,
    train_arguments: Annotated[Optional[list[str]], option("certify.train_arguments")] = None,
    level: Annotated[Optional[int], option("certify.level")] = None,
    suite: Annotated[Optional[str], option("certify.suite")] = None,
    data: Annotated[Optional[Path], option("certify.data")] = None,
    repo: Annotated[Optional[Path], option("certify.repo")] = None,
    scene: Annotated[Optional[str], option("certify.scene", autocompletion=SAMPLES)] = None,
    iterations: Annotated[Optional[int], option("certify.iterations")] = None,
    resolution: Annotated[Optional[int], option("certify.resolution")] = None,
    python: options.Python = None,
    out: Annotated[Path, option("certify.out")] = Path("splatfix-report"),
    renderer: Annotated[Literal["auto", "inria", "gsplat", "torch"], option("certify.renderer")] = "auto",
    device: Annotated[Literal["auto", "cpu", "cuda"], option("certify.device")] = "auto",
    seed: Annotated[int, option("certify.seed")] = 0,
    baseline: Annotated[Optional[str], option("certify.baseline")] = None,
    target: Annotated[Optional[list[str]], option("certify.target")] = None,
    script: Annotated[str, option("certify.script")] = "",
    face: Annotated[str, option("certify.face")] = "",
    dry_run: Annotated[bool, option("certify.dry_run")] = False,
    container: Annotated[Optional[str], option("certify.container", autocompletion=LANES)] = None,
    extension: Annotated[Optional[list[str]], option("certify.extension")] = None,
    verbose: options.Verbose = False,
    form: options.Format = "text",
    as_json: options.Json = False,
) -> None:
    """Train scenes, bundled ones or yours, in the target environment and report what was verified."""
    from splatfix.app import certify as use_case
    from splatfix.app import lanes, rehearse

    options.one_form(as_json, form)
    conflicts.refuse(context, {f"--level {level}"})
    if container == "list":
        finish(lanes.list_lanes(), as_json)
    named: dict[str, Any] = {"targets": options.archs(target)}
    if container is not None:
        lane_names = tuple(dict.fromkeys(name.strip() for name in container.split(",")))
        named |= {"lanes": lane_names, "extensions": tuple(extension or ())}
        finish(lanes.certify_in_container(request_of(lanes.ContainerRequest, locals(), **named)), as_json)
    request = request_of(use_case.CertifyRequest, locals(), checkout=repo or Path(), **named)
    if repo is None:
        finish(use_case.certify(request), as_json, form, verbose=verbose)
    if dry_run:
        finish(rehearse.dry_run(request), as_json, verbose=verbose)
    finish(use_case.rehearse(request), as_json, form, verbose=verbose)


def monitor(
    target: Annotated[list[str], option("monitor.target")],
    out: Annotated[Path, option("monitor.out", callback=folder_to_write)] = Path("splatfix-monitor"),
    interval: Annotated[float, option("monitor.interval")] = 1.0,
    phases: Annotated[bool, option("monitor.phases")] = False,
    as_json: options.Json = False,
) -> None:
    """Record a trainer's VRAM (through NVML), memory and load to metrics.jsonl; exit with the command's own code.

    Options of splatfix come before the command: splatfix monitor --interval 0.5 python train.py -s scene
    """
    from splatfix.app import monitor as use_case

    finish(use_case.monitor(tuple(target), out, interval=interval, phases=phases, as_json=as_json), as_json)


def divisors(text: str) -> tuple[int, ...]:
    """Of ``--copies``.

    Raises:
        SplatfixError: ``not-divisors`` (exit code 2).
    """
    if text in ("", "none"):
        return ()
    numbers = tuple(int(word) for word in text.split(",") if word.isdigit() and 2 <= int(word) <= 64)
    if len(numbers) != len(text.split(",")):
        raise SplatfixError.of("cli.not-divisors", text=text)
    return numbers


@scenes_app.command("list", epilog=examples("scenes-list"))
def list_scenes(as_json: options.Json = False) -> None:
    """List the sample scenes: layout, number and size of views, kind."""
    from splatfix.app import scenes as use_case

    finish(use_case.list_scenes(), as_json)


@scenes_app.command("export", epilog=examples("scenes-export"))
def export_scenes(
    names: Annotated[Optional[list[str]], option("scenes-export.names", autocompletion=SAMPLES)] = None,
    out: Annotated[Path, option("scenes-export.out", callback=folder_to_write)] = Path("splatfix-scenes"),
    as_json: options.Json = False,
) -> None:
    """Copy sample scenes to a folder."""
    from splatfix.app import scenes as use_case

    finish(use_case.export_scenes(tuple(names or ()), out), as_json)


@scenes_app.command("check", epilog=examples("scenes-check"))
def check_scenes(
    folders: Annotated[list[Path], option("scenes-check.folders")],
    html: Annotated[Optional[Path], option("scenes-check.html")] = None,
    as_json: options.Json = False,
) -> None:
    """Say what is wrong with a scene before hours are spent, and which trainers take it; no torch, no photo decoded."""
    from splatfix.app import scenes as use_case

    finish(use_case.check_scenes(tuple(folders), html), as_json)


@scenes_app.command("fix", epilog=examples("scenes-fix"))
def fix_scene(
    scene: Annotated[Path, option("scenes-fix.scene")],
    out: Annotated[Path, option("scenes-fix.out")],
    copies: Annotated[str, option("scenes-fix.copies")] = "2,4,8",
    split: Annotated[bool, option("scenes-fix.split")] = False,
    as_json: options.Json = False,
) -> None:
    """Make a mended copy of a scene: photos upright, images_2 to images_8, the model in sparse/0, a split.

    A run that was stopped goes on with what is missing. Needs Pillow, which the extra "scenes" of splatfix brings.
    """
    from splatfix.app import scenes as use_case

    request = use_case.FixRequest(folder=scene, out=out, copies=divisors(copies), split=split)
    finish(use_case.fix(request), as_json)
