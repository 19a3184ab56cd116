"""An attacker's audit: no event that can be observed tells two values apart better than epsilon.

Here each client has one value; test_change_audit.py attacks values that change.

The two values share no Bloom bit, the worst case of the theorems, and the audit must come close to
the stated epsilon, or it would have no power to find a breach. With k = 8 all 256 outputs can be
looked at.
"""

from typing import NamedTuple

import numpy as np
import pytest

from evaluation.frequencies import loss_interval, tells_most
from factories import make_metric, make_params, make_secret, report_bits
from hubbub.client import Encoder, Metric, RapporParams
from hubbub.client.randomness import ByteStream
from hubbub.protocol import (
    BooleanType,
    EnumType,
    Field,
    JointType,
    OpenStringType,
    OrdinalType,
    StringType,
    bloom_bits,
)
from parameters import long_but, quick_and_full
from significance import ALARM, FloatArray, IntArray, chi_squared_p, unpack

PATTERNS = 256
CHROME = make_params(k=8, h=2, m=1, f=0.5, p=0.25, q=0.75)
LONG = pytest.mark.long
PARAMS = [
    pytest.param(CHROME, 40_000, id="Chrome's"),
    pytest.param(CHROME, 80_000, id="Chrome's, more", marks=LONG),
    pytest.param(
        make_params(k=8, h=2, m=1, f=0.5, p=0.5, q=0.75), 200_000, id="the paper's", marks=LONG
    ),
    pytest.param(
        make_params(k=8, h=2, m=1, f=0.3141, p=0.1234, q=0.8765), 120_000, id="awkward", marks=LONG
    ),
    pytest.param(
        make_params(k=8, h=2, m=1, f=0.5, p=0.0, q=1.0), 80_000, id="permanent alone", marks=LONG
    ),
]
"""And clients for each value: enough that the audit's interval is narrow beside epsilon."""


AS_MANY_CLIENTS = pytest.mark.parametrize("clients", quick_and_full(20_000, 80_000))
"""For each value. The quick audit's interval is a fifth of epsilon wide, the full one's a tenth."""

KINDS = [
    pytest.param(EnumType(("red", "green", "blue")), "red", "blue", id="enum", marks=LONG),
    pytest.param(BooleanType(), True, False, id="boolean"),
    pytest.param(OrdinalType((1.0, 10.0)), 0.5, 1e9, id="ordinal", marks=LONG),
]


class Sample(NamedTuple):
    """How often each of the 256 patterns was a client's permanent response, and its report."""

    permanent: IntArray
    reported: IntArray


class Values(NamedTuple):
    """The Bloom filters of two values, h bits each, that share none."""

    one: int
    other: int


def disjoint_values(params: RapporParams) -> Values:
    filters = (bloom_bits(f"value {i}", 0, params) for i in range(1000))
    full = [bits for bits in filters if bits.bit_count() == params.h]
    return next(Values(a, b) for a in full for b in full if not a & b)


def law(bits: int, low: float, high: float) -> FloatArray:
    """Return the probability of each pattern if every lane is a coin of its own."""
    patterns = np.arange(PATTERNS)
    result = np.ones(PATTERNS)
    for lane in range(8):
        chance = high if bits >> lane & 1 else low
        result *= np.where(patterns >> lane & 1, chance, 1 - chance)
    return result


def sample(metric: Metric, bits: int, clients: int, coins: ByteStream) -> Sample:
    counts = [0] * PATTERNS, [0] * PATTERNS
    for client in range(clients):
        encoder = Encoder(metric, make_secret(f"{bits} {client}"))
        permanent = encoder.permanent_response(bits).bits
        counts[0][permanent] += 1
        counts[1][report_bits(encoder, permanent, coins)] += 1
    return Sample(*map(np.array, counts))


def assert_epsilon(ones: IntArray, others: IntArray, values: Values, epsilon: float) -> None:
    """No pattern breaks epsilon, and the set of patterns that tells most attains it."""
    n = int(ones.sum())
    for left, right in ((ones, others), (others, ones)):
        for pattern in range(PATTERNS):
            low, _ = loss_interval(int(left[pattern]), int(right[pattern]), n, ALARM / 2048)
            assert low <= epsilon
    ways = ((ones, others, values), (others, ones, Values(values.other, values.one)))
    low, high = max(best_event(*way) for way in ways)
    assert low <= epsilon <= high
    assert high - low < 0.25 * epsilon, "too few reports for an audit that could fail"


def best_event(left: IntArray, right: IntArray, values: Values) -> tuple[float, float]:
    """Return the loss of the event that, by theory, speaks most for the first value."""
    telling = [pattern for pattern in range(PATTERNS) if tells_most(pattern, *values)]
    n = int(left.sum())
    return loss_interval(int(left[telling].sum()), int(right[telling].sum()), n, ALARM / 8)


def audit(metric: Metric, values: Values, clients: int, coins: ByteStream) -> None:
    """Compare so many clients a value, one report each, with both epsilons and the exact law."""
    params = metric.params
    ones, others = (sample(metric, bits, clients, coins) for bits in values)
    assert_epsilon(ones.reported, others.reported, values, metric.epsilon_report)
    assert_epsilon(ones.permanent, others.permanent, values, metric.epsilon_permanent)
    for bits, counts in zip(values, (ones, others), strict=True):
        expected = clients * law(bits, params.f / 2, 1 - params.f / 2)
        assert chi_squared_p(counts.permanent, expected) > ALARM
        expected = clients * law(bits, params.p_star, params.q_star)
        assert chi_squared_p(counts.reported, expected) > ALARM


@pytest.mark.parametrize(("params", "clients"), PARAMS)
def test_strings_keep_their_epsilons(params, clients, coins):
    """P(false alarm) < 1e-6 for each of the two audits (exact bounds) and the four tests of fit."""
    audit(make_metric(params=params), disjoint_values(params), clients, coins)


@AS_MANY_CLIENTS
@pytest.mark.parametrize(("metric_type", "one", "other"), KINDS)
def test_other_types_keep_their_epsilons(metric_type, one, other, clients, coins):
    """As for strings, with p and q that don't add up to 1, so that a boolean's outcomes differ."""
    metric = make_metric(metric_type=metric_type, params=make_params(f=0.3141, p=0.1234, q=0.7))
    encoder = Encoder(metric, make_secret())
    audit(metric, Values(encoder.true_bits(one), encoder.true_bits(other)), clients, coins)


@AS_MANY_CLIENTS
@pytest.mark.parametrize("step", long_but("1", [0, 1], str))
def test_open_strings_keep_their_epsilons_at_every_step(step, clients, coins):
    """As for other types. The values share no bit in a cohort of the step; k = 8, h = 1."""
    metric_type = OpenStringType((3,), 4)
    metric = make_metric(
        metric_type=metric_type, params=make_params(k=8, f=0.3141, p=0.1234, q=0.7)
    )
    cohort = step * metric_type.cohorts + 1
    one, *others = (metric_type.bits(f"{i} value", cohort, metric.params) for i in range(10, 30))
    audit(metric, Values(one, next(bits for bits in others if bits != one)), clients, coins)


HASHED = JointType((Field("slow", BooleanType()), Field("driver", StringType())))


@pytest.mark.long
@pytest.mark.parametrize("changes", ["slow", "driver", "both"])
def test_hashed_joint_values_keep_their_epsilons_whichever_field_changes(changes, coins):
    """As for strings: k = 8, h = 2, and the values share no bit."""
    params = make_params(k=8, h=2, m=1, f=0.5, p=0.25, q=0.75)
    metric = make_metric(metric_type=HASHED, params=params)

    def filters(i: int) -> Values:
        one = {"slow": False, "driver": f"driver {i}"}
        other = {
            "slow": changes != "driver",
            "driver": f"driver {i}" if changes == "slow" else f"another {i}",
        }
        return Values(HASHED.bits(one, 0, params), HASHED.bits(other, 0, params))

    values = next(
        Values(one, other)
        for one, other in map(filters, range(1000))
        if one.bit_count() == other.bit_count() == params.h and not one & other
    )
    audit(metric, values, 80_000, coins)


@LONG
def test_even_a_hundred_linked_reports_reveal_no_more_than_epsilon_permanent(coins):
    """An observer who averages away the second noise is left with the permanent response.

    8,000 clients a value, 100 reports each: a majority vote reads a permanent bit wrongly with
    probability < 1e-6. P(false alarm) < 1e-6 (exact bounds).
    """
    params, n_clients = CHROME, 8_000
    values = disjoint_values(params)
    ones, others = (
        sum(
            tells_most(averaged(params, bits, client, coins), *values)
            for client in range(n_clients)
        )
        for bits in values
    )
    low, high = loss_interval(ones, others, n_clients, ALARM / 4)
    assert low <= params.epsilon_permanent <= high
    assert low > 1.5 * params.epsilon_report, "linking must tell more than a report alone"


def averaged(params: RapporParams, bits: int, client: int, coins: ByteStream) -> int:
    """Return what a majority of 100 reports of one client says about each bit."""
    encoder = Encoder(make_metric(params=params), make_secret(f"linked {bits} {client}"))
    return majority_of(100, encoder, bits, coins)


def majority_of(n_reports: int, encoder: Encoder, bits: int, coins: ByteStream) -> int:
    """Return what a majority of a client's reports says about each bit."""
    permanent = encoder.permanent_response(bits).bits
    reports = bytes(report_bits(encoder, permanent, coins) for _ in range(n_reports))
    majority = unpack(reports, encoder.metric.params.k).sum(axis=0) > n_reports / 2
    return sum(1 << lane for lane in np.flatnonzero(majority).tolist())
