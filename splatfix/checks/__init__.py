"""Context in, findings out: each check a pure function with attributes, in the file or folder of its family."""

from splatfix.checks.catalogue import all_checks, check_named, run_checks, select
from splatfix.checks.registry import FAMILIES, Check
