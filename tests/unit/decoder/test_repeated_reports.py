"""What the reports of one client share: its variance, how much of it there is, and its tails."""

import asyncio
import datetime as dt
from collections import Counter
from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import signal

from factories import make_metric, make_params, registry_toml
from hubbub.decoder import decode_metric
from hubbub.inference import (
    ONCE,
    AbsentBit,
    RepeatedReports,
    RepeatSource,
    estimate_categories,
    most_repeats,
    rate_covariance,
    repeats_of,
)
from hubbub.protocol import BooleanType, CohortCounts, RapporParams
from hubbub.storage import MetricVersion, NewBatch, open_store
from unit.collector.forgeries import records_of

FIRST = dt.date(2026, 11, 1)
PARAMS = (
    make_params(8, 1, 1, f=0.5, p=0.25, q=0.75),
    RapporParams(8, 1, 1, f=0, p=0.265, q=0.74, f0=0.0122, f1=0.5),
    RapporParams(8, 1, 1, f=0, p=0.9, q=0.2, f0=0.3, f1=0.05),
)


def day(number):
    return FIRST + dt.timedelta(days=number)


def daily_counts(histories):
    """Return the reports of each day, of clients who each report on some days."""
    return Counter(day(each) for days in histories for each in days)


def pmf_of_client(reports, bit):
    """Return the chances of 0 to all of a client's reports having the bit set."""
    found = np.zeros(reports + 1)
    for one, chance in ((0, 1 - bit.permanent), (1, bit.permanent)):
        rate = bit.if_one if one else bit.if_zero
        for ones in range(reports + 1):
            found[ones] += (
                chance * comb(reports, ones) * rate**ones * (1 - rate) ** (reports - ones)
            )
    return found


def exact_tails(reports_of_clients, bit):
    """Return P(X >= x) for x from 0 on, by convolution."""
    pmf = np.ones(1)
    for reports in reports_of_clients:
        pmf = signal.convolve(pmf, pmf_of_client(reports, bit), method="direct")
    return np.cumsum(pmf[::-1])[::-1]


@pytest.mark.parametrize("params", PARAMS, ids=str)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_variance_is_that_of_all_outcomes_of_all_clients(params, share):
    """Every client's outcomes are enumerated, whatever the true bit; and its drawing is apart."""
    reports = np.array([1, 1, 2, 3, 6])
    n = reports.sum()
    repeats = RepeatedReports(float((reports**2).sum() / n), 1.0)
    slope = params.q_star - params.p_star
    variance = 0.0
    for true, weight in ((0, 1 - share), (1, share)):
        permanent = 1 - params.f1 if true else params.f0
        bit = AbsentBit(permanent, params.p, params.q)
        for each in reports.tolist():
            pmf, ones = pmf_of_client(each, bit), np.arange(each + 1)
            variance += weight * (pmf @ ones**2 - (pmf @ ones) ** 2)
    found = repeats.noise_variance(np.array(share), params)
    assert found == pytest.approx(variance / n / slope**2, rel=1e-12)


def test_covariance_of_rates_is_that_of_simulated_clients():
    """Over 20,000 repetitions each entry is within 7%, 7 standard deviations: P(failure) < 1e-6."""
    rng = np.random.default_rng(5)
    params, shares = PARAMS[1], np.array([0.6, 0.4, 0.0])
    clients = {1: 2_000, 5: 400, 20: 100}
    total = sum(each * n for each, n in clients.items())
    runs, ones = 20_000, np.zeros((20_000, 3), dtype=np.int64)
    for each, n_clients in clients.items():
        held = rng.multinomial(n_clients, shares, size=runs)
        permanent = rng.binomial(held, 1 - params.f1) + rng.binomial(n_clients - held, params.f0)
        ones += rng.binomial(each * permanent, params.q)
        ones += rng.binomial(each * (n_clients - permanent), params.p)
    rates = (ones / total - params.p_star) / (params.q_star - params.p_star)
    d = sum(each**2 * n for each, n in clients.items()) / total
    said = rate_covariance(shares, total, params, RepeatedReports(d, d, RepeatSource.GIVEN))
    np.testing.assert_allclose(
        np.cov(rates.T), said, atol=0.07 * float(np.diagonal(said).max()), rtol=0
    )


histories = st.lists(st.sets(st.integers(0, 9), min_size=1), min_size=1, max_size=30)


@given(histories)
def test_no_history_repeats_more_than_daily_counts_allow(clients):
    repeats = sum(len(days) ** 2 for days in clients) / sum(map(len, clients))
    bound = most_repeats(daily_counts(clients))
    assert repeats <= bound + 1e-12
    assert 1 <= bound <= 10


@given(histories, st.integers(1, 10))
def test_no_history_shares_more_within_periods_than_days_less_apart_allow(clients, length):
    """Whatever the day of a period each client begins with."""
    pairs = 0
    for client, days in enumerate(clients):
        periods = [(each + client) // length for each in days]
        pairs += sum(one == other for one, other in product(periods, periods))
    bound = most_repeats(daily_counts(clients), length)
    assert pairs / sum(map(len, clients)) <= bound + 1e-12
    assert bound <= 2 * length - 1


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any))
def test_clients_who_never_stay_away_when_others_come_attain_the_bound(sizes):
    clients = [
        {number for number, size in enumerate(sizes) if size > place} for place in range(max(sizes))
    ]
    repeats = sum(len(days) ** 2 for days in clients) / sum(map(len, clients))
    assert most_repeats(daily_counts(clients)) == pytest.approx(repeats)


BITS = (AbsentBit(0.25, 0.25, 0.75), AbsentBit(0.0122, 0.265, 0.74), AbsentBit(0.3, 0.6, 0.05))


@pytest.mark.parametrize("bit", BITS, ids=str)
@pytest.mark.parametrize(("reports", "clients"), [(2, 60), (7, 40), (30, 30)])
def test_tails_are_those_of_clients_who_report_equally_often(bit, reports, clients):
    """Down to 1e-8; the saddlepoint is within a tenth."""
    exact = exact_tails([reports] * clients, bit)
    ones = np.flatnonzero((exact > 1e-8) & (exact < 0.3))
    repeats = RepeatedReports(float(reports), float(reports), RepeatSource.GIVEN)
    found = np.exp(repeats.log_tail(ones, reports * clients, bit))
    np.testing.assert_allclose(found, exact[ones], rtol=0.1)


def test_one_report_a_client_has_the_exact_binomial_tail():
    bit, ones = BITS[0], np.array([0, 3, 400, 1000])
    exact = exact_tails([1] * 1000, bit)[ones]
    np.testing.assert_allclose(np.exp(ONCE.log_tail(ones, 1000, bit)), exact, rtol=1e-9)


def test_zeros_have_the_same_tails_if_no_refusal_is_seen():
    """A boolean of equal flips looks the same with yes for no."""
    metric = make_metric(metric_type=BooleanType(), params=PARAMS[0])
    repeats = RepeatedReports(7.0, 7.0, RepeatSource.GIVEN)
    log_p = []
    for ones in (400, 600):
        bits = np.zeros((1, 8), dtype=np.int64)
        bits[0, 0] = ones
        found = estimate_categories(CohortCounts(np.array([1000]), bits), metric, repeats)
        log_p.append(found.log_p_value)
    np.testing.assert_allclose(log_p[0], log_p[1][::-1], rtol=1e-12)


WEEK = dict.fromkeys(map(day, range(7)), 100)
DAILY = {"reports_per_day": 1}


@pytest.mark.parametrize(
    ("own", "by_day", "given", "expected"),
    [
        ({}, WEEK, None, (7.0, 7.0, "days", True)),
        (DAILY, WEEK, None, (7.0, 7.0, "days", False)),
        ({}, WEEK, 2.5, (2.5, 2.5, "given", False)),
        ({}, {FIRST: 100}, None, (1.0, 1.0, "one day", True)),
        (DAILY, {FIRST: 100}, None, (1.0, 1.0, "one day", False)),
        ({}, {}, None, (1.0, 1.0, "unknown", False)),
        ({"one_time": True}, WEEK, None, (1.0, 1.0, "once", False)),
        ({"period_days": 2}, WEEK, None, (pytest.approx(1 + 12 / 7), 7.0, "days", True)),
        ({"period_days": 2}, {}, 5.0, (2.0, 5.0, "given", True)),
        ({"period_days": 2, **DAILY}, {}, 5.0, (2.0, 5.0, "given", False)),
    ],
)
def test_mode_memory_and_days_say_how_often_clients_have_reported(own, by_day, given, expected):
    found = repeats_of(make_metric(params=PARAMS[0], **own), by_day, given)
    assert (found.responses, found.clients, found.source, found.assumes_daily) == expected


@pytest.mark.parametrize(("n_days", "most"), [(1, 1), (2, 2), (3, 2), (4, 2), (5, 3), (7, 3)])
def test_periods_of_one_report_each_share_only_the_value(n_days, most):
    """Of clients whose periods of three days begin on any day."""
    metric = make_metric(params=PARAMS[0], period_days=3)._replace(mode="once")
    found = repeats_of(metric, dict.fromkeys(map(day, range(n_days)), 100))
    assert (found.responses, found.clients) == (1.0, most)


def stored_days(folder, sizes):
    """Return the address of a store, and its metric's registry, with so many reports a day."""
    metric = make_metric("theme", metric_type=BooleanType(), params=PARAMS[0], reports_per_day=1)
    registry, url = folder / "metrics.toml", f"sqlite:///{folder}/hubbub.db"
    registry.write_text(registry_toml(metric))
    key = MetricVersion(metric.name, metric.version)
    rng = np.random.default_rng(2)

    async def fill():
        async with open_store(url, create=True) as store:
            await store.declare([metric])
            for number, size in enumerate(sizes):
                records = records_of(rng.random((size, 8)) < 0.5, np.zeros(size, dtype=np.int64))
                await store.append([NewBatch(bytes([number]) * 16, {key: records})], day(number))

    asyncio.run(fill())
    return {"metrics": registry, "store": url, "min_reports": 1}


def said(estimates):
    """Return the finding about clients' reports."""
    (found,) = (each for each in estimates.findings if each.code == "reports_per_client")
    return found


@pytest.mark.parametrize("by", [None, "day"])
def test_a_stores_days_bound_how_often_clients_have_reported(tmp_path, by):
    stored = stored_days(tmp_path, [400, 200, 200])
    found = said(decode_metric("theme", **stored, by=by))
    assert found.value == 2.5
    assert found.text == "an average report's client sent at most 2.5, one per day"


def test_days_with_too_few_reports_that_are_not_decoded_do_not_count(tmp_path):
    stored = stored_days(tmp_path, [400, 20, 400]) | {"min_reports": 100}
    assert said(decode_metric("theme", **stored, by="day")).value == pytest.approx(2.0)


def test_errors_are_widened_by_the_number_that_is_given(tmp_path):
    stored = stored_days(tmp_path, [400, 200, 200])
    once, often = (decode_metric("theme", **stored, reports_per_client=each) for each in (1, 30))
    assert said(often).text == ("an average report's client sent 30, as --reports-per-client says")
    narrow, wide = (np.asarray(each["prop_std_error"])[1] for each in (once, often))
    params = PARAMS[0]
    noise = [RepeatedReports(each).noise_variance(np.array(0.5), params) for each in (1.0, 30.0)]
    expected = np.sqrt((noise[1] + 30 / 4) / (noise[0] + 1 / 4))
    assert wide / narrow == pytest.approx(expected, rel=0.01)
