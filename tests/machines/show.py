"""Prints how a machine's findings read: ``python -m tests.machines.show [NAME...]``."""

from __future__ import annotations

import sys
from pathlib import Path

from splatfix.checks import Goal, run
from splatfix.facts import load

HERE = Path(__file__).parent

if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(p.parent.name for p in HERE.glob("*/machine.json")):
        print(f"== {name}")
        for finding in run(load(HERE / name), Goal()):
            print(f"  {finding.status.value:7} {finding.code:28} {finding.summary}")
