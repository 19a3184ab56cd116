"""Honest populations of every type raise no alarm, naive forgers do, and imitators don't.

Honest reports come from the real encoder where padding and coins matter, and from numpy otherwise.
"""

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from factories import make_metric, make_params, make_secret
from hubbub.client import Encoder, Metric
from hubbub.inference import AnomalyDetector, AnomalyReport
from hubbub.protocol import (
    BooleanType,
    EnumType,
    MetricType,
    OrdinalType,
    Records,
    StringType,
    Value,
    cohort_balance,
    columns,
    improbable,
    keep_counts,
    plausible_set_bits,
    repeat_keys,
    repeats_among,
    set_bits,
    set_bits_distribution,
)
from parameters import quick_and_full
from significance import ALARM, BitArray, chi_squared_p, unpack, z_limit
from unit.collector.forgeries import joined, records_of

PAPER, LOOSE = (0.5, 0.25, 0.75), (0.2, 0.05, 0.75)
POPULATIONS: dict[str, tuple[MetricType, Sequence[Value], tuple[float, float, float]]] = {
    "strings": (StringType(), [f"name {i}" for i in range(50)], PAPER),
    "one string": (StringType(), ["the same for all"], LOOSE),
    "strings, reversed noise": (StringType(), ["a", "b"], (0.3, 0.8, 0.2)),
    "strings, one-time": (StringType(), ["a", "b"], (0.4, 0.0, 1.0)),
    "enum": (EnumType(tuple("abcdefghijklmnopqrstu")), list("aaaaaabc"), PAPER),
    "boolean": (BooleanType(), [True, False], LOOSE),
    "boolean, all false": (BooleanType(), [False], PAPER),
    "ordinal": (OrdinalType(tuple(map(float, range(29)))), [3, 28, 29, 99], PAPER),
}
OFTEN = 30


def metric_of(metric_type: MetricType, noise: tuple[float, float, float], m: int = 16) -> Metric:
    return make_metric(metric_type=metric_type, params=make_params(128, 2, m, *noise))


def true_bits(metric: Metric, values: Sequence[Value]) -> BitArray:
    """Return what each value sets in each cohort, shape (v, m, k)."""
    params = metric.params
    packed = b"".join(
        metric.type.bits(value, cohort, params).to_bytes(params.k // 8, "little")
        for value in values
        for cohort in range(params.m)
    )
    return unpack(packed, params.k).reshape(len(values), params.m, params.k)


def honest(
    metric: Metric, values: Sequence[Value], n: int, often: int, rng: np.random.Generator
) -> Records:
    """Return n clients' reports, each client's `often` from one permanent response."""
    params = metric.params
    cohorts = rng.integers(params.m, size=n)
    bits = true_bits(metric, values)[rng.integers(len(values), size=n), cohorts]
    permanent = np.repeat(bits ^ (rng.random(bits.shape) < params.f / 2), often, axis=0)
    reported = rng.random(permanent.shape) < np.where(permanent == 1, params.q, params.p)
    return records_of(reported, np.repeat(cohorts, often))


def forged(
    metric: Metric, targets: Sequence[str], n: int, others: float, rng: np.random.Generator
) -> Records:
    """Return reports with all the targets' bits set and others with a probability: maximal gain."""
    cohorts = rng.integers(metric.params.m, size=n)
    wanted = true_bits(metric, targets).max(axis=0)[cohorts]
    return records_of(wanted | (rng.random(wanted.shape) < others), cohorts)


def anomalies_of(metric: Metric, *chunks: Records) -> AnomalyReport:
    detector = AnomalyDetector(metric, ALARM / 3)
    for chunk in chunks:
        detector.look(keep_counts(chunk.data, metric.params), columns(chunk))
    return detector.result()


@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("often", [1, OFTEN])
def test_honest_population_raises_no_alarm(name, often, rng):
    """30,000 reports, once or 30 times a client. P(false alarm) < 1e-6, by the proven bounds."""
    metric_type, values, noise = POPULATIONS[name]
    metric = metric_of(metric_type, noise)
    if metric.params.q == 1:
        often = 1  # one-time: a client that reports again sends the very same
    found = anomalies_of(metric, honest(metric, values, 30_000 // often, often, rng))
    assert not found.suspicious


@pytest.mark.parametrize("clients", quick_and_full(8_000, 20_000))
@pytest.mark.parametrize(
    ("metric_type", "value", "j"),
    [
        (BooleanType(), True, 1),
        (BooleanType(), False, 0),
        (EnumType(("a", "b", "c")), "c", 1),
        (OrdinalType((1.0, 2.0)), 1.5, 1),
    ],
    ids=["true", "false", "enum", "ordinal"],
)
def test_real_clients_set_as_many_bits_as_the_law_says(metric_type, value, j, clients):
    """Unused bits of the byte among them. P(false alarm) < 1e-6.

    A mean that is off by a tenth of a bit is seen in 8,000 clients' reports.
    """
    metric = metric_of(metric_type, (0.4, 0.1, 0.8))
    data = b"".join(
        b"\0\0" + Encoder(metric, make_secret(client)).encode(value).bits
        for client in range(clients)
    )
    numbers = np.bincount(set_bits(columns(Records(3, data)).bits), minlength=9)
    expected = set_bits_distribution(metric.params, j) * clients
    rare = expected < 10
    observed = np.append(numbers[~rare], numbers[rare].sum())
    assert chi_squared_p(observed, np.append(expected[~rare], expected[rare].sum())) > ALARM


@pytest.mark.parametrize("name", POPULATIONS)
def test_improbable_reports_are_no_more_than_their_tail_says(name, rng):
    """3,000 clients of 10 reports each, tail 0.05: z-test over clients, P(false alarm) < 1e-6.

    Reports of one client are improbable together, but not more often.
    """
    metric_type, values, noise = POPULATIONS[name]
    metric, tail = metric_of(metric_type, noise), 0.05
    bounds = plausible_set_bits(metric.params, metric_type, tail)
    records = honest(metric, values, 3000, 10, rng)
    by_client = improbable(records, bounds).reshape(3000, 10).mean(axis=1)
    allowed = z_limit() * max(by_client.std(), 0.01) / np.sqrt(3000)
    assert by_client.mean() <= tail + allowed


@pytest.mark.parametrize(("p", "q"), [(0.25, 0.75), (0.5, 0.51)])
def test_repeats_of_honest_reports_alarm_no_more_often_than_they_may(p, q, rng):
    """400 populations whose permanent responses are the worst: all of them 0.

    24 bits in one cohort, so that honest reports do repeat; alarm 0.05. P(false failure) < 1e-6
    (binomial).
    """
    params, alarm, runs = make_params(k=24, m=1, p=p, q=q), 0.05, 400
    alarms, repeated = 0, 0
    for _ in range(runs):
        keys = repeat_keys(columns(records_of(rng.random((4000, 24)) < p)))
        repeats = repeats_among(keys, params, alarm)
        alarms += repeats.suspicious > 0
        repeated += repeats.most > 1
    assert alarms <= stats.binom.isf(ALARM, runs, alarm)
    assert repeated > runs // 4, "or the test could not fail"


@pytest.mark.parametrize("often", [1, 7, 100])
def test_cohorts_seldom_ask_for_more_reports_a_client_than_were_sent(often, rng):
    """2,000 populations of 5,000 clients, alarm 0.05. P(false failure) < 1e-6 (binomial)."""
    runs, alarm = 2000, 0.05
    sizes = rng.multinomial(5000, np.full(16, 1 / 16), size=runs) * often
    asked = np.array([cohort_balance(row, alarm).clients_must_send for row in sizes])
    assert np.count_nonzero(asked > often) <= stats.binom.isf(ALARM, runs, alarm)
    assert asked.max() > 0.5 * often, "or the bound says nothing"


@pytest.mark.parametrize("targets", [("evil.example",), tuple(f"evil {i}" for i in range(5))])
@pytest.mark.parametrize("others", [0.0, 1.0])
@pytest.mark.parametrize("k", [32, 128])
def test_one_percent_of_naive_forgeries_is_found(k, others, targets, rng):
    """The maximal gain attack on 50,000 reports; certain, but for what is honest: P < 1e-6."""
    metric = make_metric(params=make_params(k=k, m=16))
    names = POPULATIONS["strings"][1]
    good = honest(metric, names, 49_500, 1, rng)
    found = anomalies_of(metric, good, forged(metric, targets, 500, others, rng))
    assert found.suspicious
    assert not anomalies_of(metric, good).suspicious


def test_forgers_that_imitate_the_noise_are_not_found(rng):
    """What docs/understand/attacks.md admits: they gain 2.5 times their share, unseen."""
    metric = make_metric(params=make_params(m=16))
    good = honest(metric, POPULATIONS["strings"][1], 49_500, 1, rng)
    bad = forged(metric, ["evil.example"], 500, metric.params.p_star, rng)
    assert not anomalies_of(metric, good, bad).suspicious
    wanted = true_bits(metric, ["evil.example"])[0]
    rows = np.frombuffer(joined(good, bad).data, dtype=np.uint8).reshape(-1, 18)
    mine = unpack(rows[:, 2:].tobytes(), 128)[wanted[rows[:, 0]] == 1]
    before = np.frombuffer(good.data, dtype=np.uint8).reshape(-1, 18)
    theirs = unpack(before[:, 2:].tobytes(), 128)[wanted[before[:, 0]] == 1]
    gain = (mine.mean() - theirs.mean()) / (metric.params.q_star - metric.params.p_star)
    assert gain == pytest.approx(0.025, abs=0.004)
