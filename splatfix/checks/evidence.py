"""Evidence and advice that several checks give: the same fact in the same words everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from splatfix.checks.model import Evidence, Finding
from splatfix.checks.registry import Check
from splatfix.context import Context
from splatfix.core.reading import Unread
from splatfix.core.step import Step, fill_in, say
from splatfix.core.words import counted
from splatfix.facts import Compiler


class _MayFail(Protocol):
    @property
    def error(self) -> str: ...


def reason(fact: _MayFail) -> Evidence:
    """Why something could not be determined."""
    return Evidence("reason", fact.error or "the facts do not say")


def variable(context: Context, name: str, unset: str = "not set") -> Evidence:
    """An environment variable as it is set where splatfix was started."""
    value = context.variables.get(name)
    return Evidence(name, unset if value is None else value or "(empty)", "environment variable")


def torch_version(context: Context) -> Evidence:
    """Version of the installed torch."""
    return Evidence("torch", context.torch.version if context.torch else "none", _found_torch(context))


def torch_cuda(context: Context) -> Evidence:
    """CUDA version of the installed torch; None for a build without CUDA."""
    cuda = context.torch.cuda if context.torch else None
    return Evidence("torch.version.cuda", str(cuda), _found_torch(context))


def _found_torch(context: Context) -> str:
    return context.environment.torch.found_via


def version_of(context: Context, name: str) -> Evidence:
    """Version of an installed distribution."""
    found = context.distribution(name)
    return Evidence(
        name, found.version if found else "not installed", context.environment.distributions.found_via
    )


def host_compiler(compiler: Compiler) -> Evidence:
    """Path and version of a host compiler."""
    return Evidence("host compiler", f"{compiler.path} {compiler.version}", ", ".join(compiler.found_via))


# How a container of each kind is started by hand; of what an orchestrator starts, a sentence says what to change.
_ENGINES = {"docker": "docker", "buildkit": "docker", "podman": "podman", "containerd": "nerdctl"}
_TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"


def start_with_gpu(container: str, *, wsl: bool = False) -> tuple[Step, ...]:
    """How a container of that kind is started with the GPUs of its host, and what the host needs for it."""
    if container == "kubernetes":
        text = "Ask for the GPU in the pod's resources (limits: nvidia.com/gpu: 1)"
        return (say(f"{text}; the node needs NVIDIA's device plugin."),)
    if container == "apptainer":
        return (fill_in("apptainer", "exec", "--nv", "IMAGE", text="On the host, start it with --nv"),)
    if container == "buildkit":
        return (say("No GPU is there while an image is built; name the GPU with --target."),)
    text = "On the host, start it with the GPU"
    if container == "podman":
        needs = "unresolvable CDI devices', the host needs the NVIDIA Container Toolkit"
        return (
            fill_in("podman", "run", "--device", "nvidia.com/gpu=all", "IMAGE", text=text),
            say(
                f"Where it says '{needs} ({_TOOLKIT}): sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
            ),
        )
    engine = _ENGINES.get(container, "docker")
    setup = "sudo nvidia-ctk runtime configure --runtime=docker, and restart docker"
    needed = f"The host needs the NVIDIA Container Toolkit ({_TOOLKIT}){f', then: {setup}' if engine == 'docker' else ''}."
    windows = (
        "On Windows: NVIDIA's driver for Windows, a WSL that is up to date (wsl --update), in Docker Desktop 'Use the WSL "
        "2 based engine'; an engine of the distribution's own needs the NVIDIA Container Toolkit in it."
    )
    return (
        fill_in(engine, "run", "--gpus", "all", "IMAGE", text=text),
        say(
            "compose: deploy.resources.reservations.devices with driver: nvidia, count: all, capabilities: [gpu]."
        ),
        say(windows) if wsl else say(needed),
    )


def start_again(context: Context, *options: str) -> Step:
    """The command that starts this container anew with these options, on its host."""
    engine = _ENGINES.get(context.machine.container or "", "docker")
    return fill_in(engine, "run", *options, "IMAGE", text="On the host, start it anew")


# A folder full of damaged files is one trouble, and not a thousand findings.
_UNREAD_SHOWN = 20


def unread_files(this: Check, files: Iterable[Unread], folder: str) -> Iterator[Finding]:
    """One warning for each file that is there and was not read, so that the rest of the diagnosis goes on.

    Args:
        folder: with its separator; names are relative to it.
    """
    unread = tuple(files)
    for item in unread[:_UNREAD_SHOWN]:
        name = item.path.removeprefix(folder)
        yield this.warn(
            f"{name} was not read: {item.reason}.",
            subject=name,
            evidence=Evidence(name, item.reason, item.path),
            remedy="Put a proper file in its place or remove it, if it should be read; then diagnose again.",
        )
    hidden = len(unread) - _UNREAD_SHOWN
    if hidden > 0:
        yield this.warn(f"{counted(hidden, 'more path')} could not be read.")
