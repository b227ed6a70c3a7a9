import json
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from splatfix.containers import certify_in_container
from splatfix.containers.certify import ContainerRequest
from splatfix.containers.engine import connect, explain_gpu_failure, find_endpoint
from splatfix.core.errors import Exit
from splatfix.core.toml import parse_toml
from splatfix.knowledge.lanes import find_lane
from tests.plan.machines import refused


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize(
    ("host", "code", "exit_code"),
    [
        ("unix:///no/such.sock", "docker-engine-unreachable", Exit.UNDETERMINED),
        ("tcp://no-such-host.invalid:2375", "docker-engine-unreachable", Exit.UNDETERMINED),
        ("tcp://127.0.0.1:CLOSED", "docker-engine-unreachable", Exit.UNDETERMINED),
        ("carrier-pigeon://roof", "docker-host-invalid", Exit.USAGE),
        ("tcp://", "docker-host-invalid", Exit.USAGE),
        ("tcp://127.0.0.1:99999999", "docker-host-invalid", Exit.USAGE),
    ],
)
def test_an_address_without_an_engine(host: str, code: str, exit_code: Exit) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        environ = {"DOCKER_HOST": host.replace("CLOSED", str(probe.getsockname()[1]))}
    error = refused(connect, environ)
    assert (error.code, error.exit_code) == (code, exit_code)
    if code == "docker-engine-unreachable":
        assert error.details == {"host": environ["DOCKER_HOST"], "found_via": "DOCKER_HOST"}


def test_socket_without_an_engine(open_folder: Path) -> None:
    """A server that hangs up at once: reachable, but no engine."""
    path = open_folder / "other.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        server.settimeout(10)

        def hang_up() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=hang_up, daemon=True).start()
        error = refused(connect, {"DOCKER_HOST": f"unix://{path}"})
    assert (error.code, error.exit_code) == ("docker-engine-unreachable", Exit.UNDETERMINED)


def test_socket_of_another_user(open_folder: Path) -> None:
    path = open_folder / "docker.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        path.chmod(0o000)
        is_root = os.geteuid() == 0
        if is_root:  # root may open anything, so be nobody for a moment
            os.seteuid(65534)
        try:
            error = refused(connect, {"DOCKER_HOST": f"unix://{path}"})
        finally:
            if is_root:
                os.seteuid(0)
    assert (error.code, error.exit_code) == ("docker-permission-denied", Exit.UNDETERMINED)


def test_missing_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    error = refused(connect, {})
    assert (error.code, error.exit_code) == ("docker-sdk-missing", Exit.UNDETERMINED)
    (todo,) = error.todo
    assert todo.command and todo.command.argv == (sys.executable, "-m", "pip", "install", "docker")


def test_missing_certificates(tmp_path: Path) -> None:
    environ = {
        "DOCKER_HOST": "tcp://127.0.0.1:1",
        "DOCKER_TLS_VERIFY": "1",
        "DOCKER_CERT_PATH": str(tmp_path),
    }
    error = refused(connect, environ)
    assert (error.code, error.exit_code) == ("docker-tls-invalid", Exit.USAGE)
    assert str(tmp_path) in error.what


class TestOrder:
    """The endpoint is found in the order of the docker command."""

    @pytest.fixture(autouse=True)
    def docker_config(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from docker.context.config import get_context_id

        for name in ("lab", "desk"):
            meta = tmp_path / "contexts" / "meta" / get_context_id(name) / "meta.json"
            meta.parent.mkdir(parents=True)
            endpoints = {"docker": {"Host": f"unix:///run/{name}.sock", "SkipTLSVerify": False}}
            meta.write_text(json.dumps({"Name": name, "Metadata": {}, "Endpoints": endpoints}))
        (tmp_path / "config.json").write_text(json.dumps({"currentContext": "desk"}))
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))

    @pytest.mark.parametrize(
        ("environ", "host", "told"),
        [
            ({"DOCKER_HOST": "unix:///b", "DOCKER_CONTEXT": "lab"}, "unix:///b", "DOCKER_HOST"),
            ({"DOCKER_CONTEXT": "lab"}, "unix:///run/lab.sock", "DOCKER_CONTEXT (lab)"),
            ({}, "unix:///run/desk.sock", "the current Docker context (desk)"),
        ],
    )  # fmt: skip
    def test_order(self, environ: dict[str, str], host: str, told: str) -> None:
        endpoint = find_endpoint(environ)
        assert (endpoint.host, endpoint.found_via) == (host, told)

    def test_unknown_context(self) -> None:
        error = refused(connect, {"DOCKER_CONTEXT": "nowhere"})
        assert (error.code, error.exit_code) == ("docker-context-invalid", Exit.USAGE)
        assert "nowhere" in error.what


def test_default_is_the_system_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    assert find_endpoint({}).host == "unix:///var/run/docker.sock"


def test_nothing_is_created_without_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    out, lines = tmp_path / "out", []
    error = refused(
        certify_in_container, ContainerRequest(lanes=("cpu",)), find_lane("cpu"), out, lines.append
    )
    assert error.exit_code == 3
    assert not out.exists()
    assert lines == []


GPU_FAILURES = parse_toml(Path(__file__).with_name("gpu_failures.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("message", "code", "command"), GPU_FAILURES["failures"])
def test_known_gpu_failures(message: str, code: str, command: str) -> None:
    error = explain_gpu_failure(message, "tcp://elsewhere:2376")
    assert error is not None
    assert (error.code, error.exit_code) == (code, Exit.UNDETERMINED)
    assert message in error.what, "the engine's message is the evidence"
    assert any(command in step.line() for step in error.todo)
    lanes = [step.command.argv[-1] for step in error.todo if step.text.startswith("Without an NVIDIA GPU")]
    assert lanes == ["cpu", "cuda-from-pypi", "nvrtc"]


def test_other_failures_are_not_about_gpus() -> None:
    message = 'exec: "splatfix": executable file not found in $PATH: unknown'
    assert explain_gpu_failure(message, "unix:///engine.sock") is None
