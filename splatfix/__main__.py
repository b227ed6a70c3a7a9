"""``python -m splatfix`` is the same program as ``splatfix``."""

import os
import sys

# -m puts the current folder first on the path, and that may be a stranger's checkout
_home = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 - pathlib is not loaded yet
if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False) or sys.path[0] == _home):
    del sys.path[0]

from splatfix.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
