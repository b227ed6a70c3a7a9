"""Checks of the headers that the checkout's extensions include, against the toolkit's and torch's own."""

from __future__ import annotations

from collections.abc import Iterator

from splatfix.checks.evidence import torch_version
from splatfix.checks.model import Evidence, Finding
from splatfix.checks.registry import Check, check
from splatfix.context import Context
from splatfix.core.step import Step, say
from splatfix.facts import CheckoutSource, MissingHeader
from splatfix.knowledge.breakages import breakages


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
