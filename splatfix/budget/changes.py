"""What to change so that a training fits, and the largest that fits."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from splatfix.budget.memory import card_phases
from splatfix.budget.model import Largest, Need, SettingChange, Span
from splatfix.knowledge.vram import MemorySetting, families, settings_of, stack_memory

DIVISORS = (2, 4, 8)
LOWEST_BUDGET = 100_000
"""Gaussians below which a budget is no answer."""
MOST = 1 << 31
"""Gaussians, photos and pixels of a side above which nothing is looked for."""


def highest_peak(need: Need) -> int | None:
    """The highest peak of the phases that are known; None where none is."""
    peaks = [phase.peak_bytes for phase in card_phases(need).values() if phase is not None]
    return max(peaks, default=None)


def most_taken(need: Need) -> int | None:
    """Return the most that a known phase may take; None where none is known."""
    most = [phase.high_bytes for phase in card_phases(need).values() if phase is not None]
    return max(most, default=None)


def changes_for(need: Need, limit: int) -> Sequence[SettingChange]:
    """Settings in order of least quality lost, each on top of those before it that are known to help."""
    stack = stack_memory(need.stack)
    if stack is None:
        return ()
    changes: list[SettingChange] = []
    phases = card_phases(need).values()
    before = max((phase.high_bytes for phase in phases if phase is not None), default=None)
    told = all(phase is not None and not phase.at_least for phase in phases)
    for setting in settings_of(stack):
        if before is None or not setting.does:
            row = SettingChange(
                setting.option, setting.quality, None, None, None, setting.kind, setting.source
            )
            changes.append(row)
            continue
        tried = _changed(need, setting, limit)
        if tried is None:
            continue
        value, need_with_it = tried
        peak = most_taken(need_with_it) or 0
        if peak >= before:
            continue
        option = setting.option.format(value=value)
        fits = peak <= limit if told else None
        changes.append(
            SettingChange(option, setting.quality, before - peak, peak, fits, setting.kind, setting.source)
        )
        need, before = need_with_it, peak
        if fits:
            break
    return changes


def _changed(need: Need, setting: MemorySetting, limit: int) -> tuple[str, Need] | None:
    """The value of a setting, and the training with it; None where it changes nothing or helps in no way."""
    does = setting.does
    if does in ("neighbours", "samples"):
        return "", replace(need, **{does: setting.value})
    if does == "photos-on-cpu":
        if need.photos_on_cpu:
            return None
        return "", replace(need, photos_on_cpu=True)
    if does == "sh-degree":
        if need.sh_degree < 2:
            return None
        return str(need.sh_degree - 1), replace(need, sh_degree=need.sh_degree - 1)
    if does == "budget":
        count = _largest(lambda number: replace(need, gaussians=Span(number, number, number)), limit)
        if count is None or not LOWEST_BUDGET <= count < need.gaussians.high:
            return None
        count -= count % 10_000
        return str(count), replace(need, gaussians=Span(count, count, count))
    if does == "resolution":
        for divisor in DIVISORS:
            width, height = max(1, need.width // divisor), max(1, need.height // divisor)
            smaller = replace(need, width=width, height=height)
            if (most_taken(smaller) or 0) <= limit:
                break
        return str(divisor), smaller
    return None


def largest_for(need: Need, limit: int) -> Largest:
    """The largest count, size and number of photos that fit at the most that they may take, each with all else as it is."""
    stack = stack_memory(need.stack)
    if stack is None or not stack.family or families()[stack.family].samples:
        return Largest(None, None, None)
    count = need.gaussians.typical
    need = replace(need, gaussians=Span(count, count, count))
    gaussians = _largest(lambda number: replace(need, gaussians=Span(number, number, number)), limit)
    if families()[stack.family].flat:
        return Largest(gaussians, None, None)

    def sized(width: int) -> Need:
        return replace(need, width=width, height=max(1, round(width * need.height / need.width)))

    width = _largest(sized, limit)
    resolution = None
    if width == 0:
        resolution = 0, 0
    elif width is not None:
        largest = sized(width)
        resolution = largest.width, largest.height
    photos = _largest(lambda number: replace(need, photos=number), limit)
    return Largest(gaussians, resolution, photos)


def _largest(made: Callable[[int], Need], limit: int) -> int | None:
    """The largest number with which the training fits; 0 where none does, None where there is no limit."""
    if (most_taken(made(1)) or 0) > limit:
        return 0
    if (most_taken(made(MOST)) or 0) <= limit:
        return None
    fits, exceeds = 1, MOST
    while exceeds - fits > 1:
        middle = (fits + exceeds) // 2
        if (most_taken(made(middle)) or 0) <= limit:
            fits = middle
        else:
            exceeds = middle
    return fits
