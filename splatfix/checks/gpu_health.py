"""Checks of GPUs that answer and are hurt all the same: faults in the kernel's log, and errors of their memory."""

from collections.abc import Iterator

from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context
from splatfix.core.step import run
from splatfix.knowledge import drivers
from splatfix.model import Evidence, Finding

check = checks_of("gpu")


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
