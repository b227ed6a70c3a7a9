"""Names of nodes as Slurm's tools, pdsh and clush take them: ``gpu[001-128,200]``."""

import re
from collections.abc import Iterable, Iterator

# the last number of the first label: node12.rack3 counts by 12
_NUMBERED = re.compile(r"([A-Za-z0-9_.-]*?[A-Za-z_.-])(\d{1,9})((?:\.[A-Za-z0-9_.-]*)?)")


def folded(names: Iterable[str]) -> list[str]:
    """Names with those that differ in their number alone put together, in the order of their beginnings; the others as they are.

    Zeros before a number are kept: ``n8, n9, n10`` are ``n[8-10]``, and ``n08, n09, n10`` are ``n[08-10]``.
    """
    numbers: dict[tuple[str, str], set[str]] = {}
    others = []
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match:
            numbers.setdefault((match[1], match[3]), set()).add(match[2])
        else:
            others.append(name)
    lists = [name for key, digits in numbers.items() for name in _list(*key, digits)]
    return sorted(lists) + sorted(set(others))


def _list(before: str, after: str, digits: set[str]) -> Iterator[str]:
    """One list for each width of numbers with zeros before them, and one of the numbers without."""
    padded = {len(text) for text in digits if len(text) > 1 and text.startswith("0")}
    widths: dict[int, list[int]] = {}
    for text in digits:
        width = len(text) if len(text) in padded else 0
        widths.setdefault(width, []).append(int(text))
    for width, values in sorted(widths.items()):
        ranges = [
            f"{first:0{width}}" if first == last else f"{first:0{width}}-{last:0{width}}"
            for first, last in _runs(sorted(values))
        ]
        if len(values) == 1:
            yield f"{before}{ranges[0]}{after}"
        else:
            yield f"{before}[{','.join(ranges)}]{after}"


def _runs(values: list[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of numbers that follow each other."""
    first = last = values[0]
    for value in values[1:]:
        if value != last + 1:
            yield first, last
            first = value
        last = value
    yield first, last
