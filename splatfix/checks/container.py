"""Checks of layers between a program and the GPU: containers that see none, docker without GPUs, WSL2's and other libcudas."""

from __future__ import annotations

from collections.abc import Iterator

from splatfix.checks.model import Evidence, Outcome, fail, ok, skip, warn
from splatfix.checks.registry import check
from splatfix.context import Context
from splatfix.core.step import prepend_variable, say
from splatfix.knowledge import drivers

_LINK = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"


@check("gpu-not-passed-to-container", family="gpu", title="The container was given its GPU")
def gpu_not_passed_to_container(context: Context) -> Iterator[Outcome]:
    """NVIDIA's images set NVIDIA_VISIBLE_DEVICES, and the container runtime puts GPUs where it says so. A container of such an
    image that sees no GPU and no driver was started without `--gpus all`: "Found no NVIDIA driver on your system". Where the
    host's driver shows through /proc, driver-library-missing says it."""
    asked = context.machine.variables.get("NVIDIA_VISIBLE_DEVICES")
    if (
        context.machine.container is None
        or asked is None
        or context.machine.gpus.value is None
        or context.has_nvidia_gpu
    ):
        return
    evidence = (
        Evidence("NVIDIA_VISIBLE_DEVICES", repr(asked), "environment variable"),
        Evidence("GPUs", "none", context.machine.gpus.found_via),
    )
    if asked in ("", "void", "none"):
        yield skip(
            f"NVIDIA_VISIBLE_DEVICES={asked!r} keeps the GPUs out of this "
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
        f"This {context.machine.container} container asks for GPU {asked!r} and got none.",
        evidence=evidence,
        remedy=(say(how),),
        link=_LINK,
    )


@check("docker-gpu-runtime-missing", family="gpu", title="docker can hand a GPU to a container")
def docker_gpu_runtime_missing(context: Context) -> Iterator[Outcome]:
    """docker needs NVIDIA's container toolkit for `--gpus`; without it every start ends in "could not select device driver ""
    with capabilities: [[gpu]]". It is no illness on a machine that uses no containers, so it is only named."""
    toolkit = context.machine.container_toolkit
    if toolkit.value is None or not context.has_nvidia_gpu or context.machine.container is not None:
        return
    evidence = (
        Evidence("container toolkit", ", ".join(toolkit.value) or "no part of it", toolkit.found_via),
    )
    if toolkit.value:
        yield ok(
            "NVIDIA's container toolkit is here.",
            evidence=evidence,
        )
    else:
        yield skip(
            "docker is here without NVIDIA container toolkit: no GPU in containers.",
            evidence=evidence,
            link=_LINK,
            remedy=(
                say(
                    "Install nvidia-container-toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker, and "
                    "restart docker."
                ),
            ),
        )


@check("wsl-wrong-libcuda", family="driver", title="WSL2 loads the libcuda that Windows brings")
def wsl_wrong_libcuda(context: Context) -> Iterator[Outcome]:
    """In WSL2 the driver is Windows'; its libcuda lies in /usr/lib/wsl/lib. A Linux driver package (nvidia-driver-*,
    cuda-drivers, the `cuda` meta-package) puts another libcuda into the system folders, which is found first and sees
    no GPU: error 100 or "Found no NVIDIA driver". Source: NVIDIA's CUDA on WSL user guide."""
    found = context.machine.libcuda
    if not context.machine.wsl or not found.value:
        return
    first, evidence = found.value[0], (Evidence("libcuda.so.1", ", ".join(found.value), found.found_via),)
    if "/wsl/" in first:
        yield ok(f"libcuda is {first}, Windows' own.", evidence=evidence)
    else:
        yield fail(
            f"{first} of a Linux driver stands before WSL2's own libcuda.",
            evidence=evidence,
            remedy=(
                say(
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
            Evidence(
                "LD_LIBRARY_PATH",
                context.machine.variables.get("LD_LIBRARY_PATH", "not set"),
                "environment variable",
            ),
        ),
        remedy=(
            say(
                "Take the stubs folder out of LD_LIBRARY_PATH and /etc/ld.so.conf.d; LIBRARY_PATH may keep it."
            ),
        ),
    )


@check(
    "forward-compat-on-geforce",
    family="driver",
    title="No forward-compatibility libcuda on a GPU that has none",
)
def forward_compat_on_geforce(context: Context) -> Iterator[Outcome]:
    """NVIDIA's images carry a newer libcuda in /usr/local/cuda/compat. It lets data-centre GPUs run a CUDA that is newer than the
    driver; a GeForce answers with error 804 ("forward compatibility was attempted on non supported HW"). Source: NVIDIA's
    page on forward compatibility."""
    found, driver = context.machine.libcuda, context.machine.driver.value
    names = [gpu.name for gpu in context.machine.gpus.value or () if gpu.vendor == "nvidia"]
    compat = bool(found.value) and "/compat/" in (found.value or ("",))[0]
    refused = driver is not None and driver.cuda_error == drivers.FORWARD_COMPAT_REFUSED
    if not refused and not (compat and any("GeForce" in name for name in names)):
        return
    yield fail(
        f"libcuda comes from {(found.value or ('a compat folder',))[0]}, not for {names[0] if names else 'this GPU'}.",
        evidence=(
            Evidence("libcuda.so.1", ", ".join(found.value or ()) or "not known", found.found_via),
            Evidence("cuInit", f"error {driver.cuda_error}" if driver and driver.cuda_error else "not asked"),
        ),
        remedy=(
            say(
                "Take the compat folder out of LD_LIBRARY_PATH and /etc/ld.so.conf.d, and upgrade the host's "
                "driver or take an image of an older CUDA."
            ),
        ),
        link="https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",
    )
