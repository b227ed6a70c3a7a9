"""A run in a container: its report, how its end is told, and who of those that began one is dead."""

import io
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import docker
import pytest
from msgspec.structs import replace

from splatfix.containers.engine import Endpoint, Engine
from splatfix.containers.run import ContainerJob, run_in_container, unpack_report
from splatfix.core.errors import Exit
from splatfix.knowledge.lanes import find_lane
from tests.plan.machines import refused

FOLDER, LINK, HARD, PIPE = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE


def archive(*members: tuple[str, bytes]) -> bytes:
    """A tar with files, or what else the second says: a kind of entry, and where a link leads."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in members:
            entry = tarfile.TarInfo(name)
            if data[:1] in (FOLDER, LINK, HARD, PIPE):
                entry.type, entry.linkname, data = data[:1], data[1:].decode(), b""
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def test_files_of_the_report_are_unpacked_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    docker_s = [("report", FOLDER), ("report/certificate.json", b"{}"), ("report/images/a.png", b"png")]
    docker_s += [("report/../../escape", b"x"), ("report/link", LINK + b"/etc/passwd")]
    docker_s += [("report/hard", HARD + b"report/link"), ("report/pipe", PIPE)]
    podman_s = [("/", FOLDER), ("/good", b"x")]
    for members in (docker_s, podman_s):
        with tarfile.open(fileobj=io.BytesIO(archive(*members))) as tar:
            unpack_report(tar, out)
    written = {
        path.relative_to(tmp_path).as_posix(): path.read_bytes()
        for path in tmp_path.rglob("*")
        if not path.is_dir()
    }
    names = ("certificate.json", "images/a.png", "good")
    assert written == {
        f"deep/out/{name}": data for name, data in zip(names, (b"{}", b"png", b"x"), strict=True)
    }


def container(status: int = 0, oom: bool = False, **files: bytes) -> Any:
    """A container that has ended, and cannot be removed: its engine is lost then."""

    def get_archive(path: str) -> Any:
        name = Path(path).name
        if name not in files:
            raise docker.errors.NotFound("none")
        return iter([archive((name, files[name])) if name != "report" else files[name]]), {}

    return Mock(
        **{
            "attach.return_value": iter([b"training sc", b"ene 1\r\ncaf\xc3", b"\xa9 https://u:secret@host"]),
            "wait.return_value": {"StatusCode": status},
            "remove.side_effect": ConnectionRefusedError(111, "Connection refused"),
        },
        attrs={"State": {"OOMKilled": oom}},
        get_archive=get_archive,
    )


def job_for(made: Any, out: Path, **lane: Any) -> tuple[Engine, ContainerJob]:
    client = SimpleNamespace(containers=SimpleNamespace(create=lambda *_, **__: made))
    engine = Engine(client, Endpoint("unix:///engine.sock", "a test"), "28", "amd64")
    return engine, ContainerJob(replace(find_lane("cpu"), **lane), "image", ["true"], out)


def test_the_exit_code_is_the_command_s_and_lines_are_whole(tmp_path: Path) -> None:
    report = archive(("report/certificate.json", b"{}"))
    made = container(5, **{"report": report, "packages.txt": b"torch==2\n"})
    progress: list[str] = []
    outcome = run_in_container(*job_for(made, tmp_path), progress.append)
    assert (outcome.exit_code, outcome.packages, outcome.built) == (5, b"torch==2\n", b"")
    assert progress[1:] == ["training scene 1", "café https://u:***@host"] == list(outcome.last_lines)
    assert (tmp_path / "container.log").read_text().splitlines() == progress[1:]
    assert (tmp_path / "certificate.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("status", "oom", "timeout_s", "code"),
    [
        (124, False, 0, "container-timeout"),
        (137, False, 0, "container-timeout"),
        (137, True, 60, "container-out-of-memory"),
        (137, False, 60, "container-ended"),
        (143, False, 60, "container-ended"),
    ],
)
def test_how_a_run_ended_is_told(status: int, oom: bool, timeout_s: int, code: str, tmp_path: Path) -> None:
    error = refused(
        run_in_container, *job_for(container(status, oom), tmp_path, timeout_s=timeout_s), lambda line: None
    )
    assert (error.code, error.exit_code) == (code, Exit.UNDETERMINED)
    assert error.details["last_lines"][0] == "training scene 1"
