"""What is loaded into a trainer: imports that fail, what PyPI's torchvision needs, and our torch_scatter."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from splatfix.certify.inside import observer
from tests.tables import data

torch = pytest.importorskip("torch")

from splatfix.certify.inside.compiled import torch_scatter  # noqa: E402 - needs torch

DRIVER: str = data(__file__)["texts"]["driver"]
LACKING = "raise ImportError('libodd.so.1: cannot open shared object file: No such file or directory')\n"


def observed(folder: Path, train: str, **modules: str) -> dict[str, Any]:
    """What is seen of a train.py, whose installed modules are these."""
    (folder / "site").mkdir()
    (folder / "checkout").mkdir()
    for name, text in modules.items():
        (folder / "site" / f"{name}.py").write_text(text)
    (folder / "checkout" / "train.py").write_text(train)
    configuration = {"out": str(folder / "site"), "checkout": str(folder / "checkout"), "cpu": True}
    configuration |= {
        "placeholders": ["absent"],
        "needed": ["absent", "odd"],
        "extensions": [],
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
    unloadable = "odd cannot be loaded: libodd.so.1: cannot open shared object file"
    assert found["unloadable"] == [unloadable]
    assert found["placeholders"] == ["odd", "odd.io", "absent"]
    assert found["error"] == f"{unloadable} (odd.thing is used)"


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
    assert found["failed_imports"] == ["other"]


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
    observer.watch(record, module)
    module.distCUDA2(1)
    row = record.measured().implementations["simple_knn"]
    assert (row.name, row.calls) == (name, {"distCUDA2": 1})


CHILD: str = data(__file__)["texts"]["child"]


@pytest.mark.parametrize("loads", [False, True])
def test_what_its_import_needs_is_declared(loads: bool) -> None:
    argv = [sys.executable, "-c", CHILD.format(loads=loads)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    # with a compiled part that loads nothing is declared: here, where there is none, the import fails as it does without us
    assert done.stdout.split() == (["False"] if loads else ["True", "imported"])
    assert ("does not exist" in done.stderr) is loads


ACCELERATOR: str = data(__file__)["texts"]["accelerator"]


def test_an_optimizer_that_asks_for_the_accelerator() -> None:
    """Of torch 2.15, in a CUDA build without a driver: "CUDA driver version is insufficient" at the first step."""
    if not hasattr(torch, "accelerator"):
        pytest.skip("this torch has no torch.accelerator")
    done = subprocess.run([sys.executable, "-c", ACCELERATOR], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False", "0", "True"], done.stderr


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "mul"])
def test_rows_are_reduced_as_a_loop_does(reduce: str, seed: int) -> None:
    torch.manual_seed(seed)
    src, index = torch.randn(40, 3, dtype=torch.float64), torch.randint(0, 7, (40,))
    made = torch_scatter.scatter(src, index, dim=0, dim_size=9, reduce=reduce)
    for row in range(9):
        mine = src[index == row]
        what = {"max": "amax", "min": "amin", "mul": "prod"}.get(reduce, reduce)
        empty = 1.0 if reduce == "mul" else 0.0
        wanted = getattr(mine, what)(0) if len(mine) else torch.full((3,), empty, dtype=torch.float64)
        assert torch.allclose(made[row], wanted)


def test_the_argument_of_a_maximum_is_the_first_place() -> None:
    src, index = torch.tensor([1.0, 5.0, 5.0, 2.0]), torch.tensor([0, 0, 0, 2])
    for function, places in ((torch_scatter.scatter_max, [1, 4, 3]), (torch_scatter.scatter_min, [0, 4, 3])):
        values, arguments = function(src, index)
        assert arguments.tolist() == places and values[1] == 0
    with pytest.raises(ValueError, match="logsumexp"):
        torch_scatter.scatter(src, index, reduce="logsumexp")
