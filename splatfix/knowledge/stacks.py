"""Splatting stacks: how to recognise a checkout, what it pins, and which variants of extensions it needs.

Also how each is built, which of the variants that share a module name an installed package is,
and PyPI names that hold something else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from splatfix.core.words import counted
from splatfix.knowledge.rows import row_of, rows
from splatfix.knowledge.tables import cached


class Lookalike(Struct, frozen=True):
    """A PyPI name that does not hold what a splatting user expects. ``found`` None: nothing there."""

    name: str
    found: str | None
    really: str
    wanted: str
    tool: bool = False
    """No stack imports it: what was meant is a program beside it."""


def lookalike(name: str) -> Lookalike | None:
    """What a PyPI name really holds, where that is not what a splatting user expects; None: nothing known against it."""
    key = name.lower().replace("_", "-")
    return row_of(Lookalike, "stacks", "lookalikes", key, "name")


class Part(Struct, frozen=True):
    """One extension of a stack."""

    path: str
    """In the checkout, with '/'; "" when it is not in it."""
    variant: str
    """Its key among the variants; "" when it has none."""
    builder: str = "setup.py"
    """``setup.py``: splatfix builds it; ``cmake``, ``none``: ``note`` says what to do instead."""
    note: str = ""
    clone: str = ""
    """Address of what is not in the checkout, to be cloned into the current folder."""
    install: str = ""
    """What ``splatfix install`` takes for it: a release, or a folder of that clone."""


class ProgramNeeds(Struct, frozen=True):
    """What a program that is no Python extension needs of a machine."""

    cuda: tuple[int, ...]
    """Lowest toolkit release; () when it uses no CUDA."""
    tools: tuple[str, ...]
    adapters: str
    """``vulkan`` when it draws through a graphics adapter."""


class Stack(Struct, frozen=True):
    """One trainer that people check out and run."""

    key: str
    name: str
    repository: str
    """``owner/name`` where it is kept."""
    recognise: tuple[str, ...]
    """Files and folders that its checkout has."""
    needs: tuple[str, ...]
    """Keys of the variants that it calls."""
    also_needs: tuple[str, ...]
    submodules: Mapping[str, str]
    """Path -> commit ("" where not known)."""
    source: str
    moved_from: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    """``owner/name`` of the submodules by which it is known."""
    arch_variable: str = ""
    """What chooses its architectures, where that is not TORCH_CUDA_ARCH_LIST."""
    jit: str = ""
    """What of it is compiled when it runs; "" for nothing."""
    parts: tuple[Part, ...] = ()
    """Its extensions, in build order."""
    program: ProgramNeeds | None = None
    """Of one that is no Python extension."""
    build_note: str = ""

    @property
    def repositories(self) -> tuple[str, ...]:
        """Where it is kept, and where it was before."""
        return self.repository, *self.moved_from


@cached
def _stacks() -> Mapping[str, Stack]:
    return rows(Stack, "stacks", "stacks", "key")


def stacks() -> tuple[Stack, ...]:
    """All stacks."""
    return tuple(_stacks().values())


def stack(key: str) -> Stack | None:
    """The stack of this key, or None."""
    return _stacks().get(key)


class Variant(Struct, frozen=True):
    """One of the packages that share a module name, as its sources show it."""

    key: str
    kind: str
    """``rasterizer``, ``ssim`` or ``knn``."""
    module: str
    extension: str
    """The compiled module: ``diff_gaussian_rasterization._C``."""
    settings: tuple[str, ...] | None
    """Fields of its Settings tuple, in order; None where it has none."""
    rasterizer_class: str | None
    forward: tuple[str, ...] | None
    """Parameters of the rasterizer's forward, without self."""
    methods: tuple[str, ...]
    extra_classes: tuple[str, ...]
    returns: tuple[str, ...] | None
    exports: frozenset[str]
    """Functions of the compiled module; empty: not known."""
    verified: bool


class Traits(Struct, frozen=True):
    """What shows which variant a package is. What is None is not known, and not compared."""

    settings: Sequence[str] | None = None
    """Fields of its Settings tuple."""
    exports: Collection[str] | None = None
    """Functions of its compiled module."""
    returns: int | None = None
    """How many values a forward returns."""
    forward: Sequence[str] | None = None
    """Parameters of the rasterizer's forward, without self."""
    classes: Collection[str] | None = None
    """Classes that it defines."""


@cached
def _variants() -> Mapping[str, Variant]:
    return rows(Variant, "stacks", "variants", "key")


def variants(module: str | None = None) -> tuple[Variant, ...]:
    """All variants, or those that ship this module name."""
    return tuple(row for row in _variants().values() if module is None or row.module == module)


def variant(key: str) -> Variant | None:
    """The variant of this key, or None."""
    return _variants().get(key)


def best_matches(module: str, traits: Traits) -> tuple[str, ...]:
    """Return the keys of the variants that fit a package in as many traits as any does; several where the facts do not part them.

    A variant that anything contradicts is left out; with no facts at all, every variant of the module is a candidate. An
    empty answer means: none of ours.
    """
    compared = {row: _compare(row, traits) for row in variants(module)}
    agreeing = {
        row: len(agreements) for row, (agreements, contradictions) in compared.items() if not contradictions
    }
    best = [row for row, number in agreeing.items() if number == max(agreeing.values())]
    return tuple(row.key for row in sorted(best, key=lambda row: not row.verified))


def explain_mismatch(key: str, traits: Traits) -> Sequence[str]:
    """Return in what an installed package differs from the variant that a stack calls."""
    return _compare(_variants()[key], traits)[1]


def _compare(row: Variant, traits: Traits) -> tuple[list[str], list[str]]:
    agreements: list[str] = []
    contradictions: list[str] = []

    def judge(trait: str, same: bool, difference: str) -> None:
        if same:
            agreements.append(trait)
        else:
            contradictions.append(f"{trait}: {difference}")

    settings, exports, returns, forward = traits.settings, traits.exports, traits.returns, traits.forward
    if settings is not None and row.settings is not None:
        judge("settings", tuple(settings) == row.settings, _difference(settings, row.settings))
    if exports is not None and row.exports:
        judge("exports", frozenset(exports) == row.exports, _difference(sorted(exports), sorted(row.exports)))
    if returns is not None and row.returns is not None:
        judge("returns", returns == len(row.returns), f"{counted(returns, 'value')}, not {len(row.returns)}")
    if forward is not None and row.forward is not None:
        judge("forward", tuple(forward) == row.forward, _difference(forward, row.forward))
    if traits.classes is not None and row.rasterizer_class is not None:
        expected = {row.rasterizer_class, *row.extra_classes}
        telling = {name for name in traits.classes if name in expected or name in _telling_classes()}
        judge("classes", telling == expected, _difference(sorted(telling), sorted(expected)))
    return agreements, contradictions


@cached
def _telling_classes() -> frozenset[str]:
    """Classes by which variants differ; any other class of a module is beside the point."""
    names: set[str] = set()
    for row in _variants().values():
        names |= {row.rasterizer_class or "", *row.extra_classes}
    return frozenset(names - {""})


def _difference(names: Sequence[str], expected: Sequence[str]) -> str:
    missing = [name for name in expected if name not in names]
    extra = [name for name in names if name not in expected]
    parts = []
    if missing:
        parts.append(f"lacks {', '.join(missing)}")
    if extra:
        parts.append(f"has {', '.join(extra)} besides")
    return "; ".join(parts) or f"another order ({', '.join(names)})"
