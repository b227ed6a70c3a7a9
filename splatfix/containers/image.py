"""Builds a lane's image from packages and splatfix's own files, once per content."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shlex
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

import splatfix
from splatfix.containers.building import Building
from splatfix.containers.engine import Engine, engine_errors, sdk
from splatfix.containers.lanes import Lane, ToolkitFrom
from splatfix.containers.owner import owner_label
from splatfix.containers.packages import constraints, own_metadata, requirements
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.redact import without_credentials
from splatfix.core.resources import bundled, kernels_folder, smoke_trainer_folder
from splatfix.core.step import run, say, target_options
from splatfix.explain import BuildFailure, explain_image_build

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
    source: Mapping[str, Path]
    """splatfix's own files by their path in site-packages."""
    certificates: bytes = b""
    """PEM, for a site with a private certificate authority."""
    wheels: tuple[Path, ...] = ()
    """Wheels of this machine that pip shall find."""
    pip_args: Mapping[str, str] = field(default_factory=dict)
    """The site's package index: PIP_INDEX_URL and the like."""
    checkout: Path | None = None
    """A stack, to be copied into the image."""
    extensions: tuple[str, ...] = ()
    """What ``splatfix install`` builds, as it is named inside."""
    targets: tuple[str, ...] = ()
    """GPU architectures to build for."""
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Sources of extensions by their place in :data:`OWN`."""


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

    The build output goes to ``log``, and to ``progress`` what is being done.

    Raises:
        SplatfixError: ``docker-base-image-unavailable`` (exit code 3) or ``docker-build-failed`` with its root cause.
    """
    base_id = _base_image(engine, recipe.base_image, progress)
    build_id = _base_image(engine, recipe.lane.build_image or recipe.base_image, progress)
    parts, args = _context(recipe), _build_args(recipe)
    tag = f"splatfix-lane-{recipe.lane.name}:{_digest(parts, args, base_id + build_id)[:20]}"
    if known := _find(engine, tag):
        progress(f"using image {tag}")
        log.write_text(f"{tag} was built before\n", encoding="utf-8")
        return Image(tag, known, recipe.base_image, base_id, reused=True)
    progress(f"building image {tag} from {recipe.base_image}; the whole output is in {log}")
    with tempfile.TemporaryFile() as context, log.open("w", encoding="utf-8") as sink:
        _write_context(context, parts)
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
                buildargs={**args, **_proxies(os.environ)},
                labels=_labels(recipe, base_id),
            )
            follow_build(answers, recipe.lane, sink, log, progress)
    built = _find(engine, tag)
    if built is None:
        raise SplatfixError("docker-build-failed", f"The build ended without an image; see {log}.")
    return Image(tag, built, recipe.base_image, base_id, reused=False)


def _labels(recipe: Recipe, base_id: str) -> dict[str, str]:
    """Ours, and those of the OCI (https://github.com/opencontainers/image-spec/blob/main/annotations.md)."""
    oci = {
        "title": f"splatfix lane {recipe.lane.name}",
        "description": recipe.lane.description,
        "version": splatfix.__version__,
        "base.name": recipe.base_image,
        "base.digest": base_id,
    }
    return {
        LANE_LABEL: recipe.lane.name,
        **{f"org.opencontainers.image.{name}": text for name, text in oci.items()},
    }


def read_inside(engine: Engine, image: Image, path: str) -> bytes | None:
    """A small file of an image; None where it has none of that name."""
    errors = sdk().errors
    with engine_errors("reading a file of the image", ""):
        container = engine.client.containers.create(image.id, command=["true"], labels=owner_label())
        try:
            blocks, _ = container.get_archive(path)
            with tarfile.open(fileobj=io.BytesIO(b"".join(blocks))) as archive:
                file = archive.extractfile(archive.getmembers()[0])
                return file.read() if file else None
        except errors.NotFound:
            return None
        finally:
            container.remove(force=True, v=True)


OWN = "/opt/splatfix"
"""Everything of ours in an image."""
CHECKOUT = f"{OWN}/checkout"
PACKAGES, BUILT = f"{OWN}/packages.txt", f"{OWN}/built.json"
"""What pip installed, and what ``splatfix install`` built."""


_COLOUR = re.compile("\x1b\\[[0-9;]*m")
"""The classic builder prints stderr in red."""


def follow_build(
    answers: Iterable[Mapping[str, Any]],
    lane: Lane,
    sink: IO[str],
    log: Path,
    progress: Callable[[str], None],
) -> None:
    """Read the engine's answers to a build; each line goes to ``sink``, and to ``progress`` what is being done.

    Raises:
        SplatfixError: ``docker-build-failed`` with the root cause.
    """
    lines: list[str] = []
    with Building(progress) as building:

        def hear(heard: Iterable[str]) -> None:
            for line in heard:
                said = without_credentials(line)
                sink.write(f"{said}\n")
                if said.strip():
                    lines.append(said)
                    building.hear(said)
            sink.flush()

        pending = ""  # answers are chunks, not lines
        for answer in answers:
            *whole, pending = (pending + _COLOUR.sub("", str(answer.get("stream", "")))).split("\n")
            hear(whole)
            if "error" not in answer:
                continue
            hear([pending, str(answer["error"])])
            failure = explain_image_build(lines)
            raise SplatfixError(
                "docker-build-failed",
                f"The image of lane {lane.name} was not built: {_line_of(failure)}",
                meaning=f"The build output is in {log}.",
                todo=failure.todo[:1],
                details={"log": str(log), "engine": str(answer["error"])},
            )
        hear([pending])


def _line_of(failure: BuildFailure) -> str:
    """The line that says it, with the class where one is recognised."""
    line = failure.lines[0] if failure.lines else "no reason given"
    return f"{line} [{failure.failure_class}]" if failure.failure_class else line


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


def _digest(parts: Mapping[str, bytes | Path], args: Mapping[str, str], base_id: str) -> str:
    """SHA-256 over everything that decides the content of the image."""
    files = {
        name: hashlib.sha256(part) if isinstance(part, bytes) else _sha256(part)
        for name, part in parts.items()
    }
    told = {name: value for name, value in args.items() if not name.endswith("_IMAGE")}
    whole = {
        "base": base_id,
        "args": told,
        "files": {name: found.hexdigest() for name, found in files.items()},
    }
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def _sha256(path: Path) -> Any:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest


_BACKENDS = {ToolkitFrom.NOTHING: "pure", ToolkitFrom.NVRTC: "nvrtc"}
"""Of ``splatfix install``; native where there is a compiler."""


def _build_args(recipe: Recipe) -> dict[str, str]:
    lane = recipe.lane
    asked = [*target_options(recipe.targets)]
    asked += ["--provide-toolkit"] if lane.toolkit is ToolkitFrom.PYPI else []
    asked += ["--backend", backend] if (backend := _BACKENDS.get(lane.toolkit)) else []
    asked += ["--with-dependencies"] if recipe.checkout is not None else []  # its trainer is run
    args = {
        "BASE_IMAGE": recipe.base_image,
        "BUILD_IMAGE": lane.build_image or recipe.base_image,
        "PYTHON_VERSION": lane.python,
        "APT_PACKAGES": " ".join(lane.apt),
        "BUILD_APT_PACKAGES": " ".join(lane.build_apt),
        "LIBRARIES": " ".join(lane.libraries),
        "TORCH": lane.torch,
        "TORCH_INDEX": lane.torch_index,
        "DOWNLOADS": " ".join(lane.downloads),
        "EXTENSIONS": shlex.join(recipe.extensions),
        "INSTALL_ARGUMENTS": shlex.join(asked) if recipe.extensions else "",
        "SOURCE_DATE_EPOCH": str(_epoch()),
    }
    return {**args, **recipe.pip_args, **lane.build_args}


def _epoch() -> int:
    """The date of everything in the image (https://reproducible-builds.org/specs/source-date-epoch/); zip has
    none before 1980."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    return max(int(given), _FIRST) if given.isdigit() else _FIRST


_FIRST = 315619200
"""1980-01-02."""


def _proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """Predefined build arguments of Docker, which do not become part of the image."""
    return {name: environ[name] for name in _PROXIES if environ.get(name)}


def _context(recipe: Recipe) -> dict[str, bytes | Path]:
    """The build context: content or file by path, sorted."""
    lane, ours = recipe.lane, recipe.lane.dockerfile_path.parent
    base = "base/usr/local/share/splatfix"
    parts: dict[str, bytes | Path] = {
        "Dockerfile": lane.dockerfile_path,
        f"{base}/prepare.sh": ours / "prepare.sh",
        f"{base}/certificates.pem": recipe.certificates,
        "packages/packages.py": ours / "packages.py",
        "packages/requirements.txt": requirements(lane).encode(),
        "packages/constraints.txt": constraints(lane).encode(),
    }
    parts |= {f"packages/{name}": data for name, data in own_metadata().items()}
    parts |= {f"packages/wheels/{wheel.name}": wheel for wheel in recipe.wheels}
    parts |= {f"source/{name}": path for name, path in recipe.source.items()}
    if recipe.checkout is not None:
        parts |= {f"sources/checkout/{name}": part for name, part in checkout_files(recipe.checkout)}
    for place, folder in recipe.folders.items():
        parts |= {f"sources/{place}/{name}": part for name, part in checkout_files(folder)}
    return dict(sorted(parts.items()))


def checkout_files(folder: Path) -> Iterator[tuple[str, bytes | Path]]:
    """The files of a checkout by their path in it; of ``.git`` only what tells the commit and where it was cloned from."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        inside = re.search(r"(^|/)\.git/", f"{name}/")
        if not path.is_file() or path.suffix == ".pyc" or (inside and not _GIT.search(name)):
            continue
        if inside and path.name == "config":
            yield name, without_credentials(path.read_text(encoding="utf-8", errors="replace")).encode()
        else:
            yield name, path


_GIT = re.compile(r"/?\.git(/modules/.+)?/(HEAD|config|packed-refs|refs/.+)$")


def _write_context(target: IO[bytes], parts: Mapping[str, bytes | Path]) -> None:
    """The build context as a tar, with its folders, and without owners and dates of this machine."""
    with tarfile.open(fileobj=target, mode="w") as archive:
        folders = {parent.as_posix() for name in parts for parent in PurePosixPath(name).parents}
        for folder in sorted((folders | {"packages/wheels", "sources"}) - {"."}):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, _epoch()
            archive.addfile(entry)
        for name, part in parts.items():
            entry = tarfile.TarInfo(name)
            entry.mode, entry.mtime = 0o644, _epoch()
            if isinstance(part, bytes):
                entry.size = len(part)
                archive.addfile(entry, io.BytesIO(part))
                continue
            entry.size = part.stat().st_size
            entry.mode |= part.stat().st_mode & 0o111
            with part.open("rb") as file:
                archive.addfile(entry, file)
