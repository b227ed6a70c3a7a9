"""Connects to a Docker engine, checks that it can pass GPUs in, and explains its failures."""

import os
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.step import Step, run
from splatfix.core.versions import release
from splatfix.explain import explain_gpu_refusal
from splatfix.knowledge.lanes import GpuNeed, load_lanes

_SYSTEM_SOCKET = "/var/run/docker.sock"
_CONNECT_TIMEOUT_S = 15
_API_TIMEOUT_S = 600
"""For one answer: committing a layer of gigabytes to a slow disk takes minutes."""

_PODMAN_WITH_GPUS = (5, 4)
"""Whose Docker API heeds requests for devices, those of the Container Device Interface only: containers/podman#25171, #22645,
lablup/backend.ai#13820 (4.9.3 starts the container without any)."""

_GPU_PROBE = "splatfix-gpu-probe"
_EMPTY_TAR = tarfile.TarInfo("empty").tobuf() + bytes(1024)


class Endpoint(Struct, frozen=True):
    """The address of an engine, and where it is configured."""

    host: str
    """Such as ``unix:///var/run/docker.sock``."""
    found_via: str
    tls: Any = None


class Engine(Struct, frozen=True):
    """A Docker engine that answered."""

    client: Any
    """A ``docker.DockerClient``."""
    endpoint: Endpoint
    version: str
    arch: str
    """In Docker's words: ``amd64``, ``arm64``."""
    kind: str = "Docker"
    """Or Podman, which speaks the same language."""
    rootless: bool = False
    limits: bool = True
    """Whether it holds containers to limits of memory and processes."""


def connect(environ: Mapping[str, str] | None = None) -> Engine:
    """Connect to the engine that the docker command uses.

    Raises:
        SplatfixError: ``docker-sdk-missing``, ``docker-host-invalid`` (exit code 2), ``docker-permission-denied``,
            ``docker-engine-unreachable`` (exit code 3), ``docker-engine-not-linux``.
    """
    docker = sdk()
    endpoint = find_endpoint(os.environ if environ is None else environ)
    try:
        client = docker.DockerClient(
            base_url=endpoint.host,
            tls=endpoint.tls or False,
            version="auto",
            timeout=_CONNECT_TIMEOUT_S,
            use_ssh_client=endpoint.host.startswith("ssh://"),
        )
        answer = client.version()
    except (docker.errors.DockerException, OSError, ValueError) as error:
        raise explain_unreachable(error, endpoint) from error
    client.api.timeout = _API_TIMEOUT_S
    if answer.get("Os", "linux") != "linux":
        client.close()
        raise SplatfixError.of("containers.docker-engine-not-linux", host=endpoint.host, system=answer["Os"])
    parts = [str(part.get("Name", "")) for part in answer.get("Components") or ()]
    kind = "Podman" if any("podman" in name.lower() for name in parts) else "Docker"
    with engine_errors("asking the engine about itself"):
        about = client.info()
    # Podman 4.3 says it in a field of its own, and not among these
    rootless = any("rootless" in str(item) for item in about.get("SecurityOptions") or ())
    rootless = rootless or about.get("Rootless") is True
    # without systemd a rootless Docker has the driver "none"; Podman says MemoryLimit, and ignores it on cgroup v1
    powerless = rootless and (about.get("CgroupVersion") == "1" or about.get("CgroupDriver") == "none")
    limits = about.get("MemoryLimit") is not False and not powerless
    version, arch = str(answer.get("Version", "unknown")), str(answer.get("Arch", "amd64"))
    return Engine(client, endpoint, version, arch, kind, rootless, limits)


def find_endpoint(environ: Mapping[str, str]) -> Endpoint:
    """Return the endpoint, in the docker command's order: DOCKER_HOST, DOCKER_CONTEXT, current context, default.

    Source of the order: https://docs.docker.com/engine/manage-resources/contexts/.
    """
    docker = sdk()
    if environ.get("DOCKER_HOST"):
        # DOCKER_TLS_VERIFY and DOCKER_CERT_PATH, read by the SDK itself
        try:
            tls = docker.utils.kwargs_from_env(environment=dict(environ)).get("tls")
        except docker.errors.DockerException as error:
            folder = environ.get("DOCKER_CERT_PATH") or "~/.docker"
            raise SplatfixError.of("containers.docker-tls-invalid", folder=folder, error=error) from error
        return Endpoint(environ["DOCKER_HOST"], "DOCKER_HOST", tls)
    name = environ.get("DOCKER_CONTEXT") or None
    try:
        context, reason = docker.ContextAPI.get_context(name), "there is none of that name"
    except (docker.errors.DockerException, OSError, ValueError) as error:
        context, reason = None, str(error)
    if context is None:
        raise SplatfixError.of(
            "containers.docker-context-invalid", name=name or "(the current one)", reason=reason
        )
    if name is None and context.name == "default" and not Path(_SYSTEM_SOCKET).is_socket():
        # this user's rootless Docker, and Podman
        # (https://docs.docker.com/engine/security/rootless/, podman-system-service(1))
        user = os.getuid() if hasattr(os, "getuid") else 0
        own = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{user}"
        for path in (f"{own}/docker.sock", f"{own}/podman/podman.sock", "/run/podman/podman.sock"):
            if Path(path).is_socket():
                return Endpoint(f"unix://{path}", f"what is there instead of {_SYSTEM_SOCKET}")
    source = "DOCKER_CONTEXT" if name else "the current Docker context"
    return Endpoint(context.Host, f"{source} ({context.name})", context.TLSConfig or None)


def explain_unreachable(error: BaseException, endpoint: Endpoint) -> SplatfixError:
    """Return the error for an exception of the docker SDK while it connected to ``endpoint``."""
    address = f"{endpoint.host} (from {endpoint.found_via})"
    if isinstance(_system_error(error), PermissionError):
        return SplatfixError.of("containers.docker-permission-denied", address=address)
    # the SDK wraps network errors, so a bare ValueError is about the address
    if "Invalid bind address" in str(error) or isinstance(error, ValueError):
        return SplatfixError.of("containers.docker-host-invalid", address=address, error=error)
    return SplatfixError.of(
        "containers.docker-engine-unreachable",
        address=address,
        reason=_reason(error),
        host=endpoint.host,
        details={"host": endpoint.host, "found_via": endpoint.found_via},
    )


@contextmanager
def engine_errors(action: str) -> Iterator[None]:
    """Raise a :class:`SplatfixError` for an exception of the docker SDK; ``action`` is what was done, such as "creating the
    container"."""
    docker = sdk()
    try:
        yield
    except docker.errors.APIError as error:
        message, todo = str(error.explanation or error), list[Step]()
        if "no space left on device" in message:
            todo.append(run("docker", "system", "df"))
        raise SplatfixError.of(
            "containers.docker-engine-failed", action=action, message=message, todo=tuple(todo)
        ) from error
    except (docker.errors.DockerException, OSError) as error:  # those of requests are OSErrors
        reason = _reason(error)
        raise SplatfixError.of("containers.docker-engine-lost", action=action, reason=reason) from error


def sdk() -> Any:
    """Import the docker package on first use: the rest of splatfix runs without it.

    Raises:
        SplatfixError: ``docker-sdk-missing`` (exit code 3).
    """
    try:
        import docker
    except ImportError as error:
        raise SplatfixError.of("containers.docker-sdk-missing", python=sys.executable) from error
    return docker


def _system_error(error: BaseException) -> OSError | None:
    """Return the innermost error of the operating system that ``error`` was raised for."""
    innermost, current = None, error.__cause__ or error.__context__
    while current is not None:
        if isinstance(current, OSError) and current.errno is not None:
            innermost = current
        current = current.__cause__ or current.__context__
    return innermost


def _reason(error: BaseException) -> str:
    """Return what the system says of it ("Connection refused"), else what the SDK says."""
    system_error = _system_error(error)
    if system_error and system_error.strerror:
        return system_error.strerror
    return str(error).removeprefix("Error while fetching server API version: ").rstrip(".")


def device_requests(engine: Engine) -> list[Any]:
    """Return what ``docker run --gpus all`` sends; for Podman a device of the Container Device Interface."""
    docker = sdk()
    if engine.kind == "Podman":
        return [docker.types.DeviceRequest(driver="cdi", device_ids=["nvidia.com/gpu=all"])]
    return [docker.types.DeviceRequest(count=-1, capabilities=[["gpu"]])]


def explain_gpu_failure(message: str, host: str) -> SplatfixError | None:
    """Return the error for an engine's message, where it is about GPUs."""
    known = explain_gpu_refusal(message)
    if known is None:
        return None
    headline = f"The Docker engine at {host} cannot pass NVIDIA GPUs into a container: {message}"
    without = [
        run(
            "splatfix",
            "certify",
            "--container",
            lane.name,
            text=f"Without an NVIDIA GPU there: lane {lane.name}",
        )
        for lane in load_lanes().values()
        if lane.gpu is not GpuNeed.REQUIRED and not lane.repository
    ]
    todo = (*known.steps, *without)
    return SplatfixError(known.key, headline, meaning=known.meaning, todo=todo, exit_code=Exit.UNDETERMINED)


def require_gpu(engine: Engine) -> None:
    """Check that this engine can pass GPUs in, before gigabytes are downloaded.

    Starts a container of an empty image with GPUs. The engine sets up devices before it looks for the program, so
    "no such program" is success. The image stays: it has no bytes, and another splatfix may be asking too.

    Raises:
        SplatfixError: ``docker-gpu-runtime-missing`` or ``docker-gpu-unusable`` (exit code 3).
    """
    docker, host = sdk(), engine.endpoint.host
    if engine.kind == "Podman" and release(engine.version) < _PODMAN_WITH_GPUS:
        raise SplatfixError.of(
            "containers.docker-gpu-runtime-missing", engine_version=engine.version, host=host
        )
    container = None
    with engine_errors("checking whether it can pass GPUs in"):
        try:
            if not engine.client.images.list(_GPU_PROBE):
                engine.client.api.import_image_from_data(_EMPTY_TAR, repository=_GPU_PROBE, tag="latest")
            container = engine.client.containers.create(
                f"{_GPU_PROBE}:latest",
                command=["/no-such-program"],
                network_mode="none",
                device_requests=device_requests(engine),
            )
            container.start()
        except docker.errors.APIError as error:
            message = str(error.explanation or error)
            if explained := explain_gpu_failure(message, host):
                raise explained from error
            if "/no-such-program" not in message:
                raise
        finally:
            if container is not None:
                container.remove(force=True)
