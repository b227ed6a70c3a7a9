"""Checks of what a build of the checkout's CUDA code leaves out, and of the headers that the code includes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from splatfix.checks.evidence import file_of, torch_version, variable
from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context
from splatfix.core.step import Step, run, set_variable
from splatfix.knowledge.breakages import cures_of_include
from splatfix.model import CheckoutSource, Evidence, Finding, MissingHeader

check = checks_of("checkout")


@check("cuda-code-left-out")
def cuda_code_left_out(context: Context, this: Check) -> Iterator[Finding]:
    if context.torch_cuda is None:
        return
    for item in context.sources_to_build:
        switches, label = item.source.switches, item.source.label
        for name in switches.off:
            if context.variables.get(name, "0") not in ("", "0"):
                evidence, remedy = variable(context, name), set_variable(name, None)
                yield this.fail(subject=item.path, evidence=evidence, remedy=remedy, label=label, name=name)
        overridden = any(context.variables.get(name) == value for name, value in switches.on.items())
        if not switches.by_gpu or overridden or context.has_working_gpu is not False:
            continue
        remedy = context.install(item.source.folder)
        if switches.on:
            remedy = set_variable(*next(iter(switches.on.items())))
        yield this.warn(
            subject=item.path,
            evidence=(
                Evidence(file_of(item), "torch.cuda.is_available()", "its syntax tree"),
                Evidence("GPUs", "none that torch would see", context.machine.gpus.found_via),
            ),
            remedy=remedy,
            label=label,
        )


@check("headers-missing")
def headers_missing(context: Context, this: Check) -> Iterator[Finding]:
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
    uncured, edits = [], dict[str, None]()
    for header in headers:
        cures = cures_of_include(header.header)
        if cures:
            edits[next(iter(cures.values()))] = None
        else:
            uncured.append(header.header)
    includes = (
        Evidence(f"{item.path}/{header.file}:{header.line}", f"#include {header.header}", "its text")
        for header in headers
    )
    # what install takes out of its copy by itself is no problem of this machine's
    report = this.fail if uncured else this.warn
    yield report(
        subject=item.path,
        evidence=(*includes, searched),
        # the packages that bring them, or the known edits where each has one; else the part of the toolkit or of torch
        remedy=bring(headers) or None,
        label=item.source.label,
        names=", ".join(header.header for header in headers),
        owner=owner,
        first=headers[0],
        lacking=", ".join(uncured),
        edits="; ".join(edits),
        install=context.install(item.source.folder),
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
