"""What somebody else can have written is not used."""

import os
from pathlib import Path

import pytest

from splatfix.install.trust import distrust, private_cache
from tests.files import put
from tests.plan.machines import refused

pytestmark = pytest.mark.skipif(os.name != "posix", reason="owners and modes as POSIX has them")
EACH = pytest.mark.parametrize("name", [".", "entry", "entry/file"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = put(tmp_path / "cache", {"entry/file": "content"})
    for path in (made, made / "entry"):
        path.chmod(0o755)
    return made


def test_our_own_is_trusted_and_a_link_in_its_place_is_not(folder: Path, tmp_path: Path) -> None:
    (folder / "link").symlink_to("entry")
    assert distrust(folder) == "" == distrust(folder / "not-there")
    (tmp_path / "link").symlink_to(folder)
    assert "is a link" in distrust(tmp_path / "link")
    # where nobody else enters, modes inside do not count
    (folder / "entry" / "file").chmod(0o666)
    assert distrust(folder)
    folder.chmod(0o700)
    assert distrust(folder) == ""


@pytest.mark.parametrize("mode", [0o020, 0o002])
@EACH
def test_what_others_can_write_is_not(folder: Path, name: str, mode: int) -> None:
    path = folder / name
    path.chmod(path.stat().st_mode | mode)
    assert distrust(folder) == f"{path} can be written by others"
    assert bool(distrust(folder, inside=False)) is (name == ".")


@EACH
@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_other_owners_than_root(folder: Path, name: str, mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.chmod(mode)
    if os.getuid() != 0:
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    else:
        with monkeypatch.context() as patch:
            patch.setattr(os, "getuid", lambda: 12345)
            assert distrust(folder) == "", "what root has put there serves all"
        os.chown(folder / name, 12345, -1)
    assert "belongs to another user" in distrust(folder)


def test_a_private_cache_is_made_and_insisted_on(tmp_path: Path) -> None:
    made = private_cache("toolkits", tmp_path / "new")
    assert made.stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_text("")
    error = refused(private_cache, "toolkits", tmp_path / "file")
    assert error.code == "cannot-write" and "SPLATFIX_CACHE" in error.todo[0].line()
    made.chmod(0o777)
    error = refused(private_cache, "toolkits", tmp_path / "new")
    assert error.code == "cache-not-private" and error.todo[0].command
    assert error.todo[0].command.argv == ("chmod", "-R", "go-w", str(made))
