"""Days side by side: estimates with one set of strings, gaps, and changes with their chances."""

import csv
import datetime as dt
import io
import json

import numpy as np
import pytest
from pyarrow import parquet

from hubbub.decoder import CohortCounts, Correction, Decoding
from hubbub.inference import (
    AnomalyReport,
    DayEstimates,
    Trends,
    UndecodableError,
    compare_days,
    decode_days,
)
from hubbub.reporting import Estimates, Provenance, string_findings, trends_estimates
from unit.decoder.decodings import CLEAR, counts_of, make_anomalies, make_provenance
from unit.decoder.pages import Page, assert_accessible, assert_self_contained
from unit.decoder.rendered import csv_of, html_of, json_of, parquet_of, shown

FIRST = dt.date(2026, 11, 1)
STEADY, RISING, HOSTILE = "steady", "rising", "<script>\u202e"
HEADER = (
    "day,kind,string,reports,count,std_error,count_low,count_high,proportion,prop_std_error,prop_low,"
    "prop_high,changed,p_value,q_value,change,weekday_effect,weekly_p_value,weekly_q_value"
)
NAMES = [STEADY, RISING, HOSTILE, *(f"absent {i}" for i in range(20))]


def result_of(
    trends: Trends[Decoding],
    anomalies: AnomalyReport | None = None,
    provenance: Provenance | None = None,
) -> Estimates:
    findings = string_findings(trends.pooled, anomalies)
    return trends_estimates(trends, anomalies, provenance, findings=findings)


def counts_by_day(n_days: int = 8, step: int = 5) -> dict[dt.date, CohortCounts]:
    """Return days on which `rising` doubles, one with few reports, and one without any."""
    by_day = {}
    for index in range(n_days):
        size = 100 if index == 2 else 4000
        rising = size // 5 if index < step else 2 * size // 5
        held = {STEADY: size // 4, RISING: rising, HOSTILE: size // 5}
        held["nobody listed this"] = size - sum(held.values())
        if index != 6:
            by_day[FIRST + dt.timedelta(days=index)] = counts_of(held, seed=100 + index)
    return by_day


@pytest.fixture(scope="module")
def trends() -> Trends[Decoding]:
    return decode_days(counts_by_day(), CLEAR, NAMES, min_reports=1000)


def test_days_are_complete_and_small_ones_are_gaps(trends):
    assert [f"{day:%d}" for day in trends.days] == [f"{i:02}" for i in range(1, 9)]
    assert trends.reports.tolist() == [4000, 4000, 100, 4000, 4000, 4000, 0, 4000]
    assert trends.decoded.tolist() == [True, True, False, True, True, True, False, True]
    assert np.isnan(trends.share[[2, 6]]).all()
    assert trends.pooled.summary.reports == 24_000


def test_every_day_is_estimated_within_its_error(trends):
    """Within 4.9 standard errors, 24 values: P(false alarm) < 3e-5."""
    assert set(trends.followed) == {STEADY, RISING, HOSTILE}
    truth = {STEADY: [0.25] * 8, HOSTILE: [0.2] * 8, RISING: [0.2] * 5 + [0.4] * 3}
    truth[""] = [0.35] * 5 + [0.15] * 3
    for column, name in enumerate(("", *trends.followed)):
        errors = (trends.share[:, column] - truth[name]) / trends.std_error[:, column]
        assert np.nanmax(np.abs(errors)) < 4.9
        np.testing.assert_allclose(
            trends.high[:, column] - trends.low[:, column], 3.92 * trends.std_error[:, column],
            rtol=1e-3,
        )  # fmt: skip


def test_change_is_marked_on_its_day_and_only_there(trends):
    days = {
        name: [trends.days[cut.day].day for cut in cuts]
        for name, cuts in zip(("unknown", *trends.followed), trends.found.changes, strict=True)
    }
    assert days == {STEADY: [], HOSTILE: [], RISING: [6], "unknown": [6]}


def test_no_day_with_enough_reports_is_refused():
    with pytest.raises(UndecodableError, match=r"no day has 5,000 reports.*4,000 on 2026-11-01"):
        decode_days(counts_by_day(3), CLEAR, NAMES, min_reports=5000)


def test_nothing_detected_leaves_nothing_to_follow():
    nothing = decode_days(counts_by_day(3), CLEAR, ["absent 1", "absent 2"], min_reports=1000)
    assert nothing.followed == ()
    assert csv_of(trends_estimates(nothing)) == HEADER + "\n"
    assert json.loads(json_of(trends_estimates(nothing)))["rows"] == []
    assert "No string was detected" in page_of(nothing).html
    assert "Shares day by day" in table_of(nothing)


def test_csv_json_and_parquet_agree(trends):
    result = result_of(trends, make_anomalies(), make_provenance())
    rows = list(csv.DictReader(io.StringIO(csv_of(result), newline="")))
    document = json.loads(json_of(result))
    typed = parquet.read_table(io.BytesIO(parquet_of(result))).to_pylist()
    assert len(rows) == 4 * 8
    assert ",".join(rows[0]) == HEADER
    for row, fields, record in zip(rows, document["rows"], typed, strict=True):
        assert fields == record
        assert (row["day"], row["kind"], row["string"]) == (
            fields["day"], fields["kind"], fields["string"]
        )  # fmt: skip
        assert row["proportion"] == (
            "" if fields["proportion"] is None else f"{fields['proportion']:.10g}"
        )
        assert row["changed"] == str(fields["changed"]).lower()
    assert sum(fields["changed"] for fields in document["rows"]) == 2
    assert [row["string"] for row in rows[-8:]] == [""] * 8
    assert {row["kind"] for row in rows[-8:]} == {"unknown"}
    assert document["days"][2] == {"day": "2026-11-03", "reports": 100, "decoded": False}
    (rising,) = [each for each in document["series"] if each["string"] == RISING]
    assert [cut["day"] for cut in rising["changes"]] == ["2026-11-06"]
    said = [each for each in document["findings"] if each["code"] == "change"]
    assert [each["value"] for each in said] == [["2026-11-06"], ["2026-11-06"]]
    assert said[0]["text"] == "rising: 21.8% → 40.7% since 6 November"


def table_of(trends: Trends[Decoding]) -> str:
    return shown(result_of(trends), width=160)


def test_table_shows_courses_gaps_and_changes(trends):
    text = table_of(trends)
    assert "→ 40.7% since 6 November" in text
    assert "6 of 8 decoded; the others have fewer than 1,000 reports each: 2026-11-03" in text
    assert r"<script>\u202e" in text
    assert "\u202e" not in text
    assert "unknown" in text


@pytest.fixture(scope="module")
def weekly(trends) -> Trends[Decoding]:
    """Return four weeks from a Sunday: of the first of two series, weekends and one day differ."""
    std_error, rng = np.full(2, 0.01), np.random.default_rng(1)
    days = {FIRST + dt.timedelta(days=i): counts_of({STEADY: 9}, seed=i) for i in range(28)}
    estimates = {}
    for index, day in enumerate(days):
        share = np.full(2, 0.2) + rng.normal(size=2) * std_error
        share[0] += 0.1 * (day.weekday() >= 5) + 0.2 * (index == 17)
        estimates[day] = DayEstimates.normal(share, std_error, std_error**2)
    return compare_days(
        days,
        estimates,
        np.zeros(2),
        trends.pooled,
        kind="category",
        followed=("one", "other"),
        alpha=0.05,
        correction=Correction.BH,
        min_reports=1,
    )


def test_a_weekly_pattern_is_shown_by_weekday_with_a_spike(weekly):
    """Within 4.9 standard errors, seven weekdays: P(false alarm) < 1e-5; seeded."""
    text = table_of(weekly)
    assert "on 18 November, " in text
    document = json.loads(json_of(result_of(weekly)))
    assert [each["value"] for each in document["findings"] if each["code"] == "weekly"] == [1]
    one, other = (each["weekly"] for each in document["series"])
    assert other["effect"] is None
    for day, effect in one["effect"].items():
        truth = 0.1 * (day in {"Saturday", "Sunday"}) - 0.2 / 7
        assert abs(effect - truth) < 4.9 * one["std_error"][day]
    rows = [row for row in document["rows"] if row["category"] == "one"]
    assert rows[0]["weekday_effect"] == one["effect"]["Sunday"]
    assert [row["day"] for row in rows if row["change"] == "spike"] == ["2026-11-18"]
    assert {row["weekday_effect"] for row in document["rows"][28:]} == {None}
    page = page_of(weekly)
    assert_accessible(page)
    assert "Weekly patterns" in page.html
    dashed = [each for each in page.all("path") if each.get("stroke-dasharray") == "5,3"]
    assert len([each for each in dashed if each.get("d")]) == 1


def test_what_chance_may_have_made_is_not_marked_and_not_said(trends):
    """The first change's p-value is above a bound for so many looks."""
    for looks, n_changes in ((10, 2), (10**300, 0)):
        result = trends_estimates(trends, looks=looks)
        lines = [each.get("stroke") for each in Page(html_of(result)).all("line")]
        assert lines.count("var(--warn)") == n_changes
        assert [each.code for each in result.findings].count("change") == n_changes


def page_of(trends: Trends[Decoding]) -> Page:
    return Page(html_of(result_of(trends, make_anomalies(), make_provenance())))


def test_report_has_a_chart_a_series_with_its_changes(trends):
    page = page_of(trends)
    assert_accessible(page)
    assert_self_contained(page)
    assert len(page.all("svg")) == 4
    assert page_of(trends).html == page.html
    marks = [each for each in page.all("line") if each.get("stroke") == "var(--warn)"]
    assert len(marks) == 2
    gaps = [each for each in page.all("path") if each.get("fill") == "var(--grid)"]
    assert len(gaps) == 8
    assert "2 of 4 series changed" in page.html
    assert "nan" not in "".join(page.texts["desc"])
