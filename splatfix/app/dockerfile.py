"""``splatfix dockerfile``: a Dockerfile for a checkout and its targets, printed, or written beside what it needs."""

import os
from importlib.metadata import requires as requires_of
from pathlib import Path

from splatfix import __version__
from splatfix.app.result import Result
from splatfix.containers.image import own_source
from splatfix.core.data import dataclass, replace
from splatfix.core.errors import SplatfixError
from splatfix.core.files import write_bytes
from splatfix.core.reading import Unread, read_text
from splatfix.core.scratch import temporary_folder
from splatfix.core.step import run
from splatfix.facts import read_checkout, resolved_folder
from splatfix.install.wheels import write_wheel
from splatfix.knowledge.breakages import source_patterns
from splatfix.plan.checkout import require_one_thing
from splatfix.plan.image import ImageRequest as ImageRequest  # built by the command line
from splatfix.plan.image_choice import plan_image
from splatfix.report import image


@dataclass(frozen=True)
class DockerfileRequest:
    """What was asked of ``splatfix dockerfile``: which image, and what to write."""

    image: ImageRequest
    out: Path | None = None
    """A folder, or the Dockerfile itself; None prints it."""
    force: bool = False


def make_dockerfile(request: DockerfileRequest) -> Result:
    """Plan the image, and print the Dockerfile or write it with what belongs to it; all files or none.

    Raises:
        SplatfixError: ``not-a-folder``, ``file-exists`` (exit code 2), ``cannot-write`` (3); what
            :func:`splatfix.plan.image_choice.plan_image` refuses. Nothing is written then.
    """
    repo = request.image.checkout
    folder = resolved_folder(repo)
    if folder is None:
        raise SplatfixError.of("app.no-checkout", repo=repo)
    require_one_thing(folder)
    plan = plan_image(replace(request.image, checkout=str(folder)), read_checkout(folder, source_patterns()))
    if request.out is None:
        made = image.files(plan)
        return Result(
            "dockerfile",
            lambda: image.document(plan, made, ()),
            lambda console: console.out(made[0].content, end="", highlight=False),
        )
    destination, name = _destination(request.out)
    made = image.files(plan, name, dockerignore=_dockerignore(folder))
    wheel = _own_wheel()
    contents = {destination / item.name: item.content.encode() for item in made}
    contents |= {destination / name: content for name, content in wheel.items()}
    # all files or none: what is in the way of one is told before the first is written
    new = _to_write(destination, contents, request)
    destination.mkdir(exist_ok=True)
    for path in new:
        write_bytes(path, contents[path])
    written = tuple(str(path) for path in new)
    same = tuple(str(path) for path in contents if path not in new)
    steps = [
        run(
            "docker",
            "build",
            "-t",
            image.image_name(plan),
            "-f",
            destination / name,
            folder,
            text="Build it with",
        )
    ]
    if destination != folder:
        text = "The build takes files from the checkout alone, so first"
        steps.insert(0, run("cp", *(destination / name for name in wheel), folder, text=text))
    return Result(
        "dockerfile",
        lambda: image.document(plan, made, written),
        lambda console: image.show_written(console, plan, written, same, steps),
    )


def _dockerignore(folder: Path) -> str:
    """The checkout's own rules; "" where it has none.

    Raises:
        SplatfixError: ``cannot-read`` (exit code 2) for one that is there and cannot be read: what it excludes would be in the
            image.
    """
    content = read_text(folder / ".dockerignore")
    if isinstance(content, Unread):
        raise SplatfixError.of(
            "app.unreadable-dockerignore", path=folder / ".dockerignore", reason=content.reason
        )
    return content or ""


def _destination(out: Path) -> tuple[Path, str]:
    """(folder, the Dockerfile's name in it): what is not there is a folder to be made, unless its name speaks of a Dockerfile."""
    if not out.parent.is_dir():
        raise SplatfixError.of("app.no-folder-for-dockerfile", parent=out.parent)
    if out.is_dir() or not (out.exists() or "dockerfile" in out.name.lower()):
        return out.resolve(), "Dockerfile"
    return out.parent.resolve(), out.name


def _to_write(destination: Path, contents: dict[Path, bytes], request: DockerfileRequest) -> list[Path]:
    """The files that are not there as they should be.

    Raises:
        SplatfixError: ``file-exists`` for others that are there.
    """
    new = [path for path in contents if not _is_already(path, contents[path])]
    there = [path for path in new if os.path.lexists(path)]
    if any(path.is_dir() for path in there):
        raise SplatfixError.of("app.dockerfile-in-the-way", destination=destination)
    if there and not request.force:
        raise SplatfixError.of(
            "app.file-exists", names=", ".join(path.name for path in there), destination=destination
        )
    return new


def _is_already(path: Path, content: bytes) -> bool:
    try:
        return not path.is_symlink() and path.is_file() and path.read_bytes() == content
    except OSError:
        return False  # what cannot be read is somebody else's, and only --force replaces it


def _own_wheel() -> dict[str, bytes]:
    """The running splatfix as a wheel, by its name: what builds the image is what wrote its Dockerfile, also where no index
    has it."""
    files = {name: path.read_bytes() for name, path in own_source().items()}
    requires = [text for text in requires_of("splatfix") or () if "extra ==" not in text]
    with temporary_folder() as folder:
        path = write_wheel(
            folder,
            "splatfix",
            __version__,
            files,
            "The splatfix that wrote the Dockerfile beside it",
            requires=requires,
            entry_points="[console_scripts]\nsplatfix = splatfix.cli:main\n",
        )
        return {path.name: path.read_bytes()}
