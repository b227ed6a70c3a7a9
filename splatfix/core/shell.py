"""Writes paths into the commands that people are told to run, so that a blank or a control character does no harm."""

import os
import re
import shlex
import subprocess

from splatfix.core.visible import visible


def quoted(word: str | os.PathLike[str], *, windows: bool = os.name == "nt") -> str:
    """``word`` as one word of a command line, in quotes where it needs them: a POSIX shell's, or those of ``windows``.

    What is not printable is spelled out: as ``$'\\x1b'``, which bash, zsh and ksh read as the same bytes. cmd.exe has no
    such form, so there it is only shown.
    """
    text = os.fspath(word)
    if windows:
        text = visible(text)
        if re.search(r"[<>&|^]", text):  # cmd.exe takes these for redirections and the like
            return f'"{text}"'
        return subprocess.list2cmdline([text])
    if text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(_byte_escapes, text))}'"


def double_quoted(text: str) -> str:
    """``text`` as it stands between double quotes of a POSIX shell; what is not printable leaves them for ``$'...'``."""
    plain = re.sub(r'([\\"$`])', r"\\\1", text)
    return re.sub(
        r"[^ -~]",
        lambda match: match[0] if match[0].isprintable() else f'"{quoted(match[0], windows=False)}"',
        plain,
    )


def _byte_escapes(sign: str) -> str:
    if sign in "\\'!":  # an interactive shell may look for its history at an exclamation mark
        return f"\\x{ord(sign):02x}"
    if sign.isprintable():
        return sign
    escaped = 0xDC80 <= ord(sign) <= 0xDCFF
    return "".join(
        f"\\x{byte:02x}" for byte in sign.encode(errors="surrogateescape" if escaped else "surrogatepass")
    )
