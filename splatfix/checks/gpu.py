"""Checks of the GPUs: are they present, driven, visible, free, passed to the container, and sound."""

import re
from collections.abc import Iterator, Sequence

from splatfix.checks.evidence import reason, start_with_gpu, variable
from splatfix.checks.registry import Blocks, Check, checks_of
from splatfix.context import Context
from splatfix.context.visible import NAME, read_value
from splatfix.core.proof import RungName
from splatfix.core.step import Step, run, set_variable
from splatfix.core.versions import release
from splatfix.core.words import counted
from splatfix.knowledge import Arch, drivers
from splatfix.knowledge.drivers import driver_words
from splatfix.model import Evidence, Finding, Gpu

check = checks_of("gpu")

_ORDER = "CUDA_DEVICE_ORDER"
_NOT_LOADED = 9  # NVML_ERROR_DRIVER_NOT_LOADED
# Blackwell, sm_100 and newer: its driver has NVIDIA's open kernel modules only.
_NEEDS_OPEN = 100


@check("nvidia-gpu-missing", blocks=Blocks.CARD)
def nvidia_gpu_missing(context: Context, this: Check) -> Iterator[Finding]:
    gpus = context.machine.gpus
    if gpus.value is None:
        not_passed = context.machine.wsl and context.machine.cuda.absent
        yield this.unknown("none-in-wsl" if not_passed else "", evidence=reason(gpus.error))
        return
    cards, unused = context.nvidia_gpus, context.unused_cards
    if unused:
        reasons = " and ".join(dict.fromkeys(context.left_aside[gpu.index] for gpu in unused))
        count = counted(len(unused), "NVIDIA card")
        yield this.skip(
            "left-aside", subject="PCI bus", evidence=_on_bus(unused), count=count, reasons=reasons
        )
    elif not cards:
        yield _no_card(context, this)
    for gpu in cards:
        if gpu.nvml_error is None:
            yield _present(context, this, gpu)
            continue
        # with another card that answers, programs still run
        report = this.fail if context.all_lost else this.warn
        yield report("lost", subject=f"GPU {gpu.index}", evidence=_gpu_evidence(context, gpu), gpu=gpu)


def _on_bus(cards: Sequence[Gpu]) -> Evidence:
    """Show cards that no driver tells of, as the kernel lists them."""
    listed = "; ".join(f"{gpu.bus_id} {gpu.name}" for gpu in cards)
    return Evidence("PCI bus", listed, "/sys/bus/pci/devices")


def _no_card(context: Context, this: Check) -> Finding:
    """Report no NVIDIA GPU: what another vendor's is good for, and how binaries are judged all the same."""
    hint = "give --target sm_120 to judge for a GPU elsewhere"
    if context.goal.targets:
        hint = "binaries are judged for --target"
    instead, others = "", ", ".join(gpu.name for gpu in context.machine.gpus.value or ())
    if others:
        instead = f", but {others}: CUDA extensions cannot run on it"
    # wgpu also lists renderers in software, which are no help
    adapters = [item for item in context.machine.adapters.value or () if item.kind != "cpu"]
    brush = ""
    if adapters:
        names = ", ".join(f"{item.name} ({item.backend})" for item in adapters)
        brush = f" A wgpu trainer such as brush would use {names}."
    evidence = Evidence("GPUs", others or "none", context.machine.gpus.found_via)
    return this.skip(evidence=evidence, instead=instead, hint=hint, brush=brush)


def _present(context: Context, this: Check, gpu: Gpu) -> Finding:
    parts = [gpu.name, f"compute capability {gpu.cc or 'not known'}"]
    if gpu.memory_total:
        parts.append(f"{gpu.memory_total / 2**30:.1f} GiB")
    aside = ""
    if gpu.index in context.left_aside:
        aside = f"; {context.left_aside[gpu.index]}"
    report, case = this.ok if gpu.cc else this.unknown, "present"
    instances = ", ".join(item.removeprefix(f"{gpu.name} ") for item in gpu.mig_devices)
    # in MIG mode the card itself runs nothing, its instances do: whether there is one, nvidia-smi may know
    if gpu.mig and not gpu.mig_devices:
        report, case = this.unknown, "no-mig-instance"
    elif gpu.mig:
        case = "mig"
        if len(gpu.mig_devices) > 1:
            instances = f"one of {instances}"
    return report(
        case,
        subject=f"GPU {gpu.index}",
        evidence=_gpu_evidence(context, gpu),
        gpu=gpu,
        parts=", ".join(parts),
        instances=instances,
        aside=aside,
    )


def _gpu_evidence(context: Context, gpu: Gpu) -> Evidence:
    parts = [gpu.name, f"cc {gpu.cc or 'unknown'}"]
    if gpu.memory_total:
        parts.append(f"{gpu.memory_total} bytes")
    if gpu.bus_id:
        parts.append(gpu.bus_id)
    parts += gpu.mig_devices
    return Evidence(f"GPU {gpu.index}", ", ".join(parts), context.machine.gpus.found_via)


@check("gpu-without-driver", blocks=Blocks.KERNEL_DRIVER, bears_on=RungName.RESOLVED)
def gpu_without_driver(context: Context, this: Check) -> Iterator[Finding]:
    driver, cards = context.machine.driver, context.unused_cards
    if not driver.known:
        cards = (*context.nvidia_gpus, *cards)
    elif context.nvidia_gpus:
        return  # one is used; nvidia-gpu-missing names the others
    if not cards:
        return
    if not driver.known and not driver.absent:
        yield this.unknown(evidence=reason(driver.error))
        return
    by_host = driver.known or any(gpu.kernel_driver == "nvidia" for gpu in cards)
    if context.machine.container is not None and by_host:
        return  # the container's host has a driver
    nvml_is_silent = driver.value is None or driver.value.nvml_error in (None, _NOT_LOADED)
    by_kernel_driver: dict[str, list[Gpu]] = {}
    for gpu in cards:
        by_kernel_driver.setdefault(gpu.kernel_driver or "", []).append(gpu)
    for bound, bound_cards in by_kernel_driver.items():
        # where NVML itself failed, another check says why
        if nvml_is_silent or bound not in ("", "nvidia"):
            yield _undriven(context, this, bound, bound_cards)


def _undriven(context: Context, this: Check, bound: str, cards: Sequence[Gpu]) -> Finding:
    """Report cards that one kernel driver, or none, is bound to. Source: NVIDIA/open-gpu-kernel-modules#862 and #872."""
    driver, names = context.machine.driver, ", ".join(gpu.name for gpu in cards)
    archs = Arch.known_among(gpu.cc or "" for gpu in cards)
    floor = max(filter(None, map(drivers.gpu_driver_floor, archs)), default=(0,))
    version = "none"
    if driver.value:
        version = driver.value.version or "(version not known)"
    if bound.startswith("vfio"):
        case = "virtual-machine" if driver.value else "virtual-machine-without-driver"
    elif bound == "nouveau":
        # the packages of NVIDIA's driver blacklist nouveau, so that nothing has to be done about it by hand
        case = "nouveau-beside" if driver.value else "nouveau"
    elif driver.value is None:
        case = "bound" if bound else "not-loaded"
    elif driver.value.version and release(driver.value.version) < floor:
        case = "too-old"
    elif driver.value.open_module is False and any(arch.number >= _NEEDS_OPEN for arch in archs):
        case = "closed-module"
    else:
        case = "not-driven"
    return this.fail(
        case,
        subject=f"bound to {bound}" if bound else "",
        evidence=(
            Evidence("GPUs", names, context.machine.gpus.found_via),
            Evidence("bound to", bound or "nothing", "/sys/bus/pci/devices/*/driver"),
            Evidence("driver", version, driver.error or driver.found_via),
        ),
        names=names,
        bound=bound,
        it="them" if len(cards) > 1 else "it",
        version=version,
        # a container uses the kernel module of its host
        on_host=" on the host" if context.machine.container else "",
        take_back=_take_back(cards),
        ids=", ".join(sorted({gpu.pci_id or "its id" for gpu in cards})),
        floor=driver_words(floor),
    )


_BUS = "[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}[.][0-7]"


def _take_back(cards: Sequence[Gpu]) -> list[Step]:
    """Take cards from vfio. Source: the kernel's Documentation/ABI/testing/sysfs-bus-pci, driver_override and drivers_probe."""
    steps = []
    for gpu in cards:
        # the address goes into a root shell's command: nothing but an address may stand there
        if re.fullmatch(_BUS, gpu.bus_id or ""):
            device = f"/sys/bus/pci/devices/{gpu.bus_id}"
            release_it = f"echo > {device}/driver_override; echo {gpu.bus_id} > {device}/driver/unbind"
            script = f"{release_it}; echo {gpu.bus_id} > /sys/bus/pci/drivers_probe"
            steps.append(run("sudo", "sh", "-c", script))
    return steps


@check("gpu-not-free", blocks=Blocks.COMPUTE_MODE)
def gpu_not_free(context: Context, this: Check) -> Iterator[Finding]:
    for gpu in context.visible_gpus:
        card = f"GPU {gpu.index}"
        mode = Evidence(card, f"compute mode {gpu.compute_mode}", "NVML")
        if gpu.compute_mode == "prohibited":
            yield this.fail(subject=card, evidence=mode, gpu=gpu)
        elif gpu.compute_processes:
            programs = Evidence("programs on it", str(gpu.compute_processes), "NVML")
            yield this.warn(subject=card, evidence=(mode, programs), gpu=gpu)


@check("gpu-not-passed-to-container", blocks=Blocks.PASSTHROUGH)
def gpu_not_passed_to_container(context: Context, this: Check) -> Iterator[Finding]:
    machine = context.machine
    if machine.container is None or context.nvidia_gpus or not machine.driver.absent:
        return
    requested = context.variables.get("NVIDIA_VISIBLE_DEVICES")
    cards_of_host = [gpu for gpu in context.unused_cards if gpu.kernel_driver == "nvidia"]
    evidence = [
        variable(context, "NVIDIA_VISIBLE_DEVICES"),
        Evidence("GPUs", "none", machine.gpus.found_via or machine.gpus.error),
    ]
    if cards_of_host:
        evidence.append(_on_bus(cards_of_host))
    if machine.device_files.value == ():
        evidence.append(Evidence("/dev/nvidia*", "none", machine.device_files.found_via))
    confinement = machine.confinement.value
    if machine.wsl and confinement is not None and not confinement.wsl_device:
        evidence.append(Evidence("/dev/dxg", "not here", "WSL2's way to the GPU"))
    container = f"{machine.container} container"
    if machine.wsl:
        container += " in WSL2"
    if requested in ("", "void", "none"):
        report, case = this.skip, "hidden"
    elif cards_of_host and not context.goal.targets:
        report, case = this.fail, ""
    elif requested is not None:
        report, case = this.warn, ""
    # what is built for a GPU elsewhere needs none here
    elif context.torch_cuda is not None and not context.goal.targets:
        report, case = this.skip, ""
    else:
        return
    yield report(
        case,
        evidence=evidence,
        requested=requested,
        container=container,
        cards=counted(len(cards_of_host), "NVIDIA card"),
        start=start_with_gpu(context),
    )


@check("docker-gpu-runtime-missing")
def docker_gpu_runtime_missing(context: Context, this: Check) -> Iterator[Finding]:
    toolkit = context.machine.container_toolkit
    if toolkit.value is None or not context.nvidia_gpus or context.machine.container is not None:
        return
    report = this.skip
    if toolkit.value:
        report = this.ok
    parts = ", ".join(toolkit.value) or "no part of it"
    yield report(evidence=Evidence("container toolkit", parts, toolkit.found_via))


@check("no-gpu-visible", blocks=Blocks.VISIBILITY, bears_on=RungName.RESOLVED)
def no_gpu_visible(context: Context, this: Check) -> Iterator[Finding]:
    value, reading, gpus = context.variables.get(NAME), context.visible_value, context.nvidia_gpus
    if value is None or reading is None or not gpus:
        return
    visible, hidden = context.visible_gpus, sorted(context.hidden_gpus)
    evidence = [variable(context, NAME), Evidence("GPUs", str(len(gpus)), context.machine.gpus.found_via)]
    # only what CUDA lists without the variable shows that it is the variable that hides the rest
    unfiltered = context.machine.cuda_unfiltered
    if unfiltered.value:
        count = counted(len(unfiltered.value), "GPU")
        evidence.append(Evidence(f"cuInit without {NAME}", count, unfiltered.found_via))
    if unfiltered.error:
        evidence.append(Evidence(f"cuInit without {NAME}", unfiltered.error, "child process"))
    lost, correction = reading.lost, set_variable(NAME, reading.valid)
    if context.hides_all:
        report, case = this.fail, ""
        if context.machine.container and re.match("[0-9]", value):
            case = "counted-in-container"
        if not (lost and reading.valid):
            # one that works, in the form that somebody chose
            form, example = value[:4], "0"
            if form in ("GPU-", "MIG-"):
                uuids = (uuid for gpu in gpus for uuid in (*gpu.mig_uuids, gpu.uuid or ""))
                example = next((uuid for uuid in uuids if uuid.startswith(form)), example)
            correction = set_variable(NAME, None, f"Show them all, or set it to one, such as {example}")
    elif visible and lost and reading.valid:
        report, case = this.warn, ""
    elif context.machine.cuda.value or reading.places:
        report, case = this.ok, "some-hidden" if hidden else ""
    else:
        return
    yield report(
        case,
        evidence=evidence,
        value=value,
        lost=lost or "CUDA does not list the GPU that it names",
        visible=len(visible),
        total=counted(len(gpus), "GPU"),
        hidden=", ".join(map(str, hidden)),
        correction=correction,
    )


@check("wrong-cuda-device")
def wrong_cuda_device(context: Context, this: Check) -> Iterator[Finding]:
    cards = context.nvidia_gpus
    if len(cards) < 2 or context.hides_all:  # no-gpu-visible tells of a variable that hides them all
        return
    value, order = context.variables.get(NAME), context.variables.get(_ORDER)
    mixed = len({gpu.name for gpu in cards}) > 1
    listed = "; ".join(f"{gpu.index}: {gpu.name}" for gpu in cards)
    evidence = (
        Evidence("GPUs", listed, context.machine.gpus.found_via),
        variable(context, NAME),
        Evidence(_ORDER, order or "not set (CUDA puts the fastest first)", "environment variable"),
    )
    by_bus_id = set_variable(_ORDER, "PCI_BUS_ID")
    numbered = value is not None and re.fullmatch(r"[\d,\s]+", value) and value.strip()
    if value is not None and numbered and mixed and order != "PCI_BUS_ID":
        by_bus = [cards[position].index for position in read_value(value, cards).places or ()]
        by_cuda = [gpu.index for gpu in context.visible_gpus]
        if context.machine.cuda.known and by_cuda == by_bus:
            return
        selection = "uses CUDA's numbering"
        if context.machine.cuda.known:
            names = ", ".join(f"{gpu.name} (GPU {gpu.index})" for gpu in context.visible_gpus)
            selection = f"selects {names}"
        yield this.warn(evidence=evidence, remedy=by_bus_id, value=value, selection=selection)
    elif value is None or "," in value:
        remedy = [set_variable(NAME, str(cards[0].index))]
        # among equal cards both ways to count name one that is as good
        if mixed:
            remedy.insert(0, by_bus_id)
        yield this.skip(evidence=evidence, remedy=remedy, gpus=counted(len(cards), "GPU"))


@check("gpu-xid")
def gpu_xid(context: Context, this: Check) -> Iterator[Finding]:
    xids = context.machine.xids
    for xid in xids.value or ():
        means = drivers.meaning_of_xid(xid.code)
        if means is not None:
            evidence = Evidence(f"Xid {xid.code}", f"{xid.count} times since the start", xids.found_via)
            yield this.warn(subject=f"{xid.bus_id} Xid {xid.code}", evidence=evidence, xid=xid, means=means)


@check("gpu-memory-errors")
def gpu_memory_errors(context: Context, this: Check) -> Iterator[Finding]:
    for gpu in context.nvidia_gpus:
        if gpu.remap_failed:
            report, state = this.fail, "row remapping failed"
        elif gpu.remap_pending or gpu.uncorrected_errors:
            report, state = this.warn, f"{gpu.uncorrected_errors or 0} errors that ECC could not correct"
        elif gpu.uncorrected_errors == 0:
            report, state = this.ok, "0"
        else:
            continue
        card = f"GPU {gpu.index}"
        yield report(subject=card, evidence=Evidence(card, state, context.machine.gpus.found_via), gpu=gpu)
