"""Several lanes at once: what each gives, and the one matrix that is left."""

from __future__ import annotations

import _thread
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from splatfix.app.lanes import ContainerRequest, certify_in_container
from splatfix.containers import ContainerResult, LaneRequest
from splatfix.containers.image import Image
from splatfix.core.errors import Exit, SplatfixError
from tests.app.test_merge import BASE, Splatfix

CTRL_C = 130
IMAGE = Image("tag", "id", "base", "base-id", reused=True)


def stand_in(codes: dict[str, int | SplatfixError]) -> Any:
    """Certifies as told: writes a real certificate, or raises."""

    def certify(asked: LaneRequest, progress: Any, running: Any) -> ContainerResult:
        progress(f"begun {threading.current_thread().name}")
        outcome = codes[asked.lane]
        if outcome == CTRL_C:
            time.sleep(0.5)
            _thread.interrupt_main()
            while not running.over:
                time.sleep(0.01)
            raise KeyboardInterrupt
        if isinstance(outcome, SplatfixError):
            raise outcome
        asked.out.mkdir(parents=True)
        (asked.out / "certificate.json").write_text(json.dumps(BASE))
        return ContainerResult(BASE, outcome, IMAGE)

    return certify


NO_GPU = SplatfixError(
    "docker-gpu-runtime-missing", "The engine cannot pass GPUs in.", exit_code=Exit.UNDETERMINED
)


@pytest.mark.parametrize(
    ("codes", "worst"),
    [
        ({"cpu": 0, "cu130": NO_GPU}, 3),
        ({"cpu": 1, "cu130": NO_GPU}, 1),
        ({"cpu": 0, "cuda-from-pypi": 0}, 0),
        ({"cu126": NO_GPU, "cu130": NO_GPU}, 3),
    ],
)
@pytest.mark.parametrize("jobs", [1, 4])
def test_one_matrix(
    codes: dict[str, Any],
    worst: int,
    jobs: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("splatfix.containers.certify_in_container", stand_in(codes))
    result = certify_in_container(ContainerRequest(tuple(codes), tmp_path, jobs))
    assert int(result.exit_code) == worst
    content = result.data()
    refused = [row["reason"] for row in content["unreadable"]]
    assert refused == [item.what for item in codes.values() if isinstance(item, SplatfixError)]
    good = [name for name, item in codes.items() if isinstance(item, int)]
    assert bool(content["files"]) is bool(good)
    assert all((tmp_path / name / "certificate.json").is_file() for name in good)
    said = capsys.readouterr().err
    assert all(f"{name}: begun" in said for name in codes)


@pytest.mark.parametrize("jobs", [1, 3])
def test_ctrl_c_keeps_what_had_ended(jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = {"cpu": 0, "cu126": CTRL_C, "cu128": CTRL_C}
    monkeypatch.setattr("splatfix.containers.certify_in_container", stand_in(codes))
    result = certify_in_container(ContainerRequest(tuple(codes), tmp_path, jobs))
    assert result.exit_code == Exit.INTERRUPTED and result.error is not None
    assert "of 3 lanes 1 had ended" in result.error.what
    content = result.data()
    assert [Path(row["path"]).name for row in content["unreadable"]] == ["cu126", "cu128"]
    assert "interrupted" in content["unreadable"][0]["reason"] and content["files"]


def test_ctrl_c_before_anything_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "splatfix.containers.certify_in_container", stand_in({"cpu": CTRL_C, "cu126": CTRL_C})
    )
    with pytest.raises(KeyboardInterrupt, match="nothing was certified"):
        certify_in_container(ContainerRequest(("cpu", "cu126"), tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_lane_that_there_is_not_ends_it_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splatfix.containers.certify_in_container", stand_in({}))
    with pytest.raises(SplatfixError) as caught:
        certify_in_container(ContainerRequest(("cpu", "none"), tmp_path))
    assert (caught.value.code, caught.value.exit_code) == ("unknown-lane", Exit.USAGE)


def test_what_a_lane_cannot_do_is_refused_before_an_engine_is_asked(
    splatfix: Splatfix, tmp_path: Path
) -> None:
    for words, code in (
        (("cpu", "--target", "sm_120"), "lane-builds-nothing"),
        (("cpu", "--extension", tmp_path), "lane-builds-nothing"),
        (("cuda-from-pypi", "--extension", tmp_path / "none"), "not-a-folder"),
        (("inria-v1",), "lane-needs-checkout"),
        (("cuda-from-pypi", "--target", "sm_12x"), "unknown-arch"),
        (("cpu,nonsuch",), "unknown-lane"),
    ):
        done = splatfix("certify", "--container", *words, "--docker-host", "unix:///nowhere", "--json")
        assert (json.loads(done.stdout)["error"]["code"], done.returncode) == (code, 2)
