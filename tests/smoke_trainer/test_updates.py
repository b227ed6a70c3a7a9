"""Groups that an optimizer moves, and such that it leaves as they are."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from smoke_trainer.updates import UpdateCheck, UpdateReport

ROWS = 1300


class SparseGaussianAdam(torch.optim.Adam):
    """Of the rows with a gradient only, as Inria's."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                rows = (parameter.grad != 0).any(dim=1)
                parameter[rows] -= group["lr"] * parameter.grad[rows].sign()


def followed(make: Callable[[Any], Any], spoil: Callable[[Any, Any], None] = lambda *_: None) -> UpdateReport:
    """Ten steps of an optimizer on random gradients, of which a third of the rows has none; ``spoil`` acts after each."""
    generator = torch.Generator().manual_seed(1)
    parameter = torch.randn(ROWS, 4, generator=generator).requires_grad_(True)
    optimizer, check = make([{"params": [parameter], "lr": 1e-3}]), UpdateCheck()
    for number in range(10):
        parameter.grad = (
            torch.randn(ROWS, 4, generator=generator) * (torch.arange(ROWS) % 3 != number % 3)[:, None]
        )
        before = parameter.detach().clone()
        check.before("rotation", parameter)
        optimizer.step()
        with torch.no_grad():
            spoil(parameter, before)
        check.after()
    return check.summary()["rotation"]


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, SparseGaussianAdam])
def test_a_group_that_moves(make: Callable[[Any], Any]) -> None:
    assert followed(make) == UpdateReport(10, 10)


def test_weight_decay_alone_moves_nothing_that_has_a_gradient() -> None:
    """Rows without a gradient may move: by momentum, or by decay."""

    def spoil(parameter: Any, before: Any) -> None:
        pulled = parameter.grad != 0
        parameter[pulled] = before[pulled]

    assert followed(lambda groups: torch.optim.AdamW(groups, weight_decay=0.1), spoil) == UpdateReport(10, 0)


def test_a_group_without_a_gradient_is_not_looked_at() -> None:
    check = UpdateCheck()
    parameter = torch.zeros(2, 1, requires_grad=True)
    check.before("opacity", parameter)
    check.after()
    assert check.summary() == {}
    parameter.grad = torch.zeros(2, 1)
    check.before("opacity", parameter)
    check.after()
    assert check.summary() == {"opacity": UpdateReport(0, 0)}
