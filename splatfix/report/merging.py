"""Many certificates as one matrix (GPU, driver, torch, stack), and their failures grouped by cause."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from smoke_trainer.record import Implementation, TrainingRecord
from splatfix.certify.model import Certificate, Criterion, Outcome, Verdict
from splatfix.core.errors import SplatfixError
from splatfix.core.reading import Unread
from splatfix.core.step import Step, run
from splatfix.model.option import Options
from splatfix.report.view import SUCCESS, Problem, number, problems_of, resolution
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


class Fix(Struct, frozen=True):
    """What a certificate advises: the option of a diagnosis of the same environment, or what to do about a criterion."""

    title: str
    steps: tuple[Step, ...] = ()


class Group(Struct, frozen=True, kw_only=True):
    """Certificates that are not of success, for one first problem and one first cause that differs."""

    kind: str
    code: str
    """Of the problem that comes first; see :class:`splatfix.report.view.Problem`."""
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
    fix: Fix
    """One for all."""
    advised: int
    """How many of the certificates themselves advise it; 0 where none has any advice."""
    certificates: tuple[Listed, ...]


class RefusedLane(Struct, frozen=True):
    """A container lane that gave no certificate, and what was said."""

    lane: str
    error: SplatfixError


class MergeDocument(Struct, frozen=True, kw_only=True):
    """The matrix of many certificates, and their failures by cause."""

    verdicts: Mapping[str, int]
    cells: tuple[Cell, ...]
    groups: tuple[Group, ...]
    """The largest first."""
    unreadable: tuple[Unread, ...] = ()
    refused: tuple[RefusedLane, ...] = ()
    files: tuple[str, ...] = ()
    """What was written: the page, Markdown, rows and data; () where there was nothing to list."""


class Summary(Struct, frozen=True):
    """What merging needs of one certificate until all are read: what they have in common is only known then."""

    entry: Listed
    cell: tuple[str, str, str, str]
    """GPU, driver, torch and stack."""
    parts: tuple[str, ...]
    """In the order of PARTS; "" for what was not recorded."""
    first: Problem | None
    """None for one of success."""
    others: tuple[str, ...]
    """Codes of its other problems."""
    fix: Fix | None


def summary_of(
    file: str, link: str, certificate: Certificate, options: Options | None, sha256: str = ""
) -> Summary:
    """Return what merging keeps of a certificate; ``options`` are what a diagnosis of the same environment advised."""
    first, fix, problem = None, None, ""
    codes: dict[str, None] = {}
    if certificate.verdict not in SUCCESS:
        unknown = Problem("run", "run", Criterion("no-reason-recorded", Outcome.UNDETERMINED, "", ""))
        first, *others = list(problems_of(certificate)) or [unknown]
        fix, problem = _fix_of(options, first), f"{first.kind} {first.criterion.code}"
        codes = dict.fromkeys(
            item.criterion.code for item in others if item.criterion.code != first.criterion.code
        )
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
    parts = parts_of(certificate)
    asked_and_ran = (certificate.renderer, certificate.environment.get("renderer"))
    gpu, driver = parts.get("processor", ""), parts.get("driver", "")
    if certificate.device == "cpu":
        gpu, driver = "CPU", "not used"
    stack = ": ".join(filter(None, asked_and_ran))
    return Summary(
        entry,
        (gpu, driver, certificate.environment.get("torch", ""), stack),
        tuple(parts.get(part, "") for part in PARTS),
        first,
        tuple(codes),
        fix,
    )


def parts_of(certificate: Certificate) -> dict[str, str]:
    """Return those of :data:`splatfix.report.wording.PARTS` that it recorded."""
    environment, argv = certificate.environment, certificate.repeat.argv
    version, _, commit = environment.get("splatfix", "").partition(" (commit ")
    limits = (environment.get("GPU clocks"), environment.get("GPU power limit"))
    parts = {
        "device": certificate.device,
        "gpu-limits": ", ".join(filter(None, limits)),
        "system": environment.get("system", ""),
        "python": environment.get("python", ""),
        "torch": environment.get("torch", ""),
        "asked-renderer": certificate.renderer,
        "splatfix": version,
        "commit": commit.strip(" ()"),
        "run-level": number(certificate.level, "{}", absent=""),
        "suite": certificate.suite,
        "card": environment.get("GPU id", ""),
        "processor": environment.get("CPU", ""),
    }
    if certificate.device != "cpu":
        # certify writes the device behind the name, because a machine may have several GPUs of one name
        gpu = environment.get("GPU", "").removesuffix(f" ({certificate.device})")
        parts |= {"host": parts["processor"], "processor": gpu, "driver": environment.get("driver", "")}
    if certificate.sources:
        # one digest for all: which files differ is only asked where the digests do
        content = repr(sorted(certificate.sources.items())).encode("utf-8", "surrogatepass")
        parts["sources"] = f"sha256:{hashlib.sha256(content).hexdigest()[:16]}"
    if not certificate.scenes and "--seed" in argv[:-1]:  # it ended before the trainer told its settings
        parts["seed"] = argv[argv.index("--seed") + 1]
    # what a trainer told of itself, from inside the run, outweighs what was asked for
    runs = {item.scene: _parts_of_run(item.record) for item in certificate.scenes}
    for part in dict.fromkeys(part for told in runs.values() for part in told):
        values = {name: told[part] for name, told in sorted(runs.items()) if told.get(part)}
        parts[part] = "; ".join(f"{name}: {value}" for name, value in values.items())
        if len(set(values.values())) == 1:  # all runs have it in common
            parts[part] = next(iter(values.values()))
    return {name: value for name, value in parts.items() if value}


def _parts_of_run(record: TrainingRecord) -> dict[str, str]:
    parts = {
        "torch-cuda": record.versions.get("cuda") or "",
        "iterations": number(record.config.iterations, "{}", absent=""),
        "resolution": resolution(record),
        "strategy": record.config.strategy or "",
        # a stack's own trainer tells that there was one, and not its number
        "seed": re.sub(r"\D", "", number(record.config.seed, "{}", absent="")),
        "scenes": (record.scene_sha256 or "")[:16],
    }
    for part in ("renderer", "ssim", "knn", "optimizer"):  # what an extension may replace
        item = record.implementations.get(part, Implementation())
        parts[part] = " ".join(filter(None, (item.name, item.version, item.engine)))
        if item.sha256:
            parts[part] += f", {item.file or ''} sha256:{item.sha256[:16]}"
    return parts


def _fix_of(options: Options | None, first: Problem) -> Fix | None:
    """Return what a certificate advises: where a diagnosis explained its failure its option, or what is needed besides; else
    what to do about the first problem."""
    if options and options.advice:
        if option := options.advice.option:
            return Fix(option.title, option.steps)
        for item in options.advice.also_needed:
            return Fix(item.text, item.steps)
    return Fix(first.criterion.advice) if first.criterion.advice else None


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts ``2.9`` before ``2.13``."""
    key = []
    for piece in re.split(r"(\d+)", name):
        key.append((int(piece), "") if piece.isdecimal() else (-1, piece))
    return key


def merge(summaries: Sequence[Summary]) -> MergeDocument:
    """Return the matrix and the groups of all certificates."""
    counts = Counter(item.entry.verdict for item in summaries)
    cells: dict[tuple[str, str, str, str], list[Listed]] = {}
    for item in summaries:
        cells.setdefault(item.cell, []).append(item.entry)
    # the stack first, which is the last part of a cell
    ordered = sorted(cells, key=lambda cell: [*map(natural, (cell[-1], *cell[:-1]))])
    groups = sorted(_groups(summaries), key=lambda group: (-len(group.certificates), group.kind, group.code))
    return MergeDocument(
        verdicts={verdict.value: counts[verdict] for verdict in Verdict},
        cells=tuple(Cell(*cell, _newest(cells[cell])) for cell in ordered),
        groups=tuple(groups),
    )


def _newest(entries: Iterable[Listed]) -> tuple[Listed, ...]:
    return tuple(sorted(entries, key=lambda item: item.issued, reverse=True))


def _groups(summaries: Sequence[Summary]) -> Iterator[Group]:
    """Yield the groups: the same criterion fails for many reasons, so that a group shares the problem and the first cause that
    differs."""
    succeeded = [item for item in summaries if item.entry.verdict in SUCCESS]
    # A diagnosis that passed shows nothing about a training that failed. Each once, in the order they came: the same
    # certificates give the same report.
    every = list(dict.fromkeys(item.parts for item in succeeded))
    trained = list(dict.fromkeys(item.parts for item in succeeded if not item.entry.remark))
    groups: dict[tuple[str, str, str, str], list[Summary]] = {}
    peers: dict[tuple[str, str, str, str], Counter[str]] = {}
    for item in summaries:
        if item.first:
            part, value, values = _first_difference(item.parts, every if item.entry.remark else trained)
            key = (item.first.kind, item.first.criterion.code, part, value)
            groups.setdefault(key, []).append(item)
            peers.setdefault(key, Counter()).update(values)
    for key, items in groups.items():
        (kind, code, part, value), values = key, peers[key]
        others = Counter(name for item in items for name in item.others)
        advice = Counter(item.fix for item in items if item.fix is not None)
        # one fix for all: what most of them advise
        unadvised = Fix("look for the cause where it failed", (run("splatfix", "diagnose"),))
        fix, advised = next(iter(advice.most_common(1)), (unadvised, 0))
        first, *_ = (item.first.criterion for item in items if item.first)
        certified = every if all(item.entry.remark for item in items) else trained
        yield Group(
            kind=kind,
            code=code,
            means=first.why,
            measured=first.measured,
            also=tuple(sorted(others, key=others.__getitem__, reverse=True)),
            part=part,
            label=PARTS.get(part, ""),
            value=value,
            certified_with=tuple(sorted(values, key=values.__getitem__, reverse=True)[:MOST_VALUES]),
            in_common=tuple(_in_common(items, certified)),
            fix=fix,
            advised=advised,
            certificates=_newest(item.entry for item in items),
        )


def _first_difference(
    parts: tuple[str, ...], certified: Sequence[tuple[str, ...]]
) -> tuple[str, str, Iterable[str]]:
    """Return the first part in which this differs from every certified one that is equal before it, its value, and those that
    they have there; "" where there is none. What one of the two did not record does not differ."""
    for at, (part, value) in enumerate(zip(PARTS, parts, strict=True)):
        alike = [peer for peer in certified if not value or peer[at] in (value, "")]
        if certified and not alike:
            return part, value, list(dict.fromkeys(peer[at] for peer in certified))
        certified = alike
    return "", "", ()


def _in_common(items: Sequence[Summary], certified: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield the parts in which two or more of these agree, and in which a certified certificate has another value."""
    for at, label in enumerate(PARTS.values()):
        values = {item.parts[at] for item in items}
        (value, *others) = values
        theirs = {peer[at] for peer in certified} - {"", value}
        if len(items) > 1 and value and not others and theirs:
            yield f"{label} {value}"
