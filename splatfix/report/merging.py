"""Many certificates as one matrix (GPU, driver, torch, stack), and their failures grouped by what failed first: in every form."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from rich.console import Console

from splatfix.certify.model import Certificate, Problem, Verdict
from splatfix.core.errors import SplatfixError
from splatfix.core.reading import Unread
from splatfix.core.step import Step, run, say
from splatfix.core.visible import visible
from splatfix.core.words import counted, few, grouped
from splatfix.model.option import Options
from splatfix.report.console import escape, marked, pairs, prose, section, show_todo
from splatfix.report.forms import writes
from splatfix.report.marks import Badge, Mark, Table
from splatfix.report.templates import fill_in, page
from splatfix.report.view import SUCCESS, VERDICTS

_COLUMNS = ("file", "sha256", "verdict", "issued", "gpu", "driver", "torch", "stack", "suite", "problem")


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
    """All certificates of one GPU, driver, torch and stack, those that failed first, the newest before older ones."""

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


class Group(Struct, frozen=True, kw_only=True):
    """Certificates that are not of success, for one first problem."""

    kind: str
    code: str
    """Of the problem that comes first; see :class:`splatfix.certify.model.Problem`."""
    means: str
    """What the problem means in practice; "" where no certificate says."""
    measured: str
    """What one of them measured."""
    also: tuple[str, ...]
    """What else failed in them."""
    in_common: tuple[str, ...]
    """What two or more of them all have, and not every certified certificate: ``driver 535.183.01``."""
    fix: tuple[Step, ...]
    """One for all: what most of them advise."""
    certificates: tuple[Listed, ...]

    @property
    def rows(self) -> list[tuple[str, str]]:
        """What is known of it, by name."""
        return [
            ("what it means", self.means),
            ("measured", self.measured),
            ("failed too", ", ".join(self.also)),
            ("in common", "; ".join(self.in_common)),
        ]


class RefusedLane(Struct, frozen=True):
    """A container lane that gave no certificate, and what was said."""

    lane: str
    error: SplatfixError


class MergeDocument(Struct, frozen=True, kw_only=True):
    """The matrix of many certificates, and their failures by what failed first."""

    verdicts: Mapping[str, int]
    cells: tuple[Cell, ...]
    groups: tuple[Group, ...]
    """The largest first."""
    unreadable: tuple[Unread, ...] = ()
    refused: tuple[RefusedLane, ...] = ()
    files: tuple[str, ...] = ()
    """What was written: the page, Markdown, rows and data; () where there was nothing to list."""

    @property
    def title(self) -> str:
        """``160 certificates``."""
        return counted(sum(self.verdicts.values()), "certificate")

    @property
    def badges(self) -> Sequence[Badge]:
        """How many there are of each verdict that occurs: ``3 not certified``."""
        listed = [entry for cell in self.cells for entry in cell.certificates]
        untrained = sum(entry.verdict is Verdict.CERTIFIED and bool(entry.remark) for entry in listed)
        found = []
        for verdict, badge in VERDICTS.items():
            number, remark = self.verdicts[verdict.value], ""
            if verdict is Verdict.CERTIFIED and untrained:
                remark = f", {untrained} of them without training"
            if number:
                found.append(Badge(badge.mark, f"{number} {badge.text}{remark}"))
        return found

    @property
    def tables(self) -> Mapping[str, Table]:
        """Each stack's cells by its name: GPU, driver, and for each torch its cell, None where there is none."""
        made = {}
        for stack, cells in grouped(self.cells, lambda cell: cell.stack or "stack not recorded").items():
            # 2.9 before 2.13, as people read versions
            torches = sorted({cell.torch for cell in cells}, key=natural)
            by_place = {(cell.gpu, cell.driver, cell.torch): cell for cell in cells}
            rows = []
            for gpu, driver in dict.fromkeys((cell.gpu, cell.driver) for cell in cells):
                rows.append((gpu, driver, *(by_place.get((gpu, driver, torch)) for torch in torches)))
            named = (torch or "torch not recorded" for torch in torches)
            made[stack] = Table(("GPU", "driver", *named), rows)
        return made

    @property
    def not_read(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """What gave no certificate, by name with the reason, below a title."""
        titles = {
            "Lanes without a certificate": [(lane.lane, lane.error.what) for lane in self.refused],
            "Not read": [(file.path, file.reason) for file in self.unreadable],
        }
        return {title: rows for title, rows in titles.items() if rows}


class Summary(Struct, frozen=True):
    """What merging needs of one certificate until all are read: what they have in common is only known then."""

    entry: Listed
    cell: tuple[str, str, str, str]
    """GPU, driver, torch and stack."""
    environment: Mapping[str, str]
    problems: Sequence[Problem]
    fix: tuple[Step, ...]
    """What it advises; () where it advises nothing."""


def summary_of(
    file: str, link: str, certificate: Certificate, options: Options | None, sha256: str = ""
) -> Summary:
    """Return what merging keeps of a certificate; ``options`` are what a diagnosis of the same environment advised."""
    problems, problem = certificate.problems, ""
    fix: tuple[Step, ...] = ()
    for first in problems[:1]:
        problem = f"{first.kind} {first.criterion.code}"
        if options and options.advice:
            advised = (options.advice.option, *options.advice.also_needed)
            fix = next((item.steps for item in advised if item), ())
        elif first.criterion.advice:
            fix = (say(first.criterion.advice),)
    known = (certificate.verdict, certificate.level, certificate.issued, certificate.suite)
    entry = Listed(file, link, *known, problem, sha256)
    environment = certificate.environment
    # certify writes the device behind the name, because a machine may have several GPUs of one name
    gpu = environment.get("GPU", "").removesuffix(f" ({certificate.device})")
    driver = environment.get("driver", "")
    if certificate.device == "cpu":
        gpu, driver = "CPU", "not used"
    stack = ": ".join(filter(None, (certificate.renderer, environment.get("renderer"))))
    cell = (gpu, driver, environment.get("torch", ""), stack)
    asked = {"renderer asked for": certificate.renderer, "suite": certificate.suite}
    return Summary(entry, cell, {**environment, **asked, "GPU": gpu}, problems, fix)


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts ``2.9`` before ``2.13``."""
    key = []
    for piece in re.split(r"(\d+)", name):
        key.append((int(piece), "") if piece.isdecimal() else (-1, piece))
    return key


def merge(summaries: Sequence[Summary]) -> MergeDocument:
    """Return the matrix and the groups of all certificates."""
    counts = Counter(item.entry.verdict for item in summaries)
    cells = grouped(summaries, lambda item: item.cell)
    # the stack first, which is the last part of a cell
    ordered = sorted(cells, key=lambda cell: [*map(natural, (cell[-1], *cell[:-1]))])
    groups = grouped((item for item in summaries if item.problems), lambda item: item.entry.problem)
    # what trained nothing shows nothing about a training that failed
    trained = [item for item in summaries if item.entry.verdict in SUCCESS and not item.entry.remark]
    return MergeDocument(
        verdicts={verdict.value: counts[verdict] for verdict in Verdict},
        cells=tuple(Cell(*cell, _failed_first(cells[cell])) for cell in ordered),
        groups=tuple(
            _group(groups[problem], trained)
            for problem in sorted(groups, key=lambda problem: (-len(groups[problem]), problem))
        ),
    )


def _group(items: Sequence[Summary], certified: Sequence[Summary]) -> Group:
    first = items[0].problems[0]
    code = first.criterion.code
    codes = ({problem.criterion.code for problem in item.problems} for item in items)
    others = Counter(name for names in codes for name in names if name != code)
    advice = Counter(item.fix for item in items if item.fix)
    unadvised = (run("splatfix", "diagnose", text="look for the cause where it failed"),)
    fix, _ = next(iter(advice.most_common(1)), (unadvised, 0))
    in_common = []
    for name, value in items[0].environment.items():
        all_have_it = all(item.environment.get(name) == value for item in items)
        others_certified = any(item.environment.get(name, value) != value for item in certified)
        if len(items) > 1 and value and all_have_it and others_certified:
            in_common.append(f"{name} {value}")
    return Group(
        kind=first.kind,
        code=code,
        means=first.criterion.why,
        measured=first.criterion.measured,
        also=tuple(name for name, _ in sorted(others.items(), key=lambda pair: (-pair[1], pair[0]))),
        in_common=tuple(in_common),
        fix=fix,
        certificates=_failed_first(items),
    )


def _failed_first(items: Iterable[Summary]) -> tuple[Listed, ...]:
    """Return them as people look for them: what failed, and the newest of it, comes first."""
    newest = sorted((item.entry for item in items), key=lambda item: item.issued, reverse=True)
    return tuple(sorted(newest, key=lambda item: list(VERDICTS).index(item.verdict)))


@writes(MergeDocument, command="report merge")
def show(console: Console, document: MergeDocument) -> None:
    """Print how many there are of each verdict, the groups with their fix, and what could not be read."""
    verdicts = ", ".join(badge.text for badge in document.badges) or "none"
    prose(console, "", f"[bold]{document.title}[/]: {verdicts}", hang=2)
    for written in document.files[:1]:
        prose(console, "  Matrix: ", escape(written))
    for group in document.groups:
        console.print()
        problem = f"[bold]{escape(f'{group.kind} {group.code}')}[/] in {len(group.certificates)}"
        names = few([entry.name for entry in group.certificates], 3)
        marked(console, VERDICTS[group.certificates[0].verdict].mark, f"{problem}: {escape(names)}", indent=0)
        pairs(console, group.rows)
        show_todo(console, group.fix, indent=4)
    for name, rows in document.not_read.items():
        section(console, f"{name} ({len(rows)})")
        for subject, reason in rows[:20]:  # the page has all
            marked(console, Mark.UNSURE, f"{escape(subject)}: {escape(reason)}")


@writes(MergeDocument, "markdown")
def markdown(document: MergeDocument) -> str:
    """Return the same as Markdown, with the tables; links are relative to the folder of the merged report."""
    return fill_in("certificates.md", document=document, verdicts=VERDICTS, most_links=5)


@writes(MergeDocument, "html")
def merged_page(document: MergeDocument) -> str:
    """Return the same as one HTML file; the data lies beside it."""
    return page("certificates.html", document=document, verdicts=VERDICTS, most_links=20)


@writes(MergeDocument, "csv")
def comma_separated(document: MergeDocument) -> str:
    """Return a row for each certificate, and of what gave none its name and why, as RFC 4180 has them. What a spreadsheet would
    run as a formula has an apostrophe before it (OWASP, CSV injection): names are a stranger's."""
    rows: list[Sequence[str]] = [_COLUMNS]
    for cell in document.cells:
        for entry in cell.certificates:
            begins = (entry.file, entry.sha256, entry.verdict.value, entry.issued)
            rows.append((*begins, cell.gpu, cell.driver, cell.torch, cell.stack, entry.suite, entry.problem))
    for missing in document.not_read.values():
        rows += [(name, *("" for _ in _COLUMNS[2:]), reason) for name, reason in missing]
    text = io.StringIO()
    writer = csv.writer(text)
    for row in rows:
        writer.writerow([re.sub(r"\A(?=[=+\-@\t\r])", "'", visible(value)) for value in row])
    return text.getvalue()
