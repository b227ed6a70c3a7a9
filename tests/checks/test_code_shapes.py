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
BAD, FINE = data(__file__)["bad"], data(__file__)["fine"]


@pytest.mark.parametrize(("good", "bad", "habit", "line"), BAD.values(), ids=BAD)
def test_a_habit_is_told_with_its_line(good: str, bad: str, habit: int, line: int) -> None:
    assert good in TRAINER
    lines = [find(Code(ast.parse(TRAINER.replace(good, bad, 1)))) for find in HABITS]
    assert lines.pop(habit) == [line] and lines == [[], [], []]


@pytest.mark.parametrize(("old", "new"), FINE.values(), ids=FINE)
def test_no_false_alarm(old: str, new: str) -> None:
    assert old in TRAINER
    assert [find(Code(ast.parse(TRAINER.replace(old, new, 1)))) for find in HABITS] == [[], [], [], []]
