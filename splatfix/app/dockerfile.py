"""``splatfix dockerfile``: a lane for a checkout and its targets, as a Dockerfile: printed, or written beside what it needs."""

import os
import re
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from msgspec import Struct
from rich.console import Console

from splatfix import __version__
from splatfix.app.result import Result, show_message
from splatfix.checks.checkout.code_shapes import source_patterns
from splatfix.containers.checkout import CheckoutLane, lane_for
from splatfix.containers.image import CHECKOUT, CONTEXT, ImageRecipe, build_context, dockerfile
from splatfix.core.errors import SplatfixError
from splatfix.core.files import write_bytes
from splatfix.core.reading import Unread, read_text, resolved_folder
from splatfix.core.resources import bundled
from splatfix.core.step import Step, run
from splatfix.core.visible import visible
from splatfix.facts.checkout import read_checkout
from splatfix.facts.source.copying import LeftOut, SourceFiles, missed
from splatfix.knowledge import RequestedTarget
from splatfix.knowledge.lanes import ToolkitFrom
from splatfix.plan.checkout import many_things
from splatfix.report.console import escape, marked, notes, prose, show_todo
from splatfix.report.forms import writes
from splatfix.report.marks import Mark

_TOOLKITS = {"image": ToolkitFrom.IMAGE, "wheels": ToolkitFrom.PYPI}
_DATA = ("data", "dataset", "datasets", "output", "outputs")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@/-]*")
"""A path in which Docker's rules read no pattern."""


class DockerfileRequest(Struct, frozen=True):
    """What was asked of ``splatfix dockerfile``: which image, and what to write."""

    checkout: str
    targets: tuple[RequestedTarget, ...]
    toolkit: str = "image"
    """``image``: NVIDIA's, which the stages that compile start from; ``wheels``: PyPI's, on a plain Debian."""
    torch: str = ""
    jobs: int = 4
    """Compilers at once."""
    out: Path | None = None
    """A folder, or the Dockerfile itself; None prints it."""
    force: bool = False


class DockerfileDocument(Struct, frozen=True, kw_only=True):
    """The image for a checkout, and its files by name."""

    image: CheckoutLane
    files: dict[str, str]
    written: tuple[str, ...] = ()
    """Paths; () where the Dockerfile is only printed."""
    next_steps: tuple[Step, ...] = ()
    """What builds it."""


@writes(DockerfileDocument, command="dockerfile")
def show(console: Console, document: DockerfileDocument) -> None:
    """Print the Dockerfile; or what was written, why it is as it is, and how to build it."""
    image = document.image
    if not document.next_steps:
        (text,) = document.files.values()
        console.out(text, end="", highlight=False)
        return
    title = f"[bold]{escape(image.lane.description)} for {', '.join(image.lane.targets)}[/]"
    marked(console, Mark.GOOD, title, indent=0)
    show_todo(console, document.next_steps, indent=2)
    for path in document.written:
        prose(console, "  wrote ", escape(path))
    for item in image.reasons:
        prose(console, "  - ", escape(item.text))
    notes(console, image.notes)


def make_dockerfile(request: DockerfileRequest) -> Result[DockerfileDocument]:
    """Plan the image, and print the Dockerfile or write it with what belongs to it.

    Raises:
        SplatfixError: ``not-a-folder``, ``file-exists`` (exit code 2), ``cannot-write`` (3); what
            :func:`splatfix.containers.checkout.lane_for` refuses. Nothing is written then.
    """
    folder = resolved_folder(request.checkout)
    if folder is None:
        raise SplatfixError.of("app.no-checkout", repo=request.checkout)
    if opened_here := many_things(folder):
        raise opened_here.error()
    checkout = read_checkout(folder, source_patterns()).value
    plan = lane_for(folder, checkout, request.targets, _TOOLKITS[request.toolkit], request.torch)
    lane = plan.lane
    recipe = ImageRecipe(lane, jobs=request.jobs)
    text = text_of(plan, recipe)
    if request.out is None:
        return Result("dockerfile", DockerfileDocument(image=plan, files={"Dockerfile": text}))
    copied = SourceFiles(folder)
    deque(copied.walk(), maxlen=0)
    left_out = [item for item in copied.left_out if not item.path.startswith(f"{CONTEXT}/")]
    for missing in missed(left_out):
        show_message(f"Not in the image: {missing}.")
    if not request.out.parent.is_dir():
        raise SplatfixError.of("app.no-folder-for-dockerfile", parent=request.out.parent)
    # what is not there is to be a folder, unless it is called a Dockerfile
    destination, name = request.out.resolve(), "Dockerfile"
    if not request.out.is_dir() and (request.out.exists() or "dockerfile" in request.out.name.lower()):
        destination, name = request.out.parent.resolve(), request.out.name
    texts = {name: text, f"{name}.dockerignore": ignored(plan, folder, left_out)}
    contents = {destination / file: content.encode() for file, content in texts.items()}
    for file, content in build_context(recipe).items():
        if file.startswith(CONTEXT):
            contents[destination / file] = content if isinstance(content, bytes) else content.read_bytes()
    written = []
    for path, content in contents.items():
        # what cannot be read is somebody else's, and only --force replaces it
        with suppress(OSError):
            if path.read_bytes() == content:
                continue
        written.append(path)
    there = [path.name for path in written if os.path.lexists(path)]
    if there and not request.force:
        raise SplatfixError.of("app.file-exists", names=there, destination=destination)
    for path in written:
        write_bytes(path, contents[path])
    image = _image_name(plan)
    steps = [run("docker", "build", "-t", image, "-f", destination / name, folder, text="Build it with")]
    if destination != folder:
        text_of_copy = "The build takes files from the checkout alone, so first"
        steps.insert(0, run("cp", "-r", destination / CONTEXT, folder, text=text_of_copy))
    document = DockerfileDocument(
        image=plan, files=texts, written=tuple(map(str, written)), next_steps=tuple(steps)
    )
    return Result("dockerfile", document)


def text_of(plan: CheckoutLane, recipe: ImageRecipe) -> str:
    """Return the Dockerfile. What a checkout chose stands in comments alone."""
    targets = ", ".join(plan.lane.targets)
    chosen = [item.text for item in plan.reasons]
    chosen += [f"not {item.what}: {item.why}" for item in plan.rejected]
    if plan.machine != "x86_64":  # NVIDIA's images exist for both; an emulated nvcc takes hours
        chosen.append(f"for an {plan.machine} processor: build it on one, or with --platform linux/arm64")
    chosen += [f"left to you: {note}" for note in plan.notes]
    head = (
        (bundled("dockerfiles") / "head.txt")
        .read_text(encoding="utf-8")
        .format(
            title=f"{plan.lane.description} for {targets}",
            version=__version__,
            image=_image_name(plan),
            context=CONTEXT,
            checkout=CHECKOUT,
            chosen="\n".join(f"# - {visible(text)}" for text in chosen),
        )
    )
    labels = f'LABEL org.splatfix.version="{__version__}" org.splatfix.targets="{targets}"\n'
    return f"{head}\n{dockerfile(recipe, of_checkout=True)}{labels}"


def _image_name(plan: CheckoutLane) -> str:
    """What to call the image: ``2dgs:sm_120``."""
    return f"{plan.lane.name}:{'-'.join(plan.lane.targets)}"


def ignored(plan: CheckoutLane, folder: Path, left_out: Iterable[LeftOut] = ()) -> str:
    """Return the ``.dockerignore`` beside the Dockerfile, read instead of the checkout's own, so that it begins with that.

    The last rule that fits decides: what the build needs comes after the checkout's rules, and then, but for those folders as a
    whole, these again; what must never be in an image comes after everything.

    Raises:
        SplatfixError: ``cannot-read`` (exit code 2) for one that is there and cannot be read: what it excludes would be in the
            image.
    """
    content = read_text(folder / ".dockerignore")
    if isinstance(content, Unread):
        raise SplatfixError.of("app.unreadable-dockerignore", path=content.path, reason=content.reason)
    own = (content or "").removeprefix("\ufeff").splitlines()
    needed = [source for source in plan.sources if _PLAIN.fullmatch(source)]
    inside = [rule for rule in own if not any(_excludes(rule, source) for source in needed)]
    data = [name for name in _DATA if not any(source.split("/")[0] == name for source in plan.sources)]
    ours = bundled("dockerfiles")
    always = [(ours / f"{name}.dockerignore").read_text(encoding="utf-8") for name in ("secrets", "checkout")]
    # as it is written, for the rules about secrets count case; "?" is any one sign
    missing = [re.sub(r"[^\w./-]", "?", item.path, flags=re.ASCII) for item in left_out if item.wanted]
    return "\n".join([*own, *(f"!{source}" for source in needed), *inside, *data, *missing, *always])


def _excludes(rule: str, folder: str) -> bool:
    """Tell whether a rule of a ``.dockerignore`` leaves out the folder, or one that it lies in."""
    pattern = rule.strip().strip("/")
    if not pattern or pattern.startswith(("#", "!")):
        return False
    path = PurePosixPath(folder)
    # "**/" stands for no folder too; "*" goes over "/" here, and what Docker reads otherwise is only not repeated
    either = (pattern, pattern.removeprefix("**/"))
    return any(fnmatchcase(str(name), form) for name in (path, *path.parents) for form in either)
