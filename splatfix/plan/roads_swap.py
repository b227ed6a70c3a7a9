"""The road of drop-ins in plain PyTorch: which extensions have one, what they run on, and which commands show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from packaging.utils import canonicalize_name

from splatfix.context import Rejected
from splatfix.context.commands import pip_anywhere
from splatfix.context.readings import is_windows
from splatfix.context.torch_wheels import preference
from splatfix.core.proof import RungName
from splatfix.knowledge.torch_releases import pip_words, releases
from splatfix.plan.native_parts import NativePart
from splatfix.plan.plan import Reason
from splatfix.plan.road_parts import UPPER_RUNGS, python_option, shut, way
from splatfix.plan.situation import Situation, torch_obstacles
from splatfix.plan.swap_table import SWAPS, refusal, swap_for_variant
from splatfix.plan.torch_offers import other_builds
from splatfix.plan.ways import (
    InstallTorch,
    Limit,
    Road,
    ShowIt,
    SwapIn,
    WayOut,
    WayStep,
)


def swap(found: Situation) -> WayOut | Rejected:
    """Plain PyTorch in place of the extensions: no toolkit, no architecture, the same numbers, far slower."""
    road = Road.SWAP
    if found.kept:
        return shut(road, f"{', '.join(found.kept)} is to be left as it is (--keep)")
    if found.aim.no_drop_ins:
        return shut(road, found.aim.no_drop_ins)
    names, refused = _drop_ins(found)
    if refused:
        return shut(road, "nothing replaces " + "; ".join(refused))
    if found.parts and not names:
        return shut(road, "every extension is one of splatfix's drop-ins already")
    source = found.aim.source or " ".join(names) or "PATH/TO/CHECKOUT"
    command = f"splatfix install {source} --backend pure{python_option(found)}"
    reasons = [Reason("same values and gradients within rounding; far slower than CUDA, for small scenes")]
    if not found.parts:
        text = "which rasterizer your trainer calls decides whether it has a stand-in; the checkout tells"
        reasons.append(Reason(text))
    against, unsure = torch_obstacles(found)
    first: tuple[WayStep, ...] = ()
    if found.torch is None:
        install = _first_torch(found)
        if install is None:
            return shut(
                road,
                f"{against[0]}, and {found.no_wheels or 'no release in the tables has a wheel for this Python'}",
            )
        first = (install,)
        against = [_why_cpu_torch(found)] if found.wanted and install.tag == "cpu" else []
    elif not found.wanted:
        # ROCm and Metal run plain PyTorch; whether all of it was never tried
        against = []
        unsure = [f"whether the drop-ins run on anything but the CPU with torch {found.torch.version}"]
    steps = (
        *first,
        SwapIn(tuple(names) or ("what the checkout calls",), command),
        *_shown_by(found, names, on_the_cpu=bool(against)),
    )
    made = way(found, road, steps, reasons, unsure, native=False)
    made = _on_the_cpu(made, steps, "; ".join(against)) if against else made
    return made if _trains(names) else _without_training(made)


def _trains(names: Sequence[str]) -> bool:
    """A rasterizer is among these drop-ins (or may be, where they are not known), so that a training can run on them."""
    return not names or any("rasterization" in name for name in names)


def _shown_by(found: Situation, names: Sequence[str], *, on_the_cpu: bool) -> tuple[ShowIt, ...]:
    """The commands that show what the drop-ins do: numbers by verify, a training by certify with their rasterizer."""
    verify = ShowIt(f"splatfix verify{python_option(found)}", "see the numbers")
    if not _trains(names):
        return (verify,)
    device = " --device cpu" if on_the_cpu else ""
    certify = f"splatfix certify --renderer inria{device}{python_option(found)}"
    return (verify, ShowIt(certify, "see it train"))


def _without_training(made: WayOut) -> WayOut:
    """No command trains with drop-ins of which none draws."""
    above = (RungName.TRAINS, RungName.REPRODUCES)
    why = "no rasterizer is among these, and a training of splatfix's draws with one"
    return replace(
        made,
        can_prove=tuple(rung for rung in made.can_prove if rung not in above),
        cannot_prove=(
            *(limit for limit in made.cannot_prove if limit.rung not in above),
            *(Limit(rung, why) for rung in above),
        ),
    )


def _drop_ins(found: Situation) -> tuple[list[str], list[str]]:
    """Names of the drop-ins for the extensions meant, and what has none, with the reason."""
    if found.aim.drop_ins:
        return list(found.aim.drop_ins), []
    names, refused = [], []
    for part in found.parts:
        if part.swap and not part.unfit:
            continue
        name, why = _stand_in(part)
        if why:
            refused.append(f"{part.name}: {why}")
        else:
            names.append(name)
    return names, refused


def _first_torch(found: Situation) -> InstallTorch | None:
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
    return InstallTorch(
        version,
        tag,
        pip_anywhere(found.facts, *pip_words(version, tag)).line(windows=is_windows(found.facts)),
    )


def _release_for_the_cpu(found: Situation) -> str:
    """The newest release with wheels for this Python and C library; "" where there is none."""
    if found.no_wheels:
        return ""
    for item in reversed(releases()):
        python_fits = found.python is None or item.supports_python(found.python) is not False
        glibc_fits = found.glibc is None or item.min_glibc is None or found.glibc >= item.min_glibc
        if python_fits and glibc_fits:
            return item.release
    return ""


def _why_cpu_torch(found: Situation) -> str:
    return f"no CUDA build of torch in the tables serves {found.words} here"


def _on_the_cpu(made: WayOut, steps: tuple[WayStep, ...], why: str) -> WayOut:
    """The same drop-ins where torch does not run on the GPU: they still run without one, whatever its driver needs."""
    others = tuple(limit for limit in made.cannot_prove if limit.rung not in UPPER_RUNGS)
    why = f"on that GPU ({why}); on the CPU it can be shown"
    return replace(
        made,
        steps=steps,
        can_prove=tuple(rung for rung in made.can_prove if rung not in UPPER_RUNGS),
        cannot_prove=(*others, *(Limit(rung, why) for rung in UPPER_RUNGS)),
    )


def _stand_in(part: NativePart) -> tuple[str, str]:
    """Name of the drop-in, or why there is none."""
    if part.variant:
        one = swap_for_variant(part.variant)
        return (one.name, "") if one else ("", refusal(part.variant) or "no drop-in was made for it")
    wanted = canonicalize_name(part.name)
    fitting = [item for item in SWAPS if item.distribution == wanted]
    if len(fitting) == 1:
        return fitting[0].name, ""
    if fitting:
        return "", "which of the packages of that name it is cannot be told from here"
    return "", "it has no drop-in"
