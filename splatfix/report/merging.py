"""Many certificates as one matrix (GPU, driver, torch, stack), and their failures grouped by cause."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from splatfix.certify.model import Certificate, Verdict
from splatfix.core.step import run
from splatfix.core.words import counted, few
from splatfix.model.option import Options
from splatfix.report import recorded
from splatfix.report.marks import Badge, Table
from splatfix.report.view import VERDICTS
from splatfix.report.wording import PARTS

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

    @property
    def remark(self) -> str:
        """That it trained nothing; "" where it did."""
        return f"run level {self.level}, nothing trained" if self.level in (1, 2) else ""


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
    """The first part, in the order of :data:`splatfix.report.wording.PARTS`, in which they differ from every certified
    certificate that is equal in the parts before it; "" where there is none."""
    label: str
    value: str
    certified_with: tuple[str, ...]
    """Values of that part in those certified ones."""
    in_common: tuple[str, ...]
    """What two or more of them all have, and not every certified certificate: ``driver 535.183.01``."""
    fix: recorded.Fix
    """One for all."""
    advised: int
    """How many of the certificates themselves advise it; 0 where none has any advice."""
    certificates: tuple[Listed, ...]

    @property
    def badge(self) -> Badge:
        """Undetermined only where all of them are."""
        if all(entry.verdict is Verdict.UNDETERMINED for entry in self.certificates):
            return VERDICTS[Verdict.UNDETERMINED]
        return VERDICTS[Verdict.NOT_CERTIFIED]

    @property
    def problem(self) -> str:
        """``criterion loss-falls``."""
        return f"{self.kind} {self.code}"

    @property
    def cause(self) -> str:
        """The first cause that differs, in words that claim no more."""
        if self.part:
            return f"first differs from certified ones: {self.label} {self.value}"
        return "differs from no certified one in what was recorded before"

    @property
    def peers(self) -> str:
        return few([value for value in self.certified_with if value])

    @property
    def cure(self) -> str:
        """The fix, and how many of the certificates advise it."""
        if not self.advised:
            return f"{self.fix.title} (none of these certificates has advice)"
        return f"{self.fix.title} (advised by {self.advised} of {len(self.certificates)})"


class Merged(Struct, frozen=True):
    """The outcome of merging."""

    verdicts: Mapping[str, int]
    cells: tuple[Cell, ...]
    groups: tuple[Group, ...]
    """The largest first."""

    @property
    def title(self) -> str:
        return counted(sum(self.verdicts.values()), "certificate")

    @property
    def badges(self) -> Sequence[Badge]:
        """How many there are of each verdict that occurs: ``3 not certified``."""
        badges = []
        for verdict, badge in VERDICTS.items():
            number, remark = self.verdicts[verdict.value], ""
            if verdict is Verdict.CERTIFIED:
                entries = (entry for cell in self.cells for entry in cell.certificates)
                untrained = sum(entry.verdict is verdict and bool(entry.remark) for entry in entries)
                if untrained:
                    remark = f", {untrained} of them without training"
            if number:
                badges.append(Badge(badge.mark, f"{number} {badge.text}{remark}"))
        return badges

    @property
    def tables(self) -> Iterator[tuple[str, Table]]:
        """The name of each stack, and its cells: GPU, driver, and for each torch its cell, None where there is none."""
        stacks: dict[str, list[Cell]] = {}
        for cell in self.cells:
            stacks.setdefault(cell.stack, []).append(cell)
        for stack, cells in stacks.items():
            # 2.9 before 2.13, as people read versions
            torches = sorted({cell.torch for cell in cells}, key=recorded.natural)
            by_place = {(cell.gpu, cell.driver, cell.torch): cell for cell in cells}
            rows = []
            for gpu, driver in dict.fromkeys((cell.gpu, cell.driver) for cell in cells):
                rows.append((gpu, driver, *(by_place.get((gpu, driver, torch)) for torch in torches)))
            named = (torch or "torch not recorded" for torch in torches)
            yield stack or "stack not recorded", Table(("GPU", "driver", *named), rows)


class Summary(Struct, frozen=True):
    """What merging needs of one certificate until all are read."""

    entry: Listed
    trains: bool
    """It was to train scenes."""
    cell: tuple[str, str, str, str]
    """GPU, driver, torch and stack."""
    parts: tuple[str, ...]
    """In the order of PARTS; "" for what was not recorded."""
    first: recorded.Problem | None
    others: tuple[str, ...]
    fix: recorded.Fix | None


def summary_of(
    file: str, link: str, certificate: Certificate, options: Options | None, sha256: str = ""
) -> Summary:
    """What merging keeps of a certificate; ``options`` are what a diagnosis of the same environment advised."""
    problems = list(recorded.problems_of(certificate))
    first, fix, problem = None, None, ""
    if problems:
        first = problems[0]
        fix, problem = recorded.fix_of(options, first), f"{first.kind} {first.code}"
    entry = Listed(
        file,
        link,
        certificate.verdict,
        certificate.level,
        certificate.issued,
        certificate.suite,
        problem,
        sha256,
    )
    torch, parts = certificate.environment.get("torch", ""), recorded.parts_of(certificate)
    # the renderer that was asked for, and the implementation that ran
    stack = ": ".join(filter(None, (certificate.renderer, certificate.environment.get("renderer"))))
    return Summary(
        entry,
        not entry.remark,
        (recorded.gpu_of(certificate), recorded.driver_of(certificate), torch, stack),
        tuple(parts.get(part, "") for part in PARTS),
        first,
        tuple(dict.fromkeys(item.code for item in problems if first and item.code != first.code)),
        fix,
    )


def merge(summaries: Sequence[Summary]) -> Merged:
    """The matrix and the groups of all certificates: what they have in common is only known once every one is read."""
    number = Counter(item.entry.verdict for item in summaries)
    groups = sorted(_groups(summaries), key=lambda group: (-len(group.certificates), group.kind, group.code))
    verdicts = {verdict.value: number[verdict] for verdict in Verdict}
    entries: dict[tuple[str, str, str, str], list[Listed]] = {}
    for item in summaries:
        entries.setdefault(item.cell, []).append(item.entry)
    # the stack first, which is the last part of a cell
    ordered = sorted(entries, key=lambda cell: [*map(recorded.natural, (cell[-1], *cell[:-1]))])
    return Merged(verdicts, tuple(Cell(*cell, _newest(entries[cell])) for cell in ordered), tuple(groups))


def _newest(entries: Iterable[Listed]) -> tuple[Listed, ...]:
    return tuple(sorted(entries, key=lambda item: item.issued, reverse=True))


class Peers:
    """What succeeded, by its parts in the order of causation: failures are held against it."""

    def __init__(self, items: Iterable[tuple[str, ...]]) -> None:
        # in the order they came, each once: the same certificates give the same report
        self._parts = list(dict.fromkeys(items))
        # by the first part, then by the second, and so on
        self._tree: dict[str, Any] = {}
        for parts in self._parts:
            node = self._tree
            for value in parts:
                node = node.setdefault(value, {})

    def first_difference(self, parts: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
        """The place of the first part in which this differs from every peer that is equal before it, and
        what those have there; -1 where there is none. What one of the two did not record does not differ."""
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

    def in_common(self, items: Sequence[Summary]) -> Iterator[str]:
        """The parts in which these agree, and in which a certified certificate has another value."""
        values = zip(*(item.parts for item in items), strict=True)
        certified = zip(*self._parts, strict=True)
        for label, ours, theirs in zip(PARTS.values(), values, certified, strict=False):
            if len(set(ours)) == 1 and ours[0] and set(theirs) - {"", ours[0]}:
                yield f"{label} {ours[0]}"


def _groups(summaries: Sequence[Summary]) -> Iterator[Group]:
    succeeded = [item for item in summaries if item.entry.verdict in recorded.SUCCESS]
    # a diagnosis that passed shows nothing about a training that failed
    certified = {
        True: Peers(item.parts for item in succeeded if item.trains),
        False: Peers(item.parts for item in succeeded),
    }
    # The same criterion fails for many reasons: a group shares the problem and the first cause that differs.
    groups: dict[tuple[recorded.Problem, int, str], list[Summary]] = {}
    peers: dict[tuple[recorded.Problem, int, str], Counter[str]] = {}
    for item in summaries:
        if item.entry.verdict in recorded.SUCCESS:
            continue
        at, values = certified[item.trains].first_difference(item.parts)
        problem = recorded.Problem("run", "no-reason-recorded", "")
        if item.first:
            problem = recorded.Problem(item.first.kind, item.first.code, "")
        key = (problem, at, item.parts[at] if at >= 0 else "")
        groups.setdefault(key, []).append(item)
        peers.setdefault(key, Counter()).update(values)
    for key, items in groups.items():
        problem, at, value = key
        others = Counter(code for item in items for code in item.others)
        advice = Counter(item.fix for item in items if item.fix is not None)
        fix, advised = recorded.Fix("look for the cause where it failed", (run("splatfix", "diagnose"),)), 0
        if advice:  # one fix for all: what most of them advise
            fix, advised = advice.most_common(1)[0]
        in_common: tuple[str, ...] = ()
        if len(items) > 1:  # what one has in common with itself says nothing
            in_common = tuple(certified[any(item.trains for item in items)].in_common(items))
        first = items[0].first or problem
        part, label = list(PARTS.items())[at] if at >= 0 else ("", "")
        yield Group(
            problem.kind,
            problem.code,
            first.why,
            first.measured,
            tuple(name for name, _ in others.most_common()),
            part,
            label,
            value,
            tuple(name for name, _ in peers[key].most_common(MOST_VALUES)),
            in_common,
            fix,
            advised,
            _newest(item.entry for item in items),
        )
