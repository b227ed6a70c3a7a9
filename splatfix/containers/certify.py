"""A certification inside a container: engine, wheels, image, run, report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splatfix.certify import Interrupted, make_room
from splatfix.certify.host import Host
from splatfix.certify.model import Verdict
from splatfix.containers.engine import Engine, connect, require_gpu
from splatfix.containers.image import (
    BUILT,
    CHECKOUT,
    OWN,
    PACKAGES,
    Image,
    Recipe,
    build_image,
    own_source,
    read_inside,
)
from splatfix.containers.lanes import GpuUse, Lane, ToolkitFrom, find_lane
from splatfix.containers.packages import certificate_file, pip_settings, wheels_of_torch
from splatfix.containers.run import REPORT_FOLDER, ContainerOutcome, Running, run_in_container, sweep
from splatfix.core.errors import Exit, SplatfixError, usage_error
from splatfix.core.files import write_json
from splatfix.core.reading import read_bytes
from splatfix.core.runner import ProcessRunner
from splatfix.core.step import Command, run, say, target_options

_CERTIFICATE, _NOTE = "certificate.json", "container.json"
_BUILD_LOG, _LOG = "image-build.log", "container.log"


@dataclass(frozen=True)
class LaneRequest:
    """What to certify inside a container; None is the lane's own."""

    lane: str
    out: Path
    """Folder for the report, ``container.json`` and the logs."""
    suite: str | None = None
    targets: tuple[str, ...] = ()
    """GPU architectures that extensions are built for."""
    repo: Path | None = None
    """A stack's checkout: its extensions are built where the lane has a toolkit, and its trainer is run."""
    extensions: tuple[str, ...] = ()
    """Source folders of extensions."""
    docker_host: str | None = None
    """Address of the engine; None: the one the docker command would use."""
    base_image: str | None = None
    ca_certificates: Path | None = None
    """PEM file; None: what pip on this machine uses."""
    keep: bool = False
    command: Sequence[str] | None = None
    """Runs instead of the certification, and writes the same report folder."""


@dataclass(frozen=True)
class ContainerResult:
    """A certificate from a container, and the image that it was made in."""

    certificate: dict[str, Any]
    exit_code: int
    """The certificate's own."""
    image: Image


def certify_in_container(
    asked: LaneRequest, progress: Callable[[str], None], running: Running | None = None
) -> ContainerResult:
    """Certify inside a container of a lane and copy the report.

    Args:
        progress: gets one line at a time; must not raise.
        running: ends it from another thread.

    Raises:
        SplatfixError: exit code 2 for wrong options, 3 where the certification could not run (no engine, no GPU runtime,
            no packages, timeout), 1 where the image cannot be built or there is no report.
    """
    lane = find_lane(asked.lane)
    base_image = _image_name(asked.base_image or lane.base_image)
    _require_sources(lane, asked)
    given = _read_certificates(asked.ca_certificates)
    engine = connect(asked.docker_host)
    try:
        if swept := sweep(engine):
            progress(f"removed containers and images that killed runs left on the engine ({swept} in all)")
        if not engine.limits:
            progress(
                f"this engine does not hold a container to {lane.memory} of memory: rootless, without cgroup v2"
            )
        gpu, without = _gpu(lane, engine, progress)
        _prepare(asked.out)
        recipe = recipe_for(lane, asked, base_image, given)
        image = build_image(engine, recipe, progress=progress, log=asked.out / _BUILD_LOG)
        log = asked.out / _LOG
        host = Host(lane.name, image.id, f"{image.base_image} {image.base_id}", host_command(asked))
        with _naming_what_is_left(asked.out):
            outcome = run_in_container(
                engine,
                image,
                asked.command or certify_command(lane, asked, recipe.targets, gpu=gpu),
                lane=lane.name,
                gpu=gpu,
                timeout_s=lane.timeout_s,
                out=asked.out,
                progress=progress,
                log=log,
                memory=lane.memory,
                keep=asked.keep,
                running=running,
                variables=host.variables,
            )
        certificate = _certificate(outcome, asked.out, log)
        write_json(asked.out / _NOTE, _provenance(lane, engine, image, outcome, without))
    finally:
        engine.close()
    return ContainerResult(certificate, outcome.exit_code, image)


def recipe_for(lane: Lane, asked: LaneRequest, base_image: str, certificates: bytes) -> Recipe:
    """The image for what was asked, with the pip settings of this machine."""
    settings = pip_settings(ProcessRunner())
    trusted = certificate_file(settings)
    inside = [CHECKOUT] if asked.repo is not None else []
    folders = {f"extensions/{number}": Path(folder) for number, folder in enumerate(asked.extensions)}
    return Recipe(
        lane,
        base_image,
        own_source(),
        certificates or (_read_certificates(trusted) if trusted else b""),
        wheels_of_torch(lane, settings),
        settings.build_args,
        asked.repo,
        (*inside, *(f"{OWN}/{name}" for name in folders)) or lane.extensions,
        asked.targets or lane.targets,
        folders,
    )


def certify_command(lane: Lane, asked: LaneRequest, targets: Sequence[str], *, gpu: bool) -> list[str]:
    """The command that runs inside."""
    what = ["--suite", asked.suite or lane.suite] if asked.repo is None else ["--repo", CHECKOUT]
    where = ("--device", "cuda") if gpu else target_options(targets)
    return ["python", "-m", "splatfix", "certify", *what, *where, "--out", REPORT_FOLDER, "--json"]


def host_command(asked: LaneRequest) -> Command:
    """The command line on this machine that asks for the same; what belongs to its engine and its site is left out."""
    words = ["splatfix", "certify", "--container", asked.lane]
    for name, value in (("--suite", asked.suite), ("--repo", asked.repo), ("--base-image", asked.base_image)):
        words += [] if value is None else [name, str(value)]
    words += target_options(asked.targets)
    return Command((*words, *(word for folder in asked.extensions for word in ("--extension", folder))))


def _require_sources(lane: Lane, asked: LaneRequest) -> None:
    """Refuse what the lane cannot do with the sources that were given, or not given (exit code 2)."""
    for folder in (asked.repo, *map(Path, asked.extensions)):
        if folder is not None and not folder.is_dir():
            raise usage_error(
                "not-a-folder", f"There is no folder {folder}.", say("Give the folder of the source.")
            )
    if lane.toolkit is ToolkitFrom.NOTHING and (asked.extensions or asked.targets):
        raise usage_error(
            "lane-builds-nothing",
            f"Lane {lane.name} has no CUDA toolkit: it cannot build for {', '.join(asked.targets) or 'any GPU'}.",
            say("Use --container cuda-from-pypi, which has one."),
        )
    if lane.repository and not lane.extensions and asked.repo is None:
        address, _, commit = lane.repository.partition("@")
        raise usage_error(
            "lane-needs-checkout",
            f"Lane {lane.name} certifies a checkout, and none was given.",
            run(
                "git",
                "clone",
                "--recursive",
                address,
                text=f"Clone it{f' (read at {commit})' if commit else ''}",
            ),
            say("Then add --repo CHECKOUT."),
        )


def _gpu(lane: Lane, engine: Engine, progress: Callable[[str], None]) -> tuple[bool, str]:
    """Whether GPUs are passed in, and why not where they could be of use.

    Raises:
        SplatfixError: as :func:`require_gpu`, for a lane that needs one.
    """
    if lane.gpu is GpuUse.NONE:
        return False, ""
    try:
        require_gpu(engine)
    except SplatfixError as error:
        if lane.gpu is GpuUse.REQUIRED:
            raise
        progress(f"no GPU: what is built is not run. {error.what}")
        return False, error.what
    return True, ""


def _prepare(out: Path) -> None:
    """Create ``out`` and set the report of an earlier run aside."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        make_room(out, ())
    except OSError as error:
        raise SplatfixError(
            "cannot-write",
            f"Cannot write the report to {out}: {error.strerror or error}.",
            todo=(say("Choose a writable folder with --out."),),
            exit_code=Exit.USAGE,
        ) from error


@contextmanager
def _naming_what_is_left(out: Path) -> Iterator[None]:
    """An interrupt of what runs in here says where the report is that was copied."""
    try:
        yield
    except KeyboardInterrupt:
        stop, page = Interrupted(), out / "certificate.html"
        if page.is_file():
            stop.add(f"The certificate of what was run until then: {page}.")
        raise stop from None


def _certificate(outcome: ContainerOutcome, out: Path, log: Path) -> dict[str, Any]:
    """The certificate from the container."""
    path = out / _CERTIFICATE
    if path in outcome.files:
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise SplatfixError(
                "container-report-damaged",
                f"The certificate from the container is not JSON: {error}; see {log}.",
            ) from error
        if isinstance(document, dict) and document.get("verdict") in [item.value for item in Verdict]:
            return document
    undetermined = outcome.exit_code == Exit.UNDETERMINED
    raise SplatfixError(
        "container-no-report",
        f"The certification in the container wrote no certificate (exit code {outcome.exit_code}).",
        meaning=f"Nothing was certified. Its last output: {' | '.join(outcome.last_lines[-5:]) or 'none'}",
        todo=(say(f"Read its output in {log}."),),
        exit_code=Exit.UNDETERMINED if undetermined else Exit.FAILURE,
        details={
            "log": str(log),
            "container_exit_code": outcome.exit_code,
            "last_lines": list(outcome.last_lines),
        },
    )


def _provenance(
    lane: Lane, engine: Engine, image: Image, outcome: ContainerOutcome, no_gpu: str
) -> dict[str, Any]:
    """What the certificate was made in, for ``container.json``."""
    packages = read_inside(engine, image, PACKAGES)
    built = read_inside(engine, image, BUILT)
    return {
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


def _read_certificates(path: Path | None) -> bytes:
    """The certificates of a PEM file; nothing for None.

    Raises:
        SplatfixError: ``cannot-read`` or ``no-certificates`` (exit code 2).
    """
    if path is None:
        return b""
    content = read_bytes(path, _MOST_CERTIFICATES)
    if not isinstance(content, bytes):
        reason = content.reason if content else "there is no such file"
        raise usage_error("cannot-read", f"Cannot read the certificates in {path}: {reason}.")
    if b"-----BEGIN CERTIFICATE-----" not in content:
        raise usage_error(
            "no-certificates",
            f"There is no certificate in {path}.",
            say("Give a PEM file, in which each begins with -----BEGIN CERTIFICATE-----."),
        )
    return content


def _image_name(text: str) -> str:
    """The name of an image, as Docker's reference grammar has it (https://pkg.go.dev/github.com/distribution/reference).

    Raises:
        SplatfixError: ``not-an-image`` (exit code 2).
    """
    if len(text) <= 512 and _IMAGE.fullmatch(text):
        return text
    raise usage_error(
        "not-an-image",
        f"{text!r} cannot be the name of an image.",
        say("Give it as docker image ls lists it, such as debian:bookworm-slim."),
    )


_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::\d+)?"
_IMAGE = re.compile(
    rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::\w[\w.-]{{0,127}})?(?:@[a-z0-9]+:[0-9a-f]{{32,}})?", re.ASCII
)
_MOST_CERTIFICATES = 16 << 20
