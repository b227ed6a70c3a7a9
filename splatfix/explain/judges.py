"""Tests of the numbers in a line, for anchors whose words alone fit two classes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from splatfix.knowledge.archs import arch_info, known_archs

_RELEASE = re.compile(
    r"[Cc]uda compilation tools, release (\d{1,2})\.(\d{1,2})|[/\\-]cuda-(\d{1,2})\.(\d{1,2})[/\\]|CUDA[/\\]v(\d{1,2})\.(\d{1,2})"
)
_SIZE = r"(\d{1,15}(?:\.\d{1,6})?) ?([KMGTPE]i?B|bytes)"
_TRIED = re.compile(rf"[Tt]r(?:ied|ying) (?:to )?allocat(?:e|ing) \W{{0,2}}{_SIZE}")
_CAPACITY = re.compile(rf"{_SIZE} total capacity|total capacity of {_SIZE}")
_FREE = re.compile(rf"{_SIZE} free|of which {_SIZE} is free")
_POWERS = {"b": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


@dataclass(frozen=True)
class Surroundings:
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
        if found := _RELEASE.search(line):
            major, minor = (int(part) for part in found.groups() if part)
            return major, minor
    return None


def judge(test: str, line: str, match: re.Match[str], around: Surroundings) -> float:
    """How far the numbers bear out the words: the factor (0 to 1) of the anchor's weight.

    Raises:
        KeyError: there is no such test.
    """
    return _TESTS[test](line, match, around)


def _arch_newer(_line: str, match: re.Match[str], around: Surroundings) -> float:
    return 0.0 if _dropped(int(match["arch"]), around.toolkit) else 1.0


def _arch_older(_line: str, match: re.Match[str], around: Surroundings) -> float:
    return 1.0 if _dropped(int(match["arch"]), around.toolkit) else 0.0


def _dropped(number: int, toolkit: tuple[int, int] | None) -> bool:
    """Whether an architecture that nvcc refuses is one it no longer knows, rather than one it does not know yet."""
    arch = next((item for item in known_archs() if item.major * 10 + item.minor == number), None)
    info = arch_info(arch) if arch else None
    if info is None:
        return number < 35
    if toolkit is not None and info.first_toolkit is not None and toolkit < info.first_toolkit:
        return False
    # without the version of nvcc: of the architectures up to sm_72 all toolkits of the last years once knew each
    return info.last_toolkit is not None and (
        toolkit > info.last_toolkit if toolkit is not None else number <= 72
    )


def _plausible(line: str, _match: re.Match[str], around: Surroundings) -> float:
    return 1 - _absurdity(line, around.rasterizes)


def _absurd(line: str, _match: re.Match[str], around: Surroundings) -> float:
    return _absurdity(line, around.rasterizes)


def _absurdity(line: str, rasterizes: bool) -> float:
    """How far a failed allocation is no lack of memory: a size that no scene needs, or one that was free."""
    tried, capacity, free = (_bytes(pattern, line) for pattern in (_TRIED, _CAPACITY, _FREE))
    if tried is None:
        return 0.0
    if tried >= (4 * capacity if capacity else 120 << 30):
        return 1.0
    if rasterizes and tried >= 24 << 30 and tried > 0.7 * (capacity or 0.0):
        return 0.7
    if capacity and tried > 1.2 * capacity:
        return 0.45
    # an allocation that fails although twice as much is free; less is fragmentation
    return 0.6 if free and tried * 2 < free and free > 1 << 30 else 0.0


def _bytes(pattern: re.Pattern[str], line: str) -> float | None:
    found = pattern.search(line)
    if found is None:
        return None
    number, unit = (part for part in found.groups() if part)
    return float(number) * 1024.0 ** _POWERS[unit[0]]


def _last_line(line: str, _match: re.Match[str], around: Surroundings) -> float:
    return 1.0 if line in around.last else 0.0


LAST_LINE = "last-line"
"""The test that a log ends in the line."""

_TESTS: Mapping[str, Callable[[str, re.Match[str], Surroundings], float]] = {
    "arch-newer-than-toolkit": _arch_newer,
    "arch-older-than-toolkit": _arch_older,
    "plausible-allocation": _plausible,
    "absurd-allocation": _absurd,
    LAST_LINE: _last_line,
}
TESTS = tuple(_TESTS)
"""Their names."""
