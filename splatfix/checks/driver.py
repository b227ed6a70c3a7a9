"""Checks of the NVIDIA driver: new enough for torch, whole, and the one that programs load."""

from __future__ import annotations

from collections.abc import Iterator

from splatfix.checks.evidence import variable
from splatfix.checks.model import Evidence, Outcome, fail, ok, unknown
from splatfix.checks.registry import check
from splatfix.context import Context
from splatfix.core.step import prepend_variable, run
from splatfix.core.versions import major_minor, release
from splatfix.knowledge import drivers
from splatfix.knowledge.drivers import driver_words

_NO_NVML = 12  # NVML_ERROR_LIBRARY_NOT_FOUND


@check("driver-too-old", family="driver", title="The driver supports torch's CUDA version")
def driver_too_old(context: Context) -> Iterator[Outcome]:
    """Every CUDA major has an oldest driver on which its runtime starts at all (minor-version compatibility). Below it,
    torch says that the NVIDIA driver is too old. Above it machine code runs; PTX may still be too new. A libcuda of its own
    CUDA level decides where there is one: the cuda-compat package on data-centre GPUs, and every Jetson."""
    driver, cuda, torch = context.machine.driver.value, context.torch_cuda, context.torch
    if not context.has_nvidia_gpu or torch is None or cuda is None:
        return
    if driver is None:
        return  # gpu-without-driver tells that
    if driver.version is None:
        yield unknown(
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
        yield unknown(f"The oldest driver for CUDA {torch.cuda} is not in the tables.", evidence=evidence)
        return
    words, level = driver_words(floor), major_minor(driver.cuda)
    if release(driver.version) < floor and level and level[0] >= cuda[0] and driver.cuda_error is None:
        yield ok(
            f"libcuda provides CUDA {driver.cuda} on driver {driver.version}, enough for torch's CUDA {torch.cuda}.",
            evidence=(
                *evidence,
                Evidence("libcuda", f"CUDA {driver.cuda}", ", ".join(context.machine.libcuda.value or ())),
            ),
        )
    elif release(driver.version) < floor:
        yield fail(
            f"Driver {driver.version} is too old for torch's CUDA {torch.cuda}, which needs {words} or newer.",
            evidence=evidence,
            remedy=(
                f"Upgrade the NVIDIA driver to {words} or newer (on WSL2: the Windows driver), then reboot.",
                "Or install a torch build for an older CUDA and rebuild the extensions.",
            ),
            link="https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
        )
    else:
        yield ok(f"Driver {driver.version} runs CUDA {torch.cuda} (needs {words}).", evidence=evidence)


@check(
    "driver-library-mismatch",
    family="driver",
    title="Kernel module and driver libraries have the same version",
)
def driver_library_mismatch(context: Context) -> Iterator[Outcome]:
    """After a driver upgrade without a reboot the old kernel module is still loaded; NVML then fails with error 18 and
    CUDA with error 803 ("Failed to initialize NVML: Driver/library version mismatch")."""
    driver = context.machine.driver.value
    if driver is None:
        return
    different = bool(driver.version and driver.library_version and driver.version != driver.library_version)
    if not different and driver.nvml_error != 18 and driver.cuda_error != 803:
        return
    versions = (
        f"the loaded kernel module is {driver.version or 'of another version'}, its libraries are "
        f"{driver.library_version if different else 'of another version'}"
    )
    codes = [f"NVML error {driver.nvml_error}"] if driver.nvml_error else []
    codes += [f"CUDA error {driver.cuda_error}"] if driver.cuda_error else []
    yield fail(
        f"The NVIDIA driver was upgraded without a reboot: {versions}.",
        evidence=Evidence("driver", "; ".join([versions, *codes]), context.machine.driver.found_via),
        remedy=("Reboot the machine.", run("nvidia-smi", text="Then check that the driver answers")),
    )


@check("driver-library-missing", family="driver", title="The driver's libraries are installed")
def driver_library_missing(context: Context) -> Iterator[Outcome]:
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
        yield fail(
            f"The kernel module {driver.version} is loaded, but the driver's libraries (libcuda, NVML) are not installed.",
            evidence=evidence,
            remedy=f"Install the user-mode packages of driver {driver.version} (libnvidia-compute, nvidia-utils).",
        )
        return
    how = {
        "kubernetes": "Ask for the GPU in the pod's resources (nvidia.com/gpu: 1).",
        "podman": "Start the container with --device nvidia.com/gpu=all.",
        "apptainer": "Start the container with --nv.",
    }.get(
        container, "Start the container with --gpus all (the NVIDIA Container Toolkit must be on the host)."
    )
    yield fail(
        f"The host has NVIDIA driver {driver.version}, but this {container} container was started without the GPU.",
        evidence=evidence,
        remedy=how,
    )


@check("wsl-wrong-libcuda", family="driver", title="WSL2 loads the libcuda of the Windows driver")
def wsl_wrong_libcuda(context: Context) -> Iterator[Outcome]:
    """In WSL2 the driver is Windows'; its libcuda lies in /usr/lib/wsl/lib. A Linux driver package (nvidia-driver-*,
    cuda-drivers, the `cuda` meta-package) puts another libcuda into the system folders, which is found first and sees
    no GPU: error 100 or "Found no NVIDIA driver". Source: NVIDIA's CUDA on WSL user guide."""
    found = context.machine.libcuda
    if not context.machine.wsl or not found.value:
        return
    first, evidence = found.value[0], (Evidence("libcuda.so.1", ", ".join(found.value), found.found_via),)
    if "/wsl/" in first:
        yield ok(f"libcuda is {first}, from the Windows driver.", evidence=evidence)
    else:
        yield fail(
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


@check("stub-libcuda-loaded", family="driver", title="libcuda is the driver's, not the toolkit's stub")
def stub_libcuda_loaded(context: Context) -> Iterator[Outcome]:
    """The toolkit's lib64/stubs holds an empty libcuda to link against on machines without a driver. With that folder in
    LD_LIBRARY_PATH (it belongs into LIBRARY_PATH) and a libcuda.so.1 in it, as some images link it, programs load the empty
    one: error 34, CUDA_ERROR_STUB_LIBRARY, or no GPU at all. Source: CUDA's driver API, CUDA_ERROR_STUB_LIBRARY."""
    found = context.machine.libcuda
    if not found.value or "/stubs/" not in found.value[0] or len(found.value) < 2:
        return  # without another one there is no driver here, and the stub does no harm
    yield fail(
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
)
def forward_compat_on_geforce(context: Context) -> Iterator[Outcome]:
    """NVIDIA's images carry a newer libcuda in /usr/local/cuda/compat. It lets data-centre GPUs run a CUDA that is newer than the
    driver; a GeForce answers with error 804 ("forward compatibility was attempted on non supported HW"). Source: NVIDIA's
    page on forward compatibility."""
    found, driver = context.machine.libcuda, context.machine.driver.value
    names = [gpu.name for gpu in context.nvidia_gpus]
    compat = bool(found.value) and "/compat/" in (found.value or ("",))[0]
    refused = driver is not None and driver.cuda_error == drivers.FORWARD_COMPAT_REFUSED
    if not refused and not (compat and any("GeForce" in name for name in names)):
        return
    yield fail(
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
