"""``python tests/gpu_check``: started as a folder, so that no other package named ``tests`` can come in between."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]

from gpu_check.cli import main  # noqa: E402

sys.exit(main())
