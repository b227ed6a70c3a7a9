"""``python -m tools.site OUT.html``: the page "Which torch for my GPU"."""

import argparse
from pathlib import Path

from tools.site import write

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.html")
    write(parser.parse_args().out)
