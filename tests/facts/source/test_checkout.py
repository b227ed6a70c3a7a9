"""Checkouts of our own making, with real git, read as text; nothing in them is executed."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from splatfix.checks.checkout.code_shapes import source_patterns
from splatfix.core.codec import from_json, to_json
from splatfix.facts.source.checkout import read_checkout
from splatfix.model import Checkout
from tests.files import put
from tests.tables import data

TABLE = data(__file__)
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder: Path, *words: str) -> str:
    names = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
    person = dict.fromkeys(names, "t@example.org")
    config = dict.fromkeys(("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"), os.devnull)
    argv = ["git", "-c", "protocol.file.allow=always", "-C", str(folder), *words]
    env = {**os.environ, **person, **config}
    return subprocess.run(argv, text=True, check=True, capture_output=True, env=env).stdout.strip()


def committed(root: Path, files: dict[str, str]) -> Path:
    """A repository with these files, in one commit more."""
    put(root, files)
    if not (root / ".git").exists():
        git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "one")
    return root


def read(root: Path) -> Checkout:
    found = read_checkout(root, source_patterns()).value
    assert from_json(Checkout, json.loads(json.dumps(to_json(found)))) == found
    return found


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return committed(tmp_path / "stack", {"train.py": "print(1)\n"})


@needs_git
def test_the_commit_is_that_of_git(repository: Path, tmp_path: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    assert read(repository).commit == head
    git(repository, "pack-refs", "--all")
    assert read(repository).commit == head, "also from packed-refs"
    git(repository, "checkout", "-q", "--detach")
    assert read(repository).commit == head
    git(repository, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    side = committed(tmp_path / "side", {"more.py": ""})
    assert read(side).commit == git(side, "rev-parse", "HEAD") != head


@needs_git
@pytest.mark.parametrize(("url", "told"), TABLE["remotes"])
def test_the_remote_without_credentials(repository: Path, url: str, told: str) -> None:
    git(repository, "remote", "add", "origin", url)
    assert read(repository).remote == told
    assert "secret" not in json.dumps(to_json(read(repository)))


@needs_git
def test_submodules_fetched_and_not(repository: Path, tmp_path: Path) -> None:
    setup = "setup(ext_modules=[CUDAExtension('simple_knn._C', [])])\n"
    other = committed(tmp_path / "knn", {"setup.py": setup})
    git(repository, "submodule", "add", "-q", str(other), "submodules/simple-knn")
    git(repository, "commit", "-q", "-m", "with knn")
    head = git(other, "rev-parse", "HEAD")
    (item,) = read(repository).submodules
    assert (item.path, item.empty, item.commit) == ("submodules/simple-knn", False, head)
    git(tmp_path, "clone", "-q", str(repository), "plain")
    (item,) = read(tmp_path / "plain").submodules
    assert (item.empty, item.commit) == (True, None)
    assert item.recorded == head, "git's index says which commit belongs there"


@needs_git
def test_a_submodule_that_gitmodules_lacks(repository: Path) -> None:
    for link in (f"{'5' * 40},submodules/lost", f"{'6' * 40},dgr/third_party/glm"):
        git(repository, "update-index", "--add", "--cacheinfo", f"160000,{link}")
    put(repository / "dgr", {".gitmodules": '[submodule "glm"]\npath = third_party/glm\nurl = ../glm\n'})
    found = read(repository).submodules
    assert {(item.path, item.url, item.listed, item.empty, item.recorded) for item in found} == {
        ("submodules/lost", "", False, True, "5" * 40),
        ("dgr/third_party/glm", "../glm", False, True, "6" * 40),
    }


@pytest.mark.parametrize(("files", "field", "told"), TABLE["submodules"])
def test_submodules(tmp_path: Path, files: dict[str, str], field: str, told: dict[str, object]) -> None:
    """Addresses are told without credentials, and who uses those that are empty."""
    found = read(put(tmp_path, files))
    assert found.commit is None
    assert {item.path: getattr(item, field) for item in found.submodules} == told


def test_pins(tmp_path: Path) -> None:
    found = read(put(tmp_path, TABLE["pins"]["files"])).pins
    assert {item.name: item.spec for item in found} == TABLE["pins"]["told"]
    put(tmp_path, dict.fromkeys(TABLE["pins"]["files"], ""))
    assert read(put(tmp_path, {"pyproject.toml": "[project\n"})).pins == ()


def test_sources_and_their_passages(tmp_path: Path) -> None:
    (item,) = read(put(tmp_path, TABLE["sources"])).sources
    assert (item.path, item.source.name) == ("submodules/dgr", "dgr")
    assert set(item.cxx_flags) == {"-std=c++14", "/std:c++17"}
    found = [("cfloat", "box.cu", 1), ("cub-functors", "forward.cu", 4), ("cstdint", "impl.h", 2)]
    assert [(one.breakage, one.file, one.line) for one in item.matches] == found
    # a local header may bring the include
    (item,) = read(put(tmp_path, {"submodules/dgr/width.h": "#include <stdint.h>\n"})).sources
    assert {one.breakage for one in item.matches} == {"cfloat", "cub-functors"}


def test_python_files(tmp_path: Path) -> None:
    """Also calls of a trainer's own Python; a package that the checkout holds itself is not asked of another."""
    found = read(put(tmp_path, TABLE["python"]))
    assert found.imports == ("diff_gaussian_rasterization", "simple_knn")
    (guarded,) = found.guarded
    assert (guarded.file, guarded.module, guarded.catches) == ("train.py", "fused_ssim", "everything")
    (call,) = found.calls
    assert (call.file, call.function) == ("gaussian_renderer/__init__.py", "render")
    assert (call.settings, call.unpacks) == (("bg", "debug"), 2)
    assert [Path(item.path).name for item in found.unreadable] == ["broken.py"]
    called = "from simple_knn._C import distCUDA2\nimport gsplat\ndistCUDA2(1)\ngsplat.rasterization(2)\n"
    (other,) = read(put(tmp_path, {"train.py": called, "gsplat/__init__.py": ""})).extension_calls
    assert (other.file, other.line, other.name) == ("train.py", 3, "distCUDA2")


def test_names_by_which_a_stack_is_known_and_shadows(tmp_path: Path) -> None:
    names = ["train.py", "utils/taming_utils.py", "submodules/x/setup.py", "private/photo.jpg", ".hidden"]
    names += ["simple_knn/__init__.py", "fused_ssim/ssim.cu", "gsplat.py"]
    found = read(put(tmp_path, dict.fromkeys(names, "")))
    assert {"train.py", "utils", "utils/taming_utils.py", "submodules/x", "private"} <= set(found.paths)
    assert not any("photo" in path or "hidden" in path for path in found.paths)
    assert {item.module for item in found.shadows} == {"simple_knn", "gsplat"}


def test_nothing_is_executed(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    trap = f"open({str(mark)!r}, 'w')\nimport gsplat\n"
    read(put(tmp_path / "r", {"train.py": trap, "setup.py": trap, "conftest.py": trap}))
    assert not mark.exists()


@pytest.mark.parametrize(("flag", "own"), TABLE["flags"])
def test_a_path_of_its_own_in_the_flags(tmp_path: Path, flag: str, own: bool) -> None:
    setup = "import os\nhere = os.path.dirname(os.path.abspath(__file__))\n"
    setup += f'setup(ext_modules=[CUDAExtension("dgr._C", [], extra_compile_args={{"nvcc": [{flag}]}})])\n'
    (item,) = read(put(tmp_path, {"submodules/dgr/setup.py": setup})).sources
    assert item.own_path_in_flags is own


@pytest.mark.parametrize(("line", "name", "address"), TABLE["from-git"])
def test_a_requirement_that_git_brings(tmp_path: Path, line: str, name: str, address: str) -> None:
    (pin,) = read(put(tmp_path, {"requirements.txt": f"{line}\n"})).pins
    assert (pin.name, pin.spec, pin.address) == (name, "", address)


def test_a_package_that_compiles_nothing_itself(tmp_path: Path) -> None:
    setup = "from setuptools import setup\nsetup(name='nets', install_requires=['h5py'])\n"
    found = read(put(tmp_path, {"setup.py": setup, "nets/__init__.py": ""}))
    assert found.package and found.package.requires == ("h5py",) and not found.sources
    compiled = "from setuptools import setup, Extension\nsetup(ext_modules=[Extension('a', ['a.c'])])\n"
    assert read(put(tmp_path, {"setup.py": compiled})).package is None
