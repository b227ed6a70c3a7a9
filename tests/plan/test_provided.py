from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.core.resources import TOOLKIT_MARKER
from splatfix.facts import System
from splatfix.facts.machine.toolkits import in_cache
from splatfix.plan import BuildWheel, Plan, ProvideToolkit
from splatfix.plan.tools import provided_toolkit
from tests.archs import request_for
from tests.files import put

from .machines import CUDA_12, CUDA_13, TORCH, cuda_source, machine, make_plan, refused


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPLATFIX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def planned(folder: Path, *, provide: bool, torch: object = TORCH, toolkits: tuple[object, ...] = ()) -> Plan:
    facts = machine(torch=torch, toolkits=toolkits)  # type: ignore[arg-type]
    return make_plan(request_for((str(cuda_source(folder)),), ("sm_120",), provide_toolkit=provide), facts)


def test_it_comes_first_and_the_build_uses_it(tmp_path: Path, cache: Path) -> None:
    made = planned(tmp_path / "s", provide=True, toolkits=(CUDA_12,))
    first, build = made.steps[0], made.steps[1]
    assert isinstance(first, ProvideToolkit) and isinstance(build, BuildWheel)
    assert build.variables["CUDA_HOME"] == first.root == f"{cache}/toolkits/cuda-13.0/nvidia/cu13"
    assert f"{first.root}/include/cccl" in build.variables["CPATH"]
    assert first.requirements[0].endswith("==13.0.2"), "not what this torch itself depends on"
    assert "nvidia-nvvm==13.0.*" in first.requirements, "a newer nvvm writes PTX that this ptxas refuses"
    assert any("12.8" in road.what for road in made.considered)


def test_nobody_downloads_a_gigabyte_without_being_asked(tmp_path: Path) -> None:
    error = refused(planned, tmp_path / "s", provide=False)
    assert error.code == "no-matching-toolkit" and "--provide-toolkit" in error.todo[-1].line()
    fitting = planned(tmp_path / "s", provide=True, toolkits=(CUDA_13,))
    assert not any(isinstance(step, ProvideToolkit) for step in fitting.steps)


def test_one_that_is_there_is_used_without_asking(tmp_path: Path, cache: Path) -> None:
    put(cache, {f"toolkits/cuda-13.0/{TOOLKIT_MARKER}": "{}"})
    assert in_cache(System()).value == ("13.0",)
    assert in_cache(System(env={"SPLATFIX_CACHE": "/nowhere"})).value == ()
    made = planned(tmp_path / "s", provide=False)
    assert not any(isinstance(step, ProvideToolkit) for step in made.steps)
    build = made.steps[0]
    assert isinstance(build, BuildWheel) and build.variables["CUDA_HOME"].startswith(str(cache))


def test_cuda_12_is_not_provided(tmp_path: Path) -> None:
    old = replace(TORCH, version="2.8.0+cu128", cuda="12.8")
    assert provided_toolkit(old, "linux") is None and provided_toolkit(TORCH, "windows") is None
    asked, not_asked = (
        " ".join(step.line() for step in refused(planned, tmp_path, provide=provide, torch=old).todo)
        for provide in (True, False)
    )
    assert "--provide-toolkit cannot help: PyPI has no compiler of CUDA 12" in asked
    assert "--provide-toolkit" not in not_asked
