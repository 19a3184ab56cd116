"""Reports are one accessible page that needs nothing else, whatever strings are in it."""

import math
import re
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from evaluation.studies.categories import LOOSE, boolean, ordinal
from hubbub.decoder import Decoding, decode, decode_categories
from hubbub.inference import AnomalyReport
from hubbub.reporting import categories_estimates, strings_estimates
from parameters import examples
from unit.decoder.decodings import CLEAR, counts_of, make_anomalies, make_decoding, make_provenance
from unit.decoder.pages import Page, assert_accessible, assert_self_contained, contrast
from unit.decoder.rendered import html_of

HOSTILE = (
    "<script>alert(1)</script>",
    "</title><h1>mine</h1>",
    '" onmouseover="alert(1)',
    "'><img src=x onerror=alert(1)>",
    "]]></style><style>*{display:none}",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;",
    "\x1b[31mred",
    "\u202eright to left",
    "zero\u200bwidth",
    "",
    " x ",
)
INVISIBLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")


def page_of(decoding: Decoding, anomalies: AnomalyReport | None = None) -> Page:
    return Page(html_of(strings_estimates(decoding, anomalies, make_provenance())))


@pytest.fixture(scope="module")
def decoded() -> Decoding:
    held = {"alpha": 4000, "beta": 2500, "gamma": 1500, "nobody listed this": 2000}
    names = ["alpha", "beta", "gamma", *(f"absent {i}" for i in range(60))]
    return decode(counts_of(held), CLEAR, names)


def test_report_is_accessible_and_self_contained(decoded):
    page = page_of(decoded, make_anomalies())
    assert_accessible(page)
    assert_self_contained(page)
    assert "prefers-color-scheme: dark" in page.html
    assert "@media print" in page.html


def test_every_chart_has_its_numbers_as_a_table(decoded):
    page = page_of(decoded)
    assert len(page.all("details")) - 1 == len(page.all("svg")) == 1  # one is for statisticians
    numbers = next(text for text in page.texts["details"] if "Estimated shares" in text)
    assert f"{100 * decoded.share[0]:.4g}%" in numbers


def test_suspicious_reports_are_named_at_the_top():
    anomalies = replace(make_anomalies(), improbable=1234)
    page = page_of(make_decoding(["a"]), anomalies)
    head = page.html[: page.html.index("<main>")]
    assert "1,234 reports" in head
    assert "SUSPICIOUS" not in page_of(make_decoding(["a"]), make_anomalies()).html


def test_hostile_strings_stay_strings():
    page = page_of(make_decoding(HOSTILE))
    assert_accessible(page)
    assert_self_contained(page)
    for string in HOSTILE[:7]:
        assert any(string == text for text in page.texts["th"]), string
    assert r"\x1b[31mred" in page.texts["th"]
    assert r"\u202eright to left" in page.texts["th"]
    assert r"zero\u200bwidth" in page.texts["th"]


@examples(25)
@given(st.lists(st.text(), min_size=1, max_size=5, unique=True))
@example(["\r", "\n", "\0"])
def test_no_string_breaks_the_page_or_hides_in_it(strings):
    page = page_of(make_decoding(strings))
    assert_accessible(page)
    assert not INVISIBLE.search(page.html)


def test_undetermined_figures_leave_no_nan():
    decoding = make_decoding(["a", "b"], [math.nan] * 2, [False] * 2, unknown_share=math.nan)
    page = page_of(decoding)
    assert_accessible(page)
    assert "NaN" not in page.html
    svgs = re.findall("<svg.*?</svg>", page.html, re.DOTALL)
    assert not any("nan" in svg for svg in svgs)


@pytest.mark.parametrize("case", [boolean(0.3, 20_000, LOOSE), ordinal(12, 20_000, LOOSE)],
                         ids=lambda case: case.name)  # fmt: skip
def test_categories_have_a_report_of_the_same_kind(case):
    decoding = decode_categories(case.draw(np.random.default_rng(7)), case.metric)
    page = Page(html_of(categories_estimates(decoding, make_anomalies(), make_provenance())))
    assert_accessible(page)
    assert_self_contained(page)
    assert ("Quantiles" in page.texts["h2"]) == (decoding.ordinal is not None)
    assert all(name in page.texts["th"] for name in decoding.categories)


def test_colours_are_readable_in_light_dark_and_print():
    """Text against its background by at least 4.5, marks by at least 3 (WCAG 2.2 AA)."""
    folder = resources.files("hubbub.reporting")
    css = folder.joinpath("templates/palette.css").read_text("utf-8")
    palettes = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    assert len(palettes) == 3
    for palette in palettes:
        colours = dict(re.findall(r"--(\w+): (#\w{6})", palette))
        for name in ("ink", "quiet", "accent", "warn"):
            assert contrast(colours[name], colours["paper"]) >= 4.5, (name, palette)
        for name in ("paper", "ink"):
            assert contrast(colours["mark"], colours[name]) >= 3, (name, palette)
        for series in ("accent", "series1", "series2", "series3"):
            assert contrast(colours[series], colours["paper"]) >= 3, (series, palette)
        assert contrast(colours["accent"], colours["band"]) >= 3
        for filled in ("heat", "cool", "band", "paper"):
            assert contrast(colours["ink"], colours[filled]) >= 4.5, (filled, palette)
