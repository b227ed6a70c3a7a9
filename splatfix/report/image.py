"""Writes out an image plan: Dockerfile, compose.yaml, devcontainer.json, what to leave out of the context; and the document.

The texts are in ``image.txt``, so that a Dockerfile reads as one.
"""

from __future__ import annotations

import json
import re
import string
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from rich.console import Console

from splatfix import __version__
from splatfix.core.codec import to_json
from splatfix.core.step import Step
from splatfix.core.visible import visible
from splatfix.plan.image import ImageFile, ImagePlan
from splatfix.report.console import escape, marked, prose, show_step
from splatfix.report.marks import Mark

_WIDTH = 112
_HOME = "/home/splat"
_NEXT_LINE = " \\\n        "
_AND = " \\\n && "


class _Template(string.Template):
    """With @ for what is filled in: a Dockerfile's own variables have the dollar sign."""

    delimiter = "@"


@cache
def _parts() -> dict[str, str]:
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    _, *parts = re.split(r"^==== (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _filled(part: str, **values: object) -> str:
    return _Template(_parts()[part]).substitute(values)


@dataclass(frozen=True)
class Places:
    """How the files see each other."""

    name: str = "Dockerfile"
    context: str = "."
    """The checkout, from the Dockerfile's folder."""
    dockerfile: str = "Dockerfile"
    """The Dockerfile, from the checkout."""


def files(
    plan: ImagePlan,
    places: Places,
    *,
    dockerignore: str = "",
    compose: bool = False,
    devcontainer: bool = False,
) -> tuple[ImageFile, ...]:
    """The files, each relative to the Dockerfile's folder.

    Args:
        dockerignore: the text of the checkout's own ``.dockerignore``.
    """
    ignored = ignore_file(plan, places.name, dockerignore)
    images = [ImageFile(places.name, dockerfile(plan)), ImageFile(f"{places.name}.dockerignore", ignored)]
    if compose:
        images.append(ImageFile("compose.yaml", compose_file(plan, places)))
    if devcontainer:
        images.append(ImageFile(".devcontainer/devcontainer.json", devcontainer_file(plan, places)))
    return tuple(images)


def dockerfile(plan: ImagePlan) -> str:
    """The Dockerfile, for every builder (BuildKit, Docker's classic one, Podman, Kaniko). Equal plans give equal texts."""
    return "".join(
        (_head(plan), _builder(plan), _requirements(plan), _toolkit(plan), _extensions(plan), _runtime(plan))
    )


def image_name(plan: ImagePlan) -> str:
    """What to call the image: ``2dgs:sm_120``."""
    return f"{plan.stack or 'splats'}:{'-'.join(map(str, plan.targets))}"


def _targets(plan: ImagePlan) -> str:
    return ", ".join(map(str, plan.targets))


def _comment(text: str, indent: str = "") -> str:
    """Lines of comment. Nothing in ``text`` can end one: what is not printable is spelled out."""
    lines = textwrap.wrap(
        visible(text), _WIDTH - 2, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "".join(f"# {line}\n" for line in lines)


def _label(text: str) -> str:
    """As it stands between double quotes of an instruction: only signs that mean nothing to Docker."""
    return re.sub(r"[^A-Za-z0-9 ._/:+@,;()~*-]", "_", text)


def _quoted(names: Iterable[str]) -> str:
    return _NEXT_LINE.join(f'"{name}"' for name in names)


def _head(plan: ImagePlan) -> str:
    title = f"{plan.name} for {_targets(plan)}, written by splatfix {__version__}. The build context is the checkout:"
    reasons = [_comment(f"- {item.text}", "  ") for item in plan.reasons]
    reasons += [_comment(f"- not {item.what}: {item.why}", "  ") for item in plan.rejected]
    # NVIDIA's images exist for both; an emulated nvcc takes hours
    if plan.machine != "x86_64":
        text = f"- for a machine with an {plan.machine} processor: build it on one, or with --platform linux/arm64"
        reasons.append(_comment(text, "  "))
    if plan.notes:
        reasons.append("#\n# Not known, or left to you:\n")
        reasons += [_comment(f"- {note}", "  ") for note in plan.notes]
    return _filled(
        "head",
        title=_comment(title),
        image=image_name(plan),
        reasons="".join(reasons),
        build_image=plan.build_image,
        run_image=plan.run_image,
    )


def _packages(*names: str) -> str:
    """Installs packages of the distribution, and trusts the certificate authority of a closed site."""
    return _filled("packages", packages=" ".join(sorted(names))).rstrip("\n")


def _builder(plan: ImagePlan) -> str:
    return _filled(
        "builder",
        packages=_packages("ca-certificates", "g++", "python3", "python3-dev", "python3-venv"),
        torch_index=plan.torch_index,
        torch=plan.torch,
        cuda=plan.cuda,
        build_tools=" ".join(plan.build_tools),
    )


def _requirements(plan: ImagePlan) -> str:
    if not plan.requirements:
        return ""
    return _filled("requirements", requirements=_quoted(plan.requirements))


def _toolkit(plan: ImagePlan) -> str:
    if not plan.toolkit_requirements:
        return _filled("toolkit from the image", arch_list=plan.arch_list)
    root = f"/opt/cuda/{plan.toolkit_folder}"
    links = _AND.join(f"ln -s {target} {root}/{path}" for path, target in plan.toolkit_links)
    requirements = _quoted(plan.toolkit_requirements)
    return _filled(
        "toolkit from wheels", requirements=requirements, links=links, root=root, arch_list=plan.arch_list
    )


def _extensions(plan: ImagePlan) -> str:
    sources = []
    for source in plan.sources:
        sources.append(_comment(f"{source.path} ({source.name})"))
        sources += [_comment(f"  - {edit}", "    ") for edit in source.edits]
    sources += [f'COPY ["{path}", "{_inside(path)}"]\n' for path in plan.copies]
    return _filled(
        "extensions",
        version=__version__,
        marker=plan.marker,
        targets=_targets(plan),
        options=" ".join(f"--target {arch}" for arch in plan.targets),
        sources="".join(sources),
        jobs=plan.jobs,
        folders=" ".join(_inside(source.path) for source in plan.sources),
    )


def _inside(path: str) -> str:
    return "/src" if path == "." else f"/src/{path}"


def _runtime(plan: ImagePlan) -> str:
    targets = _targets(plan)
    labels = {
        "org.opencontainers.image.title": f"{plan.name} for {targets}",
        "org.opencontainers.image.description": f"torch {plan.torch} {plan.torch_tag}, built for {targets}",
        "org.opencontainers.image.source": plan.remote,
        "org.opencontainers.image.revision": plan.revision,
        "org.splatfix.version": __version__,
        "org.splatfix.targets": " ".join(map(str, plan.targets)),
    }
    workdir = f"{_HOME}/checkout"
    if any(source.path == "." for source in plan.sources):
        # There a package's own source, which is not compiled, would be imported in place of the installed one.
        workdir = _HOME
    # docker inspect then tells where an image came from; a checkout without git has no revision
    known = [f'{name}="{_label(value)}"' for name, value in labels.items() if value]
    return _filled(
        "runtime",
        packages=_packages("ca-certificates", "python3", *plan.run_packages),
        labels=" \\\n      ".join(known),
        workdir=workdir,
    )


_DATA = ("data", "dataset", "datasets", "output", "outputs")


# Of a .dockerignore, as regular expressions.
_WILDCARDS = {"**/": "(.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def ignore_file(plan: ImagePlan, dockerfile_name: str, dockerignore: str) -> str:
    """The ``.dockerignore`` beside the Dockerfile.

    BuildKit reads it *instead of* the checkout's own, so it begins with that. The last rule that fits decides: what the build
    needs comes after the checkout's rules, and what must never be in an image after everything. The list of keys follows
    GitHub's and gitleaks' names for such files.
    """
    files = [plan.marker, "splatfix-*.whl"]
    folders = [path for path in plan.copies if path != "."]
    needed = [*files, *folders]
    top = {PurePosixPath(path).parts[0] for path in needed}
    lines = [
        f"# Beside {dockerfile_name}, this takes the place of the checkout's .dockerignore, which it begins with."
    ]
    own = dockerignore.removeprefix("\ufeff").splitlines()
    if own:
        lines += ["# The checkout's own rules. When they change: splatfix dockerfile --force", *own]
    lines += ["# What the build needs", *(f"!{path}" for path in folders)]
    # what the checkout leaves out inside those folders stays out of them
    inside = [rule for rule in own if not any(_excludes(rule, folder) for folder in folders)]
    if inside:
        lines += ["# The checkout's own rules again, but for those folders as a whole", *inside]
    lines += [f"!{path}" for path in files]
    data = "\n".join(name for name in _DATA if name not in top)
    return "\n".join(lines) + "\n" + _filled("ignored", data=data)


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


def _yaml(text: str) -> str:
    """A text of Compose: quoted as in JSON, which is YAML too, and with a dollar sign that is no variable."""
    return json.dumps(text).replace("$", "$$")


def compose_file(plan: ImagePlan, places: Places) -> str:
    """compose.yaml: the GPU, shared memory, and what a container need not be allowed."""
    name = image_name(plan)
    return _filled(
        "compose",
        image=name,
        quoted_image=_yaml(name),
        context=_yaml(places.context),
        dockerfile=_yaml(places.dockerfile),
    )


def devcontainer_file(plan: ImagePlan, places: Places) -> str:
    """devcontainer.json: the builder stage, because who works on an extension needs the compiler.

    A GPU that is there is asked for by the tool that starts it; --gpus among runArgs would refuse machines without one.
    """
    build = {"dockerfile": f"../{places.name}", "context": f"../{places.context}", "target": "builder"}
    variables = {
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    }
    settings = {"python.defaultInterpreterPath": "/opt/stack/bin/python"}
    content = {
        "name": image_name(plan),
        "build": build,
        "runArgs": ["--shm-size", "8g"],
        "hostRequirements": {"gpu": "optional"},
        "containerEnv": variables,
        "remoteEnv": {"PATH": "/opt/stack/bin:/opt/splatfix/bin:${containerEnv:PATH}"},
        "customizations": {"vscode": {"settings": settings}},
    }
    return json.dumps(content, indent=2) + "\n"


def document(plan: ImagePlan, made: Iterable[ImageFile], written: Sequence[str]) -> dict[str, Any]:
    """The content of ``dockerfile``'s JSON document; ``written`` are paths, () where nothing was asked to be."""
    return {"image": to_json(plan), "files": to_json(tuple(made)), "written": list(written)}


def show_written(
    console: Console, plan: ImagePlan, written: Sequence[str], unchanged: Sequence[str], steps: Sequence[Step]
) -> None:
    """What was written where, what it is made from, and the command that builds it."""
    marked(console, Mark.GOOD, f"[bold]{escape(plan.name)} for {_targets(plan)}[/]", indent=0)
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
