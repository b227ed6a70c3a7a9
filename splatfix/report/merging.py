"""Many certificates as one matrix (GPU, driver, torch, stack), and their failures grouped by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from splatfix.certify.model import Verdict
from splatfix.core.step import run
from splatfix.report.recorded import (
    PARTS,
    Fix,
    Problem,
    fix_of,
    gpu_of,
    mapping,
    natural,
    parts_of,
    problems_of,
    stack_of,
    text,
    trains,
    verdict_of,
)

MOST_VALUES = 5
"""Values of certified certificates that a group names."""


@dataclass(frozen=True)
class Listed:
    """What the matrix keeps of one certificate."""

    file: str
    """As it was named or found."""
    link: str
    """A relative URL from the merged report: to the certificate's page where there is one, else to the file."""
    verdict: Verdict
    issued: str
    suite: str
    problem: str
    """Kind and code of what failed first: ``criterion loss-falls``; "" for a certified one."""


@dataclass(frozen=True)
class Cell:
    """All certificates of one GPU, driver, torch and stack, the newest first."""

    gpu: str
    """Its name; ``CPU`` for runs on the CPU."""
    driver: str
    """"not used" for runs on the CPU."""
    torch: str
    stack: str
    """The renderer that was asked for, and the implementation that ran."""
    certificates: tuple[Listed, ...]

    def count(self, verdict: Verdict) -> int:
        """How many have that verdict."""
        return sum(item.verdict is verdict for item in self.certificates)


@dataclass(frozen=True)
class Group:
    """Certificates that are not of success, for one first problem and one first cause that differs."""

    kind: str
    code: str
    """Of the problem that comes first; see :class:`splatfix.report.recorded.Problem`."""
    means: str
    """What the problem means in practice; "" where no certificate says."""
    measured: str
    """What one of them measured."""
    also: tuple[str, ...]
    """What else failed in them."""
    part: str
    """The first part, in the order of :data:`splatfix.report.recorded.PARTS`, in which they differ from every certified
    certificate that is equal in the parts before it; "" where there is none."""
    label: str
    value: str
    certified_with: tuple[str, ...]
    """Values of that part in those certified ones."""
    in_common: tuple[str, ...]
    """What two or more of them all have, and not every certified certificate: ``driver 535.183.01``."""
    fix: Fix
    """One for all."""
    advised: int
    """How many of the certificates themselves advise it; 0 where none has any advice."""
    certificates: tuple[Listed, ...]


@dataclass(frozen=True)
class Merged:
    """The outcome of merging."""

    verdicts: Mapping[str, int]
    cells: tuple[Cell, ...]
    groups: tuple[Group, ...]
    """The largest first."""


@dataclass(frozen=True)
class _Read:
    """What merging needs of one certificate until all are read."""

    entry: Listed
    trains: bool
    """It was to train scenes."""
    place: tuple[str, str, str, str]
    parts: tuple[str, ...]
    """In the order of PARTS; "" for what was not recorded."""
    first: Problem | None
    others: tuple[str, ...]
    fix: Fix | None


_LOOK = Fix("look for the cause where it failed", (run("splatfix", "diagnose"),))

Node = dict[str, Any]
"""A tree of the parts of certified certificates: by the first part, then by the second, and so on."""


class Merger:
    """Takes certificates one by one, and keeps little of each."""

    def __init__(self) -> None:
        self._read: list[_Read] = []
        self._same: dict[Any, Any] = {}

    def add(self, file: str, link: str, document: Mapping[str, Any]) -> None:
        """Add a certificate.

        Raises:
            ValueError: it has no verdict.
        """
        problems = list(problems_of(document))
        first = problems[0] if problems else None
        problem = f"{first.kind} {first.code}" if first else ""
        issued, suite = text(document.get("issued")), text(document.get("suite"))
        entry = Listed(file, link, verdict_of(document), issued, self._one(suite), self._one(problem))
        environment, gpu = mapping(document.get("environment")), gpu_of(document)
        driver = "not used" if gpu == "CPU" else text(environment.get("driver"))
        place = (gpu, driver, text(environment.get("torch")), stack_of(document))
        known = parts_of(document)
        parts = tuple(self._one(known.get(part, "")) for part in PARTS)
        others = tuple(dict.fromkeys(item.code for item in problems if item.code != problems[0].code))
        kept = (
            self._one(item)
            for item in (place, parts, first, others, fix_of(document, first) if first else None)
        )
        self._read.append(_Read(entry, trains(document), *kept))

    def _one(self, value: Any) -> Any:
        """The same object for equal values: thousands of certificates hold few different ones."""
        return self._same.setdefault(value, value)

    def __len__(self) -> int:
        return len(self._read)

    def merged(self) -> Merged:
        """The matrix and the groups of all that were added."""
        verdicts = Counter(item.entry.verdict.value for item in self._read)
        return Merged(
            {item.value: verdicts[item.value] for item in Verdict},
            tuple(_cells(self._read)),
            tuple(sorted(_groups(self._read), key=lambda one: (-len(one.certificates), one.kind, one.code))),
        )


def _newest(entries: Iterable[Listed]) -> tuple[Listed, ...]:
    return tuple(sorted(entries, key=lambda item: item.issued, reverse=True))


def _cells(every: Sequence[_Read]) -> Iterable[Cell]:
    places: dict[tuple[str, str, str, str], list[Listed]] = {}
    for item in every:
        places.setdefault(item.place, []).append(item.entry)
    for place in sorted(places, key=lambda names: tuple(map(natural, (names[3], *names[:3])))):
        yield Cell(*place, _newest(places[place]))


def _groups(every: Sequence[_Read]) -> Iterable[Group]:
    # a diagnosis that passed shows nothing about a training that failed
    good = {
        kind: {item.parts for item in every if _good(item) and item.trains >= kind} for kind in (False, True)
    }
    trees = {kind: _tree(parts) for kind, parts in good.items()}
    certified_values = {
        kind: [set(values) for values in zip(*parts, strict=True)] for kind, parts in good.items()
    }
    causes: dict[tuple[bool, tuple[str, ...]], tuple[int, tuple[str, ...]]] = {}
    found: dict[tuple[str, str, int, str], list[_Read]] = {}
    for item in every:
        if _good(item):
            continue
        if (item.trains, item.parts) not in causes:
            causes[item.trains, item.parts] = _first_difference(item.parts, trees[item.trains])
        at, _ = causes[item.trains, item.parts]
        problem = (item.first.kind, item.first.code) if item.first else ("run", "no-reason-recorded")
        found.setdefault((*problem, at, item.parts[at] if at >= 0 else ""), []).append(item)
    labels = list(PARTS.items())
    for (kind, code, at, value), items in found.items():
        part, label = labels[at] if at >= 0 else ("", "")
        others = Counter(name for item in items for name in item.others)
        certified = Counter(name for item in items for name in causes[item.trains, item.parts][1])
        advice = Counter(item.fix for item in items if item.fix is not None)
        (fix, advised) = advice.most_common(1)[0] if advice else (_LOOK, 0)
        first = items[0].first
        yield Group(
            kind,
            code,
            first.why if first else "",
            first.measured if first else "",
            tuple(name for name, _ in others.most_common()),
            part,
            label,
            value,
            tuple(name for name, _ in certified.most_common(MOST_VALUES)),
            tuple(_in_common(items, certified_values[any(item.trains for item in items)]))
            if len(items) > 1
            else (),
            fix,
            advised,
            _newest(item.entry for item in items),
        )


def _tree(certified: Iterable[tuple[str, ...]]) -> Node:
    tree: Node = {}
    for parts in certified:
        node = tree
        for value in parts:
            node = node.setdefault(value, {})
    return tree


def _good(item: _Read) -> bool:
    return item.entry.verdict in (Verdict.CERTIFIED, Verdict.REHEARSED)


def _in_common(items: Sequence[_Read], certified: Sequence[set[str]]) -> Iterable[str]:
    """The parts in which these agree, and in which a certified certificate has another value."""
    found = zip(PARTS.values(), zip(*(item.parts for item in items), strict=True), certified, strict=False)
    for label, values, others in found:
        if len(set(values)) == 1 and values[0] and others - {"", values[0]}:
            yield f"{label} {values[0]}"


def _first_difference(parts: Sequence[str], tree: Node) -> tuple[int, tuple[str, ...]]:
    """The place of the first part in which this differs from every certified certificate that is equal before it, and
    what those have there; -1 where there is none. What one of the two did not record does not differ."""
    nodes = [tree] if tree else []
    for at, value in enumerate(parts):
        if not nodes:
            break
        deeper = [child for node in nodes for name, child in node.items() if not value or name in (value, "")]
        if not deeper:
            return at, tuple(dict.fromkeys(name for node in nodes for name in node))[:MOST_VALUES]
        nodes = deeper
    return -1, ()
