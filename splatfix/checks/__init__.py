"""Context in, findings out: one file per family, each check a pure function in a registry."""

from splatfix.checks.catalogue import all_checks, run_checks, select
from splatfix.checks.model import Evidence, Finding, Outcome, Status
from splatfix.checks.registry import Check

__all__ = ["Check", "Evidence", "Finding", "Outcome", "Status", "all_checks", "run_checks", "select"]
