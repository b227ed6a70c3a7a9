"""Many nodes in words: for the terminal, as a page, for spreadsheets and for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from rich.console import Console

from splatfix.core.data import dataclass
from splatfix.core.words import counted, few, verb
from splatfix.fleet.verdict import State
from splatfix.report.console import escape, marked, paragraph, prose, section
from splatfix.report.forms import Sample, gauge
from splatfix.report.hostlist import folded
from splatfix.report.marks import ABSENT, Badge, Mark, Table
from splatfix.report.merged import spreadsheet
from splatfix.report.nodes import LABELS, Fleet, Kind, Node, NodeChange, NodeProblem, Place, Why, known_of

STATES: Mapping[State, Mark] = {
    State.FAIL: Mark.BAD,
    State.WARN: Mark.WARNING,
    State.UNKNOWN: Mark.UNKNOWN,
    State.OK: Mark.GOOD,
}
"""How each state is marked, the one that matters most first."""
REMARKED: Mapping[Why, str] = {
    Why.LOST: "no verdict of a node that was named",
    Why.UNREAD: "a file that could not be read",
    Why.LATE: "older than was asked for",
    Why.AHEAD: "from the future",
    Why.DOUBLED: "more than one of a name",
    Why.UNLISTED: "of a node that was not named",
}
CHIPS = 64
"""Nodes that are shown by name; more are a map."""
_MOST_LINES = 20
_MOST_LETTERS = 300
"""Of a list of nodes on the terminal."""
LONGEST = 20_000
"""Letters of a list of nodes in the page; the JSON document has all."""
# Of the map, in pixels.
_CELL, _COLUMNS, _MARGIN = 13, 80, 110


def named(names: Sequence[str], most: int) -> str:
    """Nodes as a list for Slurm's tools, as far as it fits."""
    lists = folded(names)
    text = ",".join(lists)
    if len(text) <= most:
        return text
    beginning = text[:most].rpartition(",")[0]
    return f"{beginning} ... ({counted(len(names), 'node')} in all)"


@dataclass(frozen=True)
class FleetView:
    """A fleet as every form shows it."""

    fleet: Fleet

    @property
    def title(self) -> str:
        """How many nodes there are."""
        return counted(len(self.fleet.nodes), "node")

    @property
    def states(self) -> Sequence[Badge]:
        """How many nodes have each state that occurs: ``12 fail``."""
        numbers = self.fleet.states
        return [
            Badge(mark, f"{numbers[state.value]} {state.value}")
            for state, mark in STATES.items()
            if numbers[state.value]
        ]

    @property
    def remarked(self) -> str:
        """How many verdicts are told: ``3 lost, 1 late``."""
        return ", ".join(f"{number} {why}" for why, number in self.fleet.remarked.items() if number)

    @property
    def remarks(self) -> Iterator[tuple[Badge, str, str, str]]:
        """For each reason to tell of verdicts: how many, of which nodes, what that means, and why the first of them."""
        for why, meaning in REMARKED.items():
            items = [item for item in self.fleet.remarks if item.why is why]
            if items:
                first = items[0]
                reason = first.reason
                if first.file:
                    reason = f"{first.file}: {reason}"
                badge = Badge(Mark.WARNING, f"{len(items)} {why.value}")
                yield badge, named([item.node for item in items], _MOST_LETTERS), meaning, reason

    def about(self, group: Place) -> str:
        """Which machines they are, and what tells them from those that are ok."""
        name = self.fleet.kinds[group.kind].name
        if group.alike_ok:
            return f"{name}; {counted(group.alike_ok, 'node')} alike {verb(group.alike_ok, 'is', 'are')} ok"
        if group.part:
            difference = f"first differs from those that are ok: {group.part} {group.value or 'none'}"
            if group.ok_with:
                difference += f" (ok with: {few(group.ok_with, 3)})"
            return f"{name}; {difference}"
        return name

    @property
    def kinds(self) -> Table:
        """Machines that are alike, a row for each."""
        states = [state.value for state in STATES]
        headers = [*LABELS, *states, "drain"]
        any_certified = any(kind.certificates for kind in self.fleet.kinds)
        if any_certified:
            headers.append("certificates")
        rows = []
        for kind in self.fleet.kinds:
            numbers = [str(number or "") for number in (*map(kind.states.get, states), kind.drained)]
            row = [kind.gpus, *(value or ABSENT for value in known_of(kind.alike)), *numbers]
            if any_certified:
                row.append(", ".join(f"{number} {verdict}" for verdict, number in kind.certificates.items()))
            rows.append(row)
        return Table(headers, rows)


def problem_badge(problem: NodeProblem) -> Badge:
    """``12 nodes fail``."""
    verb_of = {
        State.FAIL: verb(problem.nodes, "fails", "fail"),
        State.WARN: verb(problem.nodes, "warns", "warn"),
        State.UNKNOWN: "unknown",
        State.OK: "ok",
    }
    mark = STATES[problem.state]
    if problem.state is State.FAIL and not problem.drains:
        mark = Mark.WARNING
    return Badge(mark, f"{counted(problem.nodes, 'node')} {verb_of[problem.state]}")


def change_words(change: NodeChange) -> str:
    """``ok → fail: driver-too-old``."""
    line = f"{change.before or 'new'} → {change.now or 'gone'}"
    codes = [*change.begun, *(f"no more {code}" for code in change.ended)]
    if codes:
        line += f": {few(codes)}"
    return line


def advised(problem: NodeProblem) -> str:
    """How many of the nodes advise the command."""
    return f"advised by {problem.advised} of {counted(problem.nodes, 'node')}"


def show(console: Console, fleet: Fleet, page: str) -> None:
    """States, what is wrong where with one command each, what verdicts are told, and what changed.

    Args:
        page: where the HTML page is.
    """
    view = FleetView(fleet)
    headline = f"[bold]{view.title}[/]: {', '.join(badge.text for badge in view.states) or 'no verdict'}"
    paragraph(console, headline, first=0, then=2)
    if fleet.drained:
        drained = named([node.name for node in fleet.nodes if node.drain], _MOST_LETTERS)
        prose(console, "  To be drained: ", escape(drained))
    prose(console, "  Page: ", escape(page))
    for problem in fleet.problems[:_MOST_LINES]:
        _show_problem(console, view, problem)
    if len(fleet.problems) > _MOST_LINES:
        console.print(f"\n{counted(len(fleet.problems) - _MOST_LINES, 'problem')} more in the page.")
    if fleet.remarks:
        section(console, "Verdicts to look at")
    for badge, nodes, meaning, reason in view.remarks:
        body = f"{badge.text} ({meaning}): {nodes}"
        marked(console, badge.mark, escape(body))
        prose(console, "    first: ", escape(reason))
    if fleet.compared_with:
        section(console, f"Since {escape(fleet.compared_with)}")
        if not fleet.changes:
            console.print("  Nothing has changed.")
    for change in fleet.changes[:_MOST_LINES]:
        mark = STATES[State(change.now)] if change.now else Mark.NONE
        marked(console, mark, escape(f"{change_words(change)}: {named(change.nodes, _MOST_LETTERS)}"))


def _show_problem(console: Console, view: FleetView, problem: NodeProblem) -> None:
    badge = problem_badge(problem)
    console.print()
    marked(console, badge.mark, f"[bold]{problem.code}[/]: {badge.text}", indent=0)
    prose(console, "    ", escape(problem.message))
    for group in problem.places[:_MOST_LINES]:
        about = escape(view.about(group))
        prose(console, "    ", f"[dim]{about}:[/] {escape(named(group.nodes, _MOST_LETTERS))}")
    if problem.command:
        prose(console, f"    $ {escape(problem.command)}", f"  [dim]({advised(problem)})[/]")


_COLUMNS_OF_CSV = (
    *("node", "machine", "state", "drain", "made", "remarks", "problems", "gpus", "driver", "cuda", "torch"),
    *("kernel", "os", "python", "file", "reason"),
)


def comma_separated(fleet: Fleet) -> str:
    """A row for each node, and one for each verdict that is lost or could not be read."""
    remarks: dict[str, list[str]] = {}
    reasons: dict[str, list[str]] = {}
    rows: list[Sequence[str]] = [_COLUMNS_OF_CSV]
    for item in fleet.remarks:
        if item.why in (Why.LOST, Why.UNREAD):
            blank = ("" for _ in _COLUMNS_OF_CSV[6:-2])
            rows.append((item.node, "", "unknown", "", "", item.why.value, *blank, item.file, item.reason))
        else:
            remarks.setdefault(item.node, []).append(item.why.value)
            reasons.setdefault(item.node, []).append(item.reason)
    for node in fleet.nodes:
        alike = fleet.kinds[node.kind].alike
        rows.append(
            (
                *(node.name, node.machine, node.state.value, "drain" if node.drain else "", node.made),
                *(" ".join(dict.fromkeys(remarks.get(node.name, ()))), " ".join(node.problems)),
                *("; ".join(alike.gpus), *(value or "" for value in known_of(alike))),
                *(node.file, "; ".join(reasons.get(node.name, ()))),
            )
        )
    return spreadsheet(rows)


def prometheus(fleet: Fleet) -> str:
    """Prometheus' text format, for node_exporter's textfile collector. What each means stands in ``wording.toml``."""
    kinds: list[Sample] = []
    for kind in fleet.kinds:
        alike = kind.alike
        about = {"gpus": ", ".join(alike.gpus), "driver": alike.driver or "", "torch": alike.torch or ""}
        more = {"kernel": alike.kernel or "", "os": alike.os or "", "python": alike.python or ""}
        kinds += [({**about, **more, "state": state}, float(number)) for state, number in kind.states.items()]
    gauges: dict[str, list[Sample]] = {
        "fleet_nodes": [({"state": state}, float(number)) for state, number in fleet.states.items()],
        "fleet_drained_nodes": [({}, float(fleet.drained))],
        "fleet_remarked_verdicts": [({"why": why}, float(number)) for why, number in fleet.remarked.items()],
        "fleet_kind_nodes": kinds,
        "fleet_problem_nodes": [
            ({"code": item.code, "state": item.state.value}, float(item.nodes)) for item in fleet.problems
        ],
        "fleet_node_state": [
            ({"node": node.name, "machine": node.machine, "state": node.state.value}, 1.0)
            for node in fleet.nodes
            if node.state is not State.OK
        ],
        "fleet_timestamp_seconds": [({}, datetime.fromisoformat(fleet.made).timestamp())],
    }
    return "\n".join(line for name, samples in gauges.items() for line in gauge(name, samples, {})) + "\n"


@dataclass(frozen=True)
class Tile:
    """A node of a map that is not ok; places in pixels."""

    x: int
    y: int
    state: str
    title: str


@dataclass(frozen=True)
class Map:
    """Nodes of one kind as tiles in the order of their names."""

    kind: Kind
    nodes: Sequence[Node]

    @property
    def width(self) -> int:
        """In pixels."""
        return _MARGIN + _COLUMNS * _CELL

    @property
    def height(self) -> int:
        """In pixels."""
        return (len(self.nodes) + _COLUMNS - 1) // _COLUMNS * _CELL

    @property
    def rows(self) -> Iterator[tuple[int, str]]:
        """Where each row is, and its first node."""
        for at in range(0, len(self.nodes), _COLUMNS):
            name = self.nodes[at].name
            if len(name) > 16:
                name = f"…{name[-15:]}"
            yield at // _COLUMNS * _CELL + _CELL - 3, name

    @property
    def fine(self) -> str:
        """The tiles of all that are ok, as one path."""
        return "".join(f"M{x + 4} {y + 4}h5v5h-5z" for x, y, node in self._places() if node.state is State.OK)

    @property
    def tiles(self) -> Iterator[Tile]:
        """The others."""
        for x, y, node in self._places():
            if node.state is not State.OK:
                yield Tile(x, y, node.state.value, f"{node.name}: {few([node.state.value, *node.problems])}")

    def _places(self) -> Iterator[tuple[int, int, Node]]:
        for at, node in enumerate(self.nodes):
            yield _MARGIN + at % _COLUMNS * _CELL, at // _COLUMNS * _CELL, node


def maps(fleet: Fleet) -> Iterator[Map]:
    """One for each kind of machine."""
    nodes: dict[int, list[Node]] = {}
    for node in fleet.nodes:
        nodes.setdefault(node.kind, []).append(node)
    for number, kind in enumerate(fleet.kinds):
        yield Map(kind, nodes[number])
