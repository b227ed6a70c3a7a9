"""Evidence and advice that several checks give: the same fact in the same words everywhere."""

import posixpath
from collections.abc import Iterable, Iterator

from splatfix.checks.registry import Check, words_in
from splatfix.context import Context
from splatfix.core.reading import Unread
from splatfix.core.step import Step, step_of
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


def engine_of(context: Context) -> str:
    """Name the program that starts a container of this kind by hand."""
    return {"podman": "podman", "containerd": "nerdctl"}.get(context.machine.container or "", "docker")


def start_with_gpu(context: Context) -> tuple[Step, ...]:
    """Say how this container is started with the GPUs of its host, and what the host needs for it."""
    ways, kind = words_in("start_with_gpu"), context.machine.container or ""
    if kind not in ways:
        kind = "docker"
    if context.machine.wsl and kind in ("docker", "containerd"):
        kind = "wsl"
    return tuple(step_of(line, named={"engine": engine_of(context)}) for line in ways[kind])


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
        evidence = Evidence(name, item.reason, item.path)
        yield this.warn(subject=name, evidence=evidence, name=name, reason=item.reason)
    hidden = len(unread) - _UNREAD_SHOWN
    if hidden > 0:
        yield this.warn("more", count=counted(hidden, "more path"))
