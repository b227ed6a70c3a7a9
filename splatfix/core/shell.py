"""Writes paths into the commands that people are told to run, so that a blank in them does no harm."""

from __future__ import annotations

import os
import re
import shlex
import subprocess


def quoted(word: str | os.PathLike[str], *, windows: bool = os.name == "nt") -> str:
    """``word`` as one word of a command line, in quotes where it needs them: a POSIX shell's, or those of ``windows``."""
    text = os.fspath(word)
    if windows:  # cmd.exe takes these for redirections and the like
        return f'"{text}"' if re.search(r"[<>&|^]", text) else subprocess.list2cmdline([text])
    return shlex.quote(text)


def double_quoted(text: str) -> str:
    """``text`` as it stands between double quotes of a POSIX shell."""
    return re.sub(r'([\\"$`])', r"\\\1", text)
