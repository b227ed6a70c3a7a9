"""A certification inside a container: engine, wheels, image, run, report."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from splatfix.certify import make_room
from splatfix.certify.environment import Host
from splatfix.containers.engine import connect, require_gpu
from splatfix.containers.image import CHECKOUT, OWN, ImageRecipe, build_image
from splatfix.containers.packages import pip_settings
from splatfix.containers.run import REPORT_FOLDER, ContainerJob, run_in_container, sweep
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.files import read_json, write_json
from splatfix.core.runner import Runner
from splatfix.core.step import Command, run, say, target_options, value_options
from splatfix.knowledge import Arch
from splatfix.knowledge.lanes import GpuNeed, Lane, ToolkitFrom


class ContainerRequest(Struct, frozen=True, kw_only=True):
    """What ``certify --container`` was asked for: what to certify inside which lanes; what is left out is the lane's own."""

    lanes: tuple[str, ...]
    out: Path = Path("splatfix-report")
    """With several lanes, each has its folder in it."""
    suite: str | None = None
    targets: tuple[Arch, ...] = ()
    """That extensions are built for."""
    repo: Path | None = None
    """A stack's checkout: its extensions are built where the lane has a toolkit, and its trainer is run."""
    extensions: tuple[str, ...] = ()
    """Source folders of extensions."""


def certify_in_container(
    request: ContainerRequest,
    lane: Lane,
    out: Path,
    progress: Callable[[str], None],
) -> tuple[dict[str, Any], int]:
    """Certify inside a container of a lane and copy the report: the certificate, and its exit code.

    Args:
        lane: one of those that were asked for.
        out: the folder for its report, ``container.json`` and the logs.
        progress: gets one line at a time; must not raise.

    Raises:
        SplatfixError: exit code 2 for wrong options, 3 where the certification could not run (no engine, no GPU runtime,
            no packages, timeout), 1 where the image cannot be built or there is no report.
        KeyboardInterrupt: Ctrl-C; it says where the report is that was copied.
    """
    _require_sources(lane, request)
    engine = connect()
    try:
        if swept := sweep(engine):
            progress(f"removed containers that killed runs left on the engine ({swept} in all)")
        if not engine.limits:
            limit = f"this engine does not hold a container to {lane.memory} of memory"
            progress(f"{limit}: rootless, without cgroup v2")
        gpu, no_gpu = lane.gpu is not GpuNeed.NONE, ""
        if gpu:
            try:
                require_gpu(engine)
            except SplatfixError as error:
                if lane.gpu is GpuNeed.REQUIRED:
                    raise
                gpu, no_gpu = False, error.what
                progress(f"no GPU: what is built is not run. {no_gpu}")
        make_room(out, ())
        recipe = recipe_for(lane, request)
        image = build_image(engine, recipe, progress=progress, log=out / "image-build.log")
        place = f"lane {lane.name}, image {image.id}, base {image.base_image} {image.base_id}"
        command = certify_command(recipe.lane, request, gpu=gpu)
        host = Host(place, host_command(request, lane))
        job = ContainerJob(lane, image.id, command, out, gpu, host.variables)
        try:
            outcome = run_in_container(engine, job, progress)
        except KeyboardInterrupt:
            page, text = out / "certificate.html", "Interrupted: nothing was certified."
            if page.is_file():
                text += f" The certificate of what was run until then: {page}."
            raise KeyboardInterrupt(text) from None
    finally:
        engine.client.close()
    if not (out / "certificate.json").is_file():
        last, code = list(outcome.last_lines), outcome.exit_code
        missing = SplatfixError.of(
            "containers.container-no-report",
            code=code,
            last=" | ".join(last[-5:]) or "none",
            log=job.log,
            details={"log": str(job.log), "container_exit_code": code, "last_lines": last},
        )
        if code == Exit.UNDETERMINED:
            missing.exit_code = Exit.UNDETERMINED
        raise missing
    made_in = {
        "schema_version": 2,
        "lane": lane.name,
        "image": {"tag": image.tag, "id": image.id, "reused": image.reused},
        "base_image": {"name": image.base_image, "id": image.base_id},
        "engine": {name: getattr(engine, name) for name in ("kind", "version", "arch", "rootless", "limits")},
        "packages": outcome.packages.decode().splitlines(),
        "built": json.loads(outcome.built) if outcome.built else None,
        "no_gpu": no_gpu,
        "exit_code": outcome.exit_code,
        "seconds": round(outcome.seconds, 3),
    }
    write_json(out / "container.json", made_in)
    return read_json(out / "certificate.json", "a certificate"), outcome.exit_code


def recipe_for(lane: Lane, request: ContainerRequest) -> ImageRecipe:
    """Return the image for what was asked, with the pip settings of this machine."""
    folders = {f"extensions/{number}": Path(folder) for number, folder in enumerate(request.extensions)}
    extensions = [f"{OWN}/{name}" for name in folders]
    if request.repo is not None:
        extensions.insert(0, CHECKOUT)
    return ImageRecipe(
        lane=replace(
            lane,
            extensions=tuple(extensions) or lane.extensions,
            targets=tuple(map(str, request.targets)) or lane.targets,
        ),
        pip=pip_settings(Runner()),
        checkout=request.repo,
        folders=folders,
    )


def certify_command(lane: Lane, request: ContainerRequest, *, gpu: bool) -> tuple[str, ...]:
    """Return the command that runs inside."""
    command = ["python", "-m", "splatfix", "certify"]
    if request.repo:
        command += ["--repo", CHECKOUT]
    else:
        command += ["--suite", request.suite or lane.suite]
    if gpu:
        command += ["--device", "cuda"]
    else:
        command += target_options(lane.targets)
    return (*command, "--out", REPORT_FOLDER)


def host_command(request: ContainerRequest, lane: Lane) -> Command:
    """Return the command line on this machine that asks for the same; what belongs to its engine and its site is left out."""
    arguments = ["splatfix", "certify", "--container", lane.name]
    arguments += value_options({"--suite": request.suite, "--repo": request.repo})
    arguments += target_options(request.targets)
    for folder in request.extensions:
        arguments += ["--extension", folder]
    return Command(tuple(arguments))


def _require_sources(lane: Lane, request: ContainerRequest) -> None:
    """Refuse what the lane cannot do with the sources that were given, or not given (exit code 2)."""
    for folder in (request.repo, *map(Path, request.extensions)):
        if folder is not None and not folder.is_dir():
            raise SplatfixError.of("containers.not-a-folder", folder=folder)
    if lane.toolkit is ToolkitFrom.NOTHING and (request.extensions or request.targets):
        gpus = ", ".join(map(str, request.targets)) or "any GPU"
        raise SplatfixError.of("containers.lane-builds-nothing", lane_name=lane.name, gpus=gpus)
    if lane.repository and not lane.extensions and request.repo is None:
        address, _, commit = lane.repository.partition("@")
        text = "Clone it"
        if commit:
            text += f" (read at {commit})"
        todo = (run("git", "clone", "--recursive", address, text=text), say("Then add --repo CHECKOUT."))
        raise SplatfixError.of("containers.lane-needs-checkout", lane=lane.name, todo=todo)
