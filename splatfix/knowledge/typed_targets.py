"""From what a person types for a target to architectures: ``sm_120``, ``12.0``, ``5080``, ``RTX 4090``, and lists of them."""

from __future__ import annotations

import re

from splatfix.knowledge.archs import Arch, arch_info, arch_of_product, known_archs

# What a help text names of the table: older ones are in it, and nobody needs to be told of them first.
_SHOWN_FROM = 75
_MAKES = ("", "RTX ", "GTX ")


def split_targets(text: str) -> tuple[str, ...]:
    """``sm_120, sm_89`` or ``8.9;12.0`` (as TORCH_CUDA_ARCH_LIST has it) as its single targets."""
    return tuple(part.strip() for part in re.split(r"[,;]", text) if part.strip()) or (text.strip(),)


def parse_targets(text: str) -> tuple[Arch, ...]:
    """The architectures of a target or of a list of them.

    Raises:
        ValueError: as :func:`parse_target`.
    """
    return tuple(parse_target(part) for part in split_targets(text))


def parse_target(text: str) -> Arch:
    """The architecture of one target: ``sm_120``, ``12.0``, ``120``, ``sm120``, ``compute_120``, ``rtx5080``, ``5080``.

    Raises:
        ValueError: with a sentence that says what to write in its place.
    """
    wanted = text.strip()
    found = None if "+" in wanted else _arch(wanted) or _product(wanted)
    if found is None:
        raise ValueError(_help(wanted))
    return found


def _arch(text: str) -> Arch | None:
    arch = Arch.known(text.lower())
    return arch if arch is not None and arch_info(arch) is not None else None


def _product(text: str) -> Arch | None:
    """By a product's name, with or without its make, blanks and dashes: ``RTX 5080``, ``rtx5080``, ``5080``, ``4090-ti``."""
    spaced = re.sub(r"(?<=[RrGg][Tt][Xx])(?=\d)", " ", re.sub(r"[-_]+", " ", text))
    makes = _MAKES if spaced[:1].isdigit() else ("",)
    return next((arch for make in makes if (arch := arch_of_product(make + spaced))), None)


def _help(text: str) -> str:
    if text.startswith("-"):
        return f"--target was given no GPU: {text} is an option. Write --target sm_120, for example."
    base, plus, ptx = text.partition("+")
    if plus and ptx.lower() == "ptx":
        named = _arch(base) or _product(base)
        asked = f"--target {named.sm if named else 'sm_120'} --ptx"
        return (
            f"{text!r} asks for PTX, which is an option of splatfix install and no part of a target: {asked}"
        )
    if meant := _generation(text):
        words = ", ".join(arch.sm + (f" ({', '.join(gpus[:3])})" if gpus else "") for arch, gpus in meant)
        return (
            f"{text!r} is a generation and no architecture: it may mean {words}. Name the one that is meant."
        )
    names = ", ".join(arch.sm for arch in known_archs() if arch.number >= _SHOWN_FROM)
    return f"{text!r} is no GPU that splatfix knows. Write {names}, an older one, or a product such as 'RTX 5080'."


def _generation(text: str) -> list[tuple[Arch, tuple[str, ...]]]:
    """The architectures of a generation by NVIDIA's name (``blackwell``, ``ada``), each with GPUs that have it."""
    found = []
    for arch in known_archs():
        info = arch_info(arch)
        if info and text.lower() in (
            info.name.lower(),
            *re.findall(r"\w+", info.name.partition("(")[0].lower()),
        ):
            found.append((arch, info.gpus))
    return found
