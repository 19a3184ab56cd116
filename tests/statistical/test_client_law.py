"""The client's probabilities, and that no bit tells anything about another.

A known encoder was once sped up by using coins twice: every bit kept its own frequency, and privacy
was gone. So pairs are tested, along every axis on which coins could be shared.
"""

from collections.abc import Callable

import numpy as np
import pytest

from factories import make_metric, make_params, make_secret, report_bits
from hubbub.client import Encoder
from hubbub.protocol import EnumType, Field, JointType, OpenStringType, OrdinalType, bloom_bits
from parameters import long_but, quick_and_full
from significance import ALARM, BitArray, FloatArray, chi_squared_p, pair_z, rate_z, unpack, z_limit

VALUE = "example.com"
PARAMS = {
    "dyadic": make_params(m=1),
    # f/2, p and q lie about halfway between multiples of 1/256: rounded to a byte they are off by
    # .0015 and more, which 25,000 clients show.
    "awkward": make_params(m=1, f=0.316, p=0.1234, q=0.8765),
}
CLIENTS = 100_000
"""Enough to see a lane's rate that is off by 1%, that of all lanes by 0.1%, a correlation of 2%."""
AS_MANY_CLIENTS = pytest.mark.parametrize("clients", quick_and_full(CLIENTS // 4, CLIENTS))
"""A quarter of them sees what is twice as large; coins that two bits share correlate them by 1."""


def collect(draw: Callable[[int], int], n: int, k: int) -> BitArray:
    packed = bytearray()
    for index in range(n):
        packed += draw(index).to_bytes(k // 8, "little")
    return unpack(packed, k)


def lanes(bits: int, k: int) -> BitArray:
    return unpack(bits.to_bytes(k // 8, "little"), k).ravel()


def chances(selector: BitArray, low: float, high: float) -> FloatArray:
    return np.where(selector == 1, high, low)


def assert_law(sample: BitArray, expected: FloatArray) -> None:
    """Every column has its probability and every two columns are independent."""
    k, rates = len(expected), rate_z(sample, expected)
    assert np.abs(rates).max() < z_limit(len(rates))
    assert np.abs(pair_z(sample, expected)).max() < z_limit(k * (k - 1) // 2)


@AS_MANY_CLIENTS
@pytest.mark.parametrize("name", long_but("awkward", PARAMS, str))
def test_permanent_responses_and_reports_are_exact_and_independent(name, clients, coins):
    """All clients' responses to one value, 1 w.p. f/2 + (1 - f) B, and a report of each.

    128 rates and 8,128 pairs of either (step 2 of the paper, and both steps). P(false alarm) < 1e-6
    for the rates and for the pairs each (Bonferroni, normal approximation).
    """
    params = PARAMS[name]
    bits = bloom_bits(VALUE, 0, params)
    metric, k = make_metric(params=params), params.k

    def response_and_report(client: int) -> int:
        encoder = Encoder(metric, make_secret(client))
        permanent = encoder.permanent_response(bits).bits
        return permanent | report_bits(encoder, permanent, coins) << k

    sample = collect(response_and_report, clients, 2 * k)
    true_bits = lanes(bits, k)
    assert_law(sample[:, :k], chances(true_bits, params.f / 2, 1 - params.f / 2))
    assert_law(sample[:, k:], chances(true_bits, params.p_star, params.q_star))


@AS_MANY_CLIENTS
@pytest.mark.parametrize("name", long_but("awkward", PARAMS, str))
def test_instantaneous_responses_are_exact_and_independent(name, clients, coins):
    """Step 3 of the paper, as many draws for one permanent response. P(false alarm) < 1e-6."""
    permanent = int.from_bytes(make_secret("selector")[:16], "little")
    params = PARAMS[name]
    encoder = Encoder(make_metric(params=params), make_secret())
    sample = collect(lambda _: report_bits(encoder, permanent, coins), clients, params.k)
    assert_law(sample, chances(lanes(permanent, params.k), params.p, params.q))


def test_reports_with_the_systems_coins_follow_the_same_law():
    """20,000 unseeded reports of one client: 128 rates and 8,128 pairs; P(false alarm) < 1e-6."""
    params = PARAMS["awkward"]
    encoder = Encoder(make_metric(params=params), make_secret())
    permanent = encoder.permanent_response(bloom_bits(VALUE, 0, params)).bits
    packed = b"".join(encoder.encode(VALUE).bits for _ in range(20_000))
    sample = unpack(packed, params.k)
    assert_law(sample, chances(lanes(permanent, params.k), params.p, params.q))


@AS_MANY_CLIENTS
@pytest.mark.parametrize(
    "second", long_but("next report", ["value", "metric", "version", "next report"], str)
)
def test_two_responses_of_one_client_share_no_coin(second, clients, coins):
    """All 128 x 128 pairs between two responses of half of the clients; P(alarm) < 1e-6."""
    params = PARAMS["dyadic"]
    homepage, other = make_metric(params=params), make_metric(params=params)
    bits = other_bits = bloom_bits(VALUE, 0, params)
    if second == "value":
        other_bits = bloom_bits("example.org", 0, params)
    elif second == "metric":
        other = make_metric("search", params=params)
    elif second == "version":
        other = make_metric(version=2, params=params)

    def noise(client: int) -> int:
        secret = make_secret(client)
        if second == "next report":
            encoder = Encoder(homepage, secret)
            one, two = (report_bits(encoder, bits, coins) for _ in range(2))
        else:
            one = Encoder(homepage, secret).permanent_response(bits).bits ^ bits
            two = Encoder(other, secret).permanent_response(other_bits).bits ^ other_bits
        return one | two << params.k

    sample = collect(noise, clients // 2, 2 * params.k)
    if second == "next report":
        half = chances(lanes(bits, params.k), params.p, params.q)
    else:
        half = np.full(params.k, params.f / 2)
    assert_law(sample, np.concatenate([half, half]))


@AS_MANY_CLIENTS
def test_cohorts_are_uniform_and_independent_between_metrics(clients):
    """64 x 64 cells of two metrics' cohorts, six secrets each at least; P(false alarm) < 1e-6."""
    m = 64
    homepage, search = make_metric("homepage"), make_metric("search")
    cells = np.zeros((m, m))
    for client in range(clients):
        secret = make_secret(client)
        cells[Encoder(homepage, secret).cohort, Encoder(search, secret).cohort] += 1
    assert chi_squared_p(cells.ravel(), np.full(m * m, clients / m**2)) > ALARM


@pytest.mark.long
def test_bits_of_an_open_string_are_exact_and_independent_at_every_step(coins):
    """100,000 secrets, a third at each step: 3 x 128 rates, 3 x 8,128 pairs, and the 3 steps.

    P(false alarm) < 1e-6 for each of the three (Bonferroni, normal approximation).
    """
    metric = make_metric(metric_type=OpenStringType((2, 4), 1), params=PARAMS["awkward"])
    params = metric.params
    steps, packed = [], bytearray()
    for client in range(CLIENTS):
        encoder = Encoder(metric, make_secret(client))
        steps.append(encoder.cohort)
        permanent = encoder.permanent_response(encoder.true_bits(VALUE)).bits
        packed += report_bits(encoder, permanent, coins).to_bytes(params.k // 8, "little")
    assert chi_squared_p(np.bincount(steps), np.full(3, CLIENTS / 3)) > ALARM
    reports, chosen, k = unpack(packed, params.k), np.array(steps), params.k
    for step in range(3):
        true_bits = lanes(metric.type.bits(VALUE, step, params), k)
        assert true_bits.sum() == 1
        expected = chances(true_bits, params.p_star, params.q_star)
        sample = reports[chosen == step]
        assert np.abs(rate_z(sample, expected)).max() < z_limit(3 * k)
        assert np.abs(pair_z(sample, expected)).max() < z_limit(3 * k * (k - 1) // 2)


@pytest.mark.long
def test_2000_cells_of_a_joint_metric_are_exact_and_independent(coins):
    """20,000 clients' answers to one tuple and a report of each: 2,000 rates, 1,999,000 pairs.

    A correlation of 5% is seen. P(false alarm) < 1e-6 for each of the two kinds of rates and of
    pairs.
    """
    fields = (
        Field("site", EnumType(tuple(f"site {i}" for i in range(100)))),
        Field("speed", OrdinalType(tuple(map(float, range(1, 20))))),
    )
    metric = make_metric(metric_type=JointType(fields), params=PARAMS["awkward"])
    params, n = metric.params, 20_000
    assert params.k == 2000
    permanent, reported = bytearray(), bytearray()
    for client in range(n):
        encoder = Encoder(metric, make_secret(client))
        bits = encoder.true_bits({"site": "site 37", "speed": 11.5})
        response = encoder.permanent_response(bits).bits
        permanent += response.to_bytes(params.k // 8, "little")
        reported += report_bits(encoder, response, coins).to_bytes(params.k // 8, "little")
    true_bits = lanes(1 << (37 * 20 + 11), params.k)
    assert_law(unpack(permanent, params.k), chances(true_bits, params.f / 2, 1 - params.f / 2))
    assert_law(unpack(reported, params.k), chances(true_bits, params.p_star, params.q_star))
