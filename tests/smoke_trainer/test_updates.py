"""Steps of optimizers that are computed again: those of Adam's family agree, and what is wrong in one is told apart."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from smoke_trainer.updates import AdamRule, UpdateCheck, UpdateReport, rule_of
from splatfix.certify.criteria.gradients import MAX_UPDATE_ERROR

ROWS = 1300


class SparseGaussianAdam(torch.optim.Adam):
    """Of the rows with a gradient only, and without correction of the bias, as Inria's."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                state, grad = self.state[parameter], parameter.grad
                if not state:
                    state.update(exp_avg=torch.zeros_like(parameter), exp_avg_sq=torch.zeros_like(parameter))
                rows = (grad != 0).any(dim=1)
                state["exp_avg"][rows] = 0.9 * state["exp_avg"][rows] + 0.1 * grad[rows]
                state["exp_avg_sq"][rows] = 0.999 * state["exp_avg_sq"][rows] + 0.001 * grad[rows] ** 2
                step = (
                    group["lr"] * state["exp_avg"][rows] / (state["exp_avg_sq"][rows].sqrt() + group["eps"])
                )
                parameter[rows] -= step


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
        rule = rule_of(optimizer, optimizer.param_groups[0], optimizer.state[parameter])
        assert rule is not None
        if rule.corrected:
            rule = rule._replace(step=number + 1)
        check.before("rotation", parameter, optimizer.state[parameter], rule)
        optimizer.step()
        with torch.no_grad():
            spoil(parameter, before)
        check.after()
    return check.summary()["rotation"]


@pytest.mark.parametrize(
    "make",
    [
        lambda groups: torch.optim.Adam(groups, foreach=False),
        lambda groups: torch.optim.Adam(groups, fused=True, eps=1e-15),
        lambda groups: torch.optim.Adam(groups, weight_decay=0.1, betas=(0.5, 0.9)),
        lambda groups: torch.optim.AdamW(groups, weight_decay=0.1),
        SparseGaussianAdam,
    ],
)
def test_adams_family_moves_as_computed(make: Callable[[Any], Any]) -> None:
    report = followed(make)
    assert report.steps >= 9 and report.moved == pytest.approx(1.0, abs=1e-4)
    assert max(report.error or 0.0, report.moments_error or 0.0) < MAX_UPDATE_ERROR / 100


@pytest.mark.parametrize(
    ("spoil", "moved"),
    [
        (lambda parameter, before: parameter.copy_(before), 0.0),
        (lambda parameter, before: parameter.copy_((parameter + before) / 2), 0.5),
        (lambda parameter, before: parameter[: ROWS // 2].copy_(before[: ROWS // 2]), 0.5),
        (lambda parameter, before: parameter[1::2].copy_(before[1::2]), 0.5),
    ],
    ids=["skips", "halves", "skips rows", "skips every second row"],
)
def test_a_move_that_is_not_adams(spoil: Callable[[Any, Any], None], moved: float) -> None:
    report = followed(torch.optim.Adam, spoil)
    assert report.error is not None and report.error > 100 * MAX_UPDATE_ERROR
    assert report.moved == pytest.approx(moved, abs=0.1)


def test_a_wrong_correction_of_the_bias() -> None:
    def make(groups: Any) -> Any:
        optimizer = torch.optim.Adam(groups)

        def late(*_: Any) -> None:
            for state in optimizer.state.values():
                if state:
                    state["step"].fill_(1000)

        optimizer.register_step_pre_hook(late)
        return optimizer

    report = followed(make)
    assert report.error is not None and report.error > 100 * MAX_UPDATE_ERROR
    assert report.moments_error is not None and report.moments_error < MAX_UPDATE_ERROR


def test_what_is_not_of_the_family_has_no_rule() -> None:
    parameter = torch.zeros(3, requires_grad=True)
    for optimizer in (
        torch.optim.SGD([parameter], lr=0.1),
        torch.optim.RMSprop([parameter]),
        torch.optim.Adam([parameter], amsgrad=True),
    ):
        assert rule_of(optimizer, optimizer.param_groups[0], {}) is None


def test_gradients_below_single_precision_are_not_judged() -> None:
    """The square of the first is 0 as a number of single precision, and its moment is not."""
    parameter, check = torch.zeros(2, 1, requires_grad=True), UpdateCheck()
    optimizer = torch.optim.Adam([parameter], lr=1e-3, eps=1e-15)
    for step, slope in enumerate((1e-24, 0.0), 1):
        parameter.grad = torch.full((2, 1), slope)
        check.before("rotation", parameter, optimizer.state[parameter], AdamRule(lr=1e-3, step=step))
        optimizer.step()
        check.after()
    assert check.summary()["rotation"] == UpdateReport(0, None, None, None)


def test_a_gradient_that_is_no_number_is_left_to_its_own_criterion() -> None:
    parameter, check = torch.zeros(2, 1, requires_grad=True), UpdateCheck()
    optimizer = torch.optim.Adam([parameter], lr=1e-3, eps=1e-15)
    parameter.grad = torch.tensor([[float("nan")], [1.0]])
    check.before("opacity", parameter, optimizer.state[parameter], AdamRule(lr=1e-3, step=1))
    optimizer.step()
    check.after()
    assert check.summary()["opacity"].moved == pytest.approx(1.0)
