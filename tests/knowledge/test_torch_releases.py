"""Torch builds: what each carries, which run on a GPU, in what order, and by what command; and toolkits from wheels."""

import pytest

from splatfix.knowledge.archs import Arch
from splatfix.knowledge.toolkits import cuda_of_torch, provision, provisionable, recipe
from splatfix.knowledge.torch_releases import (
    TorchRelease,
    build,
    build_runs_on,
    builds_for_arch,
    release,
    releases,
    wheel_obstacle,
)


def test_ptx_that_sources_dispute_is_unknown() -> None:
    found = build("2.9.1", "cu130")
    assert found is not None and build_runs_on(found, Arch(13, 0)) is None


def test_missing_rows_are_none() -> None:
    assert release("1.11") is None and release("3.0") is None
    assert build("2.9.1", "cu111") is None
    assert build("2.9.1+cpu") is None
    found = build("2.9.1+cu128")
    assert found.cuda == (12, 8)


class TestRanking:
    def test_pascal_is_led_to_cu126(self) -> None:
        best = builds_for_arch(Arch(6, 1))[0]
        assert (best.build.release, best.build.tag, best.runs) == ("2.14", "cu126", "cubin")

    def test_blackwell(self) -> None:
        ranked = builds_for_arch(Arch(12, 0))
        assert (ranked[0].build.release, ranked[0].build.tag, ranked[0].exact) == ("2.15", "cu132", True)
        assert all(item.build.cuda >= (12, 8) for item in ranked)
        assert [item.runs for item in ranked] == ["cubin"] * len(ranked)

    def test_within_a_release_the_default_comes_first(self) -> None:
        tags = [item.build.tag for item in builds_for_arch(Arch(8, 6)) if item.build.release == "2.14"]
        assert tags == ["cu130", "cu132", "cu126"]

    def test_seen_on_the_index_comes_first(self) -> None:
        ranked = builds_for_arch(Arch(8, 6))
        seen = [item.build.index_verified for item in ranked]
        assert seen == sorted(seen, reverse=True) and False in seen

    def test_a_driver_limits_the_cuda_majors(self) -> None:
        ranked = builds_for_arch(Arch(12, 0), driver=(570, 124, 6))
        assert ranked and all(item.build.cuda[0] == 12 for item in ranked)
        assert builds_for_arch(Arch(12, 0), driver=(520,)) == ()

    def test_python_limits_the_releases(self) -> None:
        assert {item.build.release for item in builds_for_arch(Arch(8, 6), python=(3, 7))} == {"1.12", "1.13"}
        assert builds_for_arch(Arch(8, 6), python=(3, 14))[0].build.release == "2.15"

    def test_one_release(self) -> None:
        tags = [item.build.tag for item in builds_for_arch(Arch(6, 1), torch="2.10.0+cu128")]
        assert tags == ["cu126"]

    def test_old_glibc(self) -> None:
        assert {item.build.release for item in builds_for_arch(Arch(8, 6), glibc=(2, 27))} == {
            item.release for item in releases() if item.min_glibc is None
        }

    def test_unknown_only_when_asked_for(self) -> None:
        windows = builds_for_arch(Arch(7, 0), "windows")
        more = builds_for_arch(Arch(7, 0), "windows", include_unknown=True)
        assert len(more) > len(windows) and more[: len(windows)] == windows
        assert {item.runs for item in more[len(windows) :]} == {"unknown"}

    def test_jetson_thor_only_on_aarch64(self) -> None:
        assert builds_for_arch(Arch(11, 0)) == ()
        assert builds_for_arch(Arch(11, 0), machine="aarch64")[0].build.tag == "cu132"


@pytest.mark.parametrize("row", releases(), ids=lambda row: row.release)
def test_rows_hold_together(row: TorchRelease) -> None:
    assert any(item.tag == row.pypi_linux_default for item in row.builds)
    for item in row.builds:
        assert item.tag == "cu{}{}".format(*item.cuda)
        assert item.release == row.release
        assert "linux-x86_64" in item.code


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
    assert [item.tag for item in releases()[-1].builds if not item.index_verified] == [
        "cu126",
        "cu130",
        "cu134",
    ]


def test_only_cuda_13_compiles() -> None:
    assert [provisionable(major) for major in (10, 11, 12, 13, 14)] == [None, False, False, True, None]
    twelve = provision(12)
    assert twelve is not None and "no nvcc" in twelve.holds


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
