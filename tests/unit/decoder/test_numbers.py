"""Means and variances of numbers: exact on expected counts, and the same in every format."""

import csv
import datetime as dt
import io
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from evaluation.drawn_counts import draw_cells
from factories import make_metric
from hubbub.client import Metric
from hubbub.decoder import CohortCounts
from hubbub.inference import (
    DecoderError,
    FloatArray,
    RepeatedReports,
    UndecodableError,
    cell_chances,
    cell_weights,
    decode_number_days,
    decode_numbers,
    estimate_numbers,
)
from hubbub.protocol import EnumType, NumberType, Window
from hubbub.reporting import number_findings, numbers_estimates, trends_estimates
from unit.decoder.decodings import make_anomalies, make_provenance
from unit.decoder.pages import Page, assert_accessible, assert_self_contained
from unit.decoder.rendered import csv_of, html_of, json_of, parquet_of, shown

LOW, HIGH = -20.0, 40.0
FIRST = dt.date(2026, 11, 1)


def metric_of(*, variance: bool = False, chance: float = 0.75) -> Metric:
    a_type = NumberType(LOW, HIGH, 8, 4, variance)
    return make_metric(metric_type=a_type, response=Window(8, 4, chance), mode="one-time")


def expected_counts(metric: Metric, n: int, *starts: FloatArray) -> CohortCounts:
    """Return the counts of so many reports in each cohort, from windows' beginnings."""
    bits = np.zeros((metric.params.m, metric.params.k))
    for cohort, begin in enumerate(starts):
        bits[cohort] = n * begin @ cell_chances(8, 4, 0.75)
    return CohortCounts(np.full(metric.params.m, n), np.rint(bits).astype(np.int64))


def test_the_mean_and_its_error_are_those_of_all_reports_weighed():
    metric, n = metric_of(), 10**6
    starts = np.array([0.1, 0.2, 0.3, 0.4, 0.0])
    found = estimate_numbers(expected_counts(metric, n, starts), metric)
    mean = starts @ np.linspace(0, 1, 5)
    assert found.unbiased[0] == pytest.approx(LOW + 60 * mean)
    chances, weights = starts @ cell_chances(8, 4, 0.75), cell_weights(8, 4, 0.75)
    exact = (chances @ weights**2 - mean**2) / n
    assert found.std_error[0] == pytest.approx(60 * np.sqrt(exact), rel=1e-5)
    assert found.low[0] < found.unbiased[0] < found.high[0]


def test_the_variance_is_that_of_the_numbers():
    """Half at -20 and half at 10, of which the squares are at 0 and a quarter."""
    metric = metric_of(variance=True)
    starts, squares = np.array([0.5, 0, 0.5, 0, 0]), np.array([0.5, 0.5, 0, 0, 0])
    decoding = decode_numbers(expected_counts(metric, 10**8, starts, squares), metric)
    assert decoding.statistics == ("mean", "variance")
    np.testing.assert_allclose(decoding.estimates.unbiased, [-5, 225], rtol=1e-4)


def test_the_variances_standard_error_is_that_of_its_estimates_scatter():
    """400 populations: P(false alarm) < 1e-6 (normal); seeded."""
    metric, rng = metric_of(variance=True), np.random.default_rng(1)
    values, shares = np.array([LOW, 0.0, 25.0]), np.array([0.3, 0.5, 0.2])
    found = [estimate_numbers(draw_cells(metric, values.tolist(), shares, 20_000, rng), metric)
             for _ in range(400)]  # fmt: skip
    estimates = np.array([each.unbiased for each in found])
    truth = shares @ values, shares @ values**2 - (shares @ values) ** 2
    scatter, stated = estimates.std(axis=0, ddof=1), np.mean([each.std_error for each in found], 0)
    assert (np.abs(estimates.mean(axis=0) - truth) < 6 * scatter / 20).all()
    np.testing.assert_allclose(stated, scatter, rtol=6 / np.sqrt(2 * 400))


def test_clients_that_answer_in_several_periods_count_as_fewer_people():
    """400 populations of 500 clients, each of which answers ten times; P(false alarm) < 1e-6."""
    metric, rng = metric_of(), np.random.default_rng(9)
    often, found = RepeatedReports(clients=10.0), []
    for _ in range(400):
        held = rng.multinomial(500, [0.5, 0.5])
        both = [draw_cells(metric, [value], np.ones(1), 10 * int(n), rng)
                for value, n in zip((LOW, HIGH), held, strict=True)]  # fmt: skip
        counts = both[0] + both[1]
        found.append([*estimate_numbers(counts, metric, often).unbiased,
                      *estimate_numbers(counts, metric, often).std_error,
                      *estimate_numbers(counts, metric).std_error])  # fmt: skip
    estimates, known, ignored = np.array(found).T
    scatter = estimates.std(ddof=1)
    assert known.mean() == pytest.approx(scatter, rel=6 / np.sqrt(2 * 400))
    assert ignored.mean() < 0.7 * scatter


def test_in_several_periods_the_mean_and_the_variance_err_together():
    """400 populations of 500 clients in six periods, with a cohort each; P(false alarm) < 1e-6."""
    metric, rng = metric_of(variance=True, chance=0.98), np.random.default_rng(10)
    often, values, found = RepeatedReports(clients=6.0), (LOW, 10.0, HIGH), []
    for _ in range(400):
        held = rng.multinomial(500, [0.2, 0.2, 0.6])
        counts = [draw_cells(metric, [value], np.ones(1), 6 * int(n), rng)
                  for value, n in zip(values, held, strict=True)]  # fmt: skip
        found.append(estimate_numbers(counts[0] + counts[1] + counts[2], metric, often))
    scatter = np.std([each.unbiased for each in found], axis=0, ddof=1)
    stated = np.mean([each.std_error for each in found], axis=0)
    np.testing.assert_allclose(stated, scatter, rtol=6 / np.sqrt(2 * 400))


def test_reports_of_one_cell_too_many_are_no_honest_ones():
    metric = metric_of()
    counts = draw_cells(metric, [3.0], np.ones(1), 1_000, np.random.default_rng(2))
    assert not numbers_estimates(decode_numbers(counts, metric)).suspicious
    counts.bits[0, 0] += 1
    found = numbers_estimates(decode_numbers(counts, metric))
    assert found.suspicious
    assert "honest clients never send others" in shown(found)


def test_a_forged_report_moves_the_mean_by_at_most_what_is_stated():
    metric = metric_of()
    counts = expected_counts(metric, 99_000, np.array([0.1, 0.2, 0.3, 0.4, 0.0]))
    before = decode_numbers(counts, metric)
    moved = []
    for cell in range(8):  # one report in a hundred is forged
        bits = counts.bits.copy()
        bits[0, cell] += 1_000
        after = estimate_numbers(CohortCounts(counts.reports + 1_000, bits), metric)
        moved.append(abs(after.unbiased[0] - before.estimates.unbiased[0]))
    assert max(moved) == pytest.approx(before.summary.forgery_shift, rel=1e-3)


def test_other_types_empty_cohorts_and_other_shapes_are_refused():
    metric = metric_of(variance=True)
    nobody = expected_counts(metric, 1, np.eye(5)[0], np.eye(5)[0])
    nobody.reports[1] = 0
    with pytest.raises(UndecodableError, match="no reports in one of the two cohorts"):
        decode_numbers(nobody, metric)
    with pytest.raises(UndecodableError, match="must be"):
        decode_numbers(expected_counts(metric_of(), 1, np.eye(5)[0]), metric)
    with pytest.raises(DecoderError, match="type = 'enum': must be 'number'"):
        decode_numbers(nobody, make_metric(metric_type=EnumType(("a", "b"))))


@pytest.fixture(scope="module")
def estimates():
    metric = metric_of(variance=True)
    counts = draw_cells(metric, [0.0, 30.0], np.array([0.5, 0.5]), 50_000, np.random.default_rng(4))
    return numbers_estimates(decode_numbers(counts, metric), make_anomalies(), make_provenance())


def test_every_format_has_a_row_for_each_statistic(estimates):
    rows = list(csv.DictReader(io.StringIO(csv_of(estimates))))
    assert [each["statistic"] for each in rows] == ["mean", "variance"]
    assert list(rows[0]) == ["statistic", "estimate", "std_error", "low", "high", "unbiased"]
    assert float(rows[0]["low"]) < 15 < float(rows[0]["high"])
    assert float(rows[1]["low"]) < 225 < float(rows[1]["high"])
    document = json.loads(json_of(estimates))
    assert document["summary"]["type"] == "number"
    assert document["rows"][0]["estimate"] == pytest.approx(float(rows[0]["estimate"]))
    table = pq.read_table(io.BytesIO(parquet_of(estimates)))
    assert table["unbiased"].to_pylist() == estimates["unbiased"].tolist()


def test_people_see_the_mean_with_its_interval_and_range(estimates):
    text = shown(estimates)
    assert "mean" in text
    assert "-20 to 40; numbers beyond count as the nearer end" in text
    html = html_of(estimates)
    assert_self_contained(Page(html))
    assert_accessible(Page(html))
    assert "The mean is " in html
    assert "the estimated mean could move by at most" in html


@pytest.fixture(scope="module")
def trends():
    metric, rng = metric_of(variance=True), np.random.default_rng(6)
    sizes = (9_000, 8_000, 100, 9_000, 0, 9_000, 9_000, 9_000)
    by_day = {
        FIRST + dt.timedelta(days=day): draw_cells(
            metric, [0.0, 10.0] if day < 5 else [20.0, 30.0], np.array([0.5, 0.5]), size, rng
        )
        for day, size in enumerate(sizes)
        if size
    }
    return decode_number_days(by_day, metric, alpha=1e-3, min_reports=1_000)


def test_a_change_of_the_mean_is_marked_on_its_day(trends):
    """20 of a range of 60, over 20 standard errors; the variance stays as it is."""
    assert [[change.day for change in each] for each in trends.found.changes] == [[5], []]
    assert np.isnan(trends.share[[2, 4]]).all()
    alone = trends.pooled.estimates
    assert trends.std_error[0, 0] > alone.std_error[0]


def test_days_are_written_in_the_metrics_unit_and_without_counts(trends):
    findings = number_findings(trends.pooled, make_anomalies())
    found = trends_estimates(trends, make_anomalies(), make_provenance(), findings=findings)
    rows = list(csv.DictReader(io.StringIO(csv_of(found))))
    assert list(rows[0])[:5] == ["day", "statistic", "reports", "estimate", "std_error"]
    means = [each for each in rows if each["statistic"] == "mean"]
    assert [each["changed"] for each in means].index("true") == 5
    assert float(means[0]["estimate"]) == pytest.approx(5, abs=6 * float(means[0]["std_error"]))
    text = shown(found)
    assert "%" not in text.split("Estimates day by day")[1].split("\n\n")[0]
    assert "no share" not in text
    html = html_of(found)
    assert_accessible(Page(html))
    assert "1 of 2 series changed. mean: " in html
    assert parquet_of(found)
    assert json.loads(json_of(found))["series"][0]["changes"][0]["day"] == "2026-11-06"
