"""Ends quietly where the reader of standard output has seen enough (`... | head`)."""

from __future__ import annotations

import os
import sys
from typing import Callable

HUNG_UP = 141  # 128 + SIGPIPE: what a shell reports of any program whose reader has gone


def unless_hung_up(command: Callable[[], int]) -> int:
    """The command's exit code; HUNG_UP where what it had to say found no reader."""
    try:
        try:
            code = command()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, not when Python ends: there its failure could not be caught
        return code
    except BrokenPipeError:
        # What is still in the buffer goes nowhere; otherwise Python would try again as it ends, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return HUNG_UP
