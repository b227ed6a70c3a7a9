"""Writes paths into the commands that people are told to run, so that a blank in them does no harm."""

from __future__ import annotations

import os
import shlex
import subprocess


def quoted(word: str | os.PathLike[str], *, windows: bool = os.name == "nt") -> str:
    """``word`` as one word of a command line, in quotes where it needs them: a POSIX shell's, or those of ``windows``."""
    text = os.fspath(word)
    return subprocess.list2cmdline([text]) if windows else shlex.quote(text)
