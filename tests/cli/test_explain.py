"""``splatfix explain`` as it is typed: files, standard input, commands, and wrong use."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from splatfix.knowledge.failures import failure_classes
from tests.cli.test_documents import check
from tests.conftest import Splatfix
from tests.machines import folder

LOG = "nvcc fatal   : Unsupported gpu architecture 'compute_120'\n"


def in_a_child(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "splatfix", "explain", *words], capture_output=True)


@pytest.fixture
def explain(splatfix: Splatfix) -> Splatfix:
    """The command in this process; how it ends as a process of its own is told by ``in_a_child``."""
    return partial(splatfix, "explain")


def test_a_file_and_standard_input(explain: Splatfix, tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text(LOG)
    for done in (explain(str(log), "--json"), explain("--json", given=LOG.encode())):
        first = check(json.loads(done.stdout))["causes"][0]
        assert (done.returncode, first["class"]) == (0, "toolkit-too-old-for-arch")
        assert first["lines"] == [LOG.strip()] and first["line_numbers"] == [1]
    shown = explain("-", given=LOG.encode()).stdout
    assert "toolkit-too-old-for-arch" in shown and "compute_120" in shown


def test_not_recognised_says_what_to_collect(explain: Splatfix) -> None:
    done, empty = explain("--json", given=b"all is well\n"), explain(given=b"")
    document = check(json.loads(done.stdout))
    assert done.returncode == 3 and document["certainty"] == "unknown" and document["collect"]
    assert "the log is empty" in empty.stdout and empty.returncode == 3
    ended = "FutureWarning: bdist_wheel\nSuccessfully built simple-knn\n\n[notice] A new release of pip\n"
    assert "No failure at the log's end: Successfully built" in explain("-", given=ended.encode()).stdout
    assert b"No failure" not in in_a_child("--", sys.executable, "-c", f"print({ended!r}); exit(1)").stderr


def test_facts_name_what_the_words_leave_open(explain: Splatfix) -> None:
    """And they bring the remedy of the check."""
    log = b"TypeError: unsupported operand type(s) for +: 'NoneType' and 'str'\n"
    causes = json.loads(explain("--json", given=log).stdout)["causes"]
    assert "cuda-toolkit-missing" not in [cause["class"] for cause in causes]
    facts = ("--facts", str(folder("a100-conda-without-nvcc")))
    (first, *_) = json.loads(explain("--json", *facts, given=log).stdout)["causes"]
    assert first["class"] == "cuda-toolkit-missing" and first["certainty"] == "likely"
    assert first["fix"][0]["argv"][0] == "conda"


def test_a_command_runs_and_keeps_its_exit_code() -> None:
    code = f"import sys; print('before'); sys.stderr.write({LOG!r}); sys.exit(7)"
    done = in_a_child("--", sys.executable, "-c", code)
    assert (done.returncode, done.stdout.splitlines()) == (7, [b"before"])
    assert LOG.strip().encode() in done.stderr and b"toolkit-too-old-for-arch" in done.stderr
    quiet = in_a_child("--json", "--", sys.executable, "-c", code)
    document = json.loads(quiet.stdout)
    assert document["command_exit_code"] == quiet.returncode == 7 and b"before" in quiet.stderr
    assert document["facts"].startswith(f"this machine, {Path(sys.executable).parent}")


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a shell script")
def test_facts_of_this_machine_do_not_count_where_a_command_ran_elsewhere(tmp_path: Path) -> None:
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\necho "{LOG.strip()}"; exit 3\n')
    program.chmod(0o755)
    done = in_a_child("--json", "--", str(program))
    assert (done.returncode, json.loads(done.stdout)["facts"]) == (3, "")


def test_a_command_that_succeeds_is_not_explained() -> None:
    done = in_a_child("--", sys.executable, "-c", "print('Unsupported gpu architecture compute_120')")
    assert done.returncode == 0 and b"toolkit" not in done.stdout + done.stderr


def test_classes(explain: Splatfix) -> None:
    listed = check(json.loads(explain("--list", "--json").stdout))["classes"]
    assert len(listed) == len(failure_classes()) and all(row["speakers"] and row["sources"] for row in listed)
    assert not [row["class"] for row in listed if "_" in row["class"]], "spelled as the codes of checks are"
    for name in ("host-gcc-too-new", "host_gcc_too_new"):  # as it was spelled before
        assert "parameter packs" in explain("--class", name).stdout
