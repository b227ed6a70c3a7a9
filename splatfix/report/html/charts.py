"""Charts as inline SVG: lines with the range of what they summarise, and stacked areas. ``macros.html`` draws them, in colours
of the style sheet."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby
from typing import ClassVar

from msgspec import Struct

from splatfix.core.words import counted
from splatfix.report.html.metrics import Bucket, Values, reduced

Point = tuple[float, float]
"""Iteration and value."""


class Chart(Struct, frozen=True):
    """A chart as it is drawn: places are SVG units, about the pixels of a phone, from the left and from the top."""

    width: ClassVar[int] = 360
    height: ClassVar[int] = 220
    left: ClassVar[int] = 48
    right: ClassVar[int] = 350
    top: ClassVar[int] = 12
    bottom: ClassVar[int] = 182

    title: str
    remark: str
    """The unit, or that there is nothing to draw."""
    description: str = ""
    """For who does not see it."""
    values: Sequence[tuple[float, str]] = ()
    """Place and label of each line of the grid."""
    iterations: Sequence[tuple[float, str, str]] = ()
    """Place, label and anchor of each iteration that is named."""
    paths: Sequence[tuple[str, str]] = ()
    """Class and path of each curve, range or area; () where nothing was recorded."""
    marks: Sequence[float] = ()
    """Vertical lines."""
    limit: tuple[float, str] | None = None
    legend: Sequence[tuple[str, str]] = ()
    """Kind of line, and what it is."""
    note: str = ""


class Scale(Struct, frozen=True):
    """From values to places in the drawing, from the left (``x``) and from the top (``y``)."""

    first: float
    last: float
    ticks: Sequence[float]

    def x(self, iteration: float) -> float:
        span = self.last - self.first or 1.0
        return Chart.left + (iteration - self.first) / span * (Chart.right - Chart.left)

    def y(self, value: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        return Chart.top + (high - value) / (high - low) * (Chart.bottom - Chart.top)

    def path(self, points: Sequence[Point]) -> str:
        """A path through points; one point alone is a short stroke."""
        path = "L".join(f"{self.x(iteration):.1f} {self.y(value):.1f}" for iteration, value in points)
        return f"M{path}" if len(points) > 1 else f"M{path}h2"

    def area(self, upper: Sequence[Point], lower: Sequence[Point]) -> str:
        """There along the upper edge, back along the lower one."""
        back = self.path(list(reversed(lower)))
        return f"{self.path(upper)}L{back[1:]}Z"

    def grid(self) -> list[tuple[float, str]]:
        """Place and label of each tick."""
        # 0.1 + 0.2 is no label
        return [(self.y(value), _label(round(value, 12))) for value in self.ticks]

    def iterations(self) -> Iterable[tuple[float, str, str]]:
        """Round iterations below the axis: place, label and anchor."""
        named = [self.first]
        if self.last - self.first >= 2:
            inner = [tick for tick in nice_ticks(self.first, self.last) if self.first <= tick <= self.last]
            named = [float(int(tick)) for tick in dict.fromkeys(inner)]
        for iteration in named:
            x = self.x(iteration)
            # the first and the last would stand over the edge
            anchor = "middle"
            if x > Chart.right - 30:
                anchor = "end"
            elif x <= Chart.left + 5:
                anchor = ""
            yield x, _label(iteration), anchor


def lines(
    title: str,
    unit: str,
    iterations: Sequence[int],
    series: Mapping[str, Values],
    *,
    limit: tuple[str, float] | None = None,
    resets: Sequence[int] = (),
    from_zero: bool = False,
    note: str = "",
) -> Chart:
    """A line for each series, with the range of the iterations that a point stands for; ``limit`` is a horizontal line, which
    the scale then reaches, ``resets`` (of the opacities) are vertical ones."""
    curves = [reduced(iterations, values) for values in series.values()]
    known = list(filter(None, chain(*curves)))
    if not known:
        return Chart(title, "not recorded")
    lowest, highest = min(point.low for point in known), max(point.high for point in known)
    if limit:
        highest = max(highest, limit[1] / 0.97)  # its label fits above it
    if limit or from_zero:
        lowest = 0.0
    scale = Scale(iterations[0], iterations[-1], nice_ticks(lowest, highest))

    paths: list[tuple[str, str]] = []
    for number, curve in enumerate(curves):
        paths.extend(_curve(curve, number, scale))
    description = [_summary(name, unit, iterations, values) for name, values in series.items()]
    legend = []
    if len(series) > 1:
        legend += [(f"s{number}", name) for number, name in enumerate(series)]
    if limit:
        description.append(f"{limit[0]} at {shown(limit[1])} {unit}".strip())
    resets = resets[:12]  # more lines than these would hide the curve
    if resets:
        description.append(f"opacity reset: {', '.join(map(str, resets))}")
        legend.append(("dashed", "opacity reset"))
    return Chart(
        title,
        unit,
        _described(title, unit, description),
        scale.grid(),
        list(scale.iterations()),
        paths,
        [scale.x(iteration) for iteration in resets],
        (scale.y(limit[1]), limit[0]) if limit else None,
        legend,
        note,
    )


def stack(
    title: str, unit: str, iterations: Sequence[int], parts: Mapping[str, Values], note: str = ""
) -> Chart:
    """Areas on top of each other, the first lowest: the mean of each part over the iterations that a point stands for."""
    curves: dict[str, list[float]] = {}
    for name, values in parts.items():
        curves[name] = [point.mean if point else 0.0 for point in reduced(iterations, values)]
    # the iterations reduced as the values are: each point stands at the mean of those that it sums up
    places = [point.iteration for point in reduced(iterations, [1.0] * len(iterations)) if point]
    totals = [sum(values) for values in zip(*curves.values(), strict=True)]
    if not totals or not max(totals):
        return Chart(title, "not recorded")
    scale = Scale(iterations[0], iterations[-1], nice_ticks(0.0, max(totals)))

    below = [0.0] * len(places)
    paths = []
    for number, means in enumerate(curves.values()):
        above = [low + value for low, value in zip(below, means, strict=True)]
        upper, lower = list(zip(places, above, strict=True)), list(zip(places, below, strict=True))
        paths.append((f"area s{number}", scale.area(upper, lower)))
        below = above
    sums = {name: sum(values) for name, values in curves.items()}
    shares = [f"{name} {value / sum(sums.values()):.0%}" for name, value in sums.items()]
    return Chart(
        title,
        unit,
        _described(title, unit, [f"share of all iterations: {', '.join(shares)}"]),
        scale.grid(),
        list(scale.iterations()),
        paths,
        legend=[(f"s{number}", share) for number, share in enumerate(shares)],
        note=note,
    )


def nice_ticks(low: float, high: float) -> list[float]:
    """Round values from at or below ``low`` to at or above ``high``, equally far apart, at least two."""
    if high <= low:
        margin = abs(low) * 0.1 or 1.0
        high += margin
        if low > 0:  # an axis that begins at zero goes on doing so
            low -= margin
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = 10 * power
    for factor in (1, 2, 2.5, 5):
        if factor * power >= rough * 0.999:
            step = factor * power
            break
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def shown(value: float) -> str:
    """A number in a sentence: three significant digits, or thousands with commas."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _label(value: float) -> str:
    """A number beside an axis."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:g}k"
    return f"{value:.6g}"


def _described(title: str, unit: str, parts: Sequence[str]) -> str:
    axis = f" in {unit}" if unit else ""
    return f"{title}{axis} by iteration. {'; '.join(parts)}."


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


def _curve(curve: Sequence[Bucket | None], number: int, scale: Scale) -> Iterable[tuple[str, str]]:
    """The ranges of a series, and above them its line; it ends and begins again where a value is missing."""
    pieces = [list(filter(None, piece)) for known, piece in groupby(curve, bool) if known]
    for piece in pieces:
        upper = [(point.iteration, point.high) for point in piece]
        lower = [(point.iteration, point.low) for point in piece]
        yield f"band s{number}", scale.area(upper, lower)
    for piece in pieces:
        yield f"line s{number}", scale.path([(point.iteration, point.mean) for point in piece])
