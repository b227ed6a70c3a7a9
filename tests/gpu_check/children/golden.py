"""Makes the golden arrays with the installed extension and compares ours on the CPU with them: golden.py FILE."""

import json
import sys
from pathlib import Path

from kernels import rasterizer_golden

from splatfix.kernels import rasterizer


class Twelve(rasterizer.GaussianRasterizationSettings):
    """The fields of the first generation."""

    _fields = rasterizer.GaussianRasterizationSettings._fields[:12]


class Ours:
    """Our rasterizer as the arrays' maker calls it."""

    GaussianRasterizationSettings = Twelve
    GaussianRasterizer = rasterizer.GaussianRasterizer


def main() -> int:
    path = Path(sys.argv[1])
    code = rasterizer_golden.main()
    if code:
        return code
    print(json.dumps(rasterizer_golden.check(Ours, path)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
