"""How many GPUs there are under each form of CUDA_VISIBLE_DEVICES: seen.py torch|splatfix FORM...; JSON in the last line.

Each form is asked in a fork that has not touched CUDA yet, because CUDA reads the variable once; `unset` is no value.
"""

import json
import os
import sys
from collections.abc import Callable


def by_torch() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def by_splatfix() -> int:
    from splatfix.context import make_context
    from splatfix.facts import gather

    return sum(gpu.vendor == "nvidia" for gpu in make_context(gather(sys.executable)).visible_gpus)


def in_fork(form: str, count: Callable[[], int]) -> int | None:
    """The count under one form; None where the fork came to no answer."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        if form != "unset":
            os.environ["CUDA_VISIBLE_DEVICES"] = form
        try:
            os.write(write, str(count()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return int(said) if said else None


def main() -> None:
    asked = sys.argv[1]
    if asked == "torch":
        import torch  # noqa: F401 - once, for all forks
    count = {"torch": by_torch, "splatfix": by_splatfix}[asked]
    print(json.dumps({form: in_fork(form, count) for form in sys.argv[2:]}))


if __name__ == "__main__":
    main()
