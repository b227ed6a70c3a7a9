"""Checks of the installed torch: a CUDA build, with code for the GPU, that fits numpy and its companions."""

import re
from collections.abc import Iterator

from splatfix.checks.evidence import reason, set_or_unset, torch_cuda, torch_version, variable, version_of
from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context, Target
from splatfix.context.commands import pip, python_option
from splatfix.context.coverage import code_words
from splatfix.context.imports import pip_arguments
from splatfix.context.installed import torch_family
from splatfix.context.torch_wheels import builds_for
from splatfix.core.proof import RungName
from splatfix.core.step import Step, run, say, set_variable
from splatfix.core.versions import release
from splatfix.knowledge import torch_releases
from splatfix.knowledge.archs import Arch, newest_serving
from splatfix.knowledge.cpp_extension import ArchListError
from splatfix.model import Evidence, Finding, Pin, Status

check = checks_of("torch")


@check("torch-missing", "torch is installed", bears_on=RungName.RESOLVED)
def torch_installed(context: Context, this: Check) -> Iterator[Finding]:
    """Every splatting stack needs torch. splatfix reads its version and build from its own files."""
    installed, torch = context.environment.torch_installed, context.environment.torch
    if installed.absent:
        return  # no environment at all
    if installed.value is None:
        yield this.unknown(
            "Could not determine whether torch is installed.", evidence=reason(installed.error)
        )
    elif not installed.value:
        yield this.fail(
            "torch is not installed in this environment.",
            evidence=Evidence("torch", "not found", installed.found_via),
            remedy=(
                "Diagnose another environment: splatfix diagnose --python path/to/venv",
                *torch_for(context, context.targets),
            ),
        )
    elif torch.value is None:
        yield this.fail(
            f"torch's files are damaged: {torch.error}.",
            evidence=Evidence("torch", torch.error, torch.found_via),
            remedy="Reinstall torch in this environment.",
        )
    else:
        build = "CPU"
        if torch.value.cuda:
            build = f"CUDA {torch.value.cuda}"
        elif torch.value.hip:
            build = f"ROCm {torch.value.hip}"
        yield this.ok(
            f"torch {torch.value.version}, a {build} build",
            evidence=Evidence("torch", f"{torch.value.version} in {torch.value.folder}", torch.found_via),
        )


@check("torch-import-fails", "torch can be imported")
def torch_imports(context: Context, this: Check) -> Iterator[Finding]:
    """Importing torch takes seconds, so it is done only with `--imports`, or when torch's files do not look as pip left
    them. It happens in a child process: a crash or hang there is this finding."""
    for probe in context.environment.imports:
        if probe.module != "torch":
            continue
        result = ": ".join(filter(None, (probe.outcome, probe.detail)))
        evidence = Evidence("import torch", result, "child process")
        if probe.ok:
            yield this.ok(f"torch imports ({probe.seconds:.1f} s).", evidence=evidence)
        else:
            yield this.fail(
                f"Importing torch fails ({probe.outcome}): {probe.detail}",
                evidence=evidence,
                remedy="Reinstall torch in this environment, then rebuild the extensions.",
            )


@check("cpu-only-torch", "torch is a CUDA build", gpu_code=True)
def cpu_only_torch(context: Context, this: Check) -> Iterator[Finding]:
    """A CPU build of torch (`torch.version.cuda` is None) can neither run nor build CUDA extensions: its cpp_extension
    sets no CUDA_HOME even where a toolkit is installed. It is what `pip install torch` gives on Windows. A ROCm build is
    no better where an NVIDIA GPU is meant."""
    torch = context.torch
    if torch is None or torch.cuda:
        return
    gpu = " or ".join(map(str, context.goal.targets))
    if context.nvidia_gpus:
        gpu = "this machine's GPU"
    if gpu:
        yield this.fail(
            f"torch {torch.version} is a {torch.built_for} build: it cannot use {gpu} nor build CUDA extensions.",
            evidence=torch_cuda(context),
            remedy=torch_for(context, context.targets),
        )
    elif not torch.hip:  # ROCm on an AMD machine that nobody asked to serve NVIDIA's is as it should be
        kind = "torch is a CPU build, which suits a machine without a GPU"
        if context.machine.system == "darwin":
            kind = "torch for macOS computes on the CPU and on Metal (MPS)"
        yield this.skip(f"{kind}; CUDA extensions cannot be built with it.", evidence=torch_cuda(context))


@check("torch-arch-unsupported", "torch has code for the GPU", bears_on=RungName.RESOLVED, gpu_code=True)
def torch_arch_unsupported(context: Context, this: Check) -> Iterator[Finding]:
    """Reads the fat binaries of `libtorch_cuda` and judges every fatbin against each GPU: a cubin of the same major
    and no newer minor runs (sm_89 runs the 8.6 code, sm_121 the 12.0 code), and so does PTX that the driver can compile.
    Without either, the first kernel ends in "no kernel image is available for execution on the device"."""
    torch = context.torch
    if torch is None or not torch.cuda:
        return
    if torch.code_error or not torch.code:
        yield this.unknown(
            "What GPU code torch carries could not be read.",
            evidence=Evidence("libtorch_cuda", torch.code_error or "no fat binary in it"),
        )
        return
    evidence = Evidence("libtorch_cuda", code_words(torch.code), "fat binaries read as bytes")
    for target in context.targets:
        verdict = context.judge(torch.code, target.arch)
        if verdict.usable:
            report = this.ok
            # for a GPU elsewhere its driver stays open by nature; for one of this machine that is a gap
            if verdict.runs is None and not context.goal.targets:
                report = this.unknown
            yield report(f"torch {torch.version} {verdict.reason}.", subject=target.label, evidence=evidence)
            continue
        lacking = f"code for {target.label}"
        if verdict.too_new_ptx and not verdict.missing:
            lacking = f"machine code for {target.label}, and {verdict.reason}"
        yield this.fail(
            f"torch {torch.version} has no {lacking}.",
            subject=target.label,
            evidence=evidence,
            remedy=torch_for(context, (target,)),
        )


@check("arch-unknown-to-torch", "torch can build extensions for the GPU", gpu_code=True)
def arch_unknown_to_torch(context: Context, this: Check) -> Iterator[Finding]:
    """`TORCH_CUDA_ARCH_LIST` is checked against a list inside torch; an architecture that is not in it ends the build
    with "Unknown CUDA arch (x) or GPU not supported", whatever the toolkit could do. That stops nobody where torch knows an
    older number of the same major, whose code runs as it is: torch 1.13 builds 8.6 for an RTX 4090."""
    torch = context.torch
    if torch is None or not torch.cuda or not torch.knows_archs:
        return
    evidence = Evidence("supported_arches", " ".join(torch.knows_archs), "torch/utils/cpp_extension.py")
    for target in context.targets:
        if target.arch.cc in torch.knows_archs:
            continue
        older = newest_serving(Arch.known_among(torch.knows_archs), target.arch)
        if older is None:
            yield this.fail(
                f"torch {torch.version} refuses to build for {target.label}: {target.arch.cc} is not in its list.",
                subject=target.label,
                evidence=evidence,
                remedy=torch_for(context, (target,)),
            )
            continue
        status, consequence = Status.SKIP, ""
        if not context.goal.targets and isinstance(context.own_arch_list, ArchListError):
            status, consequence = Status.WARN, ", at which a build without an arch list stops"
        yield this.finding(
            status,
            f"torch {torch.version} does not know {target.arch.cc} by its number{consequence}; "
            f"{older.cc} is what to build, and runs on {target.label}.",
            subject=target.label,
            evidence=evidence,
            remedy=set_variable("TORCH_CUDA_ARCH_LIST", older.cc),
        )


def torch_for(context: Context, targets: tuple[Target, ...]) -> tuple[Step, ...]:
    """Say which torch build to install for these GPUs, as an exact pip command, intersected with driver and Python.

    One that serves all GPUs asked for comes first. Where there is none, the command is no command: it would take from
    one GPU what it gives to the other.
    """
    if not targets:
        command = ("splatfix", "diagnose", *python_option(context.facts), "--target", "ARCH")
        return (run(*command, text="Show the command that installs torch for your GPU"),)
    serves_all = context.torch_wheel
    best = serves_all
    if best is None:
        best = next(iter(builds_for(context.facts, [target.arch for target in targets])), None)
    if best is None:
        text = "No torch build in splatfix's tables supports these GPUs with this driver and Python together."
        return (say(text),)
    _, arguments = torch_releases.replacing_words(best.torch, best.tag, torch_family(context.facts))
    if serves_all:
        rebuild = "Then rebuild every CUDA extension"
        return (
            pip(context.facts, "install", *arguments),
            context.reinstall(*context.owners, text=rebuild, targets=targets),
        )
    labels = " and ".join(target.label for target in context.targets)
    alone = f"For {targets[0].arch.sm}, in an environment of its own"
    return (
        run(
            *("FOLDER/bin/python", "-m", "pip", "install", *arguments),
            text=f"No single torch build supports {labels}. {alone}",
        ),
        say(
            "Or keep to one kind of GPU here: CUDA_DEVICE_ORDER=PCI_BUS_ID and its number in CUDA_VISIBLE_DEVICES."
        ),
    )


def pinned_torch(context: Context) -> Pin | None:
    """Return the exact torch release that the checkout pins, where no torch is installed yet and the tables know the release."""
    if context.checkout is None or context.environment.torch_installed.value is not False:
        return None
    for pin in context.checkout.pins:
        if pin.name.lower() in ("torch", "pytorch") and pin.spec.startswith("=="):
            if torch_releases.release(pin.spec.removeprefix("==")):
                return pin
            return None
    return None


@check("numpy2-abi-mismatch", "torch is compatible with the installed numpy")
def numpy2_abi(context: Context, this: Check) -> Iterator[Finding]:
    """torch before 2.3 (2.4.1 on Windows) was compiled for numpy 1. With numpy 2 it warns "_ARRAY_API not found" at import,
    and from then on `torch.from_numpy` and `.numpy()` raise "Numpy is not available", which ends every data loader."""
    torch = context.torch
    numpy = context.distribution("numpy")
    if torch is None or numpy is None:
        return
    first = (2, 4, 1) if context.windows else (2, 3)
    evidence = (version_of(context, "numpy"), torch_version(context))
    if release(numpy.version) >= (2,) and release(torch.version.partition("+")[0]) < first:
        yield this.fail(
            f"torch {torch.version} was compiled for numpy 1; numpy {numpy.version} is installed.",
            evidence=evidence,
            remedy=pip(context.facts, "install", "numpy<2"),
        )
    else:
        yield this.ok(f"torch {torch.version} works with numpy {numpy.version}.", evidence=evidence)


@check("torch-companions-mismatch", "torchvision, torchaudio and triton match torch")
def torch_companions(context: Context, this: Check) -> Iterator[Finding]:
    """torchvision and torchaudio are compiled against one exact torch, torch against one exact triton; their metadata names
    it. Another one fails at import ("operator torchvision::nms does not exist") or at the first compiled kernel. The
    CUDA part of the version (`+cu128`) has to agree as well."""
    for pin in context.companion_pins:
        name, version, other = pin.owner.name.lower(), pin.owner.version, pin.other
        report = this.fail
        summary = f"{name} {version} was made for {other} {pin.expected}; {pin.installed} is installed."
        remedy: Step | str | tuple[Step, ...] = (
            f"Install the {name} that matches torch {context.torch_version}, from the same index, both in one pip command."
        )
        if pin.misfit == "patch":
            report = this.warn
        elif pin.misfit == "release" and other == "triton":
            remedy = pip(context.facts, "install", f"triton=={pin.expected}")
        elif pin.misfit == "release":
            remedy = pip(context.facts, "install", *pip_arguments(context.facts, (name,)))
        elif pin.misfit == "build":
            tag, local = version.partition("+")[2], pin.installed.partition("+")[2]
            summary = f"{name} is a {tag} build, torch a {local} build."
        else:
            report, remedy = this.ok, ()
            summary = f"{name} {version} fits {other} {pin.installed}."
        yield report(
            summary,
            subject=name,
            evidence=(
                Evidence(name, f"{version} wants {other}=={pin.expected}", "its metadata"),
                Evidence(other, pin.installed, context.environment.distributions.found_via),
            ),
            remedy=remedy,
        )


@check("alloc-conf-crash", "Allocator settings are supported by this torch")
def alloc_conf_crash(context: Context, this: Check) -> Iterator[Finding]:
    """PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True is refused by torch before 2.1 ("Unrecognized CachingAllocator option"),
    hits assertions together with max_split_size_mb or garbage_collection_threshold before 2.6 ("!block->expandable_segment_
    INTERNAL ASSERT FAILED"), and is ignored on Windows. Alone it is an experimental setting: rasterizers and simple-knn
    allocate beside torch (thrust, cudaMalloc), so it is the first thing to take out when a kernel reports an illegal access.
    Source: pytorch#119452, pytorch#123548, pytorch PR#134338, wild-gaussians#16."""
    torch = context.torch
    if torch is None or context.torch_cuda is None:
        return
    # both names are read into one setting; the first that is set decides
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        value = context.variables.get(name, "")
        if re.search(r"expandable_segments:\s*true", value, re.IGNORECASE):
            break
    else:
        return
    version = release(torch.version)[:2]
    clash = re.search(r"max_split_size_mb|garbage_collection_threshold", value)
    status = Status.SKIP
    summary = "expandable_segments is on: take it out first when a kernel reports an illegal memory access."
    if version < (2, 1):
        status = Status.FAIL
        summary = f"torch {torch.version} does not support expandable_segments and stops at its first use of the GPU."
    elif clash and version < (2, 6):
        status = Status.WARN
        summary = (
            f"expandable_segments with {clash.group(0)} crashes the allocator of torch {torch.version} "
            "when memory is short."
        )
    elif context.windows:
        summary = "expandable_segments is not supported on Windows and ignored."
    others = ",".join(part for part in value.split(",") if "expandable_segments" not in part)
    yield this.finding(
        status,
        summary,
        evidence=(variable(context, name), torch_version(context)),
        remedy=set_or_unset(name, others),
    )


@check("msvc-runtime-missing", "The Visual C++ runtime is installed")
def msvc_runtime_missing(context: Context, this: Check) -> Iterator[Finding]:
    """torch's Windows wheels load vcruntime140_1.dll and msvcp140.dll from System32. Without the Visual C++ redistributable
    `import torch` ends in "[WinError 126] The specified module could not be found. Error loading c10.dll". Source: torch's
    own message in torch/__init__.py, which asks for the redistributable."""
    missing, python = context.machine.missing_msvc_runtime, context.interpreter
    if context.torch is None or not missing.value or (python is not None and python.kind == "conda"):
        return  # conda's Python brings its own copy
    names = ", ".join(missing.value)
    yield this.warn(
        f"{names} of the Visual C++ redistributable is not in System32.",
        evidence=Evidence("System32", f"lacks {names}", missing.found_via),
        remedy="Install the Visual C++ redistributable: https://aka.ms/vs/17/release/vc_redist.x64.exe",
    )
