"""Evidence and advice that several checks give: the same fact in the same words everywhere."""

import posixpath
from collections.abc import Iterable, Iterator

from splatfix.checks.registry import Check
from splatfix.context import Context
from splatfix.core.reading import Unread
from splatfix.core.step import Step, run, say, set_variable
from splatfix.core.words import counted
from splatfix.model import CheckoutSource, Compiler, Evidence, Finding, Status


def reason(error: str) -> Evidence:
    """Say why something could not be determined."""
    return Evidence("reason", error or "the facts do not say")


def variable(context: Context, name: str) -> Evidence:
    """Show an environment variable as it is set where splatfix was started."""
    # one that is set to nothing is another thing than one that is not set: CUDA_VISIBLE_DEVICES="" hides all GPUs
    value = context.variables.get(name, "not set") or "(empty)"
    return Evidence(name, value, "environment variable")


def set_or_unset(name: str, value: str) -> Step:
    """Set a variable to what is left of its value; unset it where nothing is."""
    if not value:
        return set_variable(name, None)
    return set_variable(name, value)


def lack_for_builds(context: Context) -> Status:
    """Judge it that something is missing which only builds need."""
    # an image that was made to run has had its compilers taken out on purpose
    if context.made_to_run:
        return Status.SKIP
    return Status.WARN


def torch_version(context: Context) -> Evidence:
    """Show the version of the installed torch."""
    return Evidence("torch", context.torch_version or "none", context.environment.torch.found_via)


def torch_cuda(context: Context) -> Evidence:
    """Show the CUDA version of the installed torch; None for a build without CUDA."""
    torch = context.environment.torch
    return Evidence("torch.version.cuda", str(torch.value and torch.value.cuda), torch.found_via)


def version_of(context: Context, name: str) -> Evidence:
    """Show the version of an installed distribution."""
    version = context.version_of(name) or "not installed"
    return Evidence(name, version, context.environment.distributions.found_via)


def file_of(source: CheckoutSource, name: str = "setup.py") -> str:
    """Name a file of a source, relative to its checkout."""
    return posixpath.normpath(posixpath.join(source.path, name))


def host_compiler(compiler: Compiler) -> Evidence:
    """Show path and version of a host compiler."""
    return Evidence("host compiler", f"{compiler.path} {compiler.version}", ", ".join(compiler.found_via))


# The program that starts a container of each kind by hand; docker for the others.
_ENGINES = {"podman": "podman", "containerd": "nerdctl"}
_TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"


def start_with_gpu(container: str, *, wsl: bool = False) -> tuple[Step, ...]:
    """Say how a container of that kind is started with the GPUs of its host, and what the host needs for it."""
    if container == "kubernetes":
        text = "Ask for the GPU in the pod's resources (limits: nvidia.com/gpu: 1)"
        return (say(f"{text}; the node needs NVIDIA's device plugin."),)
    if container == "apptainer":
        return (run("apptainer", "exec", "--nv", "IMAGE", text="On the host, start it with --nv"),)
    if container == "buildkit":
        return (say("No GPU is there while an image is built; name the GPU with --target."),)
    start = "On the host, start it with the GPU"
    if container == "podman":
        error = "unresolvable CDI devices', the host needs the NVIDIA Container Toolkit"
        generate = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
        return (
            run("podman", "run", "--device", "nvidia.com/gpu=all", "IMAGE", text=start),
            say(f"Where it says '{error} ({_TOOLKIT}): {generate}"),
        )
    engine = _ENGINES.get(container, "docker")
    if wsl:
        host = (
            "On Windows: NVIDIA's driver for Windows, a WSL that is up to date (wsl --update), in Docker Desktop 'Use the "
            "WSL 2 based engine'; an engine of the distribution's own needs the NVIDIA Container Toolkit in it."
        )
    else:
        host = f"The host needs the NVIDIA Container Toolkit ({_TOOLKIT})"
        if engine == "docker":
            host += ", then: sudo nvidia-ctk runtime configure --runtime=docker, and restart docker"
        host += "."
    compose = "deploy.resources.reservations.devices with driver: nvidia, count: all, capabilities: [gpu]"
    return (
        run(engine, "run", "--gpus", "all", "IMAGE", text=start),
        say(f"compose: {compose}."),
        say(host),
    )


def start_again(context: Context, *options: str) -> Step:
    """Build the command that starts this container anew with these options, on its host."""
    engine = _ENGINES.get(context.machine.container or "", "docker")
    return run(engine, "run", *options, "IMAGE", text="On the host, start it anew")


# A folder full of damaged files is one trouble, and not a thousand findings.
_UNREAD_SHOWN = 20


def unread_files(this: Check, files: Iterable[Unread], folder: str) -> Iterator[Finding]:
    """Yield one warning for each file that is there and was not read, so that the rest of the diagnosis goes on.

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
