"""Compiles every file of our CUDA kernels for the GPU that is here, with an empty cache; a line of JSON for each.

The seconds of the first one hold the finding and loading of NVRTC.
"""

import json
import os
import tempfile
import time

import torch

from splatfix.kernels.nvrtc import NoKernels, compile_kernels, find_compiler
from tools.cuda_kernels import MODULES


def main() -> None:
    major, minor = torch.cuda.get_device_capability()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SPLATFIX_CACHE"] = folder
        for name, (file, defines) in MODULES.items():
            started = time.perf_counter()
            answer = {"module": name, "arch": f"sm_{major}{minor}"}
            try:
                compiler = find_compiler()
                made = compile_kernels(file, defines, 10 * major + minor, compiler)
            except NoKernels as error:
                answer["error"] = str(error)
            else:
                seconds = round(time.perf_counter() - started, 2)
                version = ".".join(map(str, compiler.version))
                answer |= {"nvrtc": version, "bytes": len(made.code), "seconds": seconds, "log": made.log}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
