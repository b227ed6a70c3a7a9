import shlex
from pathlib import Path

import pytest

from splatfix.core.shell import quoted


@pytest.mark.parametrize("path", ["/env/bin/python", "/my env/bin/python", "/it's/here", "/a;b/$x"])
def test_a_posix_shell_reads_one_word(path: str) -> None:
    assert shlex.split(quoted(path, windows=False)) == [path]


def test_plain_paths_stay_as_they_are() -> None:
    assert quoted(Path("/env/bin/python"), windows=False) == "/env/bin/python"
    assert quoted(r"C:\env\python.exe", windows=True) == r"C:\env\python.exe"


def test_windows_has_quotes_of_its_own() -> None:
    assert quoted(r"C:\my env\python.exe", windows=True) == r'"C:\my env\python.exe"'
