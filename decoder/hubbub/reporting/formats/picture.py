"""Charts as a picture of their own, one below the other: SVG, or PNG for what can't show that.

The SVG is that of a report, and holds its colours: light, dark and print. matplotlib paints the
marks of the same drawing as PNG, in the light colours; it is an extra, imported when it is needed.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from functools import cache, partial
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from xml.etree import ElementTree as ET

from hubbub.inference.errors import PlanError
from hubbub.reporting.charts import Chart
from hubbub.reporting.estimates import Estimates
from hubbub.reporting.formats.drawings import draw
from hubbub.reporting.formats.files import atomic_write
from hubbub.reporting.formats.svg import WIDTH, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAMESPACE = "http://www.w3.org/2000/svg"
_HEADING = 34.0  # room for a chart's title of 15 units
_PIXELS_PER_INCH, _POINTS_PER_INCH = 100.0, 72.0
_PAPER = "svg { background: var(--paper); }\n"


def write_svg(result: Estimates, file: BinaryIO) -> None:
    """Draw a result's picture as SVG."""
    _write_svg(result.picture(), file)


def write_png(result: Estimates, file: BinaryIO) -> None:
    """Draw a result's picture as PNG.

    Raises
    ------
    PlanError
        If matplotlib isn't installed.
    """
    _write_png(result.picture(), file)


def svg_of(charts: Sequence[Chart]) -> bytes:
    """Return charts as one SVG document."""
    file = BytesIO()
    _write_svg(charts, file)
    return file.getvalue()


def write_picture(path: Path, charts: Sequence[Chart]) -> None:
    """Draw charts into a file, .svg or .png; otherwise as `write_png`."""
    atomic_write(path, partial(_write_svg if path.suffix == ".svg" else _write_png, charts))


def _write_svg(charts: Sequence[Chart], file: BinaryIO) -> None:
    drawing = _stacked(charts)
    style = ET.Element("style")
    style.text = _template("palette.css") + _PAPER + _template("charts.css")
    drawing.insert(0, style)
    ET.ElementTree(drawing).write(file, encoding="utf-8", xml_declaration=True)


def _stacked(charts: Sequence[Chart]) -> ET.Element:
    """Return one drawing of all, each below its title."""
    whole = ET.Element("svg", xmlns=_NAMESPACE)
    bottom = 0.0
    for chart in charts:
        title = ET.SubElement(
            whole, "text", {"class": "title", "x": "16", "y": number(bottom + 24)}
        )
        title.text = chart.labels.title
        part = ET.fromstring(draw(chart).replace(f' xmlns="{_NAMESPACE}"', ""))  # noqa: S314 - ours
        height = part.attrib["viewBox"].split()[-1]
        part.attrib |= {"y": number(bottom + _HEADING), "width": number(WIDTH), "height": height}
        whole.append(part)
        bottom += _HEADING + float(height)
    whole.attrib["viewBox"] = f"0 0 {number(WIDTH)} {number(bottom)}"
    return whole


@cache
def _template(name: str) -> str:
    return (files("hubbub.reporting.formats") / "templates" / name).read_text(encoding="utf-8")


def _write_png(charts: Sequence[Chart], file: BinaryIO) -> None:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra that only PNG needs
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise PlanError(
            "a picture (.png) needs matplotlib: pip install 'hubbub[simulations]', "
            "or write .svg, .json or .csv"
        ) from error
    drawing = _stacked(charts)
    width, height = map(float, drawing.attrib["viewBox"].split()[2:])
    figure = Figure(figsize=(width / _PIXELS_PER_INCH, height / _PIXELS_PER_INCH))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    styles = _light_styles()
    for place, (element, top) in enumerate(_marks(drawing, 0.0)):
        style = dict(styles["svg text"]) if element.tag == "text" else {}
        for name in element.get("class", "").split():
            style |= styles.get(f".{name}", {})
        _paint(axes, element, top, style, place)
    with warnings.catch_warnings():
        # Strings may be of any script; a letter that the font lacks is shown as a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(file, format="png", dpi=2 * _PIXELS_PER_INCH)


def _light_styles() -> dict[str, dict[str, str]]:
    """Return the declarations of each selector, in the palette's first colours."""
    colours = dict(re.findall(r"--(\w+): (#\w+)", _template("palette.css").partition("@media")[0]))
    css = re.sub(r"var\(--(\w+)\)", lambda name: colours[name[1]], _template("charts.css"))
    styles: dict[str, dict[str, str]] = {}
    for selectors, declarations in re.findall(r"([^{}]+)\{([^{}]*)\}", css):
        style = dict(re.findall(r"([\w-]+): ([^;]+);", declarations))
        for selector in selectors.split(","):
            styles.setdefault(selector.strip(), {}).update(style)
    return styles


def _marks(parent: ET.Element, top: float) -> Iterator[tuple[ET.Element, float]]:
    """Yield all marks, in the order in which they lie upon each other, and how far down."""
    for element in parent:
        if element.tag in {"svg", "g"}:
            yield from _marks(element, top + float(element.get("y", 0)))
        else:
            yield element, top


def _paint(axes: Axes, element: ET.Element, top: float, style: dict[str, str], zorder: int) -> None:
    """Paint one mark of those that `hubbub.reporting.formats.svg` makes."""
    from matplotlib import patches  # noqa: PLC0415 - as above

    def at(*names: str) -> list[float]:
        return [float(element.get(name, 0)) for name in names]

    filled: dict[str, Any] = {
        "facecolor": style.get("fill"),
        "alpha": float(element.get("fill-opacity", style.get("fill-opacity", 1))),
        "linewidth": 0,
        "zorder": zorder,
    }
    points = [tuple(map(float, each.split(","))) for each in element.get("points", "").split()]
    if element.tag == "rect":
        x, y, width, height = at("x", "y", "width", "height")
        axes.add_artist(patches.Rectangle((x, y + top), width, height, **filled))
    elif element.tag == "circle":
        x, y, radius = at("cx", "cy", "r")
        axes.add_artist(patches.Circle((x, y + top), radius, **filled))
    elif element.tag == "polygon":
        axes.add_artist(patches.Polygon([(x, y + top) for x, y in points], **filled))
    elif element.tag in {"line", "polyline"}:
        x1, x2, y1, y2 = at("x1", "x2", "y1", "y2")
        ends = points or [(x1, y1), (x2, y2)]
        stroke = float(style.get("stroke-width", 1))
        # matplotlib measures dashes in widths of the line.
        dashes = [float(dash) / stroke for dash in style.get("stroke-dasharray", "").split()]
        axes.plot(
            [x for x, _ in ends], [y + top for _, y in ends], color=style.get("stroke"),
            linewidth=stroke * _POINTS_PER_INCH / _PIXELS_PER_INCH,
            linestyle=(0, dashes) if dashes else "-", solid_capstyle="butt", zorder=zorder,
        )  # fmt: skip
    elif element.tag == "text":
        x, y = at("x", "y")
        size = re.search(r"(\d+)px", style["font"])
        anchor = {"middle": "center", "end": "right"}.get(element.get("text-anchor", ""), "left")
        axes.text(
            x, y + top, element.text or "", color=style["fill"], ha=anchor, va="baseline",
            fontsize=float(size[1] if size else 12) * _POINTS_PER_INCH / _PIXELS_PER_INCH,
            fontweight="bold" if "600" in style["font"] else "normal",
            rotation=90 if "transform" in element.attrib else 0, rotation_mode="anchor",
            parse_math=False, zorder=zorder,
        )  # fmt: skip
