"""Torch builds: what each carries, which run on a GPU, in what order, and by what command; and toolkits from wheels."""

import pytest

from splatfix.knowledge.archs import Arch
from splatfix.knowledge.toolkits import cuda_of_torch, recipe
from splatfix.knowledge.torch_releases import (
    TorchRelease,
    build,
    builds_for_arch,
    release,
    releases,
    wheel_obstacle,
)


def test_blackwell_takes_machine_code_of_cuda_12_8_and_newer() -> None:
    ranked = builds_for_arch(Arch(12, 0))
    assert all(item.build.cuda >= (12, 8) for item in ranked)
    assert [item.runs for item in ranked] == ["cubin"] * len(ranked)


def test_seen_on_the_index_comes_first() -> None:
    seen = [item.build.index_verified for item in builds_for_arch(Arch(8, 6))]
    assert seen == sorted(seen, reverse=True) and False in seen


def test_a_driver_limits_the_cuda_majors() -> None:
    ranked = builds_for_arch(Arch(12, 0), driver=(570, 124, 6))
    assert ranked and all(item.build.cuda[0] == 12 for item in ranked)


def test_old_glibc() -> None:
    old = {item.release for item in releases() if item.min_glibc is None}
    assert {item.build.release for item in builds_for_arch(Arch(8, 6), glibc=(2, 27))} == old


def test_unknown_only_when_asked_for() -> None:
    windows = builds_for_arch(Arch(7, 0), "windows")
    more = builds_for_arch(Arch(7, 0), "windows", include_unknown=True)
    assert len(more) > len(windows) and more[: len(windows)] == windows
    assert {item.runs for item in more[len(windows) :]} == {"unknown"}


@pytest.mark.parametrize("row", releases(), ids=lambda row: row.release)
def test_rows_hold_together(row: TorchRelease) -> None:
    assert any(item.tag == row.pypi_linux_default for item in row.builds)
    for item in row.builds:
        assert item.tag == "cu{}{}".format(*item.cuda)
        assert item.release == row.release
        assert item.code() is not None


def test_wheel_obstacles() -> None:
    found = build("2.9.1", "cu128")
    assert wheel_obstacle(found, python=(3, 12), glibc=(2, 35)) is None
    assert "3.10 to 3.14" in (wheel_obstacle(found, python=(3, 9)) or "")
    assert "glibc 2.28" in (wheel_obstacle(found, glibc=(2, 17)) or "")
    assert wheel_obstacle(found, "windows", glibc=(2, 17)) is None
    linux_only = build("2.12", "cu129")
    assert linux_only is not None and wheel_obstacle(linux_only, "windows")


def test_every_build_can_be_pinned_whole() -> None:
    for row in releases():
        for item in row.builds:
            assert item.pinned.rpartition(".")[0] == row.release and "*" not in item.pinned
            assert item.versions is None or item.pinned in item.versions
    unseen = [item.tag for item in releases()[-1].builds if not item.index_verified]
    assert unseen == ["cu126", "cu130", "cu134"]


def test_recipe() -> None:
    found = recipe("13.0.2")
    assert found.verified
    assert found.requirement == "cuda-toolkit[nvcc,cccl,cudart,cublas,cusparse,cusolver]==13.0.2"
    assert found.cuda_home == "nvidia/cu13"
    needed = [fix for fix in found.fixes if fix.needed]
    assert [(fix.path, fix.links_to) for fix in needed] == [("lib/libcudart.so", "libcudart.so.13")]
    assert recipe("12.8.1") is None and recipe("14.0") is None
    newest = recipe("13.2")
    assert newest.requirement.endswith("==13.2.*")
    windows = recipe("13.0.2", "windows")
    assert windows.fixes == () and not windows.verified


def test_the_version_that_torch_depends_on() -> None:
    assert cuda_of_torch("2.15.0") == "13.2.2"
    assert cuda_of_torch("2.10.0") is None
    for version in ("2.11", "2.12", "2.13", "2.14", "2.15"):
        row, cuda = release(version), cuda_of_torch(version)
        assert row is not None and cuda is not None
        assert row.pypi_linux_default == "cu{}{}".format(*cuda.split(".")), version
