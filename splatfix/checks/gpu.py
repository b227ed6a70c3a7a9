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
from splatfix.model import Driver, Evidence, Finding, Gpu, Status

check = checks_of("gpu")

_ORDER = "CUDA_DEVICE_ORDER"
_NOT_LOADED = 9  # NVML_ERROR_DRIVER_NOT_LOADED


# Blackwell, sm_100 and newer: its driver has NVIDIA's open kernel modules only.
_NEEDS_OPEN = 100


@check("nvidia-gpu-missing", "NVIDIA GPUs on this machine", blocks=Blocks.CARD)
def gpu_present(context: Context, this: Check) -> Iterator[Finding]:
    """Names every NVIDIA GPU with its compute capability.

    Without one, CUDA parts can still be built and their binaries judged for a `--target`; they cannot be run, and no
    report will claim more. Not knowing (a driver that does not answer) is `unknown`, which is neither good nor bad.

    A card in MIG mode is used by its instances only: a CUDA program gets one of them, with that one's memory, not the
    card's. Source: NVIDIA Multi-Instance GPU User Guide, "CUDA Device Enumeration".
    """
    gpus = context.machine.gpus
    if gpus.value is None and context.machine.wsl and context.machine.cuda.absent:
        yield this.unknown(
            "Windows passes no NVIDIA GPU to this WSL2: it has no libcuda.",
            evidence=reason(gpus.error),
            remedy=(
                "Install the NVIDIA driver in Windows (none in WSL2), then from Windows:",
                run("wsl.exe", "--update"),
                run("wsl.exe", "--shutdown"),
            ),
            link="https://docs.nvidia.com/cuda/wsl-user-guide/",
        )
        return
    if gpus.value is None:
        yield this.unknown(
            "The GPUs of this machine could not be determined.",
            evidence=reason(gpus.error),
            remedy=(run("nvidia-smi"), "If that fails too, the driver is not loaded or not reachable."),
        )
        return
    cards = context.nvidia_gpus
    unused = context.unused_cards
    if unused:
        reasons = " and ".join(dict.fromkeys(context.left_aside[gpu.index] for gpu in unused))
        yield this.skip(
            f"{counted(len(unused), 'NVIDIA card')} on the PCI bus left aside: {reasons}.",
            subject="PCI bus",
            evidence=_on_bus(unused),
        )
    elif not cards:
        yield _no_card(context, this)
    for gpu in cards:
        if gpu.nvml_error is None:
            yield _present(context, this, gpu)
            continue
        # with another card that answers, programs still run
        report = this.warn
        if context.all_lost:
            report = this.fail
        yield report(
            f"GPU {gpu.index}: {gpu.name} is lost: the driver counts it and cannot reach it (NVML error {gpu.nvml_error}).",
            subject=f"GPU {gpu.index}",
            evidence=_gpu_evidence(context, gpu),
            remedy=(
                run("sudo", "dmesg", text="Look for its last Xid, such as 79 (it fell off the bus)"),
                "Reboot; a card that is lost again has a fault in power, cooling or seat.",
            ),
        )


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
    return this.skip(
        f"No NVIDIA GPU on this machine{instead}; {hint}.{brush}",
        evidence=Evidence("GPUs", others or "none", context.machine.gpus.found_via),
    )


def _present(context: Context, this: Check, gpu: Gpu) -> Finding:
    parts = [gpu.name, "compute capability not known"]
    if gpu.cc:
        parts[1] = f"compute capability {gpu.cc}"
    if gpu.memory_total:
        parts.append(f"{gpu.memory_total / 2**30:.1f} GiB")
    summary = f"GPU {gpu.index}: {', '.join(parts)}"
    report, remedy = this.ok, list[Step]()
    if not gpu.cc:
        report = this.unknown
    # in MIG mode the card itself runs nothing, its instances do: whether there is one, nvidia-smi may know
    if gpu.mig and not gpu.mig_devices:
        report, remedy = this.unknown, [run("nvidia-smi", "-L")]
        summary += (
            "; MIG is on, but no instance of it is seen here: without one no CUDA program can use the card"
        )
    elif gpu.mig:
        names = ", ".join(item.removeprefix(f"{gpu.name} ") for item in gpu.mig_devices)
        if len(gpu.mig_devices) > 1:
            names = f"one of {names}"
        summary += f"; a program gets {names} of it, with its share of the memory"
    if gpu.index in context.left_aside:
        summary += f"; {context.left_aside[gpu.index]}"
    return report(summary, subject=f"GPU {gpu.index}", evidence=_gpu_evidence(context, gpu), remedy=remedy)


@check(
    "gpu-without-driver",
    "NVIDIA's driver drives the NVIDIA GPUs",
    blocks=Blocks.KERNEL_DRIVER,
    bears_on=RungName.RESOLVED,
)
def gpu_without_driver(context: Context, this: Check) -> Iterator[Finding]:
    """A GPU that the PCI bus shows and NVIDIA's driver does not drive: nothing of CUDA runs on it. What is bound to it instead
    (the `driver` link of the device in sysfs) says what to do: nouveau gives way to NVIDIA's driver, vfio-pci keeps the card for
    a virtual machine. A loaded driver that drives none of the cards is too old for them, or is NVIDIA's closed kernel module,
    which does not serve Blackwell. Source: NVIDIA's driver README, "Open Linux Kernel Modules"."""
    driver, cards = context.machine.driver, context.unused_cards
    if not driver.known:
        cards = (*context.nvidia_gpus, *cards)
    elif context.nvidia_gpus:
        return  # one is used; nvidia-gpu-missing names the others
    if not cards:
        return
    if not driver.known and not driver.absent:
        yield this.unknown(
            "Could not determine whether an NVIDIA driver is loaded.", evidence=reason(driver.error)
        )
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
    """Report cards that one kernel driver, or none, is bound to."""
    driver = context.machine.driver.value
    names = ", ".join(gpu.name for gpu in cards)
    it, subject, version, loaded = "it", "", "none", ""
    if len(cards) > 1:
        it = "them"
    if bound:
        subject = f"bound to {bound}"
    if driver:
        version = driver.version or "version not known"
        loaded = f"driver {driver.version or '(version not known)'}"
    if bound.startswith("vfio"):
        summary = f"{names} found, but {bound} keeps {it} for a virtual machine."
        remedy = _out_of_the_virtual_machine(context, it, cards)
    elif bound == "nouveau" and driver:
        summary = (
            f"{names} found, but nouveau is bound to {it}, which has no CUDA; {loaded} is loaded beside it."
        )
        remedy = [
            "Put 'blacklist nouveau' and 'options nouveau modeset=0' into /etc/modprobe.d/nouveau.conf, "
            "rebuild the initramfs, then reboot."
        ]
    elif driver is None:
        summary, note = f"{names} found, but no NVIDIA driver is loaded.", ""
        if bound:
            instead = f"{bound} is bound to {it}, without CUDA support"
            summary = f"{names} found, but no NVIDIA driver is loaded ({instead})."
        # the packages of NVIDIA's driver blacklist nouveau, so that nothing has to be done about it by hand
        if bound == "nouveau":
            note = " (it keeps nouveau off the card)"
        check_it = run("nvidia-smi", text="Then check that the driver answers")
        remedy = [_install_driver(context, note), check_it]
    else:
        summary = f"{names} found, but {loaded}, which is loaded, does not drive {it}."
        remedy = _newer_driver(cards, driver)
    return this.fail(
        summary,
        subject=subject,
        evidence=(
            Evidence("GPUs", names, context.machine.gpus.found_via),
            Evidence("bound to", bound or "nothing", "/sys/bus/pci/devices/*/driver"),
            Evidence("driver", version, context.machine.driver.error or context.machine.driver.found_via),
        ),
        remedy=remedy,
    )


def _install_driver(context: Context, note: str = "") -> str:
    task = "Install the NVIDIA driver"
    # a container uses the kernel module of its host
    if context.machine.container:
        task += " on the host"
    return f"{task} with your system's package manager{note}, then reboot."


def _out_of_the_virtual_machine(context: Context, it: str, cards: Sequence[Gpu]) -> list[str | Step]:
    """Take cards back. Source: the kernel's Documentation/ABI/testing/sysfs-bus-pci, driver_override and drivers_probe."""
    remedy: list[str | Step] = [
        f"Work in the virtual machine that has {it}. To give {it} back to this system:"
    ]
    for gpu in cards:
        # the address goes into a root shell's command: nothing but an address may stand there
        if re.fullmatch(_BUS, gpu.bus_id or ""):
            device = f"/sys/bus/pci/devices/{gpu.bus_id}"
            release_it = f"echo > {device}/driver_override; echo {gpu.bus_id} > {device}/driver/unbind"
            script = f"{release_it}; echo {gpu.bus_id} > /sys/bus/pci/drivers_probe"
            remedy.append(run("sudo", "sh", "-c", script))
    ids = ", ".join(sorted({(gpu.pci_id or "its id") for gpu in cards}))
    remedy.append(
        f"Reserved at boot: take {ids} out of vfio-pci.ids (kernel command line, /etc/modprobe.d), and reboot."
    )
    if context.machine.driver.value is None:
        remedy.append(_install_driver(context))
    return remedy


_BUS = "[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}[.][0-7]"


def _newer_driver(cards: Sequence[Gpu], driver: Driver) -> list[str | Step]:
    """Say what a loaded driver lacks for cards that it does not drive. Source: NVIDIA/open-gpu-kernel-modules#862 and #872."""
    archs = Arch.known_among(gpu.cc or "" for gpu in cards)
    floors = [floor for floor in map(drivers.gpu_driver_floor, archs) if floor]
    log = run("sudo", "dmesg", text="The driver's own reason, in lines with NVRM")
    if floors and driver.version and release(driver.version) < max(floors):
        return [f"Upgrade the NVIDIA driver to {driver_words(max(floors))} or newer, then reboot.", log]
    if driver.open_module is False and any(arch.number >= _NEEDS_OPEN for arch in archs):
        kind = "NVIDIA's open kernel modules (nvidia-open, nvidia-driver-*-open)"
        return [f"Install the driver with {kind}, then reboot.", log]
    return [
        log,
        "'RmInitAdapter failed': switch on Above 4G Decoding and Resizable BAR in the firmware, see that the card's power and "
        "seat are right, and upgrade the driver.",
    ]


@check("gpu-not-free", "The GPUs take another program", blocks=Blocks.COMPUTE_MODE)
def gpu_not_free(context: Context, this: Check) -> Iterator[Finding]:
    """A GPU has a compute mode: `Exclusive_Process` takes one program at a time, `Prohibited` none. CUDA starts and lists the
    GPU in each mode; the first call that uses it ends in "CUDA-capable device(s) is/are busy or unavailable" (error 46). Source:
    CUDA C++ Programming Guide, "Compute Modes"; NVIDIA/DIGITS#2005, pytorch/pytorch#3871."""
    for gpu in context.visible_gpus:
        card = f"GPU {gpu.index}"
        mode = Evidence(card, f"compute mode {gpu.compute_mode}", "NVML")
        set_default = ("sudo", "nvidia-smi", "-i", str(gpu.index), "-c", "DEFAULT")
        reopen = run(*set_default, text="Let it take every program")
        if gpu.compute_mode == "prohibited":
            yield this.fail(
                f"{card} ({gpu.name}) is closed to computing.", subject=card, evidence=mode, remedy=reopen
            )
        elif gpu.compute_processes:
            yield this.warn(
                f"{card} ({gpu.name}) takes one program at a time, and one is computing on it; only programs of one MPS "
                "server share it.",
                subject=card,
                evidence=(mode, Evidence("programs on it", str(gpu.compute_processes), "NVML")),
                remedy=(run("nvidia-smi", text="Wait for the program, or end it"), reopen),
            )


def _gpu_evidence(context: Context, gpu: Gpu) -> Evidence:
    parts = [gpu.name, f"cc {gpu.cc or 'unknown'}"]
    if gpu.memory_total:
        parts.append(f"{gpu.memory_total} bytes")
    if gpu.bus_id:
        parts.append(gpu.bus_id)
    parts += gpu.mig_devices
    return Evidence(f"GPU {gpu.index}", ", ".join(parts), context.machine.gpus.found_via)


_LINK = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"


@check("gpu-not-passed-to-container", "The container has access to the GPU", blocks=Blocks.PASSTHROUGH)
def gpu_not_passed_to_container(context: Context, this: Check) -> Iterator[Finding]:
    """NVIDIA's images set NVIDIA_VISIBLE_DEVICES, and the container runtime puts GPUs where it says so. A container of
    such an image that sees no GPU and no driver was started without `--gpus all`: "Found no NVIDIA driver on your
    system". So was one whose PCI bus shows cards that the host's NVIDIA driver drives. In WSL2 the way to the GPU is
    /dev/dxg instead. Where the host's driver shows through /proc too, driver-library-missing says it."""
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
    remedy = start_with_gpu(machine.container, wsl=machine.wsl)
    container = f"{machine.container} container"
    if machine.wsl:
        container += " in WSL2"
    status, link = Status.SKIP, ""
    if requested in ("", "void", "none"):
        summary = f"NVIDIA_VISIBLE_DEVICES={requested!r} hides the GPUs from this {container}."
    elif cards_of_host and not context.goal.targets:
        count = counted(len(cards_of_host), "NVIDIA card")
        status, link = Status.FAIL, _LINK
        summary = f"The host has {count}, but this {container} was started without the GPU."
    elif requested is not None:
        status, link = Status.WARN, _LINK
        summary = f"This {container} requests GPU {requested!r} but has none."
    # what is built for a GPU elsewhere needs none here
    elif context.torch_cuda is not None and not context.goal.targets:
        summary = f"This {container} has no GPU; whether its host has one is not seen from inside."
    else:
        return
    yield this.finding(status, summary, evidence=evidence, remedy=remedy, link=link)


@check("docker-gpu-runtime-missing", "Docker can pass GPUs to containers")
def docker_gpu_runtime_missing(context: Context, this: Check) -> Iterator[Finding]:
    """docker needs NVIDIA's container toolkit for `--gpus`; without it every start ends in "could not select device driver ""
    with capabilities: [[gpu]]". A machine that uses no containers does not need it, so it is only a note."""
    toolkit = context.machine.container_toolkit
    if toolkit.value is None or not context.nvidia_gpus or context.machine.container is not None:
        return
    evidence = Evidence("container toolkit", ", ".join(toolkit.value) or "no part of it", toolkit.found_via)
    if toolkit.value:
        yield this.ok("NVIDIA Container Toolkit is installed.", evidence=evidence)
    else:
        yield this.skip(
            "Docker is installed without NVIDIA Container Toolkit: containers cannot use the GPU.",
            evidence=evidence,
            link=_LINK,
            remedy=(
                "Install nvidia-container-toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker, and "
                "restart docker."
            ),
        )


@check(
    "no-gpu-visible",
    "CUDA_VISIBLE_DEVICES leaves a GPU visible",
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
    visible, hidden = context.visible_gpus, sorted(context.hidden_gpus)
    evidence = [variable(context, NAME), Evidence("GPUs", str(len(gpus)), context.machine.gpus.found_via)]
    # only what CUDA lists without the variable shows that it is the variable that hides the rest
    unfiltered = context.machine.cuda_unfiltered
    if unfiltered.value:
        count = counted(len(unfiltered.value), "GPU")
        evidence.append(Evidence(f"cuInit without {NAME}", count, unfiltered.found_via))
    if unfiltered.error:
        evidence.append(Evidence(f"cuInit without {NAME}", unfiltered.error, "child process"))
    correction = set_variable(NAME, reading.valid)
    total = counted(len(gpus), "GPU")
    if context.hides_all:
        obstacle = reading.lost or "CUDA does not list the GPU that it names"
        if context.machine.container and re.match("[0-9]", value):
            obstacle += "; a container counts its own GPUs, from 0"
        if not (reading.lost and reading.valid):
            # one that works, in the form that somebody chose
            form, example = value[:4], "0"
            if form in ("GPU-", "MIG-"):
                uuids = (uuid for gpu in gpus for uuid in (*gpu.mig_uuids, gpu.uuid or ""))
                example = next((uuid for uuid in uuids if uuid.startswith(form)), example)
            text = f"Show them all, or set it to one, such as {example}"
            correction = set_variable(NAME, None, text)
        yield this.fail(
            f"{NAME}={value!r} hides every GPU from all programs: {obstacle}.",
            evidence=evidence,
            remedy=correction,
        )
    elif visible and reading.lost and reading.valid:
        yield this.warn(
            f"{NAME}={value!r} leaves {len(visible)} of {total}: {reading.lost}.",
            evidence=evidence,
            remedy=correction,
        )
    elif context.machine.cuda.value or reading.places:
        apart = ""
        if hidden:
            apart = f"; GPU {', '.join(map(str, hidden))} is hidden and not checked"
        yield this.ok(f"{len(visible)} of {total} visible{apart}.", evidence=evidence)


@check("wrong-cuda-device", "Extensions run on the GPU that the tensors are on")
def wrong_cuda_device(context: Context, this: Check) -> Iterator[Finding]:
    """simple-knn and the rasterizers of Inria's family launch on the current device, whatever device their tensors are on: with
    tensors on cuda:1 they end in "an illegal memory access". One visible GPU is the safe setting. Between different GPUs the
    number itself is ambiguous: nvidia-smi counts by bus, CUDA by speed, unless CUDA_DEVICE_ORDER=PCI_BUS_ID."""
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
        yield this.warn(
            f"{NAME}={value} {selection}, but nvidia-smi numbers these GPUs by PCI bus.",
            evidence=evidence,
            remedy=set_variable(_ORDER, "PCI_BUS_ID"),
        )
    elif value is None or "," in value:
        remedy = [set_variable(NAME, str(cards[0].index))]
        # among equal cards both ways to count name one that is as good
        if mixed:
            remedy.insert(0, set_variable(_ORDER, "PCI_BUS_ID"))
        yield this.skip(
            f"{counted(len(cards), 'GPU')} found: train on cuda:0 and select the GPU with {NAME}.",
            evidence=evidence,
            remedy=remedy,
        )


@check("gpu-xid", "The driver has logged no fault of a GPU")
def gpu_xid(context: Context, this: Check) -> Iterator[Finding]:
    """NVIDIA's driver writes each error of a GPU into the kernel's log with a number, its Xid. Most are a program's own, such as
    13 and 31; those that speak of the card or its connection are told here. The log is that of the running system, as far as it
    goes back: a fault that was mended by a reset is still in it, so that this is a warning. Where only root may read the log,
    nothing is said. Source: NVIDIA's Xid catalog."""
    xids = context.machine.xids
    for xid in xids.value or ():
        means = drivers.meaning_of_xid(xid.code)
        if means is None:
            continue
        yield this.warn(
            f"The GPU at {xid.bus_id} had a fault: Xid {xid.code}, {means}.",
            subject=f"{xid.bus_id} Xid {xid.code}",
            evidence=Evidence(f"Xid {xid.code}", f"{xid.count} times since the start", xids.found_via),
            remedy=(
                run("sudo", "dmesg", text="Read the lines with NVRM"),
                run(
                    "sudo",
                    "nvidia-smi",
                    "--gpu-reset",
                    text="Reset the GPU once no program uses it, or reboot",
                ),
            ),
        )


@check("gpu-memory-errors", "The GPUs' memory has no errors that were not corrected")
def gpu_memory_errors(context: Context, this: Check) -> Iterator[Finding]:
    """Cards with ECC count the errors that it could not correct since the driver was loaded, and replace rows of memory by spare
    ones (Ampere and newer): a row that waits for a reset is still in use, and a card whose spare rows are used up is to be
    replaced. Source: NVML's nvmlDeviceGetTotalEccErrors and nvmlDeviceGetRemappedRows; NVIDIA GPU Memory Error Management."""
    via = context.machine.gpus.found_via
    for gpu in context.nvidia_gpus:
        card = f"GPU {gpu.index}"
        if gpu.remap_failed:
            yield this.fail(
                f"{card} ({gpu.name}) cannot replace a damaged row of its memory: no spare row is left for it.",
                subject=card,
                evidence=Evidence(card, "row remapping failed", via),
                remedy="Have the card replaced; nothing else helps.",
            )
        elif gpu.remap_pending or gpu.uncorrected_errors:
            evidence = Evidence(card, f"{gpu.uncorrected_errors or 0} errors that ECC could not correct", via)
            yield this.warn(
                f"{card} ({gpu.name}) had errors in its memory that ECC could not correct.",
                subject=card,
                evidence=evidence,
                remedy=run(
                    *("sudo", "nvidia-smi", "--gpu-reset", "-i", str(gpu.index)),
                    text="Reset the GPU once no program uses it, or reboot",
                ),
            )
        elif gpu.uncorrected_errors == 0:
            yield this.ok(
                f"{card} has no uncorrected memory errors.", subject=card, evidence=Evidence(card, "0", via)
            )
