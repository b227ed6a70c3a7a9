"""Evidence and advice that several checks give: the same fact in the same words everywhere."""

from __future__ import annotations

from typing import Protocol

from splatfix.checks.model import Evidence
from splatfix.context import Context
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


def start_with_gpu(container: str) -> str:
    """How a container of that kind is started with the GPUs of its host."""
    return {
        "kubernetes": "Ask for the GPU in the pod's resources (nvidia.com/gpu: 1).",
        "podman": "Start the container with --device nvidia.com/gpu=all.",
        "apptainer": "Start the container with --nv.",
    }.get(
        container,
        "Start the container with --gpus all (compose: deploy.resources.reservations.devices); the host needs the "
        "NVIDIA Container Toolkit.",
    )
