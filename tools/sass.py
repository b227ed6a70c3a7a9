"""Machine code of CUDA kernels, counted: instructions, natural loops, and the shortest way round each.

A cubin is read by cuobjdump (CUDA's, or `pip install nvidia-cuda-cuobjdump`). Control flow is that of the branches with a target
in the text; a call returns behind itself. A loop is a branch back to a block that dominates it, with all that reaches the branch
from there.
"""

from __future__ import annotations

import heapq
import itertools
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")
_DOUBLE = re.compile(r"D(ADD|MUL|FMA)")
_ATOMIC = re.compile(r"RED|ATOM")
_STEP, _SHUFFLE = re.compile(r"MUFU\.EX2"), re.compile("SHFL")
_RESOURCES = re.compile(r"Function (\S+):\n\s*REG:(\d+) STACK:\d+ SHARED:(\d+)")
_ENDS = ("BRA", "EXIT", "RET.REL.NODEC", "RET.ABS.NODEC", "BRX", "KILL")
_SMALLEST = 8  # instructions: in shorter ones the lanes of a warp only wait for each other


class Instruction(NamedTuple):
    """One of a kernel."""

    address: int
    conditional: bool
    name: str
    operands: str

    @property
    def target(self) -> int | None:
        """Of a branch; not of one that only divergent warps take, to exchange their values one after the other."""
        if not self.name.startswith("BRA") or self.name == "BRA.DIV":
            return None
        found = re.search(r"0x([0-9a-f]+)", self.operands)
        return int(found[1], 16) if found else None

    @property
    def ends(self) -> bool:
        """Nothing goes on behind it; a branch may have its condition among the operands, or be one for a divergent warp."""
        if self.name == "BRA" and "," in self.operands:
            return False
        return not self.conditional and self.name in _ENDS


class Loop(NamedTuple):
    """An innermost one: `steps` are the powers of two in it, of which a pair of a Gaussian and a pixel takes one."""

    instructions: int
    shortest: int
    steps: int
    shuffles: int
    atomics: int


class Kernel:
    """The instructions of one kernel."""

    def __init__(self, instructions: list[Instruction]) -> None:
        self.instructions = instructions
        while self.instructions and self.instructions[-1].name in ("NOP", "BRA"):
            self.instructions.pop()  # behind the end: padding, and a branch to itself

    def doubles(self) -> int:
        return _number(_DOUBLE, self.instructions)

    def atomics(self) -> int:
        return _number(_ATOMIC, self.instructions)

    def loops(self) -> list[Loop]:
        """Those without another inside, in order."""
        bodies: dict[int, set[int]] = {}
        for start, successors in self._successors.items():
            for head in successors:
                if head in self._dominators[start]:
                    bodies.setdefault(head, {head}).update(self._reaching(start, head))
        sizes = {head: sum(len(self._blocks[start]) for start in body) for head, body in bodies.items()}
        bodies = {head: body for head, body in bodies.items() if sizes[head] >= _SMALLEST}
        innermost = [
            head for head, body in bodies.items() if not any(head != k and k in body for k in bodies)
        ]
        return [self._loop(head, bodies[head]) for head in sorted(innermost)]

    @cached_property
    def _blocks(self) -> dict[int, list[Instruction]]:
        """By the address of the first instruction."""
        starts = {item.target for item in self.instructions if item.target is not None}
        blocks: dict[int, list[Instruction]] = {}
        begins = True
        for item in self.instructions:
            if begins or item.address in starts:
                current = blocks.setdefault(item.address, [])
            current.append(item)
            begins = item.target is not None or item.ends
        return blocks

    @cached_property
    def _successors(self) -> dict[int, list[int]]:
        """Of every block that is reached."""
        order = list(self._blocks)
        following = dict(itertools.pairwise(order))
        successors = {}
        for start, block in self._blocks.items():
            last = block[-1]
            after = [] if last.ends or start not in following else [following[start]]
            if last.target in self._blocks:
                after.append(last.target)
            successors[start] = after
        reached, left = set(), order[:1]
        while left:
            start = left.pop()
            if start not in reached:
                reached.add(start)
                left += successors[start]
        return {start: after for start, after in successors.items() if start in reached}

    @cached_property
    def _predecessors(self) -> dict[int, list[int]]:
        ways = self._successors.items()
        return {block: [start for start, after in ways if block in after] for block in self._successors}

    @cached_property
    def _dominators(self) -> dict[int, set[int]]:
        """Of each block those on all ways to it."""
        order = list(self._successors)
        dominators = {start: set(order) for start in order}
        dominators[order[0]] = {order[0]}
        changed = True
        while changed:
            changed = False
            for start in order[1:]:
                before = [dominators[item] for item in self._predecessors[start]]
                found = {start} | set.intersection(*before)
                changed |= found != dominators[start]
                dominators[start] = found
        return dominators

    def _reaching(self, block: int, head: int) -> set[int]:
        """All from which a block is reached without the head of its loop, itself with them."""
        found, left = {head}, [block]
        while left:
            current = left.pop()
            if current not in found:
                found.add(current)
                left += self._predecessors[current]
        return found

    def _loop(self, head: int, body: set[int]) -> Loop:
        inside = [item for start in body for item in self._blocks[start]]
        steps, shuffles, atomics = (_number(pattern, inside) for pattern in (_STEP, _SHUFFLE, _ATOMIC))
        return Loop(len(inside), self._shortest(head, body), steps, shuffles, atomics)

    def _shortest(self, head: int, body: set[int]) -> int:
        """Instructions of the shortest way from the head back to it."""
        ways, known = [(len(self._blocks[head]), head)], set()
        while ways:
            length, current = heapq.heappop(ways)
            for after in self._successors[current]:
                if after == head:
                    return length
                if after in body and after not in known:
                    known.add(after)
                    heapq.heappush(ways, (length + len(self._blocks[after]), after))
        raise ValueError("a loop that does not come round")


def _number(pattern: re.Pattern[str], instructions: list[Instruction]) -> int:
    """How many are of a kind."""
    return sum(bool(pattern.match(item.name)) for item in instructions)


def read_kernels(cubin: Path) -> dict[str, Kernel]:
    """By name.

    Raises:
        FileNotFoundError: there is no cuobjdump.
        subprocess.CalledProcessError: it does not read the file.
    """
    return dict(_kernels(_read("-sass", cubin)))


def read_resources(cubin: Path) -> dict[str, tuple[int, int]]:
    """Registers of a thread and bytes of shared memory of a block, by kernel; raises as `read_kernels`."""
    found = _RESOURCES.findall(_read("-res-usage", cubin))
    return {name: (int(registers), int(shared)) for name, registers, shared in found}


def _read(what: str, cubin: Path) -> str:
    beside = sorted(Path(sys.prefix).glob("lib/python*/site-packages/nvidia/*/bin/cuobjdump"))
    program = shutil.which("cuobjdump") or next(map(str, beside), None)
    if program is None:
        raise FileNotFoundError("There is no cuobjdump: install CUDA's, or pip install nvidia-cuda-cuobjdump")
    return subprocess.run([program, what, str(cubin)], capture_output=True, text=True, check=True).stdout


def _kernels(text: str) -> Iterator[tuple[str, Kernel]]:
    for part in text.split("Function : ")[1:]:
        found = _INSTRUCTION.finditer(part)
        yield (
            part.split("\n", 1)[0].strip(),
            Kernel([Instruction(int(m[1], 16), bool(m[2]), m[3], m[4]) for m in found]),
        )
