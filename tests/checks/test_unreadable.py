"""What was not read is told, a finding for each file, and is no failure."""

from msgspec.structs import replace

from splatfix.core.reading import Unread
from splatfix.model import Facts, Status

from .conftest import of, with_checkout

PIPE = "it is a named pipe, not a file"


def test_files_of_a_checkout(rtx_5080: Facts) -> None:
    unread = (Unread("/home/u/gs/setup.py", PIPE), Unread("/home/u/gs", "it holds more than 10 entries"))
    first, second = of(with_checkout(rtx_5080, unreadable=unread), "unreadable-source")
    assert (first.subject, second.subject) == ("setup.py", "/home/u/gs")


def test_files_of_the_environment_and_a_folder_full_of_them(rtx_5080: Facts) -> None:
    facts = replace(rtx_5080, unreadable=tuple(Unread(f"/venv/{n}", PIPE) for n in range(30)))
    first, second, *_, last = found = of(facts, "unreadable-file")
    assert (first.status, first.subject, second.subject) == (Status.WARN, "/venv/0", "/venv/1")
    assert PIPE in first.summary and len(found) == 21 and last.summary.startswith("10 more")
