"""Carries a plan out in one environment: make every wheel, prove every wheel, then install and import, or put all back."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path

from splatfix.core.codec import to_json
from splatfix.core.errors import SplatfixError
from splatfix.core.files import write_json
from splatfix.core.proof import Rung, RungName
from splatfix.core.runner import ProcessRunner, Runner
from splatfix.facts import Facts
from splatfix.install.already import is_installed
from splatfix.install.backup import backup_files, make_backup
from splatfix.install.build import Built, build_wheel
from splatfix.install.distributions import find_installed
from splatfix.install.edit import apply_edits, digest_of, edited_files, require_editable
from splatfix.install.identity import versions_of
from splatfix.install.import_check import check_import
from splatfix.install.journal import Entry, Journal, JournalStep, Status
from splatfix.install.lock import environment_lock
from splatfix.install.outcome import InstalledItem, Outcome
from splatfix.install.parallel import Piece, parallel
from splatfix.install.pip import pip_install
from splatfix.install.progress import Progress, Silent
from splatfix.install.scratch import sweep_scratch
from splatfix.install.swap_wheels import make_swap_wheel
from splatfix.install.target import Target, open_target
from splatfix.install.toolkit import provide_toolkit
from splatfix.install.undo import recover, undo_changes
from splatfix.install.verify import refuse_unplanned, verify_wheel
from splatfix.install.wheel_cache import WheelCache
from splatfix.install.wheel_file import WheelFile, open_wheel
from splatfix.plan.plan import (
    Action,
    BuildWheel,
    CheckImport,
    EditSource,
    InstallWheel,
    MakeSwap,
    Plan,
    ProvideToolkit,
    VerifyWheel,
)
from splatfix.plan.swap_table import swap_of


@dataclass
class _Item:
    """What is known so far of one distribution of the plan."""

    wheel: WheelFile | None = None
    seconds: float = 0.0
    native: bool = False
    gpu_code: bool = False
    also_import: tuple[str, ...] = ()
    before: str = ""
    already: bool = False
    modules: tuple[str, ...] = ()
    rungs: list[Rung] = field(default_factory=list)


def execute(
    plan: Plan,
    facts: Facts,
    *,
    runner: Runner | None = None,
    progress: Progress | None = None,
    cache: WheelCache | None = None,
    reinstall: bool = False,
) -> Outcome:
    """Do what the plan says. Afterwards the environment holds all of it, proven, or is as it was.

    Left-overs of a run that died are put back first. Every step is in the journal before it is taken.

    Args:
        cache: where built wheels are looked for and kept; None builds everything afresh.
        reinstall: also install what lies there already, byte for byte.

    Raises:
        SplatfixError: what went wrong; nothing of the plan is then left in the environment.
    """
    started = time.monotonic()
    run = runner or ProcessRunner()
    target = open_target(plan.python, run)
    target.require_writable()
    require_editable(plan.actions)
    with environment_lock(target.own_folder):
        journal = Journal(target.own_folder)
        recovered = recover(target, journal)
        sweep_scratch()
        request = {
            "backend": plan.backend,
            "targets": " ".join(plan.targets),
            "subjects": " ".join(plan.subjects),
        }
        forced = {a.cuda_mismatch for a in plan.actions if isinstance(a, BuildWheel) and a.cuda_mismatch}
        if forced:
            request["cuda_mismatch"] = "; ".join(sorted(forced))
        work = _Work(plan, facts, target, run, progress or Silent(), journal)
        work.cache, work.reinstall = cache, reinstall
        work.entry = journal.start(request, plan.python, "-".join(plan.subjects)[:60])
        write_json(journal.folder_of(work.entry) / "plan.json", to_json(plan))
        try:
            work.do_all()
        except BaseException as error:
            # also for Ctrl-C: whoever stops an installation wants the environment back
            changed = bool(work.entry.changes)
            undo_changes(target, journal, work.entry)
            what = error.what if isinstance(error, SplatfixError) else type(error).__name__
            with suppress(SplatfixError):  # an entry that a full disk keeps open is closed by the next run
                journal.end(work.entry, Status.ROLLED_BACK if changed else Status.FAILED, what)
            raise
        journal.end(work.entry, Status.DONE)
    return Outcome(
        plan=plan,
        entry=work.entry.id,
        items=work.results(),
        log=str(journal.folder_of(work.entry)),
        recovered=tuple(item.entry.id for item in recovered),
        seconds=time.monotonic() - started,
    )


class _Work:
    """One run through a plan's actions."""

    entry: Entry
    cache: WheelCache | None = None
    reinstall = False

    def __init__(
        self, plan: Plan, facts: Facts, target: Target, runner: Runner, progress: Progress, journal: Journal
    ) -> None:
        self.plan, self.facts, self.target = plan, facts, target
        self.runner, self.progress, self.journal = runner, progress, journal
        self.items: dict[str, _Item] = {subject: _Item() for subject in plan.subjects}

    def do_all(self) -> None:
        """Every action in order, each written down before it is taken; builds that follow each other side by side."""
        numbered = enumerate(self.plan.actions, 1)
        for building, group in groupby(numbered, lambda item: isinstance(item[1], BuildWheel)):
            if building:
                self._build_all([(n, action) for n, action in group if isinstance(action, BuildWheel)])
                continue
            for number, action in group:
                self.progress.begin(action, number, len(self.plan.actions))
                if not isinstance(
                    action, (InstallWheel, EditSource)
                ):  # these write their step with its backup
                    self.entry = self.journal.begin(self.entry, JournalStep(action.kind, action.subject))
                result, details = self._do(action)
                self.entry = self.journal.finish(self.entry, None, **details)
                self.progress.end(action, result)

    def _do(self, action: Action) -> tuple[str, Mapping[str, str]]:
        if isinstance(action, ProvideToolkit):
            log, doing = self.folder / "toolkit.log", partial(self.progress.doing, action)
            root = provide_toolkit(action, self.target.python, self.runner, log, doing)
            return str(root), {"root": str(root)}
        item = self.items[action.subject]
        if isinstance(action, MakeSwap):
            return self._make_swap(action, item)
        if isinstance(action, VerifyWheel):
            return self._verify(action, item)
        if isinstance(action, EditSource):
            return self._edit(action)
        if isinstance(action, InstallWheel):
            return self._install(action, item)
        assert isinstance(action, CheckImport)
        return self._import(action, item)

    @property
    def folder(self) -> Path:
        """The journal entry's own folder."""
        return self.journal.folder_of(self.entry)

    def _build_all(self, builds: Sequence[tuple[int, BuildWheel]]) -> None:
        """The journal and the progress are written by this thread; only the builds themselves run in others."""
        pieces = [self._piece(number, action) for number, action in builds]
        budget = self.plan.jobs or max(piece.cost for piece in pieces)
        parallel(pieces, budget, crowded_out=_killed_for_memory)

    def _piece(self, number: int, action: BuildWheel) -> Piece[tuple[Built, float]]:
        step = JournalStep(action.kind, action.subject)
        item = self.items[action.subject]
        log, wheels = self.folder / f"build-{_file_name(action.subject)}.log", self.folder / "wheels"

        def begin() -> None:
            self.progress.begin(action, number, len(self.plan.actions), str(log))
            self.entry = self.journal.begin(self.entry, step)

        def work(stop: threading.Event) -> tuple[Built, float]:
            started, doing = time.monotonic(), partial(self.progress.doing, action)
            known = versions_of(self.facts, action)
            built = build_wheel(
                action, self.target, self.runner, wheels, log, doing, self.cache, known, stop=stop
            )
            return built, time.monotonic() - started

        def end(result: tuple[Built, float]) -> None:
            built, item.seconds = result
            item.wheel = open_wheel(built.path)
            item.native, item.gpu_code = True, bool(action.targets)
            self.entry = self.journal.finish(self.entry, step, wheel=built.path.name)
            how = "from the wheel cache" if built.kept else f"compiled in {item.seconds:.0f} s"
            self.progress.end(action, f"{built.path.name}, {how}")

        return Piece(int(action.variables.get("MAX_JOBS", "1")), work, begin, end)

    def _make_swap(self, action: MakeSwap, item: _Item) -> tuple[str, Mapping[str, str]]:
        swap = swap_of(action.subject, action.variant)
        started = time.monotonic()
        path = make_swap_wheel(swap, action.version, self.folder / "wheels")
        item.seconds = time.monotonic() - started
        item.wheel = open_wheel(path)
        item.also_import = (swap.face.removesuffix(".py").removesuffix("/__init__").replace("/", "."),)
        return path.name, {"wheel": path.name}

    def _verify(self, action: VerifyWheel, item: _Item) -> tuple[str, Mapping[str, str]]:
        assert item.wheel is not None
        refuse_unplanned(item.wheel, action.subject, self.target)
        rung = verify_wheel(item.wheel, action.targets, self.facts, expects_gpu_code=item.gpu_code)
        item.rungs.append(rung)
        return rung.shown_by, {}

    def _edit(self, action: EditSource) -> tuple[str, Mapping[str, str]]:
        """The checkout's own files, now that the wheel built from their edited copies is proven."""
        source = Path(action.source)
        files = [source / name for name in edited_files(action.edits)]
        place = f"edits-{_file_name(action.subject)}"
        backup_files(self.target, action.subject, files, self.folder / place)
        step = JournalStep(action.kind, action.subject, details={"backup": place, "source": action.source})
        self.entry = self.journal.begin(self.entry, step)
        apply_edits(source, action.edits)
        return f"{len(files)} file(s) in {source}", {"record": digest_of(files)}

    def _install(self, action: InstallWheel, item: _Item) -> tuple[str, Mapping[str, str]]:
        wheel = item.wheel
        assert wheel is not None
        if not self.reinstall and is_installed(wheel, self.target):
            item.before, item.already = wheel.version, True
            self.entry = self.journal.begin(
                self.entry, JournalStep(action.kind, action.subject, details={"already": wheel.version})
            )
            return f"{wheel.name} {wheel.version} is installed already, byte for byte", {}
        place = f"backup-{_file_name(action.subject)}"
        backup = make_backup(self.target, wheel, self.folder / place)
        item.before = backup.version_before
        step = JournalStep(
            action.kind,
            action.subject,
            details={
                "backup": place,
                "before": item.before,
                "version": wheel.version,
                "distribution": wheel.name,
            },
        )
        self.entry = self.journal.begin(self.entry, step)
        pip_install(wheel.path, self.target, self.runner, self.folder / "pip.log")
        found = find_installed(self.target, wheel.name)
        digest = found[0].digest if len(found) == 1 else ""
        return f"{wheel.name} {wheel.version}", {"record": digest}

    def _import(self, action: CheckImport, item: _Item) -> tuple[str, Mapping[str, str]]:
        assert item.wheel is not None
        item.modules = tuple(dict.fromkeys((*item.wheel.modules, *item.also_import)))
        rung = check_import(item.modules, item.wheel.destinations(self.target), self.target, self.runner)
        item.rungs.append(rung)
        return rung.shown_by, {}

    def results(self) -> tuple[InstalledItem, ...]:
        """What was installed, with the whole ladder."""
        return tuple(self._result(subject, item) for subject, item in self.items.items())

    def _result(self, subject: str, item: _Item) -> InstalledItem:
        assert item.wheel is not None
        forced = _mismatch_of(self.plan, subject)
        resolved = Rung(RungName.RESOLVED, not forced, forced or _resolved_by(self.plan, item))
        return InstalledItem(
            subject=subject,
            version=item.wheel.version,
            before=item.before,
            already=item.already,
            modules=item.modules,
            wheel=item.wheel.path.name,
            seconds=item.seconds,
            proof=(resolved, *item.rungs, *_NOT_SHOWN),
        )


def _killed_for_memory(error: Exception) -> bool:
    return isinstance(error, SplatfixError) and error.details.get("cause") == "killed"


# What no installation shows. Said, so that nobody takes an import for a proof of numbers.
_NOT_SHOWN = (
    Rung(RungName.COMPUTES, None, "nothing of it was run beyond the import"),
    Rung(RungName.TRAINS, None, "nothing was trained here; splatfix certify does that"),
)


def _resolved_by(plan: Plan, item: _Item) -> str:
    if not item.native:
        return "pure PyTorch needs only torch, which is there"
    if not item.gpu_code:
        return "no CUDA code, so no versions to reconcile"
    return f"toolkit, host compiler and torch agree on {', '.join(plan.targets)}"


def _mismatch_of(plan: Plan, subject: str) -> str:
    """What does not agree in a forced build; "" for any other."""
    forced = [a.cuda_mismatch for a in plan.actions if isinstance(a, BuildWheel) and a.subject == subject]
    return f"{forced[0]}; torch's check was silenced (--force-cuda-mismatch)" if forced and forced[0] else ""


def _file_name(subject: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in subject)
