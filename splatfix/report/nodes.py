"""Verdicts of many nodes as one picture: groups of machines that are alike, what is wrong where, and what changed.

A verdict that is missing, late, damaged or there twice is told, and never left out.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Any
from urllib.parse import unquote

from splatfix.core.data import dataclass
from splatfix.core.redact import without_credentials
from splatfix.core.words import beginning, counted
from splatfix.fleet.reading import time_of
from splatfix.fleet.verdict import Action, Alike, CheckVerdict, NodeVerdict, State
from splatfix.report.merging import Merged, Peers
from splatfix.report.recorded import natural

SKEW = timedelta(minutes=2)
"""By how much the clock of a node may be ahead; NTP keeps clocks within milliseconds."""
LABELS = ("GPUs", "driver", "CUDA", "torch", "kernel", "system", "Python")
"""Of the parts of :class:`splatfix.fleet.verdict.Alike`, in the order in which an earlier one may change a later one."""
WORST = (State.FAIL, State.WARN, State.UNKNOWN, State.OK)


class Why(str, Enum):
    """What a verdict is told for."""

    LOST = "lost"
    """There is none of a node that was named."""
    UNREAD = "unread"
    """There is a file, and it could not be read: torn, of another kind, or not to be believed."""
    LATE = "late"
    AHEAD = "ahead"
    """By its time it is still to come."""
    DOUBLED = "doubled"
    """There are two of one name."""
    UNLISTED = "unlisted"
    """Of a node that was not named."""


@dataclass(frozen=True)
class Remark:
    """A verdict that is told."""

    why: Why
    node: str
    """As the verdict has it; where there is none that could be read, as its file is called."""
    file: str
    """"" where there is none."""
    reason: str


@dataclass(frozen=True)
class Node:
    """A node, by its newest verdict."""

    name: str
    machine: str
    file: str
    state: State
    """A verdict that is late, or ahead, and says anything but ``fail`` shows nothing any more: ``unknown``."""
    drain: bool
    made: str
    """When, by its own clock (UTC, ISO 8601)."""
    kind: int
    """Its place in the list of kinds."""
    problems: tuple[str, ...]
    """Codes of checks that failed or warn."""


@dataclass(frozen=True)
class Kind:
    """Machines that are alike."""

    alike: Alike
    states: Mapping[str, int]
    drained: int
    certificates: Mapping[str, int]
    """Of the same GPU and driver, by verdict; those that are none, left out."""

    @property
    def gpus(self) -> str:
        """``8 x NVIDIA H100 80GB HBM3``."""
        return _gpus(self.alike) or "no GPU known"

    @property
    def name(self) -> str:
        """``8 x NVIDIA H100 80GB HBM3, driver 580.95.05, torch 2.11.0``."""
        parts = [self.gpus]
        if self.alike.driver:
            parts.append(f"driver {self.alike.driver}")
        if self.alike.torch:
            parts.append(f"torch {self.alike.torch}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Place:
    """Nodes of one kind with a problem."""

    kind: int
    alike_ok: int
    """Nodes of that kind that are ok."""
    part: str
    """The first part, in the order of :data:`LABELS`, in which that kind differs from every node that is ok and equal in the
    parts before it: ``driver``; "" where there is none."""
    value: str
    ok_with: tuple[str, ...]
    """Values of that part in those that are ok."""
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class NodeProblem:
    """A check that is not ok somewhere."""

    code: str
    state: State
    drains: bool
    """The policy of one of these nodes drains it for this."""
    message: str
    """Of one of them, as is the evidence."""
    evidence: str
    command: str
    """What most of them advise, one for all; "" where none has advice."""
    advised: int
    """By how many of them."""
    places: tuple[Place, ...]
    nodes: int


@dataclass(frozen=True)
class NodeChange:
    """Nodes of which the same is another than before."""

    before: str
    """State; "" for a node that was not there."""
    now: str
    """"" for a node that is not there any more."""
    begun: tuple[str, ...]
    """Codes of problems that they had not."""
    ended: tuple[str, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Before:
    """What is needed of an earlier report."""

    made: str
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Fleet:
    """The outcome of merging."""

    made: str
    states: Mapping[str, int]
    drained: int
    remarked: Mapping[str, int]
    """How many verdicts are told, by why."""
    kinds: tuple[Kind, ...]
    """The largest first."""
    problems: tuple[NodeProblem, ...]
    """What fails first, then the most frequent first."""
    compared_with: str
    """When the earlier report was made; "" without one."""
    changes: tuple[NodeChange, ...]
    remarks: tuple[Remark, ...]
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class _Found:
    """What is kept of one verdict until all are read."""

    name: str
    machine: str
    file: str
    state: State
    drain: bool
    made: datetime
    alike: Alike
    problems: tuple[tuple[str, State, bool, str], ...]
    """Code, state, whether it drains, and the command advised."""


class NodeMerger:
    """Takes verdicts one by one, and keeps little of each."""

    def __init__(self, now: datetime, max_age: timedelta | None = None) -> None:
        self._now = now
        self._max_age = max_age
        self._found: dict[tuple[str, str], _Found] = {}
        self._remarks: list[Remark] = []
        self._examples: dict[tuple[str, State], CheckVerdict] = {}
        self._shared: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self._found) + len(self._remarks)

    def add(self, file: str, verdict: NodeVerdict) -> None:
        """Add a verdict; of two of one machine the newer counts."""
        problems = []
        for check in verdict.checks:
            if check.state is State.OK:
                continue
            drains = check.action is Action.DRAIN
            problems.append((check.code, check.state, drains, beginning(check.remedy)))
            self._examples.setdefault((check.code, check.state), check)
        entry = _Found(
            verdict.node,
            verdict.machine,
            file,
            verdict.state,
            verdict.drain,
            time_of(verdict.finished),
            self._same(verdict.alike),
            self._same(tuple(map(self._same, problems))),
        )
        key = (entry.name, entry.machine)
        other = self._found.get(key)
        if other is not None:
            entry, older = (entry, other) if entry.made >= other.made else (other, entry)
            reason = f"an older one of {_when(older.made)} lies beside {entry.file}"
            self._remarks.append(Remark(Why.DOUBLED, older.name, older.file, reason))
        self._found[key] = entry

    def refuse(self, file: str, name: str, reason: str) -> None:
        """Tell of a file that could not be read.

        Args:
            name: the file's, without its folder.
        """
        node = unquote(name.removesuffix(".json"), errors="surrogateescape")
        self._remarks.append(Remark(Why.UNREAD, beginning(node), file, beginning(reason)))

    def merged(
        self,
        listed: Mapping[str, str] | None = None,
        before: Before | None = None,
        certificates: Merged | None = None,
    ) -> Fleet:
        """The picture of all that were added.

        Args:
            listed: the nodes that should have a verdict, and of those that were asked in vain why there is none. A verdict
                that lies there of such a one is from before, and shows nothing any more.
        """
        entries = sorted(self._found.values(), key=lambda item: (natural(item.name), item.machine))
        remarks = [*self._remarks, *self._of_time(entries), *_of_names(entries)]
        if listed is not None:
            unread = {item.node for item in self._remarks if item.why is Why.UNREAD}
            remarks += _of_list(listed, {item.name for item in entries}, unread)
        untimely = {(item.node, item.file) for item in remarks if item.why in (Why.LATE, Why.AHEAD)}
        lost = {item.node for item in remarks if item.why is Why.LOST}
        alike = Counter(item.alike for item in entries)
        places = {kind: number for number, (kind, _) in enumerate(alike.most_common())}
        nodes = tuple(
            _node(item, places[item.alike], item.name in lost or (item.name, item.file) in untimely)
            for item in entries
        )
        states = Counter(node.state for node in nodes)
        remarked = Counter(item.why for item in remarks)
        return Fleet(
            _when(self._now),
            {state.value: states[state] for state in WORST},
            sum(node.drain for node in nodes),
            {why.value: remarked[why] for why in Why},
            tuple(_kinds(places, nodes, certificates)),
            tuple(self._problems(entries, nodes)),
            before.made if before else "",
            tuple(_changes(before, nodes)) if before else (),
            tuple(sorted(remarks, key=lambda item: (list(Why).index(item.why), natural(item.node)))),
            nodes,
        )

    def _same(self, value: Any) -> Any:
        """The same object for equal values: thousands of verdicts hold few different ones."""
        return self._shared.setdefault(value, value)

    def _of_time(self, entries: Iterable[_Found]) -> Iterator[Remark]:
        """What a time tells. The clocks of two machines differ; those that differ much are told."""
        for item in entries:
            age = self._now - item.made
            if -age > SKEW:
                reason = f"it was made {_span(-age)} from now: its clock and this one differ"
                yield Remark(Why.AHEAD, item.name, item.file, reason)
            elif self._max_age is not None and age > self._max_age:
                yield Remark(Why.LATE, item.name, item.file, f"it was made {_span(age)} ago")

    def _problems(self, entries: Sequence[_Found], nodes: Sequence[Node]) -> Iterator[NodeProblem]:
        places: dict[tuple[str, State], dict[int, list[str]]] = {}
        advice: dict[tuple[str, State], Counter[str]] = {}
        drains: set[tuple[str, State]] = set()
        for item, node in zip(entries, nodes, strict=True):
            for code, state, drain, command in item.problems:
                key = (code, state)
                places.setdefault(key, {}).setdefault(node.kind, []).append(node.name)
                advice.setdefault(key, Counter())[command] += 1
                if drain:
                    drains.add(key)
        kinds = {node.kind: _parts(item.alike) for item, node in zip(entries, nodes, strict=True)}
        fine = Counter(node.kind for node in nodes if node.state is State.OK)
        peers = Peers(kinds[kind] for kind in fine)

        def rank(key: tuple[str, State]) -> tuple[Any, ...]:
            return key not in drains, WORST.index(key[1]), -advice[key].total(), key[0]

        for key in sorted(places, key=rank):
            check = self._examples[key]
            number = advice[key].total()
            del advice[key][""]
            command, advised = (advice[key].most_common(1) or [("", 0)])[0]
            where = [
                _place(kind, kinds[kind], fine[kind], peers, names)
                for kind, names in sorted(places[key].items())
            ]
            yield NodeProblem(
                check.code,
                check.state,
                key in drains,
                _plain(check.message),
                _plain(check.evidence),
                without_credentials(command),
                advised,
                tuple(where),
                number,
            )


def _place(kind: int, parts: tuple[str, ...], fine: int, peers: Peers, names: Sequence[str]) -> Place:
    at, values = peers.first_difference(parts)
    if at < 0:
        return Place(kind, fine, "", "", (), tuple(names))
    return Place(kind, fine, LABELS[at], parts[at], tuple(value for value in values if value), tuple(names))


def _node(item: _Found, kind: int, untimely: bool) -> Node:
    state = item.state
    if untimely and state is not State.FAIL:
        state = State.UNKNOWN
    codes = [code for code, state, *_ in item.problems if state is not State.UNKNOWN]
    return Node(
        item.name,
        item.machine,
        item.file,
        state,
        item.drain,
        _when(item.made),
        kind,
        tuple(dict.fromkeys(codes)),
    )


def _kinds(places: Mapping[Alike, int], nodes: Sequence[Node], certificates: Merged | None) -> Iterator[Kind]:
    states: dict[int, Counter[State]] = {number: Counter() for number in places.values()}
    drained = Counter(node.kind for node in nodes if node.drain)
    for node in nodes:
        states[node.kind][node.state] += 1
    cells = certificates.cells if certificates else ()
    for alike, number in places.items():
        verdicts: Counter[str] = Counter()
        for cell in cells:
            if cell.gpu in alike.gpus and cell.driver == alike.driver:
                verdicts.update(entry.verdict.value for entry in cell.certificates)
        of_states = {state.value: states[number][state] for state in WORST}
        yield Kind(alike, of_states, drained[number], dict(sorted(verdicts.items())))


def _of_names(entries: Iterable[_Found]) -> Iterator[Remark]:
    """Machines that call themselves the same; both are counted."""
    machines: dict[str, list[_Found]] = {}
    for item in entries:
        machines.setdefault(item.name, []).append(item)
    for name, items in machines.items():
        if len(items) > 1:
            for item in items:
                reason = (
                    f"{counted(len(items), 'machine')} have this name; this is {item.machine or 'not named'}"
                )
                yield Remark(Why.DOUBLED, name, item.file, reason)


def _of_list(listed: Mapping[str, str], names: set[str], unread: set[str]) -> Iterator[Remark]:
    known = names | unread
    for name, reason in listed.items():
        if reason or name not in known:
            yield Remark(Why.LOST, name, "", reason or "there is no verdict of it")
    for name in sorted(names - set(listed)):
        yield Remark(Why.UNLISTED, name, "", "it is not in the list of nodes")


def _changes(before: Before, nodes: Sequence[Node]) -> Iterator[NodeChange]:
    earlier = {(node.name, node.machine): node for node in before.nodes}
    groups: dict[tuple[str, str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for node in nodes:
        was = earlier.pop((node.name, node.machine), None)
        if was is None:
            key: tuple[str, str, tuple[str, ...], tuple[str, ...]] = ("", node.state.value, node.problems, ())
        else:
            begun = tuple(code for code in node.problems if code not in was.problems)
            ended = tuple(code for code in was.problems if code not in node.problems)
            key = (was.state.value, node.state.value, begun, ended)
        if key[0] != key[1] or key[2] or key[3]:
            groups.setdefault(key, []).append(node.name)
    for node in earlier.values():
        groups.setdefault((node.state.value, "", (), node.problems), []).append(node.name)
    order = [state.value for state in WORST]

    def rank(key: tuple[str, str, tuple[str, ...], tuple[str, ...]]) -> tuple[Any, ...]:
        now = order.index(key[1]) if key[1] else len(order)
        return now, -len(groups[key]), key

    for key in sorted(groups, key=rank):
        yield NodeChange(*key, tuple(groups[key]))


def known_of(alike: Alike) -> tuple[str | None, ...]:
    """What :data:`LABELS` names, without the GPUs."""
    return alike.driver, alike.cuda, alike.torch, alike.kernel, alike.os, alike.python


def _parts(alike: Alike) -> tuple[str, ...]:
    return (_gpus(alike), *(value or "" for value in known_of(alike)))


def _gpus(alike: Alike) -> str:
    gpus = Counter(alike.gpus)
    return ", ".join(gpu if number == 1 else f"{number} x {gpu}" for gpu, number in gpus.items())


def _plain(text: str) -> str:
    return without_credentials(beginning(text))


def _when(time: datetime) -> str:
    return time.isoformat(timespec="seconds")


def _span(time: timedelta) -> str:
    """``3 hours``, in the largest unit that is not less than one."""
    seconds = time.total_seconds()
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return counted(seconds // length, unit)
    return counted(seconds, "second")
