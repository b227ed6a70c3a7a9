"""torch's own arithmetic, for the probe that runs inside the target environment: what every kernel and every training stands on.

Expected values are computed in Python's double precision, of samples where all would take long: what is wrong in torch cannot
be wrong in them. Imports torch and the references only; Python 3.8.
"""

from __future__ import annotations

import itertools
import math
import operator
from bisect import bisect_left
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import torch
from torch import Tensor

from splatfix.certify.kernel_references import BLANK, finite

EXACT = 0.0
SINGLE = 1e-5
"""Relative to the largest expected value; measured: 7e-7 at most, but for the norm of a million numbers."""
DOUBLE = 1e-13
TF32 = 1.2e-3
"""Where torch allows it, as it does for convolutions on a GPU: rounded like it on a CPU 4e-4; as bfloat16, 2e-3 to 3e-3."""
SAMPLES = 200


class Measured(NamedTuple):
    """One operation: its name, at which size, how far off, how far it may be."""

    operation: str
    size: str
    error: float
    allowed: float


def check_arithmetic(module: Any, device: str, plain: bool) -> Dict[str, Any]:
    """Every operation at small, odd and real sizes; the result names those that are off."""
    if changed := _changed_defaults():
        return dict(BLANK, outcome="failed", detail=f"{changed}: something sets that when Python starts")
    rows = [
        row
        for check in (_products, _convolutions, _reductions, _functions, _orders, _sums, _chances)
        for row in check(device)
    ]
    wrong = [row for row in rows if not row.error <= row.allowed]
    worst = max(wrong or [row for row in rows if row.allowed == SINGLE], key=lambda row: row.error)
    sentences = []
    for operation in dict.fromkeys(row.operation for row in wrong):
        one = max((row for row in wrong if row.operation == operation), key=lambda row: row.error)
        sentences.append(
            f"torch's {operation} is off by {one.error:.2g}, allowed {one.allowed:.2g} ({one.size})"
        )
    return dict(
        BLANK,
        outcome="failed" if wrong else "met",
        value_error=finite(worst.error),
        value_allowed=worst.allowed,
        detail="; ".join(sentences),
    )


def _changed_defaults() -> str:
    """What every trainer takes for granted, and is otherwise here; "" where nothing is."""
    made = torch.empty(0)
    if made.dtype is not torch.float32:
        return f"torch makes tensors of {_short(made.dtype)}, not of float32"
    if made.device.type != "cpu":
        return f"torch makes tensors on {made.device}, not on the CPU"
    return "" if torch.is_grad_enabled() else "torch records no gradients"


def _random(seed: int, *shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype) * 2 - 1


def _off(actual: Sequence[float], expected: Sequence[float]) -> float:
    """The largest difference, relative to the largest expected value; infinite for what is no number."""
    largest = max(map(abs, expected)) or 1.0
    return max(
        abs(one - other) / largest if math.isfinite(one) else math.inf for one, other in zip(actual, expected)
    )


_FORMS: Dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "@": lambda a, b: a @ b,
    "mm": lambda a, b: torch.mm(a, b),  # as torch has it when it is called
    "linear": lambda a, b: torch.nn.functional.linear(a, b.t()),
    "bmm": lambda a, b: torch.bmm(a[None], b[None])[0],
    "einsum": lambda a, b: torch.einsum("ik,kj->ij", a, b),
}


def _products(device: str) -> Iterator[Measured]:
    tf32 = device != "cpu" and torch.backends.cuda.matmul.allow_tf32
    for rows, inner, columns, dtype in (
        (7, 5, 3, torch.float32),
        (65, 64, 33, torch.float64),
        (1000, 257, 513, torch.float32),
        (100_003, 16, 3, torch.float32),
    ):
        one, other = _random(1, rows, inner, dtype=dtype), _random(2, inner, columns, dtype=dtype)
        at = [(97 * number % rows, 31 * number % columns) for number in range(SAMPLES)]
        left = {i: one[i].tolist() for i, _ in at}
        right = {j: other[:, j].tolist() for _, j in at}
        expected = [math.fsum(map(operator.mul, left[i], right[j])) for i, j in at]
        a, b = one.to(device), other.to(device).requires_grad_(True)
        size, allowed = f"{rows} x {inner} x {columns}, {_short(dtype)}", TF32 if tf32 else SINGLE
        if dtype is torch.float64:
            allowed = DOUBLE
        for name, form in _FORMS.items():
            product = form(a, b)
            yield Measured("matrix product", f"{name}, {size}", _off(_picked(product, at), expected), allowed)
        weight = torch.zeros(rows, columns, dtype=dtype)
        weight[[i for i, _ in at], [j for _, j in at]] = 1.0
        torch.autograd.backward((product * weight.to(device)).sum())
        picked = sorted({j for _, j in at})[:3]
        chosen = {j: {i for i, k in at if k == j} for j in picked}
        sums = [math.fsum(left[i][k] for i in chosen[j]) for j in picked for k in range(inner)]
        assert b.grad is not None
        slopes = [value for j in picked for value in b.grad[:, j].tolist()]
        yield Measured("gradient of a matrix product", size, _off(slopes, sums), allowed)


def _convolutions(device: str) -> Iterator[Measured]:
    """As SSIM blurs: every channel by itself, with a window of 11 x 11, and zeros outside of the image."""
    tf32 = device != "cpu" and torch.backends.cudnn.allow_tf32
    for height, width in ((45, 61), (120, 160), (540, 960)):
        image, window = _random(3, 1, 3, height, width), _random(4, 3, 1, 11, 11)
        given = image.to(device).requires_grad_(True)
        blurred = torch.nn.functional.conv2d(given, window.to(device), padding=5, groups=3)
        at = [(number % 3, 89 * number % height, 53 * number % width) for number in range(SAMPLES)]
        framed = torch.nn.functional.pad(image, (5, 5, 5, 5))[0]
        expected = []
        for channel, row, column in at:
            patch = framed[channel, row : row + 11, column : column + 11].flatten().tolist()
            expected.append(math.fsum(map(operator.mul, patch, window[channel].flatten().tolist())))
        size, allowed = f"{height} x {width}, float32", TF32 if tf32 else 10 * SINGLE
        yield Measured("convolution", size, _off(_picked(blurred[0], at), expected), allowed)
        # of one pixel apart from all others, the gradient is the window turned around it
        row, column = height // 2, width // 2
        torch.autograd.backward(blurred[0, 1, row, column])
        assert given.grad is not None
        slopes = given.grad[0, 1, row - 5 : row + 6, column - 5 : column + 6].flatten().tolist()
        yield Measured("gradient of a convolution", size, _off(slopes, window[1].flatten().tolist()), allowed)


def _reductions(device: str) -> Iterator[Measured]:
    for count in (1025, 1_000_003):
        values = _random(5, count) + 1.5  # all above zero: their sum is as large as it can be
        numbers = values.tolist()
        total = math.fsum(numbers)
        given = values.to(device)
        squares = math.fsum(map(operator.mul, numbers, numbers))
        pairs = {
            "sum": (given.sum(), total),
            "mean": (given.mean(), total / count),
            "norm": (given.norm(), math.sqrt(squares)),
            "sum by rows": (
                given[: count // 5 * 5].reshape(-1, 5).sum(0).sum(),
                math.fsum(numbers[: count // 5 * 5]),
            ),
            "maximum": (given.max(), max(numbers)),
        }
        for name, (actual, expected) in pairs.items():
            allowed = 10 * SINGLE if name == "norm" else SINGLE
            yield Measured(name, f"{count} numbers", _off([actual.item()], [expected]), allowed)
        running = list(itertools.accumulate(numbers))
        some = slice(None, None, max(1, count // SAMPLES))
        cumulated = given.cumsum(0)[some].tolist()
        yield Measured("cumulative sum", f"{count} numbers", _off(cumulated, running[some]), 10 * SINGLE)


def _functions(device: str) -> Iterator[Measured]:
    values = _random(6, 4099) + 1.25
    numbers, given = values.tolist(), values.to(device)
    functions: Dict[str, Tuple[Callable[[Tensor], Tensor], Callable[[float], float]]] = {
        "exponential": (torch.exp, math.exp),
        "logarithm": (torch.log, math.log),
        "square root": (torch.sqrt, math.sqrt),
        "sigmoid": (torch.sigmoid, lambda x: 1.0 / (1.0 + math.exp(-x))),
        "reciprocal": (lambda x: 1.0 / x, lambda x: 1.0 / x),
        "square": (lambda x: x**2, lambda x: x * x),
        "hyperbolic tangent": (torch.tanh, math.tanh),
    }
    for name, (function, exact) in functions.items():
        yield Measured(
            name, "4099 numbers", _off(function(given).tolist(), list(map(exact, numbers))), SINGLE
        )


def _orders(device: str) -> Iterator[Measured]:
    """Sorting of floats and of keys with duplicates, as tiles are; searching; choosing by a mask. All are exact."""
    for count in (1025, 100_003):
        values = _random(7, count)
        numbers, given = values.tolist(), values.to(device)
        keys = (values * 500).long()
        ordered, places = torch.sort(given)
        right = ordered.tolist() == sorted(numbers) and given[places].tolist() == ordered.tolist()
        stable = torch.sort(keys.to(device), stable=True)[1].tolist()
        listed = keys.tolist()
        right = right and stable == sorted(range(count), key=listed.__getitem__)
        yield Measured("sort", f"{count} numbers", float(not right), EXACT)
        sorted_numbers = sorted(numbers)
        some = numbers[:: count // SAMPLES]
        searched = torch.searchsorted(ordered, torch.tensor(some, device=device)).tolist()
        right = searched == [bisect_left(sorted_numbers, one) for one in some]
        right = right and given[given > 0.5].tolist() == [one for one in numbers if one > 0.5]
        right = right and torch.topk(given, 3).values.tolist() == sorted_numbers[:-4:-1]
        yield Measured("search", f"{count} numbers", float(not right), EXACT)
    strange = torch.tensor([1.0, math.inf, -math.inf, math.nan], device=device)
    right = torch.isfinite(strange).tolist() == [True, False, False, False]
    yield Measured("isfinite", "infinities and NaN", float(not right), EXACT)


def _sums(device: str) -> Iterator[Measured]:
    """Sums into rows by index, which a GPU adds by atomics, and the gradient of a choice of rows."""
    for count, rows in ((1025, 7), (200_003, 1009)):
        values, index = _random(8, count) + 1.5, (_random(9, count).abs() * rows).long().clamp(max=rows - 1)
        expected = [0.0] * rows
        for row, number in zip(index.tolist(), values.tolist()):
            expected[row] += number
        given, places = values.to(device), index.to(device)
        zeros = torch.zeros(rows, device=device)
        chosen = torch.zeros(rows, device=device, requires_grad=True)
        torch.autograd.backward((chosen[places] * given).sum())
        assert chosen.grad is not None
        for name, actual in (
            ("index_add", zeros.index_add(0, places, given)),
            ("scatter_add", zeros.scatter_add(0, places, given)),
            ("index_put with sums", zeros.index_put((places,), given, accumulate=True)),
            ("gradient of a choice of rows", chosen.grad),
        ):
            # single sums in any order: their errors add up
            yield Measured(name, f"{count} numbers into {rows}", _off(actual.tolist(), expected), 10 * SINGLE)


def _chances(device: str) -> Iterator[Measured]:
    """Random numbers, which place the halves of a split and order the views, drawn on the CPU whatever the device: their moments
    within five standard errors, orders that hold everything, choices by their weights."""
    count, dice = 100_003, torch.Generator().manual_seed(10)
    five = 5.0 / math.sqrt(count)
    for name, drawn, mean, deviation in (
        ("uniform distribution", torch.rand(count, generator=dice), 0.5, math.sqrt(1 / 12)),
        ("normal distribution", torch.randn(count // 3 + 1, 3, generator=dice), 0.0, 1.0),
    ):
        numbers = drawn.flatten().tolist()
        actual = math.fsum(numbers) / len(numbers)
        spread = math.sqrt(math.fsum((one - actual) ** 2 for one in numbers) / len(numbers))
        error = max(abs(actual - mean), abs(spread - deviation)) / deviation
        yield Measured(name, f"{count} numbers", error, five)
    for number in (21, 1009):
        right = sorted(torch.randperm(number, generator=dice).tolist()) == list(range(number))
        yield Measured("permutation", f"of {number}", float(not right), EXACT)
    picks = torch.multinomial(torch.tensor([1.0, 2.0, 0.0, 5.0]), count, replacement=True, generator=dice)
    chosen = picks.tolist()
    shares = [chosen.count(one) / count for one in range(4)]
    yield Measured("choice by weights", f"{count} of 4", _off(shares, [0.125, 0.25, 0.0, 0.625]), five)


def _picked(tensor: Tensor, places: List[Any]) -> List[float]:
    """Numbers at places, read from the device together."""
    index = [torch.tensor(column, device=tensor.device) for column in zip(*places)]
    picked: List[float] = tensor.detach()[tuple(index)].tolist()
    return picked


def _short(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]
