"""The device that a run asks for: there, or an error that says why not; never another one in its place."""

from __future__ import annotations

import torch

from smoke_trainer.errors import RendererUnavailable, UsageError

DEVICES = ("cpu", "cuda", "mps")


def check_device(name: str) -> torch.device:
    """A torch device that exists here, or an error that says why not."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"there is no device called {name!r}", remedy="choose cpu or cuda") from None
    if device.type not in DEVICES:
        raise UsageError(f"nothing can train on {name}", remedy="choose cpu or cuda")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise _no_device(name, "this torch finds no Metal device")
    if device.type == "cuda" and not torch.cuda.is_available():
        reason = (
            "this torch is built without CUDA" if torch.version.cuda is None else "torch finds no usable GPU"
        )
        raise _no_device(name, reason)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise _no_device(name, f"torch finds {torch.cuda.device_count()} GPU(s), counted from cuda:0")
    return device


def _no_device(name: str, reason: str) -> RendererUnavailable:
    return RendererUnavailable(
        f"--device {name} was asked for, but {reason}",
        "nothing ran on a GPU, and the CPU was not taken in its place",
        "run `splatfix diagnose`, or use --device cpu",
    )
