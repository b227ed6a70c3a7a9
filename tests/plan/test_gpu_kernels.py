"""Drop-ins with GPU code and no compiler: where torch's NVRTC serves, and the reason where it does not."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.core.proof import RungName
from splatfix.model import Facts
from splatfix.model.steps import MakeDropin
from splatfix.plan import OptionKind
from tests.archs import archs, request_for
from tests.plan.machines import (
    NEW_DRIVER,
    OLD_DRIVER,
    RTX_5080,
    TORCH,
    code,
    cuda_source,
    machine,
    make_plan,
    refused,
    with_extension,
)

BARE = machine(toolkits=(), host=())
WHEELS = {"pip": "25.0", "nvidia-cublas": "13.1"}
V1 = "diff_gaussian_rasterization@v1"


def refusal(
    facts: Facts, *sources: str, backend: str, targets: tuple[str, ...] = ("sm_120",)
) -> tuple[str, str, str]:
    """Code, what is wrong, and the backend that is named as the next best."""
    error = refused(make_plan, request_for(sources, targets, backend=backend), facts)
    commands = [step.command.argv for step in error.todo if step.command]
    named = [words[words.index("--backend") + 1] for words in commands if "--backend" in words]
    return error.code, error.what, (named or [""])[0]


def test_a_plan_without_compilers() -> None:
    made = make_plan(request_for(("fused_ssim", V1), ("sm_120",), backend="nvrtc"), BARE)
    assert made.backend == "nvrtc" and made.targets == archs("sm_120")
    made_of = [step for step in made.steps if isinstance(step, MakeDropin)]
    assert [(step.backend, step.targets) for step in made_of] == [("nvrtc", archs("sm_120"))] * 2
    assert "CUDA kernels by NVRTC for sm_120" in made_of[0].text
    assert all("on a GPU" in step.reasons[0].text for step in made_of)
    assert {item.why for item in made.considered} == {"--backend nvrtc was asked for; it needs no toolkit"}
    assert RungName.BUILT in made.proves and RungName.COMPUTES not in made.proves
    assert "on one GPU so far" in made.notes[0]
    # a target that this NVRTC does not know yet gets PTX
    older = machine(torch=replace(TORCH, version="2.6.0+cu124", cuda="12.4"))
    notes = make_plan(request_for((V1,), ("sm_120",), backend="nvrtc"), older).notes
    assert any("PTX of CUDA 12.4 for sm_120" in note for note in notes)


CPU = machine(torch=replace(TORCH, cuda=None))
NO_NVRTC = machine(packages=WHEELS)
OLD = machine(gpus=(RTX_5080,), toolkits=(), driver=OLD_DRIVER)
OLD_TORCH = machine(torch=replace(TORCH, version="1.13.0+cu110", cuda="11.0"))


@pytest.mark.parametrize(
    ("facts", "source", "target", "code", "words", "best"),
    [
        (CPU, "fused_ssim", "sm_120", "cpu-only-torch", "CPU-only", "pure"),
        (NO_NVRTC, "fused_ssim", "sm_120", "nvrtc-missing", "wheels, and that of NVRTC is missing", "pure"),
        (BARE, V1, "sm_61", "target-too-old", "does not compile for sm_61 any more", "pure"),
        (OLD_TORCH, V1, "sm_80", "nvrtc-too-old", "11.2 is the oldest", "pure"),
        (BARE, V1, "auto", "no-gpu-to-target", "no NVIDIA GPU", "pure"),
        (OLD, V1, "auto", "torch-does-not-serve", "driver 570.86.15 is too old for CUDA 13.0", "pure"),
        (BARE, "diff_gaussian_rasterization@gof", "sm_120", "nothing-replaces-it", "no drop-in", "nvrtc"),
    ],
)  # fmt: skip
def test_refusals(facts: Facts, source: str, target: str, code: str, words: str, best: str) -> None:
    found, what, named = refusal(facts, source, backend="nvrtc", targets=(target,))
    assert found == code and words in what
    assert named == best


@pytest.mark.parametrize(
    ("facts", "backend", "passed_over"),
    [
        (machine(), "native", []),
        (BARE, "nvrtc", ["native build"]),
        (machine(packages=WHEELS, toolkits=(), host=()), "pure", ["native build", "CUDA kernels by NVRTC"]),
        (CPU, "pure", ["native build", "CUDA kernels by NVRTC"]),
    ],
)
def test_what_auto_takes(tmp_path: Path, facts: Facts, backend: str, passed_over: list[str]) -> None:
    """Each that is passed over is named with its reason."""
    source = str(cuda_source(tmp_path, "simple_knn"))
    made = make_plan(request_for((source,), ("sm_120",), backend="auto"), facts)
    assert made.backend == backend
    if passed_over:
        assert [item.what for item in made.considered] == passed_over
        assert made.considered[0].why in made.notes[0]


def test_auto_keeps_the_reason_where_nothing_else_serves_and_native_code_that_does(tmp_path: Path) -> None:
    """What nothing replaces cannot be built, and what is wrong with the request is no reason to swap. What was built elsewhere
    and runs on the GPU is not replaced by drop-ins either, where no toolkit is."""
    plane = str(cuda_source(tmp_path / "b", "diff_plane_rasterization"))
    assert refusal(CPU, plane, backend="auto")[0] == "cpu-only-torch"
    assert refusal(CPU, str(tmp_path / "nowhere"), backend="auto")[0] == "not-a-folder"
    request = request_for((str(cuda_source(tmp_path, "simple_knn")),), backend="auto")
    torch = replace(TORCH, code=code("sm_120"))
    here = machine(torch=torch, gpus=(RTX_5080,), toolkits=(), driver=NEW_DRIVER)
    made = make_plan(request, with_extension(here, "simple_knn", code("sm_120")))
    assert (made.kind, made.steps) == (OptionKind.KEEP, ()) and "has code for sm_120" in made.reasons[0].text
    other = make_plan(request, with_extension(here, "simple_knn", code("sm_90")))
    assert other.kind is OptionKind.NVRTC
