from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from splatfix.containers.lanes import Lane, find_lane
from splatfix.containers.wheelhouse import (
    applicable_constraints,
    gather,
    marker_environment,
    missing_requirements,
    platform_tags,
    requirements_for,
)
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.runner import Completed, ProcessRunner

LANE = dataclasses.replace(find_lane("cpu"), torch="torch==9.9.9+cpu")
ENVIRONMENT = marker_environment(LANE, "amd64")
MakeWheel = Callable[..., Path]


class TestConstraints:
    def test_markers_are_those_of_the_lane(self) -> None:
        text = (
            "# pins\n\nnumpy==2.2.6 ; python_version < '3.11'\nnumpy==2.4.6 ; python_version >= '3.11'\n"
            "torch==2.13.0  # the host's\nrich==15.0.0  # why\n--hash=x\npywin32==1 ; sys_platform == 'win32'\n"
        )
        assert applicable_constraints(text, ENVIRONMENT, without=LANE.torch) == [
            "numpy==2.4.6",
            "rich==15.0.0",
        ]

    def test_invalid_line(self) -> None:
        with pytest.raises(SplatfixError) as caught:
            applicable_constraints("numpy=2\n", ENVIRONMENT, without=LANE.torch)
        assert caught.value.code == "constraints-invalid"


class TestClosure:
    def test_requirements_of_the_lane_only(self, make_wheel: MakeWheel) -> None:
        wheels = [
            make_wheel(
                "torch", requires=("setuptools>=70; python_version >= '3.11'", "pywin32; os_name == 'nt'")
            ),
            make_wheel("rich", requires=("pygments>=2", 'jupyter; extra == "jupyter"')),
        ]
        assert missing_requirements(wheels, ENVIRONMENT, ["torch", "rich"]) == [
            "pygments>=2",
            "setuptools>=70",
        ]

    def test_extras_count_only_where_asked(self, make_wheel: MakeWheel) -> None:
        wheels = [make_wheel("a", requires=("b[fast]",)), make_wheel("b", requires=('c; extra == "fast"',))]
        assert missing_requirements(wheels, ENVIRONMENT, ["a"]) == ["c"]
        assert missing_requirements(wheels, ENVIRONMENT, ["b"]) == []

    def test_circular_requirements(self, make_wheel: MakeWheel) -> None:
        wheels = [make_wheel("a", requires=("b",)), make_wheel("b", requires=("a",))]
        assert missing_requirements(wheels, ENVIRONMENT, ["a"]) == []


def test_requirements_leave_torch_to_the_lane() -> None:
    names = {Requirement(line).name for line in requirements_for("certify", ENVIRONMENT)}
    assert {"typer", "numpy", "pillow"} <= names
    assert not names & {"torch", "docker", "tomli"}
    older = {**ENVIRONMENT, "python_version": "3.10", "python_full_version": "3.10.0"}
    assert "tomli" in {Requirement(line).name for line in requirements_for("certify", older)}


def test_platform_tags_of_a_c_library() -> None:
    tags = platform_tags("2.36", "x86_64")
    assert tags[0] == "manylinux_2_36_x86_64"
    assert {"manylinux_2_28_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64", "linux_x86_64"} <= set(tags)
    assert "manylinux_2_39_x86_64" not in tags
    arm = platform_tags("2.35", "aarch64")
    assert "manylinux2014_aarch64" in arm
    assert "manylinux1_aarch64" not in arm
    assert len(set(tags)) == len(tags)


def test_unknown_processor() -> None:
    with pytest.raises(SplatfixError) as caught:
        marker_environment(LANE, "riscv64")
    assert (caught.value.code, caught.value.exit_code) == ("docker-architecture-unknown", Exit.UNDETERMINED)


class CountingRunner(ProcessRunner):
    """The real runner; remembers what it started."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def run(self, argv, **options) -> Completed:  # type: ignore[no-untyped-def]
        self.calls.append([str(word) for word in argv])
        return super().run(argv, **options)


class TestGather:
    """The real pip against small indexes in folders; no network."""

    @pytest.fixture(autouse=True)
    def only_local_indexes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            monkeypatch.delenv(name)
        self.index(tmp_path / "host-index", [])
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "host-index").as_uri())

    @staticmethod
    def index(folder: Path, wheels: list[Path]) -> str:
        """A package index as files (PEP 503)."""
        folder.mkdir(exist_ok=True)
        for wheel in wheels:
            page = folder / wheel.name.split("-")[0].lower()
            page.mkdir(exist_ok=True)
            (page / "index.html").write_text(f'<a href="{wheel.as_uri()}">{wheel.name}</a>')
        return folder.as_uri()

    @pytest.fixture
    def lane(self, tmp_path: Path) -> Lane:
        return dataclasses.replace(LANE, torch_index=self.index(tmp_path / "torch-index", []))

    def gather(self, lane: Lane, tmp_path: Path, runner: ProcessRunner | None = None, constraints: str = ""):  # type: ignore[no-untyped-def]
        said: list[str] = []
        found = gather(
            lane,
            ["alpha"],
            "amd64",
            runner=runner or ProcessRunner(),
            cache=tmp_path / "cache",
            constraints=constraints,
            progress=said.append,
        )
        return found, said

    def test_torch_from_the_hosts_index(self, lane: Lane, tmp_path: Path, make_wheel: MakeWheel) -> None:
        wheels = [make_wheel("torch", "9.9.9+cpu"), make_wheel("alpha")]
        self.index(tmp_path / "host-index", wheels)
        runner = CountingRunner()
        found, _ = self.gather(lane, tmp_path, runner)
        assert found.pins == ("alpha==1.0", "torch==9.9.9+cpu")
        assert not any("--extra-index-url" in word for call in runner.calls for word in call)
        contents = [next(found.folder.glob(f"{name}-*")).read_bytes() for name in ("alpha", "torch")]
        assert found.hashes == tuple(hashlib.sha256(content).hexdigest() for content in contents)

    def test_torch_from_the_lanes_index(self, lane: Lane, tmp_path: Path, make_wheel: MakeWheel) -> None:
        """The host's index has torch only in the big build: that one is never taken instead."""
        self.index(tmp_path / "host-index", [make_wheel("alpha"), make_wheel("torch", "9.9.9")])
        self.index(tmp_path / "torch-index", [make_wheel("torch", "9.9.9+cpu")])
        found, said = self.gather(lane, tmp_path)
        assert "torch==9.9.9+cpu" in found.pins
        assert found.torch_from == lane.torch_index
        assert any(lane.torch_index in line for line in said)

    def test_torch_not_found(self, lane: Lane, tmp_path: Path, make_wheel: MakeWheel) -> None:
        self.index(tmp_path / "host-index", [make_wheel("alpha"), make_wheel("torch", "9.9.9")])
        with pytest.raises(SplatfixError) as caught:
            self.gather(lane, tmp_path)
        assert (caught.value.code, caught.value.exit_code) == ("lane-torch-unavailable", Exit.UNDETERMINED)
        assert lane.torch_index in caught.value.what
        assert any("torch==9.9.9+cpu" in line for line in caught.value.details["pip"])
        assert list((tmp_path / "cache").iterdir()) == [], "nothing half-made stays"

    def test_other_package_not_found(self, lane: Lane, tmp_path: Path, make_wheel: MakeWheel) -> None:
        self.index(tmp_path / "host-index", [make_wheel("torch", "9.9.9+cpu")])
        with pytest.raises(SplatfixError) as caught:
            self.gather(lane, tmp_path)
        assert caught.value.code == "lane-packages-unavailable"
        assert "alpha" in caught.value.what

    def test_requirements_of_the_lane_are_downloaded(
        self, lane: Lane, tmp_path: Path, make_wheel: MakeWheel
    ) -> None:
        """A marker that this machine's Python answers differently from the lane's."""
        import sys

        here = f"{sys.version_info[0]}.{sys.version_info[1]}"
        lane = dataclasses.replace(lane, python="3.9")
        alpha = make_wheel(
            "alpha", requires=("beta; python_version == '3.9'", f"gamma; python_version == '{here}'")
        )
        wheels = [
            alpha,
            make_wheel("beta", requires=("torch",)),
            make_wheel("gamma"),
            make_wheel("torch", "9.9.9+cpu"),
        ]
        self.index(tmp_path / "host-index", wheels)
        found, _ = self.gather(lane, tmp_path)
        assert "beta==1.0" in found.pins
        # gamma was fetched by pip for this machine's sake; it does no harm, and leaving it out is not our business
        assert {"alpha==1.0", "torch==9.9.9+cpu"} <= set(found.pins)

    def test_cache_is_used_until_a_pin_changes(
        self, lane: Lane, tmp_path: Path, make_wheel: MakeWheel
    ) -> None:
        self.index(tmp_path / "host-index", [make_wheel("torch", "9.9.9+cpu"), make_wheel("alpha")])
        runner = CountingRunner()
        first, _ = self.gather(lane, tmp_path, runner)
        again, _ = self.gather(lane, tmp_path, runner)
        assert again == first
        assert len(runner.calls) == 1
        with pytest.raises(SplatfixError):
            self.gather(lane, tmp_path, runner, constraints="alpha==2.0\n")
        assert len(runner.calls) == 2

    def test_incomplete_cache_is_downloaded_again(
        self, lane: Lane, tmp_path: Path, make_wheel: MakeWheel
    ) -> None:
        self.index(tmp_path / "host-index", [make_wheel("torch", "9.9.9+cpu"), make_wheel("alpha")])
        first, _ = self.gather(lane, tmp_path)
        next(first.folder.glob("alpha*")).unlink()
        again, _ = self.gather(lane, tmp_path)
        assert again.pins == first.pins
        assert list(again.folder.glob("alpha*"))

    @pytest.mark.parametrize("spoiled", ["content", "mode", "link"])
    def test_a_set_that_was_changed_is_not_used(
        self, lane: Lane, tmp_path: Path, make_wheel: MakeWheel, spoiled: str
    ) -> None:
        self.index(tmp_path / "host-index", [make_wheel("torch", "9.9.9+cpu"), make_wheel("alpha")])
        runner = CountingRunner()
        first, _ = self.gather(lane, tmp_path, runner)
        wheel = next(first.folder.glob("alpha*"))
        if spoiled == "content":
            wheel.write_bytes(b"evil")
        elif spoiled == "mode":
            first.folder.chmod(0o777)
        else:
            wheel.rename(tmp_path / wheel.name)
            wheel.symlink_to(tmp_path / wheel.name)
        again, _ = self.gather(lane, tmp_path, runner)
        assert again == first and len(runner.calls) == 2
        assert not next(again.folder.glob("alpha*")).is_symlink()

    def test_sets_unused_for_a_month_are_removed(
        self, lane: Lane, tmp_path: Path, make_wheel: MakeWheel
    ) -> None:
        self.index(tmp_path / "host-index", [make_wheel("torch", "9.9.9+cpu"), make_wheel("alpha")])
        folders = [
            tmp_path / "cache" / name
            for name in ("wheelhouse-cpu-old", "wheelhouse-cpu-new", "wheelhouse-x-old")
        ]
        for folder in folders:
            folder.mkdir(parents=True)
            if folder.name.endswith("old"):
                os.utime(folder, (1, 1))
        found, _ = self.gather(lane, tmp_path)
        assert [folder.exists() for folder in (*folders, found.folder)] == [False, True, True, True]

    def test_cache_that_cannot_be_written(self, lane: Lane, tmp_path: Path) -> None:
        (tmp_path / "cache").write_text("a file")
        with pytest.raises(SplatfixError) as caught:
            self.gather(lane, tmp_path)
        assert caught.value.code == "cannot-write"
