"""Checks of what a build of the checkout's CUDA code leaves out, and of the headers that the code includes."""

from __future__ import annotations

from collections.abc import Iterator

from splatfix.checks.evidence import torch_version, variable
from splatfix.checks.model import Evidence, Finding
from splatfix.checks.registry import Check, check
from splatfix.context import Context
from splatfix.core.step import Step, say, set_variable, unset_variable
from splatfix.facts import CheckoutSource, MissingHeader
from splatfix.knowledge.breakages import breakages


@check("cuda-code-left-out", family="checkout", title="Builds do not leave their CUDA code out")
def cuda_code_left_out(context: Context, this: Check) -> Iterator[Finding]:
    """Many a setup.py asks torch.cuda.is_available() and takes CppExtension where it says no: in docker build, on a login node
    or in CI a package without GPU code comes out, and its first use on a GPU ends in "Not compiled with GPU support".
    FORCE_CUDA=1 (pytorch3d, torch_scatter, detectron2, mmcv, kaolin) or a variable like it overrides that; one such as
    FORCE_ONLY_CPU or BUILD_NO_CUDA asks for it. Both are read from the setup.py itself. `splatfix install` sets and unsets
    them."""
    if context.torch_cuda is None:
        return
    for item in context.sources_to_build:
        switches, name = item.source.switches, item.source.label
        for off in switches.off:
            if context.variables.get(off, "0") not in ("", "0"):
                yield this.fail(
                    f"{name} is built without its CUDA code: {off} is set.",
                    subject=item.path,
                    evidence=variable(context, off),
                    remedy=unset_variable(off),
                )
        said = any(context.variables.get(on) == value for on, value in switches.on.items())
        if not switches.by_gpu or said or context.has_working_gpu is not False:
            continue
        on, value = next(iter(switches.on.items()), ("", ""))
        yield this.warn(
            f"No GPU is visible, and {name} compiles its CUDA code only where torch sees one.",
            subject=item.path,
            evidence=(
                Evidence(_setup_py(item), "torch.cuda.is_available()", "its syntax tree"),
                Evidence("GPUs", "none that torch would see", context.machine.gpus.found_via),
            ),
            remedy=set_variable(on, value) if on else context.install(item.source.folder),
        )


def _setup_py(item: CheckoutSource) -> str:
    return "setup.py" if item.path == "." else f"{item.path}/setup.py"


@check("headers-missing", family="checkout", title="Headers that the sources include are there")
def headers_missing(context: Context, this: Check) -> Iterator[Finding]:
    """CUDA 13 removed cuda_texture_types.h and three more, torch 1.11 removed THC/THC.h, and a part of a toolkit can be left
    out: "fatal error: cuda_texture_types.h: No such file or directory", minutes into a build. Every include of the compiled
    files and of their own headers is looked for in the folders that this toolkit, this torch and the compiler have. Left out
    is what stands behind #if, what the source carries along, and every header that is neither CUDA's nor torch's."""
    toolkit = context.build_toolkit
    for item in context.sources_to_build:
        of_torch = [one for one in item.headers_missing if not one.toolkits]
        of_cuda = [one for one in item.headers_missing if toolkit and toolkit.root in one.toolkits]
        if of_cuda and toolkit:
            owner = Evidence(toolkit.root, f"CUDA {toolkit.version}, its include folders", "looked for there")
            yield _outcome(item, of_cuda, f"CUDA {toolkit.version}", owner, context, this)
        if of_torch and context.torch:
            yield _outcome(
                item, of_torch, f"torch {context.torch.version}", torch_version(context), context, this
            )


def _outcome(
    item: CheckoutSource,
    lost: list[MissingHeader],
    owner: str,
    evidence: Evidence,
    context: Context,
    this: Check,
) -> Finding:
    first = lost[0]
    return this.fail(
        f"{item.source.label} includes {', '.join(one.header for one in lost)}, which {owner} does not have "
        f"({first.file} line {first.line}).",
        subject=item.path,
        evidence=(
            *(
                Evidence(f"{item.path}/{one.file}:{one.line}", f"#include {one.header}", "its text")
                for one in lost
            ),
            evidence,
        ),
        remedy=tuple(_remedy(item, lost, context)),
    )


def _remedy(item: CheckoutSource, lost: list[MissingHeader], context: Context) -> Iterator[Step]:
    cures = {}
    for one in lost:
        line = f"#include <{one.header}>"
        known = (record for record in breakages() if record.edits and record.find)
        cures[one.header] = next(
            (record.cure for record in known if record.find and record.find.find(line)), ""
        )
    if all(cures.values()):
        yield say(
            f"In the source: {'; '.join(dict.fromkeys(cures.values()))}. Or let splatfix do it on a copy:"
        )
        yield context.install(item.source.folder)
        return
    unknown = ", ".join(header for header, cure in cures.items() if not cure)
    yield say(f"Install the part of it that holds {unknown}, or use a version of it that does.")
