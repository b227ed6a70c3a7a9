"""The machines of the checks' tests."""

from tests.checks.conftest import changed, rtx_5080

__all__ = ["changed", "rtx_5080"]
