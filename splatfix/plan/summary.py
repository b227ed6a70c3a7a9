"""What the sources that were named tell of themselves, as far as plans depend on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from splatfix.context import Context
from splatfix.context.imports import brought_by, missing_modules
from splatfix.core.errors import Rejected
from splatfix.core.step import PlainStep, Step, say
from splatfix.model import Facts
from splatfix.model.option import Native, Replacement, Request, SourceSummary
from splatfix.plan.checkout import (
    Incomplete,
    expected_extensions,
    incomplete,
    read_sources,
    variants_of_source,
)
from splatfix.plan.dropins import choose_dropins
from splatfix.plan.wheel_build import waits_for_gpu


def read_named(request: Request, facts: Facts | None = None) -> SourceSummary | Rejected:
    """Read the sources of a request, which are complete.

    Args:
        facts: of the machine, with the checkout as it was read already, if one of the sources is one.
    """
    read = read_sources(request.sources, facts, request=request)
    if isinstance(read, Rejected):
        return read
    if facts:
        # what an empty submodule of its own brings: it would be built, and taken back at its import
        for source in read.sources:
            lacking = missing_modules(facts, source.needs, brought=brought_by(read.sources)).unknown
            empty = [item.path for item in source.submodules if item.empty]
            if imported := [path for path in empty if Path(path).name in lacking]:
                return incomplete(source.label, Path(source.folder), imported, request)
    return SourceSummary(
        built_from={source.label: source for source in read.sources},
        variants={source.label: variants_of_source(source.folder) for source in read.sources},
        notes=read.notes,
    )


def summarise(
    sources: Sequence[str],
    context: Context | None = None,
    *,
    named: tuple[str, ...] = (),
    fetch: tuple[Step, ...] = (),
) -> SourceSummary:
    """Say what sources are, whether they can be built or not, and what stands in for them.

    Args:
        context: of the machine, with the checkout as it was read already, if one of the sources is one.
        named: what commands name as SOURCE.
        fetch: what ``--fetch-submodules`` fetches first, one step each.
    """
    facts = checkout = None
    if context:
        facts, checkout = context.facts, context.checkout
    replacement = choose_dropins(sources, checkout)
    if isinstance(replacement, Rejected):
        replacement = Replacement(native=(Native("", replacement.what.rstrip(".")),))
    read = read_named(Request(sources=tuple(sources)), facts)
    if isinstance(read, Incomplete):
        # what completes the sources: the commands of git, the first with what is lacking; else what is lacking alone
        to_complete = [say(read.what)]
        if read.fetch:
            to_complete = [PlainStep(read.what, read.fetch[0].command), *read.fetch[1:]]
        return SourceSummary(
            named=named,
            variants=expected_extensions(sources, checkout),
            replacement=replacement,
            prepare=fetch or tuple(to_complete),
            fetch=bool(fetch),
        )
    if isinstance(read, Rejected):
        return SourceSummary(replacement=replacement, refused=read)
    for source in read.built_from.values():
        waits = context and waits_for_gpu(source, context)
        if isinstance(waits, Rejected):
            return SourceSummary(replacement=replacement, refused=waits)
    return replace(read, named=named, replacement=replacement)
