from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

import splatfix
from splatfix.core.words import beginning, counted, few

_ROOT = Path(splatfix.__file__).parent


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        (0, "file", "0 files"),
        (1, "compiler", "1 compiler"),
        (1.0, "step", "1 step"),
        (2, "folder", "2 folders"),
        (3, "library", "3 libraries"),
        (4, "day", "4 days"),
    ],
)
def test_a_number_and_its_noun_agree(number: float, noun: str, said: str) -> None:
    assert counted(number, noun) == said


def test_a_long_list_is_cut() -> None:
    names = [f"file{number}.cu" for number in range(90)]
    assert few(names[:5]) == "file0.cu, file1.cu, file2.cu, file3.cu, file4.cu"
    assert few(names[:6]).endswith("file5.cu"), "one more is named, not counted"
    assert few(names) == "file0.cu, file1.cu, file2.cu, file3.cu, file4.cu and 85 more"
    assert few(names[:9], 2, "; ") == "file0.cu; file1.cu and 7 more" and few([]) == ""


def test_a_long_text_is_cut_between_words() -> None:
    assert beginning("short") == "short"
    assert beginning("word " * 700, 20) == "word word word word ... (3500 characters in all)"
    assert beginning("x" * 30, 10) == "xxxxxxxxxx ... (30 characters in all)"


@functools.cache
def _nodes() -> tuple[tuple[Path, ast.AST], ...]:
    """Every node of every file with its file: parsed once, which takes longest."""
    paths = sorted(_ROOT.rglob("*.py"))
    trees = [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in paths]
    return tuple((path, node) for path, tree in trees for node in ast.walk(tree))


def _nouns() -> set[str]:
    """Whatever is counted somewhere, in the plural."""
    return {
        counted(2, node.args[1].value).rpartition(" ")[2]
        for _, node in _nodes()
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "counted"
        and isinstance(node.args[1], ast.Constant)
        and isinstance(node.args[1].value, str)
    }


def test_no_text_says_one_files() -> None:
    counts = re.compile(rf" (?:more |other |cached |found )?(?:{'|'.join(sorted(_nouns()))})\b(?! per )")
    wrong = [
        f"{path.relative_to(_ROOT)}:{node.lineno}: {{{ast.unparse(value.value)}}}{text.value}"
        for path, node in _nodes()
        if isinstance(node, ast.JoinedStr)
        for value, text in zip(node.values, node.values[1:], strict=False)
        if isinstance(value, ast.FormattedValue)
        and not re.fullmatch(r"_?[A-Z_]+", ast.unparse(value.value))  # a limit, which is large
        and not re.search(r"^(counted|count_met)\(| or 'no'$", ast.unparse(value.value))
        and isinstance(text, ast.Constant)
        and counts.match(str(text.value))
    ]
    assert not wrong
