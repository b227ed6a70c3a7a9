"""``--in-place``: edits in the person's own checkout, after the proof, with a backup that revert puts back."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.core.runner import Completed, Runner
from splatfix.facts import gather
from splatfix.install import EntryStatus, InstallOutcome, Journal, WheelCache, execute, revert
from splatfix.install.environment import Environment
from splatfix.install.wheels import write_wheel
from splatfix.knowledge.breakages import breakage
from splatfix.plan import EditSource
from splatfix.plan.edits import PlannedEdit
from tests.archs import request_for
from tests.conftest import Splatfix
from tests.files import contents, edit_json
from tests.plan.machines import make_plan, refused
from tests.tables import data

from .environments import (
    Interposed,
    Run,
    backup_file,
    make_environment,
    pip,
    run_in,
    snapshot,
    write_extension,
)

EDIT = PlannedEdit("type-is-cuda", ("probe.c",), "deprecated", "test")


def edited_in_place(
    target: Environment, source: Path, *, runner: Runner | None = None, edit: PlannedEdit = EDIT
) -> InstallOutcome:
    """Executed as planned for a CUDA source: the build knows the edit, and the checkout follows after the proof."""
    facts = gather(target.python)
    plan = make_plan(request_for((str(source),), in_place=True), facts)
    build, verify, *others = plan.steps
    following = EditSource(subject=build.subject, source=str(source), edits=(edit,))
    steps = (replace(build, edits=(edit,)), verify, following, *others)
    return execute(replace(plan, steps=steps), facts, runner=runner, cache=WheelCache())


def source_with_work(folder: Path) -> Path:
    """With Windows lines, Latin-1, and a mode of its own."""
    source = write_extension(folder, extra="/* x.type().is_cuda() */")
    probe = source / "probe.c"
    probe.write_bytes(probe.read_bytes().replace(b"\n", b"\r\n") + b"// caf\xe9\r\n")
    probe.chmod(0o640)
    return source


def test_the_checkout_is_edited_and_revert_takes_it_back(environment: Environment, tmp_path: Path) -> None:
    source = source_with_work(tmp_path / "source")
    before, environment_before = contents(source), snapshot(environment)
    edited_in_place(environment, source)

    now = contents(source)
    changed = {name for name in now if now[name] != before.get(name)}
    assert changed == {"probe.c"} and now.keys() == before.keys()
    mode, content = now["probe.c"]
    assert b"/* x.is_cuda() */" in content and b"caf\xe9" in content and mode == before["probe.c"][0]

    # what earlier versions noted beside it
    edit_json(backup_file(environment, "edits"), lambda it: it.update(seal="0" * 64))
    undone = revert(environment.python)
    assert contents(source) == before and snapshot(environment) == environment_before
    assert str(source) in [item.source for item in undone.items]


def test_a_failed_installation_leaves_no_edit(environment: Environment, tmp_path: Path) -> None:
    def pip_fails(argv: list[str], env: Mapping[str, str], run: Run) -> Completed:
        if "--force-reinstall" in argv:
            return Completed(tuple(argv), 1, "ERROR: no\n", "", 0.0)
        return run()

    source = source_with_work(tmp_path / "source")
    before = contents(source)
    assert refused(edited_in_place, environment, source, runner=Interposed(pip_fails)).code == "pip-failed"
    assert contents(source) == before
    assert Journal(environment.state_folder).entries()[-1].status is EntryStatus.ROLLED_BACK


def test_work_done_since_is_not_thrown_away(environment: Environment, tmp_path: Path) -> None:
    source = source_with_work(tmp_path / "source")
    edited_in_place(environment, source)
    with (source / "probe.c").open("ab") as file:
        file.write(b"// a day's work\r\n")
    held = snapshot(environment)
    error = refused(revert, environment.python)
    assert error.code == "changed-since" and str(source) in error.what
    assert snapshot(environment) == held and b"a day's work" in (source / "probe.c").read_bytes()
    (source / "probe.c").unlink()
    for link in ("", "setup.py"):
        if link:
            (source / "probe.c").symlink_to(link)
        for dry_run in (True, False):
            assert refused(revert, environment.python, dry_run=dry_run).code == "changed-since"
        assert (source / "probe.c").is_symlink() is bool(link) and snapshot(environment) == held


def test_a_checkout_that_cannot_be_edited_is_refused_before_the_build(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, real = source_with_work(tmp_path / "source"), os.access
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: Path(path) != source and real(path, mode))
        error = refused(edited_in_place, environment, source)
    (source / "probe.c").rename(tmp_path / "probe.c")
    (source / "probe.c").symlink_to(tmp_path / "probe.c")
    assert {error.code, refused(edited_in_place, environment, source).code} == {"cannot-write-source"}
    assert "probe.c" in error.what and not environment.state_folder.exists()


@pytest.mark.parametrize(("rule", "moved"), [("cstdint", True), ("type-is-cuda", False)])
def test_error_lines_below_an_edit(environment: Environment, tmp_path: Path, rule: str, moved: bool) -> None:
    extra = "typedef unsigned uint8_t_; /* x.type().is_cuda() uint8_t */\nint half = ;"
    source = write_extension(tmp_path / "source", extra=extra)
    edit = PlannedEdit(rule, ("probe.c",), "", "test")
    error = refused(edited_in_place, environment, source, edit=edit)
    # a C compiler has no <cstdint>, which is the first thing wrong then, in a line that the source has not
    assert error.what.partition("failed: ")[2].startswith("probe.c:")
    assert ("edits (cstdint)" in error.meaning) is moved, error.meaning


TEXTS: dict[str, str] = data(__file__)["texts"]


@pytest.mark.slow
def test_an_installed_nerfstudio_is_edited_and_restored(tmp_path: Path, splatfix: Splatfix) -> None:
    pytest.importorskip("torch")
    target = make_environment(tmp_path / "env", torch=True)
    record = breakage("nerfstudio-torch-load").installed
    assert record is not None
    files = dict.fromkeys(record.files, TEXTS["load"].encode()) | {"nerfstudio/__init__.py": b""}
    wheel = write_wheel(tmp_path, "nerfstudio", "1.1.5", files, "a stand-in")
    assert pip(target, "install", "--no-index", "--no-deps", "--no-compile", str(wheel)).ok
    before, python = snapshot(target), ("--python", target.python)

    def done(*words: str, says: str) -> None:
        told = splatfix(*words, *python)
        assert told.returncode == 0 and says in told.stdout

    def loaded() -> str:
        said = run_in(target, TEXTS["works"])
        (target.prefix / "x.pt").unlink()
        return said

    assert loaded() == "UnpicklingError"
    diagnose = ("diagnose", "--only", "installed-package-breaks")
    done(*diagnose, says="splatfix install nerfstudio --in-place")
    done("install", "nerfstudio", "--in-place", says="Edited the installed nerfstudio")
    assert "1.0" in loaded()
    done(*diagnose, says="1 check passed")
    done("revert", says="")
    assert snapshot(target) == before
    assert splatfix("install", "nerfstudio", *python).returncode == 2, "not a folder, and not to be edited"
