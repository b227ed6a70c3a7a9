"""Packages as the index really serves them under splatting names, unpacked beside torch and judged."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from splatfix.checks import Status, run_checks
from splatfix.context import Goal, make_context
from splatfix.facts import Facts, gather

pytestmark = pytest.mark.slow


def unpacked(requirement: str, python: Path, site: Path, downloads: Path) -> Facts:
    """The facts of an environment that holds this wheel and sees the torch of this one."""
    torch = pytest.importorskip("torch")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--only-binary=:all:",
            "-d",
            str(downloads),
            requirement,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode:
        pytest.skip(f"no wheel to download: {done.stderr.strip()[-200:]}")
    (wheel,) = downloads.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(site)
    (site / "torch.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    return gather(str(python))


def codes(facts: Facts) -> dict[str, Status]:
    loud = (Status.WARN, Status.FAIL)
    return {
        item.code: item.status
        for item in run_checks(make_context(facts, Goal(("sm_120",))))
        if item.status in loud
    }


def test_the_classifier(empty_venv: Path, site_packages: Path, tmp_path: Path) -> None:
    facts = unpacked("simple-knn==2.0.1", empty_venv, site_packages, tmp_path / "wheels")
    assert codes(facts)["lookalike-package"] is Status.FAIL


def test_the_repackaging(empty_venv: Path, site_packages: Path, tmp_path: Path) -> None:
    facts = unpacked("gaussian-splatting==2.11.0", empty_venv, site_packages, tmp_path / "wheels")
    found = codes(facts)
    assert found["lookalike-package"] is Status.WARN
    assert found["duplicate-runtimes"] is Status.WARN
    modules = {item.module: item for item in facts.environment.packages.value or ()}
    rasterizer = modules["gaussian_splatting.diff_gaussian_rasterization"]
    assert rasterizer.native_missing == () and rasterizer.exports_missing == ()
    assert rasterizer.settings is not None and rasterizer.settings[-1] == "antialiasing"
    bundled = {item.library for item in facts.environment.runtime_copies.value or () if item.bundled}
    assert {"libc10", "libcudart"} <= bundled
