"""The emulator finds what it is for: each kernel here does one thing wrong, or nothing."""

from pathlib import Path

import pytest
import torch

from tests.tables import data

from .emulator import Emulated, KernelError, needs_compiler

pytestmark = needs_compiler

KERNELS = (Path(__file__).parent / "sabotage.cu").read_text()
WRONG = data(__file__)["wrong"]


@pytest.fixture(scope="module")
def kernels() -> Emulated:
    return Emulated(KERNELS, {}, torch.float32)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_reported(kernels: Emulated, name: str) -> None:
    with pytest.raises(KernelError, match=WRONG[name].replace("[", r"\[")):
        kernels.launch(name, (1,), 64, [torch.arange(64.0), torch.zeros(65)])


def test_a_launch_that_the_driver_refuses(kernels: Emulated) -> None:
    both, numbers = [torch.zeros(64), torch.zeros(64)], torch.arange(65.0)
    for grid, threads, name, given in (
        ((0,), 64, "votes", both),
        ((1,), 40, "votes", both),
        ((1,), 64, "missing", both),
        ((1,), 64, "reverse", both[:1]),
        # four numbers are one load, aligned to 16 bytes
        ((1,), 32, "four_at_once", [numbers[1:33], torch.zeros(32)]),
        ((1,), 32, "four_at_once", [numbers[4:36], torch.zeros(33)[1:]]),
    ):
        with pytest.raises(KernelError):
            kernels.launch(name, grid, threads, given)
    kernels.launch("four_at_once", (1,), 32, [numbers[4:36], torch.zeros(32)])
