"""The rehearsal's torch_scatter against loops over its definition."""

import pytest

torch = pytest.importorskip("torch")

from splatfix.certify.inside.compiled import torch_scatter  # noqa: E402 - needs torch


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "mul"])
def test_rows_are_reduced_as_a_loop_does(reduce: str, seed: int) -> None:
    torch.manual_seed(seed)
    src, index = torch.randn(40, 3, dtype=torch.float64), torch.randint(0, 7, (40,))
    made = torch_scatter.scatter(src, index, dim=0, dim_size=9, reduce=reduce)
    for row in range(9):
        mine = src[index == row]
        what = {"max": "amax", "min": "amin", "mul": "prod"}.get(reduce, reduce)
        empty = 1.0 if reduce == "mul" else 0.0
        wanted = getattr(mine, what)(0) if len(mine) else torch.full((3,), empty, dtype=torch.float64)
        assert torch.allclose(made[row], wanted)


def test_the_argument_of_a_maximum_is_the_first_place() -> None:
    src, index = torch.tensor([1.0, 5.0, 5.0, 2.0]), torch.tensor([0, 0, 0, 2])
    for function, places in ((torch_scatter.scatter_max, [1, 4, 3]), (torch_scatter.scatter_min, [0, 4, 3])):
        values, arguments = function(src, index)
        assert arguments.tolist() == places and values[1] == 0
    with pytest.raises(ValueError, match="logsumexp"):
        torch_scatter.scatter(src, index, reduce="logsumexp")
