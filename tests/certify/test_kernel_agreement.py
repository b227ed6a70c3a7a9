"""Installed kernels against splatfix's own on the same input: they really are compared, and a difference refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from splatfix.certify import kernel_probe  # noqa: E402
from splatfix.certify.kernel_agreement import Ran, judge, keep  # noqa: E402

MET = {"outcome": "met", "value_allowed": 1e-5, "gradient_allowed": 1e-4, "detail": ""}


def ran(value: float = 1.0, gradient: float | None = 2.0, given: float = 3.0) -> Ran:
    gradients = [None if gradient is None else torch.tensor([gradient, 0.0])]
    return Ran([torch.tensor([given]), None, 0.1], torch.tensor([value, 0.5]), gradients)


@pytest.mark.parametrize(
    ("other", "outcome"),
    [
        (ran(), "met"),
        (ran(value=1 + 0.9e-5), "met"),
        (ran(value=1 + 1.2e-5), "failed"),
        (ran(gradient=2 * (1 + 0.9e-4)), "met"),
        (ran(gradient=2 * (1 + 1.2e-4)), "failed"),
        (ran(gradient=None), "failed"),
        (ran(value=float("nan")), "failed"),
    ],
)
def test_what_differs_is_refused(tmp_path: Path, other: Ran, outcome: str) -> None:
    file = tmp_path / "own.json"
    keep(file, ran())
    found = judge(file, other, MET)
    assert found["outcome"] == outcome
    assert found["detail"].startswith("differs from splatfix's own kernel") is (outcome == "failed")
    json.dumps(found, allow_nan=False)


def test_other_inputs_are_not_compared(tmp_path: Path) -> None:
    """Nor is anything where the own kernel gave nothing."""
    file = tmp_path / "own.json"
    assert judge(file, ran(value=9.0), MET) == MET
    keep(file, ran())
    assert judge(file, ran(value=9.0, given=4.0), MET) == MET
    found = judge(file, ran(value=2.0), {**MET, "outcome": "failed", "detail": "means2D got no gradient"})
    assert (found["detail"], found["own_difference"]) == ("means2D got no gradient", 1.0), "its own words"


@pytest.mark.parametrize("kernel", ["ssim", "knn", "rasterizer"])
def test_each_kernel_is_held_against_what_the_own_one_gave(tmp_path: Path, kernel: str) -> None:
    """An implementation within its tolerance of float64 is refused where it is not what the own kernel gave."""
    own = tmp_path / "own.json"
    name = f"splatfix.kernels.{kernel}"
    assert kernel_probe.run_check(kernel, name, "ours", "cpu", own)["outcome"] == "met"
    same = kernel_probe.run_check(kernel, name, "native", "cpu", own)
    assert (same["outcome"], same["own_difference"]) == ("met", 0.0)
    assert same["own_gradient_difference"] == (None if kernel == "knn" else 0.0)
    assert "ran" not in same
    kept = json.loads(own.read_text())

    def moved(value: Any) -> Any:
        return [moved(item) for item in value] if isinstance(value, list) else value * 1.001

    own.write_text(json.dumps({**kept, "value": moved(kept["value"])}))
    found = kernel_probe.run_check(kernel, name, "native", "cpu", own)
    assert found["outcome"] == "failed" and "splatfix's own kernel on the same input" in found["detail"]
    assert found["value_error"] <= found["value_allowed"], "float64 has nothing against it"
