"""The words of the checks (``splatfix/checks/words/``): each case is named by a check, which fills its blanks."""

import ast
import sys
from functools import cache
from pathlib import Path
from string import Formatter

import pytest

from splatfix.checks import Check, all_checks
from splatfix.checks.registry import words_in
from splatfix.checks.scene import SCENE_CHECKS
from splatfix.model import Status

CHECKS = [*all_checks(), *SCENE_CHECKS.values()]


@cache
def nodes(module: str) -> list[ast.AST]:
    """Of a module with checks, and of those whose functions make findings for them."""
    modules = (module, "splatfix.checks.evidence", "splatfix.checks.scene.model")
    files = (Path(str(sys.modules[name].__file__)) for name in modules)
    return [node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8")))]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.code)
def test_a_case_is_named_and_its_blanks_are_filled(check: Check) -> None:
    module = nodes(check.function.__module__)
    calls = [
        {str(keyword.arg) for keyword in node.keywords} | {"count"}  # which `listed` adds
        for node in module
        if isinstance(node, ast.Call)
    ]
    texts = {getattr(node, "value", "") for node in module} | {status.value for status in Status}
    for case, words in check.wording.cases.items():
        assert case in texts, f"{check.code} never names {case}"
        lines = [words.summary]
        for line in (*words.remedy, *words.in_container):
            lines += [line] if isinstance(line, str) else [*line.get("argv", ()), line.get("text", "")]
        fields = {field for text in lines for _, field, _, _ in Formatter().parse(text) if field}
        blanks = {field.split(".")[0].split("[")[0] for field in fields}
        assert any(blanks <= given for given in calls), f"{check.code}.{case}: {blanks}"


def test_a_table_holds_the_checks_of_its_family_and_no_others() -> None:
    for family in {check.family for check in CHECKS}:
        own = {check.code for check in CHECKS if check.family == family}
        assert words_in(family).keys() <= own
