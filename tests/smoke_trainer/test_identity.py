"""What a report says that ran."""

import sys
from types import SimpleNamespace

import pytest

from smoke_trainer.identity import engine_in_use
from splatfix.kernels import nvrtc
from tests.tables import data


@pytest.mark.parametrize(
    ("module", "carrier", "kernel"), data(__file__)["cuda_kernels_are_named_where_they_ran"]
)
def test_cuda_kernels_are_named_where_they_ran(
    module: str, carrier: str, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: dict[str, str] = {}
    monkeypatch.setitem(sys.modules, carrier, SimpleNamespace(ran=ran))
    assert engine_in_use(module, "torch-cuda") == "torch-cuda"
    ran[kernel] = "nvrtc"
    assert engine_in_use(module, "torch-cuda") == "nvrtc"
    ran[kernel] = "torch: no driver"
    assert engine_in_use(module, "torch-cuda") == "torch-cuda"


def test_without_them_nothing_is_renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "ran", {})  # other tests of this process ran some
    for module in ("gsplat", "fused_ssim", "splatfix.kernels.knn"):
        assert engine_in_use(module, "cuda") == "cuda"
