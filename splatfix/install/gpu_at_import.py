"""Tells an import that fails for want of a GPU from one that fails: tiny-cuda-nn asks torch for one as it is imported."""

from __future__ import annotations

import ast
import re
from pathlib import PurePath

from splatfix.core.reading import read_text
from splatfix.facts.source.reader import NotPython, parse_python

# In order: the loader, for what links -lcuda; torch/csrc/cuda/Module.cpp and torch/cuda/__init__.py; numba and cupy.
_NO_GPU = re.compile(
    r"libcuda\.so\.1: cannot open shared object file|Found no NVIDIA driver|No CUDA GPUs are available"
    r"|cudaErrorNoDevice|CUDA_ERROR_NO_DEVICE|no CUDA-capable device is detected"
)
_FRAME = re.compile(r'^  File "([^"]+)", line (\d+), in ', re.MULTILINE)
_ASKS = re.compile(r"\bcuda\.(is_available|device_count|get_device_\w+)\(")


def wants_gpu(stderr: str) -> str | None:
    """Where and how a failed import asked for a GPU, or None if its failure has another reason.

    Args:
        stderr: what the interpreter printed, with the traceback at its end.
    """
    last_line = stderr.strip().rpartition("\n")[2]
    message = _NO_GPU.search(last_line)
    if message:
        return message.group()
    frames = _FRAME.findall(stderr)
    if not frames:
        return None
    file, line = frames[-1][0], int(frames[-1][1])
    text = read_text(file)
    if not isinstance(text, str) or not _guarded(text, line):
        return None
    return f"{PurePath(file).name} line {line} raises an error where torch sees no GPU"


def _guarded(text: str, line: int) -> bool:
    """That line stands below an ``if`` that asks torch for a GPU."""
    try:
        tree = parse_python(text)
    except NotPython:
        return False
    return any(
        node.lineno <= line <= (node.end_lineno or node.lineno) and _ASKS.search(ast.unparse(node.test))
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
    )
