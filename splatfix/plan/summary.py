"""What the sources that were named tell of themselves, as far as plans depend on it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from splatfix.context import Context
from splatfix.core.errors import Rejected
from splatfix.core.step import PlainStep, Step, say
from splatfix.model.option import Native, Replacement, Request, SourceSummary
from splatfix.plan.checkout import Incomplete, expected_extensions, read_sources
from splatfix.plan.dropins import choose_dropins
from splatfix.plan.wheel_build import waits_for_gpu


def summarise(
    sources: Sequence[str],
    context: Context | None = None,
    *,
    named: tuple[str, ...] = (),
    fetch: tuple[Step, ...] = (),
) -> SourceSummary:
    """Say what sources are, whether they can be built or not, and what stands in for them; ``named`` is what commands name as
    SOURCE, ``fetch`` what ``--fetch-submodules`` fetches first."""
    facts = checkout = None
    if context:
        facts, checkout = context.facts, context.checkout
    replacement = choose_dropins(sources, checkout)
    if isinstance(replacement, Rejected):
        replacement = Replacement(native=(Native("", replacement.what.rstrip(".")),))
    read = read_sources(sources, facts, request=Request(sources=tuple(sources)))
    if isinstance(read, Incomplete):
        # what completes the sources: the commands of git, the first with what is lacking; else what is lacking alone
        first, *others = [step for step in read.todo if step.command and step.kind != "fetch"] or [say("")]
        return SourceSummary(
            named=named,
            variants=expected_extensions(sources, checkout),
            replacement=replacement,
            prepare=fetch or (PlainStep(read.what, first.command), *others),
            fetch=bool(fetch),
        )
    if isinstance(read, Rejected):
        return SourceSummary(replacement=replacement, refused=read)
    for source in read.built_from.values():
        waits = context and waits_for_gpu(source, context)
        if isinstance(waits, Rejected):
            return SourceSummary(replacement=replacement, refused=waits)
    return replace(read, named=named, replacement=replacement)
