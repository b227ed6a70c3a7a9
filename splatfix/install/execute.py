"""Executes a plan in one environment: make every wheel, verify every wheel, then install and import, or undo everything."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from pathlib import Path

from msgspec import Struct, field

from splatfix.context.imports import brought_by
from splatfix.core.codec import to_json
from splatfix.core.errors import SplatfixError
from splatfix.core.files import sha256_of, write_json
from splatfix.core.proof import Rung, RungName
from splatfix.core.runner import Runner
from splatfix.core.words import counted
from splatfix.facts.checkout import read_source, trainer_around
from splatfix.facts.source.copying import missed
from splatfix.install.backup import Backup, JournalPaths, backup_files, make_backup, note_written
from splatfix.install.build import Builder, Built
from splatfix.install.dependencies import Fetcher
from splatfix.install.downloads import Pip, fetch_wheel, provide_toolkit
from splatfix.install.dropins import compile_cuda_kernels, make_dropin_wheel
from splatfix.install.edit import edited_contents, require_editable, write_edits
from splatfix.install.environment import Environment, environment_lock, open_environment, pip_install
from splatfix.install.installed import find_installed, is_installed
from splatfix.install.journal import Entry, EntryStatus, Journal, StepRecord, file_name
from splatfix.install.leftovers import list_files, move_out
from splatfix.install.outcome import InstalledItem, InstallOutcome, InstallProgress, kept_of
from splatfix.install.parallel import Piece, parallel
from splatfix.install.scratch import sweep_scratch
from splatfix.install.takeover import refuse_takeover
from splatfix.install.undo import Undoer
from splatfix.install.verify import check_import, refuse_another, refuse_unplanned, verify_wheel
from splatfix.install.wheel_cache import WheelCache
from splatfix.install.wheels import WheelFile, open_wheel
from splatfix.knowledge.dropins import Dropin, declared_dropin, dropin_of, has_reference
from splatfix.model import Facts
from splatfix.model.option import Plan
from splatfix.model.steps import (
    BuildWheel,
    CheckImport,
    EditSource,
    FetchWheel,
    InstallDependencies,
    InstallWheel,
    MakeDropin,
    ProvideToolkit,
    VerifyWheel,
)

_NEEDS = {
    "pure": "pure PyTorch needs only torch, which is there",
    "nvrtc": "NVRTC came with torch, and compiles for these GPUs",
}


def execute(
    plan: Plan,
    facts: Facts,
    *,
    runner: Runner | None = None,
    progress: InstallProgress | None = None,
    cache: WheelCache | None = None,
    reinstall: bool = False,
    fetchers: Mapping[str, Callable[[Path], Path]] | None = None,
) -> InstallOutcome:
    """Execute the plan. Afterwards the environment holds all of it, verified, or is as it was.

    Left-overs of interrupted runs are undone first. Every step is in the journal before it is taken.

    Args:
        cache: where built wheels are looked up and kept; None builds everything afresh.
        reinstall: also install what is up to date.
        fetchers: by its requirement, what brings a prebuilt wheel that was found into a folder; others pip brings.

    Raises:
        SplatfixError: what went wrong; nothing of the plan is then left in the environment.
    """
    started = time.monotonic()
    environment = open_environment(plan.python, runner)
    environment.require_writable()
    require_editable(plan.executed)
    with environment_lock(environment.state_folder) as lock_notes:
        journal = Journal(environment.state_folder)
        undoer = Undoer(environment, journal)
        recovered = undoer.recover()
        sweep_scratch()
        # what the journal's list says of it
        request = {
            "backend": plan.backend,
            "targets": " ".join(map(str, plan.targets)),
            "subjects": " ".join(plan.subjects),
        }
        forced = {build.cuda_mismatch for build in _builds(plan) if build.cuda_mismatch}
        if forced:
            request["cuda_mismatch"] = "; ".join(sorted(forced))
        entry = journal.start(request, plan.python, "-".join(plan.subjects)[:60])
        write_json(journal.folder_of(entry) / "plan.json", to_json(plan))
        progress = progress or InstallProgress()
        items = {subject: _Item() for subject in plan.subjects}
        work = _Execution(
            plan, facts, environment, progress, journal, entry, cache, reinstall, items, fetchers or {}
        )
        try:
            work.take_steps()
        except BaseException as error:
            # also for Ctrl-C: whoever interrupts an installation wants the environment back
            status, message = EntryStatus.FAILED, type(error).__name__
            if work.entry.changes:
                status = EntryStatus.ROLLED_BACK
            if isinstance(error, SplatfixError):
                message = error.what
                error.meaning = " ".join([error.meaning, *(f"Beside that, {text}." for text in work.moved)])
            kept = kept_of(undoer.undo(work.entry, undoer.read(work.entry)))
            with suppress(SplatfixError):  # an entry that a full disk keeps open is closed by the next run
                journal.end(work.entry, status, message, kept=kept)
            raise
        journal.end(work.entry, EntryStatus.DONE)
    notes = list(lock_notes)
    if work.dependencies:
        notes.append(f"also installed, and undone with it: {', '.join(work.dependencies)}")
    notes += [*work.notes, *work.moved, *(note for item in recovered for note in item.notes)]
    if cache:
        notes += cache.refused
    return InstallOutcome(
        plan=plan,
        notes=tuple(notes),
        entry=work.entry.id,
        items=tuple(work.result(subject, item) for subject, item in items.items()),
        log=str(work.folder),
        recovered=tuple(item.entry for item in recovered),
        kept=kept_of(restored for item in recovered for restored in item.items),
        seconds=time.monotonic() - started,
    )


class _Item(Struct):
    """What is known so far of one distribution of the plan."""

    made_by: BuildWheel | MakeDropin | FetchWheel | None = None
    wheel: WheelFile | None = None
    seconds: float = 0.0
    dropin: Dropin | None = None
    before: str = ""
    up_to_date: bool = False
    modules: tuple[str, ...] = ()
    rungs: list[Rung] = field(default_factory=list)


class _Execution(Struct):
    """One run through a plan's steps."""

    plan: Plan
    facts: Facts
    environment: Environment
    progress: InstallProgress
    journal: Journal
    entry: Entry
    cache: WheelCache | None
    reinstall: bool
    items: dict[str, _Item]
    fetchers: Mapping[str, Callable[[Path], Path]]
    dependencies: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    """What builds had put into the environment."""

    @property
    def folder(self) -> Path:
        return self.journal.folder_of(self.entry)

    def take_steps(self) -> None:
        """Take every step in order; builds that follow each other run in parallel."""
        numbered = enumerate(self.plan.executed, 1)
        for building, group in groupby(numbered, lambda item: isinstance(item[1], BuildWheel)):
            if building:
                # the journal and the progress are written by this thread; only the builds themselves run in others
                pieces = [self._piece(n, step) for n, step in group if isinstance(step, BuildWheel)]
                # the planner has divided the compilers among the builds; without its sum they go one after the other
                budget = self.plan.jobs or max(piece.cost for piece in pieces)
                self._import_needs()
                list_files(self.environment, self.folder)
                try:
                    parallel(pieces, budget)
                finally:
                    self.moved += move_out(self.environment, self.folder)
                continue
            for number, step in group:
                self.progress.begin(step, number, len(self.plan.steps))
                match step:
                    case InstallDependencies():
                        showed = self._install_dependencies(step)
                    case ProvideToolkit():
                        showed = self._provide_toolkit(step)
                    case MakeDropin():
                        showed = self._make_dropin(step, self.items[step.subject])
                    case FetchWheel():
                        showed = self._fetch(step, self.items[step.subject])
                    case VerifyWheel():
                        showed = self._verify(step, self.items[step.subject])
                    case EditSource():
                        showed = self._edit(step)
                    case InstallWheel():
                        showed = self._install(step, self.items[step.subject])
                    case CheckImport():
                        showed = self._import(step, self.items[step.subject])
                    case BuildWheel():
                        raise AssertionError("builds are taken together")
                self.progress.end(step, showed)

    def _begin(self, record: StepRecord) -> StepRecord:
        self.entry = self.journal.begin(self.entry, record)
        return record

    def _finish(self, record: StepRecord, *, digest: str = "", result: str = "") -> None:
        self.entry = self.journal.finish(self.entry, record, digest=digest, result=result)

    def _install_dependencies(self, step: InstallDependencies) -> str:
        tell = partial(self.progress.doing, step)
        installed = self.facts.environment.distributions.value or ()
        folder, log = self.folder / "dependencies" / "wheels", self.folder / "dependencies.log"
        written: list[Path] = []
        pins = list(step.pins)
        fetcher = Fetcher(step, installed, self.environment, folder, log, tell, pins)
        paths, left_out = fetcher.fetch()
        self.notes += [
            *fetcher.told,
            *(f"not installed, and its scripts may lack it: {text}" for text in left_out),
        ]
        # all in one run of pip, which takes a third of a second to start
        wheels = [open_wheel(path) for path in paths]
        if wheels:
            tell(f"installing {counted(len(wheels), 'wheel')}")
            self._put_in([(wheel, wheel.name) for wheel in wheels])
        for wheel in wheels:
            written += wheel.destinations(self.environment)
            self.dependencies.append(f"{wheel.name} {wheel.version}")
        shutil.rmtree(folder.parent, ignore_errors=True)
        if written:
            self._import_dependencies(step, written)
        return ", ".join(self.dependencies) or "they are there"

    def _import_dependencies(self, step: InstallDependencies, written: list[Path]) -> None:
        """Import what was installed: a failure of what is needed is raised, of what is optional is told."""
        has_gpu = bool(self.facts.machine.gpus.value)
        # a module may be a folder or a file of a wheel, whatever the wheel is called: PIL comes with pillow
        names: set[str] = set()
        for path in written:
            names.update(part.partition(".")[0] for part in path.parts)
        optional = tuple(name for name in step.optional_modules if name.partition(".")[0] in names)

        def load(modules: tuple[str, ...]) -> None:
            if modules:
                self.progress.doing(step, f"importing {', '.join(modules)}")
                check_import(modules, written, self.environment, has_gpu)

        try:
            # in one child, because torch takes seconds to load; only a failure is worth one for each
            load((*step.modules, *optional))
        except SplatfixError:
            load(step.modules)
            for module in optional:
                try:
                    load((module,))
                except SplatfixError as error:
                    self.notes.append(
                        f"{module} cannot be imported, and its scripts may need it: {error.what}"
                    )

    def _import_needs(self) -> None:
        """Import what is there of what the packages import: one that fails would take them back after minutes of compiling."""
        sources = [read_source(Path(step.source)) for step in _builds(self.plan)]
        skipped = {"torch", *brought_by(sources), *self.plan.subjects}
        there = self.facts.environment.modules.value or ()
        needs = dict.fromkeys(need.name for source in sources for need in source.needs)
        modules = tuple(name for name in needs if name in there and name not in skipped)
        if modules:
            check_import(modules, None, self.environment, bool(self.facts.machine.gpus.value))

    def _provide_toolkit(self, step: ProvideToolkit) -> str:
        record = self._begin(StepRecord(step.kind, step.subject))
        pip = Pip.of(self.environment, self.folder / "toolkit.log")
        root, digest = provide_toolkit(step, pip, partial(self.progress.doing, step))
        self._finish(record, digest=digest, result=str(root))
        return str(root)

    def _piece(self, number: int, step: BuildWheel) -> Piece[tuple[Built, float]]:
        record = StepRecord(step.kind, step.subject)
        item = self.items[step.subject]
        log = self.folder / f"build-{file_name(step.subject)}.log"

        def begin() -> None:
            self.progress.begin(step, number, len(self.plan.steps), str(log))
            self._begin(record)

        def work(stop: threading.Event) -> tuple[Built, float]:
            started = time.monotonic()
            tell, wheels = partial(self.progress.doing, step), self.folder / "wheels"
            builder = Builder(step, self.facts, self.environment, wheels, log, tell, self.cache, stop)
            return builder.build(), time.monotonic() - started

        def end(result: tuple[Built, float]) -> None:
            built, item.seconds = result
            item.wheel, item.made_by = open_wheel(built.path), step
            self.notes += [f"not copied for the build: {text}" for text in missed(built.left_out)]
            self._finish(record, result=built.path.name)
            origin = f"compiled in {item.seconds:.0f} s"
            if built.cached:
                origin = "from the wheel cache"
            self.progress.end(step, f"{built.path.name}, {origin}")

        return Piece(int(step.variables.get("MAX_JOBS", "1")), work, begin, end)

    def _make_dropin(self, step: MakeDropin, item: _Item) -> str:
        record = self._begin(StepRecord(step.kind, step.subject))
        started = time.monotonic()
        dropin = declared_dropin(step.declared) if step.declared else dropin_of(step.subject, step.variant)
        compiled = None
        if step.targets:
            self.progress.doing(step, "compiling its CUDA kernels by NVRTC")
            log = self.folder / f"nvrtc-{file_name(step.subject)}.log"
            compiled, rung = compile_cuda_kernels(dropin, step.targets, self.environment, log)
            item.rungs.append(rung)
        path = make_dropin_wheel(dropin, step.version, self.folder / "wheels", compiled)
        item.seconds = time.monotonic() - started
        item.wheel, item.made_by, item.dropin = open_wheel(path), step, dropin
        self._finish(record, result=path.name)
        return path.name

    def _fetch(self, step: FetchWheel, item: _Item) -> str:
        record = self._begin(StepRecord(step.kind, step.subject))
        started = time.monotonic()
        folder = self.folder / "wheels" / file_name(step.subject)  # of its own: another's wheel is not it
        if fetch := self.fetchers.get(step.requirement):
            path = fetch(folder)
        else:
            path = fetch_wheel(step, Pip.of(self.environment, self.folder / "fetch.log"), folder)
        item.seconds = time.monotonic() - started
        item.wheel, item.made_by = open_wheel(path), step
        if not fetch:
            refuse_another(item.wheel, step)
        self._finish(record, digest=sha256_of(path), result=path.name)
        return path.name

    def _verify(self, step: VerifyWheel, item: _Item) -> str:
        assert item.wheel is not None
        record = self._begin(StepRecord(step.kind, step.subject))
        refuse_unplanned(item.wheel, step.subject, self.environment)
        compiled = isinstance(item.made_by, BuildWheel | FetchWheel) and bool(item.made_by.targets)
        rung = verify_wheel(item.wheel, step.targets, self.facts, expects_gpu_code=compiled)
        # where drop-ins were compiled, their own proof of it says more than that of the wheel
        if not any(shown.name is RungName.BUILT for shown in item.rungs):
            item.rungs.append(rung)
        self._finish(record)
        return item.rungs[-1].shown_by

    def _edit(self, step: EditSource) -> str:
        """Edit the checkout's own files, now that the wheel built from their edited copies is verified."""
        source = Path(step.source)
        contents = edited_contents(source, step.edits)
        folder = f"edits-{file_name(step.subject)}"
        paths = JournalPaths.of(self.environment, step.source)
        backup_files(step.subject, contents, self.folder / folder, paths)
        record = self._begin(StepRecord(step.kind, step.subject, backup=folder, source=step.source))
        write_edits(contents)
        self._finish(record)
        return f"{counted(len(contents), 'file')} in {source}"

    def _install(self, step: InstallWheel, item: _Item) -> str:
        wheel = item.wheel
        assert wheel is not None
        if not self.reinstall and is_installed(wheel, self.environment):
            item.before, item.up_to_date = wheel.version, True
            self._finish(self._begin(StepRecord(step.kind, step.subject)), result=wheel.version)
            return f"{wheel.name} {wheel.version} is already up to date"
        (item.before,) = self._put_in([(wheel, step.subject)])
        return f"{wheel.name} {wheel.version}"

    def _put_in(self, wheels: Sequence[tuple[WheelFile, str]]) -> list[str]:
        """Install wheels, each with its subject, in one run of pip: all are backed up and written down before. The versions
        that they replaced."""
        self.notes += refuse_takeover(self.environment, [wheel for wheel, _ in wheels])
        paths = JournalPaths.of(self.environment)
        begun: list[tuple[StepRecord, Backup]] = []
        for wheel, subject in wheels:
            folder = f"backup-{file_name(subject)}"
            backup = make_backup(self.environment, wheel, self.folder / folder)
            listed_by = f"is listed by {wheel.name} {backup.version_before}"
            for path in backup.foreign:
                self.notes.append(f"{path} {listed_by}, lies outside of the environment, and was left alone")
            record = StepRecord(
                "install-wheel", subject, backup=folder, distribution=wheel.name, version=wheel.version
            )
            begun.append((self._begin(record), backup))
        pip_install(self.environment, self.folder / "pip.log", *(wheel.path for wheel, _ in wheels))
        for record, backup in begun:
            note_written(backup, self.folder / record.backup, paths)
            digest = ""
            installed = find_installed(self.environment, record.distribution)
            if len(installed) == 1:  # of two of one name, which a later change concerns cannot be told
                digest = installed[0].digest
            self._finish(record, digest=digest)
        return [backup.version_before for _, backup in begun]

    def _import(self, step: CheckImport, item: _Item) -> str:
        assert item.wheel is not None
        record = self._begin(StepRecord(step.kind, step.subject))
        modules, caller, checkout = dict.fromkeys(item.wheel.modules), "", None
        match item.made_by:
            case FetchWheel(origin=""):
                # what no user imports by itself need not be importable by itself
                modules = dict.fromkeys(name for name in modules if "." not in name)
            case BuildWheel(source=source):
                checkout = trainer_around(Path(source))
        if item.dropin:
            # the package of some drop-ins is empty, and what callers import is a module in it (simple_knn._C)
            caller, api = item.dropin.caller, item.dropin.api.removesuffix(".py").removesuffix("/__init__")
            modules[api.replace("/", ".")] = None
        item.modules = tuple(modules)
        rung = check_import(
            item.modules,
            item.wheel.destinations(self.environment),
            self.environment,
            bool(self.facts.machine.gpus.value),
            caller=caller,
            checkout=str(checkout or ""),
        )
        item.rungs.append(rung)
        self._finish(record)
        return rung.shown_by

    def result(self, subject: str, item: _Item) -> InstalledItem:
        """Tell what was installed, with everything that was verified."""
        assert item.wheel is not None
        forced = ""
        computes, trains = "not run; next: splatfix certify --level 2", "not trained; next: splatfix certify"
        if not has_reference(subject):
            computes, trains = "not run; splatfix has no reference for it", "not trained"
        match item.made_by:
            case BuildWheel(cuda_mismatch=mismatch) if mismatch:
                forced = mismatch
                reason = f"{forced}; torch's check was silenced (--force-cuda-mismatch)"
            case BuildWheel(targets=()):
                reason = "no CUDA code, so no versions to reconcile"
            case FetchWheel(origin=""):
                reason = "it is the version that was installed before"
            case FetchWheel(origin=origin):
                reason = f"prebuilt, from {origin}: its name, tags and torch fit"
            case MakeDropin():
                reason = _NEEDS[self.plan.backend]
            case _:
                reason = f"toolkit, host compiler and torch agree on {', '.join(map(str, self.plan.targets))}"
        return InstalledItem(
            subject=subject,
            version=item.wheel.version,
            before=item.before,
            up_to_date=item.up_to_date,
            modules=item.modules,
            wheel=item.wheel.path.name,
            seconds=item.seconds,
            proof=(
                Rung(RungName.RESOLVED, not forced, reason),
                *item.rungs,
                Rung(RungName.COMPUTES, None, computes),
                Rung(RungName.TRAINS, None, trains),
            ),
        )


def _builds(plan: Plan) -> list[BuildWheel]:
    return [step for step in plan.steps if isinstance(step, BuildWheel)]
