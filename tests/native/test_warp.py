"""Drop-ins on the real gswarp, which pip fetches: installed, proven for a GPU, run on Warp's CPU device, and reverted."""

import json
import os
import sys
from pathlib import Path

import pytest

from splatfix.core.runner import ProcessRunner
from splatfix.install.environment import Environment
from tests.conftest import ROOT
from tests.install.environments import snapshot

from .conftest import absent

pytestmark = [pytest.mark.native, pytest.mark.slow]

NAMES = ("fused_ssim", "simple_knn", "diff_gaussian_rasterization@v1")
SCRIPT = Path(__file__).with_name("gswarp_on_cpu.py")


def splatfix(*words: str, target: Environment, path: Path) -> dict[str, object]:
    env = {**os.environ, "PATH": str(path), "CUDA_HOME": "", "CUDA_PATH": ""}
    argv = [sys.executable, "-m", "splatfix", *words, "--python", target.python, "--json"]
    done = ProcessRunner().run(argv, timeout=600, cwd=ROOT, env=env)
    message: dict[str, object] = json.loads(done.stdout)
    return message


def test_installed_proven_run_and_reverted(native: Environment, tmp_path: Path) -> None:
    """It takes minutes: 150 MB are fetched, six modules compiled for sm_120, and the same again for the CPU."""
    before = snapshot(native)
    texts = ("install", *NAMES, "--backend", "warp", "--target", "sm_120")
    message = splatfix(*texts, target=native, path=tmp_path)
    error = message["error"]
    if isinstance(error, dict) and error["code"] == "dependencies-not-found":
        absent(f"pip could not bring gswarp: {error['what']}")
    outcome = message.get("outcome")
    assert isinstance(outcome, dict), error
    assert any("gswarp 1.1" in note and "warp-lang 1." in note for note in outcome["notes"])
    for item in outcome["items"]:
        proof = {rung["name"]: rung for rung in item["proof"]}
        assert "compiled by Warp 1." in proof["built"]["shown_by"] and proof["loads"]["reached"]
        assert "for sm_120 (native code)" in proof["built"]["shown_by"]
        assert not proof["computes"]["reached"], "no GPU has run it"
    env = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = ProcessRunner().run([native.python, str(SCRIPT)], timeout=600, env=env)
    assert done.ok, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["ran"] == {"rasterizer": "warp", "ssim": "warp", "knn": "warp"}
    assert max(result["image"], result["ssim"], result["knn"]) < 1e-5 and result["gradients"] < 1e-3
    assert result["radii at opacity 0"] == 0 and result["no Gaussian"] < 1e-6
    splatfix("revert", target=native, path=tmp_path)
    assert snapshot(native) == before
