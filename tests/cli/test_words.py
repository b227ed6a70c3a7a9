"""Names of strangers in what is printed and saved: readable, obeyed by no terminal, and exact in JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from splatfix.app.interrupts import environment_state
from splatfix.app.result import show_message
from tests.conftest import Splatfix
from tests.hostile.words import NAMES, write_speaking_checkout

OTHERS = sorted(NAMES.keys() - {"escape", "newline", "undecodable"})

pytestmark = pytest.mark.skipif(os.name != "posix", reason="names as POSIX has them")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repo")
    write_speaking_checkout(folder)
    return folder


def plain(text: str) -> bool:
    return all(sign.isprintable() or sign == "\n" for sign in text)


@pytest.mark.parametrize("words", [("-v",), ("--json",)])
def test_diagnose_shows_them(splatfix: Splatfix, checkout: Path, words: tuple[str, ...]) -> None:
    done = splatfix("diagnose", "--repo", checkout, *words)
    assert done.returncode in (1, 3) and plain(done.stdout + done.stderr)
    assert "u001b[31m" in done.stdout if words == ("--json",) else "submodules/m0a\\x1b[31mb" in done.stdout


def test_json_has_the_exact_names(splatfix: Splatfix, checkout: Path, tmp_path: Path) -> None:
    saved = tmp_path / "facts.json"
    done = splatfix("diagnose", "--repo", checkout, "--json", "--save", saved)
    for facts in (json.loads(done.stdout)["facts"], json.loads(saved.read_text(encoding="utf-8"))):
        unread = {item["path"] for item in facts["checkout"]["value"]["unreadable"]}
        assert unread == {f"{checkout}/broken{name}.py" for name in NAMES.values()}
    again = splatfix("diagnose", "--facts", saved)
    assert again.returncode in (1, 3) and plain(again.stdout + again.stderr)


# the newline looks like advice of splatfix's own; the rest of the names are tried where each is read
@pytest.mark.parametrize(
    "name",
    [*("escape", "newline", "undecodable"), *(pytest.param(n, marks=pytest.mark.slow) for n in OTHERS)],
)
def test_install_shows_them(splatfix: Splatfix, checkout: Path, name: str) -> None:
    source = checkout / "submodules" / NAMES[name]
    done = splatfix("install", source, "--dry-run", "--why", "--target", "sm_90")
    assert plain(done.stdout + done.stderr) and done.returncode == 1 and "(source-incomplete)" in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("certify", "--device", "\x1b[31m\u202e"), "--device"),
        (("--kno\x1bwledge",), "No such option"),
        (("no\x9bcommand",), "no\\x9bcommand"),
        (("diagnose", "--explain", "\x1b[2J"), "unknown-check"),
        (("inspect", b"\xff\x1b"), "no-such-file"),
        (("diagnose", "--python", "/x\x07"), "no-interpreter"),
        (("diagnose", "--repo", "\x1b" * 300), "name-too-long"),
        (("report", "show", "x" * 5000), "name-too-long"),
    ],
)
def test_wrong_words_are_shown(splatfix: Splatfix, words: tuple[str | bytes, ...], code: str) -> None:
    done = splatfix(*map(os.fsdecode, words))
    assert done.returncode == 2 and done.stdout == "" and plain(done.stderr)
    assert code in done.stderr


def test_json_is_utf_8_whatever_the_encoding(tmp_path: Path) -> None:
    place = tmp_path / "ü✓\udcff"
    place.mkdir()
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "XDG_CACHE_HOME": str(place)}
    said = subprocess.check_output([sys.executable, "-m", "splatfix", "cache", "list", "--json"], env=env)
    assert json.loads(said.decode("utf-8"))["folder"].startswith(str(place))


def test_a_traceback_is_shown_without_control(
    splatfix: Splatfix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splatfix.app.diagnose.diagnose", _broken)
    done = splatfix("--debug", "diagnose")
    assert done.returncode == 3 and plain(done.stderr)
    assert "Traceback" in done.stderr and "in _broken" in done.stderr and "(internal-error)" in done.stderr
    assert "\\x1b[31m https://u:***@host" in done.stderr


def test_a_machine_without_memory_is_no_bug(splatfix: Splatfix, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("splatfix.app.diagnose.run_checks", run)
    done = splatfix("diagnose")
    assert done.returncode == 3 and "(out-of-memory)" in done.stderr


def _broken(*_: object, **__: object) -> None:
    raise RuntimeError("\x1b[31m https://u:secret@host \udcff")


def test_a_state_after_an_interrupt_adds_no_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / NAMES["newline"].replace("/", "") / "env\x1b"
    folder.mkdir(parents=True)
    show_message(environment_state(folder, str(folder / "bin/python"))())
    said = capsys.readouterr().err
    assert plain(said) and [line for line in said.splitlines() if line.lstrip().startswith("$")] == []
    assert "\\n  → run\\n    $ rm -rf ~" in said
