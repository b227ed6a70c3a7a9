"""Whole installations, for real: a C extension compiled, proven, installed, imported, replaced, and taken back."""

from __future__ import annotations

import dataclasses
import errno
import os
import shlex
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from splatfix.core.errors import SplatfixError
from splatfix.core.runner import Completed, ProcessRunner
from splatfix.facts import gather
from splatfix.install import EntryStatus, Journal, WheelCache, execute, revert
from splatfix.install.environment import Environment
from tests.archs import request_for
from tests.plan.machines import make_plan

from .environments import install, run_in, snapshot, write_extension


def last_status(target: Environment) -> EntryStatus:
    return Journal(target.state_folder).entries()[-1].status


ANSWER = "import tiny_probe; print(tiny_probe.answer())"


def test_install_then_revert_leaves_the_environment_as_it_was(
    environment: Environment, tmp_path: Path
) -> None:
    before = snapshot(environment)
    source = write_extension(tmp_path / "source")
    files = sorted(path.name for path in source.rglob("*"))

    outcome = install(environment, source, afresh=True)

    assert run_in(environment, ANSWER) == "42"
    assert sorted(path.name for path in source.rglob("*")) == files, "the build touched the person's checkout"
    (item,) = outcome.items
    assert (item.subject, item.version, item.before) == ("tiny_probe", "1.0", "")
    assert item.modules == ("tiny_probe", "tiny_probe._C")
    assert [(rung.name, rung.reached) for rung in item.proof] == [
        ("resolved", True),
        ("built", True),
        ("loads", True),
        ("computes", None),
        ("trains", None),
    ]
    assert "compile" not in item.proof[1].shown_by and "CPU only" in item.proof[1].shown_by
    assert (Path(outcome.log) / "build-tiny_probe.log").read_text().count("probe.c") >= 1

    undone = revert(environment.python)
    assert snapshot(environment) == before
    assert [(i.subject, i.removed, i.restored) for i in undone.items] == [("tiny_probe", "1.0", "")]
    with pytest.raises(SplatfixError) as again:
        revert(environment.python)
    assert again.value.code == "nothing-to-revert"


def test_a_second_install_reverts_to_the_first_byte_for_byte(
    environment: Environment, tmp_path: Path
) -> None:
    install(environment, write_extension(tmp_path / "one"))
    first = snapshot(environment)
    times = {p: p.stat().st_mtime_ns for p in environment.purelib.rglob("tiny_probe*/*") if p.is_file()}

    second = install(environment, write_extension(tmp_path / "two", answer=7, version="2.0"))
    assert run_in(environment, ANSWER) == "7"
    assert second.items[0].before == "1.0"
    assert snapshot(environment) != first

    with pytest.raises(SplatfixError) as early:
        revert(environment.python, Journal(environment.state_folder).entries()[0].id)
    assert early.value.code == "later-change"

    revert(environment.python)
    assert snapshot(environment) == first
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert run_in(environment, ANSWER) == "42"


def test_a_module_that_does_not_import_is_taken_back(environment: Environment, tmp_path: Path) -> None:
    install(environment, write_extension(tmp_path / "good"))
    before = snapshot(environment)
    bad = write_extension(tmp_path / "bad", version="2.0")
    (bad / "tiny_probe" / "__init__.py").write_text("raise RuntimeError('no such GPU')\n")

    with pytest.raises(SplatfixError) as caught:
        install(environment, bad)

    assert caught.value.code == "import-failed"
    assert "no such GPU" in caught.value.what
    assert snapshot(environment) == before
    assert last_status(environment) is EntryStatus.ROLLED_BACK
    assert run_in(environment, ANSWER) == "42"


def test_a_module_that_ends_the_interpreter_is_taken_back(environment: Environment, tmp_path: Path) -> None:
    good, bad = write_extension(tmp_path / "good"), write_extension(tmp_path / "bad", name="two_probe")
    (bad / "two_probe" / "__init__.py").write_text("import os\nos._exit(0)\n")
    before, facts = snapshot(environment), gather(environment.python)
    with pytest.raises(SplatfixError) as caught:
        execute(make_plan(request_for((str(good), str(bad))), facts), facts, cache=WheelCache())
    assert caught.value.code == "import-failed" and "two_probe" in caught.value.what
    assert "exit code 0" in caught.value.what
    assert snapshot(environment) == before


def test_a_module_that_prints_on_import_is_no_failure(environment: Environment, tmp_path: Path) -> None:
    source = write_extension(tmp_path / "source")
    with (source / "tiny_probe" / "__init__.py").open("a") as file:
        file.write("import sys\nsys.stdout.write('loading ... 100%')\nsys.stderr.write('ready')\n")
    assert install(environment, source).items[0].modules == ("tiny_probe", "tiny_probe._C")


@pytest.mark.parametrize(
    ("extra", "code", "words", "status"),
    [
        (
            "#include <stdlib.h>\n__attribute__((constructor)) static void dies(void) { abort(); }",
            "import-failed",
            "SIGABRT",
            EntryStatus.ROLLED_BACK,
        ),
        (
            "extern int nowhere(void);\nint (*keep)(void) = nowhere;",
            "import-failed",
            "undefined symbol: nowhere",
            EntryStatus.ROLLED_BACK,
        ),
        ("int half = ;", "build-failed", "probe.c:2", EntryStatus.FAILED),
    ],
)
def test_c_code_that_fails_is_named_and_taken_back(
    environment: Environment, tmp_path: Path, extra: str, code: str, words: str, status: EntryStatus
) -> None:
    before = snapshot(environment)
    with pytest.raises(SplatfixError) as caught:
        install(environment, write_extension(tmp_path / "source", extra=extra))
    assert (caught.value.code, words in caught.value.what) == (code, True), caught.value.what
    if code == "build-failed":
        assert "expected expression" in Path(caught.value.details["log"]).read_text()
    assert snapshot(environment) == before and last_status(environment) is status


def test_a_source_for_another_python_is_told_as_that(environment: Environment, tmp_path: Path) -> None:
    source = write_extension(tmp_path / "source")
    setup = source / "setup.py"
    computed = 'setup(python_requires=">=3." + str(99), name'  # what only running it tells
    setup.write_text(setup.read_text().replace("setup(name", computed))
    before = snapshot(environment)
    with pytest.raises(SplatfixError) as caught:
        install(environment, source)
    assert "requires a different Python" in caught.value.what and ">=3.99" in caught.value.meaning
    assert "--python" in caught.value.todo[0].line()
    assert snapshot(environment) == before and last_status(environment) is EntryStatus.FAILED


def test_a_copy_that_comes_first_on_the_path_is_noticed(environment: Environment, tmp_path: Path) -> None:
    shadow = tmp_path / "shadow"
    write_extension(shadow)
    (shadow / "tiny_probe" / "__init__.py").write_text("")
    (environment.purelib / "0_shadow.pth").write_text(f"import sys; sys.path.insert(0, {str(shadow)!r})\n")
    before = snapshot(environment)
    with pytest.raises(SplatfixError) as caught:
        install(environment, write_extension(tmp_path / "source"))
    assert caught.value.code == "import-shadowed" and str(shadow) in caught.value.what
    assert snapshot(environment) == before


def test_a_build_adds_no_packages(environment: Environment, tmp_path: Path) -> None:
    """Some setup.py call pip by themselves; what that installs no plan has named and no revert would take back."""
    how = "import subprocess, sys\n"
    how += "subprocess.check_call([sys.executable, '-m', 'pip', 'install', 'no-such-splat>=2'])\n"
    source = write_extension(tmp_path / "source")
    (source / "setup.py").write_text(how + (source / "setup.py").read_text())
    before = snapshot(environment)
    with pytest.raises(SplatfixError) as caught:
        install(environment, source)
    error = caught.value
    assert "satisfies the requirement no-such-splat>=2 (from versions: none)" in error.what
    assert "pip install 'no-such-splat>=2'" in error.todo[0].line()
    assert "index" not in Path(error.details["log"]).read_text().replace("--no-index", "").lower()
    assert snapshot(environment) == before


def named_otherwise(folder: Path, name: str) -> Path:
    """A source whose name only running it tells."""
    source = write_extension(folder)
    setup = source / "setup.py"
    setup.write_text(setup.read_text().replace('name="tiny_probe"', f'name="".join({list(name)!r})'))
    return source


def test_nothing_is_replaced_that_the_plan_did_not_name(environment: Environment, tmp_path: Path) -> None:
    info = environment.purelib / "numpy-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: numpy\nVersion: 2.0\n")
    (info / "RECORD").write_text("numpy-2.0.dist-info/METADATA,,\nnumpy-2.0.dist-info/RECORD,,\n")
    before = snapshot(environment)
    with pytest.raises(SplatfixError) as caught:
        install(environment, named_otherwise(tmp_path / "my-probe", "numpy"))
    assert caught.value.code == "replaces-unplanned"
    assert "my-probe" in caught.value.what and "numpy 2.0 is installed" in caught.value.what
    assert snapshot(environment) == before and last_status(environment) is EntryStatus.FAILED


def test_a_source_named_otherwise_is_known_again_by_revert(environment: Environment, tmp_path: Path) -> None:
    before = snapshot(environment)
    install(environment, named_otherwise(tmp_path / "my-probe", "odd_name"))
    (record,) = environment.purelib.glob("odd_name-*.dist-info/RECORD")
    kept = record.read_bytes()
    record.write_bytes(kept + b"tiny_probe/more.py,,\n")
    with pytest.raises(SplatfixError) as caught:
        revert(environment.python)
    assert caught.value.code == "changed-since"
    record.write_bytes(kept)
    revert(environment.python)
    assert snapshot(environment) == before


class Interrupting(ProcessRunner):
    """Runs everything, but dies as a killed splatfix would: right after pip has installed."""

    def run(self, argv: Sequence[str | Path], **options: object) -> Completed:  # type: ignore[override]
        done = super().run(argv, **options)  # type: ignore[arg-type]
        if "--force-reinstall" in argv:
            raise KeyboardInterrupt
        return done


class FullDisk(ProcessRunner):
    """The disk of the environment fills up while the build writes its log."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch

    def run(self, argv: Sequence[str | Path], **options: object) -> Completed:  # type: ignore[override]
        if "wheel" not in argv:
            return super().run(argv, **options)  # type: ignore[arg-type]

        def full(path: Path, document: object) -> None:
            raise SplatfixError("cannot-write", f"Cannot write {path}: No space left on device.")

        self.patch.setattr("splatfix.install.journal.write_json", full)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_log_that_cannot_be_written_is_what_is_told(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(environment)
    with monkeypatch.context() as patch, pytest.raises(SplatfixError) as caught:
        install(environment, write_extension(tmp_path / "source"), runner=FullDisk(patch), afresh=True)
    assert caught.value.code == "cannot-write" and "build-tiny_probe.log" in caught.value.what
    assert "No space left" in caught.value.what and "--resume" in caught.value.todo[0].line()
    assert snapshot(environment) == before and last_status(environment) is EntryStatus.RUNNING
    install(environment, write_extension(tmp_path / "again"))
    assert Journal(environment.state_folder).entries()[0].status is EntryStatus.FAILED


class HalfPip(ProcessRunner):
    """pip fails after it has changed a good deal: the new version is there, its bookkeeping is not."""

    def run(self, argv: Sequence[str | Path], **options: object) -> Completed:  # type: ignore[override]
        done = super().run(argv, **options)  # type: ignore[arg-type]
        if "--force-reinstall" not in argv:
            return done
        site = Path(str(argv[0])).parents[1] / "lib"
        for record in site.glob("python*/site-packages/tiny_probe-*.dist-info/RECORD"):
            record.unlink()
        return dataclasses.replace(
            done, returncode=1, stdout="ERROR: Could not install packages: [Errno 28]\n"
        )


def test_a_pip_that_fails_half_way_is_cleaned_up_after(environment: Environment, tmp_path: Path) -> None:
    install(environment, write_extension(tmp_path / "one"))
    before = snapshot(environment)
    with pytest.raises(SplatfixError) as caught:
        install(environment, write_extension(tmp_path / "two", answer=7, version="2.0"), runner=HalfPip())
    assert caught.value.code == "pip-failed" and "Errno 28" in caught.value.what
    assert snapshot(environment) == before
    assert run_in(environment, ANSWER) == "42"


def test_an_interrupt_puts_everything_back(environment: Environment, tmp_path: Path) -> None:
    before = snapshot(environment)
    with pytest.raises(KeyboardInterrupt):
        install(environment, write_extension(tmp_path / "source"), runner=Interrupting())
    assert snapshot(environment) == before
    assert last_status(environment) is EntryStatus.ROLLED_BACK


@pytest.mark.slow
def test_what_a_dead_run_left_is_put_back_by_the_next(environment: Environment, tmp_path: Path) -> None:
    before = snapshot(environment)
    install(environment, write_extension(tmp_path / "one"))
    journal = Journal(environment.state_folder)
    entry = journal.entries()[-1]
    half = dataclasses.replace(entry, status=EntryStatus.RUNNING, ended="", steps=entry.steps[:3])
    journal.save(half)

    other = install(environment, write_extension(tmp_path / "two", name="other_probe"))

    assert other.recovered == (entry.id,)
    assert journal.find(entry.id).status is EntryStatus.ROLLED_BACK
    revert(environment.python)
    assert snapshot(environment) == before


def test_two_at_once_in_one_environment(environment: Environment, tmp_path: Path) -> None:
    inside, leave = threading.Event(), threading.Event()

    class Waiting(ProcessRunner):
        def run(self, argv: Sequence[str | Path], **options: object) -> Completed:  # type: ignore[override]
            if "wheel" in argv:
                inside.set()
                leave.wait(60)
            return super().run(argv, **options)  # type: ignore[arg-type]

    errors: list[BaseException] = []

    def first() -> None:
        try:
            install(environment, write_extension(tmp_path / "one"), runner=Waiting(), afresh=True)
        except BaseException as error:  # noqa: BLE001 - reported by the assertion below
            errors.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(60)
    with pytest.raises(SplatfixError) as busy:
        install(environment, write_extension(tmp_path / "two", name="other_probe"))
    leave.set()
    thread.join(120)
    assert busy.value.code == "environment-busy"
    assert errors == []
    assert run_in(environment, ANSWER) == "42"


def test_revert_leaves_alone_what_somebody_else_changed(environment: Environment, tmp_path: Path) -> None:
    install(environment, write_extension(tmp_path / "one"))
    info = environment.platlib / "tiny_probe-1.0.dist-info" / "RECORD"
    info.write_text(info.read_text() + "tiny_probe/more.py,,\n")
    with pytest.raises(SplatfixError) as caught:
        revert(environment.python)
    assert caught.value.code == "changed-since"
    assert run_in(environment, ANSWER) == "42"


def test_revert_after_somebody_removed_it(environment: Environment, tmp_path: Path) -> None:
    before = snapshot(environment)
    install(environment, write_extension(tmp_path / "one"))
    environment_pip = [environment.python, "-m", "pip", "--no-input", "uninstall", "-q", "-y", "tiny_probe"]
    subprocess.run(environment_pip, check=True, capture_output=True)
    (item,) = revert(environment.python).items
    assert (item.subject, item.removed) == ("tiny_probe", ""), "it says that it removed what was gone already"
    assert snapshot(environment) == before
    with pytest.raises(SplatfixError):
        revert(environment.python)  # nothing stands any more


def test_a_damaged_journal_entry_says_what_to_do(environment: Environment, tmp_path: Path) -> None:
    install(environment, write_extension(tmp_path / "one"))
    (entry,) = (environment.state_folder / "journal").glob("*.json")
    entry.write_text("{")
    with pytest.raises(SplatfixError) as caught:
        revert(environment.python)
    assert caught.value.code == "journal-damaged"
    assert f"mv {shlex.quote(str(entry))} " in caught.value.todo[0].line()


def test_the_build_sees_only_its_own_settings(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setenv("PIP_TARGET", str(elsewhere))
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "tiny_probe.py").write_text("raise SystemExit('wrong module')\n")
    install(environment, write_extension(tmp_path / "source"), afresh=True)
    monkeypatch.delenv("PYTHONPATH")
    assert run_in(environment, ANSWER) == "42"
    assert not elsewhere.exists()


class OutOfMemoryOnce(ProcessRunner):
    """The first build loses a compiler to the system's out-of-memory killer."""

    def __init__(self) -> None:
        self.jobs: list[str] = []

    def run(self, argv: Sequence[str | Path], **options: object) -> Completed:  # type: ignore[override]
        if "wheel" not in argv:
            return super().run(argv, **options)  # type: ignore[arg-type]
        env = options["env"]
        assert isinstance(env, Mapping)
        self.jobs.append(env["MAX_JOBS"])
        if len(self.jobs) == 1:
            text = "gcc: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.\n"
            return Completed(tuple(map(str, argv)), 1, text, "", 1.0)
        return super().run(argv, **options)  # type: ignore[arg-type]


def test_a_compiler_killed_for_memory_is_tried_again_with_fewer(
    environment: Environment, tmp_path: Path
) -> None:
    facts = gather(environment.python)
    plan = make_plan(request_for((str(write_extension(tmp_path / "source")),), jobs=4), facts)
    runner = OutOfMemoryOnce()
    execute(plan, facts, runner=runner)
    assert runner.jobs == ["4", "2"]
    assert run_in(environment, ANSWER) == "42"
