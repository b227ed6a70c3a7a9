"""Whole installations, for real: a C extension compiled, proven, installed, imported, replaced, and taken back."""

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from splatfix.core.errors import SplatfixError
from splatfix.core.runner import Completed
from splatfix.install import EntryStatus, Journal, revert
from splatfix.install.environment import Environment, environment_lock
from tests.files import put
from tests.plan.machines import refused
from tests.tables import data

from .environments import Interposed, Run, Stages, install, run_in, snapshot, write_extension


def last_status(target: Environment) -> EntryStatus:
    return Journal(target.state_folder).entries()[-1].status


ANSWER = "import tiny_probe; print(tiny_probe.answer())"


def test_install_then_revert_leaves_no_trace(environment: Environment, tmp_path: Path) -> None:
    before = snapshot(environment)
    prints = "import sys\nsys.stdout.write('loading ... ')\nsys.stderr.write('ready')\n"
    source = write_extension(tmp_path / "source", module=prints)
    files = sorted(path.name for path in source.rglob("*"))

    outcome = install(environment, source, afresh=True)

    assert run_in(environment, ANSWER) == "loading ... 42", "a module may print as it is imported"
    assert sorted(path.name for path in source.rglob("*")) == files, "the build touched the person's checkout"
    (item,) = outcome.items
    assert (item.subject, item.version, item.before) == ("tiny_probe", "1.0", "")
    assert item.modules == ("tiny_probe", "tiny_probe._C")
    reached = {rung.name.value: rung.reached for rung in item.proof}
    shown = {"resolved": True, "built": True, "loads": True}
    assert reached == {**shown, "computes": None, "trains": None}
    assert "compile" not in item.proof[1].shown_by and "CPU only" in item.proof[1].shown_by
    assert (Path(outcome.log) / "build-tiny_probe.log").read_text().count("probe.c") >= 1

    undone = revert(environment.python)
    assert snapshot(environment) == before
    assert [(i.subject, i.removed, i.restored) for i in undone.items] == [("tiny_probe", "1.0", "")]
    assert refused(revert, environment.python).code == "nothing-to-revert"


def test_a_second_install_reverts_to_the_first_byte_for_byte(stages: Stages, tmp_path: Path) -> None:
    environment = stages.at("one")
    (environment.purelib / "tiny_probe" / "__init__.py").chmod(0o600)
    before = snapshot(environment)
    times = {p: p.stat().st_mtime_ns for p in environment.purelib.rglob("tiny_probe*/*") if p.is_file()}
    second = install(environment, write_extension(tmp_path / "two", answer=7, version="2.0"))
    assert run_in(environment, ANSWER) == "7"
    assert second.items[0].before == "1.0" and snapshot(environment) != before
    first = Journal(environment.state_folder).entries()[0]
    assert refused(revert, environment.python, first.id).code == "later-change"

    revert(environment.python)
    assert snapshot(environment) == before
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert run_in(environment, ANSWER) == "42"


@pytest.mark.parametrize("case", data(__file__)["fails"], ids=lambda case: case["words"])
def test_what_fails_is_named_and_taken_back(
    stages: Stages, with_pip: Environment, tmp_path: Path, case: dict[str, Any]
) -> None:
    """With the other that was installed before it in the same run."""
    environment = with_pip if "pip" in case else stages.at("one")
    before = snapshot(environment)
    source = write_extension(tmp_path / "source", version="2.0", **case["source"])
    other = write_extension(tmp_path / "other", name="other_probe")
    error = refused(install, environment, other, source)
    assert error.code == case["code"] and case["words"] in f"{error.what} {error.meaning}", error.what
    assert case.get("todo", "") in " ".join(step.line() for step in error.todo)
    if "log" in case:
        log = Path(error.details["log"]).read_text()
        assert case["log"] in log and "index" not in log.replace("--no-index", "").lower()
    assert snapshot(environment) == before and last_status(environment) == case["status"]


def test_an_extension_may_import_what_lies_in_its_checkout(environment: Environment, tmp_path: Path) -> None:
    """Relightable3DGaussian's bvh_tracing imports utils, and its trainer runs where that lies."""
    source = write_extension(tmp_path / "submodules" / "source", module="import beside_it")
    (tmp_path / ".git").mkdir()
    (tmp_path / "beside_it").mkdir()
    (item,) = install(environment, source).items
    assert item.modules == ("tiny_probe", "tiny_probe._C")
    # HTGS: a package of the extension's name around it, which is no part of what is installed
    put(tmp_path, {"tiny_probe/__init__.py": "raise RuntimeError\n"})
    (source / "tiny_probe" / "__init__.py").rename(tmp_path / "init.py")
    (item,) = install(environment, source).items
    assert item.modules == ("tiny_probe._C",)
    (tmp_path / "init.py").rename(source / "tiny_probe" / "__init__.py")
    (tmp_path / "beside_it").rmdir()
    error = refused(install, environment, source)
    assert error.code == "import-failed" and "beside_it" in error.what


def test_a_copy_that_comes_first_on_the_path_is_noticed(environment: Environment, tmp_path: Path) -> None:
    shadow = put(tmp_path / "shadow", {"tiny_probe/__init__.py": ""})
    (environment.purelib / "0_shadow.pth").write_text(f"import sys; sys.path.insert(0, {str(shadow)!r})\n")
    before = snapshot(environment)
    error = refused(install, environment, write_extension(tmp_path / "source"))
    assert error.code == "import-shadowed" and str(shadow) in error.what
    assert snapshot(environment) == before


def test_pip_inside_a_setup_py_is_refused(with_pip: Environment, tmp_path: Path) -> None:
    """beta-splatting's install command runs ``pip install .`` there, also while its wheel is built."""
    how = "import subprocess, sys\n"
    how += "subprocess.check_call([sys.executable, '-m', 'pip', 'install', './inner'])\n"
    source = write_extension(tmp_path / "source", before=how)
    write_extension(source / "inner", name="other_probe")
    install(with_pip, source)
    assert (with_pip.purelib / "tiny_probe").is_dir()
    assert not list(with_pip.purelib.glob("other_probe*"))


def named_otherwise(folder: Path, name: str) -> Path:
    """A source whose name only running it tells."""
    setup = (write_extension(folder) / "setup.py").read_text()
    return put(folder, {"setup.py": setup.replace('name="tiny_probe"', f'name="".join({list(name)!r})')})


def test_nothing_is_replaced_that_the_plan_did_not_name(environment: Environment, tmp_path: Path) -> None:
    record = "numpy-2.0.dist-info/METADATA,,\nnumpy-2.0.dist-info/RECORD,,\n"
    files = {"METADATA": "Name: numpy\nVersion: 2.0\n", "RECORD": record}
    put(environment.purelib / "numpy-2.0.dist-info", files)
    before = snapshot(environment)
    error = refused(install, environment, named_otherwise(tmp_path / "my-probe", "numpy"))
    assert error.code == "replaces-unplanned"
    assert "my-probe" in error.what and "numpy 2.0 is installed" in error.what
    assert snapshot(environment) == before and last_status(environment) is EntryStatus.FAILED


def test_a_source_named_otherwise_is_known_again_by_revert(environment: Environment, tmp_path: Path) -> None:
    before = snapshot(environment)
    install(environment, named_otherwise(tmp_path / "mein-prüfling", "odd_name"))
    (record,) = environment.purelib.glob("odd_name-*.dist-info/RECORD")
    kept = record.read_bytes()
    record.write_bytes(kept + b"tiny_probe/more.py,,\n")
    assert refused(revert, environment.python).code == "changed-since"
    record.write_bytes(kept)
    revert(environment.python)
    assert snapshot(environment) == before


def test_a_log_that_cannot_be_written_is_what_is_told(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of the environment fills up while the build writes its log."""
    before, source = snapshot(environment), write_extension(tmp_path / "source")
    with monkeypatch.context() as patch:

        def full(path: Path, text: str) -> None:
            raise SplatfixError("cannot-write", f"Cannot write {path}: No space left on device.")

        def fills_up(argv: list[str], env: Mapping[str, str], run: Run) -> Completed:
            if "--wheel" not in argv:
                return run()
            patch.setattr("splatfix.install.journal.write_text", full)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        error = refused(install, environment, source, runner=Interposed(fills_up), afresh=True)
    assert error.code == "cannot-write" and "build-tiny_probe.log" in error.what
    assert "No space left" in error.what and "--resume" in error.todo[0].line()
    assert snapshot(environment) == before and last_status(environment) is EntryStatus.RUNNING
    install(environment, write_extension(tmp_path / "again"))
    assert Journal(environment.state_folder).entries()[0].status is EntryStatus.FAILED


def test_one_at_a_time_in_an_environment(environment: Environment, tmp_path: Path) -> None:
    with environment_lock(environment.state_folder):
        assert refused(install, environment, write_extension(tmp_path / "one")).code == "environment-busy"


def test_the_build_sees_only_its_own_settings(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    settings = {"PIP_TARGET": str(elsewhere), "PIP_USER": "1", "PYTHONPATH": str(tmp_path)}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    put(tmp_path, {"tiny_probe.py": "raise SystemExit('wrong module')\n"})
    install(environment, write_extension(tmp_path / "source"), afresh=True)
    monkeypatch.delenv("PYTHONPATH")
    assert run_in(environment, ANSWER) == "42" and not elsewhere.exists()


KILLED = "gcc: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.\n"


def test_a_compiler_killed_for_memory_is_tried_again(environment: Environment, tmp_path: Path) -> None:
    jobs: list[str] = []

    def kill_the_first(argv: list[str], env: Mapping[str, str], run: Run) -> Completed:
        if "--wheel" not in argv:
            return run()
        jobs.append(env["MAX_JOBS"])
        return run() if len(jobs) > 1 else Completed(tuple(argv), 1, KILLED, "", 1.0)

    source, runner = write_extension(tmp_path / "source"), Interposed(kill_the_first)
    install(environment, source, runner=runner, afresh=True, jobs=4)
    assert jobs == ["4", "2"]
    assert run_in(environment, ANSWER) == "42"
