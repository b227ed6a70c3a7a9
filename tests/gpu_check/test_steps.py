"""What single steps make of what they see."""

from __future__ import annotations

import pytest

from .steps.train import spread_of
from .steps.visible import forms


def test_the_spread_is_of_all_runs() -> None:
    runs = [{"psnr": 20.0, "memory": 0.0}, {"psnr": 20.2, "memory": 2.0}, {"psnr": 19.9, "memory": 1.0}]
    assert spread_of(runs) == pytest.approx({"psnr": 0.015, "memory": 2.0})


def test_orders_are_asked_where_there_are_two() -> None:
    one, two = ("GPU-aaaaaaaa-1", "GPU-bbbbbbbb-2")
    assert "1,0" not in forms([one])
    assert {"1", "1,0", f"{two},{one}"} <= set(forms([one, two]))
