"""knn.cu, emulated, against the pure-PyTorch search."""

import pytest
import torch

from splatfix.kernels.knn import distCUDA2
from splatfix.kernels.knn_cuda import mean_of_three

from ..compare import BOTH
from ..scenes import KINDS, points_of

pytestmark = pytest.mark.usefixtures("emulated")


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
    assert torch.equal(mean_of_three(points), distCUDA2(points))


def test_a_hundred_thousand() -> None:
    points = points_of("clustered", 100_000, seed=0)
    assert torch.allclose(mean_of_three(points), distCUDA2(points), rtol=1e-6, atol=0)


def test_more_than_can_be_counted() -> None:
    points = torch.zeros(1, 3).expand(2**31, 3)
    with pytest.raises(ValueError, match="The kernels count"):
        mean_of_three(points)
