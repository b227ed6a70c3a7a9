"""Facts in, findings out: one small file per family, each check a pure function in a registry."""

from splatfix.checks.model import Evidence, Finding, Goal, Status
from splatfix.checks.registry import Check, all_checks, run_checks, select

__all__ = ["Check", "Evidence", "Finding", "Goal", "Status", "all_checks", "run_checks", "select"]
