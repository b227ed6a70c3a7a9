"""``install --resume``: a run that did not get through is done again, with what was built found in the wheel cache."""

import json
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.core.codec import to_json
from splatfix.core.errors import Exit
from splatfix.core.files import write_json
from splatfix.core.runner import Runner
from splatfix.install.environment import Environment
from splatfix.install.journal import EntryStatus, Journal, request_to_resume
from splatfix.plan import Request
from tests.cli.conftest import Document
from tests.conftest import ROOT
from tests.plan.machines import refused
from tests.tables import data

from .environments import run_in, write_extension


def test_an_entry_is_found_by_its_number_or_the_beginning_of_its_id(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    first, second = journal.start({}, "p", "zz"), journal.start({}, "p", "aa")
    assert [entry.id for entry in journal.entries()] == [first.id, second.id], "those of one second too"
    for text in ("000", "nothing"):
        error = refused(journal.find, text)
        assert error.exit_code is Exit.USAGE and first.id in error.todo[0].line()
    assert journal.find(second.id) == second
    for number in (10000, 9998, 9999):
        journal.save(replace(first, id=first.id.replace("0001", str(number))))
    assert journal.find("1") == journal.find("0001") == first
    assert journal.find("10000").id.startswith("10000-")
    numbers = [entry.id.partition("-")[0] for entry in journal.entries()]
    assert numbers == ["0001", "0002", "9998", "9999", "10000"]


def test_documents_that_are_not_ours(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    path = journal.folder / f"{journal.start({}, 'python', 'x').id}.json"
    document = json.loads(path.read_text())
    for change, code in (
        ({"schema_version": 99}, "journal-too-new"),
        ({"schema_version": 1}, "journal-too-old"),
        ({"status": "?"}, "journal-damaged"),
    ):
        path.write_text(json.dumps(document | change))
        assert refused(journal.entries).code == code
    path.write_text("{")
    error = refused(journal.entries)
    assert error.code == "journal-damaged" and f"mv {shlex.quote(str(path))} " in error.todo[0].line()


# Kills itself when pip is about to install, with everything built and proven.
DRIVER = data(__file__)["texts"]["driver"]


@pytest.mark.usefixtures("fresh_wheels")
def test_resumed_after_a_kill(environment: Environment, tmp_path: Path, document: Document) -> None:
    source = write_extension(tmp_path / "source")
    resume = ("install", "--resume", "--python", environment.python)
    fresh = document(*resume)
    assert fresh["exit_code"] == 2 and "there was none" in str(fresh["error"])
    argv, env = [sys.executable, "-c", DRIVER, environment.python], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = Runner().run(argv, timeout=120.0, cwd=source, env=env)
    assert done.returncode == -signal.SIGKILL, done.stderr
    dead = Journal(environment.state_folder).entries()[-1]
    assert dead.status is EntryStatus.RUNNING

    outcome = document(*resume)["outcome"]
    assert outcome["recovered"] == [dead.id]
    assert run_in(environment, "import tiny_probe; print(tiny_probe.answer())") == "42"
    log = Path(outcome["log"]) / "build-tiny_probe.log"
    assert not log.exists(), "it was compiled again although the wheel was there"

    again = document(*resume)
    assert (again["exit_code"], again["error"]["code"]) == (2, "nothing-to-resume")


def test_the_last_failed_one_is_resumed_whatever_came_after_it(environment: Environment) -> None:
    """It said that there was nothing to resume, because something else had been installed since."""
    journal, failed, done = Journal(environment.state_folder), EntryStatus.FAILED, EntryStatus.DONE
    for subjects, status, resumed in (
        ("curope", failed, "/curope"),
        ("simple_knn", failed, "/simple_knn"),
        ("fused_ssim", done, "/simple_knn"),
        ("fused_ssim simple_knn", done, "/curope"),
        ("curope", done, None),
    ):
        entry = journal.start({"subjects": subjects}, environment.python, subjects)
        request = {"request": to_json(Request(sources=(f"/{subjects}",)))}
        write_json(journal.folder_of(entry) / "plan.json", request)
        journal.end(entry, status)
        if resumed:
            assert request_to_resume(environment.python).sources == (resumed,)
    assert refused(request_to_resume, environment.python).code == "nothing-to-resume"
