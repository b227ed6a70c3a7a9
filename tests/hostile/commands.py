"""Runs commands of splatfix in this process, for a case's child, and holds each to what every command promises."""

import json
import os
import re
import sys
from pathlib import Path

from splatfix.cli import main

ALLOWED = {0, 1, 2, 3}
TRAP = "trap-was-sprung"
"""A file of this name in the case's folder says that code of a stranger ran: traps write it where $HOSTILE_TRAP says."""

# What a terminal would act on, or show in another order than it is written.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_BROKEN = ("splatfix itself failed", "the probe itself broke", "internal-error", "Traceback (most recent")
_OURS = ("home", "cache", "tmp", "said")


def enter(folder: Path) -> None:
    """Make the case's folder the world of the commands that follow: home, cache, temporary files."""
    for name in _OURS:
        (folder / name).mkdir(exist_ok=True)
    ours = ("SPLATFIX_", "XDG_", "PIP_", "CUDA", "GIT_")
    for name in [name for name in os.environ if name.startswith(ours)]:
        del os.environ[name]
    places = {"HOME": "home", "SPLATFIX_CACHE": "cache", "TMPDIR": "tmp", "HOSTILE_TRAP": TRAP}
    os.environ |= {name: str(folder / place) for name, place in places.items()}


def command(folder: Path, *words: str, writes: tuple[str, ...] = ()) -> str:
    """Run ``splatfix WORDS`` in ``folder``, and return what it wrote to standard output.

    Args:
        writes: files, relative to ``folder``, that the command was told to write.

    Raises:
        AssertionError: it broke a promise.
    """
    before = everything_in(folder)
    line = f"splatfix {' '.join(words)}"
    code, out, err = _run(folder / "said", words)
    assert code in ALLOWED, f"{line}: exit code {code!r}\n{err[-2000:]}"
    for text in (out, err):
        for sign in _BROKEN:
            assert sign not in text, f"{line}: {' '.join(text[text.index(sign) :].split())[:400]}"
        if unsafe := _UNSAFE.search(text):
            raise AssertionError(
                f"{line}: {unsafe.group()!r} in {text[max(0, unsafe.start() - 80) :][:160]!r}"
            )
    if "--json" in words:
        document = json.loads(out, parse_constant=_no_constant)
        crashed = [item for item in document.get("findings", ()) if item.get("status") == "crash"]
        assert not crashed, f"{line}: {crashed[:2]}"
    after = everything_in(folder)
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    strange = [path for path in changed if not path.startswith(writes)]
    assert not strange, f"{line} wrote {strange[:5]}"
    left = [path.name for path in (folder / "tmp").iterdir()]
    assert not left, f"{line} left {left[:5]} among temporary files"
    return out


def everything_in(folder: Path) -> dict[str, tuple[int, ...]]:
    """What lies there, by path, without what commands may write: kind and permissions, size, time of change."""
    found: dict[str, tuple[int, ...]] = {}
    pending = [str(folder)]
    while pending:
        try:
            with os.scandir(pending.pop()) as listing:
                entries = list(listing)
        except OSError:  # a path too long, or a folder that may not be listed
            continue
        for entry in entries:
            name = os.path.relpath(entry.path, folder)
            if name in _OURS:
                continue
            status = entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                found[name] = (status.st_mode,)
                pending.append(entry.path)
            else:
                found[name] = (status.st_mode, status.st_size, status.st_mtime_ns)
    return found


def _run(said: Path, words: tuple[str, ...]) -> tuple[object, str, str]:
    from splatfix.report import console

    console.out.cache_clear()
    console.err.cache_clear()
    files = [os.open(said / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC) for name in ("out", "err")]
    for number, file in zip((1, 2), files, strict=True):
        os.dup2(file, number)
        os.close(file)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv = ["splatfix", *words]
    code: object = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    sys.stdout.flush()
    sys.stderr.flush()
    return code, (said / "out").read_bytes().decode(), (said / "err").read_bytes().decode()


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")
