"""Charts over the iterations as inline SVG: a line for each series, with the range of the iterations that a point stands for."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby

from markupsafe import Markup

from splatfix.report.html.metrics import Point, Values, reduced
from splatfix.report.templates import part

LEFT, RIGHT, TOP, BOTTOM = 48, 340, 12, 182
"""Of what is drawn, in SVG units, about the pixels of a phone; ``chart.html`` has the same."""


def chart(
    title: str,
    unit: str,
    iterations: Sequence[int],
    series: Mapping[str, Values],
    *,
    resets: Sequence[int] = (),
    from_zero: bool = True,
    note: str = "",
) -> Markup:
    """Return the chart of one or more series, with a vertical line at each of the iterations ``resets``."""
    curves = [reduced(iterations, values) for values in series.values()]
    known = [point for curve in curves for point in curve if point]
    if not any(point.high for point in known):
        return part("chart.html", title=title, remark="not recorded", paths=())
    lowest = 0.0 if from_zero else min(point.low for point in known)
    ticks, first, last = nice_ticks(lowest, max(point.high for point in known)), iterations[0], iterations[-1]

    def across(iteration: float) -> float:
        return LEFT + (iteration - first) / (last - first or 1) * (RIGHT - LEFT)

    def down(value: float) -> float:
        return TOP + (ticks[-1] - value) / (ticks[-1] - ticks[0]) * (BOTTOM - TOP)

    def path(points: Sequence[Point], edge: str) -> str:
        return "L".join(f"{across(point.iteration):.1f} {down(getattr(point, edge)):.1f}" for point in points)

    bands, lines = list[tuple[str, str]](), list[tuple[str, str]]()
    for number, curve in enumerate(curves):
        # a curve ends and begins again where a value is missing
        for known_here, group in groupby(curve, bool):
            piece = list(filter(None, group))
            if known_here:
                bands.append((f"band s{number}", f"M{path(piece, 'high')}L{path(piece[::-1], 'low')}Z"))
                # with a stroke that shows one point alone
                lines.append((f"line s{number}", f"M{path(piece, 'mean')}h.01"))
    description = [_summary(name, iterations, values) for name, values in series.items()]
    legend = [(f"s{number}", name) for number, name in enumerate(series) if len(series) > 1]
    resets = resets[:12]  # more lines than these would hide the curve
    if resets:
        description.append(f"opacity reset: {', '.join(map(str, resets))}")
        legend.append(("dashed", "opacity reset"))
    named = [round(tick) for tick in nice_ticks(first, last) if first <= tick <= last] or [first]
    return part(
        "chart.html",
        title=title,
        remark=unit,
        description=f"{title} ({unit or 'no unit'}) by iteration. {'; '.join(description)}.",
        values=[(down(tick), shown(tick)) for tick in ticks],
        iterations=[(across(iteration), shown(iteration)) for iteration in dict.fromkeys(named)],
        paths=bands + lines,
        marks=[across(iteration) for iteration in resets],
        legend=legend,
        explained=note,
    )


def nice_ticks(low: float, high: float) -> list[float]:
    """Return round values from at or below ``low`` to at or above ``high``, equally far apart, at least two."""
    if high <= low:
        margin = abs(low) * 0.1 or 1.0
        high += margin
        if low > 0:  # an axis that begins at zero goes on doing so
            low -= margin
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def shown(value: float) -> str:
    """Return a number beside an axis or in a sentence: four significant digits, or thousands with commas."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _summary(name: str, iterations: Sequence[int], values: Values) -> str:
    """Return a series in words, for who does not see it."""
    known = [(at, value) for at, value in zip(iterations, values, strict=True) if value is not None]
    if not known:
        return f"{name}: no finite value"
    (start, first), (end, last) = known[0], known[-1]
    low, high = min(value for _, value in known), max(value for _, value in known)
    places = f"{shown(first)} at iteration {start}, {shown(last)} at {end}"
    return f"{name}: {places}, between {shown(low)} and {shown(high)}"
