"""How far above its folder a build reaches, from build files of the shapes that real extensions have."""

import tempfile
from pathlib import Path

import pytest

from splatfix.facts.checkout import repository_of
from splatfix.facts.source.reach import levels_above
from tests.files import put
from tests.tables import data

TABLE = data(__file__)

HERE = "import os\nfrom pathlib import Path\nhere = os.path.dirname(os.path.abspath(__file__))\n"


def extension(root: Path, setup: str = "", **files: str) -> Path:
    return put(root / "bindings" / "torch", {"setup.py": setup, **files})


@pytest.mark.parametrize(("code", "levels"), TABLE["of-setup"])
def test_paths_of_setup_py(tmp_path: Path, code: str, levels: int) -> None:
    assert levels_above(extension(tmp_path, f"{HERE}{code}\n")) == levels


@pytest.mark.parametrize(("name", "text", "levels"), TABLE["of-others"])
def test_paths_of_other_files(tmp_path: Path, name: str, text: str, levels: int) -> None:
    assert levels_above(extension(tmp_path, **{name: text})) == levels


ABOVE = HERE + "root = os.path.dirname(here)\n"


def test_the_repository_is_copied_where_something_above_is_named(tmp_path: Path) -> None:
    clone, download, alone = (tmp_path / name for name in ("clone", "download", "alone"))
    folder = extension(clone, ABOVE)
    assert repository_of(folder) == folder.parent, "a ZIP: what it names"
    (clone / ".git").mkdir()
    assert repository_of(folder) == clone
    (folder / ".git").write_text("gitdir: elsewhere")
    assert repository_of(folder) == clone, "a submodule that names what is around it"
    assert repository_of(extension(download, HERE + "up = '../../..'\n")) == tmp_path
    assert repository_of(extension(alone, HERE)) == alone / "bindings" / "torch"


def test_never_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = extension(tmp_path / "home" / "repo", HERE + "up = '../../../../../../../../..'\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert repository_of(folder) != Path("/")
    assert not Path(tempfile.gettempdir()).is_relative_to(repository_of(folder))
    (tmp_path / "home" / ".git").mkdir()
    assert repository_of(folder).is_relative_to(tmp_path / "home" / "repo"), "a home folder kept in git"
