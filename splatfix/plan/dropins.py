"""Pure-PyTorch drop-ins: which of them replace what the user named, and the option that installs them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.utils import canonicalize_name

from splatfix.context.commands import pip_anywhere
from splatfix.context.torch_wheels import preference
from splatfix.core.errors import Problem, usage_problem
from splatfix.core.proof import RungName
from splatfix.core.step import run, say
from splatfix.facts import extension_folders, has_build_file, read_package, read_source, resolved_folder
from splatfix.knowledge.dropins import (
    DROPINS,
    IRREPLACEABLE,
    IRREPLACEABLE_VARIANTS,
    Dropin,
    dropin_for_variant,
    known_names,
    refusal,
)
from splatfix.knowledge.stacks import identify, stacks, variant, variants
from splatfix.knowledge.torch_releases import pip_words, releases
from splatfix.plan.assessment import Assessment, torch_obstacles
from splatfix.plan.checkout import install_name, is_checkout, no_checkout, stacks_of
from splatfix.plan.compose import UPPER_RUNGS, make_option, splatfix
from splatfix.plan.option import Limit, Option, OptionKind, rejected
from splatfix.plan.parts import NativePart
from splatfix.plan.steps import Confirm, InstallTorch, Reason, UseDropins
from splatfix.plan.torch import other_builds

_SHARED_NAME = "diff-gaussian-rasterization"


def choose_dropins(sources: Iterable[str]) -> tuple[Dropin, ...] | Problem:
    """The drop-ins for names, source folders or whole checkouts, each once.

    Refused: ``nothing-replaces-it`` (exit 1) with the reason; ``variant-not-said``, ``unknown-drop-in``,
    ``nothing-to-replace`` (exit 2); ``same-name-twice`` when two variants of one name are asked for.
    """
    named = list(dict.fromkeys(sources))
    if named == ["."] and not ((here := resolved_folder(".")) and _is_source(here)):
        return usage_problem(
            "nothing-to-replace",
            "Nothing was named to be replaced, and this folder is no checkout with extensions.",
            say(f"Name one or more of: {known_names()}"),
        )
    found: dict[str, Dropin] = {}
    for text in named:
        dropins = _dropins_for(text)
        if isinstance(dropins, Problem):
            return dropins
        for dropin in dropins:
            other = found.setdefault(dropin.distribution, dropin)
            if other != dropin:
                return Problem(
                    "same-name-twice",
                    f"{other.name} and {dropin.name} are one distribution.",
                    meaning="An environment can have only one of them; the second would replace the first.",
                    todo=(say("Name the one that your trainer calls."),),
                )
    return tuple(found.values())


def _dropins_for(text: str) -> tuple[Dropin, ...] | Problem:
    folder = resolved_folder(text)
    if folder is None:
        return _as_tuple(_by_name(text))
    if not _is_source(folder):
        return no_checkout(folder, "--backend", "pure")
    found = _inside(folder)
    if found == ():
        found = _as_tuple(_by_name(text))
    if isinstance(found, Problem) and found.code == "nothing-replaces-it":
        # the folder that was named is what a native build takes
        build = run("splatfix", "install", text, "--target", "sm_120")
        return replace(found, todo=(build, *found.todo[1:]))
    return found


def _as_tuple(found: Dropin | Problem) -> tuple[Dropin, ...] | Problem:
    return found if isinstance(found, Problem) else (found,)


def _is_source(folder: Path) -> bool:
    return has_build_file(folder) or is_checkout(folder)


def _inside(folder: Path) -> tuple[Dropin, ...] | Problem:
    """What replaces an extension's source folder, or all extensions of a checkout; () when it is neither."""
    if has_build_file(folder):
        return _as_tuple(_by_source(folder))
    found: list[Dropin] = []
    for source in extension_folders(folder):
        made = _by_source(source)
        if isinstance(made, Problem):
            return made
        found.append(made)
    there = {dropin.distribution for dropin in found}
    # submodules that git has not fetched: what the stack is known to need
    for key in (key for stack in stacks_of(folder)[:1] for key in stack.needs if variant(key)):
        made = _by_variant(key)
        if isinstance(made, Problem):
            return made
        found += [] if made.distribution in there else [made]
    return tuple(found)


def _by_source(folder: Path) -> Dropin | Problem:
    name = canonicalize_name(read_source(folder).label)
    if name != _SHARED_NAME:
        return _by_name(name)
    module = _SHARED_NAME.replace("-", "_")
    try:
        shown = read_package(folder, module)
    except ValueError as error:
        return usage_problem(
            "variant-unreadable",
            f"Which {module} {folder} is cannot be read from its {module}/__init__.py: {error}.",
            say(f"Name the variant: {_variant_names()}"),
        )
    matches = identify(
        module,
        settings=shown.settings,
        exports=shown.exports or None,
        returns=shown.returns,
        forward=shown.forward,
        classes=shown.classes,
    )
    if not matches:
        return Problem(
            "nothing-replaces-it",
            f"{folder} is a {module} of a kind that splatfix does not know.",
            meaning="A drop-in with other settings or results would be called wrongly.",
            todo=(say(f"If it is called like one of these, name that one: {_variant_names()}"),),
        )
    return _by_variant(matches[0].variant.key)


def _by_variant(key: str) -> Dropin | Problem:
    dropin = dropin_for_variant(key)
    if dropin is not None:
        return dropin
    row = variant(key)
    what = f"{row.module} ({key})" if row else key
    return _nothing_replaces(
        what, refusal(key) or "no drop-in was made for it", row.module if row else key, key
    )


def _by_name(text: str) -> Dropin | Problem:
    name, _, kind = text.partition("@")
    name = canonicalize_name(name)
    if name == _SHARED_NAME and kind:
        return _named_variant(text, kind)
    if name == _SHARED_NAME:
        return usage_problem(
            "variant-not-said",
            f"At least nine incompatible packages are called {text}; which of them does your trainer call?",
            say(f"Name it: {_variant_names()}"),
            run(
                *("splatfix", "install", "CHECKOUT", "--backend", "pure"),
                text="Or give the trainer's checkout",
            ),
        )
    for dropin in DROPINS:
        if name == dropin.distribution and not kind:
            return dropin
    if name in IRREPLACEABLE:
        return _nothing_replaces(text, IRREPLACEABLE[name], name)
    return usage_problem(
        "unknown-drop-in",
        f"splatfix has no drop-in for {text}.",
        say(f"There are drop-ins for: {known_names()}"),
    )


def _named_variant(text: str, kind: str) -> Dropin | Problem:
    for dropin in DROPINS:
        if dropin.distribution == _SHARED_NAME and kind in (dropin.variant, *dropin.serves):
            return dropin
    if kind in IRREPLACEABLE_VARIANTS:
        return _by_variant(kind)
    return usage_problem(
        "unknown-drop-in",
        f"{text} is not a variant that splatfix knows.",
        say(f"Name one of: {_variant_names()}"),
    )


def _variant_names() -> str:
    return ", ".join(dropin.name for dropin in DROPINS if dropin.variant)


def _nothing_replaces(what: str, why: str, name: str, variant_key: str = "") -> Problem:
    beside = companions(name, variant_key)
    others = run(
        *("splatfix", "install", *beside, "--backend", "pure"),
        text="The packages used with it can be replaced by name",
    )
    return Problem(
        "nothing-replaces-it",
        f"There is no drop-in for {what}: {why}.",
        meaning="Only a native build works for it.",
        todo=(
            run("splatfix", "install", install_name(name), "--target", "sm_120"),
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
    names: set[str] = set()
    for row in stacks():
        used = (*row.needs, *row.also_needs)
        for item in () if keys.isdisjoint(used) else used:
            by_name = (one for one in DROPINS if not one.variant and item in (one.module, one.distribution))
            dropin = dropin_for_variant(item) or next(by_name, None)
            if dropin is not None:
                names.add(dropin.name)
    return tuple(sorted(names))


def use_dropins(found: Assessment) -> Option:
    """Plain PyTorch in place of the extensions: no toolkit, no architecture, the same numbers, far slower."""
    kind = OptionKind.DROPIN
    if found.kept:
        return rejected(kind, f"{', '.join(found.kept)} must not change (--keep)")
    if found.goal.no_dropins:
        return rejected(kind, found.goal.no_dropins)
    names, refused = _dropins_of(found)
    if refused:
        return rejected(kind, "nothing replaces " + "; ".join(refused))
    if found.parts and not names:
        return rejected(kind, "every extension is one of splatfix's drop-ins already")
    reasons = [Reason("same values within rounding; far slower than CUDA, for small scenes")]
    if not found.parts:
        text = (
            "whether there is a drop-in depends on the rasterizer that your trainer calls: name the checkout"
        )
        reasons.append(Reason(text))
    against, unsure = torch_obstacles(found)
    first: tuple[InstallTorch, ...] = ()
    if found.torch is None:
        install = _first_torch(found)
        if install is None:
            no_wheels = found.no_wheels or "no release in the tables has a wheel for this Python"
            return rejected(kind, f"{against[0]}, and {no_wheels}")
        first = (install,)
        on_the_cpu = found.targets and install.tag == "cpu"
        against = [f"no CUDA build of torch in the tables serves {found.words} here"] if on_the_cpu else []
    elif not found.targets:
        # ROCm and Metal run plain PyTorch; whether all of it was never tried
        against = []
        unsure = [f"whether the drop-ins run on anything but the CPU with torch {found.torch.version}"]
    sources = found.goal.sources or tuple(names) or ("CHECKOUT",)
    use = UseDropins(command=splatfix(found, "install", *sources, "--backend", "pure"), subjects=tuple(names))
    steps = (*first, use, *_confirm(found, names, on_the_cpu=bool(against)))
    made = make_option(found, kind, steps, reasons, unsure, native=False)
    if against:
        why = f"on that GPU ({'; '.join(against)}); on the CPU it can be verified"
        made = _without(made, UPPER_RUNGS, why)
    if not _trains(names):
        why = "none of these is a rasterizer, which a training needs"
        made = _without(made, (RungName.TRAINS, RungName.REPRODUCES), why)
    return made


def _trains(names: Sequence[str]) -> bool:
    """A rasterizer is among these drop-ins (or may be, where they are not known), so that a training can run on them."""
    return not names or any("rasterization" in name for name in names)


def _confirm(found: Assessment, names: Sequence[str], *, on_the_cpu: bool) -> tuple[Confirm, ...]:
    """The commands that show what the drop-ins do: numbers by verify, a training by certify with their rasterizer."""
    verify = Confirm(command=splatfix(found, "verify"), what="check accuracy")
    if not _trains(names):
        return (verify,)
    device = ("--device", "cpu") if on_the_cpu else ()
    certify = splatfix(found, "certify", "--renderer", "inria", *device)
    return (verify, Confirm(command=certify, what="test training"))


def _without(made: Option, rungs: Sequence[RungName], why: str) -> Option:
    """The same option, which cannot prove these rungs."""
    return replace(
        made,
        proves=tuple(rung for rung in made.proves if rung not in rungs),
        cannot_prove=(
            *(limit for limit in made.cannot_prove if limit.rung not in rungs),
            *(Limit(rung, why) for rung in rungs),
        ),
    )


def _dropins_of(found: Assessment) -> tuple[list[str], list[str]]:
    """Names of the drop-ins for the extensions meant, and what has none, with the reason."""
    if found.goal.dropins:
        return list(found.goal.dropins), []
    names, refused = [], []
    for part in found.parts:
        if part.dropin and not part.unfit:
            continue
        name, why = _dropin_for(part)
        if why:
            refused.append(f"{part.name}: {why}")
        else:
            names.append(name)
    return names, refused


def _dropin_for(part: NativePart) -> tuple[str, str]:
    """Name of the drop-in, or why there is none."""
    if part.variant:
        one = dropin_for_variant(part.variant)
        return (one.name, "") if one else ("", refusal(part.variant) or "no drop-in was made for it")
    wanted = canonicalize_name(part.name)
    fitting = [item for item in DROPINS if item.distribution == wanted]
    if len(fitting) == 1:
        return fitting[0].name, ""
    if fitting:
        return "", "several packages share this name, and which one it is cannot be determined here"
    return "", "it has no drop-in"


def _first_torch(found: Assessment) -> InstallTorch | None:
    """The torch to install where there is none: one that serves the targets, else the newest for the CPU; None: no wheel."""
    candidates = sorted(
        other_builds(found),
        key=lambda item: (item.runs == "unknown", preference(found.facts, item.build, found.archs)),
    )
    if candidates:
        version, tag = candidates[0].build.torch, candidates[0].build.tag
    elif release := _release_for_the_cpu(found):
        version, tag = f"{release}.*", "cpu"
    else:
        return None
    step = pip_anywhere(found.facts, *pip_words(version, tag))
    return InstallTorch(command=step.command, version=version, tag=tag)


def _release_for_the_cpu(found: Assessment) -> str:
    """The newest release with wheels for this Python and C library; "" where there is none."""
    if found.no_wheels:
        return ""
    for item in reversed(releases()):
        python_fits = found.python is None or item.supports_python(found.python) is not False
        glibc_fits = found.glibc is None or item.min_glibc is None or found.glibc >= item.min_glibc
        if python_fits and glibc_fits:
            return item.release
    return ""
