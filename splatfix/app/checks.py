"""``splatfix diagnose --list`` and ``--explain``: the checks that exist, and the page of one."""

from typing import Any

from splatfix.app.result import Result
from splatfix.checks import Check, all_checks, check_named
from splatfix.report.console import table
from splatfix.report.diagnosis import show_check_page


def list_checks() -> Result:
    """Every check with its code, family and title."""
    checks = all_checks()
    cells = [(check.code, check.family, check.title) for check in checks]
    return Result(
        "diagnose list",
        lambda: {"checks": [_row(check) for check in checks]},
        lambda console: table(console, ("code", "family", "what it looks at"), cells),
    )


def show_check(code: str) -> Result:
    """One check's page.

    Raises:
        SplatfixError: ``unknown-check`` (exit code 2).
    """
    check = check_named(code)
    return Result(
        "diagnose explain",
        lambda: {"check": {**_row(check), "predicts": list(check.predicts)}},
        lambda console: show_check_page(console, check.code, check.family, check.title, check.page),
    )


def _row(check: Check) -> dict[str, Any]:
    return {"code": check.code, "family": check.family, "title": check.title, "page": check.page}
