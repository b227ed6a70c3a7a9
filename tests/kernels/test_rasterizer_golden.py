"""Ours against the kept arrays of the CUDA rasterizer."""

from pathlib import Path

import pytest
import torch

from . import rasterizer_golden as golden
from .rasterizer_golden import OURS, beyond

KEPT = Path(__file__).parents[1] / "records" / "rasterizer_cuda.npz"


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_equals_the_kept_arrays_of_the_extension(device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    for name, row in golden.check(OURS, KEPT, device).items():
        assert beyond(row) == [], name
