"""Checks of the NVIDIA driver: new enough for torch, whole, and the one that programs load."""

import shlex
from collections.abc import Iterator

from splatfix.checks.evidence import reason, start_with_gpu, variable
from splatfix.checks.registry import Blocks, Check, checks_of
from splatfix.context import Context
from splatfix.context.gpus import NO_DEVICE
from splatfix.core.proof import RungName
from splatfix.core.step import Step, prepend_variable, run, say
from splatfix.core.versions import major_minor, release
from splatfix.core.words import counted
from splatfix.knowledge import drivers
from splatfix.knowledge.drivers import driver_words
from splatfix.model import Driver, Evidence, Fact, Finding

check = checks_of("driver")

_NO_NVML = 12  # NVML_ERROR_LIBRARY_NOT_FOUND
_NO_PERMISSION = 4  # NVML_ERROR_NO_PERMISSION
_NVML_MISMATCH = 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
_NOT_SUPPORTED = 801  # CUDA_ERROR_NOT_SUPPORTED
_UNKNOWN = 999  # NVML_ERROR_UNKNOWN
_MISMATCH, _OPERATING_SYSTEM = 803, 304  # CUresult


@check("driver-too-old", "The driver supports torch's CUDA version", bears_on=RungName.RESOLVED)
def driver_too_old(context: Context, this: Check) -> Iterator[Finding]:
    """Every CUDA major has an oldest driver on which its runtime starts at all (minor-version compatibility). Below it,
    torch says that the NVIDIA driver is too old. Above it machine code runs; PTX may still be too new. A libcuda of its own
    CUDA level decides where there is one: the cuda-compat package on data-centre GPUs, and every Jetson."""
    driver, cuda, torch = context.machine.driver.value, context.torch_cuda, context.torch
    # gpu-without-driver reports a missing driver
    if not context.nvidia_gpus or torch is None or cuda is None or driver is None:
        return
    if driver.version is None:
        unknown = Evidence("driver", "unknown", context.machine.driver.error)
        yield this.unknown("The driver's version is not known.", evidence=unknown)
        return
    floor = drivers.runtime_floor(cuda, context.platform or "linux")
    evidence = [
        Evidence("driver", driver.version, context.machine.driver.found_via),
        Evidence("torch", f"{torch.version} (CUDA {torch.cuda})", context.environment.torch.found_via),
    ]
    if floor is None:
        yield this.unknown(
            f"The oldest driver for CUDA {torch.cuda} is not in the tables.", evidence=evidence
        )
        return
    oldest, level = driver_words(floor), major_minor(driver.cuda)
    if release(driver.version) >= floor:
        yield this.ok(f"Driver {driver.version} runs CUDA {torch.cuda} (needs {oldest}).", evidence=evidence)
    elif level and level[0] >= cuda[0] and driver.cuda_error is None:
        libraries = ", ".join(context.machine.libcuda.value or ())
        yield this.ok(
            f"libcuda provides CUDA {driver.cuda} on driver {driver.version}, enough for torch's CUDA {torch.cuda}.",
            evidence=(*evidence, Evidence("libcuda", f"CUDA {driver.cuda}", libraries)),
        )
    else:
        yield this.fail(
            f"Driver {driver.version} is too old for torch's CUDA {torch.cuda}, which needs {oldest} or newer.",
            evidence=evidence,
            remedy=(
                f"Upgrade the NVIDIA driver to {oldest} or newer (on WSL2: the Windows driver), then reboot.",
                "Or install a torch build for an older CUDA and rebuild the extensions.",
            ),
            link="https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
        )


@check(
    "driver-library-mismatch",
    "Kernel module and driver libraries have the same version",
    blocks=Blocks.SAME_VERSION,
    bears_on=RungName.RESOLVED,
)
def driver_library_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    """After a driver upgrade without a reboot the old kernel module is still loaded; NVML then fails with error 18 and
    CUDA with error 803 ("Failed to initialize NVML: Driver/library version mismatch")."""
    driver = context.machine.driver.value
    if driver is None:
        return
    versions_differ = driver.version and driver.library_version and driver.version != driver.library_version
    if not versions_differ and driver.nvml_error != _NVML_MISMATCH and driver.cuda_error != _MISMATCH:
        return
    module, libraries = driver.version or "of another version", "of another version"
    if versions_differ:
        libraries = driver.library_version or libraries
    versions = f"the loaded kernel module is {module}, its libraries are {libraries}"
    signs = [versions]
    if driver.nvml_error:
        signs.append(f"NVML error {driver.nvml_error}")
    if driver.cuda_error:
        signs.append(f"CUDA error {driver.cuda_error}")
    remedy: tuple[str | Step, ...] = (
        "Reboot the machine.",
        run("nvidia-smi", text="Then check that the driver answers"),
    )
    if context.machine.container:
        remedy = (
            "Start the container anew: it holds the libraries of the driver that the host had before.",
            "Where nvidia-smi fails on the host too, reboot the host.",
        )
    yield this.fail(
        f"The NVIDIA driver was upgraded without a reboot: {versions}.",
        evidence=Evidence("driver", "; ".join(signs), context.machine.driver.found_via),
        remedy=remedy,
    )


@check(
    "driver-library-missing",
    "The driver's libraries are installed",
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
    container, gpus = context.machine.container, context.machine.gpus
    evidence = [
        Evidence("kernel module", driver.version, context.machine.driver.found_via),
        Evidence("libcuda and NVML", "not found", gpus.found_via or gpus.error),
    ]
    for name in ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"):
        if name in context.variables:
            evidence.append(variable(context, name))
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
    "cuda-does-not-start", "CUDA starts and finds its GPUs", blocks=Blocks.START, bears_on=RungName.RESOLVED
)
def cuda_does_not_start(context: Context, this: Check) -> Iterator[Finding]:
    """nvidia-smi asks NVML; programs ask CUDA, which needs more: the fabric manager on boards with NVSwitch (error 802), a
    working nvidia_uvm (999, 3), a GPU that is free (46), device files that the container was given (100, 101). splatfix calls
    cuInit in a child process with a time limit. torch only says that it finds no GPU, with the reason in a warning. Source:
    CUresult in cuda.h; where each code comes from, knowledge/data/drivers.json.

    Codes with a page of their own: 803 (driver-library-mismatch) and 804 (forward-compat-on-geforce)."""
    cuda, driver = context.machine.cuda, context.machine.driver.value
    if driver is None or cuda == Fact():
        # gpu-without-driver reports a missing driver; facts saved by an older splatfix were not asked for this
        return
    if cuda.value:
        names = ", ".join(f"cuda:{index} {item.name}" for index, item in enumerate(cuda.value))
        yield this.ok(
            f"CUDA starts and lists {counted(len(cuda.value), 'GPU')}.",
            evidence=Evidence("cuInit", names, cuda.found_via),
        )
        return
    # cuInit succeeded and listed nothing: as torch sees it, no device
    code = driver.cuda_error
    if cuda.value is not None:
        code = NO_DEVICE
    if _start_told_elsewhere(context, driver, code):
        return
    if context.machine.container and driver.nvml_error == _UNKNOWN:
        # NVIDIA/nvidia-container-toolkit#48, NVIDIA/nvidia-docker#1730
        yield this.fail(
            "This container has lost its GPU: NVML starts no more (error 999, Unknown Error).",
            evidence=(Evidence("NVML and cuInit", f"errors {_UNKNOWN} and {code}"), *_given(context)),
            remedy=(
                "Start the container anew.",
                "systemctl daemon-reload on the host takes the GPU away from running containers; a container that gets it by CDI "
                "(docker: --device nvidia.com/gpu=all) keeps it.",
            ),
            link="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html",
        )
    # without a GPU there is nothing that CUDA could start on
    elif not (code == NO_DEVICE and not context.nvidia_gpus) and not context.all_lost:
        yield _does_not_start(context, this, code)


def _start_told_elsewhere(context: Context, driver: Driver, code: int | None) -> bool:
    """Tell whether driver-library-mismatch, forward-compat-on-geforce, driver-library-missing or no-gpu-visible has the cause."""
    if code in (_MISMATCH, drivers.FORWARD_COMPAT_REFUSED):
        return True
    if driver.nvml_error == _NO_NVML and context.machine.cuda.absent:
        return True
    if context.machine.container and driver.nvml_error == _UNKNOWN:
        return False
    return code == NO_DEVICE and context.hides_all and not context.machine.cuda_unfiltered.error


def _does_not_start(context: Context, this: Check, code: int | None) -> Finding:
    cuda = context.machine.cuda
    evidence = (reason(cuda.error), *_given(context))
    if cuda.absent:
        remedy = "Install the driver's package with libcuda (libnvidia-compute, nvidia-driver-cuda-libs)."
        if context.machine.container:
            remedy = "Start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility."
        return this.fail(
            "NVML lists GPUs, but there is no libcuda: CUDA programs find no driver.",
            evidence=evidence,
            remedy=remedy,
        )
    if code is None:
        lost = "If that hangs too, the GPU is lost: look for Xid in dmesg, and reboot."
        return this.unknown(
            "Whether CUDA starts is not known: it gave no answer.",
            evidence=evidence,
            remedy=(run("nvidia-smi"), lost),
        )
    if code < 0:  # the child that called cuInit was ended by this signal
        return this.fail(
            f"libcuda crashes when it starts (signal {-code}).",
            evidence=evidence,
            remedy="Reinstall the NVIDIA driver, and take other copies of libcuda out of LD_LIBRARY_PATH.",
        )
    return _refused(context, this, code)


def _refused(context: Context, this: Check, code: int) -> Finding:
    container, driver = context.machine.container, context.machine.driver.value
    known, error = drivers.start_failure(code), f"error {code}"
    if known is not None:
        error += f" ({known.name})"
    evidence = (Evidence("cuInit", error, "child process"), *_given(context))
    files = context.machine.device_files.value
    # in a container and in WSL2 having no device files at all is another failure, with checks of its own
    own_module = files is not None and not (container or context.machine.wsl)
    # 801 is how a vGPU without unified memory answers, whose host decides on that
    if code != _NOT_SUPPORTED and "nvidia-uvm" not in (files or ()) and (files or own_module):
        # root's tool of the driver: -u loads nvidia_uvm, -c=0 makes its device files
        modprobe = ("sudo", "nvidia-modprobe", "-u", "-c=0")
        steps = [run(*modprobe)]
        if container:
            passing = "with the GPU passed by the engine and not by single --device options"
            again = say(f"Then start the container anew, {passing}.")
            steps = [run(*modprobe, text="On the host"), again]
        summary = f"CUDA does not start (error {code}): /dev/nvidia-uvm is not here."
        return this.fail(summary, evidence=evidence, remedy=steps)
    if code == NO_DEVICE and all(gpu.mig and not gpu.mig_devices for gpu in context.nvidia_gpus):
        return _no_mig_instance(context, this, evidence)
    if code == NO_DEVICE and driver and driver.nvml_error == _NO_PERMISSION:
        known = drivers.start_failure(_OPERATING_SYSTEM)  # NVML says more than CUDA
    if known is None:
        return this.fail(
            f"CUDA does not start: cuInit gives error {code}.",
            evidence=evidence,
            remedy=("Look for the driver's own words, then reboot:", run("sudo", "dmesg")),
        )
    lines = known.remedy
    if container and known.container_remedy:
        lines = known.container_remedy
    steps = []
    for line in lines:
        step = say(line)
        if line.startswith("$ "):
            step = run(*shlex.split(line[2:]))
        steps.append(step)
    return this.fail(f"CUDA does not start (error {code}): {known.means}.", evidence=evidence, remedy=steps)


def _no_mig_instance(context: Context, this: Check, evidence: tuple[Evidence, ...]) -> Finding:
    card = str(context.nvidia_gpus[0].index)
    make_one = "Make one instance of the whole card (nvidia-smi mig -lgip lists the other sizes)"
    remedy: tuple[str | Step, ...] = (
        run("sudo", "nvidia-smi", "mig", "-i", card, "-cgi", "0", "-C", text=make_one),
        run("sudo", "nvidia-smi", "-i", card, "-mig", "0", text="Or switch MIG off"),
    )
    if context.machine.container:
        start = "start the container with it (docker: --gpus device=MIG-UUID)"
        remedy = (f"Make an instance on the host, and {start}.",)
    return this.fail(
        "CUDA finds no GPU: MIG is on, and there is no instance for a program to use.",
        evidence=evidence,
        remedy=remedy,
        link="https://docs.nvidia.com/datacenter/tesla/mig-user-guide/",
    )


def _given(context: Context) -> Iterator[Evidence]:
    """Name what else CUDA starts from: device files, and the variables that choose GPUs."""
    files, unfiltered = context.machine.device_files, context.machine.cuda_unfiltered
    if unfiltered.error:
        yield Evidence("cuInit without CUDA_VISIBLE_DEVICES", unfiltered.error, "child process")
    if files.value is not None:
        yield Evidence("device files", ", ".join(files.value) or "none", files.found_via)
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"):
        if name in context.variables:
            yield variable(context, name)


@check("wsl-wrong-libcuda", "WSL2 loads the libcuda of the Windows driver", blocks=Blocks.LIBCUDA)
def wsl_wrong_libcuda(context: Context, this: Check) -> Iterator[Finding]:
    """In WSL2 the driver is Windows'; its libcuda lies in /usr/lib/wsl/lib. A Linux driver package (nvidia-driver-*,
    cuda-drivers, the `cuda` meta-package) puts another libcuda into the system folders, which is found first and sees
    no GPU: error 100 or "Found no NVIDIA driver". Source: NVIDIA's CUDA on WSL user guide."""
    libcuda = context.machine.libcuda
    if not context.machine.wsl or not libcuda.value:
        return
    first = libcuda.value[0]
    evidence = Evidence("libcuda.so.1", ", ".join(libcuda.value), libcuda.found_via)
    if "/wsl/" in first:
        yield this.ok(f"libcuda is {first}, from the Windows driver.", evidence=evidence)
    else:
        yield this.fail(
            f"{first} of a Linux driver is loaded instead of WSL2's libcuda.",
            evidence=evidence,
            remedy=(
                "Remove the Linux driver's packages (libnvidia-compute-*, nvidia-driver-*), keep the toolkit's. "
                "Until then:",
                prepend_variable("LD_LIBRARY_PATH", "/usr/lib/wsl/lib"),
            ),
            link="https://docs.nvidia.com/cuda/wsl-user-guide/",
        )


@check("stub-libcuda-loaded", "libcuda is the driver's, not the toolkit's stub", blocks=Blocks.LIBCUDA)
def stub_libcuda_loaded(context: Context, this: Check) -> Iterator[Finding]:
    """The toolkit's lib64/stubs holds an empty libcuda to link against on machines without a driver. With that folder in
    LD_LIBRARY_PATH (it belongs into LIBRARY_PATH) and a libcuda.so.1 in it, as some images link it, programs load the empty
    one: error 34, CUDA_ERROR_STUB_LIBRARY, or no GPU at all. Source: CUDA's driver API, CUDA_ERROR_STUB_LIBRARY."""
    libcuda = context.machine.libcuda
    if not libcuda.value or "/stubs/" not in libcuda.value[0] or len(libcuda.value) < 2:
        return  # without another one there is no driver here, and the stub does no harm
    yield this.fail(
        f"{libcuda.value[0]} is loaded before the driver's {libcuda.value[1]}.",
        evidence=(
            Evidence("libcuda.so.1", ", ".join(libcuda.value), libcuda.found_via),
            variable(context, "LD_LIBRARY_PATH"),
        ),
        remedy="Take the stubs folder out of LD_LIBRARY_PATH and /etc/ld.so.conf.d; LIBRARY_PATH may keep it.",
    )


@check(
    "forward-compat-on-geforce",
    "No forward-compatibility libcuda on an unsupported GPU",
    blocks=Blocks.LIBCUDA,
    bears_on=RungName.RESOLVED,
)
def forward_compat_on_geforce(context: Context, this: Check) -> Iterator[Finding]:
    """NVIDIA's images carry a newer libcuda in /usr/local/cuda/compat. It lets data-centre GPUs run a CUDA that is newer than the
    driver; a GeForce answers with error 804 ("forward compatibility was attempted on non supported HW"). Source: NVIDIA's
    page on forward compatibility."""
    driver, via = context.machine.driver.value, context.machine.libcuda.found_via
    libraries = context.machine.libcuda.value or ()
    names = [gpu.name for gpu in context.nvidia_gpus]
    from_compat = bool(libraries) and "/compat/" in libraries[0]
    refused = driver is not None and driver.cuda_error == drivers.FORWARD_COMPAT_REFUSED
    # of data-centre cards nobody but cuInit knows for which driver branches they take one
    if not refused and not (from_compat and any("GeForce" in name for name in names)):
        return
    start = "not asked"
    if driver is not None and driver.cuda_error:
        start = f"error {driver.cuda_error}"
    library, card = next(iter(libraries), "a compat folder"), next(iter(names), "this GPU")
    yield this.fail(
        f"libcuda comes from {library}, which {card} does not support.",
        evidence=(
            Evidence("libcuda.so.1", ", ".join(libraries) or "not known", via),
            Evidence("cuInit", start),
        ),
        remedy=(
            "Take the compat folder out of LD_LIBRARY_PATH and /etc/ld.so.conf.d, and upgrade the host's "
            "driver or take an image of an older CUDA."
        ),
        link="https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",
    )
