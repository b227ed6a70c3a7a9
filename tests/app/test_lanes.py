"""Several lanes: what each gives, and the one matrix that is left."""

import json
from pathlib import Path
from typing import Any

import pytest

from splatfix.app.lanes import certify_in_container
from splatfix.containers.certify import ContainerRequest
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.step import say
from splatfix.knowledge.lanes import Lane
from splatfix.report.console import out
from tests.app.test_merge import BASE

CTRL_C = 130


def stand_in(codes: dict[str, int | SplatfixError]) -> Any:
    """Certifies as told: writes a real certificate, or raises."""

    def certify(request: ContainerRequest, lane: Lane, out: Path, progress: Any) -> Any:
        progress("begun")
        outcome = codes[lane.name]
        if outcome == CTRL_C:
            raise KeyboardInterrupt
        if isinstance(outcome, SplatfixError):
            raise outcome
        out.mkdir(parents=True)
        (out / "certificate.json").write_text(json.dumps(BASE))
        return BASE, outcome

    return certify


NO_GPU = SplatfixError(
    "docker-gpu-runtime-missing",
    "The engine cannot pass GPUs in.",
    todo=(say("Use lane cpu."),),
    exit_code=Exit.UNDETERMINED,
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
def test_one_matrix(
    codes: dict[str, Any],
    worst: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("splatfix.app.lanes.certify_in_lane", stand_in(codes))
    result = certify_in_container(ContainerRequest(lanes=tuple(codes), out=tmp_path))
    assert int(result.exit_code) == worst
    content, said = result.document(), capsys.readouterr().err
    refused = {name: item for name, item in codes.items() if isinstance(item, SplatfixError)}
    assert content["refused"] == [{"lane": name, "error": item.to_json()} for name, item in refused.items()]
    assert content["unreadable"] == []
    for file in content["files"]:
        text = Path(file).read_text()
        assert all(name in text and item.what in text for name, item in refused.items())
    for name in codes:
        assert f"{name}: begun" in said
        assert (tmp_path / name / "certificate.json").is_file() is (name not in refused)
    for name, item in refused.items():
        assert f"({item.code}) {name}: {item.what}" in said and "Use lane cpu." in said
    result.show(out())
    shown = capsys.readouterr().out
    assert ("Lanes without a certificate" in shown) is bool(refused) and "Not read" not in shown


def test_ctrl_c_keeps_what_had_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error is shown at once, before the next lane runs, and is in the matrix too."""
    told: list[str] = []
    codes = {"cu130": NO_GPU, "cpu": 0, "cu126": CTRL_C, "cu128": CTRL_C}

    def certify(request: ContainerRequest, lane: Lane, *rest: Any) -> Any:
        told.append(capsys.readouterr().err)
        return stand_in(codes)(request, lane, *rest)

    monkeypatch.setattr("splatfix.app.lanes.certify_in_lane", certify)
    with pytest.raises(KeyboardInterrupt, match="nothing was certified"):
        certify_in_container(ContainerRequest(lanes=("cu126", "cu128"), out=tmp_path))
    assert not list(tmp_path.iterdir())
    told.clear()
    result = certify_in_container(ContainerRequest(lanes=tuple(codes), out=tmp_path))
    assert "cu130: The engine cannot pass GPUs in." in told[1]
    assert result.exit_code == Exit.INTERRUPTED and result.error is not None
    assert "of 4 lanes 2 had ended" in result.error.what
    refused = {row["lane"]: row["error"] for row in result.document()["refused"]}
    assert [error["code"] for error in refused.values()] == [NO_GPU.code, "interrupted", "interrupted"]
    assert "interrupted" in refused["cu126"]["what"]
    assert NO_GPU.what in (tmp_path / "certificates.md").read_text()
