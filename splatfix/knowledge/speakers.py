"""Programs that speak in logs (``data/speakers.toml``): whose a line is, in which step, and how versions are written."""

from collections.abc import Mapping, Sequence

from splatfix.knowledge.log_patterns import LogPattern
from splatfix.knowledge.rows import decode
from splatfix.knowledge.tables import cached, table


class Speech(LogPattern, frozen=True, eq=False, kw_only=True):
    """How one program says that something failed."""

    by: str
    step: str = ""
    """``compile``, ``link``, ``resolve``...; "" where what stands around it tells."""
    kind: str = ""
    """``cause``: it makes everything else fail; ``weak``: what said it may have gone on; ``consequence``: of another failure."""
    any_case: bool = False


@cached
def speeches() -> Sequence[Speech]:
    """Every way to say it; the first that fits a line is meant."""
    return tuple(decode(Speech, row) for row in table("speakers")["says"])


@cached
def families() -> Mapping[str, tuple[str, ...]]:
    """Speakers that are of a kind, by its name."""
    return {name: tuple(members) for name, members in table("speakers")["families"].items()}


@cached
def version_patterns() -> Mapping[str, LogPattern]:
    """How each version is written in a log; the first group is the version."""
    rows = table("speakers")["versions"].items()
    return {name: LogPattern(text=text, any_case=False) for name, text in rows}
