"""Numbers -> SVG: scales, ticks and the few marks that our charts are made of.

Pure functions to text; colours are CSS classes, so that the page's light, dark and print styles
apply. Coordinates are rounded to hundredths of a pixel, far coarser than what differs between
linear algebra kernels, so that the same result gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup, escape

from hubbub.reporting.charts import Labels
from hubbub.reporting.text import shortened

WIDTH = 720.0  # units; a page's text is as wide
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
"""Of an axis, times a power of ten: numbers that people count by."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A straight line from values, or their logarithms, to pixels.

    Attributes
    ----------
    low, high : float
        Values at the ends.
    start, stop : float
        Pixels at the ends.
    log : bool
        Whether it is logarithmic; then both ends are above 0.
    """

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel of a value; values beyond an end stay at that end."""
        low, high = self.low, self.high
        if self.log:
            low, high = math.log10(low), math.log10(high)
            value = math.log10(value) if value > 0 else low
        span = high - low
        part = (value - low) / span if span else 0.5
        return self.start + min(max(part, 0.0), 1.0) * (self.stop - self.start)

    def ticks(self, wanted: int = 5) -> list[float]:
        """Return about so many round values between the ends."""
        if self.log and len(powers := self._powers(wanted)) > 1:
            return powers
        span = self.high - self.low
        if not span > 0 or not math.isfinite(span):
            return [self.low]
        rough = span / wanted
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(step * power for step in _STEPS if step * power >= rough * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]

    def _powers(self, wanted: int) -> list[float]:
        """Return powers of ten between the ends, and if they are few twice and five times each."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        factors = (1, 2, 5) if self.high < 100 * self.low else (1,)
        values = [float(f"{factor}e{power}") for power in decades for factor in factors]
        inside = [each for each in values if self.low <= each <= self.high]
        return inside[:: math.ceil(len(inside) / (wanted + 2)) or 1]


def number(value: float) -> str:
    """Return a coordinate: at most two decimals, no minus before zero."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def tag(name: str, content: str = "", **attributes: str | float) -> Markup:
    """Return an element; `class_` stands for class and other underscores for hyphens.

    Text that isn't Markup is escaped, in the content and in attributes.
    """
    begin = name
    for key, value in attributes.items():
        text = escape(value) if isinstance(value, str) else number(value)
        begin += f' {key.rstrip("_").replace("_", "-")}="{text}"'
    inside = escape(content)
    if not inside and name not in {"td", "th"}:
        return Markup(f"<{begin}/>")  # noqa: S704 - all of it is escaped
    return Markup(f"<{begin}>{inside}</{name}>")  # noqa: S704 - as above


def group(parts: Iterable[str]) -> Markup:
    """Return elements as one."""
    return tag("g", Markup("").join(parts))


def drawing(labels: Labels, height: float, parts: Iterable[str]) -> Markup:
    """Return an SVG element that screen readers can read; so high when it is 720 pixels wide."""
    name = labels.name
    title = tag("title", labels.title, id=f"{name}-title")
    description = tag("desc", labels.description, id=f"{name}-desc")
    return tag(
        "svg",
        Markup("").join([title, description, *parts]),
        xmlns="http://www.w3.org/2000/svg",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        viewBox=f"0 0 {number(WIDTH)} {number(height)}",
    )


def horizontal_axis(scale: Scale, top: float, bottom: float, label: str, form: str) -> Markup:
    """Return ticks below an area, lines through it, and what is measured."""
    parts: list[str] = []
    for value in scale.ticks():
        x = scale(value)
        parts.append(tag("line", class_="grid", x1=x, x2=x, y1=top, y2=bottom))
        parts.append(tag("text", form.format(value), x=x, y=bottom + 16, text_anchor="middle"))
    middle = (scale.start + scale.stop) / 2
    parts.append(tag("text", label, x=middle, y=bottom + 36, text_anchor="middle"))
    return group(parts)


def vertical_axis(scale: Scale, left: float, right: float, label: str, form: str) -> Markup:
    """Return ticks left of an area, lines through it, and what is measured."""
    parts: list[str] = []
    for value in scale.ticks(4):
        y = scale(value)
        parts.append(tag("line", class_="grid", x1=left, x2=right, y1=y, y2=y))
        parts.append(tag("text", form.format(value), x=left - 6, y=y + 4, text_anchor="end"))
    middle = (scale.start + scale.stop) / 2
    turned = upright(14, middle)
    parts.append(tag("text", label, x=14, y=middle, text_anchor="middle", transform=turned))
    return group(parts)


def named_text(
    name: str, most: int, x: float, y: float, anchor: str, **attributes: str | float
) -> Markup:
    """Write a name, shortened to so many columns; then all of it is shown to who points at it."""
    short = shortened(name, most)
    whole = tag("title", name) if short != name else ""
    return tag("text", escape(short) + whole, x=x, y=y, text_anchor=anchor, **attributes)


def upright(x: float, y: float) -> str:
    """Return the transform of a text that is read from below, turned about a point."""
    return f"rotate(-90 {number(x)} {number(y)})"


def polyline(points: Iterable[tuple[float, float]], class_: str) -> Markup:
    """Return a line through points."""
    return tag("polyline", class_=class_, points=path_points(points))


def path_points(points: Iterable[tuple[float, float]]) -> str:
    """Return points as attributes of SVG hold them."""
    return " ".join(f"{number(x)},{number(y)}" for x, y in points)
