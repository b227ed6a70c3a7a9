"""Habits of trainers that cost memory and time: each is told with its line, and its mended form is not."""

import ast

import pytest

from splatfix.checks.checkout import code_shapes
from splatfix.checks.checkout.code_shapes import Code
from tests.tables import data

TRAINER: str = data(__file__)["texts"]["trainer"]
HABITS = (
    code_shapes.evaluations_with_autograd,
    code_shapes.images_kept_on_the_gpu,
    code_shapes.graphs_kept,
    code_shapes.cache_emptied_in_the_loop,
)
BAD = {
    "autograd": ("        with torch.no_grad():\n            if", "        if True:\n            if", 0, 4),
    "cuda": (".to(data_device)", ".cuda()", 1, 11),
    "to cuda": (".to(data_device)", '.to(device="cuda:0")', 1, 11),
    "list": ("losses.append(loss.item())", "losses.append(loss)", 2, 20),
    "sum": ("total += loss.detach()", "total += 0.5 * loss", 2, 21),
    "cache": ("        loss.backward()", "        loss.backward(); torch.cuda.empty_cache()", 3, 18),
}
FINE = {
    "as it is": ("", ""),
    "a decorator": ("def evaluate", "@torch.inference_mode()\ndef evaluate"),
    "called elsewhere": ("                evaluate(model, views)\n", ""),
    "numbers": ("total += loss.detach()", "total += float(loss)"),
    "a sum of this iteration": ("total += loss.detach()", "total = 0.0; total += loss; total.backward()"),
    "under a condition": (
        "        loss.backward()\n",
        "        loss.backward()\n        if iteration > 5: torch.cuda.empty_cache()\n",
    ),
}


@pytest.mark.parametrize(("good", "bad", "habit", "line"), BAD.values(), ids=BAD)
def test_a_habit_is_told_with_its_line(good: str, bad: str, habit: int, line: int) -> None:
    assert good in TRAINER
    lines = [find(Code(ast.parse(TRAINER.replace(good, bad, 1)))) for find in HABITS]
    assert lines.pop(habit) == [line] and lines == [[], [], []]


@pytest.mark.parametrize(("old", "new"), FINE.values(), ids=FINE)
def test_no_false_alarm(old: str, new: str) -> None:
    assert old in TRAINER
    assert [find(Code(ast.parse(TRAINER.replace(old, new, 1)))) for find in HABITS] == [[], [], [], []]
