"""Finds in a build log the lines that say why it failed: the first cause, not the last line."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from splatfix.core.step import Step, run, say


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


_DISK = re.compile(r"No space left on device|Disk quota exceeded")
_KILLED = re.compile(
    r"Killed signal terminated program|^Killed$|died due to signal 9|\bSIGKILL\b|signal 9\b|[Oo]ut of memory"
    r"|virtual memory exhausted|Cannot allocate memory|std::bad_alloc|fatal error C1060:"
)
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

# setuptools, when the program itself is not there; in two generations of wording
_NO_PROGRAM = re.compile(
    r"error: (?:\[Errno 2\] No such file or directory: '([^']+)'|command '([^']+)' failed: No such file or directory)"
)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^'.]+)")
# pip's own refusals; its echoes of a failed build are none
_PIP = re.compile(r"^ERROR: (?!Failed building|Failed to build|Exception:|Command errored)")
_OTHER_PYTHON = re.compile(r"requires a different Python: (\S+) not in '([^']+)'")
_WANTED = re.compile(r"Could not find a version that satisfies the requirement (\S+)")
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
    """The first thing that went wrong in a build log of pip, setuptools, ninja, nvcc and gcc."""
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


_KINDS: tuple[tuple[str, Callable[[str], object]], ...] = (
    ("disk-full", _DISK.search),
    ("killed", _KILLED.search),
    ("compiler", _COMPILER.search),
    ("cmake", _CMAKE.match),
    ("linker", _LINKER.search),
    ("no-program", _NO_PROGRAM.search),
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
    text = "\n".join(lines)
    if kind == "disk-full":
        return RootCause(
            kind,
            lines,
            "The disk filled up during the build.",
            (say("Make room, or set TMPDIR to another disk."),),
        )
    if kind == "killed":
        meaning = "The system or a compiler gave up, nearly always because memory ran out."
        return RootCause(kind, lines, meaning, (say("Build with fewer compilers at once: --jobs 1"),))
    if absent := _NO_PROGRAM.search(text):
        name = absent.group(1) or absent.group(2)
        meaning = f"The build calls {name}, which is not on this machine."
        return RootCause(
            kind,
            lines,
            meaning,
            (run("sudo", "apt-get", "install", "build-essential", text="On Debian and Ubuntu"),),
        )
    if missing := _NO_MODULE.search(text):
        meaning = "Its setup.py imports a package that the target environment lacks."
        return RootCause(
            kind,
            lines,
            meaning,
            (run("python", "-m", "pip", "install", missing.group(1), text="Install it there first"),),
        )
    if kind == "pip":
        lines = (lines[0].removeprefix("ERROR: "), *lines[1:])
        if other := _OTHER_PYTHON.search(text):
            meaning = (
                f"This source is for Python {other.group(2)}; the target environment has {other.group(1)}."
            )
            advice = f"Use an environment with a Python {other.group(2)}, and name it with --python."
            return RootCause(kind, lines, meaning, (say(advice),))
        if wanted := _WANTED.search(text):
            meaning = (
                "Its setup.py asks pip for that package while it builds, and a build may not add packages."
            )
            advice = f"Install it there first: python -m pip install '{wanted.group(1)}'"
            return RootCause(kind, lines, meaning, (say(advice),))
    # the code below a compiler's message is only context: what it mentions is not what is wrong
    said = text if kind == "python" else lines[0]
    for pattern, meaning, todo in _KNOWN:
        if pattern.search(said):
            return RootCause(kind, lines, meaning, todo)
    return RootCause(kind, lines)


# Sources of these: splatting projects' issue threads and compile tests with nvcc 13.0.
_KNOWN: tuple[tuple[re.Pattern[str], str, tuple[Step, ...]], ...] = (
    (
        re.compile(r"FileNotFoundError: .*output\.json'"),
        "Its setup.py ended its process as if all were well (exit code 0), before it had built anything.",
        (
            say(
                "Look in its setup.py for sys.exit, quit or os._exit, and for the condition that leads there."
            ),
        ),
    ),
    (re.compile(r"^AssertionError$"), "An assert that has no message failed.", ()),
    (
        re.compile(
            r"(u?int(8|16|32|64)_t|uintptr_t)\W.*(not declared|undefined|not name a type|unknown type|not a member)"
        ),
        "The source relies on <cstdint> being included by other headers; gcc 13 and newer no longer do.",
        (say("Add '#include <cstdint>' at the top of the file named above."),),
    ),
    (
        re.compile(r"(FLT|DBL)_(MAX|MIN)\W.*(not declared|undefined)"),
        "The source relies on <cfloat> being included by other headers; newer CUDA headers no longer do.",
        (say("Add '#include <cfloat>' at the top of the file named above."),),
    ),
    (
        re.compile(r'namespace "cub" has no member "(Max|Sum|Min)"'),
        "CUDA 13 removed cub::Max, cub::Min and cub::Sum.",
        (say("Replace it by a local functor, e.g. one that returns a > b ? a : b."),),
    ),
    (
        re.compile(r"Unsupported gpu architecture"),
        "The source asks nvcc for an architecture that this toolkit does not know (CUDA 13 dropped all below 7.5).",
        (say("Remove that architecture from its setup.py."),),
    ),
    (
        re.compile(r"unsupported GNU version|unsupported clang version"),
        "This nvcc does not accept that host compiler.",
        (say("Set CC and CXX to an older gcc, for example CC=gcc-13 CXX=g++-13, and run this again."),),
    ),
    (
        re.compile(r"detected CUDA version"),
        "The toolkit's major differs from the one torch was built with.",
        (say("Name a matching toolkit with --cuda-home."),),
    ),
    (
        re.compile(r"cannot find -lcudart"),
        "The toolkit lacks the unversioned library name that linking needs.",
        (run("ln", "-s", "libcudart.so.*", "libcudart.so", text="In the toolkit's lib folder"),),
    ),
    (
        re.compile(r"glm/\w+\.hpp: No such file"),
        "A bundled header folder is empty: the git submodules were not fetched.",
        (run("git", "submodule", "update", "--init", "--recursive", text="In the checkout"),),
    ),
    (
        re.compile(r"Python\.h: No such file"),
        "The development headers of this Python are not installed.",
        (run("sudo", "apt-get", "install", "python3-dev", text="On Debian and Ubuntu"),),
    ),
)
