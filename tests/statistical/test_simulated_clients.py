"""Simulated clients report as real ones do: every simulation rests on that.

Known counterexample, as in the client: a sampler that uses coins twice keeps every frequency right
and only pairs show it.
"""

import numpy as np
import pytest
from scipy import stats

from factories import make_metric, make_params, make_secret, report_bits, seeded_stream
from hubbub.client import Encoder, RapporParams
from hubbub.protocol import OpenStringType, bloom_bits
from hubbub.simulations import LongitudinalClients, SimulatedClients, bernoulli_words
from parameters import quick_and_full
from significance import (
    ALARM,
    BitArray,
    FloatArray,
    IntArray,
    chi_squared_p,
    pair_z,
    rate_z,
    unpack,
    z_limit,
)

K = 128
TINIEST = 2.0**-1074
NEARLY_ONE = 1 - 2.0**-53
# f/2, p and q lie about halfway between multiples of 1/256: rounded to a byte they are off by .0015
# and more, which 50,000 reports show.
AWKWARD = make_params(m=1, f=0.316, p=0.1234, q=0.8765)
PAIRS = {
    "f=0.316": (0.316 / 2, 0.316 / 2),
    "p=0.1234, q=0.8765": (0.1234, 0.8765),
    "a half and a third": (0.5, 1 / 3),
    "q below p": (0.9, 0.2),
    "never and half": (0.0, 0.5),
    "always and half": (1.0, 0.5),
    "never and always": (0.0, 1.0),
    "smallest and largest": (TINIEST, NEARLY_ONE),
    "largest and smallest": (NEARLY_ONE, TINIEST),
    "smallest and awkward": (TINIEST, 0.8765),
    "awkward and largest": (0.1234, NEARLY_ONE),
}
SMALL = make_params(k=8, h=2, m=4, f=0.4142, p=0.3141, q=0.7071)
SMALL_VALUES = ("alpha", "beta", "")
"""At least 5 reports are expected of each (cohort, bits) pattern from 50,000 clients."""


OPEN = OpenStringType((3,), 2)
OPEN_VALUES = ("alphabet", "alphorn", "al")
"""Of step 0 the first two set the same bit, and of step 1 each another."""
OPEN_METRIC = make_metric(metric_type=OPEN, params=make_params(8, 1, 2, f=0.4142, p=0.3141, q=0.7))


@pytest.fixture(params=quick_and_full(50_000, 200_000))
def n_reports(request) -> int:
    n: int = request.param
    return n


def lanes_of(selector: int) -> BitArray:
    return unpack(selector.to_bytes(K // 8, "little"), K).ravel()


def assert_law(sample: BitArray, expected: FloatArray) -> None:
    """Every lane has its probability and every two lanes, and successive reports, are independent.

    A lane that is 1 with a chance below 2^-50, or 0 with one, must never be: 200,000 reports of 128
    such lanes would once in 40,000,000 tests.
    """
    certain = np.isclose(expected, np.round(expected), rtol=0, atol=2.0**-50)
    assert (sample[:, certain] == np.round(expected[certain])).all()
    bits, chances = sample[:, ~certain], expected[~certain]
    k = len(chances)
    if not k:
        return
    rates = rate_z(bits, chances)
    assert np.abs(rates).max() < z_limit(len(rates))
    assert np.abs(pair_z(bits, chances)).max() < z_limit(k * (k - 1) // 2)
    for lag in (1, 2, len(bits) // 2):
        assert np.abs(lagged_z(bits, chances, lag)).max() < z_limit(3 * k)


def lagged_z(bits: BitArray, expected: FloatArray, lag: int) -> FloatArray:
    """Return a z-score for each column's covariance with itself some reports later."""
    later, earlier, n = bits[lag:], bits[:-lag], len(bits) - lag
    both, each = (later & earlier).sum(axis=0), later.sum(axis=0) + earlier.sum(axis=0)
    products = both - expected * each + n * expected**2
    return np.asarray(products / np.sqrt(n) / (expected * (1 - expected)))


def pattern_counts(cohorts: IntArray, bits: IntArray) -> IntArray:
    """Count whole reports: cohort and all 8 bits together."""
    return np.bincount(256 * cohorts + bits, minlength=256 * SMALL.m)


def pattern_chances(value: str) -> FloatArray:
    """Return the probability of each pattern: uniform cohort, then independent p* or q* bits."""
    patterns = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    rows = []
    for cohort in range(SMALL.m):
        bloom = bloom_bits(value, cohort, SMALL)
        ones = np.array([SMALL.q_star if bloom >> j & 1 else SMALL.p_star for j in range(8)])
        rows.append(np.where(patterns == 1, ones, 1 - ones).prod(axis=1) / SMALL.m)
    return np.concatenate(rows)


def simulated_patterns(held: IntArray, rng: np.random.Generator) -> IntArray:
    cohorts, bits = SimulatedClients(SMALL_VALUES, SMALL, rng).report(held)
    return pattern_counts(cohorts, bits[:, 0].astype(np.int64))


def client_patterns(held: IntArray) -> IntArray:
    """Let a real encoder with a secret of its own report each value."""
    metric = make_metric(params=SMALL)
    cohorts, bits = [], []
    for client, value in enumerate(held.tolist()):
        encoder = Encoder(metric, make_secret(client))
        bloom = bloom_bits(SMALL_VALUES[value], encoder.cohort, SMALL)
        coins = seeded_stream(f"fleet {client}")
        bits.append(report_bits(encoder, encoder.permanent_response(bloom).bits, coins))
        cohorts.append(encoder.cohort)
    return pattern_counts(np.array(cohorts), np.array(bits))


@pytest.mark.parametrize(("low", "high"), PAIRS.values(), ids=PAIRS.keys())
def test_lanes_are_exact_and_independent(low, high, n_reports, rng):
    """Reports of 128 bits: 128 rates, 8,128 pairs, 3 x 128 covariances over time.

    P(false alarm) < 1e-6 for each of the three (Bonferroni, normal approximation).
    """
    selector = rng.integers(2**63, size=2, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    words = bernoulli_words(rng, np.tile(selector, n_reports), low, high)
    selected = unpack(selector.tobytes(), K).ravel()
    assert_law(unpack(words.tobytes(), K), np.where(selected == 1, high, low))


def test_reports_follow_both_responses(n_reports, rng):
    """One value's reports: p* and q* on 128 bits, 8,128 pairs. P(false alarm) < 1e-6."""
    _, bits = SimulatedClients(("example.com",), AWKWARD, rng).report(
        np.zeros(n_reports, dtype=np.int64)
    )
    lanes = lanes_of(bloom_bits("example.com", 0, AWKWARD))
    assert lanes.any()
    assert_law(unpack(bits.tobytes(), K), np.where(lanes == 1, AWKWARD.q_star, AWKWARD.p_star))


@pytest.mark.parametrize("value", range(len(SMALL_VALUES)), ids=SMALL_VALUES)
def test_whole_reports_have_their_exact_probabilities(value, n_reports, rng):
    """Chi-squared over all 4 x 256 patterns of (cohort, bits). P(false alarm) = 1e-6."""
    counts = simulated_patterns(np.full(n_reports, value), rng)
    assert chi_squared_p(counts, n_reports * pattern_chances(SMALL_VALUES[value])) > ALARM


def test_simulated_and_real_clients_are_indistinguishable(n_reports, rng):
    """50,000 encoders, each with its own secret, and simulated clients of the same values.

    The clients' patterns against their exact probabilities, and both samples against each other
    (two-sample chi-squared, 1,023 degrees of freedom). P(false alarm) = 1e-6 for each.
    """
    n_clients = 50_000
    held = np.arange(n_clients) % len(SMALL_VALUES)
    counts = np.bincount(held)
    clients = client_patterns(held)
    expected = sum(n * pattern_chances(v) for n, v in zip(counts, SMALL_VALUES, strict=True))
    assert np.min(expected) > 5
    assert chi_squared_p(clients, np.asarray(expected)) > ALARM
    simulated = simulated_patterns(np.resize(held, n_reports), rng)
    assert stats.chi2_contingency(np.stack([simulated, clients])).pvalue > ALARM


def longitudinal_reports(
    days: list[int], params: RapporParams, values: tuple[str, ...], seed: int, clients: int
) -> tuple[IntArray, list[BitArray]]:
    """Let numbered clients report a value a day: cohorts, and each day's bits of shape (n, k)."""
    simulated = LongitudinalClients(values, params, np.random.SeedSequence(seed))
    numbers, rng = np.arange(clients), np.random.default_rng(seed)
    reports = [
        unpack(simulated.report(numbers, np.full(clients, value), rng).tobytes(), params.k)
        for value in days
    ]
    return simulated.cohorts(numbers), reports


def two_day_chances(lanes: BitArray, params: RapporParams) -> FloatArray:
    """Return the chance of each pair of a bit's reports, 00, 01, 10 and 11, shape (k, 4).

    Given the permanent bit, the days are independent; both days share it.
    """
    one = np.where(lanes == 1, 1 - params.f / 2, params.f / 2)[:, None]
    pairs = [(1 - c, c) for c in (params.p, params.q)]
    given = [np.array([a * b for a in pair for b in pair]) for pair in pairs]
    return np.asarray((1 - one) * given[0] + one * given[1])


def pair_counts(first: BitArray, second: BitArray) -> IntArray:
    """Count each lane's pairs of reports, shape (k, 4)."""
    codes = 2 * first + second
    return np.stack([(codes == code).sum(axis=0) for code in range(4)], axis=1)


def test_longitudinal_reports_have_the_same_law_as_single_ones(n_reports):
    """All clients' first reports: 128 rates, 8,128 pairs. P(false alarm) < 1e-6 each."""
    _, (bits,) = longitudinal_reports([0], AWKWARD, ("example.com",), 1, n_reports)
    lanes = lanes_of(bloom_bits("example.com", 0, AWKWARD))
    assert_law(bits, np.where(lanes == 1, AWKWARD.q_star, AWKWARD.p_star))


@pytest.mark.parametrize("between", [[], [1], [1, 2]], ids=["next day", "a day", "two days"])
def test_days_of_one_value_share_the_permanent_response(between, n_reports):
    """The joint distribution of a bit's two reports, chi-squared in each of 8 lanes and 4 cohorts.

    Independent days would differ from it by hundreds of standard errors. P(false alarm) = 1e-6.
    """
    days = [0, *between, 0]
    cohorts, reports = longitudinal_reports(days, SMALL, SMALL_VALUES, 3, n_reports)
    assert_joint_law(cohorts, reports[0], reports[-1], shared=True)


def assert_joint_law(cohorts: IntArray, first: BitArray, second: BitArray, *, shared: bool) -> None:
    for cohort in range(SMALL.m):
        chosen = cohorts == cohort
        lanes, others = (
            np.array([bloom_bits(value, cohort, SMALL) >> j & 1 for j in range(SMALL.k)])
            for value in SMALL_VALUES[:2]
        )
        one, other = (
            np.where(bits == 1, SMALL.q_star, SMALL.p_star)[:, None] for bits in (lanes, others)
        )
        apart = np.hstack(
            [(1 - one) * (1 - other), (1 - one) * other, one * (1 - other), one * other]
        )
        expected = two_day_chances(lanes, SMALL) if shared else apart
        seen = pair_counts(first[chosen], second[chosen])
        for lane in range(SMALL.k):
            chances = chosen.sum() * expected[lane]
            assert chi_squared_p(seen[lane], chances) > ALARM / (SMALL.m * SMALL.k)


def test_real_clients_second_reports_have_the_same_joint_law():
    """20,000 encoders report twice; the distribution that simulated ones are held to is theirs.

    P(false alarm) = 1e-6.
    """
    metric, n_clients = make_metric(params=SMALL), 20_000
    cohorts: list[int] = []
    days: tuple[list[int], list[int]] = ([], [])
    for client in range(n_clients):
        encoder = Encoder(metric, make_secret(client))
        coins = seeded_stream(f"twice {client}")
        cohorts.append(encoder.cohort)
        bloom = bloom_bits(SMALL_VALUES[0], encoder.cohort, SMALL)
        for day in days:
            day.append(report_bits(encoder, encoder.permanent_response(bloom).bits, coins))
    first, second = (unpack(bytes(day), SMALL.k) for day in days)
    assert_joint_law(np.array(cohorts), first, second, shared=True)


def open_chances(value: str) -> FloatArray:
    """Return the probability of each (cohort, bits) of an open string's report."""
    params = OPEN_METRIC.params
    patterns = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    rows = []
    for cohort in range(params.m):
        true = lanes_of_open(value, cohort)
        ones = np.where(true == 1, params.q_star, params.p_star)
        rows.append(np.where(patterns == 1, ones, 1 - ones).prod(axis=1) / params.m)
    return np.concatenate(rows)


def lanes_of_open(value: str, cohort: int) -> BitArray:
    bits = OPEN.bits(value, cohort, OPEN_METRIC.params)
    return np.array([bits >> lane & 1 for lane in range(8)], dtype=np.uint8)


def test_simulated_and_real_clients_of_open_strings_are_indistinguishable(n_reports, rng):
    """Simulated clients and 30,000 encoders, each against the exact probabilities.

    Chi-squared over all 4 x 256 patterns of (cohort, bits): the cohort says the step, so steps,
    cohorts and prefixes are tested together. P(false alarm) = 1e-6 for each of the two.
    """
    held = np.arange(n_reports) % len(OPEN_VALUES)
    simulated = SimulatedClients(OPEN_VALUES, OPEN_METRIC.params, rng, OPEN)
    cohorts, bits = simulated.report(held)
    chances = [open_chances(value) for value in OPEN_VALUES]
    expected = np.asarray(np.bincount(held) @ np.array(chances), dtype=np.float64)
    assert chi_squared_p(pattern_counts(cohorts, bits[:, 0].astype(np.int64)), expected) > ALARM
    clients, reports = [], []
    for client in range(30_000):
        encoder = Encoder(OPEN_METRIC, make_secret(f"open {client}"))
        true = encoder.true_bits(OPEN_VALUES[client % len(OPEN_VALUES)])
        coins = seeded_stream(f"open fleet {client}")
        clients.append(encoder.cohort)
        reports.append(report_bits(encoder, encoder.permanent_response(true).bits, coins))
    expected = np.asarray(10_000 * np.sum(chances, axis=0))
    assert expected.min() > 5
    assert chi_squared_p(pattern_counts(np.array(clients), np.array(reports)), expected) > ALARM


def test_values_with_one_prefix_share_a_permanent_response_and_others_do_not(n_reports):
    """Two days' reports of two values, chi-squared in each of 8 lanes and 4 cohorts.

    P(false alarm) = 1e-6. As a real client's, whose response is keyed by the bits.
    """
    params = OPEN_METRIC.params
    simulated = LongitudinalClients(
        OPEN_VALUES, params, np.random.SeedSequence(6), metric_type=OPEN
    )
    numbers, rng = np.arange(n_reports), np.random.default_rng(6)
    cohorts = simulated.cohorts(numbers)
    first, second = (
        unpack(simulated.report(numbers, np.full(n_reports, value), rng).tobytes(), params.k)
        for value in (0, 1)
    )
    for cohort in range(params.m):
        chosen = cohorts == cohort
        lanes, others = (lanes_of_open(value, cohort) for value in OPEN_VALUES[:2])
        assert (lanes == others).all() == (cohort < OPEN.cohorts)
        one, other = (
            np.where(bits == 1, params.q_star, params.p_star)[:, None] for bits in (lanes, others)
        )
        apart = np.hstack(
            [(1 - one) * (1 - other), (1 - one) * other, one * (1 - other), one * other]
        )
        expected = two_day_chances(lanes, params) if cohort < OPEN.cohorts else apart
        seen = pair_counts(first[chosen], second[chosen])
        for lane in range(params.k):
            p_value = chi_squared_p(seen[lane], chosen.sum() * expected[lane])
            assert p_value > ALARM / (params.m * params.k)
