from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from splatfix.core.errors import Exit, SplatfixError
from splatfix.install.journal import Journal, Status, StepRecord


def test_an_entry_is_on_disk_before_and_after_each_step(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    entry = journal.start({"subjects": "x"}, "/usr/bin/python3", "simple knn/x")
    assert journal.find(entry.id).status is Status.RUNNING
    assert entry.id.endswith("-simple-knn-x")

    step = StepRecord("install-wheel", "x", backup="backup-x")
    entry = journal.begin(entry, step)
    assert journal.find(entry.id) == entry and not entry.steps[-1].done and entry.active
    entry = journal.finish(entry, step, digest="abc")
    assert journal.find(entry.id).steps == (dataclasses.replace(step, done=True, digest="abc"),)
    assert journal.unfinished() == (entry,)
    entry = journal.end(entry, Status.REVERTED)
    assert journal.unfinished() == () and not journal.find(entry.id).active


def test_entries_of_one_second_keep_their_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    made = [journal.start({}, "python", "same").id for _ in range(3)]
    assert [entry.id for entry in journal.entries()] == made
    assert len(set(made)) == 3


def test_finding_by_the_beginning_of_an_id(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    first, second = journal.start({}, "p", "zz"), journal.start({}, "p", "aa")
    assert [entry.id for entry in journal.entries()] == [first.id, second.id]
    assert journal.find("0001") == first
    for text in ("000", "nothing"):
        with pytest.raises(SplatfixError) as caught:
            journal.find(text)
        assert caught.value.exit_code is Exit.USAGE
        assert first.id in caught.value.todo[0].line()
    assert journal.find(second.id) == second


def test_an_entry_goes_by_its_number_too(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    first = journal.start({}, "p", "x")
    many = dataclasses.replace(first, id=first.id.replace("0001", "10000"))
    journal.save(many)
    assert journal.find("1") == journal.find("0001") == first and journal.find("10000") == many
    for number in (9998, 9999):
        journal.save(dataclasses.replace(first, id=first.id.replace("0001", str(number))))
    assert [entry.id.partition("-")[0] for entry in journal.entries()] == ["0001", "9998", "9999", "10000"]


def test_documents_that_are_not_ours(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    entry = journal.start({}, "python", "x")
    path = journal.folder / f"{entry.id}.json"
    document = json.loads(path.read_text())
    for change, code in (
        ({"schema_version": 99}, "journal-too-new"),
        ({"schema_version": 1}, "journal-too-old"),
        ({"status": "?"}, "journal-damaged"),
    ):
        path.write_text(json.dumps(document | change))
        with pytest.raises(SplatfixError) as caught:
            journal.entries()
        assert caught.value.code == code
    path.write_text("{")
    with pytest.raises(SplatfixError) as caught:
        journal.entries()
    assert caught.value.code == "journal-damaged"
