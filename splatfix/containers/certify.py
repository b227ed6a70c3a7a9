"""The whole line of a container certification: engine, wheels, image, run, report."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splatfix.containers.engine import Engine, connect
from splatfix.containers.gpu import require_gpu
from splatfix.containers.image import Image, Recipe, build_image
from splatfix.containers.lanes import Lane, find_lane
from splatfix.containers.package import pack_own_wheel, requirements_for
from splatfix.containers.run import REPORT_FOLDER, Limits, Outcome, run_in_container
from splatfix.containers.wheelhouse import Wheelhouse, gather, marker_environment
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.files import write_json
from splatfix.core.resources import bundled, user_cache
from splatfix.core.runner import ProcessRunner, Runner
from splatfix.core.step import say

_CERTIFICATE = "certificate.json"
_BUILD_LOG, _PIP_LOG, _LOG = "image-build.log", "packages.log", "container.log"
_OWN_FILES = (_CERTIFICATE, "certificate.md", "container.json", _BUILD_LOG, _PIP_LOG, _LOG)


@dataclass(frozen=True)
class ContainerResult:
    """A certificate from inside a container, and what it was made in."""

    certificate: dict[str, Any]
    exit_code: int
    """The certificate's own: 0 granted, 1 refused."""
    lane: str
    image: Image
    out: Path
    """The folder of the report on this machine."""
    files: tuple[Path, ...]
    """The report's files."""
    log_path: Path
    """All that the certification said."""
    build_log_path: Path
    """All that pip and the engine said while the image was made."""


def certify_in_container(
    lane: str,
    *,
    suite: str | None = None,
    out: Path,
    docker_host: str | None = None,
    base_image: str | None = None,
    progress: Callable[[str], None],
    timeout_s: float | None = None,
    limits: Limits | None = None,
    ca_certificates: Path | None = None,
    command: Sequence[str] | None = None,
    runner: Runner | None = None,
) -> ContainerResult:
    """Certify splatfix's stack inside a container of ``lane`` and bring the report into ``out``.

    Args:
        lane: a name from ``dockerfiles/lanes.toml``.
        suite: the certification suite; None: the lane's own.
        out: the folder for ``certificate.json``, ``certificate.md``, ``container.json`` and the logs.
        docker_host: address of the engine; None: the one the docker command would use.
        base_image: start from this image instead of the lane's.
        progress: told one line at a time what happens; it must not raise.
        timeout_s: end the run in the container after so many seconds; None: the lane's own.
        limits: processors and memory for the container.
        ca_certificates: PEM file of a certificate authority that the base image's apt sources need.
        command: run this instead of the certification (it must leave the same report folder).
        runner: starts pip; None: real processes.

    Raises:
        SplatfixError: exit code 2 for a wrong call, 3 when it could not be determined (no engine, no GPU runtime,
            no network for the packages, a timeout), 1 when the image cannot be built or the run left no report.
    """
    chosen = find_lane(lane)
    certificates = _read_certificates(ca_certificates)
    engine = connect(docker_host)
    try:
        if chosen.gpu:
            require_gpu(engine)
        _prepare(out)
        build_log, log = out / _BUILD_LOG, out / _LOG
        wheels = gather_for(chosen, engine, runner or ProcessRunner(), progress, out / _PIP_LOG)
        with tempfile.TemporaryDirectory(prefix="splatfix-") as folder:
            own = pack_own_wheel(Path(folder))
            recipe = Recipe(chosen, base_image or chosen.base_image, wheels, own, certificates)
            image = build_image(engine, recipe, progress=progress, log=build_log)
        outcome = run_in_container(
            engine,
            image,
            command or certify_command(suite or chosen.suite, chosen.arguments),
            lane=chosen.name,
            gpu=chosen.gpu,
            timeout_s=chosen.timeout_s if timeout_s is None else timeout_s,
            limits=limits or Limits(),
            out=out,
            progress=progress,
            log=log,
        )
        certificate = _certificate(outcome, out, log)
        write_json(out / "container.json", _provenance(chosen, engine, image, wheels, outcome))
    finally:
        engine.close()
    return ContainerResult(
        certificate, outcome.exit_code, chosen.name, image, out, outcome.files, log, build_log
    )


def certify_command(suite: str, arguments: Sequence[str] = ()) -> list[str]:
    """What runs inside: the same command a person would type there."""
    return ["splatfix", "certify", "--suite", suite, "--out", REPORT_FOLDER, "--json", *arguments]


def gather_for(
    lane: Lane, engine: Engine, runner: Runner, progress: Callable[[str], None], log: Path
) -> Wheelhouse:
    """The wheels of ``lane`` for the processor of ``engine``, by the versions that splatfix pins."""
    try:
        constraints = bundled("constraints.txt").read_text(encoding="utf-8")
    except FileNotFoundError:
        constraints = ""
    environment = marker_environment(lane, engine.arch)
    requirements = [*requirements_for("certify", environment), *lane.requirements]
    cache = user_cache() / "containers"
    return gather(
        lane,
        requirements,
        engine.arch,
        runner=runner,
        cache=cache,
        constraints=constraints,
        progress=progress,
        log=log,
    )


def _prepare(out: Path) -> None:
    """Make ``out`` ready: what an earlier run left is removed, so that nobody takes it for this run's."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in _OWN_FILES:
            (out / name).unlink(missing_ok=True)
    except OSError as error:
        raise SplatfixError(
            "cannot-write",
            f"Cannot write the report into {out}: {error.strerror or error}.",
            todo=(say("Name a folder you may write to with --out."),),
            exit_code=Exit.USAGE,
        ) from error


def _certificate(outcome: Outcome, out: Path, log: Path) -> dict[str, Any]:
    """The certificate that came back; its absence is an error of its own, whatever the exit code says."""
    path = out / _CERTIFICATE
    if path in outcome.files:
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise SplatfixError(
                "container-report-damaged",
                f"The certificate from the container is not JSON: {error}; see {log}.",
            ) from error
        if isinstance(document, dict):
            return document
    undetermined = outcome.exit_code == Exit.UNDETERMINED
    raise SplatfixError(
        "container-no-report",
        f"The certification in the container ended with exit code {outcome.exit_code} and left no certificate.",
        meaning="Nothing was certified. It ended with: "
        + " | ".join(outcome.last_lines[-5:] or ("no word at all",)),
        todo=(say(f"Read all that it said in {log}."),),
        exit_code=Exit.UNDETERMINED if undetermined else Exit.FAILURE,
        details={
            "log": str(log),
            "container_exit_code": outcome.exit_code,
            "last_lines": list(outcome.last_lines),
        },
    )


def _provenance(
    lane: Lane, engine: Engine, image: Image, wheels: Wheelhouse, outcome: Outcome
) -> dict[str, Any]:
    """What a reader of the certificate needs to know of the container that it was made in."""
    return {
        "schema_version": 1,
        "lane": lane.name,
        "image": {"tag": image.tag, "id": image.id, "reused": image.reused},
        "base_image": {"name": image.base_image, "id": image.base_id},
        "engine": {"version": engine.version, "arch": engine.arch},
        "packages": list(wheels.pins),
        "torch_from": wheels.torch_from,
        "exit_code": outcome.exit_code,
        "seconds": round(outcome.seconds, 3),
    }


def _read_certificates(path: Path | None) -> bytes:
    if path is None:
        return b""
    try:
        return path.read_bytes()
    except OSError as error:
        raise SplatfixError(
            "cannot-read",
            f"Cannot read the certificates in {path}: {error.strerror or error}.",
            exit_code=Exit.USAGE,
        ) from error
