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


def test_what_is_right_runs(kernels: Emulated) -> None:
    given, result = torch.arange(128.0), torch.zeros(128)
    kernels.launch("reverse", (2,), 64, [given, result])
    assert torch.equal(result, given.view(2, 64).flip(1).reshape(-1))
    total = torch.zeros(1)
    kernels.launch("add_with_atomic", (3,), 64, [torch.arange(64.0), total])
    assert total.item() == 3 * 63 * 32
    kernels.launch("warps", (1,), 64, [torch.arange(64.0), result])
    assert result[:64].tolist() == [496.0] * 32 + [1520.0] * 32
    kernels.launch("votes", (1,), 64, [torch.arange(64.0), result])
    assert result[:64].tolist() == [22.0] * 64


def test_an_argument_too_few_is_reported(kernels: Emulated) -> None:
    with pytest.raises(KernelError, match="takes 2 arguments"):
        kernels.launch("reverse", (1,), 64, [torch.arange(64.0)])


def test_where_four_numbers_are_one_load(kernels: Emulated) -> None:
    numbers = torch.arange(65.0)
    kernels.launch("four_at_once", (1,), 32, [numbers[4:36], torch.zeros(32)])
    for given, made in ((numbers[1:33], torch.zeros(32)), (numbers[4:36], torch.zeros(33)[1:])):
        with pytest.raises(KernelError, match="not aligned to 16 bytes"):
            kernels.launch("four_at_once", (1,), 32, [given, made])


def test_a_launch_that_the_driver_refuses(kernels: Emulated) -> None:
    for grid, threads, name in (((0,), 64, "votes"), ((1,), 40, "votes"), ((1,), 64, "missing")):
        with pytest.raises(KernelError):
            kernels.launch(name, grid, threads, [torch.zeros(64), torch.zeros(64)])


def test_orders_differ_and_repeat() -> None:
    """The order of threads depends on the seed, and on nothing else."""

    def sums(seed: int) -> float:
        total = torch.zeros(1)
        values = torch.rand(64, generator=torch.Generator().manual_seed(0)) * 10 ** torch.arange(
            64
        ).remainder(7)
        Emulated(KERNELS, {}, torch.float32, seed).launch("add_with_atomic", (1,), 64, [values, total])
        return total.item()

    assert sums(3) == sums(3)
    assert len({sums(seed) for seed in range(8)}) > 1
