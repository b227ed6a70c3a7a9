"""Checks of what a build of the checkout's CUDA code leaves out, and of the headers that the code includes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from splatfix.checks.evidence import file_of, torch_version, variable
from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context
from splatfix.core.step import Step, run, say, set_variable
from splatfix.knowledge.breakages import cures_of_include
from splatfix.model import CheckoutSource, Evidence, Finding, MissingHeader

check = checks_of("checkout")


@check("cuda-code-left-out", "Builds do not leave their CUDA code out")
def cuda_code_left_out(context: Context, this: Check) -> Iterator[Finding]:
    """Many a setup.py asks torch.cuda.is_available() and takes CppExtension where it says no: in docker build, on a login node
    or in CI a package without GPU code comes out, and its first use on a GPU ends in "Not compiled with GPU support".
    FORCE_CUDA=1 (pytorch3d, torch_scatter, detectron2, mmcv, kaolin) or a variable like it overrides that; one such as
    FORCE_ONLY_CPU or BUILD_NO_CUDA asks for it. Both are read from the setup.py itself. `splatfix install` sets and unsets
    them."""
    if context.torch_cuda is None:
        return
    for item in context.sources_to_build:
        switches, label = item.source.switches, item.source.label
        for name in switches.off:
            if context.variables.get(name, "0") not in ("", "0"):
                yield this.fail(
                    f"{label} is built without its CUDA code: {name} is set.",
                    subject=item.path,
                    evidence=variable(context, name),
                    remedy=set_variable(name, None),
                )
        overridden = any(context.variables.get(name) == value for name, value in switches.on.items())
        if not switches.by_gpu or overridden or context.has_working_gpu is not False:
            continue
        remedy = context.install(item.source.folder)
        if switches.on:
            remedy = set_variable(*next(iter(switches.on.items())))
        yield this.warn(
            f"No GPU is visible, and {label} compiles its CUDA code only where torch sees one.",
            subject=item.path,
            evidence=(
                Evidence(file_of(item), "torch.cuda.is_available()", "its syntax tree"),
                Evidence("GPUs", "none that torch would see", context.machine.gpus.found_via),
            ),
            remedy=remedy,
        )


@check("headers-missing", "Headers that the sources include are there")
def headers_missing(context: Context, this: Check) -> Iterator[Finding]:
    """CUDA 13 removed cuda_texture_types.h and three more, torch 1.11 removed THC/THC.h, and a part of a toolkit can be left
    out: "fatal error: cuda_texture_types.h: No such file or directory", minutes into a build. Every include of the compiled
    files and of their own headers is looked for in the folders that this toolkit, this torch and the compiler have. Left out
    is what stands behind #if, what the source carries along, and every header that is neither CUDA's, torch's nor sparsehash's,
    Eigen's or Boost's. Of a build by CMake the packages of the system that its find_package(... REQUIRED) asks for count too, and
    what it finds by a FindX.cmake of its own and its README clones."""
    toolkit = context.build_toolkit
    for item in context.sources_to_build:
        if toolkit is not None:
            owner = f"CUDA {toolkit.version}"
            headers = [header for header in item.headers_missing if toolkit.root in header.toolkits]
            searched = Evidence(toolkit.root, f"{owner}, its include folders", "looked for there")
            yield from _missing_headers(context, this, item, headers, owner, searched)
        if context.torch is not None:
            # what neither a toolkit nor a package is named for is torch's
            here = [header for header in item.headers_missing if not header.address]
            headers = [header for header in here if not (header.toolkits or header.package or header.clone)]
            owner = f"torch {context.torch.version}"
            yield from _missing_headers(context, this, item, headers, owner, torch_version(context))
    for item in context.sources_not_built:
        here = [header for header in item.headers_missing if not header.address]
        headers = [header for header in here if header.package or header.clone]
        searched = Evidence("/usr/include", "and what setup.py and the environment name", "looked for there")
        yield from _missing_headers(context, this, item, headers, "this system", searched)


def _missing_headers(
    context: Context,
    this: Check,
    item: CheckoutSource,
    headers: list[MissingHeader],
    owner: str,
    searched: Evidence,
) -> Iterator[Finding]:
    if not headers:
        return
    names = ", ".join(header.header for header in headers)
    uncured = [header.header for header in headers if not cures_of_include(header.header)]
    # what install takes out of its copy by itself is no problem of this machine's
    report = this.warn
    if uncured:
        report = this.fail
    # the packages that bring them, or the known edits where each has one; else the part of the toolkit or of torch
    remedy = bring(headers)
    if not remedy and uncured:
        lacking = ", ".join(uncured)
        remedy = [say(f"Install the part of it that holds {lacking}, or use a version of it that does.")]
    elif not remedy:
        edits = dict.fromkeys(next(iter(cures_of_include(one.header).values())) for one in headers)
        remedy = [
            say(f"In the source: {'; '.join(edits)}. Or let splatfix do it on a copy:"),
            context.install(item.source.folder),
        ]
    includes = (
        Evidence(f"{item.path}/{header.file}:{header.line}", f"#include {header.header}", "its text")
        for header in headers
    )
    yield report(
        f"{item.source.label} includes {names}, which {owner} does not have "
        f"({headers[0].file} line {headers[0].line}).",
        subject=item.path,
        evidence=(*includes, searched),
        remedy=remedy,
    )


def bring(headers: Sequence[MissingHeader]) -> list[Step]:
    """The commands for packages of the system, and for what the README clones; none where neither brings anything."""
    steps = []
    if packages := dict.fromkeys(header.package for header in headers if header.package):
        steps.append(run("sudo", "apt-get", "install", *packages, text="On Debian and Ubuntu"))
    for header in headers:
        if header.clone:
            text = f"Build and install {header.header} first, as its README says"
            steps.append(run("git", "clone", "--recursive", header.clone, text=text, kind="clone"))
    return steps
