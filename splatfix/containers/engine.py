"""Finds and reaches a Docker engine, and says in a person's words why one cannot be reached."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.step import run, say

_CONNECT_TIMEOUT_S = 15
_API_TIMEOUT_S = 600
"""One answer of the engine may take that long: committing a layer of gigabytes on a slow disk does."""

INSTALL_SDK = run("pip", "install", "splatfix[containers]")


@dataclass(frozen=True)
class Endpoint:
    """Where an engine is looked for, and who said so."""

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

    def close(self) -> None:
        """Give the connections back."""
        self.client.close()


def connect(docker_host: str | None = None, environ: Mapping[str, str] | None = None) -> Engine:
    """Reach the engine that ``docker`` itself would talk to, or ``docker_host``.

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
            meaning="Every lane of splatfix is a Linux image.",
            todo=(say("Switch that engine to Linux containers, or name another with --docker-host."),),
            exit_code=Exit.UNDETERMINED,
        )
    return Engine(client, endpoint, str(answer.get("Version", "unknown")), str(answer.get("Arch", "amd64")))


def find_endpoint(docker_host: str | None, environ: Mapping[str, str]) -> Endpoint:
    """The endpoint in the order of the docker command: option, DOCKER_HOST, DOCKER_CONTEXT, current context, default.

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
    told = "DOCKER_CONTEXT" if name else "the current Docker context"
    return Endpoint(context.Host, f"{told} ({context.name})", context.TLSConfig or None)


def explain_unreachable(error: BaseException, endpoint: Endpoint) -> SplatfixError:
    """The person's version of whatever the docker SDK raised while it tried to reach ``endpoint``."""
    where = f"{endpoint.host} (from {endpoint.found_via})"
    root = _root_cause(error)
    if isinstance(root, PermissionError):
        return SplatfixError(
            "docker-permission-denied",
            f"A Docker engine's socket is at {where}, but this user may not open it.",
            meaning="The engine may well be running; whether it is could not be found out.",
            todo=(
                say(
                    "Run as a user that may, or join the group that owns the socket (usually docker) and log in again."
                ),
                say("Members of that group can become root on this machine."),
            ),
            exit_code=Exit.UNDETERMINED,
        )
    # the SDK wraps what it met on the wire, so a bare ValueError is about the address itself
    if "Invalid bind address" in str(error) or isinstance(error, ValueError):
        return SplatfixError(
            "docker-host-invalid",
            f"{where} is no address of a Docker engine: {error}.",
            todo=(say("Give one such as unix:///var/run/docker.sock, tcp://host:2376 or ssh://user@host."),),
            exit_code=Exit.USAGE,
        )
    return SplatfixError(
        "docker-engine-unreachable",
        f"No Docker engine answers at {where}: {_reason(root, error)}.",
        meaning="Without an engine no container can be built or run; nothing was certified.",
        todo=(
            say(
                "Start the engine (Docker Desktop; on Linux: sudo systemctl start docker), or name another one with"
                " --docker-host or DOCKER_HOST."
            ),
            run(
                "docker",
                "--host",
                endpoint.host,
                "version",
                text="To see what the docker command finds there",
            ),
        ),
        exit_code=Exit.UNDETERMINED,
        details={"host": endpoint.host, "found_via": endpoint.found_via},
    )


@contextmanager
def engine_errors(doing: str) -> Iterator[None]:
    """Turn what the docker SDK raises while ``doing`` something into a :class:`SplatfixError`."""
    docker = sdk()
    import requests

    try:
        yield
    except docker.errors.APIError as error:
        raise SplatfixError(
            "docker-engine-failed",
            f"The Docker engine refused while {doing}: {error.explanation or error}.",
            exit_code=Exit.FAILURE,
        ) from error
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise SplatfixError(
            "docker-engine-lost",
            f"The connection to the Docker engine broke while {doing}: {_reason(_root_cause(error), error)}.",
            meaning="The engine was stopped, or the network to it failed.",
            exit_code=Exit.UNDETERMINED,
        ) from error


def sdk() -> Any:
    """The docker package, imported only when an engine is wanted: the rest of splatfix runs without it.

    Raises:
        SplatfixError: ``docker-sdk-missing`` (exit code 3).
    """
    try:
        import docker
    except ImportError as error:
        raise SplatfixError(
            "docker-sdk-missing",
            "The Python package 'docker' is not installed beside splatfix.",
            meaning="splatfix talks to the Docker engine through it.",
            todo=(INSTALL_SDK,),
            exit_code=Exit.UNDETERMINED,
        ) from error
    return docker


def _tls_from(environ: Mapping[str, str]) -> Any:
    """DOCKER_TLS_VERIFY and DOCKER_CERT_PATH, read by the SDK itself."""
    docker = sdk()
    try:
        # the SDK would read its own process's variables if it were handed an empty mapping
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

    requests and urllib3 hand the cause on in ``args``, ``reason`` or the exception chain, so all three are walked.
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
        return "there is no such socket, so no engine is running there"
    if isinstance(root, ConnectionRefusedError):
        return "the connection is refused, so no engine is listening there"
    if isinstance(root, socket.gaierror):
        return f"the host's name cannot be resolved ({root.strerror})"
    if "paramiko" in str(error):
        return "ssh addresses need one more package (pip install paramiko)"
    if isinstance(root, OSError) and root.strerror:
        return root.strerror
    return str(error).removeprefix("Error while fetching server API version: ").rstrip(".")
