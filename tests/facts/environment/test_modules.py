"""The names that an environment can import, read from its folders."""

from pathlib import Path

from splatfix.facts import System
from splatfix.facts.environment import probe as environment
from splatfix.facts.environment.packages import importable_names
from splatfix.model import Distribution
from tests.files import put


def touch(folder: Path, *names: str) -> str:
    return str(put(folder, dict.fromkeys(names, "")))


def test_modules_packages_and_compiled_ones(tmp_path: Path) -> None:
    names = ["six.py", "cv2/__init__.py", "google/protobuf/__init__.py", "plain.abi3.so"]
    names += ["_cffi.cpython-311-x86_64-linux-gnu.so", "numpy-2.0.dist-info/RECORD", "a.pth"]
    site = touch(tmp_path, *names, "__pycache__/x.pyc", "not-a-name.py")
    assert importable_names(System(), [site], ()) == ("_cffi", "cv2", "google", "plain", "six")


def test_an_editable_install_and_its_src(tmp_path: Path) -> None:
    touch(tmp_path / "mine", "src/mine/__init__.py", "flat.py")
    item = Distribution("mine", "1", str(tmp_path), editable=True, origin=(tmp_path / "mine").as_uri())
    assert {"mine", "flat"} <= set(importable_names(System(), [], (item,)))


def test_a_real_environment(empty_venv: Path, site_packages: Path) -> None:
    touch(site_packages, "plyfile.py")
    found = set(environment.probe(System(), str(empty_venv)).modules.value or ())
    assert "plyfile" in found and not {"os", "_ssl", "xml"} & found, "Python's own library"
