"""What a notebook makes of a result: tables of three libraries, HTML, drawings, text."""

import base64
import json
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from evaluation.studies.categories import LOOSE, ordinal
from hubbub.decoder import decode_categories
from hubbub.reporting import CHUNK, Estimates, categories_estimates, strings_estimates
from unit.decoder.decodings import make_decoding, make_provenance
from unit.decoder.pages import Page, assert_self_contained
from unit.decoder.rendered import csv_of

STRANGE = ["<script>alert(1)</script>", "a\nb", "日本語", "", "& 'quoted\" {{ x }}"]


def strings(n: int = len(STRANGE), limit: int = 40) -> Estimates:
    names = [*STRANGE, *(f"string {i}" for i in range(n - len(STRANGE)))]
    share = [0.2, math.nan, *[0.1] * (n - 2)]
    return strings_estimates(make_decoding(names, share), provenance=make_provenance(), limit=limit)


def categories() -> Estimates:
    case = ordinal(5, 1_000, LOOSE)
    return categories_estimates(decode_categories(case.draw(np.random.default_rng(1)), case.metric))


@pytest.mark.parametrize("result", [strings(), categories()], ids=["strings", "ordinal"])
def test_three_libraries_read_the_same_rows_and_columns(result):
    arrow = pa.table(result)
    assert arrow.column_names == list(result.types)
    text = csv_of(result)
    assert arrow.num_rows == len(pd.DataFrame.from_arrow(result)) == len(pl.DataFrame(result)) > 4
    assert pl.DataFrame(result).to_dicts() == arrow.to_pylist()
    frame = pd.DataFrame.from_arrow(result)
    assert list(frame.columns) == arrow.column_names
    assert frame["detected"].tolist() == arrow["detected"].to_pylist()
    assert text.partition("\n")[0] == ",".join(arrow.column_names)


def test_strings_arrive_exactly_and_unknown_numbers_are_null():
    frame = pl.DataFrame(strings())
    assert frame["string"].to_list() == STRANGE
    assert frame["proportion"].to_list() == [0.2, None, *[0.1] * 3]
    assert pd.DataFrame.from_arrow(strings())["proportion"].isna().tolist() == [
        False,
        True,
        *[False] * 3,
    ]


def test_many_rows_come_in_parts_and_bring_the_summary():
    n = 2 * CHUNK + 1
    reader = pa.RecordBatchReader.from_stream(strings(n))
    assert [len(batch) for batch in reader] == [CHUNK, CHUNK, 1]
    metadata = pa.table(strings(n)).schema.metadata
    assert json.loads(metadata[b"hubbub.summary"])["candidates"] == n


def test_html_is_escaped_and_shows_no_more_rows_than_a_terminal():
    html = strings(3_000, limit=7)._repr_html_()
    page = Page(html)
    assert_self_contained(page)
    assert not page.all("script")
    assert "&lt;script&gt;" in html
    assert len(page.all("tr")) < 7 + 30
    assert "… and 2,993 more; tables made of the result hold them all." in html
    assert "unknown mass" in html


def test_long_strings_are_shortened_and_whole_in_their_title():
    long = "https://example.com/" + "x" * 500 + "/end"
    result = strings_estimates(make_decoding([long]), provenance=make_provenance())
    (name,) = [head for head in Page(result._repr_html_()).all("th") if head.get("title") == long]
    assert name["scope"] == "row"
    assert f">{long}<" not in result._repr_html_()
    assert long not in repr(result)
    assert pl.DataFrame(result)["string"].to_list() == [long]


@pytest.mark.parametrize("result", [strings(), categories()], ids=["strings", "ordinal"])
def test_plot_is_an_image_that_says_what_it_shows(result, tmp_path):
    drawing = result.plot()
    (chart,) = drawing.charts
    assert chart.labels.title == "Estimated shares"
    (image,) = Page(drawing._repr_html_()).all("img")
    assert image["alt"] == repr(drawing) == f"Estimated shares: {chart.labels.description}"
    kind, _, data = image["src"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(data).decode("utf-8") == drawing.svg
    assert "prefers-color-scheme: dark" in drawing.svg
    drawing.save(tmp_path / "shares.svg")
    assert (tmp_path / "shares.svg").read_text("utf-8") == drawing.svg
    drawing.save(str(tmp_path / "shares.png"))
    assert (tmp_path / "shares.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"shares\.pdf: must end in \.svg or \.png"):
        drawing.save("shares.pdf")
