"""Checks of CUDA_VISIBLE_DEVICES: does it leave a GPU, and the one that is meant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from splatfix.checks.evidence import variable
from splatfix.checks.model import Evidence, Finding
from splatfix.checks.registry import Blocks, Check, check
from splatfix.context import Context
from splatfix.context.visible import NAME, read_value
from splatfix.core.proof import RungName
from splatfix.core.step import set_variable, unset_variable
from splatfix.core.words import counted
from splatfix.facts import Gpu


@check(
    "no-gpu-visible",
    family="gpu",
    title="CUDA_VISIBLE_DEVICES leaves a GPU visible",
    blocks=Blocks.VISIBILITY,
    bears_on=RungName.RESOLVED,
)
def no_gpu_visible(context: Context, this: Check) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES names the GPUs that programs may see; an empty value, -1 or an index that does not exist
    (everything from the first bad entry on is dropped) leaves none, and so does a GPU that is named twice; torch then says
    that it found no GPU. Where CUDA finds no GPU with the variable, it is asked once more without it: only what it then
    finds shows that the variable hides them. Source: `_parse_visible_devices` of torch/cuda/__init__.py."""
    value, reading, gpus = context.variables.get(NAME), context.visible_value, context.nvidia_gpus
    if value is None or reading is None or not gpus:
        return
    left, hidden = context.visible_gpus, sorted(context.hidden_gpus)
    every = context.machine.cuda_unfiltered
    without = f"cuInit without {NAME}"
    evidence = (
        variable(context, NAME),
        Evidence("GPUs", str(len(gpus)), context.machine.gpus.found_via),
        *((Evidence(without, counted(len(every.value), "GPU"), every.found_via),) if every.value else ()),
        *((Evidence(without, every.error, "child process"),) if every.error else ()),
    )
    right = set_variable(NAME, reading.meant)
    if context.hides_all:
        why = reading.lost or "CUDA does not list the GPU that it names"
        if context.machine.container and re.match("[0-9]", value):
            why += "; a container counts its own GPUs, from 0"
        yield this.fail(
            f"{NAME}={value!r} hides every GPU from all programs: {why}.",
            evidence=evidence,
            remedy=right
            if reading.lost and reading.meant
            else unset_variable(
                NAME, text=f"Show them all, or set it to one, such as {_example(value, gpus)}"
            ),
        )
    elif left and reading.lost and reading.meant:
        yield this.warn(
            f"{NAME}={value!r} leaves {len(left)} of {counted(len(gpus), 'GPU')}: {reading.lost}.",
            evidence=evidence,
            remedy=right,
        )
    elif context.machine.cuda.value or reading.places:
        apart = f"; GPU {', '.join(map(str, hidden))} is hidden and not checked" if hidden else ""
        yield this.ok(f"{len(left)} of {counted(len(gpus), 'GPU')} visible{apart}.", evidence=evidence)


def _example(value: str, gpus: tuple[Gpu, ...]) -> str:
    """A value that works, in the form that somebody chose."""
    uuids = [gpu.uuid for gpu in gpus if gpu.uuid and value.startswith("GPU-")]
    instances = [uuid for gpu in gpus for uuid in gpu.mig_uuids if value.startswith("MIG-")]
    return next(iter([*instances, *uuids]), "0")


@check("wrong-cuda-device", family="gpu", title="Extensions run on the GPU that the tensors are on")
def wrong_cuda_device(context: Context, this: Check) -> Iterator[Finding]:
    """simple-knn and the rasterizers of Inria's family launch on the current device, whatever device their tensors are on: with
    tensors on cuda:1 they end in "an illegal memory access". One visible GPU is the safe setting. Between different GPUs the
    number itself is ambiguous: nvidia-smi counts by bus, CUDA by speed, unless CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    cards = context.nvidia_gpus
    variables = context.variables
    chosen, order = variables.get("CUDA_VISIBLE_DEVICES"), variables.get("CUDA_DEVICE_ORDER")
    if len(cards) < 2:
        return
    mixed = len({gpu.name for gpu in cards}) > 1
    evidence = (
        Evidence(
            "GPUs", "; ".join(f"{gpu.index}: {gpu.name}" for gpu in cards), context.machine.gpus.found_via
        ),
        variable(context, "CUDA_VISIBLE_DEVICES"),
        Evidence(
            "CUDA_DEVICE_ORDER", order or "not set (CUDA puts the fastest first)", "environment variable"
        ),
    )
    if context.hides_all:
        return  # no-gpu-visible tells of it
    numbers = chosen if chosen is not None and re.fullmatch(r"[\d,\s]+", chosen) and chosen.strip() else None
    if mixed and numbers is not None and order != "PCI_BUS_ID":
        meant = [cards[place].index for place in read_value(numbers, cards).places or ()]
        got = [gpu.index for gpu in context.visible_gpus]
        if context.machine.cuda.known and got == meant:
            return
        takes = (
            f"selects {', '.join(f'{gpu.name} (GPU {gpu.index})' for gpu in context.visible_gpus)}"
            if context.machine.cuda.known
            else "uses CUDA's numbering"
        )
        yield this.warn(
            f"CUDA_VISIBLE_DEVICES={chosen} {takes}, but nvidia-smi numbers these GPUs by PCI bus.",
            evidence=evidence,
            remedy=set_variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        )
    elif chosen is None or "," in chosen:
        yield this.skip(
            f"{counted(len(cards), 'GPU')} found: train on cuda:0 and select the GPU with CUDA_VISIBLE_DEVICES.",
            evidence=evidence,
            remedy=(
                *((set_variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),) if mixed else ()),
                set_variable("CUDA_VISIBLE_DEVICES", str(cards[0].index)),
            ),
        )
