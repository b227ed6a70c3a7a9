"""Writes out an image plan: Dockerfile, what to leave out of the context, and the document.

The texts are ``templates/image.*``, so that a Dockerfile reads as one.
"""

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import PurePosixPath
from typing import Any

from jinja2 import Environment
from rich.console import Console

from splatfix import __version__
from splatfix.core.codec import to_json
from splatfix.core.step import Step, target_options
from splatfix.core.visible import visible
from splatfix.plan.image import ImageFile, ImagePlan
from splatfix.report.console import escape, marked, prose, show_step
from splatfix.report.marks import Mark
from splatfix.report.templates import jinja

_WIDTH = 112


def _comment(text: str, indent: str = "  ") -> str:
    """Lines of comment. Nothing in ``text`` can end one: what is not printable is spelled out."""
    lines = textwrap.wrap(
        visible(text), _WIDTH - 2, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(f"# {line}" for line in lines)


_FILTERS: Mapping[str, Callable[..., str]] = {
    "comment": _comment,
    # as it stands between double quotes of an instruction: only signs that mean nothing to Docker
    "label": lambda text: re.sub(r"[^A-Za-z0-9 ._/:+@,;()~*-]", "_", text),
    "quoted": lambda names: " \\\n        ".join(f'"{name}"' for name in names),
    "inside": lambda path: "/src" if path == "." else f"/src/{path}",
}


@cache
def _templates() -> Environment:
    # no autoescape: what a plan holds was held against patterns, and the rest goes through a filter above
    environment = jinja(autoescape=False)
    environment.filters.update(_FILTERS)
    return environment


def files(plan: ImagePlan, name: str = "Dockerfile", *, dockerignore: str = "") -> tuple[ImageFile, ...]:
    """The Dockerfile and the ``.dockerignore`` beside it.

    Args:
        name: the Dockerfile's.
        dockerignore: the text of the checkout's own ``.dockerignore``.
    """
    ignored = ignore_file(plan, name, dockerignore)
    return (ImageFile(name, dockerfile(plan)), ImageFile(f"{name}.dockerignore", ignored))


def image_name(plan: ImagePlan) -> str:
    """What to call the image: ``2dgs:sm_120``."""
    return f"{plan.stack or 'splats'}:{'-'.join(map(str, plan.targets))}"


def dockerfile(plan: ImagePlan) -> str:
    """The Dockerfile."""
    targets = ", ".join(map(str, plan.targets))
    labels = {
        "org.opencontainers.image.title": f"{plan.name} for {targets}",
        "org.opencontainers.image.description": f"torch {plan.torch} {plan.torch_tag}, built for {targets}",
        "org.opencontainers.image.source": plan.remote,
        "org.opencontainers.image.revision": plan.revision,
        "org.splatfix.version": __version__,
        "org.splatfix.targets": " ".join(map(str, plan.targets)),
    }
    workdir = "/home/splat/checkout"
    if any(source.path == "." for source in plan.sources):
        # There a package's own source, which is not compiled, would be imported in place of the installed one.
        workdir = "/home/splat"
    template = _templates().get_template("image.Dockerfile")
    return template.render(
        plan=plan,
        image=image_name(plan),
        targets=targets,
        options=" ".join(target_options(plan.targets)),
        version=__version__,
        run_packages=list(plan.run_packages),
        # docker inspect then tells where an image came from; a checkout without git has no revision
        labels=[(name, value) for name, value in labels.items() if value],
        workdir=workdir,
    )


_DATA = ("data", "dataset", "datasets", "output", "outputs")


# Of a .dockerignore, as regular expressions.
_WILDCARDS = {"**/": "(.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def ignore_file(plan: ImagePlan, dockerfile_name: str, dockerignore: str) -> str:
    """The ``.dockerignore`` beside the Dockerfile, which begins with the checkout's own rules."""
    folders = [path for path in plan.copies if path != "."]
    files = [plan.marker, "splatfix-*.whl"]
    needed = {PurePosixPath(path).parts[0] for path in (*files, *folders)}
    own = dockerignore.removeprefix("\ufeff").splitlines()
    inside = []
    for rule in own:
        if not any(_excludes(rule, folder) for folder in folders):
            inside.append(rule)
    return (
        _templates()
        .get_template("image.dockerignore")
        .render(
            dockerfile=dockerfile_name,
            own=own,
            folders=folders,
            inside=inside,
            files=files,
            data=[name for name in _DATA if name not in needed],
        )
    )


def _excludes(rule: str, folder: str) -> bool:
    """A rule of a ``.dockerignore`` leaves out the folder, or one that it lies in (moby/patternmatcher's rules)."""
    pattern = rule.strip().strip("/")
    if not pattern or pattern.startswith(("#", "!")):
        return False
    expression = ""
    for part in re.split(r"(\*\*/|\*\*|\*|\?)", pattern):
        expression += _WILDCARDS.get(part) or re.escape(part)
    path = PurePosixPath(folder)
    return any(re.fullmatch(expression, str(name)) for name in (path, *path.parents))


def document(plan: ImagePlan, made: Iterable[ImageFile], written: Sequence[str]) -> dict[str, Any]:
    """The content of ``dockerfile``'s JSON document; ``written`` are paths, () where nothing was asked to be."""
    return {"image": to_json(plan), "files": to_json(tuple(made)), "written": list(written)}


def show_written(
    console: Console, plan: ImagePlan, written: Sequence[str], unchanged: Sequence[str], steps: Sequence[Step]
) -> None:
    """What was written where, what it is made from, and the command that builds it."""
    marked(
        console, Mark.GOOD, f"[bold]{escape(plan.name)} for {', '.join(map(str, plan.targets))}[/]", indent=0
    )
    for step in steps:
        show_step(console, step, indent=2)
    for path in written:
        prose(console, "  wrote ", escape(path))
    for path in unchanged:
        prose(console, "  [dim]as it was[/] ", escape(path))
    for item in plan.reasons:
        prose(console, "  - ", escape(item.text))
    for note in plan.notes:
        prose(console, "[yellow]Note:[/] ", escape(note))
