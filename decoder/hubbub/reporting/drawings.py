"""Charts -> SVG, by Vega-Lite: what each kind of chart looks like.

Colours are variables of `templates/palette.css`, so that light, dark and print styles apply. Places
are given, not measured, and numbers rounded, so that the same result gives the same bytes whatever
fonts and linear algebra a machine has. Strings that clients may have sent are data, never fields,
expressions or options.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache, singledispatch
from typing import Any

import numpy as np
import vl_convert
from markupsafe import Markup

from hubbub.inference import FloatArray
from hubbub.reporting import charts
from hubbub.reporting.text import columns, shortened

# fmt: off
Spec = dict[str, Any]
WIDTH = 420.0  # pixels: letters of 13 are above 11 on a phone
_NAME, _LETTER, _LEFT = 24, 6.8, 58.0  # columns of a name, pixels of one, room for a y axis
_POINTS, _CELLS, _MARKED = 1_000, 40, 24  # more points are cells; lines of more have no marks
_INK, _ACCENT, _FILL, _QUIET = "var(--ink)", "var(--accent)", "var(--mark)", "var(--quiet)"
_COLOURS = (_ACCENT, "var(--series1)", "var(--series2)", "var(--series3)")
_SHAPES, _DASHES = ("circle", "square", "triangle-up", "diamond"), ([1, 0], [6, 3], [2, 3], [8, 3])
_DASHED = {"type": "line", "color": _INK, "strokeWidth": 1.5, "strokeDash": [5, 3]}
_IDLE = re.compile(r'<path class="(back|fore)ground"[^>]*>|'
                   r' (pointer-events="none"|opacity="1"|(class|role|aria-[a-z]+)="[^"]*")')
_FONT = "Arial, Helvetica, 'Liberation Sans', sans-serif"
_WORDS = {f"{part}{name}": value for part in ("label", "title") for name, value in
          {"Color": _INK, "Font": _FONT, "FontSize": 13, "FontWeight": "normal"}.items()}
_CONFIG: Spec = {
    "aria": False, "view": {"stroke": None}, "point": {"opacity": 1, "filled": True, "size": 50},
    "axis": {**_WORDS, "domain": False, "ticks": False, "gridColor": "var(--grid)", "tickCount": 5,
             "labelLimit": 0, "labelPadding": 6},
    "axisY": {"titleAngle": 0, "titleAlign": "left", "titleBaseline": "bottom", "titleY": -8},
    "legend": {**_WORDS, "orient": "bottom", "direction": "vertical", "title": None, "offset": 12,
               "labelLimit": 360, "symbolOpacity": 1, "rowPadding": 3},
    "text": {"font": _FONT, "fontSize": 13, "fill": _INK}, "area": {"opacity": 1},
}


def draw(chart: charts.Chart) -> Markup:
    """Return a chart as an SVG element that screen readers can read, too."""
    spec, labels = _spec(chart), chart.labels
    size, _, marks = _drawn(json.dumps(spec | {"config": _CONFIG})).partition(">")
    size = size[size.index(" width=") :]
    if spec["padding"]["left"] + spec["width"] + spec["padding"]["right"] > WIDTH:
        size += ' class="wide"'
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="{0}-title {0}-desc"'
        '{3}>\n<title id="{0}-title">{1}</title>\n<desc id="{0}-desc">{2}</desc>\n{4}'
    ).format(labels.name, labels.title, labels.description, Markup(size), Markup(marks))  # noqa: S704 - Vega escapes texts


@lru_cache(256)
def _drawn(spec: str) -> str:
    svg = vl_convert.vegalite_to_svg(spec)
    return re.sub("<[^>]*>", lambda tag: _IDLE.sub("", tag[0]), svg)


def _view(layers: Sequence[Spec], height: float, *, left: float = _LEFT, top: float = 24,
          below: float = 44, width: float | None = None) -> Spec:
    width = WIDTH - left - 18 if width is None else width
    room = {"left": left, "right": max(18, WIDTH - left - width), "top": top, "bottom": below}
    return {"width": width, "height": height, "padding": room, "autosize": "none",
            "background": None, "layer": layers}


def _layer(mark: str, table: Iterable[Spec], look: Spec | None = None, **encoding: Any) -> Spec:
    rows = [{name: cell if not isinstance(cell, float) else
             float(f"{cell:.6g}") if math.isfinite(cell) else None for name, cell in row.items()}
            for row in table]
    return {"data": {"values": rows}, "mark": {"type": mark, **(look or {})}, "encoding": encoding}


def _axis(title: str, unit: str = "", *, y: bool = False, **scale: Any) -> Any:
    label = f"format(datum.value, ',.10~g') + {json.dumps(unit)}"
    axis = {"labelExpr": label, "title": title or None} | ({"titleX": 2 - _LEFT} if y else {})
    return lambda name: {"field": name, "type": "quantitative", "scale": scale, "axis": axis}


def _rows(**cells: Iterable[Any]) -> list[Spec]:
    lists = (each.tolist() if isinstance(each, np.ndarray) else each for each in cells.values())
    return [dict(zip(cells, row, strict=True)) for row in zip(*lists, strict=True)]


def _by_name(names: Sequence[str], values: Sequence[Any]) -> Spec:
    scale = {"domain": names, "range": [values[i % len(values)] for i in range(len(names))]}
    return {"field": "n", "type": "nominal", "scale": scale}


def _named(field: str, names: Sequence[str], **axis: Any) -> Spec:
    axis = {"title": None, "grid": False, "labelAngle": 0, "labelOverlap": True, **axis}
    scale = {"type": "band", "domain": names, "padding": 0}
    return {"field": field, "type": "ordinal", "axis": axis, "scale": scale}


def _short(names: Iterable[str]) -> tuple[list[str], float]:
    short = [shortened(name, _NAME) for name in names]
    short = [n if short.count(n) == 1 else f"{n} #{i + 1}" for i, n in enumerate(short)]
    return short, 24 + _LETTER * max(map(columns, short), default=0)


@singledispatch
def _spec(chart: charts.Chart) -> Spec:
    raise NotImplementedError(f"{type(chart).__name__} can't be drawn")


@_spec.register
def _intervals(chart: charts.IntervalChart) -> Spec:
    names, left = _short(chart.names)
    table = _rows(n=names, e=chart.estimate, l=chart.low, h=chart.high)
    x, y = _axis(chart.labels.x, chart.unit), _named("n", names)
    line = {"strokeWidth": 2, "color": _ACCENT}
    return _view([_layer("rule", table, line, x=x("l"), x2={"field": "h"}, y=y),
                  _layer("point", table, {"color": _ACCENT}, x=x("e"), y=y)],
                 24 * len(table), left=left, top=8)


@_spec.register
def _course(chart: charts.TimeSeries) -> Spec:
    table = _rows(d=chart.days, s=chart.share, l=chart.low, h=chart.high, e=chart.expected)
    side = {"condition": {"test": "datum.index == 0", "value": "left"}, "value": "right"}
    x = _named("d", chart.days, values=[chart.days[0], chart.days[-1]], labelAlign=side)
    y = _axis(chart.labels.y, chart.unit, y=True, zero=chart.unit == "%")
    gaps = [row for row in table if math.isnan(row["s"])]
    band, colour = {"y": y("l"), "y2": {"field": "h"}}, {"color": _ACCENT}
    change = {"color": "var(--warn)", "strokeWidth": 2}
    return _view([
        _layer("rect", gaps, {"color": "var(--grid)", "opacity": 0.5}, x=x),
        _layer("rule", table, {"color": "var(--band)", "strokeWidth": 3}, x=x, **band),
        _layer("area", table, {"color": "var(--band)"}, x=x, **band),
        _layer("line", table, _DASHED | {"interpolate": "step"}, x=x, y=y("e")),
        _layer("line", table, colour, x=x, y=y("s")),
        _layer("point", table, colour | {"size": 24}, x=x, y=y("s")),
        _layer("rule", [table[day] for day in chart.changes], change, x=x | {"bandPosition": 0}),
    ], 110, below=26)


def _cloud(x: FloatArray, y: FloatArray, across: Any, up: Any, logs: tuple[bool, bool]) -> Spec:
    """Draw points; of many, cells in steps of the logarithm of how many points they hold."""
    if len(x) <= _POINTS:
        look = {"color": _QUIET, "opacity": 0.5, "size": 16}
        return _layer("point", _rows(x=x, y=y), look, x=across("x"), y=up("y"))
    edges = [(np.geomspace if log else np.linspace)(of.min(), of.max(), _CELLS + 1).tolist()
             for of, log in zip((x, y), logs, strict=True)]
    counts = np.log1p(np.histogram2d(x, y, bins=edges)[0])
    table = [{"l": edges[0][i], "r": edges[0][i + 1], "b": edges[1][j], "t": edges[1][j + 1],
              "n": round(counts[i, j] / counts.max(), 1)} for i, j in np.argwhere(counts).tolist()]
    depth = {"field": "n", "type": "quantitative", "legend": None, "scale": None}
    return _layer("rect", table, {"color": _QUIET}, x=across("l"), x2={"field": "r"}, y=up("b"),
                  y2={"field": "t"}, fillOpacity=depth)


@_spec.register
def _xy(chart: charts.XYChart) -> Spec:
    logs = chart.log_x, chart.log_y
    scales: list[Spec] = [{"type": "log", "nice": False} if log else {} for log in logs]
    across, up = _axis(chart.labels.x, **scales[0]), _axis(chart.labels.y, y=True, **scales[1])
    layers: list[Spec] = []
    lines: list[Spec] = []
    points: list[Spec] = []
    looks: list[tuple[str, str, list[int]]] = []
    numbers = itertools.cycle(range(4))
    for each in chart.series:
        there = np.isfinite(each.x) & np.isfinite(each.y)
        there &= ((each.x > 0) | (not logs[0])) & ((each.y > 0) | (not logs[1]))
        x, y = each.x[there], each.y[there]
        low, high = (y if end is None else end[there] for end in (each.low, each.high))
        names = itertools.compress(each.names, there) if each.names else ("",) * len(x)
        table = [row | {"n": each.label} for row in _rows(
            x=x, y=y, h=high, l=np.where((low > 0) | (not logs[1]), low, y), name=names)]
        marked = each.style == "points" or (each.style == "line" and len(x) <= _MARKED)
        if each.style == "cloud":
            layers.append(_cloud(x, y, across, up, logs))
            looks.append((_QUIET, "circle", [1, 0]))
        elif each.style == "reference":
            looks.append((_INK, "stroke", [5, 3]))
        else:
            i = next(numbers)
            looks.append((_COLOURS[i], _SHAPES[i] if marked else "stroke", _DASHES[i]))
        lines += table if each.style in {"line", "reference"} else []
        points += table if marked else []
    of = [each.label for each in chart.series]
    colour, shape, dash = (_by_name(of, values) for values in zip(*looks, strict=True))
    at, named = {"x": across("x"), "y": up("y")}, _apart(points, logs)
    bars = [row for row in points if row["h"] > row["l"]]
    right = {"align": "left", "dx": 8, "dy": -8}
    halo = right | {"stroke": "var(--paper)", "strokeWidth": 3}
    return _view([
        *layers,
        _layer("line", lines, **at, color=colour, strokeDash=dash),
        _layer("rule", bars, x=across("x"), y=up("l"), y2={"field": "h"}, color=colour),
        _layer("point", points, **at, color=colour, shape=shape),
        *(_layer("text", named, look, **at, text={"field": "n"}) for look in (halo, right)),
    ], 240, below=60 + 19 * len(of))


def _apart(points: Sequence[Spec], logs: tuple[bool, bool]) -> list[Spec]:
    """Return the points with names, without those so near to another that names would touch."""
    kept: list[int] = []
    places = np.array([[row["x"], row["y"]] for row in points]).reshape(-1, 2)
    places = np.log(places, where=logs, out=places)
    places = places / np.maximum(np.ptp(places, axis=0), 1e-300) / (0.3, 0.08) if points else places
    for i, row in enumerate(points):
        if row["name"] and all(np.abs(places[i] - places[j]).max() > 1 for j in kept):
            kept.append(i)
    return [points[i] | {"n": shortened(points[i]["name"], _NAME)} for i in kept]


@_spec.register
def _heat_map(chart: charts.HeatMap) -> Spec:
    """Draw cells, and what their colours stand for."""
    (names, left), (heads, above) = _short(chart.row_names), _short(chart.column_names)
    left = max(left, 24 + _LETTER * len(chart.labels.y))
    wide = min(max((WIDTH - left - 18) / len(heads), 34.0 if len(heads) <= 20 else 6.0), 64.0)
    high, diverging = min(max(800 / len(names), 3.0), 22.0), chart.diverging
    depths, most = np.maximum(chart.values, 0.0), 16.0
    if diverging:  # how far from 1: as deep for a quarter as for four
        depths = np.maximum(depths, 1 / np.maximum(depths, 1 / most))
        most = float(np.nanmax(np.minimum(depths, most), initial=2.0))
    table: list[Spec] = []
    unknown: list[Spec] = []
    for (i, j), value in np.ndenumerate(chart.values):
        text = f"{value:.0f}" if abs(value) >= 9.95 else f"{round(value, 2):.2g}"
        row = {"i": names[i], "j": heads[j]}
        if math.isnan(value):
            unknown.append(row | {"f": "var(--grid)"})
        else:
            hue = "var(--cool)" if diverging and value < 1 else "var(--heat)"
            table.append(row | {"t": text, "f": hue, "v": float(depths[i, j])})
    turned = above - 16 > wide
    y = _named("i", names, title=chart.labels.y, titleX=-8, titleAlign="right")
    x = _named("j", heads, orient="top", title=chart.labels.x, labelAngle=270 if turned else 0)
    label = f"format(datum.value, '.2~g') + {json.dumps(chart.unit)}"
    legend = {"direction": "horizontal", "symbolType": "square", "symbolSize": 200, "tickCount": 4,
              "symbolFillColor": "var(--heat)", "symbolStrokeWidth": 0,
              "labelExpr": f"'\u00d7 or \u00f7 ' + {label}" if diverging else label}
    scale: Spec = {"type": "log", "domain": [1, most]} if diverging else {"type": "sqrt"}
    depth = {"field": "v", "type": "quantitative", "legend": legend,
             "scale": scale | {"range": [0, 1], "clamp": True}}
    fill, edge = {"field": "f", "scale": None}, {"stroke": "var(--paper)"} if high > 12 else {}
    numbered = table if min(wide - 14, high) > 12 else []
    return _view([
        _layer("rect", unknown, edge, x=x, y=y, fill=fill),
        _layer("rect", table, edge, x=x, y=y, fill=fill, opacity=depth),
        _layer("text", numbered, x=x, y=y, text={"field": "t"}),
    ], high * len(names), left=left, top=16 + (above if turned else 34), below=50,
        width=wide * len(heads))
