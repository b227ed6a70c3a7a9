"""SSIM against a naive float64 reference: a dense 11x11 window, autograd, nothing shared with the kernel."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st

from splatfix.kernels import ssim as module
from splatfix.kernels.ssim import fused_ssim, fused_ssim3d
from tests.tables import data

from .scenes import rand

WEIGHTS = torch.tensor([math.exp(-((i - 5) ** 2) / 4.5) for i in range(11)], dtype=torch.float64)
WEIGHTS /= WEIGHTS.sum()


def reference_map(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The map of the contract from dense windows, in the dtype of its inputs; 2-D or 3-D by the number of dimensions."""
    dims = x.dim() - 2
    window = WEIGHTS
    for _ in range(dims - 1):
        window = window.unsqueeze(-1) * WEIGHTS
    channels = x.shape[1]
    window = window.to(x.dtype).expand(channels, 1, *window.shape)
    conv = F.conv2d if dims == 2 else F.conv3d

    def blur(image: torch.Tensor) -> torch.Tensor:
        return conv(image, window, padding=5, groups=channels)

    m1, m2 = blur(x), blur(y)
    s1, s2, s12 = blur(x * x) - m1**2, blur(y * y) - m2**2, blur(x * y) - m1 * m2
    value = ((2 * m1 * m2 + 1e-4) * (2 * s12 + 9e-4)) / (
        (m1**2 + m2**2 + 1e-4) * (s1.clamp(min=0) + s2.clamp(min=0) + 9e-4)
    )
    return value.clamp(-1, 1)


def reference(x: torch.Tensor, y: torch.Tensor, padding: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Value and gradient in float64."""
    x = x.detach().double().requires_grad_()
    value = reference_map(x, y.double())
    if padding == "valid":
        value = value[(slice(None), slice(None), *[slice(5, -5)] * (x.dim() - 2))]
    mean = value.mean()
    (grad,) = torch.autograd.grad(mean, x)
    return mean.detach(), grad


def ours(x: torch.Tensor, y: torch.Tensor, padding: str) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.detach().clone().requires_grad_()
    value = (fused_ssim if x.dim() == 4 else fused_ssim3d)(x, y, padding)
    (grad,) = torch.autograd.grad(value, x)
    assert grad.shape == x.shape and grad.dtype == x.dtype
    return value.detach(), grad


def picture(
    *shape: int, seed: int = 0, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor]:
    """A smooth image with edges and a noisy copy: what a half-trained model shows."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand(shape, generator=generator, dtype=torch.float64)
    rows = torch.linspace(0, 7, shape[-2], dtype=torch.float64).view(-1, 1)
    columns = torch.linspace(0, 9, shape[-1], dtype=torch.float64)
    y = (0.5 + 0.3 * torch.sin(rows) * torch.cos(columns) + 0.2 * (columns > 4) + 0.1 * noise).clamp(0, 1)
    x = (y + 0.05 * torch.randn(shape, generator=generator, dtype=torch.float64)).clamp(0, 1)
    return x.to(dtype), y.to(dtype)


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b).abs().max() / b.abs().max().clamp(min=1e-300))


PADDINGS = ["same", "valid"]
WAYS = ["onednn", "shifts", "depthwise"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way to blur, on CPU tensors: the code that runs on CUDA too."""
    if request.param == "onednn" and not torch.backends.mkldnn.is_available():
        pytest.skip("torch without oneDNN")
    monkeypatch.setattr(module, "_way_to_blur", lambda like: request.param)
    return request.param


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("shape", [(1, 3, 135, 240), (2, 1, 64, 97), (1, 4, 33, 501)])
def test_float32_meets_the_accuracy_target(way, shape, padding):
    x, y = picture(*shape)
    expected, gradient = reference(x, y, padding)
    value, grad = ours(x, y, padding)
    assert abs(value.double() - expected) <= 1e-6
    assert relative(grad, gradient) <= 5e-5


@pytest.mark.parametrize("padding", PADDINGS)
def test_float32_of_flat_images_is_as_good_as_the_dense_form(padding):
    """Flat images are the worst case of E[x^2] - E[x]^2 in single precision."""
    x, y = picture(1, 3, 64, 64)
    x, y = 0.9 + 1e-3 * (x - 0.5), 0.9 + 1e-3 * (y - 0.5)
    expected, _ = reference(x, y, padding)
    dense = reference_map(x, y)
    dense = dense[:, :, 5:-5, 5:-5] if padding == "valid" else dense
    value, _ = ours(x, y, padding)
    assert abs(value.double() - expected) <= max(1e-6, float(abs(dense.double().mean() - expected)))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    shape=st.tuples(*(st.integers(1, most) for most in (3, 4, 40, 70))),
    kind=st.sampled_from(["noise", "picture", "equal", "zeros", "constant", "opposite", "beyond"]),
    seed=st.integers(0, 2**16),
    padding=st.sampled_from(PADDINGS),
    numbers=st.sampled_from([64, 4096, 1 << 18]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
@example((1, 1, 24, 30), "noise", 0, "valid", 64, torch.float64)  # strips of the border alone
def test_any_shape_equals_the_reference(shape, kind, seed, padding, numbers, dtype):
    if padding == "valid" and min(shape[2:]) < 11:
        padding = "same"
    x, y = (rand(*shape, seed=seed + k).to(dtype) for k in range(2))
    x, y = {
        "noise": (x, y),
        "picture": picture(*shape, seed=seed, dtype=dtype),
        "equal": (x, x.clone()),
        "zeros": (x, torch.zeros_like(x)),
        "constant": (torch.full_like(x, 0.25), torch.full_like(x, 0.75)),
        "opposite": (x, 1 - x),
        "beyond": (3 * x - 1, y),  # renders leave [0, 1] before they are clamped
    }[kind]
    expected, gradient = reference(x, y, padding)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_STRIP_NUMBERS_CPU", numbers)  # many strips or one
        value, grad = ours(x, y, padding)
    if dtype == torch.float32:
        # a map of a few pixels has no averaging: each may be off by eps * E[x^2] / C2, some 3e-4 for values around 1
        assert abs(value.double() - expected) <= 3e-4
        assert bool(torch.isfinite(grad).all())
        return
    assert abs(value - expected) <= 1e-12
    if kind != "equal":  # there the exact gradient is zero, and only rounding is left on either side
        assert relative(grad, gradient) <= 1e-7
    else:
        assert grad.abs().max() <= 1e-12


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    size=st.tuples(*(st.integers(1, most) for most in (2, 2, 12, 6, 6))),
    padding=st.sampled_from(PADDINGS),
    seed=st.integers(0, 999),
)
def test_volumes_equal_the_reference(size, padding, seed):
    if padding == "valid":
        size = (*size[:2], *(s % 4 + 11 for s in size[2:]))
    x, y = rand(*size, seed=seed), rand(*size, seed=seed + 1)
    expected, gradient = reference(x, y, padding)
    value, grad = ours(x, y, padding)
    assert abs(value - expected) <= 1e-12
    assert relative(grad, gradient) <= 1e-9


def test_window_is_that_of_the_extension():
    published = [0.00102838012, 0.00759875821, 0.03600077331, 0.10936068743, 0.21300552785, 0.26601171494]
    assert module.WINDOW[:6] == pytest.approx(published, abs=2e-8)  # published in single precision
    assert module.WINDOW[6:] == module.WINDOW[4::-1]
    assert sum(module.WINDOW) == pytest.approx(1, abs=1e-15)


def test_rounding_is_clamped_without_a_gradient():
    """Statistics that no image has: a product beyond both squares, on either side, and a variance below zero."""
    squares = torch.tensor([0.0, 0.0, -0.01, 0.5], dtype=torch.float64)
    twice_product = torch.tensor([1.0, -1.0, 0.0, 0.25], dtype=torch.float64)
    mean = torch.zeros(4, dtype=torch.float64)  # of images less one half
    out = [torch.full((4,), 7.0, dtype=torch.float64) for _ in range(3)]
    result = module._map_and_derivatives(mean, mean, squares.clone(), twice_product.clone(), out)
    assert result.tolist() == pytest.approx([1.0, -1.0, 1.0, (0.25 + 9e-4) / (0.5 + 9e-4)])
    for derivative in out:
        assert derivative[:2].tolist() == [0.0, 0.0]
    assert out[1][3] > 0 and out[2][3] > 0
    without = module._map_and_derivatives(mean, mean, squares, twice_product, None)
    assert torch.equal(without, result)


def test_gradient_goes_to_the_first_image_only_and_scales():
    x, y = picture(1, 3, 20, 20, dtype=torch.float64)
    x.requires_grad_()
    y.requires_grad_()
    (-3 * fused_ssim(x, y)).backward()
    assert y.grad is None
    assert torch.allclose(x.grad, -3 * reference(x, y, "same")[1], rtol=1e-9, atol=0)


def test_backward_twice_gives_the_same_gradient():
    x, y = picture(1, 3, 20, 20)
    x.requires_grad_()
    value = fused_ssim(x, y)
    (first,) = torch.autograd.grad(value, x, retain_graph=True)
    (second,) = torch.autograd.grad(value, x)
    assert torch.equal(first, second)


def test_no_gradient_without_train_or_under_no_grad():
    x, y = picture(1, 3, 20, 20)
    x.requires_grad_()
    assert not fused_ssim(x, y, train=False).requires_grad
    with torch.no_grad():
        assert not fused_ssim(x, y).requires_grad
    assert fused_ssim(x, y).requires_grad


def test_views_are_read_as_they_are():
    x, y = picture(1, 3, 30, 40, dtype=torch.float64)
    expected = fused_ssim(x, y)
    last = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    assert fused_ssim(last, y) == pytest.approx(float(expected), abs=1e-14)


def test_autocast_does_not_round_the_window():
    x, y = picture(1, 3, 64, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = fused_ssim(x, y)
    assert inside.dtype == torch.float32
    assert inside == fused_ssim(x, y)


@pytest.mark.skipif(not hasattr(torch, "compiler"), reason="torch.compile needs torch 2.1")
@pytest.mark.parametrize("padding", ["same", pytest.param("valid", marks=pytest.mark.slow)])
def test_compiles_into_one_graph(padding):
    x, y = picture(1, 2, 24, 31, dtype=torch.float64)
    x.requires_grad_()
    compiled = torch.compile(lambda a, b: 1 - fused_ssim(a, b, padding), backend="aot_eager", fullgraph=True)
    value = compiled(x, y)
    value.backward()
    expected, gradient = reference(x, y, padding)
    assert value.item() == pytest.approx(1 - float(expected), abs=1e-12)
    assert relative(x.grad, -gradient) <= 1e-9


@pytest.mark.parametrize(("shapes", "dtypes", "padding", "error", "says"), data(__file__)["errors"])
def test_errors_say_what_to_do(shapes, dtypes, padding, error, says):
    pair = (rand(*shape).to(getattr(torch, name)) for shape, name in zip(shapes, dtypes, strict=True))
    with pytest.raises({"value": ValueError, "type": TypeError}[error], match=says):
        fused_ssim(*pair, padding)
    with pytest.raises(ValueError, match=r"\[B, C, D, H, W\]"):
        fused_ssim3d(torch.rand(1, 3, 8, 8), torch.rand(1, 3, 8, 8))
