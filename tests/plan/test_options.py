"""Every road of the ranking: when it is open, when it is shut and with what reason, and in which order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from splatfix.context import Goal
from splatfix.core.proof import RungName
from splatfix.core.step import Step
from splatfix.facts import (
    Code,
    Distribution,
    Driver,
    EntryKind,
    Extension,
    Fact,
    Facts,
    FatbinGroup,
    Gpu,
    SplatPackage,
    Torch,
)
from splatfix.knowledge.stacks import variant
from splatfix.knowledge.torch_releases import replacing_words
from splatfix.plan import LaneSummary, Option, OptionKind, Options, SourceSummary, summarise
from splatfix.plan.steps import Confirm, InstallTorch, Keep, ProvideToolkit, Rebuild, RunLane, UseDropins
from tests.archs import archs, goal
from tests.plan.machines import (
    CUDA_12,
    CUDA_13,
    INTERPRETER,
    TORCH,
    argv,
    compilers,
    cuda_source,
    extensions,
    find_options,
    machine,
    step_of,
)

SITE = INTERPRETER.site_packages[0]
RTX_5080 = Gpu(0, "NVIDIA GeForce RTX 5080", cc="12.0")
RTX_4090 = Gpu(0, "NVIDIA GeForce RTX 4090", cc="8.9")


def code(*archs: str, ptx: tuple[str, tuple[int, int]] | None = None) -> tuple[FatbinGroup, ...]:
    entries = [Code(EntryKind.SASS, arch) for arch in archs]
    entries += [Code(EntryKind.PTX, ptx[0], ptx[1])] if ptx else []
    return (FatbinGroup(tuple(entries), 3),)


BLACKWELL_TORCH = dataclasses.replace(
    TORCH, code=code("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
)
TORCH_128 = dataclasses.replace(BLACKWELL_TORCH, version="2.8.0+cu128", cuda="12.8")
TORCH_118 = dataclasses.replace(
    TORCH,
    version="2.1.2+cu118",
    cuda="11.8",
    code=code("sm_50", "sm_70", "sm_80", "sm_86", "sm_90"),
    knows_archs=("7.5", "8.0", "8.6", "8.9", "9.0"),
)


def with_driver(facts: Facts, version: str, cuda: str) -> Facts:
    return dataclasses.replace(
        facts, machine=dataclasses.replace(facts.machine, driver=Fact(Driver(version, cuda), "test"))
    )


def with_extension(facts: Facts, name: str, groups: tuple[FatbinGroup, ...]) -> Facts:
    """An installed splatting extension with this GPU code."""
    package = SplatPackage(name, f"{SITE}/{name}", (name,), (f"{name}._C",))
    file = Extension(f"{name}/_C.so", SITE, name, groups, (), True, True, 1)
    old = facts.environment
    environment = dataclasses.replace(
        old,
        packages=Fact((*(old.packages.value or ()), package), "test"),
        extensions=Fact((*(old.extensions.value or ()), file), "test"),
        distributions=Fact((*(old.distributions.value or ()), Distribution(name, "0.0.0", SITE)), "test"),
    )
    return dataclasses.replace(facts, environment=environment)


def rasterizer(key: str) -> SourceSummary:
    """The rasterizer of a stack, by the key of its variant."""
    row = variant(key)
    assert row is not None
    return extensions(**{row.module: (key,)})


def healthy() -> Facts:
    """An RTX 5080 with a driver, torch, toolkit and compiler that fit."""
    return with_driver(machine(torch=BLACKWELL_TORCH, gpus=(RTX_5080,)), "580.95.05", "13.0")


def plan(options: Options, kind: OptionKind) -> Option:
    return next(item for item in options.available if item.kind is kind)


def why_not(options: Options, title: str) -> str:
    return next(item.rejected_because for item in options.rejected if title in item.title)


def kinds(options: Options) -> list[OptionKind]:
    return [item.kind for item in options.available]


def test_what_works_is_kept_and_comes_first() -> None:
    facts = with_extension(healthy(), "simple_knn", code("sm_120"))
    options = find_options(Goal(), facts)
    assert kinds(options)[0] is OptionKind.KEEP
    assert options.subjects == ("simple_knn",)
    shown = set(RungName) - {RungName.REHEARSED}  # which stands in for a GPU
    assert set(plan(options, OptionKind.KEEP).proves) == shown, "the GPU is here: everything can be shown"
    assert "new enough" in why_not(options, "driver upgrade (suggested only)")


def test_an_extension_for_another_gpu_is_rebuilt_and_not_kept() -> None:
    facts = with_extension(healthy(), "simple_knn", code("sm_86", "sm_90"))
    options = find_options(Goal(), facts)
    assert kinds(options)[0] is OptionKind.REBUILD
    assert "simple_knn cannot run (3 of 3 fatbins have no code for sm_120)" in why_not(options, "keep")
    step = step_of(plan(options, OptionKind.REBUILD), Rebuild)
    assert (step.arch_list, step.subjects, step.compiler) == ("12.0", ("simple_knn",), "/usr/bin/g++")
    assert argv(step)[:6] == ("splatfix", "install", "SOURCE", "--target", "sm_120", "--python")


def test_the_order_is_from_the_least_invasive_up() -> None:
    order = list(OptionKind)
    for facts in (healthy(), with_extension(healthy(), "simple_knn", code("sm_120"))):
        places = [order.index(road) for road in kinds(find_options(Goal(), facts))]
        assert places == sorted(places)


def test_a_sibling_of_the_same_major_is_no_reason_to_rebuild() -> None:
    facts = with_driver(machine(torch=BLACKWELL_TORCH, gpus=(RTX_4090,)), "580.95.05", "13.0")
    options = find_options(Goal(), with_extension(facts, "simple_knn", code("sm_86")))
    assert kinds(options)[0] is OptionKind.KEEP, "an RTX 4090 runs the 8.6 code"


def test_torch_without_code_rules_out_every_rebuild() -> None:
    facts = with_driver(machine(torch=TORCH_118, gpus=(RTX_5080,)), "580.95.05", "13.0")
    options = find_options(Goal(), facts)
    assert kinds(options)[0] is OptionKind.OTHER_TORCH
    for title in ("keep", "installed CUDA toolkit", "PTX", "PyPI", "install a CUDA toolkit"):
        assert "no code for sm_120" in why_not(options, title)
    steps = plan(options, OptionKind.OTHER_TORCH).steps
    install = next(item for item in steps if isinstance(item, InstallTorch))
    assert argv(install)[-2] == "--index-url" and "/whl/cu13" in argv(install)[-1]
    assert any(isinstance(item, Rebuild) for item in steps), "extensions are rebuilt after"


def test_the_same_release_is_named_by_its_local_version() -> None:
    """pip would call torch==2.8.* satisfied by the 2.8.0+cu128 that is there."""
    pascal = Gpu(0, "NVIDIA GeForce GTX 1080 Ti", cc="6.1")
    torch = dataclasses.replace(TORCH_128, code=code("sm_75", "sm_120"), knows_archs=("6.1", "7.5", "12.0"))
    toolkit = dataclasses.replace(CUDA_12, archs=("sm_61", "sm_75", "sm_120"))
    facts = with_driver(machine(torch=torch, gpus=(pascal,), toolkits=(toolkit,)), "580.95.05", "13.0")
    install = step_of(plan(find_options(Goal(), facts), OptionKind.OTHER_TORCH), InstallTorch)
    assert "torch==2.8.0+cu126" in argv(install)
    assert argv(install)[-1].endswith("/cu126")


def test_torch_is_left_alone_when_asked_to() -> None:
    facts = with_driver(machine(torch=TORCH_118, gpus=(RTX_5080,)), "580.95.05", "13.0")
    options = find_options(Goal(), facts, keep=("torch",))
    assert OptionKind.OTHER_TORCH not in kinds(options)
    assert "--keep torch" in why_not(options, "another build")


def test_a_toolkit_older_than_the_gpu_leaves_ptx() -> None:
    old = dataclasses.replace(
        CUDA_12,
        root="/usr/local/cuda-12.4",
        version="12.4.131",
        archs=("sm_80", "sm_87", "sm_90"),
        gcc_max=13,
    )
    facts = with_driver(machine(torch=TORCH_128, gpus=(RTX_5080,), toolkits=(old,)), "580.95.05", "13.0")
    options = find_options(Goal(), facts)
    assert kinds(options)[:3] == [OptionKind.REBUILD_PTX, OptionKind.NVRTC, OptionKind.WARP]
    assert kinds(options)[3] is OptionKind.INSTALL_TOOLKIT
    option = plan(options, OptionKind.REBUILD_PTX)
    step = step_of(option, Rebuild)
    assert step.arch_list == "9.0+PTX" and "--ptx" in argv(step)
    assert "sm_90 machine code does not load there" in option.reasons[0].text
    assert not option.unsure, "the driver of CUDA 13.0 reads PTX of 12.4"
    assert "cannot compile for sm_120" in why_not(options, "installed CUDA toolkit")


def test_ptx_newer_than_the_driver_is_rejected() -> None:
    toolkit = dataclasses.replace(CUDA_13, archs=("sm_75", "sm_80", "sm_90"))
    torch = dataclasses.replace(BLACKWELL_TORCH)
    facts = with_driver(machine(torch=torch, gpus=(RTX_5080,), toolkits=(toolkit,)), "570.86.15", "12.8")
    assert "driver 570.86.15 is too old for CUDA 13.0" in why_not(find_options(Goal(), facts), "PTX")
    twelve = dataclasses.replace(CUDA_12, version="12.9.86", archs=("sm_80", "sm_90"))
    facts = with_driver(machine(torch=TORCH_128, gpus=(RTX_5080,), toolkits=(twelve,)), "570.86.15", "12.8")
    assert "newer than a driver of CUDA 12.8 translates" in why_not(find_options(Goal(), facts), "PTX")


def test_only_cuda_13_toolkits_come_from_pypi() -> None:
    bare = with_driver(machine(torch=BLACKWELL_TORCH, gpus=(RTX_5080,), toolkits=()), "580.95.05", "13.0")
    option = plan(find_options(Goal(), bare), OptionKind.PROVIDE_TOOLKIT)
    assert any(isinstance(step, ProvideToolkit) and step.cuda == "13.0" for step in option.steps)
    assert "--provide-toolkit" in argv(step_of(option, Rebuild))
    assert not option.manual
    bare = with_driver(machine(torch=TORCH_128, gpus=(RTX_5080,), toolkits=()), "580.95.05", "13.0")
    options = find_options(Goal(), bare)
    assert "PyPI has no compiler of CUDA 12" in why_not(options, "PyPI")
    by_hand = plan(options, OptionKind.INSTALL_TOOLKIT)
    assert by_hand.manual and "CUDA 12.8 toolkit" in by_hand.steps[0].text
    assert (
        plan(options, OptionKind.OTHER_TORCH).steps[0].text.startswith("install torch 2.8.0 (cu12") is False
    )
    assert not plan(options, OptionKind.OTHER_TORCH).manual, "torch for CUDA 13 needs nothing by hand"


def test_a_missing_compiler_is_told_and_named() -> None:
    facts = with_driver(
        machine(torch=TORCH_128, gpus=(RTX_5080,), toolkits=(CUDA_12,), host=compilers("15.1.0")),
        "580.95.05",
        "13.0",
    )
    option = plan(find_options(Goal(), facts), OptionKind.REBUILD)
    assert option.manual
    assert type(option.steps[0]) is Step
    (package,) = [argv(step)[-1] for step in option.steps if step.command and argv(step)[0] == "sudo"]
    assert package.startswith("g++-") and package != "g++-15"


def test_an_old_driver_is_told_and_what_follows_is_planned() -> None:
    facts = with_driver(machine(torch=BLACKWELL_TORCH, gpus=(RTX_5080,)), "570.86.15", "12.8")
    options = find_options(Goal(), with_extension(facts, "simple_knn", code("sm_120")))
    assert "driver 570.86.15 is too old for CUDA 13.0, which needs 580 or newer" in why_not(options, "keep")
    option = plan(options, OptionKind.DRIVER)
    assert kinds(options)[-1] is OptionKind.DRIVER
    assert type(option.steps[0]) is Step and "580 or newer" in option.steps[0].text
    assert step_of(option, Keep).subjects == ("simple_knn",)
    torch = step_of(plan(options, OptionKind.OTHER_TORCH), InstallTorch)
    assert torch.tag.startswith("cu12"), "a build that this driver starts"


def test_a_last_driver_branch_is_not_surpassed() -> None:
    pascal = Gpu(0, "NVIDIA GeForce GTX 1080 Ti", cc="6.1")
    torch = dataclasses.replace(TORCH_128, cuda="14.0", version="2.99.0+cu140", code=code("sm_61"))
    facts = with_driver(machine(torch=torch, gpus=(pascal,), toolkits=()), "470.57.02", "11.4")
    options = find_options(Goal(), facts)  # CUDA 14 is in no table: its driver floor is not known
    assert all(
        item.kind is not OptionKind.DRIVER or "580" not in item.steps[0].text for item in options.available
    )


def test_a_broken_driver_comes_before_everything() -> None:
    stale = dataclasses.replace(
        healthy().machine,
        driver=Fact(Driver("570.195.03", "12.8", library_version="580.95.05", nvml_error=18), "test"),
    )
    options = find_options(Goal(), dataclasses.replace(healthy(), machine=stale))
    assert kinds(options)[0] is OptionKind.REBUILD, (
        "after the reboot the driver is the one of the libraries, 580"
    )
    for item in options.available:
        assert type(item.steps[0]) is Step and "Reboot" in item.steps[0].text


def test_a_target_elsewhere_is_built_for_not_verified() -> None:
    facts = machine(torch=BLACKWELL_TORCH)
    options = find_options(goal("sm_120"), facts)
    option = plan(options, OptionKind.REBUILD)
    assert option.proves == (RungName.RESOLVED, RungName.BUILT, RungName.LOADS)
    assert {limit.rung for limit in option.cannot_prove} == {
        RungName.COMPUTES,
        RungName.TRAINS,
        RungName.REPRODUCES,
    }
    assert "no sm_120 GPU is in this machine" in option.cannot_prove[0].why
    assert "does not matter" in why_not(options, "driver upgrade (suggested only)")


def test_what_no_table_knows_is_unsure_and_not_impossible() -> None:
    future = Torch("9.9.0+cu139", "13.9", None, "/x", knows_archs=TORCH.knows_archs)
    toolkit = dataclasses.replace(CUDA_13, version="13.9.1", root="/usr/local/cuda-13.9")
    facts = with_driver(machine(torch=future, gpus=(RTX_5080,), toolkits=(toolkit,)), "999.1", "15.0")
    option = plan(find_options(Goal(), facts), OptionKind.REBUILD)
    assert any("torch 9.9.0+cu139" in text for text in option.unsure)


def test_dropins_are_offered_or_rejected_with_the_reason() -> None:
    options = find_options(Goal(), healthy(), sources=rasterizer("inria-v1"))
    option = plan(options, OptionKind.DROPIN)
    assert any(
        isinstance(item, UseDropins) and "diff_gaussian_rasterization@v1" in item.subjects
        for item in option.steps
    )
    assert RungName.BUILT not in option.proves
    taming = plan(find_options(Goal(), healthy(), sources=rasterizer("taming")), OptionKind.DROPIN)
    assert any("diff_gaussian_rasterization@taming" in getattr(item, "subjects", ()) for item in taming.steps)
    refused = find_options(Goal(), healthy(), sources=rasterizer("gof"))
    assert OptionKind.DROPIN not in kinds(refused)
    assert "nine-channel output" in why_not(refused, "drop-ins")
    kept = find_options(Goal(), healthy(), sources=extensions(simple_knn=()), keep=("simple-knn",))
    assert "must not change" in why_not(kept, "drop-ins")


def test_without_a_gpu_or_a_target_only_drop_ins_are_left() -> None:
    options = find_options(Goal(), machine(torch=dataclasses.replace(TORCH, cuda=None, version="2.13.0+cpu")))
    assert kinds(options) == [OptionKind.DROPIN]
    assert "--target sm_120" in options.rejected[0].rejected_because


def test_a_lane_needs_docker_a_fitting_torch_and_a_driver() -> None:
    lanes = (
        LaneSummary("cpu", "torch==2.13.0+cpu", False),
        LaneSummary("cu130", "torch==2.11.0+cu130", True),
    )
    facts = healthy()
    assert "docker was not found" in why_not(find_options(Goal(), facts, lanes), "container")
    docker = dataclasses.replace(facts, machine=dataclasses.replace(facts.machine, tools={"docker": "28.0"}))
    option = plan(find_options(Goal(), docker, lanes), OptionKind.CONTAINER)
    assert any(isinstance(item, RunLane) and item.lane == "cu130" for item in option.steps)
    old = with_driver(docker, "535.183.01", "12.2")
    assert "lane cu130: driver 535.183.01 is too old" in why_not(
        find_options(Goal(), old, lanes), "container"
    )
    assert "no lane with a GPU" in why_not(find_options(Goal(), docker, lanes[:1]), "container")


def test_a_glibc_clash_rules_out_all_but_conda() -> None:
    facts = machine(torch=TORCH_128, toolkits=(CUDA_12,))
    debian_13 = dataclasses.replace(facts, machine=dataclasses.replace(facts.machine, glibc="2.41"))
    assert "clash with those of glibc 2.41" in why_not(
        find_options(goal("sm_120"), debian_13), "installed CUDA toolkit"
    )
    conda = compilers("13.3.0", folder="/conda/bin/x86_64-conda-linux-gnu")
    machine_facts = dataclasses.replace(debian_13.machine, compilers=Fact(conda, "test"))
    eased = dataclasses.replace(debian_13, machine=machine_facts)
    assert OptionKind.REBUILD in kinds(find_options(goal("sm_120"), eased))


@pytest.mark.parametrize("change", [lambda f: f, lambda f: with_extension(f, "gsplat", code("sm_90"))])
def test_every_kind_is_available_or_rejected_with_a_reason(change: Callable[[Facts], Facts]) -> None:
    options = find_options(Goal(), change(healthy()))
    assert all(len(item.rejected_because) > 10 for item in options.rejected)
    assert len(options.available) + len(options.rejected) == len(OptionKind)
    assert not {item.kind for item in options.available} & {item.kind for item in options.rejected}


def test_ptx_is_not_that_of_a_jetson() -> None:
    old = dataclasses.replace(CUDA_12, version="12.0.76", archs=("sm_80", "sm_87"), gcc_max=13)
    torch = dataclasses.replace(TORCH_128, knows_archs=("8.0", "8.7", "12.0"))
    options = find_options(goal("sm_120"), machine(torch=torch, toolkits=(old,)))
    step = step_of(plan(options, OptionKind.REBUILD_PTX), Rebuild)
    assert step.arch_list == "8.0+PTX"


def test_a_kept_extension_keeps_its_torch_too() -> None:
    facts = with_extension(
        with_extension(healthy(), "simple_knn", code("sm_120")), "fused_ssim", code("sm_90")
    )
    # what serves is rebuilt only where torch changes, kept or not
    for kept in ((), ("simple_knn",)):
        options = find_options(Goal(), facts, keep=kept)
        assert step_of(plan(options, OptionKind.REBUILD), Rebuild).subjects == ("fused_ssim",)
    assert "compiled against the torch here" in why_not(options, "another build")
    both = find_options(Goal(), facts, keep=("simple_knn", "fused_ssim"))
    assert OptionKind.REBUILD not in kinds(both)


def test_the_source_itself_tells_what_stands_in_for_it(tmp_path: Path) -> None:
    knn = cuda_source(tmp_path / "knn", name="simple_knn")
    summary = summarise((str(knn),), named=("./knn",))
    assert (tuple(summary.variants), summary.replacement.names) == (("simple_knn",), ("simple_knn",))
    step = step_of(
        plan(find_options(goal("sm_120"), healthy(), sources=summary), OptionKind.DROPIN), UseDropins
    )
    assert argv(step)[:5] == ("splatfix", "install", "./knn", "--backend", "pure")
    plane = cuda_source(tmp_path / "plane", name="diff_plane_rasterization")
    options = find_options(goal("sm_120"), healthy(), sources=summarise((str(plane),)))
    assert "plane and normal outputs" in why_not(options, "drop-ins")
    assert summarise((str(tmp_path / "nothing"),)).variants == {}


def test_older_machine_code_serves_a_sibling_without_ptx() -> None:
    """CUDA 12.8 has no sm_121, but its sm_120 code runs there: no PTX and no other torch is needed."""
    spark = Gpu(0, "NVIDIA GB10", cc="12.1")
    torch = dataclasses.replace(TORCH_128, knows_archs=(*TORCH.knows_archs, "12.1"))
    options = find_options(
        Goal(), with_driver(machine(torch=torch, gpus=(spark,), toolkits=(CUDA_12,)), "580.95.05", "13.0")
    )
    step = step_of(plan(options, OptionKind.REBUILD), Rebuild)
    assert (step.targets, step.arch_list) == (archs("sm_121"), "12.0")
    assert "not needed" in why_not(options, "PTX") and "not needed" in why_not(options, "another build")


def test_companions_of_one_release_are_named_by_their_build_too() -> None:
    installed = {"torch": "2.8.0+cu128", "torchvision": "0.23.0+cu128"}
    version, command = replacing_words("2.8.*", "cu126", installed)
    assert version == "2.8.0"
    assert {"torch==2.8.0+cu126", "torchvision==0.23.0+cu126"} <= set(command)
    version, command = replacing_words("2.11.*", "cu130", installed)
    assert version == "2.11.*" and {"torch==2.11.*", "torchvision"} <= set(command), (
        "pip works it out for another release"
    )


def test_after_another_driver_nothing_of_the_old_one_is_left() -> None:
    """A mismatch, or an error of the driver that is replaced, plays no part in what follows."""
    facts = with_driver(machine(torch=BLACKWELL_TORCH, gpus=(RTX_5080,)), "570.86.15", "12.8")
    old = dataclasses.replace(
        facts.machine, driver=Fact(Driver("570.86.15", "12.8", library_version="570.86.15"), "test")
    )
    facts = with_extension(dataclasses.replace(facts, machine=old), "simple_knn", code("sm_120"))
    option = plan(find_options(Goal(), facts), OptionKind.DRIVER)
    assert [type(step) for step in option.steps] == [Step, Keep, Confirm]


def test_a_name_that_keeps_nothing_is_said() -> None:
    assert (
        "--keep torhc does not match anything here" in find_options(Goal(), healthy(), keep=("torhc",)).notes
    )
