"""From names, source folders and checkouts to the drop-ins that replace them, or to the reason why nothing does."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from packaging.utils import canonicalize_name

from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.step import run, say
from splatfix.facts import extension_folders, read_package_source, read_source
from splatfix.knowledge.stacks import identify, recognise_checkout, stacks, variant, variants
from splatfix.plan.folders import install_of, is_checkout, no_checkout
from splatfix.plan.swap_table import (
    IRREPLACEABLE,
    IRREPLACEABLE_VARIANTS,
    SWAPS,
    Swap,
    known_names,
    refusal,
    swap_for_variant,
)

_SHARED_NAME = "diff-gaussian-rasterization"


def choose_swaps(sources: Iterable[str]) -> tuple[Swap, ...]:
    """The drop-ins for names, source folders or whole checkouts, each once.

    Raises:
        SplatfixError: ``nothing-replaces-it`` (exit 1) with the reason; ``variant-not-said``, ``unknown-swap``,
            ``nothing-to-swap`` (exit 2); ``same-name-twice`` when two variants of one name are asked for.
    """
    named = list(dict.fromkeys(sources))
    if named == ["."] and not _is_source(Path()):
        raise usage_error(
            "nothing-to-swap",
            "Nothing was named to be replaced, and this folder is no checkout with extensions.",
            say(f"Name one or more of: {known_names()}"),
        )
    found = tuple(dict.fromkeys(swap for item in named for swap in _swaps_for(item)))
    by_distribution: dict[str, Swap] = {}
    for swap in found:
        other = by_distribution.setdefault(swap.distribution, swap)
        if other != swap:
            raise SplatfixError(
                "same-name-twice",
                f"{other.name} and {swap.name} are one distribution.",
                meaning="One environment holds one of them; the second would replace the first.",
                todo=(say("Name the one that your trainer calls."),),
            )
    return found


def _swaps_for(text: str) -> tuple[Swap, ...]:
    folder = Path(text).expanduser()
    if not folder.is_dir():
        return (_by_name(text),)
    if not _is_source(folder):
        raise no_checkout(folder.resolve(), "--backend", "pure")
    try:
        return _inside(folder) or (_by_name(text),)
    except SplatfixError as error:
        if error.code == "nothing-replaces-it":  # the folder that was named is what a native build takes
            error.todo = (run("splatfix", "install", text, "--target", "sm_120"), *error.todo[1:])
        raise


def _is_source(folder: Path) -> bool:
    has_one = any((folder / file).is_file() for file in ("setup.py", "pyproject.toml"))
    return has_one or is_checkout(folder.resolve())


def _inside(folder: Path) -> tuple[Swap, ...]:
    """What replaces an extension's source folder, or all extensions of a checkout; nothing when it is neither."""
    if any((folder / file).is_file() for file in ("setup.py", "pyproject.toml")):
        return (_by_source(folder),)
    recognised = recognise_checkout(_paths(folder))
    sources = [_by_source(item) for item in extension_folders(folder)]
    # submodules that git has not fetched: what the stack is known to need
    lacking = [_by_variant(key) for stack in recognised[:1] for key in stack.needs if variant(key)]
    there = {swap.distribution for swap in sources}
    return (*sources, *(swap for swap in lacking if swap.distribution not in there))


def _paths(folder: Path) -> list[str]:
    """The first two levels of a folder, relative, with '/': enough to tell stacks apart."""
    found = (*folder.glob("*"), *folder.glob("*/*"))
    return [os.path.relpath(path, folder).replace(os.sep, "/") for path in found]


def _by_source(folder: Path) -> Swap:
    name = canonicalize_name(read_source(folder).label)
    if name != _SHARED_NAME:
        return _by_name(name)
    module = _SHARED_NAME.replace("-", "_")
    try:
        shown = read_package_source(module, (folder / module / "__init__.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise usage_error(
            "variant-unreadable",
            f"Which {module} {folder} is cannot be read from its {module}/__init__.py: {error}.",
            say(f"Name the variant: {_variants()}"),
        ) from error
    matches = identify(
        module,
        settings=shown.settings,
        exports=shown.exports or None,
        returns=shown.returns,
        forward=shown.forward,
        classes=shown.classes,
    )
    if not matches:
        raise SplatfixError(
            "nothing-replaces-it",
            f"{folder} is a {module} of a kind that splatfix does not know.",
            meaning="A drop-in with other settings or results would be called wrongly.",
            todo=(say(f"If it is called like one of these, name that one: {_variants()}"),),
        )
    return _by_variant(matches[0].variant.key)


def _by_variant(key: str) -> Swap:
    swap = swap_for_variant(key)
    if swap is not None:
        return swap
    row = variant(key)
    what = f"{row.module} ({key})" if row else key
    raise _refused(what, refusal(key) or "no drop-in was made for it", row.module if row else key, key)


def _by_name(text: str) -> Swap:
    name, _, kind = text.partition("@")
    name = canonicalize_name(name)
    if name == _SHARED_NAME and kind:
        return _named_variant(text, kind)
    if name == _SHARED_NAME:
        raise usage_error(
            "variant-not-said",
            f"At least nine incompatible packages are called {text}; which of them does your trainer call?",
            say(f"Name it: {_variants()}"),
            run(
                "splatfix",
                "install",
                "PATH/TO/CHECKOUT",
                "--backend",
                "pure",
                text="Or give the trainer's checkout",
            ),
        )
    for swap in SWAPS:
        if name == swap.distribution and not kind:
            return swap
    if name in IRREPLACEABLE:
        raise _refused(text, IRREPLACEABLE[name], name)
    raise usage_error(
        "unknown-swap",
        f"{text} is nothing that splatfix has a drop-in for.",
        say(f"There are drop-ins for: {known_names()}"),
    )


def _named_variant(text: str, kind: str) -> Swap:
    for swap in SWAPS:
        if swap.distribution == _SHARED_NAME and kind in (swap.variant, *swap.serves):
            return swap
    if kind in IRREPLACEABLE_VARIANTS:
        return _by_variant(kind)
    raise usage_error(
        "unknown-swap", f"{text} is no variant that splatfix knows.", say(f"Name one of: {_variants()}")
    )


def _variants() -> str:
    return ", ".join(swap.name for swap in SWAPS if swap.variant)


def _refused(what: str, why: str, name: str, variant_key: str = "") -> SplatfixError:
    beside = companions(name, variant_key)
    others = run(
        *("splatfix", "install", *beside, "--backend", "pure"),
        text="What is used beside it can be swapped by name",
    )
    return SplatfixError(
        "nothing-replaces-it",
        f"There is no drop-in for {what}: {why}.",
        meaning="Only a native build serves it.",
        todo=(
            run("splatfix", "install", install_of(name), "--target", "sm_120"),
            *([others] if beside else []),
        ),
    )


def companions(extension: str, variant_key: str = "") -> tuple[str, ...]:
    """Names of the drop-ins for what the stacks that call an extension call beside it; () where they call nothing else.

    Args:
        extension: a module or distribution; where several share the name, ``variant_key`` tells which.
    """
    keys = (
        {variant_key}
        if variant_key
        else {row.key for row in variants(extension.replace("-", "_"))} | {extension}
    )
    names: dict[str, None] = {}
    for row in stacks():
        used = (*row.needs, *row.also_needs)
        if keys.isdisjoint(used):
            continue
        for item in used:
            by_name = (
                swap for swap in SWAPS if not swap.variant and item in (swap.module, swap.distribution)
            )
            swap = swap_for_variant(item) or next(by_name, None)
            if swap is not None:
                names[swap.name] = None
    return tuple(sorted(names))
