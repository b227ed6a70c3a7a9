"""Executes a plan in one environment: make every wheel, verify every wheel, then install and import, or undo everything."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.context.imports import brought_by
from splatfix.core.codec import to_json
from splatfix.core.errors import SplatfixError
from splatfix.core.files import sha256_of, write_json
from splatfix.core.proof import Rung, RungName
from splatfix.core.runner import Runner
from splatfix.core.words import counted
from splatfix.facts.checkout import read_source, trainer_around
from splatfix.facts.source.copying import missed
from splatfix.install.backup import Backup, Places, backup_files, make_backup, note_written
from splatfix.install.build import Builder, Built
from splatfix.install.dependencies import Fetcher
from splatfix.install.downloads import Pip, fetch_wheel, provide_toolkit
from splatfix.install.dropins import compile_cuda_kernels, make_dropin_wheel
from splatfix.install.environment import Environment, environment_lock, open_environment, pip_install
from splatfix.install.installed import find_installed, is_installed
from splatfix.install.journal import Entry, EntryStatus, Journal, file_name
from splatfix.install.leftovers import list_files, move_out
from splatfix.install.outcome import InstalledItem, InstallOutcome, InstallProgress, kept_of
from splatfix.install.parallel import parallel
from splatfix.install.scratch import edited_contents, require_editable, sweep_scratch, write_edits
from splatfix.install.takeover import refuse_takeover
from splatfix.install.undo import Undoer
from splatfix.install.verify import check_import, refuse_unplanned, verify_wheel
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
    InstallStep,
    InstallWheel,
    MakeDropin,
    ProvideToolkit,
    VerifyWheel,
)

MakeWheel = BuildWheel | MakeDropin | FetchWheel
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

    Left-overs of interrupted runs are undone first. Every step is in the journal before it is taken. Raised is what went
    wrong; nothing of the plan is then left in the environment.

    Args:
        cache: where built wheels are looked up and kept; None builds everything afresh.
        reinstall: also install what is up to date.
        fetchers: by its requirement, what brings a prebuilt wheel that was found into a folder; others pip brings.
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
        request = {"backend": plan.backend, "targets": " ".join(map(str, plan.targets))}
        request["subjects"] = " ".join(plan.subjects)
        forced = {step.cuda_mismatch for step in plan.executed if isinstance(step, BuildWheel)} - {""}
        if forced:
            request["cuda_mismatch"] = "; ".join(sorted(forced))
        entry = journal.start(request, plan.python, "-".join(plan.subjects)[:60])
        write_json(journal.folder_of(entry) / "plan.json", to_json(plan))
        progress = progress or InstallProgress()
        work = _Execution(
            plan, facts, environment, journal, entry, progress, cache, reinstall, fetchers or {}
        )
        try:
            work.take_steps()
        except BaseException as error:
            # also for Ctrl-C: whoever interrupts an installation wants the environment back
            message = type(error).__name__
            if isinstance(error, SplatfixError):
                message = error.what
                error.meaning = " ".join([error.meaning, *(f"Beside that, {text}." for text in work.moved)])
            kept = kept_of(undoer.undo(work.entry, undoer.read(work.entry)))
            with suppress(SplatfixError):  # an entry that a full disk keeps open is closed by the next run
                journal.end(work.entry, work.entry.unsuccessful, message, kept)
            raise
        journal.end(work.entry, EntryStatus.DONE)
    notes = [*lock_notes, *work.notes, *work.moved, *(note for item in recovered for note in item.notes)]
    if cache:
        notes += cache.refused
    return InstallOutcome(
        plan=plan,
        notes=tuple(notes),
        entry=work.entry.id,
        items=tuple(work.items[subject] for subject in plan.subjects),
        log=str(work.folder),
        recovered=tuple(item.entry for item in recovered),
        kept=kept_of(restored for item in recovered for restored in item.items),
        seconds=time.monotonic() - started,
    )


class _Execution(Struct):
    """One run through a plan's steps."""

    plan: Plan
    facts: Facts
    environment: Environment
    journal: Journal
    entry: Entry
    progress: InstallProgress
    cache: WheelCache | None
    reinstall: bool
    fetchers: Mapping[str, Callable[[Path], Path]]
    wheels: dict[str, tuple[WheelFile, MakeWheel]] = field(default_factory=dict)
    """By its subject, each wheel that was made, and the step that made it."""
    items: dict[str, InstalledItem] = field(default_factory=dict)
    """By its subject, what is known so far of each."""
    notes: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    """What builds had put into the environment."""

    @property
    def folder(self) -> Path:
        return self.journal.folder_of(self.entry)

    def take_steps(self) -> None:
        """Take every step in order; builds that follow each other run in parallel."""
        for building, group in groupby(self.plan.executed, lambda step: isinstance(step, BuildWheel)):
            if building:
                self._build_all([step for step in group if isinstance(step, BuildWheel)])
                continue
            for step in group:
                self._begin(step)
                self._end(step, _TAKE[type(step)](self, step))

    def _begin(self, step: InstallStep) -> None:
        log = str(self._log_of(step)) if isinstance(step, BuildWheel) else ""
        self.progress.begin(step, self.plan.steps.index(step) + 1, len(self.plan.steps), log)
        self._note(step)

    def _end(self, step: InstallStep, showed: str, result: str = "") -> None:
        self._note(step, done=True, result=result or showed)
        self.progress.end(step, showed)

    def _note(self, step: InstallStep, **known: object) -> None:
        self.entry = self.journal.note(self.entry, step.kind, step.subject, **known)

    def _made(self, step: MakeWheel, path: Path, seconds: float, resolved: Rung, *rungs: Rung) -> None:
        wheel = open_wheel(path)
        self.wheels[step.subject] = wheel, step
        proof = (resolved, *rungs)
        self.items[step.subject] = InstalledItem(
            step.subject, wheel.version, "", (), path.name, seconds, proof
        )

    def _know(self, step: InstallStep, *rungs: Rung, **known: object) -> None:
        item = self.items[step.subject]
        self.items[step.subject] = replace(item, proof=(*item.proof, *rungs), **known)

    def _load(self, modules: Sequence[str], installed: Collection[Path] | None, **how: str) -> Rung:
        return check_import(modules, installed, self.environment, bool(self.facts.machine.gpus.value), **how)

    def _pip(self, log: str) -> Pip:
        return Pip.of(self.environment, self.folder / f"{log}.log")

    def _install_dependencies(self, step: InstallDependencies) -> str:
        tell = partial(self.progress.doing, step)
        installed = self.facts.environment.distributions.value or ()
        folder, pip = self.folder / "dependencies" / "wheels", self._pip("dependencies")
        fetcher = Fetcher(step, installed, pip, folder, tell)
        # all in one run of pip, which takes a third of a second to start
        wheels = [open_wheel(path) for path in fetcher.fetch()]
        there = ", ".join(f"{wheel.name} {wheel.version}" for wheel in wheels)
        if wheels:
            self.notes.append(f"also installed, and undone with it: {there}")
            tell(f"installing {counted(len(wheels), 'wheel')}")
            self._put_in([(InstallWheel(subject=wheel.name), wheel) for wheel in wheels])
        shutil.rmtree(folder.parent, ignore_errors=True)
        self.notes += fetcher.told
        written = [path for wheel in wheels for path in wheel.destinations(self.environment)]
        self._import_dependencies(step, written)
        return there or "they are there"

    def _import_dependencies(self, step: InstallDependencies, written: list[Path]) -> None:
        """Import what was installed: a failure of what is needed is raised, of what is optional is told."""
        # a module may be a folder or a file of a wheel, whatever the wheel is called: PIL comes with pillow
        names = {part.partition(".")[0] for path in written for part in path.parts}
        optional = [name for name in step.optional_modules if name.partition(".")[0] in names]

        def load(*modules: str) -> None:
            if modules and written:
                self.progress.doing(step, f"importing {', '.join(modules)}")
                self._load(modules, written)

        try:
            # in one child, because torch takes seconds to load; only a failure is worth one for each
            load(*step.modules, *optional)
        except SplatfixError:
            load(*step.modules)
            for module in optional:
                try:
                    load(module)
                except SplatfixError as error:
                    self.notes.append(
                        f"{module} cannot be imported, and its scripts may need it: {error.what}"
                    )

    def _provide_toolkit(self, step: ProvideToolkit) -> str:
        root, digest = provide_toolkit(step, self._pip("toolkit"), partial(self.progress.doing, step))
        self._note(step, digest=digest)
        return str(root)

    def _build_all(self, steps: list[BuildWheel]) -> None:
        # one that fails to be imported would take the packages that import it back after minutes of compiling
        sources = [read_source(Path(step.source)) for step in steps]
        skipped = {"torch", *brought_by(sources), *self.plan.subjects}
        there = self.facts.environment.modules.value or ()
        needs = dict.fromkeys(need.name for source in sources for need in source.needs)
        modules = [name for name in needs if name in there and name not in skipped]
        if modules:
            self._load(modules, None)

        # the planner has divided the compilers among the builds; without its sum they go one after the other
        budget = self.plan.jobs or max(map(_jobs, steps))
        list_files(self.environment, self.folder)
        try:
            # the journal and the progress are written by this thread; only the builds themselves run in others
            parallel(steps, budget, _jobs, self._begin, self._build, self._end_build)
        finally:
            self.moved += move_out(self.environment, self.folder)

    def _log_of(self, step: BuildWheel) -> Path:
        return self.folder / f"build-{file_name(step.subject)}.log"

    def _build(self, step: BuildWheel, stop: threading.Event) -> tuple[Built, float]:
        started = time.monotonic()
        tell, wheels, log = partial(self.progress.doing, step), self.folder / "wheels", self._log_of(step)
        builder = Builder(step, self.facts, self.environment, wheels, log, tell, self.cache, stop)
        return builder.build(), time.monotonic() - started

    def _end_build(self, step: BuildWheel, result: tuple[Built, float]) -> None:
        built, seconds = result
        reason = f"toolkit, host compiler and torch agree on {', '.join(map(str, step.targets))}"
        if step.cuda_mismatch:
            reason = f"{step.cuda_mismatch}; torch's check was silenced (--force-cuda-mismatch)"
        elif not step.targets:
            reason = "no CUDA code, so no versions to reconcile"
        self._made(step, built.path, seconds, Rung(RungName.RESOLVED, not step.cuda_mismatch, reason))
        self.notes += [f"not copied for the build: {text}" for text in missed(built.left_out)]
        origin = "from the wheel cache" if built.cached else f"compiled in {seconds:.0f} s"
        self._end(step, f"{built.path.name}, {origin}", built.path.name)

    def _make_dropin(self, step: MakeDropin) -> str:
        started = time.monotonic()
        dropin, compiled, rungs = _dropin(step), None, list[Rung]()
        if step.targets:
            self.progress.doing(step, "compiling its CUDA kernels by NVRTC")
            log = self.folder / f"nvrtc-{file_name(step.subject)}.log"
            compiled, rung = compile_cuda_kernels(dropin, step.targets, self.environment, log)
            rungs.append(rung)
        path = make_dropin_wheel(dropin, step.version, self.folder / "wheels", compiled)
        resolved = Rung(RungName.RESOLVED, True, _NEEDS[step.backend])
        self._made(step, path, time.monotonic() - started, resolved, *rungs)
        return path.name

    def _fetch(self, step: FetchWheel) -> str:
        started = time.monotonic()
        folder = self.folder / "wheels" / file_name(step.subject)  # of its own: another's wheel is not it
        fetch = self.fetchers.get(step.requirement) or partial(fetch_wheel, step, self._pip("fetch"))
        path = fetch(folder)
        reason = "it is the version that was installed before"
        if step.origin:
            reason = f"prebuilt, from {step.origin}: its name, tags and torch fit"
        self._made(step, path, time.monotonic() - started, Rung(RungName.RESOLVED, True, reason))
        wheel, _ = self.wheels[step.subject]
        is_planned = canonicalize_name(wheel.name) == canonicalize_name(step.subject)
        # an address may lead to any wheel; what was found is proven
        if step.requirement not in self.fetchers and not (is_planned and wheel.version == step.version):
            there = f"{wheel.name} {wheel.version}"
            raise SplatfixError.of("install.another-wheel", wheel=there, requirement=step.requirement)
        self._note(step, digest=sha256_of(path))
        return path.name

    def _verify(self, step: VerifyWheel) -> str:
        wheel, made_by = self.wheels[step.subject]
        refuse_unplanned(wheel, step.subject, self.environment)
        compiled = isinstance(made_by, BuildWheel | FetchWheel) and bool(made_by.targets)
        rung = verify_wheel(wheel, step.targets, self.facts, expects_gpu_code=compiled)
        # where drop-ins were compiled, their own proof of it says more than that of the wheel
        if self.items[step.subject].proof[-1].name is not RungName.BUILT:
            self._know(step, rung)
        return self.items[step.subject].proof[-1].shown_by

    def _edit(self, step: EditSource) -> str:
        """Edit the checkout's own files, now that the wheel built from their edited copies is verified."""
        contents = edited_contents(Path(step.source), step.edits)
        folder = f"edits-{file_name(step.subject)}"
        backup_files(Places(self.environment, step.source), step.subject, contents, self.folder / folder)
        self._note(step, backup=folder, source=step.source)
        write_edits(contents)
        return f"{counted(len(contents), 'file')} in {step.source}"

    def _install(self, step: InstallWheel) -> str:
        wheel, _ = self.wheels[step.subject]
        if not self.reinstall and is_installed(wheel, self.environment):
            self._know(step, before=wheel.version, up_to_date=True)
            return f"{wheel.name} {wheel.version} is already up to date"
        (backup,) = self._put_in([(step, wheel)])
        self._know(step, before=backup.version_before)
        return f"{wheel.name} {wheel.version}"

    def _put_in(self, wheels: Sequence[tuple[InstallWheel, WheelFile]]) -> list[Backup]:
        """Install wheels in one run of pip: all are backed up and written down before."""
        self.notes += refuse_takeover(self.environment, [wheel for _, wheel in wheels])
        backups: list[Backup] = []
        for step, wheel in wheels:
            folder = f"backup-{file_name(step.subject)}"
            backup = make_backup(self.environment, wheel, self.folder / folder)
            listed_by = f"is listed by {wheel.name} {backup.version_before}"
            for path in backup.foreign:
                self.notes.append(f"{path} {listed_by}, lies outside of the environment, and was left alone")
            self._note(step, backup=folder, distribution=wheel.name, version=wheel.version)
            backups.append(backup)
        pip_install(self.environment, self.folder / "pip.log", *(wheel.path for _, wheel in wheels))
        for (step, wheel), backup in zip(wheels, backups, strict=True):
            note_written(self.environment, backup)
            installed = find_installed(self.environment, wheel.name)
            # of two of one name, which a later change concerns cannot be told
            digest = installed[0].digest if len(installed) == 1 else ""
            self._note(step, done=True, digest=digest)
        return backups

    def _import(self, step: CheckImport) -> str:
        wheel, made_by = self.wheels[step.subject]
        modules, caller, checkout = dict.fromkeys(wheel.modules), "", None
        match made_by:
            case FetchWheel(origin=""):
                # what no user imports by itself need not be importable by itself
                modules = dict.fromkeys(name for name in modules if "." not in name)
            case BuildWheel(source=source):
                checkout = trainer_around(Path(source))
            case MakeDropin():
                # the package of some drop-ins is empty, and what callers import is a module in it (simple_knn._C)
                dropin = _dropin(made_by)
                caller, api = dropin.caller, dropin.api.removesuffix(".py").removesuffix("/__init__")
                modules[api.replace("/", ".")] = None
        written = wheel.destinations(self.environment)
        loads = self._load(tuple(modules), written, caller=caller, checkout=str(checkout or ""))
        computes, trains = "not run; next: splatfix certify --level 2", "not trained; next: splatfix certify"
        if not has_reference(step.subject):
            computes, trains = "not run; splatfix has no reference for it", "not trained"
        rungs = (loads, Rung(RungName.COMPUTES, None, computes), Rung(RungName.TRAINS, None, trains))
        self._know(step, *rungs, modules=tuple(modules))
        return loads.shown_by


_TAKE: Mapping[type, Callable[[_Execution, Any], str]] = {
    InstallDependencies: _Execution._install_dependencies,
    ProvideToolkit: _Execution._provide_toolkit,
    MakeDropin: _Execution._make_dropin,
    FetchWheel: _Execution._fetch,
    VerifyWheel: _Execution._verify,
    EditSource: _Execution._edit,
    InstallWheel: _Execution._install,
    CheckImport: _Execution._import,
}


def _dropin(step: MakeDropin) -> Dropin:
    return declared_dropin(step.declared) if step.declared else dropin_of(step.subject, step.variant)


def _jobs(step: BuildWheel) -> int:
    return int(step.variables.get("MAX_JOBS", "1"))
