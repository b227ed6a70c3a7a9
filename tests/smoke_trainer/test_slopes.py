"""The loss along its gradients."""

from typing import Any

import pytest
import torch

from smoke_trainer.config import LearningRates
from smoke_trainer.model import Gaussians
from smoke_trainer.slopes import slopes_of


@pytest.mark.parametrize(
    ("spoil", "slope"),
    [
        (lambda grad: grad, 1.0),
        (lambda grad: grad / 2, 2.0),
        (lambda grad: -grad, -1.0),
        (lambda grad: grad.flip(0), 0.0),
        (lambda grad: grad * float("inf"), None),
    ],
    ids=["right", "half", "uphill", "of others", "no number"],
)
def test_how_the_loss_follows_a_gradient(spoil: Any, slope: float) -> None:
    shapes = {"xyz": 3, "f_dc": 3, "f_rest": 3, "opacity": 1, "scaling": 3, "rotation": 4}
    model = Gaussians({name: torch.ones(8, width) for name, width in shapes.items()}, 0, LearningRates())
    before = {name: parameter.detach().clone() for name, parameter in model.params.items()}
    row = torch.arange(8.0)[:, None]
    model.params["xyz"].register_hook(spoil)

    def loss() -> torch.Tensor:
        moved, others = torch.sin(model.params["xyz"]) * row, (torch.exp(model.params["opacity"]) - 1) * row
        return moved[:4].mean() + others.mean() + 0 * model.params["f_rest"].sum()

    found = slopes_of(model, loss)
    assert found["xyz"] == (slope if slope is None else pytest.approx(slope, abs=0.02))
    assert found["opacity"] == pytest.approx(1.0, abs=0.02)
    assert found.keys() == {"xyz", "opacity"}, "the others have no gradient"
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.params.items())


def test_rotations_are_turned_by_little() -> None:
    """Of Gaussians that are nearly round the gradient is faint: a hundredth of the loss would turn them several times."""
    shapes = {"xyz": 3, "f_dc": 3, "f_rest": 3, "opacity": 1, "scaling": 3, "rotation": 4}
    model = Gaussians({name: torch.ones(8, width) for name, width in shapes.items()}, 0, LearningRates())
    slopes = slopes_of(model, lambda: 1 + 0.001 * torch.sin(50 * model.params["rotation"]).mean())
    assert slopes == {"rotation": pytest.approx(1.0, abs=0.05)}
    round_ones = slopes_of(model, lambda: 1 + 1e-9 * torch.sin(50 * model.params["rotation"]).mean())
    assert round_ones == {}, "rounding is no gradient"
