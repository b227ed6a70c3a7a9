import os
import shutil
import subprocess
from pathlib import Path

import pytest

from splatfix.core.shell import double_quoted, quoted
from splatfix.core.step import Command
from tests.hostile.words import CONTROL, NAMES

bash = pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
STRANGE = [*NAMES.values(), "".join(map(chr, range(1, 256))), CONTROL + "0123", "a'b\\\x1b'c!d"]


@bash
@pytest.mark.parametrize("word", STRANGE)
def test_bash_gets_the_same_bytes(word: str) -> None:
    show = 'printf "%s\\0"'
    lines = [
        f'{show} {quoted(word, windows=False)} "{double_quoted(word)}"',
        Command(("sh", "-c", f'{show} "$A"'), env=(("A", word),)).shell(windows=False),
        "export B=/before",
        Command(("sh", "-c", f'{show} "$B"'), prepend=(("B", word),)).shell(windows=False),
    ]
    assert all(line.isprintable() for line in lines)
    done = subprocess.run(["bash", "-c", "; ".join(lines)], capture_output=True, check=True)
    name = os.fsencode(word)
    assert done.stdout == b"\0".join([name, name, name, name + b":/before", b""])


def test_plain_paths_stay_as_they_are() -> None:
    assert quoted(Path("/env/bin/python"), windows=False) == "/env/bin/python"
    assert quoted(r"C:\env\python.exe", windows=True) == r"C:\env\python.exe"


@pytest.mark.parametrize("word", STRANGE)
def test_cmd_shows_what_it_cannot_spell(word: str) -> None:
    command = Command((word,), env=(("A", word), ("B", None)), prepend=(("PATH", word),))
    assert command.shell(windows=True).isprintable() and quoted(word, windows=True).isprintable()
