"""A certification inside a container: engine, wheels, image, run, report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splatfix.certify.model import Verdict
from splatfix.containers.engine import Engine, connect, require_gpu
from splatfix.containers.image import Image, Recipe, build_image, own_source
from splatfix.containers.lanes import Lane, find_lane
from splatfix.containers.run import REPORT_FOLDER, Outcome, run_in_container, sweep
from splatfix.containers.wheelhouse import Wheelhouse, gather, marker_environment, requirements_for
from splatfix.core.errors import Exit, SplatfixError, usage_error
from splatfix.core.files import write_json
from splatfix.core.reading import read_bytes
from splatfix.core.resources import bundled
from splatfix.core.runner import ProcessRunner, Runner
from splatfix.core.step import say
from splatfix.core.trust import private_cache

_CERTIFICATE = "certificate.json"
_BUILD_LOG, _PIP_LOG, _LOG = "image-build.log", "packages.log", "container.log"
_OWN_FILES = (
    _CERTIFICATE,
    "certificate.md",
    "certificate.html",
    "certificate.intoto.jsonl",
    "appendix.md",
    "appendix.tex",
    "container.json",
    _BUILD_LOG,
    _PIP_LOG,
    _LOG,
)


@dataclass(frozen=True)
class ContainerResult:
    """A certificate from a container, and the image that it was made in."""

    certificate: dict[str, Any]
    exit_code: int
    """The certificate's own."""
    image: Image


def certify_in_container(
    lane: str,
    *,
    suite: str | None = None,
    out: Path,
    docker_host: str | None = None,
    base_image: str | None = None,
    progress: Callable[[str], None],
    ca_certificates: Path | None = None,
    command: Sequence[str] | None = None,
) -> ContainerResult:
    """Certify inside a container of ``lane`` and copy the report into ``out``.

    Args:
        lane: a name from ``dockerfiles/lanes.toml``.
        suite: the certification suite; None: the lane's own.
        out: the folder for ``certificate.json``, ``.md`` and ``.html``, ``container.json`` and the logs.
        docker_host: address of the engine; None: the one the docker command would use.
        base_image: replaces the lane's.
        progress: gets one line at a time; must not raise.
        ca_certificates: PEM file that the base image's apt sources need.
        command: runs instead of the certification, and writes the same report folder.

    Raises:
        SplatfixError: exit code 2 for wrong options, 3 where the certification could not run (no engine, no GPU runtime,
            no packages, timeout), 1 where the image cannot be built or there is no report.
    """
    chosen = find_lane(lane)
    base_image = _image_name(base_image or chosen.base_image)
    certificates = _read_certificates(ca_certificates)
    engine = connect(docker_host)
    try:
        if swept := sweep(engine):
            progress(f"removed containers and images that killed runs left on the engine ({swept} in all)")
        if chosen.gpu:
            require_gpu(engine)
        _prepare(out)
        log = out / _LOG
        wheels = gather_for(chosen, engine, ProcessRunner(), progress, out / _PIP_LOG)
        recipe = Recipe(chosen, base_image, wheels, own_source(), certificates)
        image = build_image(engine, recipe, progress=progress, log=out / _BUILD_LOG)
        outcome = run_in_container(
            engine,
            image,
            command or certify_command(suite or chosen.suite, chosen.arguments),
            lane=chosen.name,
            gpu=chosen.gpu,
            timeout_s=chosen.timeout_s,
            out=out,
            progress=progress,
            log=log,
        )
        certificate = _certificate(outcome, out, log)
        write_json(out / "container.json", _provenance(chosen, engine, image, wheels, outcome))
    finally:
        engine.close()
    return ContainerResult(certificate, outcome.exit_code, image)


def certify_command(suite: str, arguments: Sequence[str] = ()) -> list[str]:
    """The command that runs inside."""
    return [
        "python",
        "-m",
        "splatfix",
        "certify",
        "--suite",
        suite,
        "--out",
        REPORT_FOLDER,
        "--json",
        *arguments,
    ]


def gather_for(
    lane: Lane, engine: Engine, runner: Runner, progress: Callable[[str], None], log: Path
) -> Wheelhouse:
    """The wheels of ``lane`` for the processor of ``engine``, in the versions that splatfix pins."""
    try:
        constraints = bundled("constraints.txt").read_text(encoding="utf-8")
    except FileNotFoundError:
        constraints = ""
    environment = marker_environment(lane, engine.arch)
    requirements = [*requirements_for("certify", environment), *lane.requirements]
    cache = private_cache("containers")
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
    """Create ``out`` and remove the files of an earlier run."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in _OWN_FILES:
            (out / name).unlink(missing_ok=True)
    except OSError as error:
        raise SplatfixError(
            "cannot-write",
            f"Cannot write the report to {out}: {error.strerror or error}.",
            todo=(say("Choose a writable folder with --out."),),
            exit_code=Exit.USAGE,
        ) from error


def _certificate(outcome: Outcome, out: Path, log: Path) -> dict[str, Any]:
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
    lane: Lane, engine: Engine, image: Image, wheels: Wheelhouse, outcome: Outcome
) -> dict[str, Any]:
    """What the certificate was made in, for ``container.json``."""
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
