"""Who decides for which GPUs a source is compiled, and through which variable, in which form."""

import re
from collections.abc import Mapping, Sequence
from enum import Enum

from msgspec import Struct, field

from splatfix.context.model import OtherOption
from splatfix.core.errors import Rejected
from splatfix.facts import is_arch_variable
from splatfix.knowledge import Arch
from splatfix.knowledge.cpp_extension import arch_flags_switched_off
from splatfix.model import ArchVariable, Source

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


class ArchChoice(Struct, frozen=True):
    """Who decides, and what to set."""

    decider: Decider
    variables: Mapping[str, str] = field(default_factory=dict)
    """What has a say."""
    why: str = ""


def choose_archs(
    source: Source, build_archs: Sequence[Arch], torch_version: str, ptx: Arch | None = None
) -> ArchChoice | Rejected:
    """Choose what makes ``source`` compile for ``build_archs``, and for ``ptx`` as PTX too where that is given.

    The order is torch's own: a setup.py that hands nvcc any flag with "arch" in it makes torch add nothing, so then
    only setup.py's own means count (read from the source's text; see ``facts/source/setup_py.py``).

    Refused: ``arch-fixed-in-source`` when the numbers written in setup.py leave a target out; ``ptx-not-possible`` when
    PTX is asked for and setup.py decides itself.
    """
    choice = _choose(source, build_archs, torch_version, ptx)
    if ptx is None or isinstance(choice, Rejected) or choice.decider is Decider.TORCH:
        return choice
    return OtherOption.of("context.ptx-not-possible", source_label=source.label, choice_why=choice.why)


def _choose(
    source: Source, build_archs: Sequence[Arch], torch_version: str, ptx: Arch | None
) -> ArchChoice | Rejected:
    own = own_variables(source)
    flag = arch_flags_switched_off(source.nvcc_flags, torch_version)
    overwritten = TORCH_VARIABLE in source.sets
    if own and (flag is not None or overwritten or not source.uses_torch_builder):
        reason = f"its setup.py reads {own[0].name} and ignores {TORCH_VARIABLE}"
        return ArchChoice(Decider.OWN_VARIABLE, {own[0].name: written(own[0], build_archs)}, reason)
    if overwritten:
        value = source.sets[TORCH_VARIABLE] or ""
        fixed = tuple(Arch.parse(text) for text in re.findall(r"\d+\.\d[af]?", value))
        if fixed:
            return _fixed(source, build_archs, f"{TORCH_VARIABLE}={value}", fixed)
        reason = f"its setup.py sets {TORCH_VARIABLE} itself, so that of the environment has no say"
        return ArchChoice(Decider.COMPUTED, why=reason)
    entries = [arch.cc for arch in build_archs]
    if ptx:
        entries.append(f"{ptx.cc}+PTX")
    for_torch = {TORCH_VARIABLE: ";".join(entries)}
    if flag is None:
        if not source.uses_torch_builder and "CMakeLists.txt" in source.build_files:
            for_cmake = {"CUDAARCHS": written(ArchVariable("CUDAARCHS"), build_archs)}
            reason = "CMake reads the one, and what torch adds to CMake the other"
            return ArchChoice(Decider.TORCH, for_cmake | for_torch, reason)
        reason = "its setup.py names no architecture, so torch decides, and torch reads this variable"
        return ArchChoice(Decider.TORCH, for_torch, reason)
    naming = [text for text in source.nvcc_flags if "arch" in text or "code" in text]
    fixed = tuple(dict.fromkeys(map(Arch.parse, re.findall(r"sm_\d{2,3}[af]?", " ".join(naming)))))
    # what is left of f"-arch={name}": beside the numbers that are written there, others are made up while it runs
    unfinished = re.compile(r"-(arch|gencode)[= ](arch=)?(sm_|compute_)?")
    if fixed and not any(unfinished.fullmatch(text) for text in source.nvcc_flags):
        return _fixed(source, build_archs, flag, fixed)
    if TORCH_VARIABLE in source.reads:
        reason = f"its setup.py gives nvcc {flag!r}, so torch adds nothing, but it reads this variable itself"
        return ArchChoice(Decider.COMPUTED, for_torch, reason)
    reason = f"its setup.py gives nvcc {flag!r}, so torch adds nothing and no variable has a say"
    return ArchChoice(Decider.COMPUTED, why=reason)


def own_choice(source: Source, archs: Sequence[Arch], torch_version: str) -> tuple[ArchVariable, str] | None:
    """Return the variable that decides for a source in the place of torch's, and what to set it to; None where none does."""
    choice = choose_archs(source, archs, torch_version)
    if isinstance(choice, Rejected) or choice.decider is not Decider.OWN_VARIABLE:
        return None
    own = own_variables(source)[0]
    return own, choice.variables[own.name]


def own_variables(source: Source) -> tuple[ArchVariable, ...]:
    """The variables of its own from which a source takes architectures. Facts of an earlier splatfix hold their names alone."""
    if source.arch_variables:
        return source.arch_variables
    return tuple(ArchVariable(name) for name in source.reads if is_arch_variable(name))


def written(variable: ArchVariable, archs: Sequence[Arch]) -> str:
    """Architectures in the form that a variable wants: ``86;90a``, ``8.6,9.0``."""
    texts = []
    for arch in archs:
        if variable.plain:
            arch = arch.plain
        if variable.dotted:
            texts.append(arch.cc)
        else:
            texts.append(f"{arch.number}{arch.variant}")
    return variable.separator.join(dict.fromkeys(texts))


def understood(variable: ArchVariable, value: str) -> bool:
    """The value has the form that the variable wants."""
    entry = r"\d{2,3}"
    if variable.dotted:
        entry = r"\d{1,2}\.\d"
    if not variable.plain:
        entry += "[af]?"
    if variable.dotted and not variable.plain:
        entry += r"(\+PTX)?"
    return re.fullmatch(rf"{entry}([;,\s]+{entry})*", value.strip()) is not None


def _fixed(
    source: Source, build_archs: Sequence[Arch], text: str, fixed: tuple[Arch, ...]
) -> ArchChoice | Rejected:
    """The choice of a source with numbers written in it; the problem where they leave out one to build for."""
    left_out = ", ".join(arch.sm for arch in build_archs if arch not in fixed)
    if not left_out:
        names = ", ".join(map(str, build_archs))
        return ArchChoice(Decider.FIXED, why=f"its setup.py already compiles for {names}")
    return Rejected.of(
        "context.arch-fixed-in-source",
        label=source.label,
        archs=tuple(fixed) or text,
        text=text,
        left_out=left_out,
        folder=source.folder,
    )
