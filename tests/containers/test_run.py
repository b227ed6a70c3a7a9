from __future__ import annotations

import io
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from splatfix.containers.engine import Endpoint, Engine
from splatfix.containers.image import Image
from splatfix.containers.lanes import find_lane
from splatfix.containers.run import ContainerJob, ContainerOutput, _container, unpack_report
from splatfix.core.errors import Exit, SplatfixError


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
    tar = archive(
        member("report", kind=tarfile.DIRTYPE),
        member("report/certificate.json", b"{}"),
        member("report/images", kind=tarfile.DIRTYPE),
        member("report/images/a.png", b"png"),
    )
    written = unpack_report(tar, tmp_path / "out")
    assert written == (tmp_path / "out/certificate.json", tmp_path / "out/images/a.png")
    assert (tmp_path / "out/images/a.png").read_bytes() == b"png"


def test_no_links_and_nothing_outside(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    tar = archive(
        member("report/../../escape", b"x"),
        member("/report/escape", b"x"),
        member("report/link", kind=tarfile.SYMTYPE, link="/etc/passwd"),
        member("report/hard", kind=tarfile.LNKTYPE, link="report/link"),
        member("report/pipe", kind=tarfile.FIFOTYPE),
        member("report/good", b"x"),
    )
    assert unpack_report(tar, out) == (out / "good",)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if not path.is_dir()] == [
        "deep/out/good"
    ]


def test_progress_gets_whole_lines_of_stderr() -> None:
    progress: list[str] = []
    log = io.StringIO()
    output = ContainerOutput(progress.append, log, "token")
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


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    "before", [None, SplatfixError("container-ended", "It ended.", meaning="And nothing was certified.")]
)
def test_what_a_lost_engine_leaves_is_named(before: SplatfixError | None, keep: bool) -> None:
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
        _container(engine, ContainerJob(find_lane("cpu"), image, [], Path(), keep=keep), "token"),
    ):
        if before is not None:
            raise before
    lost = caught.value
    assert (lost.code, lost.exit_code) == ("docker-engine-lost", Exit.UNDETERMINED)
    assert "Container c0ffee and its volumes v1, v2 may be left" in lost.meaning
    assert ("the next splatfix" in lost.meaning) is not keep
    assert lost.details["volumes"] == ["v1", "v2"]
    assert [
        "Start the engine again" in lost.todo[0].text,
        *(step.command.argv[-1] for step in lost.todo[1:] if step.command),
    ] == [
        True,
        "c0ffee",
        "v2",
    ]
    if before is None:
        assert (
            "while removing the container" in lost.what
            and "certified" not in lost.meaning.partition("Container")[0]
        )
    else:
        assert lost.what == before.what and before.meaning in lost.meaning


def test_last_lines_are_kept() -> None:
    output = ContainerOutput(lambda line: None, io.StringIO(), "token")
    output.feed(b"", b"".join(b"%d\n" % n for n in range(1000)))
    assert output.last_lines == [str(n) for n in range(980, 1000)]


def test_the_exit_code_is_told_behind_everything_else() -> None:
    log = io.StringIO()
    output = ContainerOutput(lambda line: None, log, "token")
    said = [(b"a\nb", None), (None, b"token 3\n"), (b"token 3\n", None), (b"never read", None)]
    output.read(iter(said))
    assert output.exit_code == 3
    assert log.getvalue() == "a\nb\n"
    ended = ContainerOutput(lambda line: None, log, "token")
    ended.read(iter([(b"the container ends first\n", None)]))
    assert ended.exit_code is None
