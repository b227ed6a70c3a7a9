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
GIT_ENV = {
    "GIT_AUTHOR_NAME": "t",
    "GIT_AUTHOR_EMAIL": "t@example.org",
    "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *words],
        cwd=folder,
        text=True,
        check=True,
        capture_output=True,
        env={**os.environ, **GIT_ENV},
    )
    return done.stdout.strip()


def read(root: Path) -> Checkout:
    found = read_checkout(root, source_patterns()).value
    assert from_json(Checkout, json.loads(json.dumps(to_json(found)))) == found
    return found


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = put(tmp_path / "stack", {"train.py": "print(1)\n"})
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "one")
    return root


@needs_git
def test_the_commit_is_that_of_git(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    assert read(repository).commit == head
    git(repository, "pack-refs", "--all")
    assert read(repository).commit == head, "also from packed-refs"
    git(repository, "checkout", "-q", "--detach")
    assert read(repository).commit == head


@needs_git
def test_a_worktree_knows_its_commit(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    put(tmp_path / "side", {"more.py": ""})
    git(tmp_path / "side", "add", ".")
    git(tmp_path / "side", "commit", "-q", "-m", "two")
    assert read(tmp_path / "side").commit == git(tmp_path / "side", "rev-parse", "HEAD")


@needs_git
@pytest.mark.parametrize(("url", "told"), TABLE["remotes"])
def test_the_remote_without_credentials(repository: Path, url: str, told: str) -> None:
    git(repository, "remote", "add", "origin", url)
    assert read(repository).remote == told
    assert "secret" not in json.dumps(to_json(read(repository)))


@needs_git
def test_submodules_fetched_and_not(repository: Path, tmp_path: Path) -> None:
    other = put(tmp_path / "knn", {"setup.py": "setup(ext_modules=[CUDAExtension('simple_knn._C', [])])\n"})
    git(other, "init", "-q", "-b", "main")
    git(other, "add", ".")
    git(other, "commit", "-q", "-m", "knn")
    git(repository, "submodule", "add", "-q", str(other), "submodules/simple-knn")
    git(repository, "commit", "-q", "-m", "with knn")
    (item,) = read(repository).submodules
    assert (item.path, item.empty) == ("submodules/simple-knn", False)
    assert item.commit == git(other, "rev-parse", "HEAD")
    git(tmp_path, "clone", "-q", str(repository), "plain")
    (item,) = read(tmp_path / "plain").submodules
    assert (item.empty, item.commit) == (True, None)
    assert item.recorded == git(other, "rev-parse", "HEAD"), "git's index says which commit belongs there"


@needs_git
def test_a_submodule_that_gitmodules_lacks(repository: Path) -> None:
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{'5' * 40},submodules/lost")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{'6' * 40},dgr/third_party/glm")
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
    requirements = "torch == 2.1.2 ; python_version < '3.12'\n-r other.txt\n# no\ngsplat[dev]~=1.4\n./local\n"
    found = read(
        put(tmp_path / "r", {"environment.yml": TABLE["texts"]["conda"], "requirements.txt": requirements})
    )
    pins = {item.name: item.spec for item in found.pins}
    assert pins == {
        "cudatoolkit": "==11.6",
        "plyfile": "",
        "python": "==3.7.13",
        "pytorch": "==1.12.1",
        "open3d": "==0.18.0",
        "opencv-python": ">=4,<5",
        "torch": "==2.1.2",
        "gsplat": "~=1.4",
    }


def test_sources_and_their_passages(tmp_path: Path) -> None:
    (item,) = read(put(tmp_path / "r", TABLE["sources"])).sources
    assert (item.path, item.source.name) == ("submodules/dgr", "dgr")
    assert set(item.cxx_flags) == {"-std=c++14", "/std:c++17"}
    assert [(one.breakage, one.file, one.line) for one in item.matches] == [
        ("cfloat", "box.cu", 1),
        ("cub-functors", "forward.cu", 4),
        ("cstdint", "impl.h", 2),
    ]
    put(tmp_path / "r", {"submodules/dgr/width.h": "#include <stdint.h>\n"})
    (item,) = read(tmp_path / "r").sources
    assert {one.breakage for one in item.matches} == {"cfloat", "cub-functors"}, (
        "a local header may bring the include"
    )


def test_python_files(tmp_path: Path) -> None:
    found = read(put(tmp_path / "r", TABLE["python"]))
    assert found.imports == ("diff_gaussian_rasterization", "simple_knn")
    assert [(item.file, item.module, item.catches) for item in found.guarded] == [
        ("train.py", "fused_ssim", "everything")
    ]
    (call,) = found.calls
    assert (call.file, call.function, call.settings, call.unpacks) == (
        "gaussian_renderer/__init__.py",
        "render",
        ("bg", "debug"),
        2,
    )
    assert [Path(item.path).name for item in found.unreadable] == ["broken.py"]


def test_calls_of_other_extensions(tmp_path: Path) -> None:
    """Also told of a trainer's own Python; a package that the checkout holds itself is not asked of another."""
    files = {
        "train.py": "from simple_knn._C import distCUDA2\nimport gsplat\ndistCUDA2(1)\ngsplat.rasterization(2)\n",
        "gsplat/__init__.py": "",
    }
    (call,) = read(put(tmp_path / "r", files)).extension_calls
    assert (call.file, call.line, call.name) == ("train.py", 3, "distCUDA2")


def test_names_by_which_a_stack_is_known(tmp_path: Path) -> None:
    files = {
        "train.py": "",
        "utils/taming_utils.py": "",
        "submodules/x/setup.py": "",
        "private/photo.jpg": "",
        ".hidden": "",
    }
    found = read(put(tmp_path / "r", files))
    assert {"train.py", "utils", "utils/taming_utils.py", "submodules/x", "private"} <= set(found.paths)
    assert not any("photo" in path or "hidden" in path for path in found.paths)


def test_shadows_in_the_checkout(tmp_path: Path) -> None:
    found = read(
        put(tmp_path / "r", {"simple_knn/__init__.py": "", "fused_ssim/ssim.cu": "", "gsplat.py": ""})
    )
    assert {item.module for item in found.shadows} == {"simple_knn", "gsplat"}


def test_nothing_is_executed(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    trap = f"open({str(mark)!r}, 'w')\nimport gsplat\n"
    read(put(tmp_path / "r", {"train.py": trap, "setup.py": trap, "conftest.py": trap}))
    assert not mark.exists()


INCLUDES = """
import os
here = os.path.dirname(os.path.abspath(__file__))
setup(ext_modules=[CUDAExtension("dgr._C", [], extra_compile_args={"nvcc": [%s]})])
"""


@pytest.mark.parametrize(("flag", "own"), TABLE["flags"])
def test_a_path_of_its_own_in_the_flags(tmp_path: Path, flag: str, own: bool) -> None:
    (item,) = read(put(tmp_path / "r", {"submodules/dgr/setup.py": INCLUDES % flag})).sources
    assert item.own_path_in_flags is own


@pytest.mark.parametrize(("line", "name", "address"), TABLE["from-git"])
def test_a_requirement_that_git_brings(tmp_path: Path, line: str, name: str, address: str) -> None:
    (pin,) = read(put(tmp_path, {"requirements.txt": f"{line}\n"})).pins
    assert (pin.name, pin.spec, pin.address) == (name, "", address)


def test_pins_of_a_project_file(tmp_path: Path) -> None:
    text = '[project]\nname = "nerf"\ndependencies = ["gsplat==1.4.0", "torch>=1.13.1,<2.2", "x @ https://example.org/x"]\n'
    found = read(put(tmp_path / "r", {"pyproject.toml": text}))
    assert {item.name: item.spec for item in found.pins} == {"gsplat": "==1.4.0", "torch": ">=1.13.1,<2.2"}
    assert read(put(tmp_path / "broken", {"pyproject.toml": "[project\n"})).pins == ()


def test_a_package_that_compiles_nothing_itself(tmp_path: Path) -> None:
    setup = "from setuptools import setup\nsetup(name='nets', install_requires=['h5py'])\n"
    found = read(put(tmp_path, {"setup.py": setup, "nets/__init__.py": ""}))
    assert found.package and found.package.requires == ("h5py",) and not found.sources
    compiled = "from setuptools import setup, Extension\nsetup(ext_modules=[Extension('a', ['a.c'])])\n"
    assert read(put(tmp_path, {"setup.py": compiled})).package is None
