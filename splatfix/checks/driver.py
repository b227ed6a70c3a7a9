"""Checks of the NVIDIA driver: new enough for torch, whole, and the one that programs load."""

import shlex
from collections.abc import Iterator

from splatfix.checks.evidence import reason, start_with_gpu, variable
from splatfix.checks.registry import Blocks, Check, checks_of
from splatfix.context import Context
from splatfix.context.gpus import NO_DEVICE
from splatfix.core.proof import RungName
from splatfix.core.step import prepend_variable, run, say
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


@check("driver-too-old", bears_on=RungName.RESOLVED)
def driver_too_old(context: Context, this: Check) -> Iterator[Finding]:
    driver, cuda, torch = context.machine.driver.value, context.torch_cuda, context.torch
    # gpu-without-driver reports a missing driver
    if not context.nvidia_gpus or torch is None or cuda is None or driver is None:
        return
    if driver.version is None:
        yield this.unknown(evidence=Evidence("driver", "unknown", context.machine.driver.error))
        return
    floor = drivers.runtime_floor(cuda, context.platform or "linux")
    evidence = [
        Evidence("driver", driver.version, context.machine.driver.found_via),
        Evidence("torch", f"{torch.version} (CUDA {torch.cuda})", context.environment.torch.found_via),
    ]
    if floor is None:
        yield this.unknown("not-in-the-tables", evidence=evidence, torch=torch)
        return
    report, case, level = this.fail, "", major_minor(driver.cuda)
    if release(driver.version) >= floor:
        report = this.ok
    elif level and level[0] >= cuda[0] and driver.cuda_error is None:
        report, case = this.ok, "by-libcuda"
        libraries = ", ".join(context.machine.libcuda.value or ())
        evidence.append(Evidence("libcuda", f"CUDA {driver.cuda}", libraries))
    yield report(case, evidence=evidence, driver=driver, torch=torch, oldest=driver_words(floor))


@check("driver-library-mismatch", blocks=Blocks.SAME_VERSION, bears_on=RungName.RESOLVED)
def driver_library_mismatch(context: Context, this: Check) -> Iterator[Finding]:
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
    yield this.fail(
        evidence=Evidence("driver", "; ".join(signs), context.machine.driver.found_via),
        versions=versions,
        container=context.machine.container,
    )


@check("driver-library-missing", blocks=Blocks.DRIVER_LIBRARIES, bears_on=RungName.RESOLVED)
def driver_library_missing(context: Context, this: Check) -> Iterator[Finding]:
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
    case, start = "", start_with_gpu(context)
    if container:
        case = "in-container"
    yield this.fail(case, evidence=evidence, driver=driver, container=container, start=start)


@check("cuda-does-not-start", blocks=Blocks.START, bears_on=RungName.RESOLVED)
def cuda_does_not_start(context: Context, this: Check) -> Iterator[Finding]:
    cuda, driver = context.machine.cuda, context.machine.driver.value
    if driver is None or cuda == Fact():
        # gpu-without-driver reports a missing driver; facts saved by an older splatfix were not asked for this
        return
    if cuda.value:
        names = ", ".join(f"cuda:{index} {item.name}" for index, item in enumerate(cuda.value))
        evidence = Evidence("cuInit", names, cuda.found_via)
        yield this.ok(evidence=evidence, gpus=counted(len(cuda.value), "GPU"))
        return
    # cuInit succeeded and listed nothing: as torch sees it, no device
    code = driver.cuda_error
    if cuda.value is not None:
        code = NO_DEVICE
    if _start_told_elsewhere(context, driver, code):
        return
    if context.machine.container and driver.nvml_error == _UNKNOWN:
        # NVIDIA/nvidia-container-toolkit#48, NVIDIA/nvidia-docker#1730
        errors = Evidence("NVML and cuInit", f"errors {_UNKNOWN} and {code}")
        yield this.fail("lost-in-container", evidence=(errors, *_given(context)))
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
    cuda, driver, container = context.machine.cuda, context.machine.driver.value, context.machine.container
    evidence = (reason(cuda.error), *_given(context))
    if cuda.absent:
        return this.fail("no-libcuda", evidence=evidence, container=container)
    if code is None:
        return this.unknown(evidence=evidence)
    if code < 0:  # the child that called cuInit was ended by this signal
        return this.fail("crash", evidence=evidence, signal=-code)
    known, error = drivers.start_failure(code), f"error {code}"
    if known is not None:
        error += f" ({known.name})"
    evidence = (Evidence("cuInit", error, "child process"), *_given(context))
    files = context.machine.device_files.value
    # in a container and in WSL2 having no device files at all is another failure, with checks of its own
    own_module = files is not None and not (container or context.machine.wsl)
    # 801 is how a vGPU without unified memory answers, whose host decides on that
    if code != _NOT_SUPPORTED and "nvidia-uvm" not in (files or ()) and (files or own_module):
        return this.fail("no-uvm", evidence=evidence, code=code, container=container)
    if code == NO_DEVICE and all(gpu.mig and not gpu.mig_devices for gpu in context.nvidia_gpus):
        card = context.nvidia_gpus[0].index
        return this.fail("no-mig-instance", evidence=evidence, card=card, container=container)
    if code == NO_DEVICE and driver and driver.nvml_error == _NO_PERMISSION:
        known = drivers.start_failure(_OPERATING_SYSTEM)  # NVML says more than CUDA
    if known is None:
        return this.fail("strange", evidence=evidence, code=code)
    lines = known.remedy
    if container and known.container_remedy:
        lines = known.container_remedy
    steps = [run(*shlex.split(line[2:])) if line.startswith("$ ") else say(line) for line in lines]
    return this.fail(evidence=evidence, remedy=steps, code=code, means=known.means)


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


@check("wsl-wrong-libcuda", blocks=Blocks.LIBCUDA)
def wsl_wrong_libcuda(context: Context, this: Check) -> Iterator[Finding]:
    libcuda = context.machine.libcuda
    if not context.machine.wsl or not libcuda.value:
        return
    report = this.fail
    if "/wsl/" in libcuda.value[0]:
        report = this.ok
    evidence = Evidence("libcuda.so.1", ", ".join(libcuda.value), libcuda.found_via)
    to_front = prepend_variable("LD_LIBRARY_PATH", "/usr/lib/wsl/lib")
    yield report(evidence=evidence, first=libcuda.value[0], to_front=to_front)


@check("stub-libcuda-loaded", blocks=Blocks.LIBCUDA)
def stub_libcuda_loaded(context: Context, this: Check) -> Iterator[Finding]:
    libcuda = context.machine.libcuda
    if not libcuda.value or "/stubs/" not in libcuda.value[0] or len(libcuda.value) < 2:
        return  # without another one there is no driver here, and the stub does no harm
    loaded = Evidence("libcuda.so.1", ", ".join(libcuda.value), libcuda.found_via)
    yield this.fail(evidence=(loaded, variable(context, "LD_LIBRARY_PATH")), libcuda=libcuda)


@check("forward-compat-on-geforce", blocks=Blocks.LIBCUDA, bears_on=RungName.RESOLVED)
def forward_compat_on_geforce(context: Context, this: Check) -> Iterator[Finding]:
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
    listed = Evidence("libcuda.so.1", ", ".join(libraries) or "not known", via)
    yield this.fail(
        evidence=(listed, Evidence("cuInit", start)),
        library=next(iter(libraries), "a compat folder"),
        card=next(iter(names), "this GPU"),
    )
