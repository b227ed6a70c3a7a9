"""Every option of the ranking: when it is available, when not and with what reason, and in which order.

Whole texts and the machines that are common are held by the goldens of ``tests/machines``; here is what those lack.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.context import Goal
from splatfix.context.commands import sources_of
from splatfix.core.proof import RungName
from splatfix.core.step import PlainStep
from splatfix.knowledge.torch_releases import replacing_words
from splatfix.model import Distribution, Driver, Fact, Facts, Gpu, SplatPackage, Torch
from splatfix.model.steps import BuildWheel, Confirm, InstallTorch, Keep, MakeDropin, ProvideToolkit, RunLane
from splatfix.plan import OptionKind, Plan, SourceSummary, summarise
from tests.archs import archs, goal
from tests.files import put
from tests.plan.machines import (
    BLACKWELL_TORCH,
    CUDA_12,
    CUDA_13,
    NEW_DRIVER,
    OLD_DRIVER,
    RTX_4090,
    RTX_5080,
    SITE,
    TORCH,
    TORCH_118,
    TORCH_128,
    argv,
    changed,
    code,
    cuda_source,
    extensions,
    find_options,
    healthy,
    installing,
    kinds,
    machine,
    plan,
    rasterizer,
    step_of,
    why_not,
    with_extension,
)

PASCAL = Gpu(0, "NVIDIA GeForce GTX 1080 Ti", cc="6.1")
TWELVE_9 = replace(CUDA_12, version="12.9.86", archs=("sm_80", "sm_90"))
THIRTEEN_90 = replace(CUDA_13, archs=("sm_75", "sm_80", "sm_90"))


def blackwell(driver: tuple[str, str] = NEW_DRIVER, **values: Any) -> Facts:
    """An RTX 5080, its torch and driver; what is not said is in order."""
    return machine(**{"torch": BLACKWELL_TORCH, "gpus": (RTX_5080,), "driver": driver, **values})


def manual(plan: Plan) -> bool:
    """Some of its steps are for the user to do."""
    return any(type(step) is PlainStep for step in plan.steps)


def with_docker(facts: Facts) -> Facts:
    return changed(facts, tools={"docker": "28.0"})


@pytest.mark.parametrize(
    ("facts", "more", "kind", "reason"),
    [
        (blackwell(torch=TORCH_118), {"keep": ("torch",)}, OptionKind.OTHER_TORCH, "--keep torch"),
        (blackwell(OLD_DRIVER, toolkits=(THIRTEEN_90,)), {}, OptionKind.REBUILD_PTX, "driver 570.86.15 is too old for CUDA 13.0"),
        (blackwell(OLD_DRIVER, torch=TORCH_128, toolkits=(TWELVE_9,)), {}, OptionKind.REBUILD_PTX,
         "newer than a driver of CUDA 12.8 translates"),
        (healthy(), {"sources": rasterizer("gof")}, OptionKind.DROPIN, "nine-channel output"),
        (healthy(), {"sources": extensions(simple_knn=()), "keep": ("simple-knn",)}, OptionKind.DROPIN, "must not change"),
        (with_docker(blackwell(("470.82.01", "11.4"))), {}, OptionKind.CONTAINER,
         "lane cu130: driver 470.82.01 is too old"),
    ],
)  # fmt: skip
def test_why_not_available(facts: Facts, more: dict[str, Any], kind: OptionKind, reason: str) -> None:
    assert reason in why_not(find_options(Goal(), facts, **more), kind)


def test_ptx_is_not_that_of_a_jetson() -> None:
    old = replace(CUDA_12, version="12.0.76", archs=("sm_80", "sm_87"), gcc_max=13)
    torch = replace(TORCH_128, knows_archs=("8.0", "8.7", "12.0"))
    options = find_options(goal("sm_120"), machine(torch=torch, toolkits=(old,)))
    build = step_of(plan(options, OptionKind.REBUILD_PTX), BuildWheel)
    assert build.variables["TORCH_CUDA_ARCH_LIST"] == "8.0+PTX"


def test_only_cuda_13_toolkits_come_from_pypi() -> None:
    facts = blackwell(toolkits=())
    option = plan(find_options(Goal(), facts), OptionKind.PROVIDE_TOOLKIT)
    assert step_of(option, ProvideToolkit).cuda == "13.0" and not manual(option)
    assert "--provide-toolkit" in argv(step_of(option, BuildWheel))
    cached = replace(facts, machine=replace(facts.machine, own_toolkits=Fact(("13.0",), "test")))
    option = plan(find_options(Goal(), cached), OptionKind.PROVIDE_TOOLKIT)
    assert "download" not in option.steps[0].text, "it lies in the cache"
    options = find_options(Goal(), blackwell(torch=TORCH_128, toolkits=()))
    by_hand = plan(options, OptionKind.INSTALL_TOOLKIT)
    assert manual(by_hand) and "CUDA 12.8 toolkit" in by_hand.steps[0].text
    other = plan(options, OptionKind.OTHER_TORCH)
    assert step_of(other, InstallTorch).tag.startswith("cu13") and not manual(other)


def test_an_old_driver_is_told_and_what_follows_is_planned() -> None:
    """A mismatch, or an error of the driver that is replaced, plays no part in what follows."""
    driver = Driver("570.86.15", "12.8", library_version="570.86.15")
    facts = changed(blackwell(), driver=Fact(driver, "test"))
    options = find_options(Goal(), with_extension(facts, "simple_knn", code("sm_120")))
    too_old = "driver 570.86.15 is too old for CUDA 13.0, which needs 580 or newer"
    assert too_old in why_not(options, OptionKind.KEEP)
    option = plan(options, OptionKind.DRIVER)
    assert kinds(options)[-1] is OptionKind.DRIVER and "580 or newer" in option.steps[0].text
    assert [type(step) for step in option.steps] == [PlainStep, Keep, Confirm]
    torch = step_of(plan(options, OptionKind.OTHER_TORCH), InstallTorch)
    assert torch.tag.startswith("cu12"), "a build that this driver starts"


def test_a_last_driver_branch_is_not_surpassed() -> None:
    """CUDA 14 is in no table: its driver floor is not known."""
    torch = replace(TORCH_128, cuda="14.0", version="2.99.0+cu140", code=code("sm_61"))
    options = find_options(Goal(), blackwell(("470.57.02", "11.4"), torch=torch, gpus=(PASCAL,), toolkits=()))
    drivers = [item for item in options.available if item.kind is OptionKind.DRIVER]
    assert not any("580" in item.steps[0].text for item in drivers)


def test_what_no_table_knows_is_unsure_and_not_impossible() -> None:
    future = Torch("9.9.0+cu139", "13.9", None, "/x", knows_archs=TORCH.knows_archs)
    toolkit = replace(CUDA_13, version="13.9.1", root="/usr/local/cuda-13.9")
    facts = blackwell(("999.1", "15.0"), torch=future, toolkits=(toolkit,))
    option = plan(find_options(Goal(), facts), OptionKind.REBUILD)
    assert any("torch 9.9.0+cu139" in text for text in option.unsure)


def test_a_lane_for_this_gpu_and_driver() -> None:
    option = plan(find_options(Goal(), with_docker(healthy())), OptionKind.CONTAINER)
    assert step_of(option, RunLane).lane == "cu130"
    assert RungName.TRAINS in option.proves
    assert not set(option.proves) & {limit.rung for limit in option.cannot_prove}


def test_a_kept_extension_keeps_its_torch_too() -> None:
    facts = with_extension(healthy(), "simple_knn", code("sm_120"))
    facts = with_extension(facts, "fused_ssim", code("sm_90"))
    # what serves is rebuilt only where torch changes, kept or not
    for kept in ((), ("simple_knn",)):
        options = find_options(Goal(), facts, keep=kept)
        assert step_of(plan(options, OptionKind.REBUILD), BuildWheel).subjects == ("fused_ssim",)
    assert "compiled against the torch here" in why_not(options, OptionKind.OTHER_TORCH)
    both = find_options(Goal(), facts, keep=("simple_knn", "fused_ssim"))
    assert OptionKind.REBUILD not in kinds(both)
    # under either spelling; and a name that keeps nothing is said
    named = SourceSummary(named=("./gs",))
    options = find_options(Goal(), facts, sources=named, keep=("Simple-KNN", "torhc"))
    assert step_of(plan(options, OptionKind.REBUILD), BuildWheel).subjects == ("fused_ssim",)
    assert "simple_knn must not change" in why_not(options, OptionKind.OTHER_TORCH)
    assert set(options.notes) == {
        "--keep torhc does not match anything here",
        "./gs may hold simple_knn too: name the folders of the others in its place",
    }


def test_the_source_itself_tells_what_stands_in_for_it(tmp_path: Path) -> None:
    knn = cuda_source(tmp_path / "knn", name="simple_knn")
    summary = summarise((str(knn),), named=("./knn",))
    assert (tuple(summary.variants), summary.replacement.names) == (("simple_knn",), ("simple_knn",))
    options = find_options(goal("sm_120"), healthy(), sources=summary)
    step = step_of(plan(options, OptionKind.DROPIN), MakeDropin)
    assert argv(step)[:5] == ("splatfix", "install", "./knn", "--backend", "pure")
    assert plan(options, OptionKind.REBUILD).title.startswith("build "), "nothing was there to be rebuilt"
    setup = "setup(name='host', ext_modules=[CppExtension('host._C', ['a.cpp'])])\n"
    host = put(tmp_path / "host", {"a.cpp": "", "setup.py": setup})
    options = find_options(goal("sm_120"), healthy(), sources=summarise((str(host),)))
    rebuild = plan(options, OptionKind.REBUILD)
    assert step_of(rebuild, BuildWheel).text == "build host, without CUDA code"
    assert not any(isinstance(step, Confirm) for step in rebuild.steps)
    assert summarise((str(tmp_path / "nothing"),)).variants == {}


def test_older_machine_code_serves_a_sibling_without_ptx() -> None:
    """CUDA 12.8 has no sm_121, but its sm_120 code runs there: no PTX and no other torch is needed."""
    spark = Gpu(0, "NVIDIA GB10", cc="12.1")
    torch = replace(TORCH_128, knows_archs=(*TORCH.knows_archs, "12.1"))
    options = find_options(Goal(), blackwell(torch=torch, gpus=(spark,), toolkits=(CUDA_12,)))
    step = step_of(plan(options, OptionKind.REBUILD), BuildWheel)
    assert (step.targets, step.variables["TORCH_CUDA_ARCH_LIST"]) == (archs("sm_121"), "12.0")
    for kind in (OptionKind.REBUILD_PTX, OptionKind.OTHER_TORCH):
        assert "not needed" in why_not(options, kind)


def test_companions_of_one_release_are_named_by_their_build_too() -> None:
    """pip would call torch==2.8.* satisfied by the 2.8.0+cu128 that is there."""
    installed = {"torch": "2.8.0+cu128", "torchvision": "0.23.0+cu128"}
    version, command = replacing_words("2.8.*", "cu126", installed)
    assert version == "2.8.0"
    assert {"torch==2.8.0+cu126", "torchvision==0.23.0+cu126"} <= set(command)
    version, command = replacing_words("2.11.*", "cu130", installed)
    assert version == "2.11.*", "pip works it out for another release"
    assert {"torch==2.11.*", "torchvision"} <= set(command)


def test_a_gpu_that_runs_the_code_for_a_target_loses_nothing() -> None:
    """sm_86 code runs on an RTX 4090; sm_120 code does not."""
    facts = blackwell(torch=TORCH_128, gpus=(RTX_4090,), toolkits=(CUDA_12,))
    facts = with_extension(facts, "simple_knn", code("sm_89"))
    both = "\n".join(find_options(goal("sm_90", "sm_75"), facts).notes)
    assert "sm_90, sm_75 are not in this machine: they can" in both
    still_served = "to keep this machine's own"
    assert still_served not in "\n".join(find_options(goal("sm_86"), facts).notes)
    assert f"{still_served} sm_89" in "\n".join(find_options(goal("sm_120"), facts).notes)


def test_drop_ins_are_kept_for_what_they_are() -> None:
    package = SplatPackage("fused_ssim", f"{SITE}/fused_ssim", ("fused_ssim",))
    dropin = Distribution("fused_ssim", "0.0.0", SITE, made_by_splatfix="drop-in")
    options = find_options(Goal(), installing(healthy(), dropin, package=package))
    option = plan(options, OptionKind.KEEP)
    assert kinds(options)[0] is OptionKind.KEEP and option.steps[0] == Keep(subjects=("fused_ssim",))
    (reason,) = option.reasons
    assert reason.text == "splatfix's drop-ins run wherever torch does: fused_ssim"
    without_gpu = find_options(Goal(), installing(machine(), dropin, package=package))
    assert "drop-ins already" in why_not(without_gpu, OptionKind.DROPIN)


def test_of_two_distributions_of_one_name_the_first_on_the_path_counts() -> None:
    facts = installing(machine(), Distribution("gsplat", "1.4.0", SITE))
    facts = installing(facts, Distribution("gsplat", "1.5.3", "/below"))
    assert sources_of(facts, ("gsplat",)) == ("gsplat==1.4.0",)
