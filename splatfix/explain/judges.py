"""Tests of the numbers in a line, for wordings that fit two classes of failure."""

import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from splatfix.knowledge.archs import Arch, arch_info, known_archs

_RELEASE = re.compile(
    r"[Cc]uda compilation tools, release (\d{1,2})\.(\d{1,2})|[/\\-]cuda-(\d{1,2})\.(\d{1,2})[/\\]|CUDA[/\\]v(\d{1,2})\.(\d{1,2})"
)
_SIZE = r"(\d{1,15}(?:\.\d{1,6})?) ?([KMGTPE]i?B|bytes)"
# "Tried to allocate 2.00 GiB (GPU 0; 23.49 GiB total capacity; ...; 1.10 GiB free; ...)", and torch's later wordings
_TRIED = re.compile(rf"[Tt]r(?:ied|ying) (?:to )?allocat(?:e|ing) \W{{0,2}}{_SIZE}")
_CAPACITY = re.compile(rf"{_SIZE} total capacity|total capacity of {_SIZE}")
_FREE = re.compile(rf"{_SIZE} free|of which {_SIZE} is free")
_POWERS = {"b": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_GIB = 1 << 30
# Where a log does not say how much memory the GPU has: an H200 has 141 GB, consumer GPUs at most 32.
_LARGEST_GPU = 120 * _GIB
# What no program asks for on purpose.
_NO_PROGRAM = 1024 * _GIB
# Of a rasterizer, whose buffers for one image take a few GiB at most: the size was read from memory that nothing wrote.
_LARGE_BUFFER = 24 * _GIB
# How likely an architecture that an unknown nvcc refuses was dropped by it: those that CUDA 12 does not know any more surely
# were; of those that only CUDA 13 dropped most were, and some reports are of a toolkit older than they.
_DROPPED_SURELY, _DROPPED_LIKELY = 1.0, 0.8
_LAST_SINCE = (12, 0)


class Surroundings(Struct, frozen=True):
    """What else is known when a line is judged."""

    toolkit: tuple[int, int] | None
    """Version of the nvcc that spoke: from the facts, else from the log."""
    rasterizes: bool = False
    """A rasterizer of Gaussians was called: its buffers are a few GiB at most."""
    last: tuple[str, ...] = ()
    """The last lines that say something: a log that was cut ends where a traceback was on its way to its message."""


def toolkit_in(lines: Sequence[str]) -> tuple[int, int] | None:
    """The toolkit that a log names as the one that compiled, the first one where it names several."""
    for line in lines:
        match = _RELEASE.search(line)
        if match is not None:
            major, minor = (int(part) for part in match.groups() if part)
            return major, minor
    return None


def _dropped(number: int, toolkit: tuple[int, int] | None) -> float:
    """How likely an architecture that nvcc refuses is one it no longer knows, rather than one it does not know yet."""
    info = arch_info(Arch.of_number(number))
    if info is None:
        return float(number < known_archs()[0].number)
    if info.last_toolkit is None:
        return 0.0
    if toolkit is None:
        return _DROPPED_SURELY if info.last_toolkit < _LAST_SINCE else _DROPPED_LIKELY
    if info.first_toolkit is not None and toolkit < info.first_toolkit:
        return 0.0
    return float(toolkit > info.last_toolkit)


def _absurdity(line: str, rasterizes: bool) -> float:
    """How far a failed allocation is no lack of memory: a size that no scene needs, or one that was free."""
    tried, capacity, free = (_bytes(pattern, line) for pattern in (_TRIED, _CAPACITY, _FREE))
    if tried is None:
        return 0.0
    # no scene asks for several times what the largest GPU has; a program without a rasterizer may, of every pair of its rows
    if tried >= (4 * capacity if capacity else _LARGEST_GPU):
        return 1.0 if rasterizes or tried >= _NO_PROGRAM else 0.4
    # a rasterizer that wants most of the GPU at once: likely, but a scene can be that large
    if rasterizes and tried >= _LARGE_BUFFER and tried > 0.7 * (capacity or 0.0):
        return 0.7
    # a little more than there is: a scene too large for this GPU asks for that as well
    if capacity and tried > 1.2 * capacity:
        return 0.45
    # an allocation that fails although twice as much is free; less is fragmentation
    if free and tried * 2 < free and free > _GIB:
        return 0.6
    return 0.0


def _bytes(pattern: re.Pattern[str], line: str) -> float | None:
    match = pattern.search(line)
    if match is None:
        return None
    number, unit = (part for part in match.groups() if part)
    return float(number) * 1024.0 ** _POWERS[unit[0]]


LAST_LINE = "last-line"
"""The test that a log ends in the line."""

# How far the numbers bear out the words: the factor (0 to 1) of the wording's points.
TESTS: Mapping[str, Callable[[str, re.Match[str], Surroundings], float]] = {
    "arch-newer-than-toolkit": lambda _, match, around: 1 - _dropped(int(match["arch"]), around.toolkit),
    "arch-older-than-toolkit": lambda _, match, around: _dropped(int(match["arch"]), around.toolkit),
    "plausible-allocation": lambda line, _, around: 1 - _absurdity(line, around.rasterizes),
    "absurd-allocation": lambda line, _, around: _absurdity(line, around.rasterizes),
    LAST_LINE: lambda line, _, around: line in around.last,
}
