"""Charts as inline SVG: lines with the range of what they summarise, and stacked areas. Colours are the style sheet's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from splatfix.core.words import counted
from splatfix.report.html.markup import Html, element
from splatfix.report.html.markup import note as small_print
from splatfix.report.html.metrics import Bucket, Values, reduced

# SVG units, about the pixels of a phone: the style sheet scales the drawing, its letters with it.
_WIDTH, _HEIGHT = 360, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 10, 12, 38
# Opacity resets come every 3,000 iterations; more lines than these would hide the curve.
MOST_MARKS = 12

Point = tuple[float, float]
"""Iteration and value."""


@dataclass(frozen=True)
class Scale:
    """From values to places in the drawing."""

    first: float
    last: float
    low: float
    high: float

    def x(self, iteration: float) -> float:
        """The place of an iteration, from the left."""
        span = self.last - self.first or 1.0
        return _LEFT + (iteration - self.first) / span * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """The place of a value, from the top."""
        return _TOP + (self.high - value) / (self.high - self.low) * (_HEIGHT - _TOP - _BOTTOM)


@dataclass(frozen=True)
class _Chart:
    """A chart before it is drawn."""

    title: str
    unit: str
    scale: Scale
    ticks: Sequence[float]
    drawing: Sequence[Html]
    description: str
    """For who does not see it."""
    legend: Sequence[str] = ()
    note: str = ""
    dashed: str = ""
    """What the dashed lines are."""


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
        limit: label and value of a horizontal line, which the scale then reaches.
        marks: label and iterations of vertical lines.
        note: a sentence below.
    """
    curves = {name: reduced(iterations, values) for name, values in series.items()}
    known = [point for curve in curves.values() for point in curve if point is not None]
    if not known:
        return _not_recorded(title)
    lowest, highest = min(point.low for point in known), max(point.high for point in known)
    if limit:
        highest = max(highest, limit[1] / 0.97)  # its label fits above it
    if limit or from_zero:
        lowest = 0.0
    ticks = nice_ticks(lowest, highest)
    scale = Scale(iterations[0], iterations[-1], ticks[0], ticks[-1])

    drawing: list[Html] = []
    for number, curve in enumerate(curves.values()):
        drawing.extend(_curve(curve, number, scale))
    description = [_summary(name, unit, iterations, values) for name, values in series.items()]
    label, places = marks[0], marks[1][:MOST_MARKS]
    drawing.extend(_vertical(scale.x(iteration)) for iteration in places)
    if limit:
        y = scale.y(limit[1])
        drawing.append(_horizontal(y, "limit"))
        drawing.append(
            element("text", limit[0], x=_WIDTH - _RIGHT - 2, y=f"{y + 13:.1f}", class_="limit end")
        )
        description.append(f"{limit[0]} at {shown(limit[1])} {unit}".strip())
    if places:
        description.append(f"{label}: {', '.join(map(str, places))}")
    chart = _Chart(
        title,
        unit,
        scale,
        ticks,
        drawing,
        "; ".join(description),
        legend=list(series) if len(series) > 1 else (),
        note=note,
        dashed=label if places else "",
    )
    return _figure(chart)


def stack(
    title: str, unit: str, iterations: Sequence[int], parts: Mapping[str, Values], note: str = ""
) -> Html:
    """Areas on top of each other, the first lowest: the mean of each part over the iterations that a point stands for."""
    curves: dict[str, list[float]] = {}
    for name, values in parts.items():
        curves[name] = [point.mean if point else 0.0 for point in reduced(iterations, values)]
    # the iterations reduced as the values are: each point stands at the mean of those that it sums up
    places = [point.iteration for point in reduced(iterations, [1.0] * len(iterations)) if point]
    totals = [sum(values) for values in zip(*curves.values(), strict=True)]
    if not totals or not max(totals):
        return _not_recorded(title)
    ticks = nice_ticks(0.0, max(totals))
    scale = Scale(iterations[0], iterations[-1], 0.0, ticks[-1])

    below = [0.0] * len(places)
    drawing: list[Html] = []
    for number, means in enumerate(curves.values()):
        above = [low + value for low, value in zip(below, means, strict=True)]
        upper = list(zip(places, above, strict=True))
        lower = list(zip(places, below, strict=True))
        drawing.append(element("path", d=_area(upper, lower, scale), class_=f"area s{number}"))
        below = above
    sums = {name: sum(values) for name, values in curves.items()}
    total = sum(sums.values())
    legend = [f"{name} {value / total:.0%}" for name, value in sums.items()]
    description = f"share of all iterations: {', '.join(legend)}"
    return _figure(_Chart(title, unit, scale, ticks, drawing, description, legend, note))


def nice_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round values from at or below ``low`` to at or above ``high``, equally far apart, at least two."""
    if high <= low:
        margin = abs(low) * 0.1 or 1.0
        high += margin
        if low > 0:  # an axis that begins at zero goes on doing so
            low -= margin
    rough = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = 10 * power
    for factor in (1, 2, 2.5, 5):
        if factor * power >= rough * 0.999:
            step = factor * power
            break
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


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


def _figure(chart: _Chart) -> Html:
    unit = f" in {chart.unit}" if chart.unit else ""
    svg = element(
        "svg",
        *_axes(chart.scale, chart.ticks),
        *chart.drawing,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=f"{chart.title}{unit} by iteration. {chart.description}.",
    )
    parts = [_caption(chart.title, f" {chart.unit}".rstrip()), svg]
    keys = [_key(f"s{number}", name) for number, name in enumerate(chart.legend)]
    if chart.dashed:
        keys.append(_key("dashed", chart.dashed))
    if keys:
        parts.append(element("ul", *keys, class_="legend"))
    if chart.note:
        parts.append(small_print(chart.note))
    return element("figure", *parts, class_="chart")


def _caption(title: str, remark: str) -> Html:
    return element("figcaption", element("b", title), remark)


def _not_recorded(title: str) -> Html:
    return element("figure", _caption(title, " not recorded"), class_="chart")


def _key(kind: str, label: str) -> Html:
    return element("li", element("span", class_=f"key {kind}", aria_hidden="true"), f" {label}")


def _axes(scale: Scale, ticks: Sequence[float]) -> Iterable[Html]:
    for value in ticks:
        y = scale.y(value)
        yield _horizontal(y, "grid")
        # 0.1 + 0.2 is no label
        yield element("text", _tick(round(value, 12)), x=_LEFT - 5, y=f"{y + 4:.1f}", class_="end")
    for iteration in _iteration_ticks(scale):
        x = scale.x(iteration)
        # the first and the last would stand over the edge
        anchor = "middle"
        if x > _WIDTH - _RIGHT - 30:
            anchor = "end"
        elif x <= _LEFT + 5:
            anchor = ""
        yield element("text", _tick(iteration), x=f"{x:.1f}", y=_HEIGHT - _BOTTOM + 16, class_=anchor)
    yield element("text", "iteration", x=(_WIDTH + _LEFT) / 2, y=_HEIGHT - 5, class_="middle")


def _horizontal(y: float, class_: str) -> Html:
    return element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}", class_=class_)


def _vertical(x: float) -> Html:
    return element("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=_TOP, y2=_HEIGHT - _BOTTOM, class_="mark")


def _summary(name: str, unit: str, iterations: Sequence[int], values: Values) -> str:
    """A series in words, for who does not see it."""
    known = [(at, value) for at, value in zip(iterations, values, strict=True) if value is not None]
    if not known:
        return f"{name}: no finite value"
    unit = f" {unit}" if unit else ""
    (start, first), (end, last) = known[0], known[-1]
    low, high = min(value for _, value in known), max(value for _, value in known)
    text = (
        f"{name}: {shown(first)}{unit} at iteration {start}, {shown(last)}{unit} at {end}, "
        f"between {shown(low)} and {shown(high)}"
    )
    if len(known) < len(values):
        text += f", no finite value in {counted(len(values) - len(known), 'iteration')}"
    return text


def _iteration_ticks(scale: Scale) -> list[float]:
    """Round iterations below the axis."""
    if scale.last - scale.first < 2:
        return [scale.first]
    inner = [tick for tick in nice_ticks(scale.first, scale.last) if scale.first <= tick <= scale.last]
    return [float(int(tick)) for tick in dict.fromkeys(inner)]


def _curve(curve: Sequence[Bucket | None], number: int, scale: Scale) -> Iterable[Html]:
    """The ranges of a series, and above them its line; it ends and begins again where a value is missing."""
    pieces = _without_gaps(curve)
    for piece in pieces:
        upper = [(point.iteration, point.high) for point in piece]
        lower = [(point.iteration, point.low) for point in piece]
        yield element("path", d=_area(upper, lower, scale), class_=f"band s{number}")
    for piece in pieces:
        means = [(point.iteration, point.mean) for point in piece]
        yield element("path", d=_path(means, scale), class_=f"line s{number}")


def _without_gaps(curve: Sequence[Bucket | None]) -> list[list[Bucket]]:
    pieces: list[list[Bucket]] = [[]]
    for point in curve:
        if point is None:
            pieces.append([])
        else:
            pieces[-1].append(point)
    return [piece for piece in pieces if piece]


def _path(points: Sequence[Point], scale: Scale) -> str:
    """A path through points; one point alone is a short stroke."""
    path = "L".join(f"{scale.x(iteration):.1f} {scale.y(value):.1f}" for iteration, value in points)
    return f"M{path}" if len(points) > 1 else f"M{path}h2"


def _area(upper: Sequence[Point], lower: Sequence[Point], scale: Scale) -> str:
    """There along the upper edge, back along the lower one."""
    back = _path(list(reversed(lower)), scale)
    return f"{_path(upper, scale)}L{back[1:]}Z"
