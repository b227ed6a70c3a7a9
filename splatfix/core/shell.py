"""Writes paths into the commands that people are told to run, so that a blank does no harm."""

import os
import re
import shlex
import subprocess

from splatfix.core.visible import visible


def quoted(word: str | os.PathLike[str], *, windows: bool = os.name == "nt") -> str:
    """``word`` as one word of a command line, in quotes where it needs them: a POSIX shell's, or those of ``windows``.

    What is not printable is only shown, spelled out.
    """
    text = visible(os.fspath(word))
    if not windows:
        return shlex.quote(text)
    if re.search(r"[<>&|^]", text):  # cmd.exe takes these for redirections and the like
        return f'"{text}"'
    return subprocess.list2cmdline([text])


def double_quoted(text: str) -> str:
    """``text`` as it stands between double quotes of a POSIX shell."""
    return re.sub(r'([\\"$`])', r"\\\1", visible(text))
