"""Drop-ins with GPU code and no compiler: where torch's NVRTC or Warp serves, and the reason where it does not."""

import dataclasses
from pathlib import Path

import pytest

from splatfix.context import Goal, make_context
from splatfix.core.proof import RungName
from splatfix.facts import Facts, Gpu
from splatfix.knowledge.dropins import DROPINS, Dropin
from splatfix.knowledge.warp import kernel_of
from splatfix.plan import InstallPlan, OptionKind, SourceSummary, plan_install
from splatfix.plan.option import Native, Replacement
from splatfix.plan.steps import InstallDependencies, MakeDropin, UseDropins
from tests.archs import archs, goal, request_for
from tests.plan.machines import (
    INTERPRETER,
    NEW_DRIVER,
    OLD_DRIVER,
    RTX_5080,
    TORCH,
    argv,
    changed,
    code,
    cuda_source,
    find_options,
    kinds,
    machine,
    make_plan,
    plan,
    refused,
    step_of,
    why_not,
    with_extension,
)

BARE = machine(toolkits=(), host=())
CU_128 = dataclasses.replace(TORCH, version="2.8.0+cu128", cuda="12.8")
CU_118 = dataclasses.replace(TORCH, version="2.7.0+cu118", cuda="11.8")
WHEELS = {"pip": "25.0", "nvidia-cublas": "13.1"}
V1 = "diff_gaussian_rasterization@v1"


def asked(facts: Facts, *sources: str, backend: str, targets: tuple[str, ...] = ("sm_120",)) -> InstallPlan:
    return plan_install(request_for(sources, targets, backend=backend), make_context(facts, goal(*targets)))


def refusal(
    facts: Facts, *sources: str, backend: str, targets: tuple[str, ...] = ("sm_120",)
) -> tuple[str, str, str]:
    """Code, what is wrong, and the backend that is named as the next best."""
    error = refused(asked, facts, *sources, backend=backend, targets=targets)
    commands = [step.command.argv for step in error.todo if step.command]
    named = [words[words.index("--backend") + 1] for words in commands if "--backend" in words]
    return error.code, error.what, (named or [""])[0]


def warp_of(made: InstallPlan) -> str:
    (step,) = (step for step in made.steps if isinstance(step, InstallDependencies))
    assert step.requirements[0] == "gswarp>=1.1,<1.2" and step.modules == ("gswarp",)
    return step.requirements[1]


NEW, OLD = "warp-lang>=1.18,<2", "warp-lang>=1.17,<1.18"


@pytest.mark.parametrize(
    ("torch", "driver", "targets", "expected"),
    [
        (TORCH, NEW_DRIVER, (), NEW),
        (CU_128, NEW_DRIVER, (), NEW),
        (CU_128, OLD_DRIVER, (), OLD),
        (TORCH, None, ("sm_75",), NEW),  # elsewhere: a driver for torch is there, and no more is known
        (CU_128, None, ("sm_90", "sm_120"), OLD),
        (CU_128, None, ("sm_70",), OLD),
        (CU_118, None, ("sm_86",), OLD),
    ],
)
def test_the_build_of_warp_is_the_newest_that_driver_and_gpu_allow(
    torch: object, driver: tuple[str, str] | None, targets: tuple[str, ...], expected: str
) -> None:
    gpus = (RTX_5080,) if driver else ()
    facts = machine(torch=torch, toolkits=(), gpus=gpus, driver=driver)  # type: ignore[arg-type]
    assert warp_of(asked(facts, "simple_knn", V1, backend="warp", targets=targets)) == expected


@pytest.mark.parametrize(
    ("backend", "kernels", "caveat"),
    [
        ("nvrtc", "CUDA kernels by NVRTC for sm_120", "No GPU has run these kernels yet"),
        ("warp", "gswarp's kernels by NVIDIA Warp for sm_120", "No GPU has run gswarp here"),
    ],
)
def test_a_plan_without_compilers(backend: str, kernels: str, caveat: str) -> None:
    """gswarp and Warp come first, so that a drop-in can be proven; all of one journal entry."""
    made = make_plan(request_for(("fused_ssim", V1), ("sm_120",), backend=backend), BARE)
    assert made.backend == backend and made.targets == archs("sm_120")
    assert isinstance(made.steps[0], InstallDependencies) is (backend == "warp")
    made_of = [step for step in made.steps if isinstance(step, MakeDropin)]
    assert [(step.backend, step.targets) for step in made_of] == [(backend, archs("sm_120"))] * 2
    assert kernels in made_of[0].text
    assert all("on a GPU" in step.reasons[0].text for step in made_of)
    assert {item.why for item in made.considered} == {
        f"--backend {backend} was asked for; it needs no toolkit"
    }
    assert RungName.BUILT in made.proves and RungName.COMPUTES not in made.proves
    assert caveat in made.notes[0]
    if backend == "warp":
        assert any("not known here: whether the driver there starts CUDA 13.0" in note for note in made.notes)


def test_gswarp_stands_behind_the_faces_whose_every_word_it_answers() -> None:
    served = {item.name for item in DROPINS if kernel_of(item)[0]}
    rasterizers = {f"diff_gaussian_rasterization@{name}" for name in ("v1", "mcmc", "scaffold", "taming")}
    assert served == {"fused_ssim", "simple_knn", *rasterizers}
    refused = {item.name.rpartition("@")[2]: kernel_of(item)[1] for item in DROPINS if kernel_of(item)[1]}
    assert refused["dr_aa"] == refused["3dgs_accel"] == "gswarp takes antialiasing and ignores it"
    assert "kernel_size" in refused["mip"] and "surfels" in refused["diff_surfel_rasterization"]


CPU = machine(torch=dataclasses.replace(TORCH, cuda=None))
NO_NVRTC = machine(packages=WHEELS)
OLD_TORCH = machine(torch=dataclasses.replace(TORCH, version="1.13.0+cu110", cuda="11.0"))
PYTHON_39 = machine(interpreter=dataclasses.replace(INTERPRETER, version="3.9.18"))
MIP, AA = "diff_gaussian_rasterization@mip", "diff_gaussian_rasterization@dr_aa"
AMPERE_11 = machine(torch=CU_118, gpus=(Gpu(0, "NVIDIA A100", cc="8.0"),), driver=("470.42.01", "11.4"))


@pytest.mark.parametrize(
    ("backend", "facts", "source", "target", "code", "words", "best"),
    [
        ("nvrtc", CPU, "fused_ssim", "sm_120", "cpu-only-torch", "CPU-only", "pure"),
        ("nvrtc", NO_NVRTC, "fused_ssim", "sm_120", "nvrtc-missing", "wheels, and that of NVRTC is missing", "warp"),
        ("nvrtc", BARE, V1, "sm_61", "target-too-old", "does not compile for sm_61 any more", "pure"),
        ("nvrtc", OLD_TORCH, V1, "sm_80", "nvrtc-too-old", "11.2 is the oldest", "warp"),
        ("nvrtc", BARE, V1, "auto", "no-gpu-to-target", "no NVIDIA GPU", "pure"),
        ("nvrtc", BARE, "diff_gaussian_rasterization@gof", "sm_120", "nothing-replaces-it", "no drop-in", "nvrtc"),
        ("warp", CPU, V1, "sm_120", "cpu-only-torch", "CPU-only", "pure"),
        ("warp", BARE, AA, "sm_120", "no-warp-kernels", "takes antialiasing and ignores it", "nvrtc"),
        ("warp", PYTHON_39, V1, "sm_120", "warp-needs-python", "needs Python 3.10 or newer; this is 3.9", "nvrtc"),
        ("warp", changed(BARE, glibc="2.27"), V1, "sm_120", "warp-has-no-wheel", "glibc 2.28, this is 2.27", "nvrtc"),
        ("warp", changed(BARE, machine="ppc64le"), V1, "sm_120", "warp-has-no-wheel", "ppc64le", "nvrtc"),
        ("warp", BARE, V1, "sm_61", "target-too-old", "needs sm_70 or newer, and sm_61", "pure"),
        ("warp", AMPERE_11, V1, "auto", "driver-too-old", "driver 470.42.01 is too old for CUDA 12.0", "nvrtc"),
    ],
)  # fmt: skip
def test_one_clear_error_and_the_next_best_backend(
    backend: str, facts: Facts, source: str, target: str, code: str, words: str, best: str
) -> None:
    found, what, named = refusal(facts, source, backend=backend, targets=(target,))
    assert found == code and words in what
    assert named == best


def test_a_driver_too_old_for_torch_rules_out_both() -> None:
    facts = machine(gpus=(RTX_5080,), toolkits=(), driver=OLD_DRIVER)
    for backend in ("nvrtc", "warp"):
        found, what, best = refusal(facts, V1, backend=backend, targets=())
        assert found == "torch-does-not-serve" and "driver 570.86.15 is too old for CUDA 13.0" in what
        assert best == "pure"


def test_a_target_that_nvrtc_does_not_know_yet_gets_ptx() -> None:
    facts = machine(torch=dataclasses.replace(CU_128, cuda="12.4", version="2.6.0+cu124"))
    made = make_plan(request_for((V1,), ("sm_120",), backend="nvrtc"), facts)
    assert any("PTX of CUDA 12.4 for sm_120" in note for note in made.notes)


NEITHER = changed(machine(packages=WHEELS, toolkits=(), host=()), glibc="2.17")


@pytest.mark.parametrize(
    ("facts", "backend", "passed_over"),
    [
        (machine(), "native", []),
        (BARE, "nvrtc", ["native build"]),
        (machine(packages=WHEELS, toolkits=(), host=()), "warp", ["native build", "CUDA kernels by NVRTC"]),
        (NEITHER, "pure", ["native build", "CUDA kernels by NVRTC", "gswarp by NVIDIA Warp"]),
        (CPU, "pure", ["native build", "CUDA kernels by NVRTC", "gswarp by NVIDIA Warp"]),
    ],
)
def test_auto_ranks_native_nvrtc_warp_and_pytorch(
    tmp_path: Path, facts: Facts, backend: str, passed_over: list[str]
) -> None:
    """Each that is passed over is named with its reason."""
    source = str(cuda_source(tmp_path, "simple_knn"))
    made = make_plan(request_for((source,), ("sm_120",), backend="auto"), facts)
    assert made.backend == backend
    if passed_over:
        assert [item.what for item in made.considered] == passed_over
        assert made.considered[0].why in made.notes[0]


def test_auto_keeps_the_reason_where_nothing_else_serves(tmp_path: Path) -> None:
    """What nothing replaces cannot be built; and what is wrong with the request is no reason to swap."""
    plane = str(cuda_source(tmp_path / "b", "diff_plane_rasterization"))
    assert refusal(CPU, plane, backend="auto")[0] == "cpu-only-torch"
    assert refusal(CPU, str(tmp_path / "nowhere"), backend="auto")[0] == "not-a-folder"


def test_auto_leaves_native_code_that_serves(tmp_path: Path) -> None:
    """No toolkit is here; what was built elsewhere runs on the GPU, and is not replaced by drop-ins."""
    source = str(cuda_source(tmp_path, "simple_knn"))
    torch = dataclasses.replace(TORCH, code=code("sm_120"))
    here = machine(torch=torch, gpus=(RTX_5080,), toolkits=(), driver=NEW_DRIVER)

    def planned(*archs: str) -> InstallPlan:
        return make_plan(
            request_for((source,), backend="auto"), with_extension(here, "simple_knn", code(*archs))
        )

    made = planned("sm_120")
    assert (made.kind, made.steps) == (OptionKind.KEEP, ()) and "has code for sm_120" in made.reasons[0].text
    assert planned("sm_90").kind is OptionKind.NVRTC


def named(name: str) -> Dropin:
    return next(dropin for dropin in DROPINS if dropin.name == name)


SSIM = SourceSummary(
    variants={"fused_ssim": ()}, replacement=Replacement((named("fused_ssim"),)), named=("fused_ssim",)
)


def test_options_name_each_with_what_it_proves() -> None:
    packages = {**WHEELS, "nvidia-cuda-nvrtc": "13"}
    facts = machine(gpus=(RTX_5080,), toolkits=(), packages=packages, driver=NEW_DRIVER)
    options = find_options(Goal(), facts, sources=SSIM)
    without_compiler = [OptionKind.NVRTC, OptionKind.WARP, OptionKind.DROPIN]
    assert [kind for kind in kinds(options) if kind in without_compiler] == without_compiler
    for kind in (OptionKind.NVRTC, OptionKind.WARP):
        option = plan(options, kind)
        assert option.proves[:3] == (RungName.RESOLVED, RungName.BUILT, RungName.LOADS)
        assert RungName.COMPUTES in option.proves, "a GPU is here"
        use = step_of(option, UseDropins)
        assert argv(use)[2:5] == ("fused_ssim", "--backend", kind.value) and use.backend == kind.value
        assert any("No GPU has run" in reason.text for reason in option.reasons)
    away = plan(find_options(goal("sm_90"), machine(toolkits=()), sources=SSIM), OptionKind.NVRTC)
    assert RungName.BUILT in away.proves and RungName.COMPUTES not in away.proves


@pytest.mark.parametrize(
    ("facts", "replacement", "kind", "reason"),
    [
        (CPU, SSIM.replacement, OptionKind.NVRTC, "CPU-only build"),
        (CPU, SSIM.replacement, OptionKind.WARP, "CPU-only build"),
        (machine(), Replacement((named(MIP),)), OptionKind.WARP, "kernel_size"),
        (machine(), Replacement(native=(Native("gsplat", "x"),)), OptionKind.NVRTC, "nothing replaces"),
    ],
)
def test_options_say_why_one_is_not_possible(
    facts: Facts, replacement: Replacement, kind: OptionKind, reason: str
) -> None:
    options = find_options(goal("sm_90"), facts, sources=SourceSummary(replacement=replacement))
    assert reason in why_not(options, kind)
