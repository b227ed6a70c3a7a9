from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from splatfix.containers import certify_in_container
from splatfix.containers.engine import connect, find_endpoint
from splatfix.core.errors import Exit, SplatfixError


def refusal(host: str | None, environ: dict[str, str] | None = None) -> SplatfixError:
    with pytest.raises(SplatfixError) as caught:
        connect(host, environ)
    return caught.value


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_no_socket_is_undetermined_and_names_the_place(tmp_path: Path) -> None:
    error = refusal(f"unix://{tmp_path}/none.sock")
    assert (error.code, error.exit_code) == ("docker-engine-unreachable", Exit.UNDETERMINED)
    assert "none.sock" in error.what
    assert "no such socket" in error.what
    assert "--docker-host" in error.what
    assert "nothing was certified" in error.meaning
    assert any("DOCKER_HOST" in line for line in error.todo)


def test_a_closed_port_is_told_as_refused(closed_port: int) -> None:
    error = refusal(None, {"DOCKER_HOST": f"tcp://127.0.0.1:{closed_port}"})
    assert (error.code, error.exit_code) == ("docker-engine-unreachable", Exit.UNDETERMINED)
    assert "refused" in error.what
    assert "from DOCKER_HOST" in error.what


def test_a_name_that_does_not_exist_is_told_as_such() -> None:
    error = refusal("tcp://no-such-host.invalid:2375")
    assert (error.code, error.exit_code) == ("docker-engine-unreachable", Exit.UNDETERMINED)
    assert "cannot be resolved" in error.what


def test_something_else_behind_the_socket(open_folder: Path) -> None:
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
        error = refusal(f"unix://{path}")
    assert (error.code, error.exit_code) == ("docker-engine-unreachable", Exit.UNDETERMINED)


def test_a_socket_of_another_user_is_told_apart_from_no_engine(open_folder: Path) -> None:
    path = open_folder / "docker.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        path.chmod(0o000)
        is_root = os.geteuid() == 0
        if is_root:  # root may open anything, so be nobody for a moment
            os.seteuid(65534)
        try:
            error = refusal(f"unix://{path}")
        finally:
            if is_root:
                os.seteuid(0)
    assert (error.code, error.exit_code) == ("docker-permission-denied", Exit.UNDETERMINED)
    assert "may not open" in error.what


@pytest.mark.parametrize("host", ["carrier-pigeon://roof", "tcp://", "tcp://127.0.0.1:99999999"])
def test_an_address_that_is_none_is_a_wrong_call(host: str) -> None:
    error = refusal(host)
    assert (error.code, error.exit_code) == ("docker-host-invalid", Exit.USAGE)


def test_missing_sdk_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    error = refusal(None)
    assert (error.code, error.exit_code) == ("docker-sdk-missing", Exit.UNDETERMINED)
    assert error.todo == ('pip install "splatfix[containers]"',)


def test_missing_certificates_are_told(tmp_path: Path) -> None:
    environ = {
        "DOCKER_HOST": "tcp://127.0.0.1:1",
        "DOCKER_TLS_VERIFY": "1",
        "DOCKER_CERT_PATH": str(tmp_path),
    }
    error = refusal(None, environ)
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
        ("option", "environ", "host", "told"),
        [
            (
                "unix:///a",
                {"DOCKER_HOST": "unix:///b", "DOCKER_CONTEXT": "lab"},
                "unix:///a",
                "--docker-host",
            ),
            (None, {"DOCKER_HOST": "unix:///b", "DOCKER_CONTEXT": "lab"}, "unix:///b", "DOCKER_HOST"),
            (None, {"DOCKER_CONTEXT": "lab"}, "unix:///run/lab.sock", "DOCKER_CONTEXT (lab)"),
            (None, {}, "unix:///run/desk.sock", "the current Docker context (desk)"),
        ],
    )
    def test_order(self, option: str | None, environ: dict[str, str], host: str, told: str) -> None:
        endpoint = find_endpoint(option, environ)
        assert (endpoint.host, endpoint.found_via) == (host, told)

    def test_unknown_context(self) -> None:
        error = refusal(None, {"DOCKER_CONTEXT": "nowhere"})
        assert (error.code, error.exit_code) == ("docker-context-invalid", Exit.USAGE)
        assert "nowhere" in error.what


def test_without_any_configuration_it_is_the_system_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    assert find_endpoint(None, {}).host == "unix:///var/run/docker.sock"


def test_the_whole_line_stops_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    out, said = tmp_path / "out", []
    with pytest.raises(SplatfixError) as caught:
        certify_in_container("cpu", suite="quick", out=out, progress=said.append)
    assert caught.value.exit_code == 3
    assert not out.exists()
    assert said == []


@pytest.mark.parametrize("address", ["unix://{folder}/none.sock", "tcp://127.0.0.1:{port}"])
def test_the_command_exits_with_3_and_shows_no_traceback(
    address: str, tmp_path: Path, closed_port: int
) -> None:
    host = address.format(folder=tmp_path, port=closed_port)
    done = subprocess.run(
        [sys.executable, "-m", "splatfix", "certify", "--container", "cpu", "--out", tmp_path / "out"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "DOCKER_HOST": host},
    )
    assert done.returncode == 3
    assert "docker-engine-unreachable" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
