"""``python tests/gpu_check``: started as a folder, so that no other package named ``tests`` can come in between."""

import sys

if sys.version_info < (3, 10):  # noqa: UP036 - any Python may be called python3; this file parses in all of them
    sys.stderr.write("Nothing was run: Python 3.10 or newer is needed; " + sys.executable + " is ")
    sys.stderr.write(sys.version.split()[0] + "\n")
    sys.exit(3)

from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]

from gpu_check.command import main  # noqa: E402

sys.exit(main())
