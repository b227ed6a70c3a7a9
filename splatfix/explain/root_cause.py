"""Why a build of ours failed, by its log: the lines that say it first, their class, and what to do.

The lines are those of the one kind of message that explains the rest; what they mean comes from the record of that message
where there is one, else from the class that the engine recognises in the whole log.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from splatfix.core.step import Step, say
from splatfix.explain.engine import explain_text
from splatfix.knowledge.breakages import explain_message, log_cause


@dataclass(frozen=True)
class RootCause:
    """Why a build failed."""

    kind: str
    """``disk-full``, ``killed``, ``compiler``, ``cmake``, ``linker``, ``no-program``, ``python``, ``pip``, ``crash`` or
    ``unknown``."""
    lines: tuple[str, ...]
    """The lines of the log that say it, at most a handful."""
    meaning: str = ""
    todo: tuple[Step, ...] = ()
    failure_class: str = ""
    """The class that the whole log shows; "" where none is recognised."""


# gcc: f.cpp:3:10: fatal error: x · nvcc: f.cu(12): error: x · nvcc fatal : x · ptxas f.ptx, line 3; error : x
# g++: error: unrecognized option · as: f.s:3: Error: no such instruction
_COMPILER = re.compile(
    r"^\S.*:\d+(:\d+)?: (fatal )?(error|Error): |^\S.*\(\d+\): (catastrophic |fatal )?error( C?\d+)?:"
    r"|^(nvcc|ptxas|cicc|nvlink|fatbinary)( .*;)? (fatal|error)\s*:|fatal error C\d+:|^error: unsupported|#error"
    r"|^\S*\b(gcc|g\+\+|cc|c\+\+|cc1|cc1plus|clang|clang\+\+)(-[\d.]+)?: (fatal )?error: |^ninja: error: "
)
_CMAKE = re.compile(r"^CMake Error\b")
_LINKER = re.compile(
    r"ld(\.\w+)?: (error: )?cannot find|undefined reference to|ld(\.\w+)?: .*(error|undefined)|LNK\d{4}"
)
_EXCEPTION = re.compile(r"^\s*(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception|NotFound|Interrupt)): ?(.*)$")
# what torch, ninja and pip say when something below them failed
_ECHO = re.compile(
    r"Error compiling objects for extension|subprocess\.CalledProcessError|ninja: build stopped|Failed building wheel"
    r"|CalledProcessError|subprocess-exited-with-error|metadata-generation-failed|returned non-zero exit status"
)

# pip's own refusals; its echoes of a failed build are none
_PIP = re.compile(r"^ERROR: (?!Failed building|Failed to build|Exception:|Command errored)")
_EXIT_CODE = re.compile(r"^(?:│ |\| )?exit code: (-?\d+)$")
# setuptools executes setup.py as a string
_IN_SETUP = re.compile(r'^\s*File "(?:<string>|(?:[^"]*/)?setup\.py)", line (\d+)')
# what pip, setuptools and torch say of every build, well or not
_CHATTER = re.compile(
    r"^\s*(Processing |Preparing metadata|Running command |Building wheels? for|Getting requirements|Created temporary"
    r"|running \w+$|(creating|writing|reading|copying|adding|removing) \S|adding license file|W\d{4} .*No CUDA runtime)"
    r"|^\s*$"
)


def find_root_cause(log: str) -> RootCause:
    """The first thing that went wrong in a build log of pip, setuptools, ninja, nvcc and gcc, with its class."""
    cause = _first_thing(log)
    found = explain_text(log)
    if not found.recognised:
        return cause
    best = found.causes[0]
    if cause.meaning or cause.todo:
        return replace(cause, failure_class=best.name)
    return replace(cause, meaning=best.why, todo=best.fix, failure_class=best.name)


def _first_thing(log: str) -> RootCause:
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in log.splitlines()]
    lines = [line.removeprefix("  ") for line in lines]  # pip sets off what a build prints by two blanks
    for kind, matches in _KINDS:
        at = next((i for i, line in enumerate(lines) if matches(line)), None)
        if kind == "python":
            at = min((i for i in (at, _raised(lines)) if i is not None), default=None)
        if at is not None:
            cause = _explained(kind, _context(kind, lines, at))
            return _placed(cause, lines[:at]) if kind == "python" else cause
    return _last_words(lines)


def _raised(lines: Sequence[str]) -> int | None:
    """Where the first exception stands that a traceback ends in, whatever it is called."""
    inside = False
    for at, line in enumerate(lines):
        if line.startswith("Traceback (most recent call last)"):
            inside = True
        elif inside and line and not line[0].isspace() and not line.startswith('File "'):
            inside = False
            if not _ECHO.search(line):
                return at
    return None


def _placed(cause: RootCause, above: Sequence[str]) -> RootCause:
    """The same, with the line of setup.py from which the exception came, where the traceback names one."""
    frames = above[
        max((i for i, line in enumerate(above) if line.startswith("Traceback")), default=len(above)) :
    ]
    found = next((m.group(1) for line in reversed(frames) if (m := _IN_SETUP.match(line))), "")
    meaning = f"{cause.meaning} It came from line {found} of setup.py.".strip() if found else cause.meaning
    return replace(cause, meaning=meaning)


def _last_words(lines: Sequence[str]) -> RootCause:
    """Nothing known stands in the log: what the build itself said last, and how it ended."""
    # pip's own report of the failure says nothing of the reason, but how the build's process ended
    end = next((i for i, line in enumerate(lines) if "subprocess-exited-with-error" in line), len(lines))
    said = tuple(line for line in lines[:end] if not _CHATTER.match(line))[-5:]
    code = next((int(m.group(1)) for line in lines[end:] if (m := _EXIT_CODE.match(line.strip()))), None)
    if code is None or (said and code > 0):
        return RootCause("unknown", said)
    if code > 0:
        return RootCause("unknown", (f"its setup.py ended with exit code {code} and said nothing",))
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    line = f"the process that ran its setup.py was ended by {name}"
    if name == "SIGKILL":
        return _explained("killed", (line, *said))
    meaning = "That process crashed: its setup.py, or a library that it imports, such as torch."
    return RootCause("crash", (line, *said), meaning, (say("Read the end of the full log."),))


def _is_exception(line: str) -> bool:
    return _EXCEPTION.match(line) is not None and _ECHO.search(line) is None


def _message(key: str) -> Callable[[str], object]:
    """Whether a line holds this message (``knowledge/data/build_logs.toml``)."""
    return lambda line: log_cause(key).pattern.search(line)


# The first kind that is found in the log is the cause, wherever in it the others stand.
_KINDS: tuple[tuple[str, Callable[[str], object]], ...] = (
    ("disk-full", _message("disk-full")),
    ("killed", _message("out-of-memory")),
    ("compiler", _COMPILER.search),
    ("cmake", _CMAKE.match),
    ("linker", _LINKER.search),
    ("no-program", _message("program-missing")),
    ("python", _is_exception),
    ("pip", _PIP.match),
)


def _context(kind: str, lines: Sequence[str], at: int) -> tuple[str, ...]:
    if kind == "compiler":
        # the caret lines below a message show the code; the next message is another matter
        more = 1
        while more < 4 and at + more < len(lines) and re.match(r"^\s|^$", lines[at + more]):
            more += 1
        return tuple(line for line in lines[at : at + more] if line.strip())
    if kind == "cmake":
        more = 1
        while more < 8 and at + more < len(lines) and re.match(r"^\s|^$", lines[at + more]):
            more += 1
        return tuple(line for line in lines[at : at + more] if line.strip())
    if kind == "python":
        more = 1
        while more < 6 and at + more < len(lines) and _goes_on(lines[at + more]):
            more += 1
        return tuple(line for line in lines[at : at + more] if line.strip())
    return (lines[at].strip(),)


def _goes_on(line: str) -> bool:
    """The next line of an exception's text, and not what pip or the next program says."""
    return bool(re.match(r"^\S(?!.*\[)", line)) and not line.startswith("error: ") and not _ECHO.search(line)


def _explained(kind: str, lines: tuple[str, ...]) -> RootCause:
    if kind == "pip":
        lines = (lines[0].removeprefix("ERROR: "), *lines[1:])
    # the code below a compiler's message is only context: what it mentions is not what is wrong
    said = "\n".join(lines) if kind == "python" else lines[0]
    known = explain_message(said, kind)
    if known is None:
        return RootCause(kind, lines)
    return RootCause(kind, lines, known.meaning, known.steps)
