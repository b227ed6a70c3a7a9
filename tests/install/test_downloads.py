"""Providing a toolkit: whole or not at all, whatever pip, the network or the wheels do."""

import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from splatfix.core.resources import TOOLKIT_MARKER
from splatfix.core.runner import Completed, Runner
from splatfix.install import fetch_source
from splatfix.install.downloads import _PROBE, Pip, provide_toolkit
from splatfix.install.wheels import write_wheel
from splatfix.plan import ProvideToolkit
from tests.files import put
from tests.plan.machines import refused
from tests.tables import data
from tests.wheels.forge import serving, write_page

WHEELS = {"cuda_toolkit-13.0.2-py3-none-any.whl": b"meta", "nvidia_nvvm-13.0.88-py3-none-any.whl": b"nvvm"}
KNOWN = "b198824cf2f54003f50d64ada3a0f184b42ca0846c1c94192fa269ecd97a66eb"  # of cuda-toolkit 13.0.2


class FakePip(Runner):
    """Leaves the wheels' files where pip was told to; ``without`` is what they lack, ``nvcc`` is how its probe ends."""

    def __init__(
        self, *, fails: bool = False, without: str = "", nvcc: int = 0, interrupted: bool = False
    ) -> None:
        self.fails, self.without, self.nvcc, self.interrupted = fails, without, nvcc, interrupted
        self.calls, self.lock = 0, list[str]()

    def run(self, argv: Sequence[Any], **options: Any) -> Completed:
        self.calls += 1
        if self.interrupted:
            raise KeyboardInterrupt
        if "download" in argv:
            put(Path(argv[argv.index("--dest") + 1]), WHEELS)
        elif "--target" in argv:
            assert {"--require-hashes", "--no-index", "--no-deps"} <= set(argv)
            self.lock = Path(argv[argv.index("--requirement") + 1]).read_text().splitlines()
            root = Path(argv[argv.index("--target") + 1]) / "nvidia" / "cu13"
            # the wheel has the versioned name of libcudart only
            names = {*_PROBE["needed"], "lib/libcudart.so.13"} - {self.without, "lib/libcudart.so"}
            put(root, dict.fromkeys(names, ""))
        else:
            said = "" if self.nvcc == 0 else "ptxas fatal : Unsupported .version 9.5\n"
            return Completed(tuple(argv), self.nvcc, "", said, 0.1)
        said = "ERROR: No matching distribution found\n" if self.fails else ""
        return Completed(tuple(argv), int(self.fails), said, "", 0.1)


@pytest.fixture
def step(tmp_path: Path) -> ProvideToolkit:
    folder = tmp_path / "toolkits" / "cuda-13.0"
    return ProvideToolkit(
        cuda="13.0",
        unpacked_gb=1.5,
        folder=str(folder),
        root=str(folder / "nvidia/cu13"),
        requirements=("cuda-toolkit==13.0.2",),
        links=(("lib/libcudart.so", "libcudart.so.13"), ("lib64", "lib")),
    )


def provide(step: ProvideToolkit, runner: Runner) -> tuple[Path, str]:
    """Its root and digest, by a pip that this runs."""
    pip = Pip((sys.executable, "-m", "pip"), runner, Path(step.folder).parents[1] / "log.txt")
    return provide_toolkit(step, pip, lambda _: None)


def test_made_mended_and_marked(step: ProvideToolkit) -> None:
    """Exactly what was downloaded is installed, by the hash that the tables know, else by that of the file."""
    runner, folder = FakePip(), Path(step.folder)
    half = "nvidia/cu13/half"
    put(folder, {half: "of a run that was killed: there is no marker"})
    root, digest = provide(step, runner)
    assert not (folder / half).exists()
    assert (root / "lib/libcudart.so").resolve().name == "libcudart.so.13" and (root / "lib64").is_symlink()
    assert (root / "bin/nvcc").stat().st_mode & 0o111 == 0o111
    locked = {"cuda-toolkit==13.0.2": KNOWN, "nvidia-nvvm==13.0.88": hashlib.sha256(b"nvvm").hexdigest()}
    assert runner.lock == [f"{pin} --hash=sha256:{value}" for pin, value in locked.items()]
    assert json.loads((folder / TOOLKIT_MARKER).read_text())["wheels"] == locked
    assert len(digest) == 64 and not list(folder.rglob("*.whl")) and runner.calls == 3
    assert provide(step, runner) == (root, digest)
    assert runner.calls == 3, "it was made twice"


def test_known_hash_is_held(step: ProvideToolkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the real pip, of a cuda-toolkit 13.0.2 whose bytes are not those of the table."""
    wheel = write_wheel(tmp_path / "index", "cuda-toolkit", "13.0.2", {}, "not the real one")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr("splatfix.install.downloads._UNSET", set())
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    assert refused(provide, step, Runner()).code == "toolkit-not-provided"
    assert "HASHES" in (tmp_path / "log.txt").read_text()
    assert list(Path(step.folder).parent.iterdir()) == []


@pytest.mark.parametrize(
    ("runner", "words"),
    [
        (FakePip(fails=True), "No matching distribution"),
        (FakePip(without="include/cccl/cub/cub.cuh"), "left out include/cccl/cub/cub.cuh"),
        (FakePip(nvcc=1), "Unsupported .version 9.5"),
    ],
)
def test_nothing_stays_of_one_that_failed(step: ProvideToolkit, runner: FakePip, words: str) -> None:
    error = refused(provide, step, runner)
    assert error.code == "toolkit-not-provided" and words in error.what
    assert list(Path(step.folder).parent.iterdir()) == []
    with pytest.raises(KeyboardInterrupt):
        provide(step, FakePip(interrupted=True))
    assert list(Path(step.folder).parent.iterdir()) == []


REAL_PIP = Pip((sys.executable, "-m", "pip"), Runner())
SDIST = {
    "gsplat-1.5.3/setup.py": "open('ran', 'w')\nraise SystemExit(__file__)",
    "gsplat-1.5.3/gsplat/cuda/csrc/a.cu": "",
    "gsplat-1.5.3/link": None,
}


def sdist_in(folder: Path, members: Mapping[str, str | None]) -> None:
    """A simple index with one archive, and its digest; a member without a text is a link to ``/``."""
    archive = put(folder / "gsplat", {"gsplat-1.5.3.tar.gz": b""}) / "gsplat-1.5.3.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, text in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(text or "")
            if text is None:
                member.type, member.linkname = tarfile.SYMTYPE, "/"
            tar.addfile(member, io.BytesIO((text or "").encode()))
    write_page(folder / "gsplat" / "index.html", {archive.name: archive.name}, digests="sha512")


@pytest.fixture
def look_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Tell pip by these variables where to look, and only there."""

    def look(**variables: str) -> None:
        config = put(tmp_path, {"pip.conf": ""}) / "pip.conf"
        for name, value in {"PIP_CONFIG_FILE": str(config), "PIP_FIND_LINKS": "", **variables}.items():
            monkeypatch.setenv(name, value)

    return look


def test_fetched_once_and_unpacked_into_the_cache(tmp_path: Path, look_in: Callable[..., None]) -> None:
    """The real pip says where, from an index with a login, one of this machine, or a folder; nothing of it is run."""
    sdist_in(tmp_path / "index", SDIST)
    with serving(tmp_path / "index") as server:
        server.login = "Basic dTpzM2NyZXQ="
        ways = (
            {"PIP_INDEX_URL": server.address.replace("://", "://u:s3cret@")},
            {"PIP_INDEX_URL": (tmp_path / "index").as_uri()},
            {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "index" / "gsplat")},
        )
        for number, variables in enumerate(ways):
            look_in(**variables)
            cache = tmp_path / str(number)
            for _ in range(2):
                made = fetch_source("gsplat==1.5.3", sys.executable, pip=REAL_PIP, cache=cache)
                assert made == str(cache / "sources" / "gsplat-1.5.3")
                look_in(PIP_INDEX_URL="file:///nowhere")
            assert {path.name for path in Path(made).rglob("*") if path.is_file()} == {"a.cu", "setup.py"}
            assert [path.name for path in (cache / "sources").iterdir()] == ["gsplat-1.5.3"]


@pytest.mark.parametrize(
    "text", [".", "gsplat", "path/to/gsplat==1.5.3", "numpy==2.0", "simple_knn", "gsplat==1.5.*"]
)
def test_everything_else_is_no_business_of_its(text: str, tmp_path: Path) -> None:
    assert fetch_source(text, "no-such-python", cache=tmp_path) == text


@pytest.mark.parametrize(("members", "words"), data(__file__)["useless"])
def test_what_cannot_be_used_is_said_and_nothing_stays(
    members: dict[str, str], words: str, tmp_path: Path, look_in: Callable[..., None]
) -> None:
    if members:
        sdist_in(tmp_path / "index", members)
    look_in(PIP_INDEX_URL=(tmp_path / "index").as_uri())
    how = {"pip": REAL_PIP, "cache": tmp_path / "cache"}
    error = refused(fetch_source, "gsplat==1.5.3", sys.executable, **how)
    assert error.code == "source-not-fetched" and words in error.what
    assert list((tmp_path / "cache" / "sources").iterdir()) == [] and not (tmp_path / "evil.py").exists()


def test_a_toolkit_that_others_can_change_is_not_run(step: ProvideToolkit) -> None:
    runner, folder = FakePip(), Path(step.folder)
    nvcc = provide(step, runner)[0] / "bin" / "nvcc"
    nvcc.write_text("evil")
    folder.chmod(0o755)
    nvcc.chmod(0o777)
    assert provide(step, runner) and nvcc.read_text() == "", "it was made anew"
    folder.parent.chmod(0o777)
    assert refused(provide, step, runner).code == "cache-not-private"
