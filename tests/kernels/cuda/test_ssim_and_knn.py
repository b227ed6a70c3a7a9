"""ssim.cu and knn.cu, emulated, against the pure-PyTorch SSIM and search."""

import pytest
import torch

from splatfix.kernels.knn import distCUDA2
from splatfix.kernels.knn_cuda import mean_of_three
from splatfix.kernels.nvrtc import NoKernels
from splatfix.kernels.ssim import fused_ssim
from splatfix.kernels.ssim_cuda import mean_ssim
from tests.tables import data

from ..compare import BOTH, assert_close
from ..scenes import KINDS, points_of, rand

pytestmark = pytest.mark.usefixtures("emulated")

SHAPES = data(__file__)["shapes"]


@BOTH
@pytest.mark.parametrize(
    ("shape", "padding"),
    [
        (shape, padding)
        for shape in SHAPES
        for padding in ("same", "valid")
        if padding == "same" or min(shape[2:]) >= 11
    ],
)
@pytest.mark.parametrize("kind", ["noise", "alike", "flat", "beyond"])
def test_value_and_gradient(shape: tuple[int, ...], padding: str, dtype: torch.dtype, kind: str) -> None:
    generator = torch.Generator().manual_seed(1)
    second = torch.rand(shape, generator=generator, dtype=dtype)
    first = {
        "noise": torch.rand(shape, generator=generator, dtype=dtype),
        "alike": second + 0.01 * torch.randn(shape, generator=generator, dtype=dtype),
        "flat": torch.full(shape, 0.25, dtype=dtype),
        "beyond": 3 * torch.randn(shape, generator=generator, dtype=dtype),
    }[kind]
    first.requires_grad_()
    result, expected = mean_ssim(first, second, padding), fused_ssim(first, second, padding)
    near = 1e-13 if dtype == torch.float64 else 2e-6
    assert_close("mean", result, expected, near, least=1.0)
    slopes = [torch.autograd.grad(3 * mean, first)[0] for mean in (result, expected)]
    # one pixel, or images nearly alike, are all cancellation: both round, by up to 4e-5 of the little that is left
    slack = 50 if shape == (1, 1, 1, 1) or kind == "alike" else 5
    assert_close("gradient", *slopes, slack * near, least=1e-3)


def test_without_a_gradient() -> None:
    first, second = torch.rand(1, 3, 20, 20), torch.rand(1, 3, 20, 20)
    result = mean_ssim(first, second, "same")
    assert not result.requires_grad and float((result - fused_ssim(first, second)).abs()) < 1e-6


def test_the_same_bits_every_time() -> None:
    """Whatever the order of threads and blocks."""
    first, second = torch.rand(1, 2, 70, 40), torch.rand(1, 2, 70, 40)
    assert len({mean_ssim(first, second, "same").item() for _ in range(4)}) == 1


def test_more_images_than_a_grid_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splatfix.kernels.ssim_cuda._MOST_IMAGES", 3)
    first, second = rand(2, 4, 13, 12).requires_grad_(), rand(2, 4, 13, 12, seed=1)
    ours, exact = (ssim(first, second, "valid") for ssim in (mean_ssim, fused_ssim))
    assert_close("mean", ours, exact, 1e-13)
    slopes = [torch.autograd.grad(mean, first)[0] for mean in (ours, exact)]
    assert_close("gradient", *slopes, 1e-12)


def test_higher_than_a_launch() -> None:
    image = torch.zeros(1, 1, 32 * 65535 + 1, 1)
    with pytest.raises(NoKernels, match="2097121 rows"):
        mean_ssim(image, image, "same")


@BOTH
@pytest.mark.parametrize("kind", KINDS)
def test_exact(kind: str, dtype: torch.dtype) -> None:
    # around the sizes of a leaf, of a full level and of a block of threads
    for count in (4, 5, 8, 9, 63, 64, 65, 127, 128, 513, 3000):
        points = points_of(kind, count, seed=count, dtype=dtype)
        result, expected = mean_of_three(points), distCUDA2(points)
        assert torch.allclose(result, expected, rtol=1e-12 if dtype == torch.float64 else 1e-6, atol=0), count


def test_distances_that_overflow() -> None:
    points = 1e20 * torch.rand(100, 3)
    assert torch.equal(mean_of_three(points), distCUDA2(points, engine="torch"))


def test_a_hundred_thousand() -> None:
    points = points_of("clustered", 100_000, seed=0)
    assert torch.allclose(mean_of_three(points), distCUDA2(points), rtol=1e-6, atol=0)


def test_more_than_can_be_counted() -> None:
    points = torch.zeros(1, 3).expand(2**31, 3)
    with pytest.raises(ValueError, match="The kernels count"):
        mean_of_three(points)
