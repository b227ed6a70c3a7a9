"""Builds a lane's image from packages and splatfix's own files, once per content."""

import hashlib
import io
import json
import os
import re
import shlex
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any

from msgspec import Struct, field

import splatfix
from splatfix.containers.building import Building
from splatfix.containers.engine import Engine, engine_errors, sdk
from splatfix.containers.lanes import Lane, ToolkitFrom
from splatfix.containers.owner import owner_label
from splatfix.containers.packages import constraints, own_metadata, requirements
from splatfix.core.errors import SplatfixError
from splatfix.core.files import sha256_of
from splatfix.core.limits import LONGEST_OUTPUT_LINE, MOST_TEXT
from splatfix.core.output import KeptLines, OutputLog
from splatfix.core.reading import read_text
from splatfix.core.redact import safe_cut, without_credentials
from splatfix.core.resources import KERNELS, SMOKE_TRAINER, bundled
from splatfix.core.step import target_options
from splatfix.explain import explain_image_build
from splatfix.facts.source.copying import SourceFiles, missed

LANE_LABEL = "org.splatfix.lane"
"""On every image and container of splatfix, to find and remove them by."""
BUNDLED = ("patches", "dockerfiles", "constraints.txt")
"""Data that a wheel carries in ``splatfix/_bundled``."""
OWN = "/opt/splatfix"
"""Everything of ours in an image."""
CHECKOUT = f"{OWN}/checkout"
CONTEXT = "splatfix-image"
"""What splatfix puts into the build context, beside a checkout."""
PACKAGES, BUILT = f"{OWN}/packages.txt", f"{OWN}/built.json"
"""What pip installed, and what ``splatfix install`` built."""

_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""Predefined build arguments of Docker, which do not become part of the image."""
_BACKENDS = {ToolkitFrom.NOTHING: "pure", ToolkitFrom.NVRTC: "nvrtc"}
"""Of ``splatfix install``; native where there is a compiler."""
_FIRST_DATE = 315619200
"""1980-01-02: zip has no dates before 1980."""
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
"""The classic builder prints stderr in red."""
Content = bytes | Path | str
"""What a file of a build context holds, the file that it is a copy of, or what a link says."""


class ImageRecipe(Struct, frozen=True):
    """Everything that goes into an image."""

    lane: Lane
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
    jobs: int = 0
    """Compilers at once; 0: as many as ``splatfix install`` finds room for."""
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Sources of extensions by their folder in :data:`OWN`."""


class Image(Struct, frozen=True):
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
    package = KERNELS.parent
    files = dict(_files(package.name, package))
    files |= _files("smoke_trainer", SMOKE_TRAINER)
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


def build_image(engine: Engine, recipe: ImageRecipe, *, progress: Callable[[str], None], log: Path) -> Image:
    """Build the image of ``recipe``, or reuse one of an equal recipe.

    The build output goes to ``log``, and to ``progress`` what is being done.

    Raises:
        SplatfixError: ``docker-base-image-unavailable`` (exit code 3) or ``docker-build-failed`` with its root cause.
    """
    lane = recipe.lane
    base = lane.base_image
    base_id = _base_image(engine, base, progress)
    files, arguments = build_context(recipe) | sources_of(recipe, progress), build_arguments(recipe)
    tag = f"splatfix-lane-{lane.name}:{_digest(files, arguments, base_id)[:20]}"
    if known := image_id(engine, tag):
        progress(f"using image {tag}")
        log.write_text(f"{tag} was built before\n", encoding="utf-8")
        return Image(tag, known, base, base_id, reused=True)
    progress(f"building image {tag} from {base}; the whole output is in {log}")
    proxies = {name: os.environ[name] for name in _PROXIES if os.environ.get(name)}
    # of the OCI: https://github.com/opencontainers/image-spec/blob/main/annotations.md
    labels = {
        LANE_LABEL: lane.name,
        "org.opencontainers.image.title": f"splatfix lane {lane.name}",
        "org.opencontainers.image.description": lane.description,
        "org.opencontainers.image.version": splatfix.__version__,
        "org.opencontainers.image.base.name": base,
        "org.opencontainers.image.base.digest": base_id,
    }
    with tempfile.TemporaryFile() as context, log.open("w", encoding="utf-8") as sink:
        _write_context(context, files)
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
                buildargs={**arguments, **proxies},
                labels=labels,
            )
            follow_build(answers, lane, sink, log, progress)
    built = image_id(engine, tag)
    if built is None:
        raise SplatfixError.of("containers.docker-build-failed", log=log)
    return Image(tag, built, base, base_id, reused=False)


def read_inside(engine: Engine, image: Image, path: str) -> bytes | None:
    """A small file of an image; None where it has none of that name."""
    with engine_errors("reading a file of the image", ""):
        container = engine.client.containers.create(image.id, command=["true"], labels=owner_label())
        try:
            blocks, _ = container.get_archive(path)
            content = b""
            for block in blocks:
                content += block
                if len(content) > MOST_TEXT:
                    raise SplatfixError.of(
                        "containers.container-report-damaged", path=path, most=MOST_TEXT >> 20
                    )
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                file = archive.extractfile(archive.getmembers()[0])
                return file.read() if file else None
        except sdk().errors.NotFound:
            return None
        finally:
            container.remove(force=True, v=True)


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
    kept, output_log = KeptLines(), OutputLog(sink)
    with Building(progress) as building:

        def hear(output: Iterable[str]) -> None:
            for line in map(without_credentials, output):
                output_log.write(f"{line}\n")
                if line.strip():
                    kept.add(line)
                    building.hear(line)

        pending = ""  # answers are chunks, not lines
        for answer in answers:
            *complete, pending = (pending + _COLOUR.sub("", str(answer.get("stream", "")))).split("\n")
            hear(complete)
            if len(pending) > LONGEST_OUTPUT_LINE:  # a progress bar without an end
                cut = safe_cut(pending)
                hear([pending[:cut]])
                pending = pending[cut:]
            # of the two fields `error` is the older one (moby, pkg/jsonmessage); the newer may have a code alone
            error = str(answer.get("error") or "")
            if isinstance(detail := answer.get("errorDetail"), Mapping):
                error = str(detail.get("message") or error or f"exit code: {detail.get('code')}")
            if error:
                hear([pending, error])
                failure = explain_image_build(kept.lines, error)
                reason = failure.lines[0] if failure.lines else "no reason given"
                if failure.failure_class:
                    reason += f" [{failure.failure_class}]"
                raise SplatfixError.of(
                    "containers.image-not-built",
                    lane=lane.name,
                    reason=reason,
                    log=log,
                    todo=failure.todo[:1],
                    details={"log": str(log), "engine": error},
                )
        hear([pending])


def _base_image(engine: Engine, name: str, progress: Callable[[str], None]) -> str:
    """The ID of the base image, pulled where the engine does not have it."""
    if known := image_id(engine, name):
        return known
    docker = sdk()
    progress(f"pulling base image {name}")
    try:
        repository, tag = docker.utils.parse_repository_tag(name)
        for answer in engine.client.api.pull(repository, tag or "latest", stream=True, decode=True):
            if "error" in answer:
                raise docker.errors.APIError(str(answer["error"]))
    except docker.errors.APIError as error:
        raise SplatfixError.of(
            "containers.docker-base-image-unavailable", name=name, reason=error.explanation or error
        ) from error
    with engine_errors("looking for the pulled base image"):
        return str(engine.client.images.get(name).id)


def image_id(engine: Engine, name: str) -> str | None:
    """The ID of an image by its name; None where the engine does not have it."""
    with engine_errors("looking for an image"):
        try:
            return str(engine.client.images.get(name).id)
        except sdk().errors.ImageNotFound:
            return None


def _digest(files: Mapping[str, Content], arguments: Mapping[str, str], base_id: str) -> str:
    """SHA-256 over everything that decides the content of the image."""
    digests = {}
    for name, content in files.items():
        if isinstance(content, Path):
            digests[name] = sha256_of(content)
        else:
            digests[name] = hashlib.sha256(repr(content).encode()).hexdigest()
    # images are told by their ids: one may have another name
    named = {name: value for name, value in arguments.items() if name not in ("BASE_IMAGE", "BUILD_IMAGE")}
    content_of_all = {"base": base_id, "args": named, "files": digests}
    return hashlib.sha256(json.dumps(content_of_all, sort_keys=True).encode()).hexdigest()


def build_arguments(recipe: ImageRecipe) -> dict[str, str]:
    """The ARGs of the lane's Dockerfile."""
    lane = recipe.lane
    install: list[str] = []
    if recipe.extensions:
        install += target_options(recipe.targets)
        if lane.toolkit is ToolkitFrom.PYPI:
            install.append("--provide-toolkit")
        if backend := _BACKENDS.get(lane.toolkit):
            install += ["--backend", backend]
        if CHECKOUT in recipe.extensions:  # its trainer is run
            install.append("--with-dependencies")
        if recipe.jobs:
            install += ["--jobs", str(recipe.jobs)]
    return {
        "BASE_IMAGE": lane.base_image,
        "BUILD_IMAGE": lane.build_image or lane.base_image,
        "PYTHON_VERSION": lane.python,
        "BUILD_APT_PACKAGES": " ".join(lane.build_apt),
        "LIBRARIES": " ".join(lane.libraries),
        "TORCH": lane.torch,
        "TORCH_INDEX": lane.torch_index,
        "DOWNLOADS": " ".join(lane.downloads),
        "EXTENSIONS": shlex.join(recipe.extensions),
        "INSTALL_ARGUMENTS": shlex.join(install),
        "SOURCE_DATE_EPOCH": str(_source_date()),
        **recipe.pip_args,
    }


def _source_date() -> int:
    """The date of everything in the image (https://reproducible-builds.org/specs/source-date-epoch/)."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    return max(int(given), _FIRST_DATE) if given.isdigit() else _FIRST_DATE


def dockerfile(recipe: ImageRecipe) -> str:
    """The lanes' Dockerfile for anybody's ``docker build``: the arguments are filled in, and the context is the checkout."""
    arguments = build_arguments(recipe) | {"SOURCES": ".", "PLACE": f"{PurePosixPath(CHECKOUT).name}/"}
    del arguments["SOURCE_DATE_EPOCH"]  # equal checkouts give equal texts
    text = (bundled("dockerfiles") / "debian.Dockerfile").read_text(encoding="utf-8")
    for name, value in arguments.items():
        # nothing that Docker reads between quotes; a shell reads it as words only
        if value and not re.fullmatch(r"[A-Za-z0-9 ._/:+@,=<>~*\[\]-]+", value):
            raise ValueError(f"{name}={value!r} cannot stand in a Dockerfile")
        if value:
            text = re.sub(rf"^ARG {name}(=.*)?$", f'ARG {name}="{value}"', text, flags=re.MULTILINE)
    return text


def build_context(recipe: ImageRecipe) -> dict[str, bytes | Path]:
    """The build context by path, sorted, without the sources of others."""
    lane, ours = recipe.lane, bundled("dockerfiles")
    inside: dict[str, bytes | Path] = {
        "base/prepare.sh": ours / "prepare.sh",
        "base/certificates.pem": recipe.certificates,
        "packages/requirements.txt": requirements(lane).encode(),
        "packages/constraints.txt": constraints(lane).encode(),
    }
    inside |= {f"packages/{name}": data for name, data in own_metadata().items()}
    inside |= {f"packages/wheels/{wheel.name}": wheel for wheel in recipe.wheels}
    inside |= {f"source/{name}": path for name, path in recipe.source.items()}
    files: dict[str, bytes | Path] = {"Dockerfile": ours / "debian.Dockerfile"}
    files |= {f"{CONTEXT}/{name}": content for name, content in inside.items()}
    return dict(sorted(files.items()))


def sources_of(recipe: ImageRecipe, tell: Callable[[str], None]) -> dict[str, Content]:
    """The checkout and extensions in the build context; ``tell`` hears what of them is not in it."""
    sources = dict(recipe.folders)
    if recipe.checkout is not None:
        sources["checkout"] = recipe.checkout
    files: dict[str, Content] = {}
    for name, folder in sources.items():
        copied = SourceFiles(folder, with_commit=True)
        for entry in copied.bounded():
            place = f"sources/{name}/{entry.name}"
            if entry.link:
                files[place] = entry.link
            elif re.search(r"(^|/)\.git/(.+/)?config$", entry.name):
                text = read_text(entry.path)
                files[place] = without_credentials(text).encode() if isinstance(text, str) else b""
            elif not entry.path.is_dir():
                files[place] = entry.path
        for text in missed(copied.left_out):
            tell(f"not in the image: {text}")
    return files


def _write_context(target: IO[bytes], files: Mapping[str, Content]) -> None:
    """The build context as a tar, with its folders, and without owners and dates of this machine."""
    with tarfile.open(fileobj=target, mode="w") as archive:
        folders = {parent.as_posix() for name in files for parent in PurePosixPath(name).parents}
        for folder in sorted((folders | {f"{CONTEXT}/packages/wheels", "sources"}) - {"."}):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, _source_date()
            archive.addfile(entry)
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.mode, entry.mtime = 0o644, _source_date()
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                archive.addfile(entry)
                continue
            if isinstance(content, bytes):
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
                continue
            entry.size = content.stat().st_size
            entry.mode |= content.stat().st_mode & 0o111
            with content.open("rb") as file:
                archive.addfile(entry, file)
