"""Writes the page: ``python -m tools.site OUT.html``."""

import sys
from pathlib import Path

from tools.site import write

if __name__ == "__main__":
    write(Path(sys.argv[1]))
