"""On a GPU: our kNN on CUDA against itself on the CPU."""

from __future__ import annotations

import pytest
import torch

from splatfix.kernels.knn import distCUDA2

from .knn_clouds import KINDS, cloud


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("kind", KINDS)
def test_cuda_equals_cpu(kind: str) -> None:
    points = cloud(kind, 5000, 1)
    result = distCUDA2(points.cuda()).cpu()
    assert torch.allclose(result, distCUDA2(points, engine="torch"), rtol=1e-5, atol=0)
