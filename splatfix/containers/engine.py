"""Connects to a Docker engine, checks that it can pass GPUs in, and explains its failures."""

from __future__ import annotations

import io
import json
import os
import socket
import sys
import tarfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splatfix.containers.lanes import GpuUse, load_lanes
from splatfix.containers.owner import owner_label
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.step import run, say
from splatfix.core.versions import release
from splatfix.facts import gather

_CONNECT_TIMEOUT_S = 15
_API_TIMEOUT_S = 600
"""For one answer: committing a layer of gigabytes to a slow disk takes minutes."""

_OLDEST_API = (1, 40)
"""Device requests, which pass GPUs in (https://docs.docker.com/reference/api/engine/version-history/, v1.40)."""

_PODMAN_WITH_GPUS = (5, 4)
"""Whose Docker API heeds requests for devices, those of the Container Device Interface only: containers/podman#25171, #22645,
lablup/backend.ai#13820 (4.9.3 starts the container without any)."""

_TOOLKIT_GUIDE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"

# Messages of engines, each with reports that show it; [UNV]: read in the sources, in no report.
_RUNTIME_MISSING = (
    # Docker 19.03 to 28, with the NVIDIA Container Toolkit not installed or not seen by the engine: docker/cli#2425,
    # hiyouga/LlamaFactory#5268
    "could not select device driver",
    # Docker 29 asks the Container Device Interface first: ShaneIsrael/fireshare#689
    "no known GPU vendor found",
    "failed to discover GPU vendor from CDI",
    # the engine's configuration names a runtime that does not exist: NVIDIA/nvidia-container-toolkit#150, nv-tlabs/3dgrut#71
    "unknown or invalid runtime name: nvidia",
)
_TWO_WAYS = (
    # Docker 25 and 26 with CDI asked for and not switched on: NVIDIA/nvidia-container-toolkit#434
    'could not select device driver "cdi"',
    # the toolkit is set to CDI, and the engine asks its older hook: dstackai/dstack#2306
    "invoking the NVIDIA Container Runtime Hook directly",
)
_DEVICE_LIST_STALE = (
    # the Container Device Interface is in use, and its list lacks the GPU: never written, or before another driver
    "unresolvable CDI devices",  # NVIDIA/nvidia-container-toolkit#146 and #1239, NixOS/nixpkgs#420638
    "failed to inject CDI devices",  # NVIDIA/nvidia-container-toolkit#434
    "CDI device injection failed",  # moby/moby#47633, kubernetes-sigs/dra-driver-nvidia-gpu#736
    "failed to stat CDI host device",  # NVIDIA/nvidia-container-toolkit#885
)
_DRIVER_UNUSABLE = (
    "nvidia-container-cli:",  # NVIDIA/nvidia-docker#1393
    "nvml error",  # cedricxie/apollo_perception_ros#20
    "libnvidia-ml.so",  # huan/docker-wechat#173
    # NVIDIA Container Toolkit from 1.18 on makes its list at each start, under a vendor of its own, and asks NVML for that.
    # Until #1538 a failure ended in a device that nobody had listed: NVIDIA/nvidia-container-toolkit#1537, VERT-sh/vertd#39
    "unresolvable CDI devices runtime.nvidia.com/",
    # since then in the failure's own words [UNV]: internal/modifier/cdi.go and pkg/nvcdi/lib-nvml.go at d34b3046
    "failed to generate CDI spec for mode",
    "failed to initialize NVML",
    "unsatisfied condition:",  # NVIDIA/nvidia-container-toolkit#152, ggml-org/llama.cpp#9665
)

INSTALL_SDK = run(
    *(sys.executable, "-m", "pip", "install", "docker"),
    text="Install it there (the extra splatfix[containers]); in a tool of pipx or uv: pipx inject splatfix docker, or uv tool "
    "install --with docker splatfix",
)


@dataclass(frozen=True)
class Endpoint:
    """The address of an engine, and where it is configured."""

    host: str
    """Such as ``unix:///var/run/docker.sock``."""
    found_via: str
    tls: Any = None


@dataclass(frozen=True)
class Engine:
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

    def close(self) -> None:
        """Close the connections."""
        self.client.close()


def connect(docker_host: str | None = None, environ: Mapping[str, str] | None = None) -> Engine:
    """Connect to ``docker_host``, by default to the engine that the docker command uses.

    Raises:
        SplatfixError: ``docker-sdk-missing``, ``docker-host-invalid`` (exit code 2), ``docker-permission-denied``,
            ``docker-engine-unreachable`` (exit code 3), ``docker-engine-not-linux``.
    """
    docker = sdk()
    endpoint = find_endpoint(docker_host, os.environ if environ is None else environ)
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
        raise SplatfixError(
            "docker-engine-not-linux",
            f"The Docker engine at {endpoint.host} runs {answer['Os']} containers.",
            meaning="All lanes of splatfix are Linux images.",
            todo=(say("Switch that engine to Linux containers, or name another with --docker-host."),),
            exit_code=Exit.UNDETERMINED,
        )
    version, api = str(answer.get("Version", "unknown")), str(answer.get("ApiVersion", "0"))
    parts = [str(part.get("Name", "")) for part in answer.get("Components") or ()]
    kind = "Podman" if any("podman" in name.lower() for name in parts) else "Docker"
    if release(api) < _OLDEST_API:
        client.close()
        raise SplatfixError(
            "docker-too-old",
            f"The {kind} engine at {endpoint.host} is {version}, with version {api} of Docker's API.",
            meaning=f"Lanes need {'.'.join(map(str, _OLDEST_API))} or newer: Docker 19.03, Podman 3.",
            todo=(say("Update that engine, or name another with --docker-host."),),
            exit_code=Exit.UNDETERMINED,
        )
    with engine_errors("asking the engine about itself"):
        about = client.info()
    # Podman 4.3 says it in a field of its own, and not among these
    rootless = any("rootless" in str(item) for item in about.get("SecurityOptions") or ())
    rootless = rootless or about.get("Rootless") is True
    # without systemd a rootless Docker has the driver "none"; Podman says MemoryLimit, and ignores it on cgroup v1
    powerless = rootless and (about.get("CgroupVersion") == "1" or about.get("CgroupDriver") == "none")
    limits = about.get("MemoryLimit") is not False and not powerless
    return Engine(client, endpoint, version, str(answer.get("Arch", "amd64")), kind, rootless, limits)


def find_endpoint(docker_host: str | None, environ: Mapping[str, str]) -> Endpoint:
    """The endpoint, in the docker command's order: option, DOCKER_HOST, DOCKER_CONTEXT, current context, default.

    Source of the order: https://docs.docker.com/engine/manage-resources/contexts/.
    """
    docker = sdk()
    if docker_host:
        return Endpoint(docker_host, "--docker-host", _tls_from(environ))
    if environ.get("DOCKER_HOST"):
        return Endpoint(environ["DOCKER_HOST"], "DOCKER_HOST", _tls_from(environ))
    name = environ.get("DOCKER_CONTEXT") or None
    try:
        context = docker.ContextAPI.get_context(name)
    except (docker.errors.DockerException, OSError, ValueError) as error:
        raise SplatfixError(
            "docker-context-invalid",
            f"The Docker context {name or '(the current one)'} cannot be read: {error}.",
            todo=(run("docker", "context", "ls"),),
            exit_code=Exit.USAGE,
        ) from error
    if context is None:
        raise SplatfixError(
            "docker-context-invalid",
            f"There is no Docker context {name or '(the current one)'}.",
            todo=(run("docker", "context", "ls"),),
            exit_code=Exit.USAGE,
        )
    source = "DOCKER_CONTEXT" if name else "the current Docker context"
    plain = name is None and context.name == "default" and not Path(_SYSTEM_SOCKET).is_socket()
    if plain and (beside := [path for path in _other_sockets(environ) if Path(path).is_socket()]):
        return Endpoint(f"unix://{beside[0]}", f"what is there instead of {_SYSTEM_SOCKET}")
    return Endpoint(context.Host, f"{source} ({context.name})", context.TLSConfig or None)


def _other_sockets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Where else engines listen: this user's rootless Docker, and Podman
    (https://docs.docker.com/engine/security/rootless/, podman-system-service(1))."""
    own = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid() if hasattr(os, 'getuid') else 0}"
    return (f"{own}/docker.sock", f"{own}/podman/podman.sock", "/run/podman/podman.sock")


_SYSTEM_SOCKET = "/var/run/docker.sock"


def explain_unreachable(error: BaseException, endpoint: Endpoint) -> SplatfixError:
    """The error for an exception of the docker SDK while it connected to ``endpoint``."""
    where = f"{endpoint.host} (from {endpoint.found_via})"
    root = _root_cause(error)
    if isinstance(root, PermissionError):
        return SplatfixError(
            "docker-permission-denied",
            f"This user may not open the Docker engine's socket {where}.",
            meaning="The engine may be running.",
            todo=(
                say(
                    "Join the group that owns the socket (usually docker; its members can become root on this"
                    " machine) and log in again, or run as another user."
                ),
            ),
            exit_code=Exit.UNDETERMINED,
        )
    # the SDK wraps network errors, so a bare ValueError is about the address
    if "Invalid bind address" in str(error) or isinstance(error, ValueError):
        return SplatfixError(
            "docker-host-invalid",
            f"{where} is not the address of a Docker engine: {error}.",
            todo=(
                say(
                    "Use an address such as unix:///var/run/docker.sock, tcp://host:2376 or ssh://user@host."
                ),
            ),
            exit_code=Exit.USAGE,
        )
    return SplatfixError(
        "docker-engine-unreachable",
        f"No Docker engine answers at {where}: {_reason(root, error)}.",
        meaning="Nothing was certified.",
        todo=(
            say(
                "Start the engine (Docker Desktop; on Linux: sudo systemctl start docker, or with Podman: systemctl --user"
                " start podman.socket), or choose another with --docker-host or DOCKER_HOST."
            ),
            run(
                "docker",
                "--host",
                endpoint.host,
                "version",
                text="Check the connection",
            ),
        ),
        exit_code=Exit.UNDETERMINED,
        details={"host": endpoint.host, "found_via": endpoint.found_via},
    )


@contextmanager
def engine_errors(doing: str, means: str = "Nothing was certified.") -> Iterator[None]:
    """Raise a :class:`SplatfixError` for an exception of the docker SDK while ``doing`` something.

    Args:
        means: what it means for the certification where the engine is lost.
    """
    docker = sdk()
    import requests

    try:
        yield
    except docker.errors.APIError as error:
        said = str(error.explanation or error)
        raise SplatfixError(
            "docker-engine-failed",
            f"The Docker engine failed while {doing}: {said}.",
            todo=(run("docker", "system", "df"),) if "no space left on device" in said else (),
            exit_code=Exit.FAILURE,
        ) from error
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise SplatfixError(
            "docker-engine-lost",
            f"The connection to the Docker engine broke while {doing}: {_reason(_root_cause(error), error)}.",
            meaning=f"The engine stopped, or the network failed. {means}".strip(),
            todo=(
                say(
                    "Start the engine again (docker version shows whether it answers), and repeat the command."
                ),
            ),
            exit_code=Exit.UNDETERMINED,
        ) from error


def sdk() -> Any:
    """The docker package, imported on first use: the rest of splatfix runs without it.

    Raises:
        SplatfixError: ``docker-sdk-missing`` (exit code 3).
    """
    try:
        import docker
    except ImportError as error:
        raise SplatfixError(
            "docker-sdk-missing",
            "The Python package docker is not in splatfix's environment.",
            meaning="Container lanes need it.",
            todo=(INSTALL_SDK,),
            exit_code=Exit.UNDETERMINED,
        ) from error
    return docker


def _tls_from(environ: Mapping[str, str]) -> Any:
    """DOCKER_TLS_VERIFY and DOCKER_CERT_PATH, read by the SDK itself."""
    docker = sdk()
    try:
        # given an empty mapping, the SDK reads the variables of the process
        return docker.utils.kwargs_from_env(environment=dict(environ) or {"DOCKER_HOST": ""}).get("tls")
    except docker.errors.DockerException as error:
        folder = environ.get("DOCKER_CERT_PATH") or "~/.docker"
        raise SplatfixError(
            "docker-tls-invalid",
            f"The certificates for the Docker engine in {folder} cannot be used: {error}.",
            todo=(
                say(
                    "Set DOCKER_CERT_PATH to the folder of ca.pem, cert.pem and key.pem, or unset DOCKER_TLS_VERIFY."
                ),
            ),
            exit_code=Exit.USAGE,
        ) from error


def _root_cause(error: BaseException) -> BaseException:
    """The innermost operating-system error below ``error``, or ``error`` itself.

    requests and urllib3 keep the cause in ``args``, ``reason`` or the exception chain.
    """
    found = error
    seen: set[int] = set()
    queue: list[object] = [error]
    while queue:
        current = queue.pop(0)
        if not isinstance(current, BaseException) or id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, OSError) and current.errno is not None:
            found = current
        queue += [*current.args, getattr(current, "reason", None), current.__cause__, current.__context__]
    return found


def _reason(root: BaseException, error: BaseException) -> str:
    if isinstance(root, FileNotFoundError):
        return "no such socket"
    if isinstance(root, ConnectionRefusedError):
        return "connection refused"
    if isinstance(root, socket.gaierror):
        return f"cannot resolve the host name ({root.strerror})"
    if "paramiko" in str(error):
        return "ssh addresses need the package paramiko (pip install paramiko)"
    if isinstance(root, OSError) and root.strerror:
        return root.strerror
    return str(error).removeprefix("Error while fetching server API version: ").rstrip(".")


def device_requests(engine: Engine) -> list[Any]:
    """What ``docker run --gpus all`` sends; to Podman what it has in its place, a device of the Container Device Interface."""
    docker = sdk()
    if engine.kind == "Podman":
        return [docker.types.DeviceRequest(driver="cdi", device_ids=["nvidia.com/gpu=all"])]
    return [docker.types.DeviceRequest(count=-1, capabilities=[["gpu"]])]


def explain_gpu_failure(message: str, host: str) -> SplatfixError | None:
    """The error for an engine's message, where it is about GPUs."""
    if any(sign in message for sign in _DRIVER_UNUSABLE):
        return SplatfixError(
            "docker-gpu-unusable",
            f"The NVIDIA Container Toolkit on {host} found no usable GPU: {message}",
            meaning="The NVIDIA driver of the engine's machine is not loaded, not installed, or older than the image needs.",
            todo=(run("splatfix", "diagnose"), run("nvidia-smi")),
            exit_code=Exit.UNDETERMINED,
        )
    if any(sign in message for sign in _TWO_WAYS):
        return SplatfixError(
            "docker-gpu-runtime-missing",
            f"The Docker engine at {host} and its NVIDIA Container Toolkit pass GPUs in two different ways: {message}",
            meaning="One of them uses the Container Device Interface (CDI), and the other is not set up for it.",
            todo=(
                run(
                    "sudo",
                    "nvidia-ctk",
                    "config",
                    "--in-place",
                    "--set",
                    "nvidia-container-runtime.mode=auto",
                ),
                run("sudo", "nvidia-ctk", "runtime", "configure", "--runtime=docker", "--cdi.enabled"),
                run("sudo", "systemctl", "restart", "docker"),
            ),
            exit_code=Exit.UNDETERMINED,
        )
    if any(sign in message for sign in _RUNTIME_MISSING):
        if host.startswith("unix://") and _no_gpu_here():
            return _without_gpu(message, host)
        return SplatfixError(
            "docker-gpu-runtime-missing",
            f"The Docker engine at {host} cannot pass NVIDIA GPUs into a container: {message}",
            meaning="The NVIDIA Container Toolkit is not installed there, or the engine was not restarted since.",
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
    if any(sign in message for sign in _DEVICE_LIST_STALE):
        return SplatfixError(
            "docker-gpu-runtime-missing",
            f"The Docker engine at {host} finds no GPU in its list of devices (CDI): {message}",
            meaning="The list, nvidia.yaml in /etc/cdi or /var/run/cdi, was not written there, or not since the driver changed.",
            todo=(
                run("sudo", "nvidia-ctk", "cdi", "generate", "--output=/etc/cdi/nvidia.yaml"),
                run("nvidia-ctk", "cdi", "list"),
                run("sudo", "systemctl", "restart", "docker"),
            ),
            exit_code=Exit.UNDETERMINED,
        )
    return None


def _no_gpu_here() -> bool:
    """This machine shows neither an NVIDIA GPU nor a driver; what could not be asked counts as there."""
    machine = gather("").machine
    gpus, files = machine.gpus.value, machine.device_files.value
    none = gpus is not None and not any(gpu.vendor == "nvidia" for gpu in gpus)
    return none and files == () and machine.driver.value is None and not machine.wsl


def _without_gpu(message: str, host: str) -> SplatfixError:
    fit = [
        lane.name for lane in load_lanes().values() if lane.gpu is not GpuUse.REQUIRED and not lane.repository
    ]
    return SplatfixError(
        "docker-gpu-runtime-missing",
        f"The Docker engine at {host} cannot pass NVIDIA GPUs into a container: {message}",
        meaning="This machine has no NVIDIA GPU: none on the PCI bus, and no driver.",
        todo=(
            *(
                run("splatfix", "certify", "--container", name, text=f"Without a GPU: lane {name}")
                for name in fit
            ),
            say(f"With one, install its driver and the NVIDIA Container Toolkit: {_TOOLKIT_GUIDE}"),
        ),
        exit_code=Exit.UNDETERMINED,
    )


def require_gpu(engine: Engine) -> None:
    """Check that this engine can pass GPUs in, before gigabytes are downloaded.

    Starts a container of an empty image with GPUs. The engine sets up devices before it looks for the program, so
    "no such program" is success.

    Raises:
        SplatfixError: ``docker-gpu-runtime-missing`` or ``docker-gpu-unusable`` (exit code 3).
    """
    docker = sdk()
    if engine.kind == "Podman" and release(engine.version) < _PODMAN_WITH_GPUS:
        raise SplatfixError(
            "docker-gpu-runtime-missing",
            f"Podman {engine.version} at {engine.endpoint.host} ignores requests for GPUs that come through Docker's API.",
            meaning="A container would start without a GPU, and without a word.",
            todo=(say("Use Podman 5.4 or newer, or a Docker engine (--docker-host)."),),
            exit_code=Exit.UNDETERMINED,
        )
    container = None
    name = f"splatfix-gpu-probe-{uuid.uuid4().hex[:12]}"  # unique, for parallel runs
    with engine_errors("preparing the GPU check"):
        labels = [f"LABEL {key}={json.dumps(value)}" for key, value in owner_label().items()]
        engine.client.api.import_image_from_data(_empty_tar(), repository=name, tag="latest", changes=labels)
    try:
        container = engine.client.containers.create(
            f"{name}:latest",
            command=["/no-such-program"],
            network_mode="none",
            device_requests=device_requests(engine),
        )
        container.start()
    except docker.errors.APIError as error:
        message = str(error.explanation or error)
        if explained := explain_gpu_failure(message, engine.endpoint.host):
            raise explained from error
        if "/no-such-program" not in message:
            raise SplatfixError(
                "docker-engine-failed",
                f"The Docker engine at {engine.endpoint.host} rejected a container with GPUs: {message}",
                exit_code=Exit.UNDETERMINED,
            ) from error
    finally:
        with engine_errors("cleaning up the GPU check"):
            if container is not None:
                container.remove(force=True)
            engine.client.images.remove(f"{name}:latest", force=True)


def _empty_tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("empty"))
    return buffer.getvalue()
