"""`splatfix cache`: what is kept, where, and what could not be removed."""

import datetime
import io
import json
from pathlib import Path

import pytest
import typer
from rich.console import Console

from splatfix.cli.install import clear
from splatfix.core.scratch import temporary_folder
from splatfix.install import WheelCache
from tests.conftest import Splatfix
from tests.files import contents, put


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelCache:
    """One with a wheel in it, at a place whose name a markup would swallow."""
    monkeypatch.setenv("SPLATFIX_CACHE", str(tmp_path / "cache [/old]"))
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    wheel.write_bytes(b"x" * 2048)
    made = WheelCache()
    made.put("a1", wheel, {"torch": "2.13.0 x"})
    return made


def test_it_is_listed_and_cleared_by_its_name(cache: WheelCache, splatfix: Splatfix) -> None:
    assert f"1 wheel in {cache.folder}" in splatfix("cache", "list").stdout
    document = json.loads(splatfix("cache", "list", "--json").stdout)
    assert (document["command"], len(document["wheels"])) == ("cache list", 1)
    assert splatfix("cache", "clear").stdout == f"Removed 1 wheel from {cache.folder}\n"
    assert splatfix("cache", "clear").stdout == f"Removed 0 wheels from {cache.folder}\n"


def test_wheels_of_one_name_are_apart_and_removable(
    cache: WheelCache, splatfix: Splatfix, tmp_path: Path
) -> None:
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    cache.put("b2" * 16, wheel, {"torch": "2.11.0+cu130 x"}, "someone/tiny at 0123456789")
    other = tmp_path / "other_probe-2.0-py3-none-any.whl"
    other.write_bytes(b"y")
    cache.put("c3", other, {"torch": ""})
    today = datetime.datetime.now(datetime.timezone.utc).date()
    listed = splatfix("cache", "list").stdout
    assert f"torch 2.11.0+cu130; from someone/tiny at 0123456789; made {today}; key b2b2b2b2" in listed
    assert f"torch 2.13.0; made {today}; key a1" in listed, "an entry without a source has no row"
    assert splatfix("cache", "clear", "b2b2b2b2").returncode == 0
    assert {one.key for one in cache.entries()} == {"a1", "c3"}
    assert splatfix("cache", "clear", "Other.Probe").returncode == 0
    assert splatfix("cache", "clear", "nothing").returncode == 2
    assert [one.key for one in cache.entries()] == ["a1"]


def test_all_that_is_kept_is_cleared_and_nothing_else(
    cache: WheelCache, splatfix: Splatfix, tmp_path: Path
) -> None:
    kept, elsewhere = cache.folder.parent, put(tmp_path / "elsewhere", {"knn-sm_120-0.cubin": "theirs"})
    ours = ("toolkits/cuda-13.0/bin/nvcc", "sources/gsplat-1.5.3/setup.py", "kernels/13.0/knn-sm_120-0.cubin")
    put(kept, dict.fromkeys((*ours, "sources/mine/setup.py", "toolkits/README"), "x" * (1 << 20)))
    (kept / "kernels" / "12.8").symlink_to(elsewhere)
    assert splatfix("cache", "clear", "tiny").returncode == 0 and (kept / ours[0]).is_file()
    assert "toolkits, sources and kernels 3.0 MiB" in splatfix("cache", "list").stdout
    with temporary_folder(".making-", kept / "toolkits") as alive:
        put(kept, {"toolkits/.making-dead/half": "x", "sources/.fetching-dead/half": "x"})
        said = splatfix("cache", "clear").stdout
        assert alive.is_dir()
    assert "and 3.0 MiB of toolkits, sources and kernels" in " ".join(said.split())
    left = {path.relative_to(kept).as_posix() for path in kept.rglob("*") if not path.is_dir()}
    assert left == {"sources/mine/setup.py", "toolkits/README"} and len(contents(elsewhere)) == 1
    put(kept, {ours[2]: "x"})
    assert json.loads(splatfix("cache", "clear", "--json").stdout)["others"] == [str(kept / ours[2])]


def test_a_terminal_is_asked_first(
    cache: WheelCache, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("what?\n\ny\n"))
    monkeypatch.setattr("splatfix.report.console.out", lambda: Console(force_terminal=True, highlight=False))
    with pytest.raises(typer.Abort):
        clear()
    shown = capsys.readouterr().out
    assert shown.count("Remove 1 wheel,") == 2 and shown.count("[y/N]: ") == 2
    assert len(cache.entries()) == 1
    with pytest.raises(typer.Exit):
        clear()
    assert not cache.entries()


def test_yes_is_not_asked(cache: WheelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr("splatfix.report.console.out", lambda: Console(force_terminal=True))
    with pytest.raises(typer.Exit):
        clear(yes=True)
    assert not cache.entries()
