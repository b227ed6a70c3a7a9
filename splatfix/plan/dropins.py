"""Pure-PyTorch drop-ins: which of them replace what the user named, and the option that installs them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.utils import canonicalize_name

from splatfix.context.commands import pip, target_options
from splatfix.context.torch_wheels import preference
from splatfix.core.errors import Problem, usage_problem
from splatfix.core.proof import RungName
from splatfix.core.step import Step, fill_in, run, say
from splatfix.facts import Checkout, has_build_file, read_checkout, resolved_folder
from splatfix.knowledge.dropins import (
    DROPINS,
    IRREPLACEABLE,
    IRREPLACEABLE_VARIANTS,
    Dropin,
    dropin_for_variant,
    known_names,
    refusal,
)
from splatfix.knowledge.stacks import stacks, variant, variants
from splatfix.knowledge.torch_releases import pip_words, releases
from splatfix.plan.assessment import Assessment, torch_obstacles
from splatfix.plan.checkout import install_name, is_checkout, no_checkout, sources_in, whole_disk
from splatfix.plan.compose import UPPER_RUNGS, make_option, splatfix
from splatfix.plan.gpu_kernels import NEVER_RUN, NEVER_RUN_WARP, nvrtc_serves, warp_serves
from splatfix.plan.option import Limit, Option, OptionKind, rejected
from splatfix.plan.parts import NativePart
from splatfix.plan.replacement import Native, Replacement, replacement_for, useless
from splatfix.plan.steps import Confirm, InstallTorch, Reason, UseDropins
from splatfix.plan.torch import other_builds

_SHARED_NAME = "diff-gaussian-rasterization"


def choose_dropins(sources: Iterable[str], checkout: Checkout | None = None) -> Replacement | Problem:
    """The drop-ins for names, source folders or whole checkouts, each once, and what they cannot replace.

    Args:
        checkout: as it was read already, if one of the sources is one.

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
    native: dict[Native, None] = {}
    for text in named:
        made = _replacement(text, checkout)
        if isinstance(made, Problem):
            return made
        native.update(dict.fromkeys(made.native))
        for dropin in made.dropins:
            other = found.setdefault(dropin.distribution, dropin)
            if other != dropin:
                return Problem(
                    "same-name-twice",
                    f"{other.name} and {dropin.name} are one distribution.",
                    meaning="An environment can have only one of them; the second would replace the first.",
                    todo=(say("Name the one that your trainer calls."),),
                )
    return Replacement(tuple(found.values()), tuple(native))


def _replacement(text: str, checkout: Checkout | None) -> Replacement | Problem:
    """For one name or folder."""
    folder = resolved_folder(text)
    if folder is None:
        made = _by_name(text)
        return made if isinstance(made, Problem) else Replacement((made,))
    if problem := whole_disk(folder):
        return problem
    if not _is_source(folder):
        return no_checkout(folder, "--backend", "pure")
    if checkout is None or checkout.folder != str(folder):
        checkout = read_checkout(folder, ()).value
    found = replacement_for(checkout) if checkout else Replacement()
    if not (found.dropins or found.native):
        refused = sources_in((text,), checkout=checkout)
        if isinstance(refused, Problem) and refused.code in ("no-code", "no-extension-of-its-own"):
            return refused
        return usage_problem(
            "nothing-to-replace",
            f"{folder} neither brings nor calls an extension.",
            say(f"There are drop-ins for: {known_names()}"),
        )
    if not found.useless:
        return found
    others = tuple(item.name for item in found.dropins)
    beside = others or companions(found.native[0].module)
    return Problem(
        "nothing-replaces-it",
        f"There is no drop-in for {found.refused}.",
        meaning="Only a native build works for it.",
        todo=(*_native(text, checkout), *_by_their_names(beside)),
    )


def _native(text: str, checkout: Checkout | None) -> tuple[Step, ...]:
    """What builds a source: itself, or where ``splatfix install`` refuses it, what that says to build in its place."""
    found = sources_in((text,), checkout=checkout)
    if isinstance(found, Problem) and found.code != "source-incomplete":
        return found.todo
    return (run("splatfix", "install", text, "--target", "sm_120"),)


def _is_source(folder: Path) -> bool:
    return has_build_file(folder) or is_checkout(folder)


def _by_variant(key: str) -> Dropin | Problem:
    dropin = dropin_for_variant(key)
    if dropin is not None:
        return dropin
    row = variant(key)
    what = f"{row.module} ({key})" if row else key
    return _nothing_replaces(what, refusal(key) or "", row.module if row else key, key)


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
            fill_in(
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


def _by_their_names(names: Sequence[str]) -> tuple[Step, ...]:
    """The command for the drop-ins of what is called beside an extension."""
    text = "What is called beside it can be replaced"
    return (run("splatfix", "install", *names, "--backend", "pure", text=text),) if names else ()


def _nothing_replaces(what: str, why: str, name: str, variant_key: str = "") -> Problem:
    return Problem(
        "nothing-replaces-it",
        f"There is no drop-in for {what}{f': {why}' if why else ''}.",
        meaning="Only a native build works for it.",
        todo=(_build(name), *_by_their_names(companions(name, variant_key))),
    )


def _build(extension: str) -> Step:
    known = install_name(extension)
    words = ("splatfix", "install", known or "SOURCE", "--target", "sm_120")
    return run(*words) if known else fill_in(*words)


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
    names, refused = _dropins_of(found)
    if useless(names, refused):
        words = (
            f"nothing replaces {name}{f': {why}' if why else ''}" if name else why
            for name, why in refused.items()
        )
        others = f"; of the others {', '.join(names)} can be replaced" if names else ""
        return rejected(kind, "; ".join(words) + others)
    if found.parts and not names:
        return rejected(kind, "every extension is one of splatfix's drop-ins already")
    reasons = [
        Reason(f"{name} must be built natively{f': {why}' if why else ''}") for name, why in refused.items()
    ]
    reasons.append(Reason("same values within rounding; far slower than CUDA, for small scenes"))
    if not names and not refused:
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
    sources = found.sources.named or tuple(names)
    command = splatfix(found, "install", *(sources or ("CHECKOUT",)), "--backend", "pure")
    use = UseDropins(command=command, subjects=tuple(names))
    steps = (*first, use, *_confirm(found, names, on_the_cpu=bool(against)))
    made = make_option(found, kind, steps, reasons, unsure, native=False)
    if against:
        why = f"on that GPU ({'; '.join(against)}); on the CPU it can be verified"
        made = _without(made, UPPER_RUNGS, why)
    if refused:
        why = f"{', '.join(refused)} must be built natively"
        made = _without(made, (RungName.TRAINS, RungName.REPRODUCES), why)
    elif not _trains(names):
        why = "none of these is a rasterizer, which a training needs"
        made = _without(made, (RungName.TRAINS, RungName.REPRODUCES), why)
    return made


def use_kernels(found: Assessment, kind: OptionKind) -> Option:
    """Drop-ins with GPU code and no compiler: our CUDA kernels by torch's NVRTC (``NVRTC``), or gswarp (``WARP``)."""
    plain = use_dropins(found)
    if plain.rejected_because:
        return rejected(kind, plain.rejected_because)
    names, _ = _dropins_of(found)
    dropins = [item for item in DROPINS if item.name in names]
    by_nvrtc = kind is OptionKind.NVRTC
    serves = nvrtc_serves(found.context) if by_nvrtc else warp_serves(found.context, dropins)
    if isinstance(serves, Problem):
        return rejected(kind, serves.what.rstrip("."))
    sources = found.sources.named or tuple(names) or ("CHECKOUT",)
    command = splatfix(found, "install", *sources, "--backend", kind.value, *target_options(found.archs))
    use = UseDropins(command=command, subjects=tuple(names), backend=kind.value)
    steps = (use, *_confirm(found, names, on_the_cpu=not found.here))
    bring = "made in seconds"
    if serves.warp:
        bring = f"gswarp and {serves.warp.requirement} come from PyPI, 150 MB; made in a minute"
    reasons = [
        *(reason for reason in plain.reasons if "far slower" not in reason.text),
        Reason(f"{bring}; no toolkit, host compiler or ninja is needed"),
        Reason(NEVER_RUN_WARP if serves.warp else NEVER_RUN),
    ]
    made = make_option(found, kind, steps, reasons, serves.unsure)
    lost = [
        limit
        for limit in plain.cannot_prove
        if limit.rung in made.proves and limit.rung is not RungName.BUILT
    ]
    for limit in lost:
        made = _without(made, (limit.rung,), limit.why)
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


def _dropins_of(found: Assessment) -> tuple[list[str], dict[str, str]]:
    """Names of the drop-ins for the extensions meant, and what has none, with the reason."""
    goal, checkout = found.sources, found.facts.checkout.value
    named = bool(goal.variants)
    there = {canonicalize_name(part.name) for part in found.parts if part.dropin and not part.unfit}
    if goal.dropins or goal.no_dropins:
        names, refused = list(goal.dropins), dict(goal.no_dropins)
    elif checkout and not named:
        made = replacement_for(checkout)
        names, refused = [item.name for item in made.dropins], {item.module: item.why for item in made.native}
    else:
        answers = {
            part.name: _dropin_for(part) for part in found.parts if canonicalize_name(part.name) not in there
        }
        names = [name for name, _ in answers.values() if name]
        refused = {name: why for name, (_, why) in answers.items() if why}
    return [name for name in names if canonicalize_name(name.partition("@")[0]) not in there], refused


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
    step = pip(found.facts, "install", *pip_words(version, tag))
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
