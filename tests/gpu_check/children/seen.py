"""Which GPUs there are, in order, under each form of CUDA_VISIBLE_DEVICES: seen torch|splatfix FORM...; JSON in the last line.

Each form is asked in a fork that has not touched CUDA yet, because CUDA reads the variable once; `unset` is no value.
"""

import json
import os
import sys
from collections.abc import Callable


def by_torch() -> list[str]:
    """What CUDA lists; torch's own count reads NVML instead."""
    import torch

    if not torch.cuda.is_available():
        return []
    count = getattr(
        torch._C, "_cuda_getDeviceCount", torch.cuda.device_count
    )  # a rehearsal's torch may have no CUDA
    cards = map(torch.cuda.get_device_properties, range(count()))
    return [str(getattr(card, "uuid", card.name)) for card in cards]  # torch 2.4 and newer tell the UUID


def by_splatfix() -> list[str]:
    from splatfix.context import make_context
    from splatfix.facts import gather

    gpus = make_context(gather(sys.executable)).visible_gpus
    return [(gpu.uuid or gpu.name).removeprefix("GPU-") for gpu in gpus if gpu.vendor == "nvidia"]


def in_fork(form: str, listed: Callable[[], list[str]]) -> list[str] | None:
    """What is listed under one form; None where the fork came to no answer."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        if form != "unset":
            os.environ["CUDA_VISIBLE_DEVICES"] = form
        try:
            os.write(write, json.dumps(listed()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return list(json.loads(answer)) if answer else None


def main() -> None:
    side = sys.argv[1]
    if side == "torch":
        import torch  # noqa: F401 - once, for all forks
    listed = {"torch": by_torch, "splatfix": by_splatfix}[side]
    print(json.dumps({form: in_fork(form, listed) for form in sys.argv[2:]}))


if __name__ == "__main__":
    main()
