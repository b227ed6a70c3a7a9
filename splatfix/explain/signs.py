"""Looks in a log for what speaks for each failure: its wordings, from the programs that it is heard from."""

from collections.abc import Collection, Mapping

from msgspec import Struct

from splatfix.explain.judges import TESTS, Surroundings, toolkit_in
from splatfix.explain.log import Log
from splatfix.explain.model import Failure, Line
from splatfix.knowledge.failures import POINTS, Wording, failures
from splatfix.knowledge.tables import table


class Sign(Struct, frozen=True):
    """A line of a log that speaks for a failure."""

    wording: Wording
    points: int
    """Those of the wording, after its numbers were tested."""
    line: Line
    aside: bool = False
    """It is only warned of, and the log has an error."""
    values: Mapping[str, str] = {}
    """What the line was told, by the names of the wording's groups."""


def find_signs(log: Log, failure: Failure, toolkit: tuple[int, int] | None) -> dict[str, list[Sign]]:
    """What speaks for each failure, by its name; failures that nothing speaks for are left out.

    Args:
        toolkit: version of the nvcc that builds use, where facts tell it.
    """
    around = Surroundings(
        toolkit or toolkit_in(log.texts), "rasterizer-call" in log.observations, log.last_texts
    )
    signs: dict[str, list[Sign]] = {}
    observed = log.observations | failure.tags
    families = table("speakers")["families"]
    for name, known in failures().items():
        speakers = {member for named in known.speakers for member in families.get(named, (named,))}
        for wording in known.wordings:
            if not observed.issuperset(wording.all) or not observed.isdisjoint(wording.none):
                continue
            sign = _sign(wording, log, around, speakers)
            if sign is not None:
                signs.setdefault(name, []).append(sign)
    return signs


def _sign(wording: Wording, log: Log, around: Surroundings, speakers: Collection[str]) -> Sign | None:
    """The line that bears a wording out best; None where there is none, or something rules it out."""
    if not wording.possible_in(log.everything):
        return None
    best: Sign | None = None
    best_rank = (0, False, False)
    for line, text, low in zip(log.lines, log.texts, log.lower, strict=True):
        match = wording.search(text, low)
        # a line of which nobody knows who says it may be anybody's
        if match is None or (speakers and log.speakers.get(line.number, "") not in {"", *speakers}):
            continue
        aside, stops = line.number in log.warnings, line.number in log.stops
        points = POINTS[wording.says]
        if wording.test:
            points = round(points * TESTS[wording.test](text, match, around))
        rank = (points, not aside, stops)
        if points and rank > best_rank:
            values = {name: value for name, value in match.groupdict().items() if value}
            best, best_rank = Sign(wording, points, line, aside, values), rank
            if not wording.test and not aside and (stops or not log.stops):
                return best
    return best
