"""Checks of the NVIDIA driver: new enough for torch, whole, and the one that programs load."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from splatfix.checks.evidence import reason, start_with_gpu, variable
from splatfix.checks.model import Evidence, Finding
from splatfix.checks.registry import Blocks, Check, check
from splatfix.context import Context
from splatfix.context.targets import NO_DEVICE
from splatfix.core.proof import RungName
from splatfix.core.step import Step, prepend_variable, run, say
from splatfix.core.versions import major_minor, release
from splatfix.core.words import counted
from splatfix.facts import Fact
from splatfix.knowledge import drivers
from splatfix.knowledge.drivers import driver_words

_NO_NVML = 12  # NVML_ERROR_LIBRARY_NOT_FOUND
_NO_PERMISSION = 4  # NVML_ERROR_NO_PERMISSION
_UNKNOWN = 999  # NVML_ERROR_UNKNOWN
_MISMATCH, _OPERATING_SYSTEM = 803, 304  # CUresult


@check(
    "driver-too-old",
    family="driver",
    title="The driver supports torch's CUDA version",
    bears_on=RungName.RESOLVED,
)
def driver_too_old(context: Context, this: Check) -> Iterator[Finding]:
    """Every CUDA major has an oldest driver on which its runtime starts at all (minor-version compatibility). Below it,
    torch says that the NVIDIA driver is too old. Above it machine code runs; PTX may still be too new. A libcuda of its own
    CUDA level decides where there is one: the cuda-compat package on data-centre GPUs, and every Jetson."""
    driver, cuda, torch = context.machine.driver.value, context.torch_cuda, context.torch
    if not context.has_nvidia_gpu or torch is None or cuda is None:
        return
    if driver is None:
        return  # gpu-without-driver tells that
    if driver.version is None:
        yield this.unknown(
            "The driver's version is not known.",
            evidence=Evidence("driver", "unknown", context.machine.driver.error),
        )
        return
    platform = context.platform or "linux"
    floor = drivers.runtime_floor(cuda, platform)
    evidence = (
        Evidence("driver", driver.version, context.machine.driver.found_via),
        Evidence("torch", f"{torch.version} (CUDA {torch.cuda})", context.environment.torch.found_via),
    )
    if floor is None:
        yield this.unknown(
            f"The oldest driver for CUDA {torch.cuda} is not in the tables.", evidence=evidence
        )
        return
    words, level = driver_words(floor), major_minor(driver.cuda)
    if release(driver.version) < floor and level and level[0] >= cuda[0] and driver.cuda_error is None:
        yield this.ok(
            f"libcuda provides CUDA {driver.cuda} on driver {driver.version}, enough for torch's CUDA {torch.cuda}.",
            evidence=(
                *evidence,
                Evidence("libcuda", f"CUDA {driver.cuda}", ", ".join(context.machine.libcuda.value or ())),
            ),
        )
    elif release(driver.version) < floor:
        yield this.fail(
            f"Driver {driver.version} is too old for torch's CUDA {torch.cuda}, which needs {words} or newer.",
            evidence=evidence,
            remedy=(
                f"Upgrade the NVIDIA driver to {words} or newer (on WSL2: the Windows driver), then reboot.",
                "Or install a torch build for an older CUDA and rebuild the extensions.",
            ),
            link="https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
        )
    else:
        yield this.ok(f"Driver {driver.version} runs CUDA {torch.cuda} (needs {words}).", evidence=evidence)


@check(
    "driver-library-mismatch",
    family="driver",
    title="Kernel module and driver libraries have the same version",
    blocks=Blocks.SAME_VERSION,
    bears_on=RungName.RESOLVED,
)
def driver_library_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    """After a driver upgrade without a reboot the old kernel module is still loaded; NVML then fails with error 18 and
    CUDA with error 803 ("Failed to initialize NVML: Driver/library version mismatch")."""
    driver = context.machine.driver.value
    if driver is None:
        return
    different = bool(driver.version and driver.library_version and driver.version != driver.library_version)
    if not different and driver.nvml_error != 18 and driver.cuda_error != _MISMATCH:
        return
    versions = (
        f"the loaded kernel module is {driver.version or 'of another version'}, its libraries are "
        f"{driver.library_version if different else 'of another version'}"
    )
    codes = [f"NVML error {driver.nvml_error}"] if driver.nvml_error else []
    codes += [f"CUDA error {driver.cuda_error}"] if driver.cuda_error else []
    yield this.fail(
        f"The NVIDIA driver was upgraded without a reboot: {versions}.",
        evidence=Evidence("driver", "; ".join([versions, *codes]), context.machine.driver.found_via),
        remedy=(
            "Start the container anew: it holds the libraries of the driver that the host had before.",
            "Where nvidia-smi fails on the host too, reboot the host.",
        )
        if context.machine.container
        else ("Reboot the machine.", run("nvidia-smi", text="Then check that the driver answers")),
    )


@check(
    "driver-library-missing",
    family="driver",
    title="The driver's libraries are installed",
    blocks=Blocks.DRIVER_LIBRARIES,
    bears_on=RungName.RESOLVED,
)
def driver_library_missing(context: Context, this: Check) -> Iterator[Finding]:
    """The kernel module is loaded, but neither libcuda nor NVML is here. In a container that is the sign of one that was
    started without its GPU: it sees the host's /proc and /sys, but not the driver's libraries and devices."""
    driver = context.machine.driver.value
    if driver is None or not driver.version or driver.nvml_error != _NO_NVML:
        return
    if driver.cuda or driver.library_version:
        return
    container, variables = context.machine.container, context.variables
    evidence = (
        Evidence("kernel module", driver.version, context.machine.driver.found_via),
        Evidence(
            "libcuda and NVML", "not found", context.machine.gpus.found_via or context.machine.gpus.error
        ),
        *(
            variable(context, name)
            for name in ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")
            if name in variables
        ),
    )
    if container is None:
        yield this.fail(
            f"The kernel module {driver.version} is loaded, but the driver's libraries (libcuda, NVML) are not installed.",
            evidence=evidence,
            remedy=f"Install the user-mode packages of driver {driver.version} (libnvidia-compute, nvidia-utils).",
        )
        return
    yield this.fail(
        f"The host has NVIDIA driver {driver.version}, but this {container} container was started without the GPU.",
        evidence=evidence,
        remedy=start_with_gpu(container),
    )


@check(
    "cuda-does-not-start",
    family="driver",
    title="CUDA starts and finds its GPUs",
    blocks=Blocks.START,
    bears_on=RungName.RESOLVED,
)
def cuda_does_not_start(context: Context, this: Check) -> Iterator[Finding]:
    """nvidia-smi asks NVML; programs ask CUDA, which needs more: the fabric manager on boards with NVSwitch (error 802), a
    working nvidia_uvm (999, 3), a GPU that is free (46), device files that the container was given (100, 101). splatfix calls
    cuInit in a child process with a time limit. torch only says that it finds no GPU, with the reason in a warning. Source:
    CUresult in cuda.h; where each code comes from, knowledge/data/drivers.json.

    Codes with a page of their own: 803 (driver-library-mismatch) and 804 (forward-compat-on-geforce)."""
    cuda, driver = context.machine.cuda, context.machine.driver.value
    if driver is None or cuda == Fact():
        return  # gpu-without-driver tells the one; the other are facts from a splatfix that did not ask
    code = driver.cuda_error if cuda.value is None else NO_DEVICE
    if cuda.value:
        names = ", ".join(f"cuda:{place} {item.name}" for place, item in enumerate(cuda.value))
        yield this.ok(
            f"CUDA starts and lists {counted(len(cuda.value), 'GPU')}.",
            evidence=Evidence("cuInit", names, cuda.found_via),
        )
    elif code in (_MISMATCH, drivers.FORWARD_COMPAT_REFUSED) or (
        driver.nvml_error == _NO_NVML and cuda.absent
    ):
        return
    elif context.machine.container and driver.nvml_error == _UNKNOWN:
        yield _taken_away(context, this, code)
    elif (code == NO_DEVICE and not context.nvidia_gpus) or context.all_lost:
        return  # there is nothing that CUDA could start on
    elif code == NO_DEVICE and context.hides_all and not context.machine.cuda_unfiltered.error:
        return  # no-gpu-visible tells of the variable
    elif cuda.absent:
        yield this.fail(
            "NVML lists GPUs, but there is no libcuda: CUDA programs find no driver.",
            evidence=(reason(cuda), *_given(context)),
            remedy="Start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility."
            if context.machine.container
            else "Install the driver's package with libcuda (libnvidia-compute, nvidia-driver-cuda-libs).",
        )
    elif code is None:
        yield this.unknown(
            "Whether CUDA starts is not known: it gave no answer.",
            evidence=(reason(cuda), *_given(context)),
            remedy=(
                run("nvidia-smi"),
                say("If that hangs too, the GPU is lost: look for Xid in dmesg, and reboot."),
            ),
        )
    elif code < 0:
        yield this.fail(
            f"libcuda crashes when it starts (signal {-code}).",
            evidence=(reason(cuda), *_given(context)),
            remedy="Reinstall the NVIDIA driver, and take other copies of libcuda out of LD_LIBRARY_PATH.",
        )
    else:
        yield _refused(context, this, code)


def _taken_away(context: Context, this: Check, code: int | None) -> Finding:
    """Source: NVIDIA/nvidia-container-toolkit#48, NVIDIA/nvidia-docker#1730."""
    return this.fail(
        "This container has lost its GPU: NVML starts no more (error 999, Unknown Error).",
        evidence=(Evidence("NVML and cuInit", f"errors {_UNKNOWN} and {code}"), *_given(context)),
        remedy=(
            "Start the container anew.",
            "systemctl daemon-reload on the host takes the GPU away from running containers; a container that gets it by CDI "
            "(docker: --device nvidia.com/gpu=all) keeps it.",
        ),
        link="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html",
    )


def _refused(context: Context, this: Check, code: int) -> Finding:
    """cuInit's code with what it means here."""
    container = context.machine.container
    known = drivers.start_failure(code)
    files = context.machine.device_files.value
    evidence = (
        Evidence("cuInit", f"error {code}{f' ({known.name})' if known else ''}", "child process"),
        *_given(context),
    )
    own_module = files is not None and not (container or context.machine.wsl)
    if "nvidia-uvm" not in (files or ()) and (files or own_module):
        make = run("sudo", "nvidia-modprobe", "-u", "-c=0", text="On the host" if container else "")
        again = say(
            "Then start the container anew, with the GPU passed by the engine and not by single --device options."
        )
        return this.fail(
            f"CUDA does not start (error {code}): /dev/nvidia-uvm is not here.",
            evidence=evidence,
            remedy=(make, again) if container else (make,),
        )
    if code == NO_DEVICE and all(gpu.mig and not gpu.mig_devices for gpu in context.nvidia_gpus):
        first = context.nvidia_gpus[0].index
        return this.fail(
            "CUDA finds no GPU: MIG is on, and there is no instance for a program to use.",
            evidence=evidence,
            remedy="Make an instance on the host, and start the container with it (docker: --gpus device=MIG-UUID)."
            if container
            else (
                run(
                    *("sudo", "nvidia-smi", "mig", "-i", str(first), "-cgi", "0", "-C"),
                    text="Make one instance of the whole card (nvidia-smi mig -lgip lists the other sizes)",
                ),
                run("sudo", "nvidia-smi", "-i", str(first), "-mig", "0", text="Or switch MIG off"),
            ),
            link="https://docs.nvidia.com/datacenter/tesla/mig-user-guide/",
        )
    driver = context.machine.driver.value
    if code == NO_DEVICE and driver and driver.nvml_error == _NO_PERMISSION:
        known = drivers.start_failure(_OPERATING_SYSTEM)  # NVML says more than CUDA
    if known is None:
        return this.fail(
            f"CUDA does not start: cuInit gives error {code}.",
            evidence=evidence,
            remedy=("Look for the driver's own words, then reboot:", run("sudo", "dmesg")),
        )
    lines = (known.container_remedy if container else ()) or known.remedy
    return this.fail(
        f"CUDA does not start (error {code}): {known.means}.",
        evidence=evidence,
        remedy=tuple(_step(line) for line in lines),
    )


def _step(line: str) -> Step:
    return run(*shlex.split(line[2:])) if line.startswith("$ ") else say(line)


def _given(context: Context) -> tuple[Evidence, ...]:
    """What else CUDA starts from: device files, and the variables that choose GPUs."""
    files, variables = context.machine.device_files, context.variables
    every = context.machine.cuda_unfiltered
    names = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")
    listed = Evidence("device files", ", ".join(files.value or ()) or "none", files.found_via)
    return (
        *(
            (Evidence("cuInit without CUDA_VISIBLE_DEVICES", every.error, "child process"),)
            if every.error
            else ()
        ),
        *((listed,) if files.value is not None else ()),
        *(variable(context, name) for name in names if name in variables),
    )


@check(
    "wsl-wrong-libcuda",
    family="driver",
    title="WSL2 loads the libcuda of the Windows driver",
    blocks=Blocks.LIBCUDA,
)
def wsl_wrong_libcuda(context: Context, this: Check) -> Iterator[Finding]:
    """In WSL2 the driver is Windows'; its libcuda lies in /usr/lib/wsl/lib. A Linux driver package (nvidia-driver-*,
    cuda-drivers, the `cuda` meta-package) puts another libcuda into the system folders, which is found first and sees
    no GPU: error 100 or "Found no NVIDIA driver". Source: NVIDIA's CUDA on WSL user guide."""
    found = context.machine.libcuda
    if not context.machine.wsl or not found.value:
        return
    first, evidence = found.value[0], (Evidence("libcuda.so.1", ", ".join(found.value), found.found_via),)
    if "/wsl/" in first:
        yield this.ok(f"libcuda is {first}, from the Windows driver.", evidence=evidence)
    else:
        yield this.fail(
            f"{first} of a Linux driver is loaded instead of WSL2's libcuda.",
            evidence=evidence,
            remedy=(
                (
                    "Remove the Linux driver's packages (libnvidia-compute-*, nvidia-driver-*), keep the toolkit's. "
                    "Until then:"
                ),
                prepend_variable("LD_LIBRARY_PATH", "/usr/lib/wsl/lib"),
            ),
            link="https://docs.nvidia.com/cuda/wsl-user-guide/",
        )


@check(
    "stub-libcuda-loaded",
    family="driver",
    title="libcuda is the driver's, not the toolkit's stub",
    blocks=Blocks.LIBCUDA,
)
def stub_libcuda_loaded(context: Context, this: Check) -> Iterator[Finding]:
    """The toolkit's lib64/stubs holds an empty libcuda to link against on machines without a driver. With that folder in
    LD_LIBRARY_PATH (it belongs into LIBRARY_PATH) and a libcuda.so.1 in it, as some images link it, programs load the empty
    one: error 34, CUDA_ERROR_STUB_LIBRARY, or no GPU at all. Source: CUDA's driver API, CUDA_ERROR_STUB_LIBRARY."""
    found = context.machine.libcuda
    if not found.value or "/stubs/" not in found.value[0] or len(found.value) < 2:
        return  # without another one there is no driver here, and the stub does no harm
    yield this.fail(
        f"{found.value[0]} is loaded before the driver's {found.value[1]}.",
        evidence=(
            Evidence("libcuda.so.1", ", ".join(found.value), found.found_via),
            variable(context, "LD_LIBRARY_PATH"),
        ),
        remedy="Take the stubs folder out of LD_LIBRARY_PATH and /etc/ld.so.conf.d; LIBRARY_PATH may keep it.",
    )


@check(
    "forward-compat-on-geforce",
    family="driver",
    title="No forward-compatibility libcuda on an unsupported GPU",
    blocks=Blocks.LIBCUDA,
    bears_on=RungName.RESOLVED,
)
def forward_compat_on_geforce(context: Context, this: Check) -> Iterator[Finding]:
    """NVIDIA's images carry a newer libcuda in /usr/local/cuda/compat. It lets data-centre GPUs run a CUDA that is newer than the
    driver; a GeForce answers with error 804 ("forward compatibility was attempted on non supported HW"). Source: NVIDIA's
    page on forward compatibility."""
    found, driver = context.machine.libcuda, context.machine.driver.value
    names = [gpu.name for gpu in context.nvidia_gpus]
    compat = bool(found.value) and "/compat/" in (found.value or ("",))[0]
    refused = driver is not None and driver.cuda_error == drivers.FORWARD_COMPAT_REFUSED
    if not refused and not (compat and any("GeForce" in name for name in names)):
        return
    yield this.fail(
        f"libcuda comes from {(found.value or ('a compat folder',))[0]}, "
        f"which {names[0] if names else 'this GPU'} does not support.",
        evidence=(
            Evidence("libcuda.so.1", ", ".join(found.value or ()) or "not known", found.found_via),
            Evidence("cuInit", f"error {driver.cuda_error}" if driver and driver.cuda_error else "not asked"),
        ),
        remedy=(
            "Take the compat folder out of LD_LIBRARY_PATH and /etc/ld.so.conf.d, and upgrade the host's "
            "driver or take an image of an older CUDA."
        ),
        link="https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",
    )
