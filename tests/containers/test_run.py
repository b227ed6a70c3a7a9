"""A run in a container: what is typed for it, its report and output, its exit code, and who of those that began one is dead."""

import io
import os
import subprocess
import sys
import tarfile
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qsl, urlencode

import pytest

from splatfix.containers.certify import certificate_of, read_certificates
from splatfix.containers.engine import Endpoint, Engine
from splatfix.containers.image import Image
from splatfix.containers.lanes import find_lane
from splatfix.containers.owner import OWNER_LABEL, is_dead, owner_label
from splatfix.containers.run import (
    _RUNNER,
    ContainerJob,
    ContainerOutcome,
    ContainerOutput,
    _container,
    unpack_report,
)
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.files import write_text
from tests.plan.machines import refused


def member(
    name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.size = kind, link, len(data)
    return entry, data


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for entry, data in members:
            tar.addfile(entry, io.BytesIO(data))
    buffer.seek(0)
    return buffer


def test_report_is_unpacked(tmp_path: Path) -> None:
    folders = [member(name, kind=tarfile.DIRTYPE) for name in ("report", "report/images")]
    tar = archive(*folders, member("report/certificate.json", b"{}"), member("report/images/a.png", b"png"))
    written = unpack_report(tar, tmp_path / "out")
    assert written == (tmp_path / "out/certificate.json", tmp_path / "out/images/a.png")
    assert (tmp_path / "out/images/a.png").read_bytes() == b"png"


def test_no_links_and_nothing_outside(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    tar = archive(
        member("report/../../escape", b"x"),
        member("report/link", kind=tarfile.SYMTYPE, link="/etc/passwd"),
        member("report/hard", kind=tarfile.LNKTYPE, link="report/link"),
        member("report/pipe", kind=tarfile.FIFOTYPE),
        member("report/good", b"x"),
    )
    assert unpack_report(tar, out) == (out / "good",)
    assert unpack_report(archive(member("/good", b"x"), member("/", b"")), out) == (out / "good",), "Podman's"
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if not path.is_dir()] == [
        "deep/out/good"
    ]
    (out / "photos").symlink_to(tmp_path)
    led_out = refused(unpack_report, archive(member("report/photos/0.png", b"x")), out)
    assert led_out.code == "cannot-write" and not (tmp_path / "0.png").exists(), "by a link that was there"


def test_progress_gets_whole_lines_of_stderr() -> None:
    progress: list[str] = []
    log = io.StringIO()
    output = ContainerOutput(progress.append, log)
    output.feed(b"{", b"training sc")
    output.feed(b'"a": 1}\n', b"ene 1\r\ncaf\xc3")
    output.feed(b"", b"\xa9\nno newline")
    assert progress == ["training scene 1", "café"]
    output.feed(b"\n", b" https://u:secret@host")
    output.finish()
    assert log.getvalue().splitlines() == [
        '{"a": 1}',
        "training scene 1",
        "café",
        "",
        "no newline https://u:***@host",
    ]
    assert output.last_lines == ['{"a": 1}', "training scene 1", "café", "no newline https://u:***@host"]


@pytest.mark.parametrize(
    "before", [None, SplatfixError("container-ended", "It ended.", meaning="And nothing was certified.")]
)
def test_what_a_lost_engine_leaves_is_named(before: SplatfixError | None) -> None:
    def remove(**_: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    volumes = [{"Name": "v1", "Type": "volume"}, {"Name": "v2", "Type": "volume"}, {"Type": "tmpfs"}]
    made = SimpleNamespace(
        id="c0ffee11", short_id="c0ffee", attrs={"Mounts": volumes}, remove=remove, kill=remove
    )
    client = SimpleNamespace(containers=SimpleNamespace(create=lambda *_, **__: made))
    engine = Engine(client, Endpoint("unix:///engine.sock", "a test"), "28", "amd64")
    image = Image("", "image", "", "", reused=True)
    with (
        pytest.raises(SplatfixError) as caught,
        _container(engine, ContainerJob(find_lane("cpu"), image, [], Path()), "token"),
    ):
        if before is not None:
            raise before
    lost = caught.value
    assert (lost.code, lost.exit_code) == ("docker-engine-lost", Exit.UNDETERMINED)
    assert "Container c0ffee and its volumes v1, v2 may be left" in lost.meaning
    assert "the next splatfix" in lost.meaning
    assert lost.details["volumes"] == ["v1", "v2"]
    assert [
        "Start the engine again" in lost.todo[0].text,
        *(step.command.argv[-1] for step in lost.todo[1:] if step.command),
    ] == [True, "c0ffee", "v2"]
    if before is None:
        assert (
            "while removing the container" in lost.what
            and "certified" not in lost.meaning.partition("Container")[0]
        )
    else:
        assert lost.what == before.what and before.meaning in lost.meaning


def test_the_report_goes_over_nothing_of_this_machine(tmp_path: Path) -> None:
    ours = ("image-build.log", "container.log", "container.json", "previous/certificate.json")
    for name in ours:
        write_text(tmp_path / name, "of this machine")
    names = (*ours, "Container.LOG", "previous-2/x", "certificate.json", "certificate.json")
    tar = archive(*(member(f"report/{name}", b"forged") for name in names))
    assert unpack_report(tar, tmp_path) == (tmp_path / "certificate.json",) * 2
    assert {(tmp_path / name).read_text() for name in ours} == {"of this machine"}
    assert not (tmp_path / "previous-2").exists()


def test_a_large_report_takes_little_memory(tmp_path: Path) -> None:
    tar = archive(member("report/large", bytes(32 << 20)))
    tracemalloc.start()
    try:
        unpack_report(tar, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert (tmp_path / "large").stat().st_size == 32 << 20


def test_a_report_of_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splatfix.containers.run.MOST_REPORT_FILES", 3)
    error = refused(unpack_report, archive(*(member(f"report/{number}") for number in range(4))), tmp_path)
    assert error.code == "container-report-too-large" and "more than 3 files" in str(error)


def test_output_without_a_newline_is_taken_in_parts() -> None:
    progress: list[str] = []
    output = ContainerOutput(progress.append, log := io.StringIO())
    for _ in range(256):
        output.feed(b"", b"x" * 4096)
    assert max(map(len, progress)) <= 1 << 16 and sum(map(len, progress)) > 900_000
    output.finish()
    assert log.getvalue().replace("\n", "") == "x" * (256 * 4096)


def test_a_log_of_any_length_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splatfix.core.output.MOST_LOG", 1000)
    output = ContainerOutput(lambda line: None, log := io.StringIO())
    for number in range(1000):
        output.feed(b"line %d\n" % number, b"")
    *lines, last = log.getvalue().splitlines()
    assert len(log.getvalue()) < 1200 and lines[:2] == ["line 0", "line 1"]
    assert "is not kept" in last
    assert output.last_lines == [f"line {number}" for number in range(980, 1000)]


@pytest.mark.skipif(os.name != "posix", reason="a shell")
@pytest.mark.parametrize(
    ("command", "code"), [("cat; exit 5", 5), ("kill -9 $$", 137), ("exec sleep 60", 143)]
)
def test_the_exit_code_is_the_command_s(command: str, code: int) -> None:
    """And what still runs ends with the connection; standard input is not handed on."""
    argv = ["sh", "-c", _RUNNER, "splatfix", "sh", "-c", command]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE)
    assert process.stdin
    if code == 143:
        process.stdin.close()
    assert process.wait(timeout=30) == code
    process.stdin.close()


PEM = b"# a\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def test_certificates_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.pem").write_bytes(PEM)
    assert read_certificates(tmp_path / "a.pem") == PEM and read_certificates(None) == b""


@pytest.mark.skipif(os.name != "posix", reason="devices and pipes as POSIX has them")
@pytest.mark.parametrize("name", ["/dev/zero", "/dev/tty", "pipe", "folder", "nothing", "sparse"])
def test_what_is_no_file_is_not_read(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    error = refused(read_certificates, tmp_path / name)
    assert (error.code, error.exit_code) == ("cannot-read", Exit.USAGE)


@pytest.mark.parametrize("content", [b"", b"\0" * 99, b"-----BEGIN PRIVATE KEY-----\n"])
def test_a_file_without_certificates(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    error = refused(read_certificates, tmp_path / "a")
    assert (error.code, error.exit_code) == ("no-certificates", Exit.USAGE)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"verdict": "fine"}', '{"verdict": []}', "[" * 100_000, '{"verdict": 3}']
)
def test_a_strange_certificate_from_inside(content: str, tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    path.write_text(content)
    job = ContainerJob(find_lane("cpu"), Image("", "", "", "", reused=True), (), tmp_path)
    error = refused(certificate_of, ContainerOutcome(0, 1.0, (path,), ()), job)
    assert error.code in ("container-report-damaged", "container-no-report")


def label(**changes: object) -> str:
    return urlencode({**dict(parse_qsl(owner_label()[OWNER_LABEL])), **changes})


def test_a_process_that_is_gone_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert is_dead(label(process=child.pid))
    assert is_dead(label(boot="1")), "the machine was started anew"


@pytest.mark.parametrize(
    "text",
    [
        label(),
        label(process=os.getppid(), started=""),
        label(process=0, host="elsewhere"),
        "",
        "{}",
        "host=&process=x&started=1",
        "process=0&started=1",
    ],
    ids=["this process", "its parent", "elsewhere", "empty", "object", "no number", "no place"],
)
def test_anything_else_is_left_alone(text: str) -> None:
    assert not is_dead(text)
