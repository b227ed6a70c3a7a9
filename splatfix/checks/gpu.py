"""Checks of the GPUs: are they present, driven, visible, and passed to the container."""

from __future__ import annotations

import re
from collections.abc import Iterator

from splatfix.checks.evidence import reason, variable
from splatfix.checks.model import Evidence, Outcome, Status, fail, ok, outcome, skip, unknown, warn
from splatfix.checks.registry import check
from splatfix.context import Context
from splatfix.context import targets as visible
from splatfix.core.step import run, set_variable, unset_variable
from splatfix.core.words import counted
from splatfix.facts import Gpu


@check("nvidia-gpu-missing", family="gpu", title="NVIDIA GPUs on this machine")
def gpu_present(context: Context) -> Iterator[Outcome]:
    """Names every NVIDIA GPU with its compute capability.

    Without one, CUDA parts can still be built and their binaries judged for a `--target`; they cannot be run, and no
    report will claim more. Not knowing (a driver that does not answer) is `unknown`, which is neither good nor bad.

    A card in MIG mode is used by its instances only: a CUDA program gets one of them, with that one's memory, not the
    card's. Source: NVIDIA Multi-Instance GPU User Guide, "CUDA Device Enumeration".
    """
    gpus = context.machine.gpus
    if gpus.value is None:
        yield unknown(
            "The GPUs of this machine could not be determined.",
            evidence=reason(gpus),
            remedy=(run("nvidia-smi"), "If that fails too, the driver is not loaded or not reachable."),
        )
        return
    cards = context.nvidia_gpus
    if unused := context.unused_cards:
        yield _not_for_programs(context, unused)
    elif not cards:
        hint = (
            "binaries are judged for --target"
            if context.goal.targets
            else "give --target sm_120 to judge for a GPU elsewhere"
        )
        others = ", ".join(gpu.name for gpu in gpus.value)
        adapters = [item for item in context.machine.adapters.value or () if item.kind != "cpu"]
        seen = ", ".join(f"{item.name} ({item.backend})" for item in adapters)
        brush = f" A wgpu trainer such as brush would use {seen}." if seen else ""
        instead = f", but {others}: CUDA extensions cannot run on it" if others else ""
        yield skip(
            f"No NVIDIA GPU on this machine{instead}; {hint}.{brush}",
            evidence=Evidence("GPUs", others or "none", gpus.found_via),
        )
    for gpu in cards:
        capability = f"compute capability {gpu.cc}" if gpu.cc else "compute capability not known"
        memory = f", {gpu.memory_total / 2**30:.1f} GiB" if gpu.memory_total else ""
        known = gpu.cc and not (gpu.mig and not gpu.mig_devices)
        yield outcome(
            Status.PASS if known else Status.UNKNOWN,
            f"GPU {gpu.index}: {gpu.name}, {capability}{memory}{_instances(gpu)}",
            subject=f"GPU {gpu.index}",
            evidence=Evidence(f"GPU {gpu.index}", _words(gpu), gpus.found_via),
            remedy=(run("nvidia-smi", "-L"),) if gpu.mig and not gpu.mig_devices else (),
        )


def _not_for_programs(context: Context, cards: tuple[Gpu, ...]) -> Outcome:
    """Cards in sight that no program here can use, apart from those that one can."""
    bound = sorted({gpu.kernel_driver for gpu in cards if gpu.kernel_driver} - {"nvidia"})
    why = (
        "not given to this container"
        if context.machine.container
        else f"bound to {' and '.join(bound)}"
        if bound
        else "not listed by the driver"
    )
    return skip(
        f"{counted(len(cards), 'NVIDIA card')} on the PCI bus left aside: {why}.",
        subject="PCI bus",
        evidence=Evidence(
            "PCI bus", "; ".join(f"{gpu.bus_id} {gpu.name}" for gpu in cards), "/sys/bus/pci/devices"
        ),
    )


@check("gpu-without-driver", family="gpu", title="Every NVIDIA GPU has a loaded driver")
def gpu_without_driver(context: Context) -> Iterator[Outcome]:
    """A GPU that the PCI bus shows but no driver drives: nothing of CUDA can run until a driver is loaded."""
    driver, cards = context.machine.driver, (*context.nvidia_gpus, *context.unused_cards)
    if not cards or driver.known:
        return
    if not driver.absent:
        yield unknown("Could not determine whether an NVIDIA driver is loaded.", evidence=reason(driver))
        return
    if context.machine.container is not None and any(gpu.kernel_driver == "nvidia" for gpu in cards):
        return  # its host has one
    names = ", ".join(gpu.name for gpu in cards)
    others = sorted({gpu.kernel_driver for gpu in cards if gpu.kernel_driver})
    instead = f" ({' and '.join(others)} is bound to it, without CUDA support)" if others else ""
    yield fail(
        f"{names} found, but no NVIDIA driver is loaded{instead}.",
        evidence=(
            Evidence("GPUs", names, context.machine.gpus.found_via),
            Evidence("driver", "none", context.machine.driver.error or context.machine.driver.found_via),
        ),
        remedy=(
            "Install the NVIDIA driver with your system's package manager, then reboot.",
            run("nvidia-smi", text="Then check that the driver answers"),
        ),
    )


@check("no-gpu-visible", family="gpu", title="CUDA_VISIBLE_DEVICES leaves a GPU visible")
def no_gpu_visible(context: Context) -> Iterator[Outcome]:
    """CUDA_VISIBLE_DEVICES names the GPUs that programs may see; an empty value, -1 or an index that does not exist
    (everything from the first bad entry on is dropped) leaves none, and so does a GPU that is named twice; torch then says
    that it found no GPU. Source: `_parse_visible_devices` of torch/cuda/__init__.py."""
    value = context.variables.get(visible.NAME)
    gpus = context.nvidia_gpus
    if value is None or not gpus:
        return
    driver = context.machine.driver.value
    refused = driver is not None and driver.cuda_error == visible.NO_DEVICE
    left, hidden = context.visible_gpus, sorted(context.hidden_gpus)
    evidence = (
        variable(context, visible.NAME),
        Evidence("GPUs", str(len(gpus)), context.machine.gpus.found_via),
    )
    if not left or refused:
        yield fail(
            f"CUDA_VISIBLE_DEVICES={value!r} hides every GPU from all programs.",
            evidence=evidence,
            remedy=unset_variable(visible.NAME),
        )
    elif context.machine.cuda.known or visible.visible_places(value, gpus) is not None:
        apart = f"; GPU {', '.join(map(str, hidden))} is hidden and not checked" if hidden else ""
        yield ok(f"{len(left)} of {counted(len(gpus), 'GPU')} visible{apart}.", evidence=evidence)


def _instances(gpu: Gpu) -> str:
    """What MIG leaves of a card for one program, in words; "" where MIG is off."""
    if not gpu.mig:
        return ""
    if not gpu.mig_devices:
        return "; MIG is on, but no instance of it is seen here: without one no CUDA program can use the card"
    names = ", ".join(item.removeprefix(f"{gpu.name} ") for item in gpu.mig_devices)
    one = "one of " if len(gpu.mig_devices) > 1 else ""
    return f"; a program gets {one}{names} of it, with its share of the memory"


def _words(gpu: Gpu) -> str:
    parts = [gpu.name, f"cc {gpu.cc or 'unknown'}"]
    if gpu.memory_total:
        parts.append(f"{gpu.memory_total} bytes")
    if gpu.bus_id:
        parts.append(gpu.bus_id)
    parts += gpu.mig_devices
    return ", ".join(parts)


_LINK = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"


@check("gpu-not-passed-to-container", family="gpu", title="The container has access to the GPU")
def gpu_not_passed_to_container(context: Context) -> Iterator[Outcome]:
    """NVIDIA's images set NVIDIA_VISIBLE_DEVICES, and the container runtime puts GPUs where it says so. A container of such an
    image that sees no GPU and no driver was started without `--gpus all`: "Found no NVIDIA driver on your system". Where the
    host's driver shows through /proc, driver-library-missing says it."""
    asked = context.variables.get("NVIDIA_VISIBLE_DEVICES")
    if (
        context.machine.container is None
        or asked is None
        or context.machine.gpus.value is None
        or context.has_nvidia_gpu
        or not context.machine.driver.absent
    ):
        return
    evidence = (
        variable(context, "NVIDIA_VISIBLE_DEVICES"),
        Evidence("GPUs", "none", context.machine.gpus.found_via),
    )
    if asked in ("", "void", "none"):
        yield skip(
            f"NVIDIA_VISIBLE_DEVICES={asked!r} hides the GPUs from this "
            f"{context.machine.container} container.",
            evidence=evidence,
        )
        return
    how = {
        "kubernetes": "Ask for the GPU in the pod's resources (nvidia.com/gpu: 1).",
        "podman": "Start the container with --device nvidia.com/gpu=all.",
        "apptainer": "Start the container with --nv.",
    }.get(
        context.machine.container,
        "Start the container with --gpus all; compose: deploy.resources.reservations.devices.",
    )
    yield warn(
        f"This {context.machine.container} container requests GPU {asked!r} but has none.",
        evidence=evidence,
        remedy=how,
        link=_LINK,
    )


@check("docker-gpu-runtime-missing", family="gpu", title="Docker can pass GPUs to containers")
def docker_gpu_runtime_missing(context: Context) -> Iterator[Outcome]:
    """docker needs NVIDIA's container toolkit for `--gpus`; without it every start ends in "could not select device driver ""
    with capabilities: [[gpu]]". A machine that uses no containers does not need it, so it is only a note."""
    toolkit = context.machine.container_toolkit
    if toolkit.value is None or not context.has_nvidia_gpu or context.machine.container is not None:
        return
    evidence = Evidence("container toolkit", ", ".join(toolkit.value) or "no part of it", toolkit.found_via)
    if toolkit.value:
        yield ok("NVIDIA Container Toolkit is installed.", evidence=evidence)
    else:
        yield skip(
            "Docker is installed without NVIDIA Container Toolkit: containers cannot use the GPU.",
            evidence=evidence,
            link=_LINK,
            remedy=(
                "Install nvidia-container-toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker, and "
                "restart docker."
            ),
        )


@check("wrong-cuda-device", family="gpu", title="Extensions run on the GPU that the tensors are on")
def wrong_cuda_device(context: Context) -> Iterator[Outcome]:
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
    numbers = chosen if chosen is not None and re.fullmatch(r"[\d,\s]+", chosen) and chosen.strip() else None
    if mixed and numbers is not None and order != "PCI_BUS_ID":
        meant = [cards[place].index for place in visible.visible_places(numbers, cards) or ()]
        got = [gpu.index for gpu in context.visible_gpus]
        if context.machine.cuda.known and got == meant:
            return
        takes = (
            f"selects {', '.join(f'{gpu.name} (GPU {gpu.index})' for gpu in context.visible_gpus)}"
            if context.machine.cuda.known
            else "uses CUDA's numbering"
        )
        yield warn(
            f"CUDA_VISIBLE_DEVICES={chosen} {takes}, but nvidia-smi numbers these GPUs by PCI bus.",
            evidence=evidence,
            remedy=set_variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        )
    elif chosen is None or "," in chosen:
        yield skip(
            f"{counted(len(cards), 'GPU')} found: train on cuda:0 and select the GPU with CUDA_VISIBLE_DEVICES.",
            evidence=evidence,
            remedy=(
                *((set_variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),) if mixed else ()),
                set_variable("CUDA_VISIBLE_DEVICES", str(cards[0].index)),
            ),
        )
