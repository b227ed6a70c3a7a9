"""The small kernels against direct formulas in float64."""

import decimal
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from splatfix.kernels.helpers import SparseGaussianAdam, binomial_table, compute_relocation, sparse_adam_step
from tests.waits import Waits

from .compare import OnGpu
from .scenes import rand

# -- sparse Adam --


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    rows=st.integers(0, 30),
    shape=st.sampled_from([(), (1,), (3,), (15, 3)]),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 999),
    kind=st.sampled_from([torch.Tensor, OnGpu]),
)
def test_adam_updates_visible_rows_by_the_formula_and_no_others(rows, shape, share, seed, kind):
    size = (rows, *shape)
    param, m, v = rand(*size, seed=seed), rand(*size, seed=seed + 1), rand(*size, seed=seed + 2)
    visible = rand(rows, seed=seed + 3) < share
    expected = [param.clone(), m.clone(), v.clone()]
    for step in range(3):
        grad = rand(*size, seed=seed + 10 + step) - 0.5
        for i in range(rows):
            if visible[i]:
                expected[1][i] = 0.9 * expected[1][i] + 0.1 * grad[i]
                expected[2][i] = 0.999 * expected[2][i] + 0.001 * grad[i] ** 2
                expected[0][i] -= 0.01 * expected[1][i] / (expected[2][i].sqrt() + 1e-15)
        with Waits() as waits:
            sparse_adam_step(*(item.as_subclass(kind) for item in (param, grad, m, v)), visible, lr=0.01)
        assert kind is torch.Tensor or not waits.found
    for result, target in zip((param, m, v), expected, strict=True):
        assert torch.allclose(result, target, rtol=1e-12, atol=1e-14)
    assert torch.equal(param[~visible], rand(*size, seed=seed)[~visible])


def test_optimizer_equals_the_step_keeps_state_and_takes_radii():
    first, second, untouched = (torch.nn.Parameter(rand(6, 3, seed=s)) for s in (1, 2, 3))
    before = untouched.detach().clone()
    groups = ((first, 0.1, "xyz"), (second, 0.2, "scaling"), (untouched, 0.3, "opacity"))
    groups = [{"params": [param], "lr": lr, "name": name} for param, lr, name in groups]
    optimizer = SparseGaussianAdam(groups, lr=0.0)
    radii = torch.tensor([0, 3, 0, 12, 1, 0], dtype=torch.int32)
    by_hand = [p.detach().clone() for p in (first, second)]
    moments = [[torch.zeros(6, 3, dtype=torch.float64) for _ in range(2)] for _ in range(2)]
    for step in range(4):
        for n, (param, lr) in enumerate(((first, 0.1), (second, 0.2))):
            param.grad = rand(6, 3, seed=20 + step + n)
            sparse_adam_step(by_hand[n], param.grad, *moments[n], radii > 0, lr=lr)
        optimizer.step(radii, 6)
        optimizer.zero_grad(set_to_none=True)
    assert torch.equal(first, by_hand[0]) and torch.equal(second, by_hand[1])
    assert torch.equal(untouched, before)
    assert torch.equal(optimizer.state[first]["exp_avg"], moments[0][0])
    assert torch.equal(optimizer.state[first]["exp_avg_sq"], moments[0][1])
    assert untouched not in optimizer.state


def test_optimizer_takes_the_betas_and_epsilon_it_is_given():
    param = torch.nn.Parameter(torch.zeros(1, 1, dtype=torch.float64))
    optimizer = SparseGaussianAdam(
        [{"params": [param], "lr": 1.0, "name": "xyz"}], lr=0.0, eps=0.5, betas=(0.4, 0.75)
    )
    for _ in range(2):
        param.grad = torch.ones(1, 1, dtype=torch.float64)
        optimizer.step(torch.tensor([True]), 1)
    # Moments by hand: 0.6 and 0.25, then 0.84 and 0.4375.
    expected = -0.6 / (math.sqrt(0.25) + 0.5) - 0.84 / (math.sqrt(0.4375) + 0.5)
    assert param.item() == pytest.approx(expected, rel=1e-12)


def test_adam_refuses_a_wrong_visibility():
    param = torch.nn.Parameter(torch.zeros(4, 3))
    param.grad = torch.ones(4, 3)
    optimizer = SparseGaussianAdam([param], lr=0.1)
    with pytest.raises(ValueError, match="one per Gaussian"):
        optimizer.step(torch.ones(3, dtype=torch.bool), 4)
    with pytest.raises(ValueError, match="4 rows"):
        optimizer.step(torch.ones(3, dtype=torch.bool), 3)


# -- relocation --


@settings(max_examples=60, deadline=None, derandomize=True)
@given(opacity=st.floats(1e-4, 0.995), copies=st.integers(1, 51), shape=st.sampled_from([(1,), (1, 1)]))
def test_relocation_equals_the_double_sum(opacity, copies, shape):
    new_opacity = 1 - (1 - opacity) ** (1 / copies)
    denominator = math.fsum(
        math.comb(i - 1, k) * (-1) ** k * new_opacity ** (k + 1) / math.sqrt(k + 1)
        for i in range(1, copies + 1)
        for k in range(i)
    )
    scales = torch.tensor([[0.1, 1.0, 7.0]], dtype=torch.float64)
    given_opacity = torch.full(shape, opacity, dtype=torch.float64)
    given = (given_opacity, scales, torch.full(shape, copies), binomial_table())
    found_opacity, found_scale = compute_relocation(*given, 51)
    assert found_opacity.shape == shape and found_scale.shape == (1, 3)
    assert found_opacity.item() == pytest.approx(new_opacity, rel=1e-10)
    assert torch.allclose(found_scale, scales * opacity / denominator, rtol=1e-9, atol=0)


def test_relocation_is_exact_with_a_float32_table():
    """Eighty digits beside it: the binomials alternate, and for many opaque copies their rounding would show."""
    old, copies = decimal.Decimal(1) - decimal.Decimal(2) ** -23, 48
    with decimal.localcontext(decimal.Context(prec=80)):
        new = 1 - (1 - old) ** (decimal.Decimal(1) / copies)
        denominator = sum(
            math.comb(i - 1, k) * (-1) ** k * new ** (k + 1) / decimal.Decimal(k + 1).sqrt()
            for i in range(1, copies + 1)
            for k in range(i)
        )
        expected = float(old / denominator)
    opacity, one = torch.tensor([float(old)]).double(), torch.ones(1, 3).double()
    for table in (binomial_table(), binomial_table().flatten()):
        _, scale = compute_relocation(opacity, one, torch.tensor([copies]), table, 51)
        assert scale[0].tolist() == pytest.approx([expected] * 3, rel=1e-9)


@pytest.mark.parametrize("copies", [0, 52])
def test_relocation_refuses_counts_outside_the_table(copies):
    opacity, one = torch.tensor([0.5]), torch.ones(1, 3)
    with pytest.raises(ValueError, match="clamp"):
        compute_relocation(opacity, one, torch.tensor([copies]), binomial_table(), 51)
