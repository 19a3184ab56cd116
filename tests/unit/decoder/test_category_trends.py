"""Categories day by day: what is followed, gaps, changes, and which noise days share."""

import datetime as dt

import numpy as np
import pytest

from evaluation.studies.categories import (
    LOOSE,
    CategoryCase,
    boolean,
    enum,
    ordinal as ordinal_case,
)
from hubbub.decoder import CohortCounts, decode_categories
from hubbub.inference import (
    CategoryDecoding,
    Trends,
    decode_category_days,
    estimate_categories,
    instantaneous_variance,
)
from hubbub.reporting import Estimates, category_findings, trends_estimates
from unit.decoder.decodings import make_anomalies, make_provenance
from unit.decoder.pages import Page, assert_accessible, assert_self_contained
from unit.decoder.rendered import html_of, shown

FIRST = dt.date(2026, 11, 1)
BEFORE, AFTER = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.3, 0.5, 0.2, 0.0])
SIZES = (9_000, 8_000, 7_000, 100, 9_000, 0, 9_000, 9_000, 9_000, 9_000)
CHANGED = 6
METRIC = enum(4, 1, LOOSE).metric


def counts_by_day() -> dict[dt.date, CohortCounts]:
    rng = np.random.default_rng(3)
    return {
        FIRST + dt.timedelta(days=day): CategoryCase(
            "", METRIC, BEFORE if day < CHANGED else AFTER, size
        ).draw(rng)
        for day, size in enumerate(SIZES)
        if size
    }


@pytest.fixture(scope="module")
def trends() -> Trends[CategoryDecoding]:
    return decode_category_days(counts_by_day(), METRIC, min_reports=1_000)


def result_of(trends: Trends[CategoryDecoding], limit: int = 40) -> Estimates:
    findings = category_findings(trends.pooled, make_anomalies())
    return trends_estimates(
        trends, make_anomalies(), make_provenance(), findings=findings, limit=limit
    )


def test_all_categories_are_followed_and_small_days_are_gaps(trends):
    assert trends.followed == ("0", "1", "2", "3")
    assert not trends.has_unknown
    assert trends.reports.tolist() == list(SIZES)
    assert trends.decoded.tolist() == [size >= 1_000 for size in SIZES]
    assert np.isnan(trends.share[~trends.decoded]).all()
    taken = [counts for counts in counts_by_day().values() if counts.total >= 1_000]
    pooled = decode_categories(sum(taken[1:], taken[0]), METRIC)
    assert trends.pooled.estimates.share.tolist() == pooled.estimates.share.tolist()


def test_a_day_has_the_shares_and_intervals_of_its_reports_alone(trends):
    alone = decode_categories(counts_by_day()[FIRST], METRIC)
    assert trends.share[0].tolist() == alone.estimates.unbiased.tolist()
    assert trends.low[0].tolist() == alone.interval.low.tolist()
    assert trends.high[0].tolist() == alone.interval.high.tolist()


def test_change_is_marked_on_its_day_and_only_where_it_is(trends):
    """20 points are over 20 standard errors; seeded."""
    marked = [[change.day for change in each] for each in trends.found.changes]
    assert marked == [[CHANGED], [CHANGED], [], []]


@pytest.mark.parametrize("one_time", [False, True])
def test_days_share_the_noise_that_is_not_redrawn(one_time):
    """Only metrics of one report per client take days for wholly independent."""
    trends = decode_category_days(
        counts_by_day(), METRIC._replace(mode="one-time" if one_time else "longitudinal")
    )
    estimates, total = trends.pooled.estimates, trends.pooled.summary.reports
    variance = np.diagonal(estimates.covariance)
    own = variance if one_time else instantaneous_variance(estimates, total, METRIC)
    assert (own <= variance).all()
    n_days = len(counts_by_day())
    (change,) = trends.found.changes[0]
    before = sum(SIZES[:CHANGED])
    noise = own[0] * total * (1 / before + 1 / (total - before))
    shared = (variance[0] - own[0]) * n_days
    assert change.std_error == pytest.approx(np.sqrt(noise + 2 * shared))


@pytest.mark.parametrize(
    "case",
    [enum(4, 5_000, LOOSE), boolean(0.3, 5_000, LOOSE), ordinal_case(12, 5_000, LOOSE)],
    ids=lambda case: case.name,
)
def test_clients_that_come_back_bring_new_noise_of_the_instantaneous_responses(case):
    """Same permanent bits, 4,000 days: variances within 5.5 standard errors, 18 of them.

    P(false alarm) < 1e-6; seeded.
    """
    rng, params, n_days = np.random.default_rng(5), case.metric.params, 4_000
    held = (case.shares * case.n_reports).astype(np.int64)
    true = np.zeros(params.k, dtype=np.int64)
    own_bits = held[1:] if case.metric.type.width == 1 else held
    true[: len(own_bits)] = own_bits
    n = int(held.sum())
    permanent = rng.binomial(true, 1 - params.f / 2) + rng.binomial(n - true, params.f / 2)
    ones = rng.binomial(permanent, params.q, (n_days, params.k))
    ones += rng.binomial(n - permanent, params.p, (n_days, params.k))
    days = [CohortCounts(np.array([n]), each[None, :]) for each in ones]
    shares = np.array([estimate_categories(each, case.metric).unbiased for each in days])
    mean = CohortCounts(np.array([n]), ones.mean(axis=0).round().astype(np.int64)[None, :])
    stated = instantaneous_variance(estimate_categories(mean, case.metric), n, case.metric)
    assert np.abs(shares.var(axis=0) / stated - 1).max() < 5.5 * np.sqrt(2 / n_days)


def test_table_and_page_speak_of_categories(trends):
    text = shown(result_of(trends))
    assert "since 7 November" in text
    assert "2 of 4 series" in text
    assert "unknown" not in text
    page = Page(html_of(result_of(trends)))
    assert_accessible(page)
    assert_self_contained(page)
    assert "2 of 4 series changed. 0: " in page.texts["p"][0]
    assert len(page.all("svg")) == 4
