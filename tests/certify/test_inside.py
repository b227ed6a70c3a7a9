"""What is loaded into a trainer, in an interpreter of its own: imports that fail."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from splatfix.certify.inside import observer
from splatfix.certify.stacks.observed import implementations
from tests.tables import data

DRIVER: str = data(__file__)["texts"]["driver"]
LACKING = "raise ImportError('libodd.so.1: cannot open shared object file: No such file or directory')\n"


def observed(folder: Path, train: str, **modules: str) -> dict[str, Any]:
    """What is seen of a train.py, whose installed modules are these."""
    (folder / "site").mkdir()
    (folder / "checkout").mkdir()
    for name, text in modules.items():
        (folder / "site" / f"{name}.py").write_text(text)
    (folder / "checkout" / "train.py").write_text(train)
    configuration = {
        "out": str(folder / "site"),
        "checkout": str(folder / "checkout"),
        "cpu": True,
        "extensions": [],
        "placeholders": ["absent"],
        "needed": ["absent", "odd"],
        "written": [],
    }
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(configuration)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_module_without_its_library_is_passed_over_until_it_is_used(tmp_path: Path) -> None:
    train = "import odd.io\nfrom odd import thing\nimport absent\nvalue: thing['n'] | None\nthing()\n"
    found = observed(tmp_path, train, odd=LACKING)
    assert found["unloadable"] == [
        {"words": "odd cannot be loaded: libodd.so.1: cannot open shared object file"}
    ]
    assert found["placeholders"] == ["odd", "odd.io", "absent"]
    assert (
        found["error"]
        == "odd cannot be loaded: libodd.so.1: cannot open shared object file (odd.thing is used)"
    )


def test_a_module_that_cannot_be_loaded_leaves_the_search_path_as_it_was(tmp_path: Path) -> None:
    """cv2 puts its own folder in front before it loads its library, and there a package is called utils."""
    (tmp_path / "ahead").mkdir()
    (tmp_path / "ahead" / "sane.py").write_text("")
    odd = f"import sys\nsys.path.insert(0, {str(tmp_path / 'ahead')!r})\n{LACKING}"
    found = observed(tmp_path, "import odd\nfrom sane import value\n", odd=odd, sane="value = 1\n")
    assert found["unloadable"] and found["error"] is None


def test_what_the_code_can_do_without_fails_as_it_does(tmp_path: Path) -> None:
    train = (
        "try:\n    import other\nexcept ImportError:\n    other = None\nassert other is None\nimport sane\n"
    )
    found = observed(tmp_path, train, other=LACKING, sane="value = 1\n")
    assert not found["unloadable"] and not found["placeholders"] and found["error"] is None
    assert [row["name"] for row in found["failed_imports"]] == ["other"]


def test_another_failure_is_the_modules_own(tmp_path: Path) -> None:
    found = observed(tmp_path, "import odd\n", odd="raise ImportError('no such version')\n")
    assert not found["unloadable"] and found["error"] == "no such version"


@pytest.mark.parametrize(("kind", "name"), [("drop-in", "splatfix's drop-in"), ("built", "native")])
def test_what_splatfix_compiled_is_no_drop_in(tmp_path: Path, kind: str, name: str) -> None:
    """Both have a manifest of splatfix's beside the code."""
    for folder in ("simple_knn", "simple_knn-1.0.dist-info"):
        (tmp_path / folder).mkdir()
    (tmp_path / "simple_knn-1.0.dist-info" / "splatfix.json").write_text(json.dumps({"kind": kind}))
    module = ModuleType("simple_knn")
    module.__file__ = str(tmp_path / "simple_knn" / "__init__.py")
    exec("def distCUDA2(points): return points", vars(module))
    record = observer.Record({"out": str(tmp_path), "checkout": str(tmp_path), "cpu": False})
    observer._Extensions(record).watch(module)
    module.distCUDA2(1)
    assert implementations(record.state)["simple_knn"]["name"] == name
