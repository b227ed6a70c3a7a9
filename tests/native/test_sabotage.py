"""The extensions that gpu-check breaks on purpose: they build for a GPU, load, and are broken in their own way."""

import json
import sys
from pathlib import Path

import pytest

from splatfix.core.runner import ProcessRunner
from splatfix.install.environment import Environment
from tests.conftest import ROOT
from tests.gpu_check.steps.sabotage import KINDS, write_broken

pytestmark = pytest.mark.native

# what each does to a tensor in host memory; the illegal address is written to by a GPU only
CALL = "import torch, simple_knn._C as c; print(c.distCUDA2(torch.ones(2, 3)).tolist())"


@pytest.mark.parametrize(
    ("kind", "said"), [("segfault", None), ("illegal-address", "[3.0, 3.0]"), ("wrong-values", "[3.0, 3.0]")]
)
def test_broken_extensions_build_and_load(
    native: Environment, tmp_path: Path, kind: str, said: str | None
) -> None:
    assert kind in KINDS
    write_broken(tmp_path / "source", kind)
    argv = [sys.executable, "-m", "splatfix", "install", tmp_path / "source", "--target", "sm_90", "--yes"]
    done = ProcessRunner().run([*argv, "--python", native.python, "--json"], timeout=300, cwd=ROOT)
    assert done.ok, done.stdout + done.stderr
    (item,) = json.loads(done.stdout)["outcome"]["items"]
    proof = {rung["name"]: rung for rung in item["proof"]}
    assert proof["built"]["reached"] and "sm_90" in proof["built"]["shown_by"]
    assert proof["loads"]["reached"]
    called = ProcessRunner().run([native.python, "-c", CALL], timeout=120)
    if said is None:
        assert called.why() == "ended by SIGSEGV"
    else:
        assert called.ok and called.stdout.strip() == said, called.why()
