"""An attacker's audit of histories: what changing values give away to whoever links all reports.

The attacker knows the parameters, sees cohorts and times, and compares two histories by the exact
likelihood ratio of everything that a client sent. With ``memory = "period"`` that ratio has a bound
for any two histories, and no transcript may exceed it; with ``memory = "value"`` it has none, and
the tests show that, so that nobody promises it again.
"""

import math

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st
from scipy import stats

from evaluation.frequencies import loss_interval, tells_most
from evaluation.studies.change import HALF_WAY, Contest, audit, contests, main, modes
from evaluation.studies.transcripts import Recordings, largest_log_ratio, log_ratio, worst_values
from factories import make_metric, make_params, registry_toml
from hubbub.client import Encoder, Metric, Report
from hubbub.planning import any_history_epsilon, constant_epsilon
from hubbub.protocol import BooleanType, EnumType, Field, JointType, OrdinalType, StringType, Value
from parameters import long_but, quick_and_full
from significance import ALARM, FloatArray, IntArray

ROUNDING = 1e-9
SMALL = make_params(k=8, h=2, m=1)
PATTERNS = 256
SLOW, DRIVER = Field("slow", BooleanType()), Field("driver", StringType())
METRICS = {
    "string": make_metric(),
    "awkward string": make_metric(params=make_params(k=32, h=3, m=4, f=0.3141, p=0.1234, q=0.7)),
    "falling string": make_metric(params=make_params(k=8, h=1, m=2, f=0.25, p=0.8, q=0.3)),
    "enum": make_metric(metric_type=EnumType(("red", "green", "blue"))),
    "boolean": make_metric(metric_type=BooleanType(), params=make_params(f=0.25, p=0.0, q=0.4)),
    "ordinal": make_metric(metric_type=OrdinalType((1.0, 10.0)), params=make_params(p=0.5)),
    "cells": make_metric(metric_type=JointType((SLOW, Field("old", BooleanType())))),
    "hashed tuples": make_metric(metric_type=JointType((SLOW, DRIVER)), params=make_params(m=8)),
}


def with_periods(metric: Metric, days: int) -> Metric:
    return metric._replace(memory="period", period_days=days, max_periods=10_000, max_values=0)


def half_way(metric: Metric, reports: int) -> Contest:
    """Return "A, then B half-way" against "always A"."""
    return next(c for c in contests(metric, reports) if c.pair == HALF_WAY)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())
@pytest.mark.parametrize("reports", long_but("2", [1, 2, 9], str))
@pytest.mark.parametrize("clients", quick_and_full(10, 40))
def test_no_pair_of_histories_breaks_what_is_stated_of_it(metric, reports, clients):
    """A theorem, so any excess is a failure; so many clients of each of two histories per pair.

    Of all transcripts the one that tells most is held against what is stated, too.
    """
    for mode in modes(metric):
        for contest in contests(mode, reports):
            result = audit(contest, clients=clients)
            assert not result.broken, contest
            assert result.largest <= result.possible + ROUNDING
            bounded = mode.max_answers == 1 or mode.memory == "period"
            assert math.isfinite(contest.any_history) == bounded


@given(
    days=st.integers(1, 5),
    first_day=st.integers(0, 4),
    first=st.lists(st.integers(0, 3), min_size=8, max_size=8),
    second=st.lists(st.integers(0, 3), min_size=8, max_size=8),
)
def test_with_periods_no_transcript_of_any_two_histories_breaks_the_bound(
    days, first_day, first, second
):
    """The largest ratio of all transcripts, for arbitrary histories of four values."""
    metric = with_periods(make_metric(params=SMALL), days)
    one, other = (Recordings(tuple(map(str, values)), first_day) for values in (first, second))
    bound = any_history_epsilon(metric, len(first), metric.max_answers)
    assert largest_log_ratio(metric, one, other) <= bound * (1 + ROUNDING)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())
@pytest.mark.parametrize(("days", "reports"), [(1, 1), (30, 2), (1, 2), (30, 15), (7, 12)])
def test_with_periods_the_worst_histories_come_close_to_the_bound(metric, days, reports):
    """Against the exact loss of each period, for the borders that lose most: power of the audit."""
    metric = with_periods(metric, days)
    one, other = worst_values(metric)
    values = (one,) * reports, (other,) * reports
    largest = max(
        largest_log_ratio(metric, *(Recordings(side, first_day) for side in sides))
        for first_day in range(days)
        for sides in (values, values[::-1])
    )
    assert largest == pytest.approx(constant_epsilon(metric, reports), rel=1e-9)
    assert largest >= 0.5 * any_history_epsilon(metric, reports, metric.max_answers)


@pytest.mark.parametrize(("days", "clients"), [(1, 1_000), (30, 60)])
def test_clients_with_periods_are_seen_near_the_bound(days, clients):
    """Each client attains it with probability .02 and .3 or more, so P(false alarm) < 1e-8.

    Thirty reports of one period nearly give its permanent response away, whose four bits are the
    worst with probability .75^4 = .32; two reports in two periods are at their worst with
    probability q*^4 (1 - p*)^4 = .625^8 = .023.
    """
    metric = with_periods(make_metric(), days)
    one, other = worst_values(metric)
    reports = 2 if days == 1 else 30
    constant = Contest(
        metric, "B / A", Recordings((other,) * reports), Recordings((one,) * reports)
    )
    bound = {1: constant.any_history, 30: metric.epsilon_permanent}[days]
    assert 0.99 * bound <= audit(constant, clients).largest <= bound * (1 + ROUNDING)


@pytest.mark.parametrize(
    ("values", "changed"),
    [(("a", "b"), ("a", "a")), (("a", "b"), ("b", "a")), (("a", "a"), ("b", "b"))],
)
@pytest.mark.parametrize("days", [0, 1, 2])
def test_the_law_of_a_transcript_is_the_enumeration_over_permanent_responses(values, changed, days):
    """All 65,536 transcripts of two reports, against sums over all permanent responses."""
    metric = make_metric(params=SMALL)
    if days:
        metric = with_periods(metric, days)
    enumerated = np.log(joint(metric, values)) - np.log(joint(metric, changed))
    rng = np.random.default_rng(11)
    for one, other in rng.integers(PATTERNS, size=(200, 2)).tolist():
        transcript = [Report("homepage", 1, 0, bytes([bits])) for bits in (one, other)]
        ratio = log_ratio(metric, transcript, Recordings(values), Recordings(changed))
        assert ratio == pytest.approx(enumerated[one, other], abs=1e-9)
    largest = largest_log_ratio(metric, Recordings(values), Recordings(changed))
    assert largest == pytest.approx(enumerated.max(), abs=1e-9)


def joint(metric: Metric, values: tuple[str, str]) -> FloatArray:
    """Return the probability of each pair of reports, cohort 0."""
    params = metric.params
    reported = by_pattern(params.p, params.q)
    bits = [metric.type.bits(value, 0, params) for value in values]
    permanent = by_pattern(params.f / 2, 1 - params.f / 2)[bits]
    shared = metric.period_days == 2 or (metric.memory == "value" and bits[0] == bits[1])
    if shared:
        return np.asarray((permanent[0][:, None] * reported).T @ reported)
    return np.outer(permanent[0] @ reported, permanent[1] @ reported)


def by_pattern(low: float, high: float) -> FloatArray:
    """Return the probability of each output (column) of independent lanes for each input (row)."""
    lane = np.array([[1 - low, low], [1 - high, high]])
    table = np.ones((1, 1))
    for _ in range(8):
        table = np.kron(lane, table)
    return table


@pytest.mark.long
def test_frequencies_of_two_reports_in_a_period_keep_the_bound():
    """A change inside a period, by counting alone: "a, then b" against "b, then a".

    200,000 clients of each history, all 65,536 transcripts: none is more frequent under one history
    than the bound allows, and the event that tells most attains the exact loss. P(false alarm) <
    1e-6 (exact bounds).
    """
    metric, n_clients = with_periods(make_metric(params=SMALL), 2), 200_000
    values = worst_values(metric)
    counts = [transcript_counts(metric, order, n_clients) for order in (values, values[::-1])]
    bound = any_history_epsilon(metric, 2, metric.max_answers)
    sides = ((counts[0], counts[1], values), (counts[1], counts[0], values[::-1]))
    for left, right, _ in sides:
        for ones, others in np.unique(np.stack([left.ravel(), right.ravel()]), axis=1).T.tolist():
            low, _ = loss_interval(ones, others, n_clients, ALARM / (16 * PATTERNS**2))
            assert low <= bound
    exact = linked_loss_in_one_period(metric)
    for left, right, (one, other) in sides:
        telling = telling_patterns(metric, one, other)
        seen = [int(side[np.ix_(telling, telling)].sum()) for side in (left, right)]
        low, high = loss_interval(seen[0], seen[1], n_clients, ALARM / 16)
        assert low <= exact <= high
        assert low > metric.epsilon_report, "two reports must tell more than one"


def transcript_counts(metric: Metric, values: tuple[Value, Value], n_clients: int) -> IntArray:
    """Return how often each pair of reports came, of clients that record twice in a period."""
    counts = np.zeros((PATTERNS, PATTERNS), dtype=np.int64)
    encoder = Encoder(metric, bytes(32))
    for _ in range(n_clients):
        answer = encoder.fresh_response(values[0])  # the second value isn't looked at any more
        first, second = (encoder.report(answer).bits[0] for _ in range(2))
        counts[first, second] += 1
    return counts


def telling_patterns(metric: Metric, one: Value, other: Value) -> list[int]:
    """Return the reports that speak most for the first value."""
    ones, others = (metric.type.bits(value, 0, metric.params) for value in (one, other))
    return [pattern for pattern in range(PATTERNS) if tells_most(pattern, ones, others)]


def linked_loss_in_one_period(metric: Metric) -> float:
    """Return the exact loss of two reports that share a period."""
    return constant_epsilon(metric._replace(memory="value", period_days=0), 2)


def test_memory_by_values_breaks_the_sum_over_values_with_two_reports():
    """A change between two reports exceeds 2 epsilon_report for a third of the clients.

    Each of 1,000 clients exceeds it with probability .34 (measured on 20,000): 250 or fewer do so
    with probability below 1e-6.
    """
    result = audit(half_way(make_metric(), 2), clients=1000)
    assert result.contest.same_times == pytest.approx(2 * make_metric().epsilon_report)
    assert stats.binom.cdf(250, 1000, 0.33) < ALARM
    assert result.above > 0.25
    assert result.contest.any_history == math.inf


def test_the_table_has_a_line_for_each_memory_and_number_of_reports(tmp_path):
    path = tmp_path / "metrics.toml"
    once = make_metric("once", params=make_params(f=0.0), one_time=True)
    path.write_text(registry_toml(METRICS["boolean"], once), encoding="utf-8")
    result = CliRunner().invoke(main, [str(path), "--clients", "2"])
    assert result.exit_code == 0, result.output
    lines = [line.split("|")[1:4] for line in result.stdout.splitlines() if "|" in line][2:]
    rows = [tuple(cell.strip() for cell in line) for line in lines]
    memories = ["value", "first value", "1 day", "7 days", "30 days"]
    expected = [("homepage", memory, n) for memory in memories for n in ("2", "10", "60")]
    assert rows == [*expected, ("once", "one-time", "1")]
    assert "0 above what is stated of them" in result.stdout
