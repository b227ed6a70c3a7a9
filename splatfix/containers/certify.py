"""A certification inside a container: engine, wheels, image, run, report."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from splatfix.certify import Interrupted, make_room
from splatfix.certify.host import Host
from splatfix.certify.model import Verdict
from splatfix.certify.request import ContainerRequest
from splatfix.containers.engine import Engine, connect, require_gpu
from splatfix.containers.image import (
    BUILT,
    CHECKOUT,
    OWN,
    PACKAGES,
    ImageRecipe,
    build_image,
    own_source,
    read_inside,
)
from splatfix.containers.lanes import GpuNeed, Lane, ToolkitFrom
from splatfix.containers.packages import certificate_file, pip_settings, wheels_of_torch
from splatfix.containers.run import (
    IMAGE_LOG,
    PROVENANCE,
    REPORT_FOLDER,
    ContainerJob,
    ContainerOutcome,
    run_in_container,
    sweep,
)
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.files import read_json, read_named, write_json
from splatfix.core.runner import Runner
from splatfix.core.step import Command, run, say, target_options, value_options


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
    """
    _require_sources(lane, request)
    engine = connect()
    try:
        if swept := sweep(engine):
            progress(f"removed containers and images that killed runs left on the engine ({swept} in all)")
        if not engine.limits:
            limit = f"this engine does not hold a container to {lane.memory} of memory"
            progress(f"{limit}: rootless, without cgroup v2")
        gpu, no_gpu = _gpu(lane, engine, progress)
        make_room(out, ())
        recipe = recipe_for(lane, request)
        image = build_image(engine, recipe, progress=progress, log=out / IMAGE_LOG)
        host = Host(lane.name, image.id, f"{image.base_image} {image.base_id}", host_command(request, lane))
        command = certify_command(lane, request, recipe.targets, gpu=gpu)
        job = ContainerJob(lane, image, command, out, gpu, host.variables)
        with naming_what_is_left(out):
            outcome = run_in_container(engine, job, progress)
        certificate = certificate_of(outcome, job)
        packages = read_inside(engine, image, PACKAGES)
        built = read_inside(engine, image, BUILT)
    finally:
        engine.client.close()
    made_in = {
        "schema_version": 2,
        "lane": lane.name,
        "image": {"tag": image.tag, "id": image.id, "reused": image.reused},
        "base_image": {"name": image.base_image, "id": image.base_id},
        "engine": {
            "kind": engine.kind,
            "version": engine.version,
            "arch": engine.arch,
            "rootless": engine.rootless,
            "limits": engine.limits,
        },
        "packages": (packages or b"").decode().splitlines(),
        "built": json.loads(built) if built else None,
        "no_gpu": no_gpu,
        "exit_code": outcome.exit_code,
        "seconds": round(outcome.seconds, 3),
    }
    write_json(out / PROVENANCE, made_in)
    return certificate, outcome.exit_code


def recipe_for(lane: Lane, request: ContainerRequest) -> ImageRecipe:
    """The image for what was asked, with the pip settings of this machine."""
    settings = pip_settings(Runner())
    folders = {f"extensions/{number}": Path(folder) for number, folder in enumerate(request.extensions)}
    extensions = [f"{OWN}/{name}" for name in folders]
    if request.repo is not None:
        extensions.insert(0, CHECKOUT)
    return ImageRecipe(
        lane=lane,
        source=own_source(),
        certificates=read_certificates(certificate_file(settings)),
        wheels=wheels_of_torch(lane, settings),
        pip_args=settings.build_args,
        checkout=request.repo,
        extensions=tuple(extensions) or lane.extensions,
        targets=tuple(map(str, request.targets)) or lane.targets,
        folders=folders,
    )


def certify_command(
    lane: Lane, request: ContainerRequest, targets: Sequence[str], *, gpu: bool
) -> tuple[str, ...]:
    """The command that runs inside."""
    command = ["python", "-m", "splatfix", "certify"]
    if request.repo:
        command += ["--repo", CHECKOUT]
    else:
        command += ["--suite", request.suite or lane.suite]
    if gpu:
        command += ["--device", "cuda"]
    else:
        command += target_options(targets)
    return (*command, "--out", REPORT_FOLDER, "--json")


def host_command(request: ContainerRequest, lane: Lane) -> Command:
    """The command line on this machine that asks for the same; what belongs to its engine and its site is left out."""
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


def _gpu(lane: Lane, engine: Engine, progress: Callable[[str], None]) -> tuple[bool, str]:
    """Whether GPUs are passed in, and why not where they could be of use.

    Raises:
        SplatfixError: as :func:`require_gpu`, for a lane that needs one.
    """
    if lane.gpu is GpuNeed.NONE:
        return False, ""
    try:
        require_gpu(engine)
    except SplatfixError as error:
        if lane.gpu is GpuNeed.REQUIRED:
            raise
        progress(f"no GPU: what is built is not run. {error.what}")
        return False, error.what
    return True, ""


@contextmanager
def naming_what_is_left(out: Path) -> Iterator[None]:
    """An interrupt of what runs in here says where the report is that was copied."""
    try:
        yield
    except KeyboardInterrupt:
        stop, page = Interrupted(), out / "certificate.html"
        if page.is_file():
            stop.add(f"The certificate of what was run until then: {page}.")
        raise stop from None


def certificate_of(outcome: ContainerOutcome, job: ContainerJob) -> dict[str, Any]:
    """The certificate from the container.

    Raises:
        SplatfixError: ``container-report-damaged``; ``container-no-report``, with the container's own exit code where that is 3.
    """
    path = job.out / "certificate.json"
    if path in outcome.files:
        try:
            document = read_json(path, "a certificate")
        except SplatfixError as error:
            raise SplatfixError.of(
                "containers.certificate-damaged", reason=error.what, log=job.log
            ) from error
        if isinstance(document, dict) and document.get("verdict") in [item.value for item in Verdict]:
            return document
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


def read_certificates(path: Path | None) -> bytes:
    """The certificates of a PEM file; nothing for None.

    Raises:
        SplatfixError: ``cannot-read`` or ``no-certificates`` (exit code 2).
    """
    if path is None:
        return b""
    content = read_named(path)
    if b"-----BEGIN CERTIFICATE-----" not in content:
        raise SplatfixError.of("containers.no-certificates", path=path)
    return content
