"""Checks of what a training meets at run time: the allocator's settings, several GPUs, import order, OpenGL."""

from __future__ import annotations

import re
from collections.abc import Iterator

from splatfix.checks.model import Evidence, Outcome, Status, fail, outcome, skip, warn
from splatfix.checks.registry import check
from splatfix.context import Context
from splatfix.core.step import say, set_variable, unset_variable
from splatfix.core.versions import release

_ALLOC = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_LOAD_ALONE = re.compile(r"(lib)?(torch|c10)")


@check("alloc-conf-crash", family="torch", title="The allocator's settings are ones this torch bears")
def alloc_conf_crash(context: Context) -> Iterator[Outcome]:
    """PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True is refused by torch before 2.1 ("Unrecognized CachingAllocator option"),
    hits assertions together with max_split_size_mb or garbage_collection_threshold before 2.6 ("!block->expandable_segment_
    INTERNAL ASSERT FAILED"), and is ignored on Windows. Alone it is an experimental setting: rasterizers and simple-knn
    allocate beside torch (thrust, cudaMalloc), so it is the first thing to take out when a kernel reports an illegal access.
    Source: pytorch#119452, pytorch#123548, pytorch PR#134338, wild-gaussians#16."""
    torch = context.torch
    for name in _ALLOC:
        text = context.machine.variables.get(name, "")
        if (
            torch is None
            or context.torch_cuda is None
            or not re.search(r"expandable_segments:\s*true", text, re.IGNORECASE)
        ):
            continue
        version = release(torch.version)[:2]
        clash = re.search(r"max_split_size_mb|garbage_collection_threshold", text)
        rest = ",".join(part for part in text.split(",") if "expandable_segments" not in part)
        evidence = (
            Evidence(name, repr(text), "environment variable"),
            Evidence("torch", torch.version, context.environment.torch.found_via),
        )
        remedy = (set_variable(name, rest) if rest else unset_variable(name),)
        if version < (2, 1):
            yield fail(
                f"torch {torch.version} does not know expandable_segments and stops "
                "at its first use of the GPU.",
                evidence=evidence,
                remedy=remedy,
            )
        elif clash and version < (2, 6):
            yield warn(
                f"expandable_segments with {clash.group(0)} crashes "
                f"the allocator of torch {torch.version} when memory is short.",
                evidence=evidence,
                remedy=remedy,
            )
        else:
            words = (
                "is not supported on Windows and ignored"
                if context.machine.system == "windows"
                else "is on: take it out first when a kernel reports an illegal memory access"
            )
            yield skip(
                f"expandable_segments {words}.",
                evidence=evidence,
                remedy=remedy,
            )
        return  # both names are read into one setting


@check("wrong-cuda-device", family="gpu", title="Extensions run on the GPU that the tensors are on")
def wrong_cuda_device(context: Context) -> Iterator[Outcome]:
    """simple-knn and the rasterizers of Inria's family launch on the current device, whatever device their tensors are on: with
    tensors on cuda:1 they end in "an illegal memory access". One visible GPU is the safe setting. Between different GPUs the
    number itself is ambiguous: nvidia-smi counts by bus, CUDA by speed, unless CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    cards = [gpu for gpu in context.machine.gpus.value or () if gpu.vendor == "nvidia"]
    variables = context.machine.variables
    chosen, order = variables.get("CUDA_VISIBLE_DEVICES"), variables.get("CUDA_DEVICE_ORDER")
    if len(cards) < 2:
        return
    mixed = len({gpu.name for gpu in cards}) > 1
    evidence = (
        Evidence(
            "GPUs", "; ".join(f"{gpu.index}: {gpu.name}" for gpu in cards), context.machine.gpus.found_via
        ),
        Evidence("CUDA_VISIBLE_DEVICES", chosen if chosen is not None else "not set", "environment variable"),
        Evidence(
            "CUDA_DEVICE_ORDER", order or "not set (CUDA puts the fastest first)", "environment variable"
        ),
    )
    by_number = chosen is not None and re.fullmatch(r"[\d,\s]+", chosen) is not None and chosen.strip() != ""
    if mixed and by_number and order != "PCI_BUS_ID":
        yield warn(
            f"CUDA_VISIBLE_DEVICES={chosen} counts by CUDA's order; nvidia-smi numbers these different GPUs by bus.",
            evidence=evidence,
            remedy=(set_variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),),
        )
    elif chosen is None or "," in chosen:
        yield skip(
            f"{len(cards)} GPUs are here: train on cuda:0, and choose by CUDA_VISIBLE_DEVICES which one that is.",
            evidence=evidence,
            remedy=(
                *((set_variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),) if mixed else ()),
                set_variable("CUDA_VISIBLE_DEVICES", str(cards[0].index)),
            ),
        )


@check("import-torch-first", family="extension", title="Extensions that find libtorch only after torch")
def import_torch_first(context: Context) -> Iterator[Outcome]:
    """Compiled modules link libc10 and libtorch without saying where they lie. Most packages import torch themselves before
    their compiled part; one that does not (simple_knn) must be imported after torch, else it ends in "libc10.so: cannot
    open shared object file". That is no illness, only an order to keep."""
    packages = {item.module: item for item in context.environment.packages.value or ()}
    for item in context.environment.extensions.value or ():
        owner = packages.get(item.path.rpartition("/")[0].replace("/", "."))
        if not item.importable or not item.links_torch or owner is None or owner.imports_torch is not False:
            continue
        asked = [name for name in item.needed if _LOAD_ALONE.match(name)]
        yield skip(
            f"Import torch before {owner.module}: it does not do so itself.",
            subject=owner.module,
            evidence=(
                Evidence(item.path, f"needs {', '.join(asked)}", "its dynamic section"),
                Evidence(f"{owner.module}/__init__.py", "no import of torch", "its text"),
            ),
            remedy=(say("Write import torch above it."),),
        )


@check("egl-missing", family="extension", title="OpenGL headers are here for nvdiffrast's GL rasterizer")
def egl_missing(context: Context) -> Iterator[Outcome]:
    """nvdiffrast's RasterizeGLContext is compiled at its first use and includes EGL/egl.h: "fatal error: EGL/egl.h: No such
    file or directory", or an undefined symbol eglCreateContext in its cached plugin. RasterizeCudaContext needs none of it; since
    0.3 it has a plugin of its own, so that only programs that ask for the GL one are stopped."""
    lost = context.machine.missing_graphics
    names = {item.name.lower(): item for item in context.environment.distributions.value or ()}
    asking = [
        item.source.label for item in context.sources_to_build if {"EGL", "GL"} & set(item.source.libraries)
    ]
    plugin = names.get("nvdiffrast")
    if not lost.value or (plugin is None and not asking):
        return
    urgent = bool(asking) or (plugin is not None and release(plugin.version)[:2] < (0, 3))
    yield outcome(
        Status.WARN if urgent else Status.SKIP,
        f"{asking[0] if asking else 'nvdiffrast'} compiles against OpenGL, and {', '.join(lost.value)} is not here.",
        evidence=(Evidence("headers", "not there: " + ", ".join(lost.value), lost.found_via),),
        remedy=(
            say(
                "Use nvdiffrast's RasterizeCudaContext, or install libegl1-mesa-dev, libgl1-mesa-dev and "
                "libgles2-mesa-dev, then remove nvdiffrast_plugin from torch's extension cache."
            ),
        ),
    )
