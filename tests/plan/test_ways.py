"""Every road of the ranking: when it is open, when it is shut and with what reason, and in which order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from splatfix.context import Goal
from splatfix.core.errors import SplatfixError
from splatfix.core.proof import RungName
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
from splatfix.knowledge.torch_releases import replacing_words
from splatfix.plan import Lane, Request, Road, WayOut, Ways, aim_at, find_ways
from splatfix.plan.ways import ByHand, GetToolkit, InstallTorch, Rebuild, RunLane, SwapIn
from tests.plan.machines import CUDA_12, CUDA_13, INTERPRETER, TORCH, compilers, cuda_source, machine

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


def healthy() -> Facts:
    """An RTX 5080 with a driver, torch, toolkit and compiler that fit."""
    return with_driver(machine(torch=BLACKWELL_TORCH, gpus=(RTX_5080,)), "580.95.05", "13.0")


def plan(ways: Ways, road: Road) -> WayOut:
    return next(item for item in ways.plans if item.road is road)


def why_shut(ways: Ways, title: str) -> str:
    return next(road.why for road in ways.rejected if title in road.what)


def roads(ways: Ways) -> list[Road]:
    return [item.road for item in ways.plans]


def test_what_works_is_kept_and_comes_first() -> None:
    facts = with_extension(healthy(), "simple_knn", code("sm_120"))
    ways = find_ways(Goal(), facts)
    assert roads(ways)[0] is Road.KEEP
    assert ways.subjects == ("simple_knn",)
    assert set(RungName) == set(plan(ways, Road.KEEP).can_prove), "the GPU is here: everything can be shown"
    assert "new enough" in why_shut(ways, "another NVIDIA driver")


def test_an_extension_for_another_gpu_is_rebuilt_and_not_kept() -> None:
    facts = with_extension(healthy(), "simple_knn", code("sm_86", "sm_90"))
    ways = find_ways(Goal(), facts)
    assert roads(ways)[0] is Road.REBUILD
    assert "simple_knn cannot run (3 of 3 fatbins have no code for sm_120)" in why_shut(ways, "keep")
    step = next(item for item in plan(ways, Road.REBUILD).steps if isinstance(item, Rebuild))
    assert (step.arch_list, step.subjects, step.compiler) == ("12.0", ("simple_knn",), "/usr/bin/g++")
    assert step.command.startswith("splatfix install SOURCE --target sm_120 --python ")


def test_the_order_is_from_the_least_invasive_up() -> None:
    order = list(Road)
    for facts in (healthy(), with_extension(healthy(), "simple_knn", code("sm_120"))):
        places = [order.index(road) for road in roads(find_ways(Goal(), facts))]
        assert places == sorted(places)


def test_a_sibling_of_the_same_major_is_no_reason_to_rebuild() -> None:
    facts = with_driver(machine(torch=BLACKWELL_TORCH, gpus=(RTX_4090,)), "580.95.05", "13.0")
    ways = find_ways(Goal(), with_extension(facts, "simple_knn", code("sm_86")))
    assert roads(ways)[0] is Road.KEEP, "an RTX 4090 runs the 8.6 code"


def test_torch_without_code_for_the_gpu_shuts_every_road_that_only_compiles() -> None:
    facts = with_driver(machine(torch=TORCH_118, gpus=(RTX_5080,)), "580.95.05", "13.0")
    ways = find_ways(Goal(), facts)
    assert roads(ways)[0] is Road.OTHER_TORCH
    for title in ("keep", "toolkit that is here", "PTX", "PyPI", "install a CUDA toolkit"):
        assert "no code for sm_120" in why_shut(ways, title)
    steps = plan(ways, Road.OTHER_TORCH).steps
    install = next(item for item in steps if isinstance(item, InstallTorch))
    assert "--index-url https://download.pytorch.org/whl/cu13" in install.command
    assert any(isinstance(item, Rebuild) for item in steps), "extensions are rebuilt after"


def test_another_build_of_the_same_release_is_named_by_its_local_version() -> None:
    """pip would call torch==2.8.* satisfied by the 2.8.0+cu128 that is there."""
    pascal = Gpu(0, "NVIDIA GeForce GTX 1080 Ti", cc="6.1")
    torch = dataclasses.replace(TORCH_128, code=code("sm_75", "sm_120"), knows_archs=("6.1", "7.5", "12.0"))
    toolkit = dataclasses.replace(CUDA_12, archs=("sm_61", "sm_75", "sm_120"))
    facts = with_driver(machine(torch=torch, gpus=(pascal,), toolkits=(toolkit,)), "580.95.05", "13.0")
    install = next(
        i for i in plan(find_ways(Goal(), facts), Road.OTHER_TORCH).steps if isinstance(i, InstallTorch)
    )
    assert "torch==2.8.0+cu126 " in install.command
    assert install.command.endswith("/cu126")


def test_torch_is_left_alone_when_asked_to() -> None:
    facts = with_driver(machine(torch=TORCH_118, gpus=(RTX_5080,)), "580.95.05", "13.0")
    ways = find_ways(Goal(keep=("torch",)), facts)
    assert Road.OTHER_TORCH not in roads(ways)
    assert "--keep torch" in why_shut(ways, "another build")


def test_a_toolkit_older_than_the_gpu_leaves_ptx_and_says_why_machine_code_would_not_do() -> None:
    old = dataclasses.replace(
        CUDA_12,
        root="/usr/local/cuda-12.4",
        version="12.4.131",
        archs=("sm_80", "sm_87", "sm_90"),
        gcc_max=13,
    )
    facts = with_driver(machine(torch=TORCH_128, gpus=(RTX_5080,), toolkits=(old,)), "580.95.05", "13.0")
    ways = find_ways(Goal(), facts)
    assert roads(ways)[:2] == [Road.REBUILD_PTX, Road.INSTALL_TOOLKIT]
    way = plan(ways, Road.REBUILD_PTX)
    step = next(item for item in way.steps if isinstance(item, Rebuild))
    assert step.arch_list == "9.0+PTX" and " --ptx " in step.command
    assert "sm_90 machine code alone would not load there" in way.reasons[0].text
    assert not way.unsure, "the driver of CUDA 13.0 reads PTX of 12.4"
    assert "cannot compile for sm_120" in why_shut(ways, "toolkit that is here")


def test_ptx_newer_than_the_driver_is_no_road() -> None:
    toolkit = dataclasses.replace(CUDA_13, archs=("sm_75", "sm_80", "sm_90"))
    torch = dataclasses.replace(BLACKWELL_TORCH)
    facts = with_driver(machine(torch=torch, gpus=(RTX_5080,), toolkits=(toolkit,)), "570.86.15", "12.8")
    assert "driver 570.86.15 is too old for CUDA 13.0" in why_shut(find_ways(Goal(), facts), "PTX")
    twelve = dataclasses.replace(CUDA_12, version="12.9.86", archs=("sm_80", "sm_90"))
    facts = with_driver(machine(torch=TORCH_128, gpus=(RTX_5080,), toolkits=(twelve,)), "570.86.15", "12.8")
    assert "newer than a driver of CUDA 12.8 translates" in why_shut(find_ways(Goal(), facts), "PTX")


def test_a_cuda_13_toolkit_comes_from_pypi_and_a_cuda_12_one_does_not() -> None:
    bare = with_driver(machine(torch=BLACKWELL_TORCH, gpus=(RTX_5080,), toolkits=()), "580.95.05", "13.0")
    way = plan(find_ways(Goal(), bare), Road.PROVIDE_TOOLKIT)
    assert any(isinstance(step, GetToolkit) and step.cuda == "13.0" for step in way.steps)
    assert "--provide-toolkit" in next(item.command for item in way.steps if isinstance(item, Rebuild))
    assert not way.by_hand
    bare = with_driver(machine(torch=TORCH_128, gpus=(RTX_5080,), toolkits=()), "580.95.05", "13.0")
    ways = find_ways(Goal(), bare)
    assert "PyPI has no compiler of CUDA 12" in why_shut(ways, "PyPI")
    by_hand = plan(ways, Road.INSTALL_TOOLKIT)
    assert by_hand.by_hand and "CUDA 12.8 toolkit" in by_hand.steps[0].describe()
    assert plan(ways, Road.OTHER_TORCH).steps[0].describe().startswith("install torch 2.8.0 (cu12") is False
    assert not plan(ways, Road.OTHER_TORCH).by_hand, "torch for CUDA 13 needs nothing by hand"


def test_a_missing_compiler_is_told_and_named() -> None:
    facts = with_driver(
        machine(torch=TORCH_128, gpus=(RTX_5080,), toolkits=(CUDA_12,), host=compilers("15.1.0")),
        "580.95.05",
        "13.0",
    )
    way = plan(find_ways(Goal(), facts), Road.REBUILD)
    assert way.by_hand
    assert isinstance(way.steps[0], ByHand)
    assert "apt-get install g++-" in way.steps[0].text and "g++-15" not in way.steps[0].text


def test_an_old_driver_is_told_and_what_follows_is_planned() -> None:
    facts = with_driver(machine(torch=BLACKWELL_TORCH, gpus=(RTX_5080,)), "570.86.15", "12.8")
    ways = find_ways(Goal(), with_extension(facts, "simple_knn", code("sm_120")))
    assert "driver 570.86.15 is too old for CUDA 13.0, which needs 580 or newer" in why_shut(ways, "keep")
    way = plan(ways, Road.DRIVER)
    assert roads(ways)[-1] is Road.DRIVER
    assert isinstance(way.steps[0], ByHand) and "580 or newer" in way.steps[0].text
    assert way.steps[1].describe() == "keep simple_knn"
    torch = next(item for item in plan(ways, Road.OTHER_TORCH).steps if isinstance(item, InstallTorch))
    assert torch.tag.startswith("cu12"), "a build that this driver starts"


def test_a_last_driver_branch_is_not_surpassed() -> None:
    pascal = Gpu(0, "NVIDIA GeForce GTX 1080 Ti", cc="6.1")
    torch = dataclasses.replace(TORCH_128, cuda="14.0", version="2.99.0+cu140", code=code("sm_61"))
    facts = with_driver(machine(torch=torch, gpus=(pascal,), toolkits=()), "470.57.02", "11.4")
    ways = find_ways(Goal(), facts)  # CUDA 14 is in no table: its driver floor is not known
    assert all(item.road is not Road.DRIVER or "580" not in item.steps[0].describe() for item in ways.plans)


def test_a_broken_driver_comes_before_everything() -> None:
    stale = dataclasses.replace(
        healthy().machine,
        driver=Fact(Driver("570.195.03", "12.8", library_version="580.95.05", nvml_error=18), "test"),
    )
    ways = find_ways(Goal(), dataclasses.replace(healthy(), machine=stale))
    assert roads(ways)[0] is Road.REBUILD, "after the reboot the driver is the one of the libraries, 580"
    for item in ways.plans:
        assert isinstance(item.steps[0], ByHand) and "Reboot" in item.steps[0].text


def test_a_target_elsewhere_can_be_built_for_and_not_shown_to_run() -> None:
    facts = machine(torch=BLACKWELL_TORCH)
    ways = find_ways(Goal(("sm_120",)), facts)
    way = plan(ways, Road.REBUILD)
    assert way.can_prove == (RungName.RESOLVED, RungName.BUILT, RungName.LOADS)
    assert {limit.rung for limit in way.cannot_prove} == {
        RungName.COMPUTES,
        RungName.TRAINS,
        RungName.REPRODUCES,
    }
    assert "no sm_120 GPU is in this machine" in way.cannot_prove[0].why
    assert "plays no part" in why_shut(ways, "another NVIDIA driver")


def test_what_no_table_knows_is_unsure_and_not_impossible() -> None:
    future = Torch("9.9.0+cu139", "13.9", None, "/x", knows_archs=TORCH.knows_archs)
    toolkit = dataclasses.replace(CUDA_13, version="13.9.1", root="/usr/local/cuda-13.9")
    facts = with_driver(machine(torch=future, gpus=(RTX_5080,), toolkits=(toolkit,)), "999.1", "15.0")
    way = plan(find_ways(Goal(), facts), Road.REBUILD)
    assert any("torch 9.9.0+cu139" in text for text in way.unsure)


def test_drop_ins_are_offered_for_what_they_serve_and_refused_with_the_reason() -> None:
    ways = find_ways(Goal(stack="inria-v1"), healthy())
    way = plan(ways, Road.SWAP)
    assert any(
        isinstance(item, SwapIn) and "diff_gaussian_rasterization@v1" in item.subjects for item in way.steps
    )
    assert RungName.BUILT not in way.can_prove
    refused = find_ways(Goal(stack="taming"), healthy())
    assert Road.SWAP not in roads(refused)
    assert "eleven lists and counts" in why_shut(refused, "drop-ins")
    kept = find_ways(Goal(extensions=("simple-knn",), keep=("simple-knn",)), healthy())
    assert "to be left as it is" in why_shut(kept, "drop-ins")


def test_without_a_gpu_or_a_target_only_drop_ins_are_left() -> None:
    ways = find_ways(Goal(), machine(torch=dataclasses.replace(TORCH, cuda=None, version="2.13.0+cpu")))
    assert roads(ways) == [Road.SWAP]
    assert "--target sm_120" in ways.rejected[0].why


def test_a_lane_needs_docker_a_fitting_torch_and_a_driver() -> None:
    lanes = (Lane("cpu", "torch==2.13.0+cpu", False), Lane("cu130", "torch==2.11.0+cu130", True))
    facts = healthy()
    assert "docker was not found" in why_shut(find_ways(Goal(), facts, lanes), "container")
    docker = dataclasses.replace(facts, machine=dataclasses.replace(facts.machine, tools={"docker": "28.0"}))
    way = plan(find_ways(Goal(), docker, lanes), Road.CONTAINER)
    assert any(isinstance(item, RunLane) and item.lane == "cu130" for item in way.steps)
    old = with_driver(docker, "535.183.01", "12.2")
    assert "lane cu130: driver 535.183.01 is too old" in why_shut(find_ways(Goal(), old, lanes), "container")
    assert "no lane with a GPU" in why_shut(find_ways(Goal(), docker, lanes[:1]), "container")


def test_a_glibc_that_clashes_with_the_toolkit_shuts_the_road_but_for_conda() -> None:
    facts = machine(torch=TORCH_128, toolkits=(CUDA_12,))
    debian_13 = dataclasses.replace(facts, machine=dataclasses.replace(facts.machine, glibc="2.41"))
    assert "clash with those of glibc 2.41" in why_shut(
        find_ways(Goal(("sm_120",)), debian_13), "toolkit that is here"
    )
    conda = compilers("13.3.0", folder="/conda/bin/x86_64-conda-linux-gnu")
    machine_facts = dataclasses.replace(debian_13.machine, compilers=Fact(conda, "test"))
    eased = dataclasses.replace(debian_13, machine=machine_facts)
    assert Road.REBUILD in roads(find_ways(Goal(("sm_120",)), eased))


@pytest.mark.parametrize(
    ("aim", "error"),
    [(Goal(("sm_999",)), "unknown-arch"), (Goal(("sm_120",), stack="nothing"), "unknown-stack")],
)
def test_an_aim_that_names_nothing_known_is_refused(aim: Goal, error: str) -> None:
    with pytest.raises(SplatfixError) as caught:
        find_ways(aim, healthy())
    assert caught.value.code == error


@pytest.mark.parametrize("change", [lambda f: f, lambda f: with_extension(f, "gsplat", code("sm_90"))])
def test_every_shut_road_has_a_reason_and_no_road_is_both(change: Callable[[Facts], Facts]) -> None:
    ways = find_ways(Goal(), change(healthy()))
    assert all(len(road.why) > 10 for road in ways.rejected)
    assert len(ways.plans) + len(ways.rejected) == len(Road)
    assert not {item.title for item in ways.plans} & {road.what for road in ways.rejected}


def test_ptx_is_not_that_of_a_jetson() -> None:
    old = dataclasses.replace(CUDA_12, version="12.0.76", archs=("sm_80", "sm_87"), gcc_max=13)
    torch = dataclasses.replace(TORCH_128, knows_archs=("8.0", "8.7", "12.0"))
    ways = find_ways(Goal(("sm_120",)), machine(torch=torch, toolkits=(old,)))
    step = next(item for item in plan(ways, Road.REBUILD_PTX).steps if isinstance(item, Rebuild))
    assert step.arch_list == "8.0+PTX"


def test_an_extension_that_is_to_be_kept_is_neither_rebuilt_nor_pulled_from_under_its_torch() -> None:
    facts = with_extension(
        with_extension(healthy(), "simple_knn", code("sm_120")), "fused_ssim", code("sm_90")
    )
    ways = find_ways(Goal(keep=("simple_knn",)), facts)
    step = next(item for item in plan(ways, Road.REBUILD).steps if isinstance(item, Rebuild))
    assert step.subjects == ("fused_ssim",)
    assert "compiled against the torch here" in why_shut(ways, "another build")
    both = find_ways(Goal(keep=("simple_knn", "fused_ssim")), facts)
    assert Road.REBUILD not in roads(both)


def test_the_source_itself_tells_what_stands_in_for_it(tmp_path: Path) -> None:
    knn = cuda_source(tmp_path / "knn", name="simple_knn")
    aim = aim_at(Request((str(knn),), ("sm_120",)), healthy(), source="./knn")
    assert (aim.extensions, aim.drop_ins) == (("simple_knn",), ("simple_knn",))
    step = next(item for item in plan(find_ways(aim, healthy()), Road.SWAP).steps if isinstance(item, SwapIn))
    assert step.command.startswith("splatfix install ./knn --backend pure ")
    surfel = cuda_source(tmp_path / "surfel", name="diff_surfel_rasterization")
    aim = aim_at(Request((str(surfel),), ("sm_120",)), healthy())
    assert "depth, normal and distortion maps" in why_shut(find_ways(aim, healthy()), "drop-ins")
    nothing = aim_at(Request((str(tmp_path / "nothing"),), ("sm_120",)), healthy())
    assert nothing.extensions == ()


def test_a_sibling_that_the_toolkit_cannot_name_is_served_by_the_older_code_without_ptx() -> None:
    """CUDA 12.8 has no sm_121, but its sm_120 code runs there: no PTX and no other torch is needed."""
    spark = Gpu(0, "NVIDIA GB10", cc="12.1")
    torch = dataclasses.replace(TORCH_128, knows_archs=(*TORCH.knows_archs, "12.1"))
    ways = find_ways(
        Goal(), with_driver(machine(torch=torch, gpus=(spark,), toolkits=(CUDA_12,)), "580.95.05", "13.0")
    )
    step = next(item for item in plan(ways, Road.REBUILD).steps if isinstance(item, Rebuild))
    assert (step.targets, step.arch_list) == (("sm_121",), "12.0")
    assert "not needed" in why_shut(ways, "PTX") and "not needed" in why_shut(ways, "another build")


def test_companions_of_one_release_are_named_by_their_build_too() -> None:
    installed = {"torch": "2.8.0+cu128", "torchvision": "0.23.0+cu128"}
    version, command = replacing_words("2.8.*", "cu126", installed)
    assert version == "2.8.0"
    assert "torch==2.8.0+cu126 torchvision==0.23.0+cu126 " in command
    version, command = replacing_words("2.11.*", "cu130", installed)
    assert version == "2.11.*" and '"torch==2.11.*" torchvision ' in command, (
        "pip works it out for another release"
    )


def test_after_another_driver_nothing_of_the_old_one_is_left() -> None:
    """A mismatch, or an error of the driver that is replaced, plays no part in what follows."""
    facts = with_driver(machine(torch=BLACKWELL_TORCH, gpus=(RTX_5080,)), "570.86.15", "12.8")
    old = dataclasses.replace(
        facts.machine, driver=Fact(Driver("570.86.15", "12.8", library_version="570.86.15"), "test")
    )
    facts = with_extension(dataclasses.replace(facts, machine=old), "simple_knn", code("sm_120"))
    way = plan(find_ways(Goal(), facts), Road.DRIVER)
    assert [step.kind for step in way.steps] == ["by-hand", "keep", "show-it"]


def test_what_serves_already_is_not_rebuilt_unless_torch_changes() -> None:
    facts = with_extension(
        with_extension(healthy(), "simple_knn", code("sm_120")), "fused_ssim", code("sm_90")
    )
    step = next(
        item for item in plan(find_ways(Goal(), facts), Road.REBUILD).steps if isinstance(item, Rebuild)
    )
    assert step.subjects == ("fused_ssim",)


def test_a_name_that_keeps_nothing_is_said() -> None:
    assert "--keep torhc names nothing that is here" in find_ways(Goal(keep=("torhc",)), healthy()).notes
