from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from splatfix.core.errors import SplatfixError
from splatfix.core.runner import Completed, ProcessRunner
from splatfix.install import fetch_source


class FakePip(ProcessRunner):
    """Leaves an sdist with these members where pip was told to; None: it fails."""

    def __init__(self, members: dict[str, str] | None) -> None:
        self.members, self.calls = members, 0

    def run(self, argv: Sequence[Any], **options: Any) -> Completed:
        self.calls += 1
        assert options["env"]["BUILD_NO_CUDA"] == "1" and "--no-deps" in argv
        if self.members is None:
            return Completed(
                tuple(argv), 1, "", "ERROR: No matching distribution found for gsplat==9.9.9\n", 0.1
            )
        with tarfile.open(Path(argv[argv.index("--dest") + 1]) / "gsplat-1.5.3.tar.gz", "w:gz") as tar:
            for name, text in self.members.items():
                member = tarfile.TarInfo(name)
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text.encode()))
        return Completed(tuple(argv), 0, "", "", 0.1)


SDIST = {"gsplat-1.5.3/setup.py": "setup()", "gsplat-1.5.3/gsplat/cuda/csrc/a.cu": ""}


def test_fetched_once_and_unpacked_into_the_cache(tmp_path: Path) -> None:
    pip = FakePip(SDIST)
    folder = Path(fetch_source("gsplat==1.5.3", "python", runner=pip, cache=tmp_path))
    assert folder == tmp_path / "sources" / "gsplat-1.5.3"
    assert (folder / "setup.py").read_text() == "setup()" and (folder / "gsplat/cuda/csrc/a.cu").is_file()
    assert (
        fetch_source("gsplat==1.5.3", "python", runner=pip, cache=tmp_path) == str(folder) and pip.calls == 1
    )
    assert [path.name for path in (tmp_path / "sources").iterdir()] == ["gsplat-1.5.3"]


@pytest.mark.parametrize(
    "text", [".", "gsplat", "path/to/gsplat==1.5.3", "numpy==2.0", "simple_knn", "gsplat==1.5.*"]
)
def test_everything_else_is_no_business_of_its(text: str, tmp_path: Path) -> None:
    pip = FakePip(None)
    assert fetch_source(text, "python", runner=pip, cache=tmp_path) == text and pip.calls == 0


@pytest.mark.parametrize(
    ("members", "words"),
    [
        (None, "No matching distribution"),
        ({"gsplat-1.5.3/README": ""}, "holds no setup.py"),
        ({"a/setup.py": "", "b/setup.py": ""}, "holds 2 setup.py"),
        ({"../evil.py": "", "gsplat-1.5.3/setup.py": ""}, "outside"),
    ],
)
def test_what_cannot_be_used_is_said_and_nothing_stays(
    members: dict[str, str] | None, words: str, tmp_path: Path
) -> None:
    with pytest.raises(SplatfixError) as caught:
        fetch_source("gsplat==1.5.3", "python", runner=FakePip(members), cache=tmp_path / "cache")
    assert caught.value.code == "source-not-fetched" and words in caught.value.what
    assert list((tmp_path / "cache" / "sources").iterdir()) == [] and not (tmp_path / "evil.py").exists()
