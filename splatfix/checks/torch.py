"""Checks of the installed torch: a CUDA build, with code for the GPU, that fits numpy and its companions."""

import re
from collections.abc import Iterator

from splatfix.checks.evidence import reason, torch_cuda, torch_version, variable, version_of
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
from splatfix.model import Evidence, Finding, Pin

check = checks_of("torch")


@check("torch-missing", bears_on=RungName.RESOLVED)
def torch_missing(context: Context, this: Check) -> Iterator[Finding]:
    installed, fact = context.environment.torch_installed, context.environment.torch
    torch = fact.value
    if installed.absent:
        return  # no environment at all
    if installed.value is None:
        yield this.unknown(evidence=reason(installed.error))
    elif not installed.value:
        evidence = Evidence("torch", "not found", installed.found_via)
        yield this.fail(evidence=evidence, install=torch_for(context, context.targets))
    elif torch is None:
        yield this.fail("damaged", evidence=Evidence("torch", fact.error, fact.found_via), error=fact.error)
    else:
        build = "CPU"
        if torch.cuda:
            build = f"CUDA {torch.cuda}"
        elif torch.hip:
            build = f"ROCm {torch.hip}"
        evidence = Evidence("torch", f"{torch.version} in {torch.folder}", fact.found_via)
        yield this.ok(evidence=evidence, torch=torch, build=build)


@check("torch-import-fails")
def torch_import_fails(context: Context, this: Check) -> Iterator[Finding]:
    for probe in context.environment.imports:
        if probe.module == "torch":
            result = ": ".join(filter(None, (probe.outcome, probe.detail)))
            report = this.fail
            if probe.ok:
                report = this.ok
            yield report(evidence=Evidence("import torch", result, "child process"), probe=probe)


@check("cpu-only-torch", gpu_code=True)
def cpu_only_torch(context: Context, this: Check) -> Iterator[Finding]:
    torch = context.torch
    if torch is None or torch.cuda:
        return
    gpu = " or ".join(map(str, context.goal.targets))
    if context.nvidia_gpus:
        gpu = "this machine's GPU"
    if gpu:
        remedy = torch_for(context, context.targets)
        yield this.fail(evidence=torch_cuda(context), remedy=remedy, torch=torch, gpu=gpu)
    elif not torch.hip:  # ROCm on an AMD machine that nobody asked to serve NVIDIA's is as it should be
        case = {"darwin": "macos"}.get(context.machine.system, "")
        yield this.skip(case, evidence=torch_cuda(context))


@check("torch-arch-unsupported", bears_on=RungName.RESOLVED, gpu_code=True)
def torch_arch_unsupported(context: Context, this: Check) -> Iterator[Finding]:
    torch = context.torch
    if torch is None or not torch.cuda:
        return
    if torch.code_error or not torch.code:
        yield this.unknown(evidence=Evidence("libtorch_cuda", torch.code_error or "no fat binary in it"))
        return
    evidence = Evidence("libtorch_cuda", code_words(torch.code), "fat binaries read as bytes")
    for target in context.targets:
        verdict = context.judge(torch.code, target.arch)
        report, case, remedy = this.ok, "usable", None
        if not verdict.usable:
            too_new = verdict.too_new_ptx and not verdict.missing
            report, case, remedy = this.fail, "too-new-ptx" if too_new else "", torch_for(context, (target,))
        # for a GPU elsewhere its driver stays open by nature; for one of this machine that is a gap
        elif verdict.runs is None and not context.goal.targets:
            report = this.unknown
        yield report(
            case,
            subject=target.label,
            evidence=evidence,
            remedy=remedy,
            torch=torch,
            target=target,
            verdict=verdict,
        )


@check("arch-unknown-to-torch", gpu_code=True)
def arch_unknown_to_torch(context: Context, this: Check) -> Iterator[Finding]:
    torch = context.torch
    if torch is None or not torch.cuda or not torch.knows_archs:
        return
    for target in context.targets:
        if target.arch.cc in torch.knows_archs:
            continue
        older = newest_serving(Arch.known_among(torch.knows_archs), target.arch)
        if older is None:
            report, remedy = this.fail, torch_for(context, (target,))
        else:
            report, remedy = this.skip, (set_variable("TORCH_CUDA_ARCH_LIST", older.cc),)
            if not context.goal.targets and isinstance(context.own_arch_list, ArchListError):
                report = this.warn
        listed = Evidence("supported_arches", " ".join(torch.knows_archs), "torch/utils/cpp_extension.py")
        yield report(
            subject=target.label, evidence=listed, remedy=remedy, torch=torch, target=target, older=older
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
    best = serves_all or next(iter(builds_for(context.facts, [target.arch for target in targets])), None)
    if best is None:
        text = "No torch build in splatfix's tables supports these GPUs with this driver and Python together."
        return (say(text),)
    _, arguments = torch_releases.replacing_words(best.torch, best.tag, torch_family(context.facts))
    if serves_all:
        again = context.reinstall(*context.owners, text="Then rebuild every CUDA extension", targets=targets)
        return (pip(context.facts, "install", *arguments), again)
    labels = " and ".join(target.label for target in context.targets)
    alone = f"No single torch build supports {labels}. For {targets[0].arch.sm}, in an environment of its own"
    keep = "Or keep to one kind of GPU here: CUDA_DEVICE_ORDER=PCI_BUS_ID and its number in CUDA_VISIBLE_DEVICES."
    return (run("FOLDER/bin/python", "-m", "pip", "install", *arguments, text=alone), say(keep))


def pinned_torch(context: Context) -> Pin | None:
    """Return the exact torch release that the checkout pins, where no torch is installed yet and the tables know the release."""
    if context.checkout is None or context.environment.torch_installed.value is not False:
        return None
    pins = (pin for pin in context.checkout.pins if pin.name.lower() in ("torch", "pytorch"))
    pin = next((pin for pin in pins if pin.spec.startswith("==")), None)
    if pin is None or torch_releases.release(pin.spec.removeprefix("==")) is None:
        return None
    return pin


@check("numpy2-abi-mismatch")
def numpy2_abi_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    torch, numpy = context.torch, context.distribution("numpy")
    if torch is None or numpy is None:
        return
    first, report = (2, 4, 1) if context.windows else (2, 3), this.ok
    if release(numpy.version) >= (2,) and release(torch.version.partition("+")[0]) < first:
        report = this.fail
    yield report(
        evidence=(version_of(context, "numpy"), torch_version(context)),
        torch=torch,
        numpy=numpy,
        older_numpy=pip(context.facts, "install", "numpy<2"),
    )


@check("torch-companions-mismatch")
def torch_companions_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    for pin in context.companion_pins:
        name, other = pin.owner.name.lower(), pin.other
        report, case, remedy = this.fail, "", None
        if not pin.misfit:
            report = this.ok
        elif pin.misfit == "patch":
            report = this.warn
        elif pin.misfit == "build":
            case = "other-build"
        elif other == "triton":
            remedy = pip(context.facts, "install", f"triton=={pin.expected}")
        else:
            remedy = pip(context.facts, "install", *pip_arguments(context.facts, (name,)))
        yield report(
            case,
            subject=name,
            evidence=(
                Evidence(name, f"{pin.owner.version} wants {other}=={pin.expected}", "its metadata"),
                Evidence(other, pin.installed, context.environment.distributions.found_via),
            ),
            remedy=remedy,
            name=name,
            pin=pin,
            tag=pin.owner.version.partition("+")[2],
            local=pin.installed.partition("+")[2],
            torch=context.torch_version,
        )


@check("alloc-conf-crash")
def alloc_conf_crash(context: Context, this: Check) -> Iterator[Finding]:
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
    report, case = this.skip, "ignored-on-windows" if context.windows else ""
    if version < (2, 1):
        report, case = this.fail, ""
    elif clash and version < (2, 6):
        report, case = this.warn, ""
    others = ",".join(part for part in value.split(",") if "expandable_segments" not in part)
    yield report(
        case,
        evidence=(variable(context, name), torch_version(context)),
        remedy=set_variable(name, others or None),
        torch=torch,
        clash=clash,
    )


@check("msvc-runtime-missing")
def msvc_runtime_missing(context: Context, this: Check) -> Iterator[Finding]:
    missing, python = context.machine.missing_msvc_runtime, context.interpreter
    if context.torch is None or not missing.value or (python is not None and python.kind == "conda"):
        return  # conda's Python brings its own copy
    names = ", ".join(missing.value)
    yield this.warn(evidence=Evidence("System32", f"lacks {names}", missing.found_via), names=names)
