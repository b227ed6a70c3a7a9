"""Any history of an environment is undone exactly: installs, failures, kills, development installs, and a person's own work.

pip is stood in for, step by step as it goes about it, so that it can fail or be killed at each of them; the journal, the
backups and what reads them are the real ones.
"""

import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from unittest.mock import patch

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from splatfix.core.errors import SplatfixError
from splatfix.core.runner import Completed, Runner
from splatfix.install import backup, execute, revert, revert_all
from splatfix.install.environment import Environment
from splatfix.install.installed import find_installed
from splatfix.install.journal import Journal
from splatfix.install.wheels import open_wheel, write_wheel
from splatfix.model import EnvironmentFacts, Facts, MachineFacts
from splatfix.model.option import OptionKind, Plan
from splatfix.model.steps import FetchWheel, InstallWheel
from tests.files import put

from .environments import Files, snapshot
from .test_legacy import MAKERS

NAMES = ("alpha", "beta")
LONGEST = f"{{}}/{'n' * 250}.json"
"""The longest name that a file can have: nothing that stands for it for a moment can be called after the whole of it."""
VERSIONS = {
    "1": {"{}/__init__.py": b"x = 1\n", "{}/inner/mod.py": b"y = 1\n", LONGEST: b"{}"},
    "2": {"{}/__init__.py": b"x = 2\n", "{}/added.py": b"", "{}-2.data/scripts/{}-tool": b"#!python\n"},
    "3": {"{}.py": b"x = 3\n"},
}
SITE = "lib/python3.11/site-packages"
SHARED = f"{SITE}/easy-install.pth"
FACTS = Facts(MachineFacts("linux", "x86_64"), EnvironmentFacts(), "0")
MOST = 40
"""More steps than a pip or a restore has."""


class Died(BaseException):
    """The process was killed."""


class Pip(Runner):
    """Installs as pip does. At the ``at``-th step it ends by an error: at ``Died`` the disk stays as it is then."""

    def __init__(self, target: Environment) -> None:
        self.target, self.at, self.aside = target, 0, target.prefix.with_name("aside")
        self.ends: type[BaseException] = Died

    def tick(self) -> None:
        self.at -= 1
        if self.at:
            return
        if self.ends is Died:
            shutil.copytree(self.target.prefix, self.aside, symlinks=True)
        raise self.ends("No space left on device")

    def run(self, argv: Sequence[str | Path], **_: object) -> Completed:
        try:
            self.install(Path(argv[-1]))
        except OSError as error:
            return Completed(tuple(map(str, argv)), 1, f"ERROR: {error}\n", "", 0.1)
        return Completed(tuple(map(str, argv)), 0, "", "", 0.1)

    def install(self, path: Path) -> None:
        site, wheel = self.target.purelib, open_wheel(path)
        for old in find_installed(self.target, wheel.name):
            for file in filter(Path.is_file, old.files):
                self.tick()
                if file.name == "easy-install.pth":
                    lines = file.read_text().splitlines(keepends=True)
                    file.write_text("".join(line for line in lines if old.name not in line))
                elif file.parent == site or not file.is_relative_to(site):
                    file.unlink()
                else:  # whole folders are kept beside themselves until the new version is there
                    top, *rest = file.relative_to(site).parts
                    stash = site.joinpath(f"~{top[1:]}", *rest)
                    stash.parent.mkdir(parents=True, exist_ok=True)
                    file.rename(stash)
                    with suppress(OSError):  # somebody else's files keep a folder
                        for folder in file.parents[: len(rest)]:
                            folder.rmdir()
        with zipfile.ZipFile(path) as archive:
            for member, place in wheel.placed(self.target):
                self.tick()
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(archive.read(member))
                if place.suffix == ".py":
                    put(place.parent / "__pycache__", {f"{place.stem}.cpython-311.pyc": b"half"})
        rows = [f"{os.path.relpath(place, site)},,\n" for _, place in wheel.placed(self.target)]
        put(site / wheel.dist_info, {"INSTALLER": "pip\n", "RECORD": "".join(rows)})
        self.tick()
        for stash in site.glob("~*"):
            shutil.rmtree(stash)


class History(RuleBasedStateMachine):
    """What should be there, and what is."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="history-")).resolve()
        prefix = self.folder / "env"
        places = {"purelib": SITE, "platlib": SITE, "scripts": "bin", "data": "", "headers": "include"}
        paths = {name: prefix / place for name, place in places.items()}
        for path in (*paths.values(), prefix / ".splatfix" / "journal"):
            path.mkdir(parents=True, exist_ok=True)
        python = str(prefix / "bin" / "python")
        self.pip = Pip(Environment(python, prefix, **paths))
        self.target = Environment(python, prefix, **paths, runner=self.pip, version="3.11")
        self.patches = ExitStack()
        for room in ("execute", "undo"):
            opened = f"splatfix.install.{room}.open_environment"
            self.patches.enter_context(patch(opened, lambda *_: self.target))
        # a busy machine's disk takes a second for each
        self.patches.enter_context(patch.object(os, "fsync", lambda _: None))
        self.before: list[tuple[str, str, Files]] = []
        """Of each active entry its id, the distribution, and the files of that name before it."""
        self.edits: set[bytes] = set()
        self.lines = 0
        self.dead: Files = {}
        """What was there before the run that was killed, whose left-overs are there now."""

    def teardown(self) -> None:
        self.undo(preview=True)
        self.patches.close()
        shutil.rmtree(self.folder)

    @initialize(kinds=st.tuples(*[st.sampled_from(["", "nobody's", *MAKERS])] * 2))
    def begin(self, kinds: tuple[str, ...]) -> None:
        for name, kind in zip(NAMES, kinds, strict=True):
            if kind == "nobody's":
                put(self.target.purelib / name, {"__init__.py": "mine = True\n", "notes.txt": "mine"})
                (self.target.purelib / name / "elsewhere").symlink_to(self.folder)
            elif kind:
                MAKERS[kind](self.target, self.folder / name, name)

    @rule()
    def share(self) -> None:
        """Another checkout is developed, and stays in the list that all of them share."""
        if not self.dead:
            self.lines += 1
            put(self.target.prefix, {SHARED: self.shared() + f"/another/checkout/{self.lines}\n"})

    def shared(self) -> str:
        path = self.target.prefix / SHARED
        return path.read_text() if path.is_file() else ""

    def files(self, name: str = "") -> Files:
        """Those of the distribution's name; lines of the shared list count one by one, own files not at all."""
        files = {path: file for path, file in snapshot(self.target).items() if path != SHARED}
        files |= {f"line {line}": (0, "") for line in self.shared().splitlines()}
        own = self.own_folders()
        names = [path for path in files if name in path and "mine" not in path and path not in own]
        return {path: files[path] for path in names}

    def own_folders(self) -> set[str]:
        """Those that stay, whoever made them: an own file is in them."""
        prefix = self.target.prefix
        return {str(path.parent.relative_to(prefix)) for path in prefix.rglob("mine.txt")}

    def is_as(self, name: str, files: Files) -> bool:
        own = self.own_folders()
        return self.files(name) == {path: file for path, file in files.items() if path not in own}

    @rule(
        name=st.sampled_from(NAMES),
        version=st.sampled_from([*VERSIONS]),
        at=st.integers(0, MOST),
        ends=st.sampled_from([OSError, KeyboardInterrupt, Died]),
    )
    def install(self, name: str, version: str, at: int, ends: type[BaseException]) -> None:
        held, self.dead = self.dead or self.files(), {}
        self.pip.at, self.pip.ends = at, ends
        members = {path.format(name, name): content for path, content in VERSIONS[version].items()}
        steps = (FetchWheel(subject=name, version=version, requirement=name), InstallWheel(subject=name))
        how = {"title": "", "python": self.target.python, "prefix": str(self.target.prefix)}
        plan = Plan(kind=OptionKind.KEEP, steps=steps, **how)
        bring = {name: lambda folder: write_wheel(folder, name, version, members, "")}
        try:
            execute(plan, FACTS, fetchers=bring)
        except SplatfixError as error:
            assert error.code == "pip-failed" and self.files() == held
        except KeyboardInterrupt:
            assert self.files() == held
        except Died:
            self.comes_back()
            self.dead = held
        else:
            entry = Journal(self.target.state_folder).entries()[-1]
            if entry.active:
                self.before.append((entry.id, name, {p: file for p, file in held.items() if name in p}))
            for other in NAMES:
                assert name == other or self.files(other) == {p: f for p, f in held.items() if other in p}
        self.pip.at = 0

    @rule(
        name=st.sampled_from(NAMES),
        path=st.sampled_from(["{}/__init__.py", "{}.py", LONGEST]),
        number=st.integers(0),
    )
    def edit(self, name: str, path: str, number: int) -> None:
        file = self.target.purelib / path.format(name)
        installed = [listed for item in find_installed(self.target, name) for listed in item.files]
        # what no installation has touched stays as it is edited, whatever is undone
        if file not in installed and any(other == name for _, other, _ in self.before):
            return
        if file.is_file() and not self.dead:
            self.edits.discard(file.read_bytes())
            file.write_bytes(file.read_bytes() + f"work = {number}\n".encode())
            self.edits.add(file.read_bytes())

    @rule(name=st.sampled_from(NAMES))
    def add(self, name: str) -> None:
        """A file that no installation knows."""
        if (self.target.purelib / name).is_dir() and not self.dead:
            put(self.target.purelib / name, {"mine.txt": "a day's work"})

    @rule(preview=st.booleans(), at=st.integers(0, MOST))
    def undo(self, preview: bool, at: int = 0) -> None:
        """All of it, newest first; killed on the way, and done again."""
        journal, held, told = Journal(self.target.state_folder), self.files(), []
        if preview:
            entries = journal.entries()
            told.append(self.told(dry_run=True))
            assert self.files() == held and journal.entries() == entries
        put_back = backup._put_back

        def dies(*arguments: object) -> None:
            self.pip.tick()
            put_back(*arguments)  # type: ignore[arg-type]

        self.pip.at, self.pip.ends = at, Died
        try:
            with patch.object(backup, "_put_back", dies):
                told.append(self.told())
        except Died:
            self.comes_back()
            self.pip.at = 0
            self.told()
        self.pip.at, self.dead = 0, {}
        assert told[1:] in ([], told[:1])
        for name in NAMES:
            for files in [files for _, other, files in self.before if other == name][:1]:
                assert self.is_as(name, files)
        self.before = []
        assert not list(journal.folder.rglob("blobs")) and not any(one.active for one in journal.entries())

    @rule(name=st.sampled_from(NAMES))
    def undo_one(self, name: str) -> None:
        """The last of a distribution, whatever was installed of another after it."""
        mine = [item for item in self.before if item[1] == name]
        if mine and not self.dead:
            revert(self.target.python, mine[-1][0])
            assert self.is_as(name, mine[-1][2])
            self.before.remove(mine[-1])

    def told(self, *, dry_run: bool = False) -> list[tuple[str, str, str, int]]:
        outcomes = revert_all(self.target.python, dry_run=dry_run)
        items = [item for outcome in outcomes for item in outcome.items]
        return [(item.subject, item.removed, item.restored, len(item.kept)) for item in items]

    def comes_back(self) -> None:
        shutil.rmtree(self.target.prefix)
        self.pip.aside.rename(self.target.prefix)

    @invariant()
    def no_work_is_lost(self) -> None:
        held = {path.read_bytes() for path in self.target.prefix.rglob("*") if path.is_file()}
        assert self.edits <= held
        assert self.dead or len(re.findall("/another/checkout", self.shared())) == self.lines


TestHistory = History.TestCase
TestHistory.settings = settings(
    max_examples=16, stateful_step_count=10, deadline=None, phases=[Phase.generate]
)
