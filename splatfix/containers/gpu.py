"""Passing NVIDIA GPUs into a container, and what it means when the engine cannot."""

from __future__ import annotations

import io
import tarfile
import uuid
from typing import Any

from splatfix.containers.engine import Engine, engine_errors, sdk
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.step import run, say

_TOOLKIT_GUIDE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"

_RUNTIME_MISSING = (
    # Docker 19.03 to 28, with the NVIDIA Container Toolkit not installed or not seen by the engine
    "could not select device driver",
    # Docker 29 asks the Container Device Interface first
    "no known GPU vendor found",
    "failed to discover GPU vendor from CDI",
    "unresolvable CDI devices",
    # the toolkit is configured as a runtime that is not there
    "unknown or invalid runtime name: nvidia",
)
_DRIVER_UNUSABLE = ("nvidia-container-cli:", "nvml error", "libnvidia-ml.so")


def device_requests() -> list[Any]:
    """What ``docker run --gpus all`` sends."""
    docker = sdk()
    return [docker.types.DeviceRequest(count=-1, capabilities=[["gpu"]])]


def explain_gpu_failure(message: str, host: str) -> SplatfixError | None:
    """The person's version of an engine's refusal to pass GPUs in; None when the message is about something else."""
    if any(sign in message for sign in _RUNTIME_MISSING):
        return SplatfixError(
            "docker-gpu-runtime-missing",
            f"The Docker engine at {host} cannot pass NVIDIA GPUs into a container: {message}",
            meaning="The NVIDIA Container Toolkit is not installed on the engine's machine, or the engine was not"
            " restarted since. Whether the GPU itself is well was not found out.",
            todo=(
                say(f"Install the NVIDIA Container Toolkit there: {_TOOLKIT_GUIDE}"),
                run(
                    "sudo",
                    "nvidia-ctk",
                    "runtime",
                    "configure",
                    "--runtime=docker",
                ),
                run("sudo", "systemctl", "restart", "docker"),
            ),
            exit_code=Exit.UNDETERMINED,
        )
    if any(sign in message for sign in _DRIVER_UNUSABLE):
        return SplatfixError(
            "docker-gpu-unusable",
            f"The NVIDIA Container Toolkit on {host} found no usable GPU: {message}",
            meaning="The NVIDIA driver of the engine's machine is not loaded, not installed, or older than the image needs.",
            todo=(run("splatfix", "diagnose"), run("nvidia-smi")),
            exit_code=Exit.UNDETERMINED,
        )
    return None


def require_gpu(engine: Engine) -> None:
    """Find out before gigabytes are gathered whether this engine can pass GPUs in.

    A container of an image with nothing in it is started with the GPUs. The engine sets devices up before it looks
    for the program, so "no such program" is the good answer.

    Raises:
        SplatfixError: ``docker-gpu-runtime-missing`` or ``docker-gpu-unusable`` (exit code 3).
    """
    docker = sdk()
    container = None
    name = f"splatfix-gpu-probe-{uuid.uuid4().hex[:12]}"  # two runs at once must not remove each other's
    with engine_errors("preparing a look at its GPUs"):
        engine.client.api.import_image_from_data(_empty_tar(), repository=name, tag="latest")
    try:
        container = engine.client.containers.create(
            f"{name}:latest",
            command=["/no-such-program"],
            network_mode="none",
            device_requests=device_requests(),
        )
        container.start()
    except docker.errors.APIError as error:
        message = str(error.explanation or error)
        if explained := explain_gpu_failure(message, engine.endpoint.host):
            raise explained from error
        if "/no-such-program" not in message:
            raise SplatfixError(
                "docker-engine-failed",
                f"The Docker engine at {engine.endpoint.host} refused a container with GPUs: {message}",
                exit_code=Exit.UNDETERMINED,
            ) from error
    finally:
        with engine_errors("tidying up after a look at its GPUs"):
            if container is not None:
                container.remove(force=True)
            engine.client.images.remove(f"{name}:latest", force=True)


def _empty_tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("empty"))
    return buffer.getvalue()
