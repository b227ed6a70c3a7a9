"""Builds a lane's image from wheels and splatfix's own files, once per content, and finds why a build failed."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from splatfix.containers.engine import Engine, engine_errors, sdk
from splatfix.containers.lanes import Lane
from splatfix.containers.wheelhouse import Wheelhouse
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.redact import without_credentials
from splatfix.core.resources import bundled, kernels_folder, smoke_trainer_folder
from splatfix.core.step import Step, run, say

LANE_LABEL = "org.splatfix.lane"
"""On every image and container of splatfix, to find and remove them by."""

BUNDLED = ("patches", "dockerfiles", "constraints.txt")
"""Data that a wheel carries in ``splatfix/_bundled``."""
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@dataclass(frozen=True)
class Recipe:
    """Everything that goes into an image."""

    lane: Lane
    base_image: str
    wheelhouse: Wheelhouse
    source: Mapping[str, Path]
    """splatfix's own files by their path in site-packages."""
    certificates: bytes = b""
    """PEM, for a base image whose apt sources need a private certificate authority."""


@dataclass(frozen=True)
class Image:
    """A lane's image on the engine."""

    tag: str
    id: str
    base_image: str
    base_id: str
    reused: bool
    """Whether an image of equal content existed."""


def own_source() -> dict[str, Path]:
    """The files of the running splatfix and its trainer, by their path in site-packages, sorted.

    The layout is that of an installed wheel, also where splatfix runs from a checkout.
    """
    package = kernels_folder().parent
    files = dict(_files(package.name, package))
    files |= _files("smoke_trainer", smoke_trainer_folder())
    if not (package / "_bundled").is_dir():
        for name in BUNDLED:
            files |= _files(f"{package.name}/_bundled/{name}", bundled(name))
    return dict(sorted(files.items()))


def _files(name: str, path: Path) -> Iterator[tuple[str, Path]]:
    if path.is_file():
        yield name, path
    for inner in path.rglob("*"):
        if inner.is_file() and inner.suffix != ".pyc":
            yield f"{name}/{inner.relative_to(path).as_posix()}", inner


def build_image(engine: Engine, recipe: Recipe, *, progress: Callable[[str], None], log: Path) -> Image:
    """Build the image of ``recipe``, or reuse one of an equal recipe.

    The build output goes to ``progress`` and ``log``.

    Raises:
        SplatfixError: ``docker-base-image-unavailable`` (exit code 3) or ``docker-build-failed`` with its root cause.
    """
    base_id = _base_image(engine, recipe.base_image, progress)
    tag = f"splatfix-lane-{recipe.lane.name}:{_digest(recipe, base_id)[:20]}"
    if known := _find(engine, tag):
        progress(f"using image {tag}")
        log.write_text(f"{tag} was built before\n", encoding="utf-8")
        return Image(tag, known, recipe.base_image, base_id, reused=True)
    progress(f"building image {tag} from {recipe.base_image}")
    with tempfile.TemporaryFile() as context, log.open("w", encoding="utf-8") as sink:
        _write_context(context, recipe)
        context.seek(0)
        with engine_errors("building an image"):
            answers = engine.client.api.build(
                fileobj=context,
                custom_context=True,
                tag=tag,
                rm=True,
                forcerm=True,
                decode=True,
                network_mode="host",
                buildargs={**_build_args(recipe), **_proxies(os.environ)},
                labels={LANE_LABEL: recipe.lane.name},
            )
            follow_build(answers, recipe.lane, sink, log, progress)
    built = _find(engine, tag)
    if built is None:
        raise SplatfixError("docker-build-failed", f"The build ended without an image; see {log}.")
    return Image(tag, built, recipe.base_image, base_id, reused=False)


def root_cause(lines: Iterable[str]) -> tuple[str, Step | None]:
    """(what went wrong, what to do) from a failed build's output: the first line that is a cause, not a consequence."""
    kept = [line.strip() for line in lines if line.strip() and not _ECHO.match(line.strip())]
    for signs, todo in _CAUSES:
        for line in kept:
            if any(sign in line for sign in signs):
                return line, todo
    return (kept[-1] if kept else "no reason given"), None


_COLOUR = re.compile("\x1b\\[[0-9;]*m")
"""The classic builder prints stderr in red."""
_ECHO = re.compile(r"Step \d+/\d+ : |The command '|--->|Removing intermediate container|\[Warning\]")
"""The builder's own lines: they repeat the Dockerfile, with every message in it."""

_NETWORK = say(
    "Use a base image that has python3 with venv, or give the engine's machine access to its Debian mirror."
)
_CAUSES: tuple[tuple[tuple[str, ...], Step | None], ...] = (
    (("No space left on device", "no space left on device"), run("docker", "system", "df")),
    (("splatfix: python-mismatch:",), say("Choose a base image with that Python, or another lane.")),
    (
        ("certificate verify failed", "Certificate verification failed"),
        say("Hand the certificate authority in with --ca-certificates FILE."),
    ),
    (("Temporary failure resolving", "Could not connect to", "Connection timed out"), _NETWORK),
    (
        ("Unable to locate package", "has no installation candidate"),
        say("Choose a base image that offers that package."),
    ),
    (("apt-get: not found",), say("Choose a Debian-like base image, or one that has python3 with venv.")),
    (("No matching distribution found", "is not a supported wheel on this platform"), None),
    (("E: ", "ERROR: "), None),
)
"""Root causes first: a full disk also makes apt and pip fail."""


def follow_build(
    answers: Iterable[Mapping[str, Any]],
    lane: Lane,
    sink: IO[str],
    log: Path,
    progress: Callable[[str], None],
) -> None:
    """Read the engine's answers to a build; each line goes to ``sink`` and ``progress``.

    Raises:
        SplatfixError: ``docker-build-failed`` with the root cause.
    """
    lines: list[str] = []

    def hear(heard: Iterable[str]) -> None:
        for line in heard:
            said = without_credentials(line)
            sink.write(f"{said}\n")
            if said.strip():
                lines.append(said)
                progress(said.rstrip())
        sink.flush()

    pending = ""  # answers are chunks, not lines
    for answer in answers:
        *whole, pending = (pending + _COLOUR.sub("", str(answer.get("stream", "")))).split("\n")
        hear(whole)
        if "error" not in answer:
            continue
        hear([pending, str(answer["error"])])
        cause, todo = root_cause(lines)
        raise SplatfixError(
            "docker-build-failed",
            f"The image of lane {lane.name} was not built: {cause}",
            meaning=f"The build output is in {log}.",
            todo=(todo,) if todo else (),
            details={"log": str(log), "engine": str(answer["error"])},
        )
    hear([pending])


def _base_image(engine: Engine, name: str, progress: Callable[[str], None]) -> str:
    """The ID of the base image, pulled where the engine does not have it."""
    if known := _find(engine, name):
        return known
    docker = sdk()
    progress(f"pulling base image {name}")
    try:
        for answer in engine.client.api.pull(*_name_and_tag(name), stream=True, decode=True):
            if "error" in answer:
                raise docker.errors.APIError(str(answer["error"]))
    except docker.errors.APIError as error:
        raise SplatfixError(
            "docker-base-image-unavailable",
            f"The base image {name} is not on the Docker engine, which cannot pull it: "
            f"{error.explanation or error}",
            meaning="The engine has no network, the registry denies access, or the image does not exist.",
            todo=(
                run("docker", "pull", name),
                say("Or name an image that the engine has: --base-image NAME (docker image ls lists them)."),
            ),
            exit_code=Exit.UNDETERMINED,
        ) from error
    with engine_errors("looking for the pulled base image"):
        return str(engine.client.images.get(name).id)


def _name_and_tag(name: str) -> tuple[str, str]:
    """(repository, tag or digest), as the engine's API wants them."""
    repository, tag = sdk().utils.parse_repository_tag(name)
    return repository, tag or "latest"


def _find(engine: Engine, name: str) -> str | None:
    with engine_errors("looking for an image"):
        try:
            return str(engine.client.images.get(name).id)
        except sdk().errors.ImageNotFound:
            return None


def _digest(recipe: Recipe, base_id: str) -> str:
    """SHA-256 over everything that decides the content of the image."""
    parts = {
        "base": base_id,
        "dockerfile": hashlib.sha256(recipe.lane.dockerfile_path.read_bytes()).hexdigest(),
        "args": sorted((key, value) for key, value in _build_args(recipe).items() if key != "BASE_IMAGE"),
        "wheelhouse": recipe.wheelhouse.digest,
        "splatfix": {
            name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in recipe.source.items()
        },
        "certificates": hashlib.sha256(recipe.certificates).hexdigest(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _build_args(recipe: Recipe) -> dict[str, str]:
    lane = recipe.lane
    args = {
        "BASE_IMAGE": recipe.base_image,
        "PYTHON_VERSION": lane.python,
        "APT_PACKAGES": " ".join(lane.apt),
    }
    return {**args, **lane.build_args}


def _proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """Predefined build arguments of Docker, which do not become part of the image."""
    return {name: environ[name] for name in _PROXIES if environ.get(name)}


def _write_context(target: IO[bytes], recipe: Recipe) -> None:
    """The build context as a tar, without owners and dates of this machine."""
    with tarfile.open(fileobj=target, mode="w") as archive:
        _add(archive, "Dockerfile", recipe.lane.dockerfile_path.read_bytes())
        _add(archive, "certificates.pem", recipe.certificates)
        pinned = zip(recipe.wheelhouse.pins, recipe.wheelhouse.hashes, strict=True)
        locked = "".join(f"{pin} --hash=sha256:{digest}\n" for pin, digest in pinned)
        _add(archive, "requirements.txt", locked.encode())
        for name, path in recipe.source.items():
            _add(archive, f"source/{name}", path.read_bytes())
        for wheel in sorted(recipe.wheelhouse.folder.glob("*.whl")):
            entry = tarfile.TarInfo(f"wheelhouse/{wheel.name}")
            entry.size, entry.mode = wheel.stat().st_size, 0o644
            with wheel.open("rb") as file:
                archive.addfile(entry, file)


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o644
    archive.addfile(entry, io.BytesIO(data))
