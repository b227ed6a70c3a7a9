"""torch's own arithmetic, for the probe that runs inside the target environment: what every kernel and every training stands on.

Expected values are computed in Python's double precision, of samples where all would take long: what is wrong in torch cannot
be wrong in them. Imports torch and the references only; Python 3.8.
"""

from __future__ import annotations

import itertools
import math
import operator
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Tuple

import torch
from torch import Tensor

from splatfix.certify.kernel_references import measured

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


def check_arithmetic(device: str) -> Dict[str, Any]:
    """Check every operation at small, odd and real sizes; the result names those that are off."""
    # what every trainer takes for granted
    made, changed = torch.empty(0), ""
    if made.dtype is not torch.float32:
        changed = f"torch makes tensors of {_short(made.dtype)}, not of float32"
    elif made.device.type != "cpu":
        changed = f"torch makes tensors on {made.device}, not on the CPU"
    elif not torch.is_grad_enabled():
        changed = "torch records no gradients"
    if changed:
        return {"outcome": "failed", "detail": f"{changed}: something sets that when Python starts"}
    rows: List[Measured] = []
    for check in (_products, _convolutions, _of_numbers, _orders, _sums, _chances):
        rows += check(device)
    rows.sort(key=lambda row: row.error)
    wrong = {row.operation: row for row in rows if row.error > row.allowed}  # each at its worst
    if not wrong:
        worst = [row for row in rows if row.allowed == SINGLE][-1]
        return measured(worst.error, worst.allowed)
    sentences = []
    for row in wrong.values():
        figures = f"{row.error:.2g}, allowed {row.allowed:.2g} ({row.size})"
        sentences.append(f"torch's {row.operation} is off by {figures}")
    worst = max(wrong.values(), key=lambda row: row.error)
    return measured(worst.error, worst.allowed, detail="; ".join(sentences))


def _held(operation: str, size: str, actual: List[Any], expected: Iterable[Any], allowed: float) -> Measured:
    """Return the largest difference, relative to the largest expected value; infinite for what is no number. Of what must be
    exact, 1 for anything else."""
    expected = list(expected)
    if allowed == EXACT:
        return Measured(operation, size, float(actual != expected), EXACT)
    largest = max(map(abs, expected)) or 1.0
    error = math.inf
    if all(map(math.isfinite, actual)):
        error = max(map(abs, map(operator.sub, actual, expected))) / largest
    return Measured(operation, size, error, allowed)


_FORMS: Dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "@": lambda a, b: a @ b,
    "mm": lambda a, b: torch.mm(a, b),  # as torch has it when it is called
    "linear": lambda a, b: torch.nn.functional.linear(a, b.t()),
    "bmm": lambda a, b: torch.bmm(a[None], b[None])[0],
    "einsum": lambda a, b: torch.einsum("ik,kj->ij", a, b),
}


def _products(device: str) -> Iterator[Measured]:
    """Products of matrices in each form of torch, and the gradient of one factor."""
    single = TF32 if device != "cpu" and torch.backends.cuda.matmul.allow_tf32 else SINGLE
    for rows, inner, columns, dtype in (
        (7, 5, 3, torch.float32),
        (65, 64, 33, torch.float64),
        (1000, 257, 513, torch.float32),
        (100_003, 16, 3, torch.float32),
    ):
        one, other = _random(1, rows, inner, dtype=dtype), _random(2, inner, columns, dtype=dtype)
        at = [(97 * number % rows, 31 * number % columns) for number in range(SAMPLES)]
        expected = [math.fsum(map(operator.mul, one[i].tolist(), other[:, j].tolist())) for i, j in at]
        a, b = one.to(device), other.to(device).requires_grad_(True)
        size, allowed = f"{rows} x {inner} x {columns}, {_short(dtype)}", single
        if dtype is torch.float64:
            allowed = DOUBLE
        for name, form in _FORMS.items():
            product = form(a, b)
            yield _held("matrix product", f"{name}, {size}", _picked(product, at), expected, allowed)
        weight = torch.zeros(rows, columns, dtype=dtype)
        weight[[i for i, _ in at], [j for _, j in at]] = 1.0
        torch.autograd.backward((product * weight.to(device)).sum())
        assert b.grad is not None
        slopes: List[float] = []
        sums: List[float] = []
        for column in sorted({j for _, j in at})[:3]:
            slopes += b.grad[:, column].tolist()
            sums += map(math.fsum, zip(*one[sorted({i for i, j in at if j == column})].tolist()))
        yield _held("gradient of a matrix product", size, slopes, sums, allowed)


def _convolutions(device: str) -> Iterator[Measured]:
    """As SSIM blurs: every channel by itself, with a window of 11 x 11, and zeros outside of the image."""
    allowed = TF32 if device != "cpu" and torch.backends.cudnn.allow_tf32 else 10 * SINGLE
    for height, width in ((45, 61), (120, 160), (540, 960)):
        image, window = _random(3, 1, 3, height, width), _random(4, 3, 1, 11, 11)
        windows = window.flatten(1).tolist()
        given = image.to(device).requires_grad_(True)
        blurred = torch.nn.functional.conv2d(given, window.to(device), padding=5, groups=3)
        at = [(number % 3, 89 * number % height, 53 * number % width) for number in range(SAMPLES)]
        framed = torch.nn.functional.pad(image, (5, 5, 5, 5))[0]
        expected = []
        for channel, row, column in at:
            patch = framed[channel, row : row + 11, column : column + 11].flatten().tolist()
            expected.append(math.fsum(map(operator.mul, patch, windows[channel])))
        yield _held("convolution", f"{height} x {width}, float32", _picked(blurred[0], at), expected, allowed)
        # of one pixel apart from all others, the gradient is the window turned around it
        row, column = height // 2, width // 2
        torch.autograd.backward(blurred[0, 1, row, column])
        assert given.grad is not None
        slopes = given.grad[0, 1, row - 5 : row + 6, column - 5 : column + 6].flatten().tolist()
        yield _held("gradient of a convolution", f"{height} x {width}, float32", slopes, windows[1], allowed)


_OF_NUMBERS: Dict[str, Tuple[Callable[[Tensor], Tensor], Callable[[List[float]], Iterable[float]], float]] = {
    "sum": (lambda x: x.sum(), lambda x: [math.fsum(x)], SINGLE),
    "mean": (lambda x: x.mean(), lambda x: [math.fsum(x) / len(x)], SINGLE),
    "norm": (lambda x: x.norm(), lambda x: [math.sqrt(math.fsum(map(operator.mul, x, x)))], 10 * SINGLE),
    "sum by rows": (lambda x: x.reshape(-1, 5).sum(0).sum(), lambda x: [math.fsum(x)], SINGLE),
    "maximum": (lambda x: x.max(), lambda x: [max(x)], SINGLE),
    "cumulative sum": (lambda x: x.cumsum(0), itertools.accumulate, 10 * SINGLE),
    # as torch has them when they are called
    "exponential": (lambda x: torch.exp(x), lambda x: map(math.exp, x), SINGLE),
    "logarithm": (lambda x: torch.log(x), lambda x: map(math.log, x), SINGLE),
    "square root": (lambda x: torch.sqrt(x), lambda x: map(math.sqrt, x), SINGLE),
    "sigmoid": (lambda x: torch.sigmoid(x), lambda x: (1.0 / (1.0 + math.exp(-one)) for one in x), SINGLE),
    "reciprocal": (lambda x: 1.0 / x, lambda x: (1.0 / one for one in x), SINGLE),
    "square": (lambda x: x**2, lambda x: map(operator.mul, x, x), SINGLE),
}
"""By torch and by Python, and what is allowed."""


def _of_numbers(device: str) -> Iterator[Measured]:
    """Functions of each of some numbers, and of all of them."""
    for count in (1025, 1_000_005):
        values = _random(5, count) + 1.5  # all above zero: their sum is as large as it can be
        some = slice(None, None, count // SAMPLES)
        for name, (function, exact, allowed) in _OF_NUMBERS.items():
            actual = function(values.to(device)).reshape(-1)[some].tolist()
            yield _held(name, f"{count} numbers", actual, list(exact(values.tolist()))[some], allowed)


def _orders(device: str) -> Iterator[Measured]:
    """Sorting of floats and of keys with duplicates, as tiles are; choosing by a mask. All are exact."""
    for count in (1025, 100_003):
        values, size = _random(7, count), f"{count} numbers"
        numbers, given = values.tolist(), values.to(device)
        ordered, places = torch.sort(given)
        right = sorted(numbers)
        yield _held("sort", size, ordered.tolist() + given[places].tolist(), right + right, EXACT)
        keys = (values * 500).long()
        stable = sorted(range(count), key=keys.tolist().__getitem__)
        yield _held("sort", size, torch.sort(keys.to(device), stable=True)[1].tolist(), stable, EXACT)
        chosen = filter(lambda one: one > 0.5, numbers)
        yield _held("choice by a mask", size, given[given > 0.5].tolist(), chosen, EXACT)
    strange = torch.tensor([1.0, math.inf, -math.inf, math.nan], device=device)
    finite = torch.isfinite(strange).tolist()
    yield _held("isfinite", "infinities and NaN", finite, [True, False, False, False], EXACT)


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
            yield _held(name, f"{count} numbers into {rows}", actual.tolist(), expected, 10 * SINGLE)


def _chances(device: str) -> Iterator[Measured]:
    """Random numbers, which place the halves of a split and order the views, drawn on the CPU whatever the device: their moments
    within five standard errors, orders that hold everything, choices by their weights."""
    count, dice = 100_003, torch.Generator().manual_seed(10)
    five, size = 5.0 / math.sqrt(count), f"{count} numbers"
    for name, drawn, mean, deviation in (
        ("uniform distribution", torch.rand(count, generator=dice), 0.5, math.sqrt(1 / 12)),
        ("normal distribution", torch.randn(count, generator=dice), 0.0, 1.0),
    ):
        numbers = [(number - mean) / deviation for number in drawn.tolist()]
        moments = [
            math.fsum(numbers) / count,
            math.sqrt(math.fsum(map(operator.mul, numbers, numbers)) / count),
        ]
        yield _held(name, size, moments, [0.0, 1.0], five)
    for number in (21, 1009):
        order = sorted(torch.randperm(number, generator=dice).tolist())
        yield _held("permutation", f"of {number}", order, range(number), EXACT)
    picks = torch.multinomial(torch.tensor([1.0, 2.0, 0.0, 5.0]), count, replacement=True, generator=dice)
    shares = [picks.tolist().count(one) / count for one in range(4)]
    yield _held("choice by weights", f"{count} of 4", shares, [0.125, 0.25, 0.0, 0.625], five)


def _random(seed: int, *shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype) * 2 - 1


def _picked(tensor: Tensor, places: List[Any]) -> List[float]:
    """Return numbers at places, read from the device together."""
    index = [torch.tensor(column, device=tensor.device) for column in zip(*places)]
    picked: List[float] = tensor.detach()[tuple(index)].tolist()
    return picked


def _short(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]
