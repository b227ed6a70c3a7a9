"""Writes out an image plan: Dockerfile, compose.yaml, devcontainer.json, what to leave out of the context; and the document."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from rich.console import Console

from splatfix import __version__
from splatfix.core.codec import to_json
from splatfix.core.step import Step
from splatfix.core.visible import visible
from splatfix.plan.image import ImageFile, ImagePlan
from splatfix.report.console import escape, prose, show_step

_WIDTH = 112
_USER = 10001
_CA = "/etc/ssl/certs/ca-certificates.crt"
_HOME = "/home/splat"

# Only what the place where it runs decides: an image's own packages do not change.
_HEALTHY = (
    "splatfix diagnose --python /opt/stack --only gpu --only driver --only container --only no-kernel-image"
    " && { test -e /dev/nvidiactl || test -e /dev/dxg; }"
)

# hadolint's rules that are not kept, each with its reason in the Dockerfile itself.
_NO_APT_PINS = "# hadolint ignore=DL3008\n"
_PIP = "/opt/stack/bin/python -m pip install --no-cache-dir"
_NO_PIP_PINS = "# hadolint ignore=DL3013\n"


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
    found = [ImageFile(places.name, dockerfile(plan)), ImageFile(f"{places.name}.dockerignore", ignored)]
    if compose:
        found.append(ImageFile("compose.yaml", compose_file(plan, places)))
    if devcontainer:
        found.append(ImageFile(".devcontainer/devcontainer.json", devcontainer_file(plan, places)))
    return tuple(found)


def dockerfile(plan: ImagePlan) -> str:
    """The Dockerfile, for every builder (BuildKit, Docker's classic one, Podman, Kaniko). Equal plans give equal texts."""
    return f"{_head(plan)}\n{_builder(plan)}\n{_runtime(plan)}"


def image_name(plan: ImagePlan) -> str:
    """What to call the image: ``2dgs:sm_120``."""
    return f"{plan.stack or 'splats'}:{'-'.join(map(str, plan.targets))}"


def _comment(text: str, then: str = "") -> str:
    """Lines of comment. Nothing in ``text`` can end one: what is not printable is spelled out."""
    lines = textwrap.wrap(
        visible(text), _WIDTH - 2, subsequent_indent=then, break_long_words=False, break_on_hyphens=False
    )
    return "".join(f"# {line}\n" for line in lines)


def _label(text: str) -> str:
    """As it stands between double quotes of an instruction: only signs that mean nothing to Docker."""
    return re.sub(r"[^A-Za-z0-9 ._/:+@,;()~*-]", "_", text)


def _head(plan: ImagePlan) -> str:
    name, targets = image_name(plan), ", ".join(map(str, plan.targets))
    lines = [
        _comment(
            f"{plan.name} for {targets}, written by splatfix {__version__}. The build context is the checkout:"
        ),
        f"#\n#   docker build -t {name} -f Dockerfile CHECKOUT\n",
        f"#   docker run --rm --gpus all --shm-size 8g {name} splatfix diagnose\n#\n",
        _comment(
            "A wheel of splatfix has to lie in the checkout: --out writes one, --build-arg SPLATFIX= takes what pip does."
        ),
        "#\n",
        _comment(
            "The build ends with an error if a binary lacks code for a target. Whether it computes and trains only a GPU shows: "
            "splatfix verify, splatfix certify."
        ),
        "#\n# Chosen, and why:\n",
        *(_comment(f"- {item.text}", "  ") for item in plan.reasons),
        *(_comment(f"- not {item.what}: {item.why}", "  ") for item in plan.rejected),
    ]
    if plan.machine != "x86_64":
        lines.append(
            _comment(
                f"- for a machine with an {plan.machine} processor: build it on one, or with --platform linux/arm64",
                "  ",
            )
        )
    if plan.notes:
        lines += ["#\n# Not known, or left to you:\n", *(_comment(f"- {note}", "  ") for note in plan.notes)]
    lines += [
        "#\n",
        _comment(
            "On a closed site: --build-arg BUILD_IMAGE=, RUN_IMAGE=, PIP_INDEX_URL=, TORCH_INDEX_URL= name your mirrors, "
            '--build-arg CA_PEM="$(cat ca.pem)" your certificate authority, HTTP_PROXY, HTTPS_PROXY and NO_PROXY need no line '
            "here. Build arguments stay readable in the image's history: no passwords in them. On a machine without a bridge "
            "for containers add --network host."
        ),
        "#\n",
        _comment(
            "Rules of hadolint that are not kept: DL3008, because distributions remove versions that a security fix replaces; "
            "DL3013 for what the trainer imports, because its authors pin other Pythons or nothing."
        ),
        f"\nARG BUILD_IMAGE={plan.build_image}\nARG RUN_IMAGE={plan.run_image}\n",
    ]
    return "".join(lines)


def _builder(plan: ImagePlan) -> str:
    parts = [
        "# Everything that compiles. Nothing of this stage but /opt/stack and /opt/splatfix gets into the image.\n",
        "FROM ${BUILD_IMAGE} AS builder\n",
        'ARG CA_PEM=""\nARG DEBIAN_FRONTEND=noninteractive\n',
        _apt(("ca-certificates", "g++", "python3", "python3-dev", "python3-venv")),
        f"ENV PIP_CERT={_CA} \\\n    PIP_DISABLE_PIP_VERSION_CHECK=1\n\n",
        'ARG PIP_INDEX_URL=""\n',
        f"ARG TORCH_INDEX_URL={plan.torch_index}\n",
        _torch(plan),
        _requirements(plan),
        _toolkit(plan),
        _splatfix(plan),
        _extensions(plan),
    ]
    return "".join(parts)


def _torch(plan: ImagePlan) -> str:
    index = '--index-url "${TORCH_INDEX_URL}"'
    commands = [
        "python3 -m venv /opt/stack",
        f"{_PIP} {' '.join(plan.build_tools)}",
        f'{_PIP} {index} "torch=={plan.torch}" torchvision',
        f"/opt/stack/bin/python -c 'import torch; assert torch.version.cuda == \"{plan.cuda}\", torch.version.cuda'",
        "/opt/stack/bin/python -m pip freeze > /opt/stack/torch.txt",
    ]
    return (
        _comment(
            f"torch decides everything after it: it must be the build for CUDA {plan.cuda}, wherever it came from. The "
            "build tools stand beside it, because extensions are compiled against this very torch and not in an "
            "environment of their own."
        )
        + f"{_NO_PIP_PINS}RUN "
        + " \\\n && ".join(commands)
        + "\n\n"
    )


def _apt(packages: Sequence[str], *more: str) -> str:
    lines = [
        'if [ -n "${CA_PEM}" ]; then \\',
        "        mkdir -p /usr/local/share/ca-certificates; \\",
        "        printf '%s\\n' \"${CA_PEM}\" > /usr/local/share/ca-certificates/site.crt; \\",
        "        update-ca-certificates \\",
        "            || echo 'Acquire::https::CAInfo \"/usr/local/share/ca-certificates/site.crt\";' \\",
        "                > /etc/apt/apt.conf.d/90site; \\",
        "    fi \\",
    ]
    commands = [
        "apt-get update",
        f"apt-get install --yes --no-install-recommends {' '.join(sorted(packages))}",
        "rm -rf /var/lib/apt/lists/* /etc/apt/apt.conf.d/90site",
        "update-ca-certificates",
        *more,
    ]
    return _NO_APT_PINS + "RUN " + "\n".join(lines) + "\n && " + " \\\n && ".join(commands) + "\n"


def _requirements(plan: ImagePlan) -> str:
    if not plan.requirements:
        return ""
    words = " \\\n        ".join(f'"{name}"' for name in plan.requirements)
    return (
        "# What the extensions and the trainer's scripts import; torch stays as it is.\n"
        f"{_NO_PIP_PINS}RUN {_PIP} --constraint /opt/stack/torch.txt \\\n        {words}\n\n"
    )


def _toolkit(plan: ImagePlan) -> str:
    if not plan.toolkit_requirements:
        return (
            "# torch takes the toolkit from here, not from the first nvcc on PATH.\n"
            f'ENV CUDA_HOME=/usr/local/cuda \\\n    TORCH_CUDA_ARCH_LIST="{plan.arch_list}"\n\n'
        )
    root = f"/opt/cuda/{plan.toolkit_folder}"
    words = " \\\n        ".join(f'"{name}"' for name in plan.toolkit_requirements)
    links = " \\\n && ".join(f"ln -s {target} {root}/{path}" for path, target in plan.toolkit_links)
    return (
        "# The CUDA compiler from PyPI: no other registry is needed. Its parts are kept at one release, the newest do not fit.\n"
        f"RUN {_PIP} --target /opt/cuda \\\n        {words} \\\n && {links}\n"
        "# g++ does not find cub and thrust there by itself, nvcc does.\n"
        f"ENV CUDA_HOME={root} \\\n    CPATH={root}/include/cccl \\\n"
        f'    TORCH_CUDA_ARCH_LIST="{plan.arch_list}"\n\n'
    )


def _splatfix(plan: ImagePlan) -> str:
    return (
        _comment(
            "splatfix, apart from the stack: the wheel that splatfix dockerfile --out puts beside the Dockerfile. --build-arg "
            "SPLATFIX= takes whatever pip does. The first file is here because COPY must find one."
        )
        + f"ARG SPLATFIX=/opt/wheels/splatfix-{__version__}-py3-none-any.whl\n"
        + f'COPY ["{plan.marker}", "splatfix-*.whl", "/opt/wheels/"]\n'
        + "RUN python3 -m venv /opt/splatfix \\\n"
        ' && /opt/splatfix/bin/python -m pip install --no-cache-dir "${SPLATFIX}"\n\n'
    )


def _extensions(plan: ImagePlan) -> str:
    targets, words = " ".join(f"--target {arch}" for arch in plan.targets), ", ".join(map(str, plan.targets))
    copies = "".join(f'COPY ["{path}", "{_inside(path)}"]\n' for path in plan.copies)
    lines = [f"# The extensions, for {words}. Edits are made in a scratch copy:\n"]
    for source in plan.sources:
        lines.append(_comment(f"{source.path} ({source.name})"))
        lines += [_comment(f"  - {edit}", "    ") for edit in source.edits]
    folders = " ".join(_inside(source.path) for source in plan.sources)
    return (
        "".join(lines)
        + copies
        + "# Compilers at once; each takes up to 2.5 GiB of memory.\n"
        + f"ARG MAX_JOBS={plan.jobs}\n"
        + "RUN touch /opt/wheels/before \\\n"
        + " && /opt/splatfix/bin/splatfix install --yes --verbose --no-cache --python /opt/stack \\\n"
        + f'        {targets} --jobs "${{MAX_JOBS}}" \\\n'
        + f"        {folders}\n"
        + f"# The proof: every library that is new in the environment, read as bytes, has code for {words}.\n"
        + "RUN find /opt/stack/lib -name '*.so' -newer /opt/wheels/before > /opt/wheels/built \\\n"
        + " && test -s /opt/wheels/built \\\n"
        + f" && xargs -d '\\n' /opt/splatfix/bin/splatfix inspect {targets} < /opt/wheels/built\n"
    )


def _inside(path: str) -> str:
    return "/src" if path == "." else f"/src/{path}"


def _workdir(plan: ImagePlan) -> str:
    """Not where a package's own source, which is not compiled, would be imported in place of the installed one."""
    return _HOME if any(source.path == "." for source in plan.sources) else f"{_HOME}/checkout"


def _runtime(plan: ImagePlan) -> str:
    targets = ", ".join(map(str, plan.targets))
    labels = {
        "org.opencontainers.image.title": f"{plan.name} for {targets}",
        "org.opencontainers.image.description": f"torch {plan.torch} {plan.torch_tag}, built for {targets}",
        "org.opencontainers.image.source": plan.remote,
        "org.opencontainers.image.revision": plan.revision,
        "org.splatfix.version": __version__,
        "org.splatfix.targets": " ".join(map(str, plan.targets)),
    }
    told = " \\\n      ".join(f'{name}="{_label(value)}"' for name, value in labels.items() if value)
    user = (
        f"useradd --no-log-init --create-home --home-dir {_HOME} --uid {_USER} --user-group splat",
        f"install --directory --owner={_USER} --group={_USER} {_HOME}/checkout {_HOME}/output",
    )
    return (
        "# What is shipped: no compiler, no root.\n"
        "FROM ${RUN_IMAGE} AS runtime\n"
        'ARG CA_PEM=""\nARG DEBIAN_FRONTEND=noninteractive\n'
        + _apt(("ca-certificates", "python3", *plan.run_packages), *user)
        + "COPY --from=builder /opt/splatfix /opt/splatfix\n"
        "COPY --from=builder /opt/stack /opt/stack\n"
        "RUN ln -s /opt/splatfix/bin/splatfix /usr/local/bin/splatfix\n"
        f"COPY --chown={_USER}:{_USER} . {_HOME}/checkout\n\n"
        "# The last two are what NVIDIA's container runtime asks an image for.\n"
        "ENV PATH=/opt/stack/bin:$PATH \\\n"
        "    VIRTUAL_ENV=/opt/stack \\\n"
        "    PYTHONUNBUFFERED=1 \\\n"
        "    NVIDIA_VISIBLE_DEVICES=all \\\n"
        "    NVIDIA_DRIVER_CAPABILITIES=compute,utility\n"
        "ARG RUN_IMAGE\n"
        f'LABEL org.opencontainers.image.base.name="${{RUN_IMAGE}}" \\\n      {told}\n\n'
        f"USER {_USER}:{_USER}\n"
        f"WORKDIR {_workdir(plan)}\n"
        "# Unhealthy without a GPU, with a driver that does not start, or without code for this GPU; docker inspect shows it.\n"
        "HEALTHCHECK --interval=5m --timeout=60s --start-period=30s --retries=2 \\\n"
        f'    CMD ["/bin/sh", "-c", "{_HEALTHY} || exit 1"]\n'
        "# NVIDIA's images have an entry point of their own.\n"
        "ENTRYPOINT []\n"
        'CMD ["bash"]\n'
    )


# What no image needs, and what nobody may find in one. The list of keys follows GitHub's and gitleaks' names for such files.
_LEFT_OUT = """\
**/.git
**/__pycache__
**/*.egg-info
**/build
**/.venv
**/*.so
"""
_SECRETS = """\
**/.env*
**/*.pem
**/*.key
**/*.p12
**/*.pfx
**/*.jks
**/*.keystore
**/*.ppk
**/id_rsa*
**/id_dsa*
**/id_ecdsa*
**/id_ed25519*
**/.ssh
**/.gnupg
**/.aws
**/.azure
**/.kube
**/.docker
**/.config/gcloud
**/.netrc
**/_netrc
**/.npmrc
**/.pypirc
**/.git-credentials
**/kaggle.json
**/credentials.json
"""
_DATA = ("data", "dataset", "datasets", "output", "outputs")


def ignore_file(plan: ImagePlan, dockerfile_name: str, dockerignore: str) -> str:
    """The ``.dockerignore`` beside the Dockerfile.

    BuildKit reads it *instead of* the checkout's own, so it begins with that. The last rule that fits decides: what the build
    needs comes after the checkout's rules, and what must never be in an image after everything.
    """
    needed = [plan.marker, "splatfix-*.whl", *(path for path in plan.copies if path != ".")]
    data = [name for name in _DATA if not any(PurePosixPath(path).parts[0] == name for path in needed)]
    own = dockerignore.removeprefix("\ufeff").splitlines()
    parts = [
        f"# Beside {dockerfile_name}, this takes the place of the checkout's .dockerignore, which it begins with.",
        *(["# The checkout's own rules. When they change: splatfix dockerfile --force", *own] if own else []),
        "# What the build needs",
        *(f"!{path}" for path in needed),
        "# Left out always",
        _LEFT_OUT + "\n".join(data),
        _SECRETS.rstrip(),
    ]
    return "\n".join(parts) + "\n"


def _yaml(text: str) -> str:
    """A text of Compose: quoted as in JSON, which is YAML too, and with a dollar sign that is no variable."""
    return json.dumps(text).replace("$", "$$")


def compose_file(plan: ImagePlan, places: Places) -> str:
    """compose.yaml: the GPU, shared memory, and what a container need not be allowed."""
    return (
        f"# {image_name(plan)}: docker compose run --rm trainer\n"
        "services:\n"
        "  trainer:\n"
        f"    image: {_yaml(image_name(plan))}\n"
        "    build:\n"
        f"      context: {_yaml(places.context)}\n"
        f"      dockerfile: {_yaml(places.dockerfile)}\n"
        "      target: runtime\n"
        "    deploy:\n"
        "      resources:\n"
        "        reservations:\n"
        "          devices:\n"
        "            - driver: nvidia\n"
        "              count: all\n"
        "              capabilities: [gpu]\n"
        "    # Data loaders hand images over in /dev/shm, of which a container has 64 MiB by default.\n"
        '    shm_size: "8gb"\n'
        "    init: true\n"
        "    cap_drop: [ALL]\n"
        '    security_opt: ["no-new-privileges:true"]\n'
        "    volumes:\n"
        "      # Scenes to train on, and a place for what comes out.\n"
        f'      - "./data:{_HOME}/data:ro"\n'
        f'      - "output:{_HOME}/output"\n'
        "    stdin_open: true\n"
        "    tty: true\n"
        "volumes:\n"
        "  output: {}\n"
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
    prose(console, "[green]✓[/] ", f"[bold]{escape(plan.name)} for {', '.join(map(str, plan.targets))}[/]")
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
