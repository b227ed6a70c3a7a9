"""What is loaded into a trainer: imports that fail, and our torch_scatter."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from splatfix.certify.inside import observer
from tests.tables import data

torch = pytest.importorskip("torch")

from splatfix.certify.inside.compiled import torch_scatter  # noqa: E402 - needs torch

DRIVER: str = data(__file__)["texts"]["driver"]
LACKING = "raise ImportError('libodd.so.1: cannot open shared object file: No such file or directory')\n"


@pytest.mark.parametrize("name", data(__file__)["imports"])
def test_imports_of_a_trainer(name: str, tmp_path: Path) -> None:
    """What is installed is in ``site``; what another folder has under the same name, in ``ahead``."""
    row = data(__file__)["imports"][name]
    for folder in ("site", "checkout", "ahead"):
        (tmp_path / folder).mkdir()
    (tmp_path / "ahead" / "sane.py").write_text("")
    for module in ("odd", "other"):
        text = row["module"].format(ahead=str(tmp_path / "ahead"), lacking=LACKING)
        (tmp_path / "site" / f"{module}.py").write_text(text)
    (tmp_path / "site" / "sane.py").write_text("value = 1\n")
    (tmp_path / "checkout" / "train.py").write_text(row["train"])
    configuration = {"out": str(tmp_path / "site"), "checkout": str(tmp_path / "checkout")}
    configuration |= {"placeholders": ["absent"], "needed": ["absent", "odd"]}
    argv = [sys.executable, "-c", DRIVER, json.dumps(configuration)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(json.dumps(row["found"]))


@pytest.mark.parametrize(("kind", "name"), [("drop-in", "splatfix's drop-in"), ("built", "native")])
def test_what_splatfix_compiled_is_no_drop_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    """Both have a manifest of splatfix's."""
    (tmp_path / "simple_knn-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    observer.loaded.is_dropin.cache_clear()
    (tmp_path / "simple_knn-1.0.dist-info" / "splatfix.json").write_text(
        json.dumps({"kind": kind, "replaces": "simple_knn"})
    )
    module = ModuleType("simple_knn")
    exec("def distCUDA2(points): return points", vars(module))
    record = observer.Record({"out": str(tmp_path), "checkout": str(tmp_path), "cpu": False})
    observer.watch(record, module)
    module.distCUDA2(1)
    row = record.measured().implementations["simple_knn"]
    assert (row.name, row.calls) == (name, {"distCUDA2": 1})


ACCELERATOR: str = data(__file__)["texts"]["accelerator"]


def test_an_optimizer_that_asks_for_the_accelerator() -> None:
    """Of torch 2.15, in a CUDA build without a driver: "CUDA driver version is insufficient" at the first step."""
    if not hasattr(torch, "accelerator"):
        pytest.skip("this torch has no torch.accelerator")
    done = subprocess.run([sys.executable, "-c", ACCELERATOR], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False", "0", "True"], done.stderr


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_rows_are_reduced_as_a_loop_does(reduce: str) -> None:
    torch.manual_seed(3)
    src, index = torch.randn(40, 3, dtype=torch.float64), torch.randint(0, 7, (40,))
    made = torch_scatter.scatter(src, index, dim=0, dim_size=9, reduce=reduce)
    for row in range(9):
        mine = src[index == row]
        what = "amax" if reduce == "max" else reduce
        wanted = getattr(mine, what)(0) if len(mine) else torch.zeros(3, dtype=torch.float64)
        assert torch.allclose(made[row], wanted)
    assert torch.equal(torch_scatter.scatter_max(src, index[:, None].expand_as(src), dim=0)[0], made[:7]) is (
        reduce == "max"
    )
    with pytest.raises(ValueError, match="'min'"):
        torch_scatter.scatter(src, index, reduce="min")
