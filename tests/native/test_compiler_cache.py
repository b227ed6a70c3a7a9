"""ccache in front of nvcc and the C++ compiler, for real: a changed source compiles only what was changed."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from splatfix.core.runner import ProcessRunner
from splatfix.install.environment import Environment

from .conftest import absent
from .test_install import FIXTURES, splatfix

pytestmark = [pytest.mark.native, pytest.mark.slow]


def hits_and_misses(folder: Path) -> tuple[int, int]:
    environment = {**os.environ, "CCACHE_DIR": str(folder)}
    done = ProcessRunner().run(["ccache", "--print-stats"], timeout=30, env=environment)
    assert done.ok, done.why()
    counts = {name: int(number) for name, number in re.findall(r"^(\w+)\t(\d+)$", done.stdout, re.MULTILINE)}
    return counts["direct_cache_hit"] + counts["preprocessed_cache_hit"], counts["cache_miss"]


def test_a_rebuild_compiles_only_what_changed(
    native: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("ccache") is None:
        absent("ccache is not installed")
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "ccache"))
    source = tmp_path / "source"
    shutil.copytree(FIXTURES / "splat_probe", source)
    arguments = ("install", source, "--target", "sm_120", "--python", native.python)

    code, planned = splatfix(*arguments, "--dry-run")
    assert code == 0, planned
    (build,) = (step for step in planned["plan"]["steps"] if step["kind"] == "build-wheel")
    assert build["variables"]["PYTORCH_NVCC"].startswith("ccache ")
    assert any("ccache" in reason["text"] for reason in build["reasons"])

    code, first = splatfix(*arguments)
    assert code == 0, first
    hits, misses = hits_and_misses(tmp_path / "ccache")
    files = len([*source.rglob("*.cu"), *source.glob("*.cpp")])
    assert hits == 0 and misses == files, "every file goes through ccache, nvcc's and the C++ compiler's"
    (log,) = Path(first["outcome"]["log"]).glob("build-*.log")
    assert f"{Path(build['variables']['CXX']).name}\n" in log.read_text() + "\n"

    (edited,) = source.glob("*.cpp")
    edited.write_text(edited.read_text() + "\n// a remark\nint remark = 1;\n")
    code, again = splatfix(*arguments)
    assert code == 0, json.dumps(again)
    assert hits_and_misses(tmp_path / "ccache") == (files - 1, files + 1)
    code, back = splatfix("revert", "--python", native.python)
    assert code == 0, back
    code, back = splatfix("revert", "--python", native.python)
    assert code == 0, back
