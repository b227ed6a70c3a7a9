"""torch's own arithmetic: a healthy one passes, whatever is wrong in it is named, and nothing is trained on it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from splatfix.certify import Outcome, Verdict, kernels
from splatfix.certify.engine import certify
from splatfix.certify.kernel_arithmetic import EXACT, SINGLE, TF32, check_arithmetic
from splatfix.core.proof import RungName
from splatfix.core.runner import Completed
from splatfix.model import Facts
from tests.certify.conftest import SHORT, RecordedTrainer, reached, subject

MATMUL, SORT = torch.Tensor.__matmul__, torch.sort


def in_another_order(*given: Any, **options: Any) -> Any:
    values, places = SORT(*given, **options)
    return values, places.roll(1)


WRONG: dict[str, tuple[Any, str, Callable[..., Any], str, float]] = {
    "products": (torch, "bmm", lambda a, b: MATMUL(a, b) + 1e-3, "matrix product", SINGLE),
    "order": (torch, "sort", in_another_order, "sort", EXACT),
}
"""Two kinds of tolerance; tests/sabotage has the others."""


def test_this_torch_is_right() -> None:
    found = check_arithmetic("cpu")
    assert (found["outcome"], found["detail"]) == ("met", "")
    assert 0 < found["value_error"] < SINGLE < TF32


@pytest.mark.parametrize("fault", WRONG)
def test_what_is_wrong_is_named_with_its_limit(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, instead, operation, allowed = WRONG[fault]
    monkeypatch.setattr(owner, name, instead)
    found = check_arithmetic("cpu")
    assert found["outcome"] == "failed"
    assert (
        f"torch's {operation} is off by " in found["detail"] and f"allowed {allowed:.2g}" in found["detail"]
    )


class WrongTorch(RecordedTrainer):
    """A torch that multiplies wrongly, beside kernels of which none must run."""

    def run(self, argv: Sequence[str | Path], **options: Any) -> Completed:
        words = tuple(map(str, argv))
        if words[1:3] == ("-c", kernels.WHICH):
            return Completed(words, 0, "splatfix torch fused_ssim".replace(" ", "\n"), "", 0.0)
        assert words[2] == "arithmetic"
        row = '{"name": "arithmetic", "implementation": "torch", "outcome": "failed", "kind": "torch", "version": "2.9",'
        return Completed(words, 0, row + ' "detail": "torch\'s sort is off by 1, allowed 0"}', "", 0.0)


def test_nothing_runs_on_a_torch_that_is_wrong(tmp_path: Path, known: Facts) -> None:
    made = certify(subject(SHORT, tmp_path), known, runner=WrongTorch())
    assert made.verdict is Verdict.NOT_CERTIFIED and not made.scenes
    assert made.reasons == ("kernel arithmetic: torch's sort is off by 1, allowed 0 (torch 2.9)",)
    first, *others = made.kernels
    assert first.outcome is Outcome.FAILED and len(others) >= 4
    assert {item.outcome for item in others} == {Outcome.NOT_MEASURED}
    levels = reached(made.proof)
    assert (levels[RungName.COMPUTES], levels[RungName.TRAINS]) == (False, None)
    assert [item.scene for item in made.skipped] == list(SHORT.scenes)
