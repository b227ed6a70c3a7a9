"""`splatfix cache`: what is kept, where, and what could not be removed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from splatfix.cli.cache import clear
from splatfix.core.errors import SplatfixError
from splatfix.install import WheelCache

Splatfix = Callable[..., "subprocess.CompletedProcess[str]"]


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
    assert f"1 wheel(s) in {cache.folder}" in splatfix("cache", "list").stdout
    document = json.loads(splatfix("cache", "list", "--json").stdout)
    assert (document["schema_version"], len(document["wheels"])) == (1, 1)
    assert splatfix("cache", "clear").stdout == f"1 wheel(s) removed from {cache.folder}\n"
    assert splatfix("cache", "clear").stdout == f"0 wheel(s) removed from {cache.folder}\n"


def test_what_could_not_be_removed_is_no_success(cache: WheelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.rmtree", lambda *words, **options: None)
    with pytest.raises(SplatfixError, match="could not be removed") as caught:
        clear()
    assert int(caught.value.exit_code) == 1
