"""Every binary with GPU code in the environment against every GPU."""

from splatfix.context.context import Context
from splatfix.context.coverage import code_words
from splatfix.context.model import BinaryFit, BinaryMatrix
from splatfix.model import FatbinGroup


def binary_matrix(context: Context) -> BinaryMatrix:
    """Judge torch, the extensions, and what was compiled at first use as the checks judge it."""
    with_code: list[tuple[str, tuple[FatbinGroup, ...]]] = []
    if context.torch:
        with_code.append((f"torch {context.torch.version} (libtorch_cuda)", context.torch.code))
    for item in context.extensions:
        if item.links_torch or item.importable:
            with_code.append((item.path, item.code))
    for dropin in context.distributions:
        with_code.append((f"{dropin.name} (drop-in, compiled by NVRTC)", dropin.code))
    for cache in context.jit_caches:
        with_code.append((f"{cache.name} (compiled at first use)", cache.code))
    binaries = []
    for path, code in with_code:
        if not code:
            continue
        verdicts = tuple(context.judge(code, target.arch) for target in context.targets)
        binaries.append(BinaryFit(path, code_words(code), verdicts))
    unread = [f"{item.path}: {item.error}" for item in context.extensions if item.error]
    unread += [item.code_error for item in context.distributions if item.code_error]
    if context.torch and context.torch.code_error:
        unread.append(f"libtorch_cuda: {context.torch.code_error}")
    return BinaryMatrix(tuple(target.label for target in context.targets), tuple(binaries), tuple(unread))
