"""What works on each Gaussian by itself: against gsplat's references, and its own formulas in float64."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor

from splatfix.kernels import helpers

from ..compare import BOTH, assert_all_close, assert_close
from .cases import world
from .test_rasterizer import GRADIENT, VALUE


@BOTH
@pytest.mark.parametrize("triu", [False, True])
@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)])
def test_covariances(gsplat: ModuleType, wanted: tuple[bool, bool], triu: bool, dtype: torch.dtype) -> None:
    from gsplat.cuda._torch_impl import _quat_scale_to_covar_preci

    scene = world(40)
    given = [scene.quats.to(dtype).view(2, 20, 4), (scene.scales + 0.05).to(dtype).view(2, 20, 3)]
    leaves = [item.double().requires_grad_() for item in given]
    expected = _quat_scale_to_covar_preci(*leaves, *wanted, triu)
    ours = [item.clone().requires_grad_() for item in given]
    made = gsplat.quat_scale_to_covar_preci(*ours, *wanted, triu)
    weights = [None if item is None else torch.rand_like(item) for item in expected]
    for k, (result, target) in enumerate(zip(made, expected, strict=True)):
        assert (result is not None) == (target is not None) == wanted[k]
        if target is not None:
            assert result.dtype == dtype and result.shape == target.shape
            assert_close(f"result {k}", result, target, VALUE[dtype])

    def pulled(results: tuple[Tensor | None, ...], of: list[Tensor]) -> tuple[Tensor, ...]:
        pairs = [(r, w) for r, w in zip(results, weights, strict=True) if r is not None and w is not None]
        return torch.autograd.grad(sum((r * w.to(r.dtype)).sum() for r, w in pairs), of)

    assert_all_close(("quats", "scales"), pulled(made, ours), pulled(expected, leaves), GRADIENT[dtype])


@BOTH
@pytest.mark.parametrize("degree", range(5))
def test_spherical_harmonics(gsplat: ModuleType, degree: int, dtype: torch.dtype) -> None:
    from gsplat.cuda._torch_impl import _spherical_harmonics

    generator = torch.Generator().manual_seed(degree)
    dirs = torch.randn(3, 30, 3, generator=generator).to(dtype)
    dirs[0, 0] = torch.tensor([0.0, 0.0, -2.0])
    coeffs = torch.randn(3, 30, 25, 3, generator=generator).to(dtype)
    masks = torch.rand(3, 30, generator=generator) < 0.7
    upstream = torch.randn(3, 30, 3, generator=generator).to(dtype)
    for mask in (None, masks):
        theirs = [item.double().clone().requires_grad_() for item in (dirs, coeffs)]
        expected = _spherical_harmonics(degree, *theirs)
        if mask is not None:
            expected = expected * mask[..., None]
        ours = [item.clone().requires_grad_() for item in (dirs, coeffs)]
        colors = gsplat.spherical_harmonics(degree, *ours, masks=mask)
        assert_close("colors", colors, expected, VALUE[dtype])
        found = torch.autograd.grad((colors * upstream).sum(), ours)
        loss = (expected * upstream.double()).sum()
        target = torch.autograd.grad(loss, theirs, allow_unused=True)
        assert_close("coeffs", found[1], target[1], GRADIENT[dtype])
        if target[0] is None:  # degree 0
            assert not found[0].any()
        else:
            assert_close("dirs", found[0], target[0], GRADIENT[dtype])


@BOTH
def test_relocation(gsplat: ModuleType, dtype: torch.dtype) -> None:
    """As the relocation that test_helpers.py holds against its double sum."""
    from gsplat.relocation import compute_relocation

    opacities, scales = torch.tensor([0.001, 0.3, 0.9, 0.999], dtype=dtype), torch.rand(4, 3, dtype=dtype)
    given = (opacities, scales, torch.tensor([1, 2, 7, 51]), helpers.binomial_table().to(dtype))
    both = compute_relocation(*given), helpers.compute_relocation(*given, 51)
    for made, expected in zip(*both, strict=True):
        assert made.dtype == dtype and torch.equal(made, expected)


@BOTH
def test_selective_adam(gsplat: ModuleType, dtype: torch.dtype) -> None:
    """gsplat's optimizer on our step: two steps of some rows."""
    from gsplat.optimizers import SelectiveAdam

    param = torch.rand(6, 2, 3, dtype=dtype, requires_grad=True)
    optimizer = SelectiveAdam([{"params": [param], "lr": 0.1}], eps=1e-8, betas=(0.9, 0.99))
    expected = [param.detach().clone(), torch.zeros(6, 2, 3, dtype=dtype), torch.zeros(6, 2, 3, dtype=dtype)]
    visible = torch.tensor([True, False, True, True, False, False])
    for _ in range(2):
        param.grad = torch.rand(6, 2, 3, dtype=dtype)
        optimizer.step(visible)
        helpers.sparse_adam_step(expected[0], param.grad, *expected[1:], visible, 0.1, 0.9, 0.99, 1e-8)
    assert torch.equal(param, expected[0])
