"""``python -m tests.hostile KIND [--count N] [--seed S] [--only NAME]``: run the cases of a class; prints JSON."""

import argparse
import importlib
import json
import os
import sys

from .harness import run_all

# class: (module, function that yields its cases, how many inputs by default)
KINDS = {
    "checkouts": ("checkout_cases", "cases", 240),
    "environments": ("environments", "cases", 100),
    "scenes": ("scenes", "cases", 400),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", metavar="NAME", help="the case of this name alone")
    typed = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    module, function, count = KINDS[typed.kind]
    cases = getattr(importlib.import_module(f"tests.hostile.{module}"), function)(
        typed.count or count, typed.seed
    )
    if typed.only:
        cases = (case for case in cases if case.name == typed.only)
    tried, failed = run_all(cases)
    json.dump({"tried": tried, "failed": failed}, sys.stdout, indent=1)
    return 1 if failed or not tried else 0


if __name__ == "__main__":
    sys.exit(main())
