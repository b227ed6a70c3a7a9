import random
import subprocess
from pathlib import Path

import pytest

from splatfix.facts.source.git_files import gitlinks

COMMITS = {"submodules/knn": "1" * 40, "third_party/glm": "ab" * 20, "z": "0f" * 20}


def _index(folder: Path, version: int) -> Path:
    """The git folder of a real index with submodules between files of many lengths."""

    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)

    git("init", "-q")
    for count in range(1, 150, 7):
        (folder / ("n" * count)).write_text("x")
    git("add", "-A")
    git("add", "-N", ".")
    for path, commit in COMMITS.items():
        git("update-index", "--add", "--cacheinfo", f"160000,{commit},{path}")
    (folder / "later").write_text("x")
    git("add", "-N", "later")  # an entry with extended flags
    git("update-index", "--index-version", str(version))
    return folder / ".git"


@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_index_as_git_writes_it(tmp_path: Path, version: int) -> None:
    assert gitlinks(_index(tmp_path, version)) == COMMITS


@pytest.mark.parametrize("version", [2, 4])
def test_any_bytes_end_soon(tmp_path: Path, version: int) -> None:
    git, rng = _index(tmp_path, version), random.Random(version)
    whole = (git / "index").read_bytes()
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 8)):
            damaged[rng.randrange(8, len(damaged))] = rng.randrange(256)
        (git / "index").write_bytes(damaged)
        assert len(gitlinks(git)) < 100
