"""Many certificates as one matrix (GPU, driver, torch, stack), and their failures grouped by cause."""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from splatfix.certify.model import Outcome, Verdict
from splatfix.core.step import run
from splatfix.report.recorded import (
    PARTS,
    Fix,
    Problem,
    StoredCertificate,
    fix_of,
    natural,
    problems_of,
    short,
)

T = TypeVar("T", bound=Hashable)

MOST_VALUES = 5
"""Values of certified certificates that a group names."""


class Listed(Struct, frozen=True):
    """What the matrix keeps of one certificate."""

    file: str
    """As it was named or found."""
    link: str
    """A relative URL from the merged report: to the certificate's page where there is one, else to the file."""
    verdict: Verdict
    level: int | None
    """The run level; 1 and 2 train nothing."""
    issued: str
    suite: str
    problem: str
    """Kind and code of what failed first: ``criterion loss-falls``; "" for a certified one."""
    sha256: str
    """Of the file."""

    @property
    def name(self) -> str:
        """Its report folder, or its file where that has another name."""
        return re.sub(r"[/\\]certificate\.json\Z", "", self.file)


class Cell(Struct, frozen=True):
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


class Group(Struct, frozen=True):
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


class Merged(Struct, frozen=True):
    """The outcome of merging."""

    verdicts: Mapping[str, int]
    cells: tuple[Cell, ...]
    groups: tuple[Group, ...]
    """The largest first."""


class _Summary(Struct, frozen=True):
    """What merging needs of one certificate until all are read."""

    entry: Listed
    trains: bool
    """It was to train scenes."""
    cell: tuple[str, str, str, str]
    """GPU, driver, torch and stack."""
    parts: tuple[str, ...]
    """In the order of PARTS; "" for what was not recorded."""
    first: Problem | None
    others: tuple[str, ...]
    fix: Fix | None

    @property
    def succeeded(self) -> bool:
        """It certifies something."""
        return self.entry.verdict in (Verdict.CERTIFIED, Verdict.REHEARSED)


_DIAGNOSE = Fix("look for the cause where it failed", (run("splatfix", "diagnose"),))
"""Where no certificate of a group has any advice."""


class Merger:
    """Takes certificates one by one, and keeps little of each."""

    def __init__(self) -> None:
        self._summaries: list[_Summary] = []
        self._values: dict[Any, Any] = {}

    def add(self, file: str, link: str, document: Mapping[str, Any], sha256: str = "") -> None:
        """Add a certificate.

        Raises:
            ValueError: it has no verdict.
        """
        stored = StoredCertificate(_with_problems_only(document))
        problems = list(problems_of(stored))
        first, problem = None, ""
        if problems:
            first = problems[0]
            problem = f"{first.kind} {first.code}"
        certificate = stored.certificate
        entry = Listed(
            file,
            link,
            certificate.verdict,
            certificate.level,
            short(certificate.issued),
            self._shared(short(certificate.suite)),
            self._shared(problem),
            sha256,
        )
        recorded = stored.parts()
        others = dict.fromkeys(item.code for item in problems if first and item.code != first.code)
        summary = _Summary(
            entry,
            stored.trains,
            self._shared((stored.gpu, stored.driver, stored.environment("torch"), stored.stack)),
            self._shared(tuple(self._shared(recorded.get(part, "")) for part in PARTS)),
            self._shared(first),
            self._shared(tuple(others)),
            self._shared(fix_of(stored, first) if first else None),
        )
        self._summaries.append(summary)

    def _shared(self, value: T) -> T:
        """The same object for equal values: thousands of certificates hold few different ones."""
        shared: T = self._values.setdefault(value, value)
        return shared

    def __len__(self) -> int:
        return len(self._summaries)

    def merged(self) -> Merged:
        """The matrix and the groups of all that were added."""
        # all that certificates have in common is only known once every one is read
        number = Counter(item.entry.verdict for item in self._summaries)
        groups = sorted(
            _groups(self._summaries), key=lambda group: (-len(group.certificates), group.kind, group.code)
        )
        verdicts = {verdict.value: number[verdict] for verdict in Verdict}
        return Merged(verdicts, tuple(_cells(self._summaries)), tuple(groups))


def _with_problems_only(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Leave out the criteria that were met: nothing is told of them, and to decode them takes two thirds of the time."""

    def left(scene: Any) -> Any:
        criteria = scene.get("criteria") if isinstance(scene, Mapping) else None
        if not isinstance(criteria, list):
            return scene
        return {**scene, "criteria": [item for item in criteria if not _is_met(item)]}

    scenes = document.get("scenes")
    if not isinstance(scenes, list):
        return document
    return {**document, "scenes": list(map(left, scenes))}


def _is_met(criterion: Any) -> bool:
    return isinstance(criterion, Mapping) and criterion.get("outcome") == Outcome.MET.value


def _newest(entries: Iterable[Listed]) -> tuple[Listed, ...]:
    return tuple(sorted(entries, key=lambda item: item.issued, reverse=True))


def _cells(summaries: Sequence[_Summary]) -> Iterator[Cell]:
    entries: dict[tuple[str, str, str, str], list[Listed]] = {}
    for item in summaries:
        entries.setdefault(item.cell, []).append(item.entry)

    def by_stack(cell: tuple[str, str, str, str]) -> tuple[Any, ...]:
        gpu, driver, torch, stack = cell
        return tuple(map(natural, (stack, gpu, driver, torch)))

    for cell in sorted(entries, key=by_stack):
        yield Cell(*cell, _newest(entries[cell]))


_Node = dict[str, Any]
"""A tree of the parts of certified certificates: by the first part, then by the second, and so on."""


class Peers:
    """What succeeded, by its parts in the order of causation: failures are held against it."""

    def __init__(self, items: Iterable[tuple[str, ...]]) -> None:
        # in the order they came, each once: the same certificates give the same report
        self._parts = list(dict.fromkeys(items))
        self._tree: _Node = {}
        for parts in self._parts:
            node = self._tree
            for value in parts:
                node = node.setdefault(value, {})
        self._causes: dict[tuple[str, ...], tuple[int, tuple[str, ...]]] = {}

    def first_difference(self, parts: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
        """The place of the first part in which this differs from every peer that is equal before it, and
        what those have there; -1 where there is none. What one of the two did not record does not differ."""
        if parts not in self._causes:
            self._causes[parts] = self._first_difference(parts)
        return self._causes[parts]

    def _first_difference(self, parts: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
        nodes = [self._tree] if self._tree else []
        for at, value in enumerate(parts):
            if not nodes:
                break
            matching = []
            # every branch that this does not contradict is followed: an unknown part fits all of them
            for node in nodes:
                matching += [child for name, child in node.items() if not value or name in (value, "")]
            if not matching:
                values: dict[str, None] = {}
                for node in nodes:
                    values.update(dict.fromkeys(node))
                return at, tuple(values)[:MOST_VALUES]
            nodes = matching
        return -1, ()

    def in_common(self, items: Sequence[_Summary]) -> Iterator[str]:
        """The parts in which these agree, and in which a certified certificate has another value."""
        values = zip(*(item.parts for item in items), strict=True)
        certified = zip(*self._parts, strict=True)
        for label, ours, theirs in zip(PARTS.values(), values, certified, strict=False):
            if len(set(ours)) == 1 and ours[0] and set(theirs) - {"", ours[0]}:
                yield f"{label} {ours[0]}"


def _groups(summaries: Sequence[_Summary]) -> Iterator[Group]:
    succeeded = [item for item in summaries if item.succeeded]
    # a diagnosis that passed shows nothing about a training that failed
    certified = {
        True: Peers(item.parts for item in succeeded if item.trains),
        False: Peers(item.parts for item in succeeded),
    }
    # The same criterion fails for many reasons: a group shares the problem and the first cause that differs.
    groups: dict[tuple[str, str, int, str], list[_Summary]] = {}
    for item in summaries:
        if item.succeeded:
            continue
        at, _ = certified[item.trains].first_difference(item.parts)
        value = ""
        if at >= 0:
            value = item.parts[at]
        problem = ("run", "no-reason-recorded")
        if item.first:
            problem = (item.first.kind, item.first.code)
        groups.setdefault((*problem, at, value), []).append(item)
    for (kind, code, at, value), items in groups.items():
        yield _group(kind, code, at, value, items, certified)


def _group(
    kind: str, code: str, at: int, value: str, items: Sequence[_Summary], certified: Mapping[bool, Peers]
) -> Group:
    part, label = "", ""
    if at >= 0:
        part, label = list(PARTS.items())[at]
    others: Counter[str] = Counter()
    certified_with: Counter[str] = Counter()
    for item in items:
        others.update(item.others)
        _, values = certified[item.trains].first_difference(item.parts)
        certified_with.update(values)
    advice = Counter(item.fix for item in items if item.fix is not None)
    fix, advised = _DIAGNOSE, 0
    if advice:  # one fix for all: what most of them advise
        fix, advised = advice.most_common(1)[0]
    in_common: tuple[str, ...] = ()
    if len(items) > 1:  # what one has in common with itself says nothing
        in_common = tuple(certified[any(item.trains for item in items)].in_common(items))
    first = items[0].first or Problem(kind, code, "", "")
    return Group(
        kind,
        code,
        first.why,
        first.measured,
        tuple(name for name, _ in others.most_common()),
        part,
        label,
        value,
        tuple(name for name, _ in certified_with.most_common(MOST_VALUES)),
        in_common,
        fix,
        advised,
        _newest(item.entry for item in items),
    )
