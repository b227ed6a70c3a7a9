"""How one source folder decides which GPUs it compiles for, and what to set so that it decides for ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from splatfix.core.errors import SplatfixError
from splatfix.core.step import say
from splatfix.facts import Source
from splatfix.knowledge import Arch
from splatfix.knowledge.cpp_extension import arch_flags_switched_off

TORCH_VARIABLE = "TORCH_CUDA_ARCH_LIST"


class Decider(str, Enum):
    """Who chooses the architectures."""

    TORCH = "torch"
    """torch.utils.cpp_extension, from TORCH_CUDA_ARCH_LIST."""
    OWN_VARIABLE = "own-variable"
    """setup.py itself, from a variable of its own."""
    FIXED = "fixed"
    """setup.py itself, from numbers written in it."""
    COMPUTED = "computed"
    """setup.py itself, in a way that only running it would tell."""


@dataclass(frozen=True)
class ArchChoice:
    """Who decides, and what to set."""

    decider: Decider
    variable: str = ""
    value: str = ""
    why: str = ""
    fixed: tuple[Arch, ...] = ()

    @property
    def variables(self) -> dict[str, str]:
        """The environment variable to set, if one has a say."""
        return {self.variable: self.value} if self.variable else {}


def choose(
    source: Source, build_archs: Sequence[Arch], torch_version: str, ptx: Arch | None = None
) -> ArchChoice:
    """What makes ``source`` compile for ``build_archs``, and for ``ptx`` as PTX too where that is given.

    The order is torch's own: a setup.py that hands nvcc any flag with "arch" in it makes torch add nothing, so then
    only setup.py's own means count (read from the source's text; see :mod:`splatfix.facts.source.setup_py`).

    Raises:
        SplatfixError: ``arch-fixed-in-source`` when the numbers written in setup.py leave a target out;
            ``ptx-not-possible`` when PTX is asked for and setup.py decides itself.
    """
    choice = _choose(source, build_archs, torch_version, ptx)
    if ptx and choice.decider is not Decider.TORCH:
        raise SplatfixError(
            "ptx-not-possible",
            f"{source.label} cannot be told to carry PTX: {choice.why}.",
            meaning="Only a package that leaves its architectures to torch takes 9.0+PTX from TORCH_CUDA_ARCH_LIST.",
            todo=(say("Use a toolkit that knows the GPU; splatfix install --dry-run --why names the ways."),),
        )
    return choice


def _choose(source: Source, build_archs: Sequence[Arch], torch_version: str, ptx: Arch | None) -> ArchChoice:
    own = [name for name in source.reads if _is_arch_variable(name)]
    fixed_torch = source.sets.get(TORCH_VARIABLE)
    if fixed_torch is not None and TORCH_VARIABLE not in source.reads:
        return _fixed(source, build_archs, f"{TORCH_VARIABLE}={fixed_torch}", _numbers(fixed_torch))
    switch = arch_flags_switched_off(source.nvcc_flags, torch_version)
    if own and (switch is not None or not source.uses_torch_builder):
        value = ";".join(str(arch.number) + arch.variant for arch in build_archs)
        why = f"its setup.py reads {own[0]} and ignores {TORCH_VARIABLE}"
        return ArchChoice(Decider.OWN_VARIABLE, own[0], value, why)
    if switch is None:
        value = ";".join([*(arch.cc for arch in build_archs), *([f"{ptx.cc}+PTX"] if ptx else [])])
        why = "its setup.py names no architecture, so torch decides, and torch reads this variable"
        return ArchChoice(Decider.TORCH, TORCH_VARIABLE, value, why)
    numbers = tuple(dict.fromkeys(n for text in source.nvcc_flags for n in _flag_numbers(text)))
    # what is left of f"-arch={name}": beside the numbers that are written there, others are made up while it runs
    made_up = any(
        re.fullmatch(r"-(arch|gencode)[= ](arch=)?(sm_|compute_)?", text) for text in source.nvcc_flags
    )
    if numbers and not made_up:
        return _fixed(source, build_archs, switch, numbers)
    why = f"its setup.py gives nvcc {switch!r}, so torch adds nothing and no variable has a say"
    return ArchChoice(Decider.COMPUTED, why=why)


def _fixed(source: Source, wanted: Sequence[Arch], text: str, numbers: tuple[Arch, ...]) -> ArchChoice:
    left_out = [arch for arch in wanted if arch not in numbers]
    if left_out:
        raise SplatfixError(
            "arch-fixed-in-source",
            f"{source.label} compiles for {', '.join(arch.sm for arch in numbers) or text} and nothing else: "
            f"its setup.py says so ({text}).",
            meaning=f"No variable makes it compile for {', '.join(arch.sm for arch in left_out)}.",
            todo=(
                say(
                    f"Remove {text!r} from {source.folder}/setup.py, so that torch decides, and run this again."
                ),
            ),
        )
    return ArchChoice(Decider.FIXED, why=f"its setup.py already says {text}", fixed=numbers)


def _is_arch_variable(name: str) -> bool:
    """``CUDA_ARCHITECTURES``, ``TCNN_CUDA_ARCHITECTURES``, ``CUDAARCHS``, ``CUDA_ARCH``... but not torch's."""
    return name != TORCH_VARIABLE and re.search(r"CUDA\w*ARCH|\bSM_?ARCH|GENCODE", name) is not None


def _flag_numbers(text: str) -> list[Arch]:
    if "arch" not in text and "code" not in text:
        return []
    return [Arch.parse(match) for match in re.findall(r"sm_\d{2,3}[af]?", text)]


def _numbers(arch_list: str) -> tuple[Arch, ...]:
    return tuple(Arch.parse(item) for item in re.findall(r"\d+\.\d[af]?", arch_list))
