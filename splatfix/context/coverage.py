"""Whether the fat binaries of a file can run on a GPU: the one rule that inspect, diagnose and install all use.

``Context.judge`` asks it with what is known of an environment, :func:`judge` without.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from splatfix.core.versions import dotted, major_minor, release
from splatfix.core.words import counted, verb
from splatfix.facts import Binary, EntryKind, Fatbin
from splatfix.knowledge import archs, drivers
from splatfix.model import FatbinGroup


class Coverage(Struct, frozen=True):
    """The verdict for one file on one GPU architecture."""

    target: str
    usable: bool
    """Every non-empty fatbin has an entry that this GPU can run."""
    via: str
    """``sass``, ``ptx`` (the driver compiles at first use), ``mixed``, or ``none``."""
    missing: tuple[int, ...]
    """Numbers of the fatbins (counted over non-empty ones) that have nothing for this GPU."""
    too_new_ptx: tuple[int, ...]
    """Fatbins whose only hope is PTX newer than the driver can compile (CUDA error 222)."""
    ptx_unsure: bool
    """Some fatbin depends on PTX, and whether the driver can compile it is not known."""
    total: int
    """How many fatbins hold code."""

    @property
    def runs(self) -> bool | None:
        """Whether it runs; None where that depends on PTX, and it is not known whether the driver compiles it."""
        if self.usable and self.ptx_unsure:
            return None
        return self.usable

    @property
    def reason(self) -> str:
        """One line for a person."""
        if self.usable:
            if self.via == "sass":
                return f"has native {self.target} code"
            code = {"ptx": "PTX", "mixed": "native code and PTX"}[self.via]
            sentence = f"runs on {self.target} with {code}, compiled by the driver at first use"
            if self.ptx_unsure:
                sentence += " (it is unknown whether this driver can compile it)"
            return sentence
        if self.too_new_ptx and not self.missing:
            return f"its PTX is newer than the driver can compile for {self.target}"
        if not self.total:
            return "it carries no GPU code"
        lacking = len(self.missing) + len(self.too_new_ptx)
        has = verb(lacking, "has", "have")
        return f"{lacking} of {counted(self.total, 'fatbin')} {has} no code for {self.target}"


def judge(
    fatbins: Iterable[Fatbin | FatbinGroup],
    target: archs.Arch,
    *,
    driver_cuda: str | None = None,
    build_cuda: tuple[int, int] | None = None,
) -> Coverage:
    """Judge fatbins (or groups of equal ones) against one GPU.

    A file is usable only if *every* non-empty fatbin (one per .cu file) has a usable entry; a union over the file
    would call a mixed library good. A group counts as all its equal fatbins, and is looked at once. Rules: CUDA binary
    compatibility and PTX compatibility, as :func:`splatfix.knowledge.archs.cubin_runs_on` and ``ptx_runs_on`` have them.

    Args:
        driver_cuda: CUDA level of the driver, such as ``13.0``, to judge PTX; None when it is not known.
        build_cuda: the toolkit that built the file, which decides Tegra exceptions from CUDA 13.2 on.
    """
    level = major_minor(driver_cuda)
    missing: list[int] = []
    too_new: list[int] = []
    kinds: set[str] = set()
    unsure = False
    total = 0
    for fatbin in fatbins:
        if not fatbin.entries:
            continue
        first, total = total, total + 1
        if isinstance(fatbin, FatbinGroup):
            total = first + fatbin.count
        kind, certain = _runs_by(fatbin, target, level, build_cuda)
        if kind == "none":
            missing += range(first, total)
        elif kind == "too-new":
            too_new += range(first, total)
        else:
            kinds.add(kind)
            unsure |= not certain
    usable = bool(total) and not missing and not too_new
    via = next(iter(kinds), "none")
    if len(kinds) > 1:
        via = "mixed"
    return Coverage(target.sm, usable, via, tuple(missing), tuple(too_new), unsure, total)


def _runs_by(
    fatbin: Fatbin | FatbinGroup,
    target: archs.Arch,
    level: tuple[int, int] | None,
    build_cuda: tuple[int, int] | None,
) -> tuple[str, bool]:
    """Say how this fatbin runs on the target (``sass``, ``ptx``, ``too-new``, ``none``), and whether that is certain."""
    best = ("none", True)
    for entry in fatbin.entries:
        arch = archs.Arch.known(entry.arch)
        if arch is None:
            continue  # a number that no GPU has
        if entry.kind is EntryKind.SASS and archs.cubin_runs_on(arch, target, build_cuda=build_cuda):
            return "sass", True
        if entry.kind is not EntryKind.PTX or not archs.ptx_runs_on(arch, target):
            continue
        compiles = None
        if entry.ptx_version and level:
            compiles = drivers.ptx_jit_ok(entry.ptx_version, level)
        # PTX that compiles for certain beats PTX that may, which beats PTX that does not
        if compiles is False and best[0] == "none":
            best = ("too-new", True)
        elif compiles is not False and best != ("ptx", True):
            best = ("ptx", compiles is True)
    return best


def targets_by_module(
    binaries: Sequence[Binary], targets: Sequence[archs.Arch]
) -> dict[str, Sequence[archs.Arch]]:
    """Return the targets that each module must serve: those in its name (``_86_C`` and ``_120_C`` of tiny-cuda-nn), else all."""
    named: dict[str, Sequence[archs.Arch]] = {}
    for binary in binaries:
        name = re.split(r"[/\\]", binary.path)[-1].partition(".")[0]
        named[binary.path] = [arch for arch in targets if re.search(rf"(?<!\d){arch.number}(?!\d)", name)]
    covered = set().union(*named.values())
    if all(named.values()) and covered != set(targets):
        named = {}  # some target has no module of its own: each must serve all
    return {binary.path: named.get(binary.path) or targets for binary in binaries}


def usual_archs(groups: Sequence[FatbinGroup]) -> tuple[str, ...]:
    """Return the architectures that most fatbins have, as torch lists its own: single kernels may have more."""
    total = sum(group.count for group in groups)
    counts: Counter[str] = Counter()
    for group in groups:
        for entry in group.entries:
            counts[entry.arch] += group.count
    return tuple(name for name, count in counts.items() if 2 * count >= total)


def code_words(groups: tuple[FatbinGroup, ...]) -> str:
    """Write ``sm_80 sm_90 +PTX 9.0 for sm_90`` over all fatbins, for evidence lines; partial ones are marked with n/total."""
    total = sum(group.count for group in groups)
    counts: dict[tuple[bool, str, str, tuple[int, int] | None], int] = {}
    for group in groups:
        for entry in group.entries:
            key = (entry.kind is not EntryKind.SASS, entry.kind.value, entry.arch, entry.ptx_version)
            counts[key] = counts.get(key, 0) + group.count
    names = []
    # machine code first, each kind by number
    for key in sorted(counts, key=lambda key: (key[0], release(key[2]))):
        _, kind, arch, version = key
        name = arch
        if kind != EntryKind.SASS.value:
            name = f"{kind.upper()} {dotted(version or ())}".rstrip() + f" for {arch}"
        if counts[key] != total:
            name += f" ({counts[key]} of {counted(total, 'fatbin')})"
        names.append(name)
    return ", ".join(names)
