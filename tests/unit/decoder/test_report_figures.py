"""Charts put numbers where they belong, and say in words what they show."""

import itertools
import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import image

from hubbub.reporting.charts import (
    GroupedBars,
    HeatMap,
    Histogram,
    Interval,
    IntervalChart,
    Labels,
    Series,
    XYChart,
    in_percent,
    span_of,
)
from hubbub.reporting.formats.drawings import draw
from hubbub.reporting.formats.picture import write_picture
from hubbub.reporting.formats.svg import Scale, number, tag
from hubbub.reporting.strings import (
    bits_chart,
    cohorts_chart,
    p_value_chart,
    residuals_chart,
    strongest_chart,
)
from unit.decoder.decodings import make_decoding, make_diagnostics
from unit.decoder.pages import Page

finite = st.floats(-1e9, 1e9)


@given(finite, finite, finite)
def test_scale_keeps_every_value_inside(low, high, value):
    scale = Scale(*span_of([low, high]), 10.0, 20.0)
    assert 10.0 <= scale(value) <= 20.0


@given(finite, st.floats(1e-6, 1e9))
def test_ticks_are_few_even_and_inside(low, span):
    scale = Scale(low, low + span, 0.0, 1.0)
    ticks = scale.ticks()
    slack = 1e-6 * span + 1e-9 * abs(low)
    assert len(ticks) <= 7
    assert all(low - slack <= tick <= low + span + slack for tick in ticks)


def test_ticks_are_round():
    assert Scale(0.0, 10.0, 0.0, 1.0).ticks() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert Scale(-0.3, 0.9, 0.0, 1.0).ticks() == pytest.approx([-0.25, 0.0, 0.25, 0.5, 0.75])


@given(st.floats(1e-9, 1e9), st.floats(1.001, 1e12), st.floats(1e-12, 1e12))
def test_logarithmic_scale_keeps_every_value_inside(low, times, value):
    scale = Scale(low, low * times, 10.0, 20.0, log=True)
    assert 10.0 <= scale(value) <= 20.0
    assert 10.0 <= scale(-value) <= 20.0
    assert len(scale.ticks()) <= 8


def test_ticks_of_a_logarithmic_scale_are_powers_and_of_a_short_one_more():
    assert Scale(10.0, 1e4, 0.0, 1.0, log=True).ticks() == [10.0, 100.0, 1e3, 1e4]
    assert Scale(0.3, 4.0, 0.0, 1.0, log=True).ticks() == [0.5, 1.0, 2.0]
    assert Scale(2.2, 4.8, 0.0, 1.0, log=True).ticks() == [3.0, 4.0]


def test_equal_factors_are_equally_far_on_a_logarithmic_scale():
    scale = Scale(1.0, 1e4, 0.0, 400.0, log=True)
    assert [scale(10.0**power) for power in range(5)] == pytest.approx([0, 100, 200, 300, 400])


def test_numbers_and_elements_have_one_form():
    assert [number(x) for x in (1.0, 1.005, -0.001, 12.3456)] == ["1", "1", "0", "12.35"]
    assert tag("text", "<a & b>", x=1.5, class_="x\"y") == (
        '<text x="1.5" class="x&#34;y">&lt;a &amp; b&gt;</text>'
    )  # fmt: skip


def test_intervals_are_drawn_to_scale():
    labels = Labels("a", "Title", "Words", "share")
    chart = IntervalChart(
        labels, [Interval("x", 50.0, 0.0, 100.0), Interval("y", 25.0, 20.0, 30.0)]
    )
    page = Page(draw(chart))
    first, second = page.all("circle")
    bars = [each for each in page.all("line") if each["class"] == "bar"]
    middle = (float(bars[0]["x1"]) + float(bars[0]["x2"])) / 2
    assert float(first["cx"]) == pytest.approx(middle)
    assert float(second["cx"]) < middle
    assert chart.rows == (("x", "50%", "0%", "100%"), ("y", "25%", "20%", "30%"))


def test_histogram_is_as_high_as_its_counts():
    labels = Labels("a", "Title", "Words", "x", "n")
    chart = Histogram(labels, np.array([1.0, 4.0, 0.0]), np.arange(4.0), np.full(3, 2.0))
    heights = [float(bar["height"]) for bar in Page(draw(chart)).all("rect")]
    assert heights[1] == pytest.approx(4 * heights[0], abs=0.05)
    assert heights[2] == 0
    assert [row[1] for row in chart.rows] == ["1", "4", "0"]


def array(*numbers: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array(numbers, dtype=np.float64)


def test_series_have_a_legend_error_bars_and_shapes_of_their_own():
    series = [
        Series("one", array(0, 1, 2), array(1, 2, 3), low=array(0, 1, 2), high=array(2, 3, 4)),
        Series("two", array(0, 1, 2), array(3, 2, 1)),
        Series("a line to compare with", array(0, 2), array(0, 4), "reference"),
    ]
    chart = XYChart(Labels("a", "Title", "Words", "x", "y"), series)
    page = Page(draw(chart))
    assert [text for text in page.texts["text"] if text in {each.label for each in series}] == [
        each.label for each in series
    ]
    bars = [each for each in page.all("line") if each["class"] == "bar bar0"]
    lengths = [abs(float(bar["y2"]) - float(bar["y1"])) for bar in bars]
    assert lengths == pytest.approx([125.0] * 3)
    # three marks and one in the legend: circles for one series, squares for the other
    assert len(page.all("circle")) == len(page.all("rect")) == 4
    classes = [each["class"] for each in page.all("polyline")]
    assert classes == ["line line0"] * 2 + ["line line1"] * 2 + ["expected"] * 2
    assert chart.rows[0] == ("one", "", "0", "1", "0 to 2")
    assert chart.rows[3] == ("two", "", "0", "3", "")


def test_points_without_a_place_on_the_axes_are_left_out():
    nowhere = Series("points", array(0.0, 1.0, 10.0, 100.0), array(1.0, np.nan, 0.0, 5.0), "points")
    chart = XYChart(Labels("a", "Title", "Words"), [nowhere], log_x=True, log_y=True)
    assert len(Page(draw(chart)).all("circle")) == 1 + 1
    assert len(chart.rows) == 4
    assert draw(XYChart(Labels("a", "Title", "Words"), [], log_x=True, log_y=True))


def test_names_lie_on_nothing_and_those_without_room_are_left_to_the_table():
    """Thirty points in a heap and one apart, with error bars and a line through all of them."""
    names = (*(f"name {i}" for i in range(30)), "far away")
    x, y = array(*np.linspace(4.9, 5.1, 30), 0.5), array(*([5.0] * 30), 1.0)
    points = Series("s", x, y, "points", y - 0.5, y + 2, names)
    line = Series("line", array(0, 6), array(0, 6), "reference")
    drawing = draw(XYChart(Labels("a", "T", "W"), [points, line]))
    texts = ET.fromstring(drawing).iter("{http://www.w3.org/2000/svg}text")  # noqa: S314 - ours
    written = {text.text: text.attrib for text in texts if text.text in names}
    assert 2 <= len(written) < 30
    assert "far away" in written
    boxes = []
    for text, place in written.items():
        width = 6.0 * len(str(text))
        left = float(place["x"]) - (width if place["text-anchor"] == "end" else 0)
        boxes.append((left, float(place["y"]) - 9, left + width, float(place["y"]) + 2))
    bars = [bar for bar in Page(drawing).all("line") if "bar" in bar["class"]]
    assert len(bars) == 31
    for bar in bars:
        left, top, right, bottom = (float(bar[end]) for end in ("x1", "y2", "x2", "y1"))
        boxes.append((left, top, right, bottom))
    for one, other in itertools.combinations(boxes, 2):
        if one in boxes[: len(written)]:
            apart = one[2] <= other[0] or other[2] <= one[0]
            assert apart or one[3] <= other[1] or other[3] <= one[1], (one, other)
    assert [row[1] for row in XYChart(Labels("a", "T", "W"), [points]).rows] == list(names)


def test_long_labels_are_shortened_in_the_middle_and_told_whole():
    long = "https://example.com/" + "x" * 100 + "/index.html"
    chart = IntervalChart(Labels("a", "T", "W"), in_percent([long], *(array(0.5),) * 3))
    page = Page(draw(chart))
    (label,) = (text for text in page.texts["text"] if text.startswith("https"))
    assert label == "https://example.…xxxx/index.html" + long  # the last being its title
    assert long in page.texts["title"]
    assert chart.rows[0][0] == long


def test_cloud_of_many_points_is_cells_and_a_short_table(rng):
    x = rng.exponential(size=5_000)
    chart = XYChart(Labels("a", "T", "W", "x", "y"), [Series("s", x, 2 * x, "cloud")])
    page = Page(draw(chart))
    assert len(page.all("circle")) == 1
    assert 20 < len(page.all("rect")) <= 48 * 48
    assert [row[1] for row in chart.rows] == ["500 points"] * 10


def test_grouped_bars_are_as_high_as_their_numbers():
    groups = (("recall", array(0.5, 1.0)), ("precision", array(np.nan, 0.25)))
    chart = GroupedBars(Labels("a", "T", "W", "share", "part"), ("few", "many"), groups)
    heights = [float(bar["height"]) for bar in Page(draw(chart)).all("rect")]
    assert heights == pytest.approx([10, 125, 250, 10, 62.5])  # each group's legend first
    assert chart.header == ("share", "recall", "precision")
    assert chart.rows == (("few", "0.5", ""), ("many", "1", "0.25"))


WORDS = Labels("a", "T", "W", "driver", "crash")


def cells_of(page: Page, rows: int, columns: int) -> list[dict[str, str]]:
    """Return the cells of a heat map, row by row: they are drawn first."""
    return page.all("rect")[: rows * columns]


def test_cells_are_as_deep_as_the_root_of_their_share_and_hold_it():
    values = np.array([[64.0, 16.0, np.nan], [4.0, -1.0, 0.034]])
    chart = HeatMap(WORDS, ("x", "y"), ("a", "b", "c"), values, array(80, 3), array(68, 15, np.nan))
    page = Page(draw(chart))
    cells = cells_of(page, 2, 3)
    assert [cell["class"] for cell in cells] == ["heat", "heat", "gap", "heat", "heat", "heat"]
    depths = [float(cell.get("fill-opacity", "nan")) for cell in cells]
    assert depths == pytest.approx([1, 0.5, np.nan, 0.25, 0, 0.02], abs=0.005, nan_ok=True)
    numbers = [text for text in page.texts["text"] if re.fullmatch(r"-?[\d.]+", text)]
    assert numbers == ["64", "16", "4.0", "-1.0", "0.03", "80", "3.0", "68", "15"]
    assert {"driver", "crash", "x", "y", "a", "b", "c", "0%", "16%", "64%"} <= set(
        page.texts["text"]
    )
    assert chart.header == ("row", "a", "b", "c", "all")
    assert chart.rows == (
        ("x", "64%", "16%", "", "80%"),
        ("y", "4%", "-1%", "0.034%", "3%"),
        ("all", "68%", "15%", "", ""),
    )


def test_margins_are_bars_beside_and_below_the_cells():
    margins = array(40, 10), array(30, 20)
    page = Page(draw(HeatMap(WORDS, ("x", "y"), ("a", "b"), np.full((2, 2), 10.0), *margins)))
    bars = [rect for rect in page.all("rect") if rect["class"] == "band"]
    widths, heights = ([float(bar[size]) for bar in bars] for size in ("width", "height"))
    assert widths[0] == pytest.approx(4 * widths[1])
    assert heights[2] == pytest.approx(1.5 * heights[3], abs=0.02)
    last = cells_of(page, 2, 2)[-1]
    assert float(bars[0]["x"]) > float(last["x"]) + float(last["width"])
    assert float(bars[2]["y"]) > float(last["y"]) + float(last["height"])


def test_factors_are_of_one_hue_above_1_and_of_another_below():
    values = np.array([[4.0, 2.0, 1.0], [0.5, 0.25, 0.0]])
    chart = HeatMap(WORDS, ("x", "y"), ("a", "b", "c"), values, diverging=True, unit="")
    page = Page(draw(chart))
    cells = cells_of(page, 2, 3)
    assert [cell["class"] for cell in cells] == ["heat"] * 3 + ["cool"] * 3
    depths = [float(cell["fill-opacity"]) for cell in cells]
    assert depths == pytest.approx([1, 0.5, 0, 0.5, 1, 1])
    assert page.texts["text"][-5:] == ["0.25", "0.5", "1", "2", "4"]
    assert chart.rows[1] == ("y", "0.5", "0.25", "0")


@pytest.mark.parametrize(
    ("rows", "columns"), [(1, 1), (30, 20), (100, 20), (30, 30), (5, 90), (400, 30)]
)
def test_heat_map_of_any_size_stays_inside_and_has_numbers_up_to_twenty_columns(rows, columns):
    down, across = (tuple(f"n{i}" for i in range(size)) for size in (rows, columns))
    values = np.full((rows, columns), 12.3)
    chart = HeatMap(WORDS, down, across, values, np.full(rows, 50.0), np.full(columns, 50.0))
    page = Page(draw(chart))
    width, height = (float(end) for end in page.all("svg")[0]["viewbox"].split()[2:])
    for rect in page.all("rect"):
        assert 0 <= float(rect["x"]) <= float(rect["x"]) + float(rect["width"]) <= width
        assert 0 <= float(rect["y"]) <= float(rect["y"]) + float(rect["height"]) <= height
    assert page.texts["text"].count("12") == (0 if columns > 20 or rows > 66 else rows * columns)
    places = [float(text["y"]) for text in page.all("text") if text.get("text-anchor") == "end"]
    downwards = places[1 : -1 if rows > 1 else None]
    assert all(below - above >= 11.9 for above, below in itertools.pairwise(downwards))


def test_long_column_names_are_written_upright_and_short_ones_are_not():
    def turned(*names: str) -> int:
        chart = HeatMap(WORDS, ("x",), names, np.ones((1, len(names))))
        return sum("transform" in text for text in Page(draw(chart)).all("text"))

    assert turned("no", "yes") == 0
    assert turned("no", "Intel(R) UHD Graphics 620") == 2


def test_small_share_is_paler_in_the_picture_as_well(tmp_path):
    """A picture has a heading of 34 and is painted with four points a pixel of the drawing."""
    chart = HeatMap(WORDS, ("x",), ("a", "b"), np.array([[60.0, 0.6]]))
    write_picture(tmp_path / "heat.png", [chart])
    pixels = image.imread(tmp_path / "heat.png")[..., :3]
    cells = cells_of(Page(draw(chart)), 1, 2)
    corners = [[2 * (float(cell[name]) + 3) for name in ("x", "y")] for cell in cells]
    strong, pale = (pixels[round(y + 2 * 34), round(x)] for x, y in corners)
    assert strong.mean() < pale.mean() - 0.2
    assert pale.mean() < 1 - 0.01


def test_few_bits_are_points_and_many_are_cells():
    few, many = bits_chart(make_diagnostics(8, 32)), bits_chart(make_diagnostics(64, 128))
    assert len(Page(draw(few)).all("circle")) == 7 * 32
    assert len(Page(draw(many)).all("circle")) == 0
    assert 20 < len(Page(draw(many)).all("rect")) <= 48 * 48
    assert len(draw(many)) < 200_000
    assert "8,064 bits" in many.labels.description
    assert sum(int(row[1]) for row in many.rows) == 63 * 128


def test_residuals_of_a_good_fit_have_unit_spread_and_of_a_bad_one_more():
    told = [
        residuals_chart(make_diagnostics(64, 128, spread)).labels.description
        for spread in (1.0, 2.0)
    ]
    spreads = [float(re.findall(r"deviation ([\d.]+)", text)[0]) for text in told]
    assert spreads == pytest.approx([1.0, 2.0], abs=0.05)
    chart = residuals_chart(make_diagnostics(64, 128, 2.0))
    assert sum(float(row[1]) for row in chart.rows) == 63 * 128


@pytest.mark.parametrize("m", [1, 16, 1000])
def test_cohort_sizes_are_told_for_any_number_of_cohorts(m):
    chart = cohorts_chart(np.arange(m) + 10)
    assert f"{m:,} cohorts with 10 to {m + 9:,} reports" in chart.labels.description
    assert len(Page(draw(chart)).all("rect")) == min(m, 32 if m > 128 else m)


def test_p_values_are_counted_against_the_flat_line():
    chart = p_value_chart(make_decoding([f"{i}" for i in range(40)]))
    assert chart
    assert "40 of 40 candidates have a p-value below 0.05; 2 would" in chart.labels.description
    assert chart.rows[0][1:] == ("40", "2")


def test_no_detection_no_chart():
    assert strongest_chart(make_decoding(["a"], detected=[False])) is None
