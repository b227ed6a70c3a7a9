"""Charts as inline SVG: lines with the range of what they summarise, and stacked areas. Colours are the style sheet's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from splatfix.core.words import counted
from splatfix.report.html.markup import Html, element, join
from splatfix.report.html.metrics import Bucket, Values, reduced

_WIDTH, _HEIGHT = 360, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 10, 12, 38
MOST_MARKS = 12


@dataclass(frozen=True)
class Scale:
    """From values to places in the drawing."""

    first: float
    last: float
    low: float
    high: float

    def x(self, place: float) -> float:
        """The place of an iteration, from the left."""
        span = self.last - self.first or 1.0
        return _LEFT + (place - self.first) / span * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """The place of a value, from the top."""
        return _TOP + (self.high - value) / (self.high - self.low) * (_HEIGHT - _TOP - _BOTTOM)


def lines(
    title: str,
    unit: str,
    iterations: Sequence[int],
    series: Mapping[str, Values],
    *,
    limit: tuple[str, float] | None = None,
    marks: tuple[str, Sequence[int]] = ("", ()),
    from_zero: bool = False,
    note: str = "",
) -> Html:
    """A line for each series, with the range of the iterations that a point stands for.

    Args:
        limit: words and value of a horizontal line, which the scale then reaches.
        marks: words for, and iterations of, vertical lines.
        note: a sentence below.
    """
    curves = {name: reduced(iterations, values) for name, values in series.items()}
    known = [point for curve in curves.values() for point in curve if point is not None]
    if not known:
        return _empty(title)
    lowest, highest = min(point.low for point in known), max(point.high for point in known)
    top = max(highest, limit[1] / 0.97 if limit else highest)
    ticks = nice_ticks(0.0 if from_zero or limit else lowest, top)
    scale = Scale(iterations[0], iterations[-1], ticks[0], ticks[-1])
    drawn: list[Html] = []
    for number, curve in enumerate(curves.values()):
        drawn += [element("path", d=_band(part, scale), class_=f"band s{number}") for part in _runs(curve)]
        drawn += [
            element("path", d=_line([(p.place, p.mean) for p in part], scale), class_=f"line s{number}")
            for part in _runs(curve)
        ]
    words, places = marks
    for place in places[:MOST_MARKS]:
        x = scale.x(place)
        drawn.append(
            element("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=_TOP, y2=_HEIGHT - _BOTTOM, class_="mark")
        )
    if limit:
        y = scale.y(limit[1])
        drawn.append(
            element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}", class_="limit")
        )
        drawn.append(element("text", limit[0], x=_WIDTH - _RIGHT - 2, y=f"{y + 13:.1f}", class_="limit end"))
    told = [_told(name, unit, iterations, values) for name, values in series.items()]
    told += [f"{limit[0]} at {shown(limit[1])} {unit}".strip()] if limit else []
    told += [f"{words}: {', '.join(map(str, places[:MOST_MARKS]))}"] if places else []
    legend = list(series) if len(series) > 1 else []
    return _figure(
        title, unit, scale, ticks, drawn, "; ".join(told), legend, note, dashed=words if places else ""
    )


def stack(
    title: str, unit: str, iterations: Sequence[int], parts: Mapping[str, Values], note: str = ""
) -> Html:
    """Areas on top of each other, the first lowest: the mean of each part over the iterations that a point stands for."""
    curves = {
        name: [point.mean if point else 0.0 for point in reduced(iterations, values)]
        for name, values in parts.items()
    }
    places = [point.place for point in reduced(iterations, [1.0] * len(iterations)) if point]
    totals = [sum(values) for values in zip(*curves.values(), strict=True)]
    if not totals or not max(totals):
        return _empty(title)
    ticks = nice_ticks(0.0, max(totals))
    scale = Scale(iterations[0], iterations[-1], 0.0, ticks[-1])
    below = [0.0] * len(places)
    drawn: list[Html] = []
    for number, values in enumerate(curves.values()):
        above = [low + value for low, value in zip(below, values, strict=True)]
        upper = _line(list(zip(places, above, strict=True)), scale)
        lower = _line(list(zip(reversed(places), reversed(below), strict=True)), scale).replace("M", "L", 1)
        drawn.append(element("path", d=f"{upper}{lower}Z", class_=f"area s{number}"))
        below = above
    sums = {name: sum(values) for name, values in curves.items()}
    whole = sum(sums.values())
    legend = [f"{name} {value / whole:.0%}" for name, value in sums.items()]
    told = f"share of all iterations: {', '.join(legend)}"
    return _figure(title, unit, scale, ticks, drawn, told, legend, note)


def nice_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round values from at or below ``low`` to at or above ``high``, equally far apart, at least two."""
    if high <= low:
        margin = abs(low) * 0.1 or 1.0
        low, high = (low - margin if low > 0 or high > 0 else low), high + margin
    rough = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(
        (factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999), 10 * power
    )
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [place * step for place in range(first, max(last, first + 1) + 1)]


def shown(value: float) -> str:
    """A number for a label: three significant digits, or thousands with commas."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _tick(value: float) -> str:
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:g}k"
    return f"{value:.6g}"


def _figure(
    title: str,
    unit: str,
    scale: Scale,
    ticks: Sequence[float],
    drawn: Sequence[Html],
    told: str,
    legend: Sequence[str],
    note: str,
    dashed: str = "",
) -> Html:
    axes: list[Html] = []
    for value in ticks:
        y = scale.y(value)
        axes.append(
            element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}", class_="grid")
        )
        axes.append(element("text", _tick(round(value, 12)), x=_LEFT - 5, y=f"{y + 4:.1f}", class_="end"))
    for place in _places(scale):
        x = scale.x(place)
        end = "end" if x > _WIDTH - _RIGHT - 30 else "middle" if x > _LEFT + 5 else ""
        axes.append(element("text", _tick(place), x=f"{x:.1f}", y=_HEIGHT - _BOTTOM + 16, class_=end))
    axes.append(element("text", "iteration", x=(_WIDTH + _LEFT) / 2, y=_HEIGHT - 5, class_="middle"))
    svg = element(
        "svg",
        *axes,
        *drawn,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=f"{title}{f' in {unit}' if unit else ''} by iteration. {told}.",
    )
    keys = [
        element("li", element("span", class_=f"key s{number}", aria_hidden="true"), f" {name}")
        for number, name in enumerate(legend)
    ]
    keys += (
        [element("li", element("span", class_="key dashed", aria_hidden="true"), f" {dashed}")]
        if dashed
        else []
    )
    return element(
        "figure",
        element("figcaption", element("b", title), f" {unit}" if unit else ""),
        svg,
        element("ul", *keys, class_="legend") if keys else "",
        element("p", note, class_="note") if note else "",
        class_="chart",
    )


def _empty(title: str) -> Html:
    return element("figure", element("figcaption", element("b", title), " not recorded"), class_="chart")


def _told(name: str, unit: str, iterations: Sequence[int], values: Values) -> str:
    known = [(place, value) for place, value in zip(iterations, values, strict=True) if value is not None]
    if not known:
        return f"{name}: no finite value"
    (first, start), (last, end) = known[0], known[-1]
    low, high = (function(value for _, value in known) for function in (min, max))
    missing = (
        f", no finite value in {counted(len(values) - len(known), 'iteration')}"
        if len(known) < len(values)
        else ""
    )
    return (
        (
            f"{name}: {shown(start)} {unit} at iteration {first}, {shown(end)} {unit} at {last}, "
            f"between {shown(low)} and {shown(high)}{missing}"
        )
        .replace("  ", " ")
        .replace(" ,", ",")
    )


def _places(scale: Scale) -> list[float]:
    """Round iterations below the axis."""
    if scale.last - scale.first < 2:
        return [scale.first]
    inner = [place for place in nice_ticks(scale.first, scale.last, 5) if scale.first <= place <= scale.last]
    return [float(int(place)) for place in dict.fromkeys(inner)]


def _runs(curve: Sequence[Bucket | None]) -> list[list[Bucket]]:
    """The curve without its gaps."""
    runs: list[list[Bucket]] = [[]]
    for point in curve:
        if point is None:
            runs.append([])
        else:
            runs[-1].append(point)
    return [run for run in runs if run]


def _line(points: Sequence[tuple[float, float]], scale: Scale) -> str:
    """A path through points; one point alone is a short stroke."""
    path = "".join(
        f"{'L' if number else 'M'}{scale.x(place):.1f} {scale.y(value):.1f}"
        for number, (place, value) in enumerate(points)
    )
    return path if len(points) > 1 else f"{path}h2"


def _band(points: Sequence[Bucket], scale: Scale) -> str:
    upper = _line([(point.place, point.high) for point in points], scale)
    lower = _line([(point.place, point.low) for point in reversed(points)], scale)
    return join((Html(upper), Html(lower.replace("M", "L", 1)), Html("Z")))
