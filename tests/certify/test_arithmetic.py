"""torch's own arithmetic: a healthy one passes, what is wrong in it is named, and nothing is trained on it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from splatfix.certify import Outcome, Verdict
from splatfix.certify.engine import certify
from splatfix.certify.kernel_calls import check
from splatfix.core.proof import RungName
from splatfix.core.runner import Completed
from splatfix.model import Facts
from tests.certify.conftest import SHORT, RecordedTrainer, reached, subject


def test_this_torch_is_right() -> None:
    found = check("arithmetic", torch, "cpu", False)
    assert (found["outcome"], found["detail"]) == ("met", "")
    assert 0 < found["value_error"] < found["value_allowed"] / 10


def test_what_is_wrong_is_named_with_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.Tensor.cumsum

    def in_half_precision(numbers: Any, *given: Any) -> Any:
        if numbers.dtype is torch.float32:
            return right(numbers.half(), *given).float()
        return right(numbers, *given)

    monkeypatch.setattr(torch.Tensor, "cumsum", in_half_precision)
    found = check("arithmetic", torch, "cpu", False)
    assert (found["outcome"], found["detail"]) == ("failed", "cumulative sum of 1107 numbers")
    assert found["value_error"] > found["value_allowed"] == 1e-4


class WrongTorch(RecordedTrainer):
    """A torch that multiplies wrongly, beside kernels of which none must run."""

    def run(self, argv: Sequence[str | Path], **options: Any) -> Completed:
        words = tuple(map(str, argv))
        assert words[2] == "arithmetic"
        row = '{"name": "arithmetic", "implementation": "torch", "outcome": "failed", "kind": "torch", "version": "2.9",'
        return Completed(words, 0, row + ' "value_error": 1.0, "detail": "sort of 1107 numbers"}', "", 0.0)


def test_nothing_runs_on_a_torch_that_is_wrong(tmp_path: Path, known: Facts) -> None:
    made = certify(subject(SHORT, tmp_path), known, runner=WrongTorch())
    assert made.verdict is Verdict.NOT_CERTIFIED and not made.scenes
    assert made.reasons == (
        "kernel: arithmetic: torch 2.9: value off by 1, allowed 0; sort of 1107 numbers.",
    )
    first, *others = made.kernels
    assert first.outcome is Outcome.FAILED and len(others) >= 4
    assert {item.outcome for item in others} == {Outcome.NOT_MEASURED}
    levels = reached(made.proof)
    assert (levels[RungName.COMPUTES], levels[RungName.TRAINS]) == (False, None)
    assert [item.scene for item in made.skipped] == list(SHORT.scenes)
