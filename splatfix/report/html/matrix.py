"""The page of many certificates: the matrix, and their failures by cause."""

from collections.abc import Sequence

from splatfix.report import merged
from splatfix.report.forms import writes
from splatfix.report.html.page import page
from splatfix.report.merging import Listed, MergeDocument
from splatfix.report.view import VERDICTS

MOST_LINKS = 20
"""Of one cell or group; the JSON document has all."""


@writes(MergeDocument, "html")
def matrix_page(document: MergeDocument) -> str:
    """Return merged certificates as one HTML file."""
    order = list(VERDICTS)

    def failed_first(entries: Sequence[Listed]) -> Sequence[Listed]:
        return sorted(entries, key=lambda item: order.index(item.verdict))[:MOST_LINKS]

    return page(
        "certificates.html",
        document=document,
        heading=merged.title(document),
        badges=merged.badges(document),
        tables=merged.tables(document),
        badge_of=merged.badge_of,
        cause=merged.cause,
        rows_of=merged.rows_of,
        not_read=merged.not_read(document),
        verdicts=VERDICTS,
        failed_first=failed_first,
        most_links=MOST_LINKS,
        data="certificates.json",  # which lies beside it
    )
