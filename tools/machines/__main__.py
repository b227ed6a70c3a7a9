"""Writes simulated machines as folders for ``splatfix diagnose --facts``: ``python -m tools.machines [NAME...] --out DIR``."""

import argparse
from pathlib import Path

from tools.machines import raw_machines

if __name__ == "__main__":
    machines = raw_machines()
    parser = argparse.ArgumentParser(prog="python -m tools.machines", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(machines)}")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    options = parser.parse_args()
    if unknown := set(options.names) - set(machines):
        parser.error(f"no such machine: {', '.join(sorted(unknown))}")
    for name in options.names or machines:
        machines[name].write(options.out / name)
        print(options.out / name)
