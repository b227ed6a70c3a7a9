"""Drop-ins with CUDA kernels in an environment with a CUDA torch, from the command line, with no compiler on PATH."""

import json
import os
import sys
import zipfile
from pathlib import Path

import pytest

from splatfix.binaries import read_binary
from splatfix.core.runner import Runner
from splatfix.install.environment import Environment
from tests.archs import archs
from tests.conftest import ROOT
from tests.install.environments import run_in, snapshot
from tests.tables import data

pytestmark = pytest.mark.native

NAMES = data(__file__)["names"]
CPU = data(__file__)["texts"]["cpu"]


def test_installed_without_a_compiler(native: Environment, tmp_path: Path) -> None:
    before = snapshot(native)
    argv = [sys.executable, "-m", "splatfix", "install", *NAMES]
    argv += ["--backend", "nvrtc", "--target", "sm_120,sm_75"]
    env = {**os.environ, "PATH": str(tmp_path), "CUDA_HOME": "", "CUDA_PATH": ""}
    done = Runner().run([*argv, "--python", native.python, "--json"], timeout=600, cwd=ROOT, env=env)
    assert done.ok, done.stderr[-3000:] + done.stdout[-2000:]
    items = json.loads(done.stdout)["outcome"]["items"]
    assert len(items) == len(NAMES) == len({item["subject"] for item in items})
    for item in items:
        built = next(rung for rung in item["proof"] if rung["name"] == "built")
        assert any(rung["name"] == "loads" and rung["reached"] for rung in item["proof"])
        assert (
            built["reached"]
            and "sm_120 (native code)" in built["shown_by"]
            and "sm_75 (native code)" in built["shown_by"]
        )
    counts = {"fused_ssim": 2, "simple_knn": 2, "diff_gaussian_rasterization": 12}
    counts |= {"diff_gaussian_rasterization_fastgs": 14, "diff_surfel_rasterization": 6}
    for module, count in counts.items():
        carried = sorted((native.purelib / module / "cuda").glob("*.cubin"))
        assert len(carried) == count
        for path in carried:
            (code,) = read_binary(path).fatbins
            assert [f"-{entry.arch}-" in path.name for entry in code.entries] == [True]
    assert int(run_in(native, CPU)) == len(
        next((native.purelib / "fused_ssim" / "cuda").glob("*sm_120*")).read_bytes()
    )
    argv = [sys.executable, "-m", "splatfix", "revert", "--python", native.python]
    assert Runner().run(argv, timeout=120, cwd=ROOT).ok
    assert snapshot(native) == before


def test_what_the_wheel_carries_is_its_own(native: Environment, tmp_path: Path) -> None:
    """Equal sources give equal wheels, and no file of the cache ends up in one."""
    from splatfix.install.dropins import compile_cuda_kernels, make_dropin_wheel
    from splatfix.knowledge.dropins import dropin_of

    made = []
    for name in ("one", "two"):
        compiled, _ = compile_cuda_kernels(
            dropin_of("simple-knn"), archs("sm_90", "sm_120a"), native, tmp_path / "log"
        )
        made.append(make_dropin_wheel(dropin_of("simple-knn"), "0+x", tmp_path / name, compiled))
    assert made[0].read_bytes() == made[1].read_bytes()
    with zipfile.ZipFile(made[0]) as wheel:
        members = [name for name in wheel.namelist() if name.startswith("simple_knn/")]
    cuda = [name for name in members if name.startswith("simple_knn/cuda/")]
    assert len(cuda) == 4 and {
        "simple_knn/_nvrtc.py",
        "simple_knn/_knn_cuda.py",
        "simple_knn/_knn.py",
    } <= set(members)
