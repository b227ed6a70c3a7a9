"""Builds a lane's image from packages and splatfix's own files, once per content."""

import hashlib
import io
import json
import os
import re
import shlex
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO

from msgspec import Struct, field

import splatfix
from splatfix.containers.building import follow_build
from splatfix.containers.engine import Engine, engine_errors, sdk
from splatfix.containers.packages import PipSettings, constraints, requirements, wheels_of_torch
from splatfix.core.errors import SplatfixError
from splatfix.core.files import sha256_of
from splatfix.core.reading import read_text
from splatfix.core.redact import without_credentials
from splatfix.core.resources import KERNELS, SMOKE_TRAINER, bundled
from splatfix.core.step import target_options
from splatfix.facts.source.copying import SourceFiles, missed
from splatfix.knowledge.lanes import Lane, ToolkitFrom

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
Content = bytes | Path | str
"""What a file of a build context holds, the file that it is a copy of, or what a link says."""


class ImageRecipe(Struct, frozen=True):
    """Everything that goes into an image."""

    lane: Lane
    """Its extensions are named as they are inside."""
    pip: PipSettings = PipSettings()
    """Of the site that builds it."""
    checkout: Path | None = None
    """A stack, to be copied into the image."""
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
    """Return the files of the running splatfix and its trainer, by their path in site-packages, sorted.

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


def own_zip() -> bytes:
    """Return :func:`own_source` as an archive for site-packages; equal files give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, path in own_source().items():
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def build_image(engine: Engine, recipe: ImageRecipe, *, progress: Callable[[str], None], log: Path) -> Image:
    """Build the image of ``recipe``, or reuse one of an equal recipe.

    The build output goes to ``log``, and to ``progress`` what is being done.

    Raises:
        SplatfixError: ``docker-base-image-unavailable`` (exit code 3) or ``docker-build-failed`` with its root cause.
    """
    lane = recipe.lane
    base = lane.base_image
    base_id = image_id(engine, base)
    if base_id is None:
        progress(f"pulling base image {base}")
        try:
            base_id = str(engine.client.images.pull(base).id)
        except sdk().errors.APIError as error:
            raise SplatfixError.of(
                "containers.docker-base-image-unavailable", name=base, reason=error.explanation or error
            ) from error
    files = build_context(recipe) | sources_of(recipe, progress)
    # what does not stand in the Dockerfile: the site's packages, which may have a password, and a date
    arguments = {"SOURCE_DATE_EPOCH": str(_source_date()), **recipe.pip.build_args}
    digest = hashlib.sha256(json.dumps([base_id, arguments]).encode())
    for name, content in files.items():
        if isinstance(content, Path):
            content = sha256_of(content)
        digest.update(repr((name, content)).encode())
    tag = f"splatfix-lane-{lane.name}:{digest.hexdigest()[:20]}"
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
    with tempfile.TemporaryFile() as context, engine_errors("building an image"):
        _write_context(context, files)
        context.seek(0)
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
        follow_build(answers, lane.name, log, progress)
    built = image_id(engine, tag)
    if built is None:
        raise SplatfixError.of("containers.docker-build-failed", log=log)
    return Image(tag, built, base, base_id, reused=False)


def image_id(engine: Engine, name: str) -> str | None:
    """Return the ID of an image by its name; None where the engine does not have it."""
    with engine_errors("looking for an image"):
        try:
            return str(engine.client.images.get(name).id)
        except sdk().errors.ImageNotFound:
            return None


def install_arguments(recipe: ImageRecipe) -> list[str]:
    """Return the options of the ``splatfix install`` that builds the recipe's extensions in its image."""
    lane = recipe.lane
    if not lane.extensions:
        return []
    arguments = list(target_options(lane.targets))
    if lane.toolkit is ToolkitFrom.PYPI:
        arguments.append("--provide-toolkit")
    if backend := _BACKENDS.get(lane.toolkit):
        arguments += ["--backend", backend]
    if CHECKOUT in lane.extensions:  # its trainer is run
        arguments.append("--with-dependencies")
    if recipe.jobs:
        arguments += ["--jobs", str(recipe.jobs)]
    return arguments


def _source_date() -> int:
    """Return the date of everything in the image (https://reproducible-builds.org/specs/source-date-epoch/)."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    return max(int(given), _FIRST_DATE) if given.isdigit() else _FIRST_DATE


def dockerfile(recipe: ImageRecipe, *, of_checkout: bool = False) -> str:
    """Return the one Dockerfile there is, with its arguments filled in.

    Args:
        of_checkout: the build context is a checkout, and not a folder ``sources`` with one and with extensions.
    """
    lane = recipe.lane
    arguments = {
        "BASE_IMAGE": lane.base_image,
        "BUILD_IMAGE": lane.build_image or lane.base_image,
        "PYTHON_VERSION": lane.python,
        "BUILD_APT_PACKAGES": " ".join(lane.build_apt),
        "LIBRARIES": " ".join(lane.libraries),
        "TORCH": lane.torch,
        "TORCH_INDEX": lane.torch_index,
        "DOWNLOADS": " ".join(lane.downloads),
        "EXTENSIONS": shlex.join(lane.extensions),
        "INSTALL_ARGUMENTS": shlex.join(install_arguments(recipe)),
    }
    if of_checkout:
        arguments |= {"SOURCES": ".", "PLACE": f"{PurePosixPath(CHECKOUT).name}/"}
    text = (bundled("dockerfiles") / "debian.Dockerfile").read_text(encoding="utf-8")
    for name, value in arguments.items():
        # nothing that Docker reads between quotes; a shell reads it as words only
        if value and not re.fullmatch(r"[A-Za-z0-9 ._/:+@,=<>~*\[\]-]+", value):
            raise ValueError(f"{name}={value!r} cannot stand in a Dockerfile")
        if value:
            text = re.sub(rf"^ARG {name}(=.*)?$", f'ARG {name}="{value}"', text, flags=re.MULTILINE)
    return text


def build_context(recipe: ImageRecipe) -> dict[str, bytes | Path]:
    """Return the build context by path, sorted, without the sources of others."""
    lane, ours = recipe.lane, bundled("dockerfiles")
    inside: dict[str, bytes | Path] = {
        "base/prepare.sh": ours / "prepare.sh",
        "base/certificates.pem": recipe.pip.certificates,
        "packages/requirements.txt": requirements(lane).encode(),
        "packages/constraints.txt": constraints(lane).encode(),
        "splatfix.zip": own_zip(),
    }
    inside |= {f"packages/wheels/{wheel.name}": wheel for wheel in wheels_of_torch(lane, recipe.pip)}
    files: dict[str, bytes | Path] = {"Dockerfile": dockerfile(recipe).encode()}
    files |= {f"{CONTEXT}/{name}": content for name, content in inside.items()}
    return dict(sorted(files.items()))


def sources_of(recipe: ImageRecipe, tell: Callable[[str], None]) -> dict[str, Content]:
    """Return the checkout and extensions in the build context; ``tell`` hears what of them is not in it."""
    sources = dict(recipe.folders)
    if recipe.checkout is not None:
        sources["checkout"] = recipe.checkout
    files: dict[str, Content] = {}
    for name, folder in sources.items():
        copied = SourceFiles(folder, with_commit=True)
        for entry in copied.bounded():
            target = f"sources/{name}/{entry.name}"
            if entry.link:
                files[target] = entry.link
            elif re.search(r"(^|/)\.git/(.+/)?config$", entry.name):
                text = read_text(entry.path)
                files[target] = without_credentials(text).encode() if isinstance(text, str) else b""
            elif not entry.path.is_dir():
                files[target] = entry.path
        for text in missed(copied.left_out):
            tell(f"not in the image: {text}")
    return files


def _write_context(target: IO[bytes], files: Mapping[str, Content]) -> None:
    """Write the build context as a tar, with its folders, and without owners and dates of this machine."""
    folders = {parent.as_posix() for name in files for parent in PurePosixPath(name).parents}
    folders |= {f"{CONTEXT}/packages/wheels", "sources"}
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name in (*sorted(folders - {"."}), *files):
            entry, content = tarfile.TarInfo(name), files.get(name)
            entry.mode, entry.mtime = 0o644, _source_date()
            if content is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
            elif isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                archive.addfile(entry)
            elif isinstance(content, Path):
                entry.size = content.stat().st_size
                entry.mode |= content.stat().st_mode & 0o111
                with content.open("rb") as file:
                    archive.addfile(entry, file)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
