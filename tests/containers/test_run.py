from __future__ import annotations

import io
import tarfile
from pathlib import Path

from splatfix.containers.run import _Said, unpack_report


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


def test_the_report_comes_out_as_it_lay_there(tmp_path: Path) -> None:
    tar = archive(
        member("report", kind=tarfile.DIRTYPE),
        member("report/certificate.json", b"{}"),
        member("report/images", kind=tarfile.DIRTYPE),
        member("report/images/a.png", b"png"),
    )
    written = unpack_report(tar, tmp_path / "out")
    assert written == (tmp_path / "out/certificate.json", tmp_path / "out/images/a.png")
    assert (tmp_path / "out/images/a.png").read_bytes() == b"png"


def test_nothing_is_written_outside_and_no_link_is_made(tmp_path: Path) -> None:
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


def test_lines_are_told_whole_and_only_from_stderr() -> None:
    told: list[str] = []
    said = _Said(told.append)
    said.hear(b"{", b"training sc")
    said.hear(b'"a": 1}\n', b"ene 1\r\ncaf\xc3")
    said.hear(b"", b"\xa9\nno newline")
    assert told == ["training scene 1", "café"]
    assert said.last_lines() == ('{"a": 1}', "training scene 1", "café", "no newline")


def test_only_the_end_is_kept() -> None:
    said = _Said(lambda line: None)
    said.hear(b"", b"".join(b"%d\n" % n for n in range(1000)))
    assert said.last_lines() == tuple(str(n) for n in range(980, 1000))
