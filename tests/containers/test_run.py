from __future__ import annotations

import io
import tarfile
from pathlib import Path

from splatfix.containers.run import _Output, unpack_report


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
    output = _Output(progress.append, log, "token")
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
    assert output.last_lines() == ('{"a": 1}', "training scene 1", "café", "no newline https://u:***@host")


def test_last_lines_are_kept() -> None:
    output = _Output(lambda line: None, io.StringIO(), "token")
    output.feed(b"", b"".join(b"%d\n" % n for n in range(1000)))
    assert output.last_lines() == tuple(str(n) for n in range(980, 1000))


def test_the_exit_code_is_told_behind_everything_else() -> None:
    log = io.StringIO()
    output = _Output(lambda line: None, log, "token")
    said = [(b"a\nb", None), (None, b"token 3\n"), (b"token 3\n", None), (b"never read", None)]
    output.read(iter(said))
    assert output.exit_code == 3
    assert log.getvalue() == "a\nb\n"
    ended = _Output(lambda line: None, log, "token")
    ended.read(iter([(b"the container ends first\n", None)]))
    assert ended.exit_code is None
