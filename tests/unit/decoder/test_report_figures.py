"""Charts put numbers where they belong, and say in words what they show."""

import re
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest

from hubbub.reporting import (
    Chart,
    HeatMap,
    IntervalChart,
    Labels,
    Series,
    TimeSeries,
    XYChart,
    draw,
)
from unit.decoder.pages import Page, assert_self_contained

WORDS = Labels("a", "T", "W", "driver", "crash")
HOSTILE = "<b onload='x()'>&\"{{"


def array(*numbers: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array(numbers, dtype=np.float64)


def charts_with(name: str) -> dict[str, Chart]:
    """Return a chart of every kind that shows a name."""
    words = Labels("a", name, name, name, name)
    two, nan = array(1, 2), array(np.nan, np.nan)
    point = Series(name, two, array(2, 4), "points", two, array(3, 6), (name, ""))
    course = ("2026-11-01", "2026-11-02")
    return {
        "intervals": IntervalChart(words, [name], array(2), array(1), array(3)),
        "course": TimeSeries(words, course, two, two - 1, two + 1, nan, (1,), ("day",), ()),
        "points": XYChart(words, [point], log_x=True, log_y=True),
        "heat map": HeatMap(words, (name,), (name, "other"), array(1, 2)[None]),
    }


@pytest.mark.parametrize("kind", charts_with(""))
def test_names_are_written_as_they_are_and_nothing_in_them_is_obeyed(kind):
    drawing = draw(charts_with(HOSTILE)[kind])
    page = Page(drawing)
    assert_self_contained(page)
    assert not page.all("b")
    assert page.texts["title"] == page.texts["desc"] == [HOSTILE]
    assert HOSTILE in page.texts["text"]
    assert "style" not in page.texts
    (svg,) = page.all("svg")
    assert svg["role"] == "img"
    assert svg["aria-labelledby"] == "a-title a-desc"


@pytest.mark.parametrize("kind", charts_with(""))
def test_drawing_is_of_the_palette_repeatable_and_large_enough_on_a_phone(kind):
    chart = charts_with("name")[kind]
    drawing = draw(chart)
    css = resources.files("hubbub.reporting").joinpath("templates/palette.css")
    defined = set(re.findall(r"--\w+", css.read_text("utf-8")))
    used = re.findall(r'(?:fill|stroke)="([^"]+)"', drawing)
    assert {colour[4:-1] for colour in used if colour not in {"none", "transparent"}} <= defined
    (svg,) = Page(drawing).all("svg")
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)px"', drawing)]
    assert min(sizes) * 366 / float(svg["width"]) > 11  # a phone of 390 pixels with its margins
    assert "class" not in svg
    moved = draw(replace(chart, labels=Labels("b", *("name",) * 4)))
    assert moved.replace("b-", "a-") == drawing


def test_intervals_have_their_numbers_as_rows():
    chart = IntervalChart(WORDS, "xy", array(50, 25), array(0, 20), array(100, 30))
    assert chart.rows == (
        ("x", "50%", "0%", "100%"),
        ("y", "25%", "20%", "30%"),
    )


def test_names_of_points_that_lie_close_are_left_to_the_table():
    """Thirty points in a heap and one apart."""
    names = (*(f"name {i}" for i in range(30)), "far away")
    x, y = array(*np.linspace(4.9, 5.1, 30), 0.5), array(*([5.0] * 30), 1.0)
    points = Series("s", x, y, "points", y - 0.5, y + 2, names)
    written = {text for text in Page(draw(XYChart(WORDS, [points]))).texts["text"] if text in names}
    assert written == {"name 0", "far away"}
    assert [row[1] for row in XYChart(WORDS, [points]).rows] == list(names)


def test_long_labels_are_shortened_in_the_middle_and_numbered_where_they_are_then_equal():
    long = ["https://example.com/" + c + "x" * 100 + "/index.html" for c in "ab"]
    chart = IntervalChart(WORDS, long, *(array(50, 40),) * 3)
    short = "https://exam…/index.html"
    assert {f"{short} #1", f"{short} #2"} <= set(Page(draw(chart)).texts["text"])
    assert [row[0] for row in chart.rows] == long


def depths_of(chart: HeatMap) -> list[tuple[str, float]]:
    """Return the colours and strengths of the cells with a value, row by row."""
    drawn = re.findall(r'<path [^>]*fill="var\(--(heat|cool)\)"[^>]*?>', draw(chart))
    cells = [cell for cell in Page(draw(chart)).all("path") if cell.get("opacity")]
    assert len(drawn) >= len(cells)
    return [(cell["fill"][6:-1], float(cell["opacity"])) for cell in cells]


def test_cells_are_as_deep_as_the_root_of_their_share_and_hold_it():
    values = np.array([[64.0, 16.0, np.nan], [4.0, -1.0, 0.034]])
    chart = HeatMap(WORDS, ("x", "y"), ("a", "b", "c"), values)
    page = Page(draw(chart))
    assert [depth for _, depth in depths_of(chart)][:4] == pytest.approx(
        [0.5, 0.25, 0, 0.02], abs=0.005
    )  # the first, of 1, needs none
    assert {"64", "16", "4", "-1", "0.03"} <= set(page.texts["text"])
    assert {"driver", "crash", "x", "y", "a", "b", "c", "20%", "60%"} <= set(page.texts["text"])
    assert chart.header == ("row", "a", "b", "c")
    assert chart.rows == (("x", "64%", "16%", ""), ("y", "4%", "-1%", "0.034%"))
