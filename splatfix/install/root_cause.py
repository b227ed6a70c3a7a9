"""Finds in a build log the lines that say why it failed: the first cause, not the last line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RootCause:
    """Why a build failed."""

    kind: str
    """``disk-full``, ``killed``, ``compiler``, ``linker``, ``no-program``, ``python`` or ``unknown``."""
    lines: tuple[str, ...]
    """The lines of the log that say it, at most a handful."""
    meaning: str = ""
    todo: tuple[str, ...] = ()


_DISK = re.compile(r"No space left on device|Disk quota exceeded")
_KILLED = re.compile(
    r"Killed signal terminated program|^Killed$|died due to signal 9|\bSIGKILL\b|signal 9\b|Out of memory"
)
# gcc: f.cpp:3:10: fatal error: x · nvcc: f.cu(12): error: x · nvcc fatal : x · ptxas fatal : x
_COMPILER = re.compile(
    r"^\S.*:\d+(:\d+)?: (fatal )?error: |^\S.*\(\d+\): (catastrophic |fatal )?error( C?\d+)?:"
    r"|^(nvcc|ptxas|cicc) (fatal|error)\s*:|fatal error C\d+:|^error: unsupported|#error"
)
_LINKER = re.compile(
    r"ld(\.\w+)?: (error: )?cannot find|undefined reference to|ld(\.\w+)?: .*(error|undefined)|LNK\d{4}"
)
_EXCEPTION = re.compile(r"^\s*(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception|NotFound|Interrupt)): ?(.*)$")
# what torch, ninja and pip say when something below them failed
_ECHO = re.compile(
    r"Error compiling objects for extension|subprocess\.CalledProcessError|ninja: build stopped|Failed building wheel"
    r"|CalledProcessError|subprocess-exited-with-error|metadata-generation-failed"
)

# setuptools, when the program itself is not there; in two generations of wording
_NO_PROGRAM = re.compile(
    r"error: (?:\[Errno 2\] No such file or directory: '([^']+)'|command '([^']+)' failed: No such file or directory)"
)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^'.]+)")


def find_root_cause(log: str) -> RootCause:
    """The first thing that went wrong in a build log of pip, setuptools, ninja, nvcc and gcc."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in log.splitlines()]
    lines = [line.removeprefix("  ") for line in lines]  # pip sets off what a build prints by two blanks
    for kind, matches in _KINDS:
        at = next((i for i, line in enumerate(lines) if matches(line)), None)
        if at is not None:
            return _explained(kind, _context(kind, lines, at))
    end = next((i for i, line in enumerate(lines) if "subprocess-exited-with-error" in line), len(lines))
    said = [
        line for line in lines[:end] if line.strip()
    ]  # pip's own report of the failure says nothing of it
    return RootCause("unknown", tuple(said[-5:]))


def _is_exception(line: str) -> bool:
    return _EXCEPTION.match(line) is not None and _ECHO.search(line) is None


_KINDS: tuple[tuple[str, Callable[[str], object]], ...] = (
    ("disk-full", _DISK.search),
    ("killed", _KILLED.search),
    ("compiler", _COMPILER.search),
    ("linker", _LINKER.search),
    ("no-program", _NO_PROGRAM.search),
    ("python", _is_exception),
)


def _context(kind: str, lines: Sequence[str], at: int) -> tuple[str, ...]:
    if kind == "compiler":
        # the caret lines below a message show the code; the next message is another matter
        more = 1
        while more < 4 and at + more < len(lines) and re.match(r"^\s|^$", lines[at + more]):
            more += 1
        return tuple(line for line in lines[at : at + more] if line.strip())
    if kind == "python":
        more = 1
        while more < 6 and at + more < len(lines) and re.match(r"^\S(?!.*\[)", lines[at + more] or ""):
            more += 1
        return tuple(line for line in lines[at : at + more] if line.strip())
    return (lines[at].strip(),)


def _explained(kind: str, lines: tuple[str, ...]) -> RootCause:
    text = "\n".join(lines)
    if kind == "disk-full":
        return RootCause(
            kind,
            lines,
            "The disk filled up during the build.",
            ("Make room, or set TMPDIR to another disk.",),
        )
    if kind == "killed":
        meaning = "The system ended a compiler, nearly always because memory ran out."
        return RootCause(kind, lines, meaning, ("Build with fewer compilers at once: --jobs 1",))
    if absent := _NO_PROGRAM.search(text):
        name = absent.group(1) or absent.group(2)
        meaning = f"The build calls {name}, which is not on this machine."
        return RootCause(
            kind, lines, meaning, ("On Debian and Ubuntu: sudo apt-get install build-essential",)
        )
    if missing := _NO_MODULE.search(text):
        meaning = "Its setup.py imports a package that the target environment lacks."
        return RootCause(
            kind, lines, meaning, (f"Install it there first: python -m pip install {missing.group(1)}",)
        )
    # the code below a compiler's message is only context: what it mentions is not what is wrong
    said = text if kind == "python" else lines[0]
    for pattern, meaning, todo in _KNOWN:
        if pattern.search(said):
            return RootCause(kind, lines, meaning, todo)
    return RootCause(kind, lines)


# Sources of these: splatting projects' issue threads and compile tests with nvcc 13.0.
_KNOWN: tuple[tuple[re.Pattern[str], str, tuple[str, ...]], ...] = (
    (
        re.compile(
            r"(u?int(8|16|32|64)_t|uintptr_t)\W.*(not declared|undefined|not name a type|unknown type|not a member)"
        ),
        "The source relies on <cstdint> being included by other headers; gcc 13 and newer no longer do.",
        ("Add '#include <cstdint>' at the top of the file named above.",),
    ),
    (
        re.compile(r"(FLT|DBL)_(MAX|MIN)\W.*(not declared|undefined)"),
        "The source relies on <cfloat> being included by other headers; newer CUDA headers no longer do.",
        ("Add '#include <cfloat>' at the top of the file named above.",),
    ),
    (
        re.compile(r'namespace "cub" has no member "(Max|Sum|Min)"'),
        "CUDA 13 removed cub::Max, cub::Min and cub::Sum.",
        ("Replace it by a local functor, e.g. one that returns a > b ? a : b.",),
    ),
    (
        re.compile(r"Unsupported gpu architecture"),
        "The source asks nvcc for an architecture that this toolkit does not know (CUDA 13 dropped all below 7.5).",
        ("Remove that architecture from its setup.py.",),
    ),
    (
        re.compile(r"unsupported GNU version|unsupported clang version"),
        "This nvcc does not accept that host compiler.",
        ("Set CC and CXX to an older gcc, for example CC=gcc-13 CXX=g++-13, and run this again.",),
    ),
    (
        re.compile(r"detected CUDA version"),
        "The toolkit's major differs from the one torch was built with.",
        ("Name a matching toolkit with --cuda-home.",),
    ),
    (
        re.compile(r"cannot find -lcudart"),
        "The toolkit lacks the unversioned library name that linking needs.",
        ("In the toolkit's lib folder: ln -s libcudart.so.* libcudart.so",),
    ),
    (
        re.compile(r"glm/\w+\.hpp: No such file"),
        "A bundled header folder is empty: the git submodules were not fetched.",
        ("In the checkout: git submodule update --init --recursive",),
    ),
    (
        re.compile(r"Python\.h: No such file"),
        "The development headers of this Python are not installed.",
        ("On Debian and Ubuntu: sudo apt-get install python3-dev",),
    ),
)
