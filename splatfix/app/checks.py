"""``splatfix checks``: the checks that exist, and the page of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatfix.app.result import Result
from splatfix.core.errors import usage_error
from splatfix.core.step import run

if TYPE_CHECKING:
    from splatfix.checks import Check


def list_checks() -> Result:
    """Every check with its code, family and title."""
    from splatfix.checks import all_checks
    from splatfix.report.console import table

    checks = all_checks()
    cells = [(item.code, item.family, item.title) for item in checks]
    return Result(
        "checks list",
        lambda: {"checks": [_row(item) for item in checks]},
        lambda console: table(console, ("code", "family", "what it looks at"), cells),
    )


def show_check(code: str) -> Result:
    """One check's page.

    Raises:
        SplatfixError: ``unknown-check`` (exit code 2).
    """
    from splatfix.checks import all_checks
    from splatfix.report.diagnosis import show_check_page

    item = next((item for item in all_checks() if item.code == code), None)
    if item is None:
        raise usage_error("unknown-check", f"There is no check {code!r}.", run("splatfix", "checks", "list"))
    return Result(
        "checks show",
        lambda: {"check": {**_row(item), "predicts": list(item.predicts)}},
        lambda console: show_check_page(console, item.code, item.family, item.title, item.page),
    )


def _row(item: Check) -> dict[str, Any]:
    return {"code": item.code, "family": item.family, "title": item.title, "page": item.page}
