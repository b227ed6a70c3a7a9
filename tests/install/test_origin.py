from __future__ import annotations

from pathlib import Path

from splatfix.install.wheel_cache import origin_of

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def clone(folder: Path, url: str = "") -> Path:
    """git's own files of a checkout, as far as they are read."""
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text(COMMIT + "\n")
    (folder / ".git" / "config").write_text(f'[remote "origin"]\n\turl = {url}\n' if url else "")
    return folder


def test_a_clone_is_told_by_its_repository_and_commit(tmp_path: Path) -> None:
    for number, url in enumerate(
        ("https://host.example/someone/tiny.git", "git@host.example:someone/tiny.git")
    ):
        folder = clone(tmp_path / str(number), url)
        assert origin_of(folder) == "someone/tiny at 0123456789"
        (folder / "submodules" / "knn").mkdir(parents=True)
        assert origin_of(folder / "submodules" / "knn") == "someone/tiny/submodules/knn at 0123456789"


def test_without_a_repository_the_folder_is_told(tmp_path: Path) -> None:
    assert origin_of(clone(tmp_path / "mine")) == f"{tmp_path / 'mine'} at 0123456789"
    (tmp_path / "plain").mkdir()
    assert origin_of(tmp_path / "plain") == str(tmp_path / "plain")
