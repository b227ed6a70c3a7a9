"""What splatfix's own kernel gave for an input, kept for the implementations that are called with the same one after it.

For the probe that runs inside the target environment, a process for each implementation: the own kernel is not run again for
each other, its results are read from a file. Imports torch only; Python 3.8.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

import torch
from torch import Tensor

from splatfix.certify.kernel_references import finite, largest_error, relative_error


class Ran(NamedTuple):
    """One call of a kernel: what it was given, and what it gave. Tensors of any device."""

    inputs: List[Any]
    """Tensors and numbers that decide on the result, as they were before they went to the device."""
    value: Tensor
    gradients: List[Optional[Tensor]]
    """Of each input that has one."""


def keep(file: Path, ran: Ran) -> None:
    """Write what the own kernel gave."""
    gradients = [None if item is None else _listed(item) for item in ran.gradients]
    document = {"inputs": _digest(ran.inputs), "value": _listed(ran.value), "gradients": gradients}
    file.write_text(json.dumps(document), encoding="utf-8")


def judge(file: Path, ran: Ran, result: Dict[str, Any]) -> Dict[str, Any]:
    """Add to a result its differences from the own kernel, where that ran and had the same input. Allowed is what is allowed from
    the float64 reference: two that err in opposite directions can lie further apart."""
    if not file.is_file():
        return result
    own = json.loads(file.read_text(encoding="utf-8"))
    if own["inputs"] != _digest(ran.inputs):
        return result  # a variant with a camera or a scene of its own
    value = relative_error(ran.value, torch.tensor(own["value"]))
    near = value <= result["value_allowed"]
    text = f"value {value:.1e}"
    gradient = None
    if result["gradient_allowed"] is not None:
        theirs = [None if item is None else torch.tensor(item) for item in own["gradients"]]
        gradient = largest_error(ran.gradients, theirs)
        near = near and gradient <= result["gradient_allowed"]
        text += f", gradient {gradient:.1e}"
    compared = dict(result, own_difference=finite(value), own_gradient_difference=finite(gradient))
    if not near and result["outcome"] == "met":
        detail = f"differs from splatfix's own kernel on the same input: {text}"
        compared.update(outcome="failed", detail=detail)
    return compared


def _listed(tensor: Tensor) -> Any:
    return tensor.detach().double().cpu().tolist()


def _digest(inputs: List[Any]) -> str:
    plain = [_listed(item) if isinstance(item, Tensor) else item for item in inputs]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()
