"""Checks of the architectures a build would be for: TORCH_CUDA_ARCH_LIST as it stands, and what torch makes of an unset one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from splatfix.checks.evidence import variable
from splatfix.checks.model import Evidence, Finding, Status
from splatfix.checks.registry import Check, check
from splatfix.checks.torch import own_archs
from splatfix.context import Context, Target
from splatfix.context.architectures import (
    own_choice,
    own_variables,
    understood,
    written,
)
from splatfix.core.step import Step, say, set_variable, unset_variable
from splatfix.core.versions import major_minor, release
from splatfix.facts import ArchVariable, Source, Torch
from splatfix.knowledge import Arch, drivers
from splatfix.knowledge.archs import cubin_runs_on, ptx_runs_on, toolkit_supports
from splatfix.knowledge.cpp_extension import (
    ArchEntry,
    ArchList,
    ArchListError,
    behaviour,
    expand_arch_list,
    visible_gpu_arch_list,
)

_NAME = "TORCH_CUDA_ARCH_LIST"


@check("arch-list-malformed", family="build", title="TORCH_CUDA_ARCH_LIST is written as torch reads it")
def arch_list_malformed(context: Context, this: Check) -> Iterator[Finding]:
    """torch splits TORCH_CUDA_ARCH_LIST at ';' and blanks, knows a fixed list of numbers and names, and stops every build at
    anything else: "Unknown CUDA arch (8.6；8.9) or GPU not supported" for a full-width semicolon, a comma, `sm_86`, a
    trailing ';'. fused-ssim's CUDA_ARCHITECTURES and tiny-cuda-nn's TCNN_CUDA_ARCHITECTURES want plain numbers (120, not
    12.0+PTX). Source: `_get_cuda_arch_flags` of torch/utils/cpp_extension.py, which a test holds this against."""
    text, torch = context.variables.get(_NAME), context.torch
    if text and torch is not None and context.torch_cuda is not None:
        result = expand_arch_list(text, torch.version)
        evidence = (variable(context, _NAME),)
        known_after_all = isinstance(result, ArchListError) and _may_be_known(result.item, torch)
        if isinstance(result, ArchListError) and not known_after_all:
            yield this.fail(
                f"torch {torch.version} stops every build at {_NAME}={text!r}: {_what_is_wrong(result.item)}.",
                evidence=(
                    *evidence,
                    Evidence("torch says", result.exception, "rules of torch/utils/cpp_extension.py"),
                ),
                remedy=_mended(context, text, torch),
            )
        elif isinstance(result, ArchList):
            yield this.ok(f"torch reads {_NAME} as {' '.join(map(str, result.entries))}.", evidence=evidence)
    read = {
        own.name: (own, item.source.label)
        for item in context.sources_to_build
        for own in own_variables(item.source)
    }
    for name, (own, label) in read.items():
        value = context.variables.get(name)
        if value and not understood(own, value):
            wanted = [arch for text in _items(value) if (arch := Arch.known(text))]
            form = f"{'compute capabilities such as' if own.dotted else 'plain numbers such as'} {written(own, [Arch(8, 6)])}"
            yield this.fail(
                f"{label} reads {form} from {name}, not {value!r}.",
                subject=name,
                evidence=variable(context, name),
                remedy=set_variable(name, written(own, wanted)) if wanted else unset_variable(name),
            )


@check(
    "arch-list-unbuildable",
    family="build",
    title="The toolkit compiles for every entry of TORCH_CUDA_ARCH_LIST",
)
def arch_list_unbuildable(context: Context, this: Check) -> Iterator[Finding]:
    """One entry that nvcc does not know ends the build for all: "nvcc fatal: Unsupported gpu architecture 'compute_60'"
    (dropped by CUDA 13) or 'compute_120' (unknown before 12.8). nvcc's own list decides."""
    toolkit, entries = context.build_toolkit, _entries(context)
    if toolkit is None or not toolkit.archs or not entries:
        return
    cuda = major_minor(toolkit.version) or (0, 0)
    # nvcc lists plain numbers only; from which release on it takes a letter is in the tables
    refused = [
        item
        for item in entries
        if item.arch.plain.sm not in toolkit.archs
        or (item.arch.variant and toolkit_supports(cuda, item.arch) is False)
    ]
    left = [item for item in entries if item not in refused]
    if refused:
        yield this.fail(
            f"nvcc {toolkit.version} does not compile for {', '.join(item.arch.sm for item in refused)}, which {_NAME} asks for.",
            evidence=(
                variable(context, _NAME),
                Evidence(toolkit.root, " ".join(toolkit.archs), "nvcc --list-gpu-code"),
            ),
            remedy=set_variable(_NAME, ";".join(map(str, left))) if left else _for_targets(context),
        )


@check(
    "arch-list-below-minimum",
    family="build",
    title="TORCH_CUDA_ARCH_LIST names only GPUs that the source supports",
)
def arch_list_below_minimum(context: Context, this: Check) -> Iterator[Finding]:
    """gsplat from 1.0 on and FastGS use cooperative groups that begin with compute capability 7.0. One older entry in the list
    stops the build on any machine: "namespace "cooperative_groups" has no member "labeled_partition""."""
    gsplat = context.distribution("gsplat")
    ahead = [name for name in context.builds_ahead if name == "gsplat" or name.endswith("_fastgs")]
    if gsplat and release(gsplat.version)[:1] < (1,):
        ahead = [name for name in ahead if name != "gsplat"]
    entries = _entries(context)
    old = [item for item in entries if release(item.arch.cc) < (7, 0)]
    left = [item for item in entries if item not in old]
    if ahead and old:
        yield this.fail(
            f"{ahead[0]} needs compute capability 7.0; {_NAME} asks for {', '.join(map(str, old))} as well.",
            subject=ahead[0],
            evidence=variable(context, _NAME),
            remedy=set_variable(_NAME, ";".join(map(str, left))) if left else _for_targets(context),
        )


@check("arch-list-misses-gpu", family="build", title="TORCH_CUDA_ARCH_LIST has code for the GPU")
def arch_list_misses_gpu(context: Context, this: Check) -> Iterator[Finding]:
    """A list left over from another machine or a container image builds extensions that this GPU cannot run: no machine code
    of its major, and no PTX that its driver can compile. Nothing says so before the first kernel."""
    entries = _entries(context)
    toolkit = context.build_toolkit
    ptx = drivers.ptx_isa_of_cuda(major_minor(toolkit.version) or (0, 0)) if toolkit else None
    for target in context.targets if entries else ():
        if not any(_serves(item, target, context, ptx) for item in entries):
            yield this.warn(
                f"{_NAME}={context.variables[_NAME]} builds nothing that {target.label} can run.",
                subject=target.label,
                evidence=Evidence(_NAME, " ".join(map(str, entries)), "environment variable"),
                remedy=_for_targets(context),
            )


@check("arch-clamped", family="build", title="torch's builder does not clamp the GPU's architecture")
def arch_clamped(context: Context, this: Check) -> Iterator[Finding]:
    """With TORCH_CUDA_ARCH_LIST unset torch compiles for the visible GPUs, but clamps each to the newest architecture of its
    own code: an RTX 5090 beside a torch that ends at sm_90 gets "9.0+PTX", which is compiled at the first use and
    lacks everything that is newer. A list that is set is not clamped. Source: `_get_cuda_arch_flags` (torch 2.0 to 2.15)."""
    torch, wanted = context.torch, context.own_targets
    if context.variables.get(_NAME, "native") != "native" or context.goal.targets:
        return
    if torch is None or not torch.code or not wanted or context.has_working_gpu is not True:
        return
    result = visible_gpu_arch_list([item.arch for item in wanted], own_archs(torch), torch.version)
    evidence = (
        variable(context, _NAME),
        Evidence("torch's own code", " ".join(own_archs(torch)), "fat binaries of libtorch_cuda"),
    )
    # a GPU whose number torch does not know at all is told by arch-unknown-to-torch
    if isinstance(result, ArchListError) and result.item in own_archs(torch):
        yield this.fail(
            f"torch {torch.version} cannot work out the GPUs' architectures ({result.exception}).",
            evidence=evidence,
            remedy=_for_targets(context),
        )
    if not isinstance(result, ArchList):
        return
    for target in wanted:
        own = context.judge(torch.code, target.arch)
        if own.usable and not any(cubin_runs_on(arch, target.arch) for arch in result.cubins):
            yield this.warn(
                f"torch {torch.version} would build for {' '.join(map(str, result.entries))} instead of {target.label}.",
                subject=target.label,
                evidence=evidence,
                remedy=_for_targets(context),
            )


@check("no-gpu-at-build", family="build", title="The build knows which GPU to compile for")
def no_gpu_at_build(context: Context, this: Check) -> Iterator[Finding]:
    """With TORCH_CUDA_ARCH_LIST unset and no GPU visible (docker build, a login node, CI) torch's builder ends in "IndexError:
    list index out of range"; fused-ssim falls back to 7.5, 8.0 and 8.9 without PTX. Source: `_get_cuda_arch_flags`.
    `splatfix install --target` sets the list itself."""
    if context.torch_cuda is None or context.has_working_gpu is not False or not context.toolkits:
        return
    gpus = Evidence("GPUs", "none that torch would see", context.machine.gpus.found_via)
    for item in context.sources_to_build:
        own = _own_choice(item.source, context)
        # arch-list-ignored names it for the targets
        if own and not context.targets and not context.variables.get(own.name):
            yield this.warn(
                f"No GPU is visible and {own.name} is not set: a build of {item.source.label} would not know which GPU to "
                "compile for.",
                subject=item.path,
                evidence=(variable(context, own.name), gpus),
                remedy=say(
                    f"Set {own.name} to the GPU that is meant, e.g. {written(own, [Arch(12, 0)])} for an RTX 50 card."
                ),
            )
    if context.variables.get(_NAME, "native") != "native":
        return
    by_themselves = {
        item.source.label for item in context.sources_to_build if _own_choice(item.source, context)
    }
    ahead = [name for name in context.builds_ahead if name not in by_themselves]
    what = f" of {', '.join(ahead)}" if ahead else ""
    if ahead or not by_themselves:
        yield this.finding(
            Status.WARN if ahead else Status.SKIP,
            f"No GPU is visible and {_NAME} is not set: a build{what} would not know which GPU to compile for.",
            evidence=(variable(context, _NAME), gpus),
            remedy=_for_targets(context),
        )


def _own_choice(source: Source, context: Context) -> ArchVariable | None:
    found = own_choice(source, context.archs, context.torch.version if context.torch else "2.9")
    return found[0] if found else None


def _entries(context: Context) -> tuple[ArchEntry, ...]:
    """What the variable asks torch for; () when it is unset or not understood."""
    torch = context.torch
    text = context.variables.get(_NAME)
    if not text or torch is None or context.torch_cuda is None:
        return ()
    result = expand_arch_list(text, torch.version)
    return result.entries if isinstance(result, ArchList) else ()


def _serves(item: ArchEntry, target: Target, context: Context, ptx: tuple[int, int] | None) -> bool:
    if cubin_runs_on(item.arch, target.arch):
        return True
    level = major_minor(context.driver_level(target.arch))
    fits = drivers.ptx_jit_ok(ptx, level) if ptx and level else None
    return item.ptx and ptx_runs_on(item.arch, target.arch) and fits is not False


def _may_be_known(item: str, torch: Torch) -> bool:
    """The installed torch itself lists the number; or it is newer than splatfix's tables, and the item looks like a name."""
    rules = behaviour(torch.version)
    newer = rules is None or not rules.same_minor
    return item.removesuffix("+PTX") in torch.knows_archs or (
        newer and re.fullmatch(r"[A-Z][a-z]+(\+\w+)*", item) is not None
    )


def _what_is_wrong(item: str) -> str:
    if not item:
        return "an entry is empty (a ';' at the end, or two separators in a row)"
    if not item.isascii():
        return f"{item!r} has a full-width or foreign character in it"
    if re.search(r"[,:/]", item):
        return f"{item!r} is one entry to torch, which separates by ';' or blanks"
    if re.fullmatch(r"(sm_|compute_)?\d{2,3}[af]?(\+PTX)?", item):
        return f"{item!r} is not written as 8.6"
    return f"{item!r} is not one that this torch knows"


def _mended(context: Context, text: str, torch: Torch) -> tuple[Step, ...]:
    """The list as it was meant, where torch would take that; else without the entries that torch does not know."""
    words = [word for word in re.split(r"[^\w.+]+", text) if word]
    dotted = [re.sub(r"^(?:sm_|compute_)?(\d{1,2})(\d[af]?)(\+PTX)?$", r"\1.\2\3", word) for word in words]
    good = [word for word in dotted if isinstance(expand_arch_list(word, torch.version), ArchList)]
    if good:
        return (set_variable(_NAME, ";".join(dict.fromkeys(good))),)
    return (unset_variable(_NAME), say("Without it torch compiles for the GPUs that it sees."))


def _items(value: str) -> Iterator[str]:
    """``8.6+PTX;sm_120`` -> 8.6, 12.0"""
    yield from (f"{a}.{b}" for a, b in re.findall(r"(\d{1,2})\.?(\d[af]?)(?!\d)", value))


def _for_targets(context: Context) -> Step:
    wanted = context.targets
    if not wanted:
        return say(
            f"Set {_NAME} to the compute capability of the GPU that is meant, e.g. 12.0 for an RTX 50 card."
        )
    return set_variable(_NAME, ";".join(sorted({item.arch.cc for item in wanted})))
