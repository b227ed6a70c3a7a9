"""gsplat with our module behind it."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest
import torch

from .loading import loaded


@pytest.fixture(scope="module")
def gsplat() -> Iterator[ModuleType]:
    """PyPI's 1.5.3."""
    with loaded("1.5.3") as package:
        yield package


@pytest.fixture(scope="module")
def older() -> Iterator[ModuleType]:
    """PyPI's 1.4.0."""
    with loaded("1.4.0") as package:
        yield package


@pytest.fixture
def without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """gsplat's 2DGS asks for a tensor on CUDA and waits for it, wherever its inputs are: here that is the CPU."""
    zeros_like = torch.zeros_like
    monkeypatch.setattr(torch, "zeros_like", lambda like, device=None, **more: zeros_like(like, **more))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
