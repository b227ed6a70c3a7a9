"""``splatfix project``: judge what a project's files would install, and write what mends them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from splatfix.app.diagnose import exit_code_of
from splatfix.app.interrupts import on_interrupt
from splatfix.app.result import Result
from splatfix.context import Goal, make_context
from splatfix.core.data import dataclass
from splatfix.core.errors import SplatfixError
from splatfix.core.reading import read_bytes
from splatfix.core.step import run, target_options, value_options
from splatfix.facts import Facts, choose_python, gather, load
from splatfix.facts.project.model import Project
from splatfix.facts.project.reader import read_project
from splatfix.install.project import write_project
from splatfix.knowledge import Arch, Auto
from splatfix.plan.requirements import usable_targets
from splatfix.projects.edits import edited
from splatfix.projects.judge import judge
from splatfix.projects.model import Judgement
from splatfix.report import annotations as github
from splatfix.report import console
from splatfix.report import project as report

_MOST_ROUNDS = 4
"""An edit can bring another with it, as another torch asks for another Python; none was seen that took more than two."""


@dataclass(frozen=True, kw_only=True)
class ProjectRequest:
    """What was asked of ``splatfix project``."""

    folder: Path
    targets: tuple[Arch | Auto, ...] = ()
    facts_file: Path | None = None
    """Saved facts of the machine to judge for."""
    verbose: bool = False
    as_json: bool = False


@dataclass(frozen=True)
class Mended:
    """What was judged, and its files as they would be."""

    judged: tuple[Judgement, ...]
    after: tuple[Judgement, ...]
    """The same with the edits."""
    changes: tuple[report.Change, ...]
    targets: tuple[str, ...]


def check(request: ProjectRequest) -> Result:
    """Judge every file; change nothing.

    Raises:
        SplatfixError: no such folder, nothing in it to judge (exit code 2), no GPU that is meant (3).
    """
    mended = _mended(request)
    findings = [item for judgement in mended.judged for item in judgement.findings]
    options = (*target_options(request.targets), *value_options({"--facts": request.facts_file}))
    step = run("splatfix", "project", "write", request.folder, *options, text="Write this with")
    return Result(
        "project check",
        lambda: report.document(mended.judged, mended.changes, mended.targets),
        lambda page: report.show(
            page, mended.judged, mended.changes, mended.targets, step, verbose=request.verbose
        ),
        exit_code_of(findings),
        forms={"github": lambda: github.of_findings(findings)},
    )


def write(request: ProjectRequest, confirm: Callable[[str], None]) -> Result:
    """Write the edits, after they were shown; a second time there are none.

    The exit code is that of a check afterwards: 1 where something is left that no edit mends.

    Raises:
        SplatfixError: as :func:`check`; a file that cannot be written, or was changed meanwhile.
    """
    mended = _mended(request)
    written = ""
    if mended.changes:
        if not request.as_json:
            report.show_changes(console.out(), mended.changes)
            confirm("Write this?")
        folder = request.folder.resolve()
        with on_interrupt(f"Interrupted: splatfix revert --project {folder} undoes what was written."):
            written = write_project(
                folder,
                {change.file: _encoded(change.after) for change in mended.changes},
                {change.file: _encoded(change.before) for change in mended.changes},
            ).id
    findings = [item for judgement in mended.after for item in judgement.findings]
    return Result(
        "project write",
        lambda: {**report.document(mended.after, mended.changes, mended.targets), "entry": written},
        lambda page: report.show_written(page, mended.after, mended.changes, mended.targets, request.folder),
        exit_code_of(findings),
    )


def _mended(request: ProjectRequest) -> Mended:
    """Judge, and edit in memory until nothing more is to be edited."""
    folder = request.folder
    if not folder.is_dir():
        raise SplatfixError.of("app.not-a-folder", folder=folder)
    facts = _facts(request)
    archs = usable_targets(make_context(facts, Goal(request.targets)))
    project = read_project(folder)
    if not project.manifests:
        raise SplatfixError.of("app.no-project", folder=folder)
    judged = after = judge(project, facts, request.targets)
    texts: dict[str, str] = {}
    for _ in range(_MOST_ROUNDS):
        changed = _edited(project, after, texts)
        if not changed:
            break
        texts |= changed
        project = read_project(folder, texts)
        after = judge(project, facts, request.targets)
    changes = [report.Change(name, _text(folder / name), text) for name, text in texts.items()]
    return Mended(
        judged,
        after,
        tuple(item for item in changes if item.before != item.after),
        tuple(arch.sm for arch in archs),
    )


def _edited(project: Project, judged: Sequence[Judgement], texts: dict[str, str]) -> dict[str, str]:
    changed = {}
    for item in judged:
        name = item.manifest.file
        before = texts.get(name) or _text(Path(project.folder) / name)
        after = edited(before, item.manifest, item.repair)
        if after != before:
            changed[name] = after
    return changed


def _text(path: Path) -> str:
    content = read_bytes(path)
    return content.decode("utf-8", "surrogateescape") if isinstance(content, bytes) else ""


def _encoded(text: str) -> bytes:
    # what is not ours to change comes back as it was
    return text.encode("utf-8", "surrogateescape")


def _facts(request: ProjectRequest) -> Facts:
    """The machine's; of the environment only its Python counts, where the project pins none."""
    if request.facts_file is not None:
        return load(request.facts_file)
    return gather(choose_python(None).python or None)
