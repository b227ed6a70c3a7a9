"""Real CUDA extensions, compiled by nvcc for sm_120 through the command line, proven, installed and taken back."""

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.binaries import read_binary
from splatfix.core.proof import RungName
from splatfix.core.runner import Runner
from splatfix.facts import gather
from splatfix.install import execute
from splatfix.install.environment import Environment
from splatfix.knowledge import Arch
from splatfix.model import Fact
from splatfix.plan import BuildWheel
from tests.archs import request_for
from tests.conftest import ROOT
from tests.install.environments import snapshot
from tests.plan.machines import changed, make_plan, refused

from .conftest import absent

pytestmark = pytest.mark.native

FIXTURES = ROOT / "tests" / "fixtures"
MINUTES = 60.0


def splatfix(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
    """The command line with ``--json``, as a process of its own; exit code and document."""
    argv = [sys.executable, "-m", "splatfix", *map(str, arguments), "--json"]
    done = Runner().run(argv, timeout=25 * MINUTES, cwd=ROOT)
    assert done.returncode is not None, done.error
    return done.returncode, json.loads(done.stdout)


def listed_by(cuobjdump: Path, library: Path, option: str) -> list[str]:
    """``sm_120`` for each embedded file that cuobjdump lists."""
    done = Runner().run([cuobjdump, option, library], timeout=60)
    assert done.ok, done.why()
    return sorted(re.findall(r"\.(sm_\d+[af]?)\.(?:cubin|ptx)", done.stdout))


def read_by_us(library: Path, kind: str) -> list[str]:
    boxes = read_binary(library).fatbins
    return sorted(entry.arch for box in boxes for entry in box.entries if entry.kind.value == kind)


@pytest.mark.slow
def test_a_splatting_extension_from_source_to_proof_and_back(native: Environment, cuobjdump: Path) -> None:
    before = snapshot(native)
    words = (FIXTURES / "splat_probe", "--target", "sm_120", "--target", "8.6", "--python", native.python)
    code, document = splatfix("install", *words)
    assert code == 0, document
    (item,) = document["outcome"]["items"]
    proof = {rung["name"]: rung for rung in item["proof"]}
    assert proof["built"]["reached"] and proof["loads"]["reached"] and not proof["computes"]["reached"]
    assert "in 2 of 2 fatbins" in proof["built"]["shown_by"]

    (library,) = native.platlib.glob("splat_probe/_C.*.so")
    assert read_by_us(library, "sass") == listed_by(cuobjdump, library, "--list-elf")
    assert sorted(set(read_by_us(library, "sass"))) == ["sm_120", "sm_86"]
    assert read_by_us(library, "ptx") == listed_by(cuobjdump, library, "--list-ptx") == []

    code, inspected = splatfix("inspect", library, "--target", "sm_120")
    assert code == 0, inspected
    assert splatfix("inspect", library, "--target", "sm_75")[0] == 1

    installed = library.read_bytes()
    assert splatfix("revert", "--python", native.python)[0] == 0
    assert snapshot(native) == before

    # once more: the wheel was kept, so nothing is compiled, and the very same library comes back
    code, again = splatfix("install", *words)
    assert code == 0, again
    assert not list(Path(again["outcome"]["log"]).glob("build-*.log"))
    assert library.read_bytes() == installed
    assert splatfix("revert", "--python", native.python)[0] == 0
    assert snapshot(native) == before


def test_revert_of_a_second_build_restores_every_byte(native: Environment, cuobjdump: Path) -> None:
    """The package that chooses its architectures itself; TORCH_CUDA_ARCH_LIST would have no effect on it."""
    before = snapshot(native)
    source = FIXTURES / "own_choice_probe"
    code, document = splatfix("install", source, "--target", "sm_120", "--python", native.python)
    assert code == 0, document
    (build, *_) = document["outcome"]["plan"]["steps"]
    assert build["variables"]["CUDA_ARCHITECTURES"] == "120"
    assert "TORCH_CUDA_ARCH_LIST" not in build["variables"]
    (log,) = Path(document["outcome"]["log"]).glob("build-*.log")
    (declared,) = re.findall("# setup.py, asked: (.*_C.*)", log.read_text())
    assert declared.endswith("own_choice_probe._C (2 sources; -gencode=arch=compute_120,code=sm_120)")
    first = snapshot(native)
    (library,) = native.platlib.glob("own_choice_probe/_C.*.so")
    assert read_by_us(library, "sass") == listed_by(cuobjdump, library, "--list-elf") == ["sm_120"]

    code, document = splatfix("install", source, "--target", "sm_90", "--python", native.python)
    assert code == 0 and document["outcome"]["items"][0]["before"] == "1.0"
    assert read_by_us(library, "sass") == ["sm_90"]
    assert snapshot(native) != first

    assert splatfix("revert", "--python", native.python)[0] == 0
    assert snapshot(native) == first
    assert splatfix("revert", "--python", native.python)[0] == 0
    assert snapshot(native) == before


def test_a_build_that_ignores_its_target_is_refused(native: Environment, tmp_path: Path) -> None:
    """setup.py reads the variable and then compiles for sm_80 all the same: only running it tells."""
    source = tmp_path / "liar"
    shutil.copytree(FIXTURES / "own_choice_probe", source)
    setup = source / "setup.py"
    honest = 'wanted = os.environ.get("CUDA_ARCHITECTURES", "75;80;89")'
    text = setup.read_text()
    assert honest in text
    setup.write_text(text.replace(honest, honest + '\nwanted = "80"'))
    before = snapshot(native)

    code, document = splatfix("install", source, "--target", "sm_120", "--python", native.python)

    assert code == 1
    assert document["error"]["code"] == "wrong-gpu-code"
    assert document["error"]["details"]["carries"] == ["sass sm_80"]
    assert "Nothing was compiled" in document["error"]["meaning"]
    assert snapshot(native) == before


def test_a_compile_error_is_shown_with_its_line(native: Environment, tmp_path: Path) -> None:
    source = tmp_path / "broken"
    shutil.copytree(FIXTURES / "own_choice_probe", source)
    kernel = source / "square.cu"
    kernel.write_text(kernel.read_text().replace("values[i] *= values[i];", "values[i] *= nobody_knows;"))
    before = snapshot(native)
    code, document = splatfix("install", source, "--target", "sm_120", "--python", native.python)
    assert code == 1 and document["error"]["code"] == "build-failed"
    assert 'square.cu(6): error: identifier "nobody_knows" is undefined' in document["error"]["what"]
    assert Path(document["error"]["details"]["log"]).is_file()
    assert snapshot(native) == before


@pytest.mark.slow
def test_ptx_serves_a_gpu_that_the_toolkit_cannot_name(native: Environment, cuobjdump: Path) -> None:
    """The real nvcc, of which only the architectures up to sm_90 are admitted: what a CUDA 12.4 can do for an RTX 50."""
    before = snapshot(native)
    facts = gather(native.python)
    older = tuple(
        replace(item, archs=tuple(arch for arch in item.archs if Arch.parse(arch).number <= 90))
        for item in facts.machine.toolkits.value or ()
    )
    facts = changed(facts, toolkits=Fact(older, "the real ones, cut down"))
    request = request_for((str(FIXTURES / "splat_probe"),), ("sm_120",))
    error = refused(make_plan, request, facts)
    assert error.code == "no-matching-toolkit"
    plan = make_plan(replace(request, ptx=True), facts)
    (build,) = (step for step in plan.steps if isinstance(step, BuildWheel))
    assert build.variables["TORCH_CUDA_ARCH_LIST"] == "9.0+PTX"
    outcome = execute(plan, facts)
    built = next(rung for rung in outcome.items[0].proof if rung.name is RungName.BUILT)
    assert "sm_120 (ptx) in 2 of 2 fatbins" in built.shown_by

    (library,) = native.platlib.glob("splat_probe/_C.*.so")
    assert sorted(set(read_by_us(library, "ptx"))) == ["sm_90"]
    assert read_by_us(library, "ptx") == listed_by(cuobjdump, library, "--list-ptx")
    code, document = splatfix("inspect", library, "--target", "sm_120")
    assert code in (0, 3), document  # usable; whether the driver elsewhere reads this PTX is open
    assert splatfix("inspect", library, "--target", "sm_89")[0] == 1, "PTX goes up, never down"
    assert splatfix("revert", "--python", native.python)[0] == 0
    assert snapshot(native) == before


def hits_and_misses(folder: Path) -> tuple[int, int]:
    environment = {**os.environ, "CCACHE_DIR": str(folder)}
    done = Runner().run(["ccache", "--print-stats"], timeout=30, env=environment)
    assert done.ok, done.why()
    counts = {name: int(number) for name, number in re.findall(r"^(\w+)\t(\d+)$", done.stdout, re.MULTILINE)}
    return counts["direct_cache_hit"] + counts["preprocessed_cache_hit"], counts["cache_miss"]


@pytest.mark.slow
def test_a_rebuild_compiles_only_what_changed(
    native: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ccache in front of nvcc and the C++ compiler."""
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
