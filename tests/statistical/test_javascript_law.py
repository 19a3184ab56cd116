"""The JavaScript client's probabilities, its independent bits, and an audit of both epsilons.

The reports come from Node with the system's coins, so nothing is seeded: every test states the
chance of a false alarm. The probabilities are computed here, from the formulas of the protocol.
HUBBUB_CLIENTS says how many clients report. With 100,000 a lane's rate is seen that is off by 1%, a
rate of all lanes that is off by 0.1%, and a correlation of 2%; the quarter of them that report in
`make test` show what is twice as large. Coins that two bits share are a correlation of 1.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.frequencies import loss_interval
from evaluation.reference.protocol import (
    bloom_positions,
    hashed_positions,
    open_string_bytes,
    open_string_cohort,
)
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
from unit.javascript.node import run_program

VALUE = "example.com"
CLIENTS = int(os.environ.get("HUBBUB_CLIENTS", "100000"))
PATTERNS = 256


@dataclass(frozen=True, slots=True)
class Noise:
    f: float
    p: float
    q: float

    def reported(self, bits: BitArray) -> FloatArray:
        """Chance of a reported 1 for each true bit (p* or q*)."""
        return self._mixed(bits, self.p, self.q)

    def permanent(self, bits: BitArray) -> FloatArray:
        """Chance of a permanent 1 for each true bit."""
        return self._mixed(bits, 0, 1)

    def instantaneous(self, permanent: BitArray) -> FloatArray:
        """Chance of a reported 1 for each permanent bit."""
        return np.where(permanent == 1, self.q, self.p)

    def _mixed(self, bits: BitArray, low: float, high: float) -> FloatArray:
        flip = np.where(bits == 1, self.f / 2, 1 - self.f / 2)
        return np.asarray(flip * low + (1 - flip) * high, dtype=np.float64)


# f/2, p and q of the awkward one lie about halfway between multiples of 1/256: rounded to a byte
# they are off by .0015 and more, which a quarter of the clients shows.
NOISES = {"dyadic": Noise(0.5, 0.25, 0.75), "awkward": Noise(0.316, 0.1234, 0.8765)}
EACH_NOISE = [
    pytest.param(NOISES["dyadic"], id="dyadic", marks=pytest.mark.long),
    pytest.param(NOISES["awkward"], id="awkward"),
]
AS_MANY_CLIENTS = pytest.mark.parametrize("n", quick_and_full(CLIENTS // 4, CLIENTS))
STRING: dict[str, Any] = {"type": "string", "k": 128, "h": 2, "m": 1}
SMALL: dict[str, Any] = {"type": "string", "k": 8, "h": 2, "m": 1}
ENUM: dict[str, Any] = {"type": "enum", "categories": [f"c{i}" for i in range(17)]}
ORDINAL: dict[str, Any] = {"type": "ordinal", "edges": [0, 1.5, 10, 1e6]}
BOOLEAN: dict[str, Any] = {"type": "boolean"}


class Clients:
    """JavaScript clients of one metric; their secrets follow from the label."""

    epsilons: dict[str, float]

    def __init__(self, fields: dict[str, Any], noise: Noise, folder: Path) -> None:
        mode = "one-time" if (noise.p, noise.q) == (0, 1) else "longitudinal"
        self._entry = {**fields, "mode": mode, "f": noise.f, "p": noise.p, "q": noise.q}
        self._output = folder / "bits"

    def draw(
        self, values: list[Any], stages: list[str], clients: int = CLIENTS, label: str = "client"
    ) -> BitArray:
        """Return what each client answers to the values, side by side; shape (clients, ...)."""
        job = {"values": values, "stages": stages, "clients": clients, "label": label}
        job |= {"entry": self._entry, "output": str(self._output)}
        self.epsilons = run_program("reports.js", job)
        packed = self._output.read_bytes()
        return unpack(packed, 8 * len(packed) // clients)

    def filters(self, values: list[Any]) -> BitArray:
        """Return the true bits of each value; shape (values, k)."""
        return self.draw(values, ["filter"], clients=1).reshape(len(values), -1)


def assert_law(sample: BitArray, expected: FloatArray) -> None:
    """Columns have their probabilities, and every two are independent; P(false alarm) < 1e-6."""
    assert_rates_and_pairs(sample, expected, ALARM)


def assert_rates_and_pairs(sample: BitArray, expected: FloatArray, alarm: float) -> None:
    """As `assert_law`, at another probability of a false alarm.

    The two halves at a quarter of the alarm each leave room for the normal approximation's error
    (skewness: at most as much again, at z = 7 and 50,000 reports).
    """
    k = len(expected)
    rates = rate_z(sample, expected)
    assert np.abs(rates).max() < z_limit(len(rates), alarm / 4)
    assert np.abs(pair_z(sample, expected)).max() < z_limit(k * (k - 1) // 2, alarm / 4)


@AS_MANY_CLIENTS
@pytest.mark.parametrize("noise", EACH_NOISE)
def test_bits_of_a_report_are_exact_and_independent(noise, n, tmp_path):
    """All clients' reports of one value: 128 rates, 8,128 pairs; P(false alarm) < 1e-6."""
    clients = Clients(STRING, noise, tmp_path)
    (bits,) = clients.filters([VALUE])
    assert bits.sum() == 2
    assert_law(clients.draw([VALUE], ["report"], clients=n), noise.reported(bits))


@pytest.mark.long
@pytest.mark.parametrize("noise", EACH_NOISE)
def test_permanent_responses_are_exact_and_independent(noise, tmp_path):
    """All secrets: 1 w.p. f/2 + (1 - f) B; P(false alarm) < 1e-6."""
    clients = Clients(STRING, noise, tmp_path)
    (bits,) = clients.filters([VALUE])
    assert_law(clients.draw([VALUE], ["permanent"]), noise.permanent(bits))


@AS_MANY_CLIENTS
@pytest.mark.parametrize(
    ("fields", "value"),
    [
        pytest.param(ENUM, "c9", id="enum", marks=pytest.mark.long),
        pytest.param(ORDINAL, 3.0, id="ordinal", marks=pytest.mark.long),
        pytest.param(BOOLEAN, True, id="true"),
        pytest.param(BOOLEAN, False, id="false", marks=pytest.mark.long),
    ],
)
def test_reports_of_other_types_follow_the_same_law(fields, value, n, tmp_path):
    """Half of the clients; bits that no value sets are coins too; P(false alarm) < 1e-6 each."""
    noise = NOISES["awkward"]
    clients = Clients(fields, noise, tmp_path)
    (bits,) = clients.filters([value])
    assert bits.sum() == (value is not False)
    assert_law(clients.draw([value], ["report"], clients=n // 2), noise.reported(bits))


@pytest.mark.long
@pytest.mark.parametrize("stage", ["permanent", "instantaneous"])
def test_two_responses_of_one_client_share_no_coin(stage, tmp_path):
    """All 256 x 255 / 2 pairs of bits of two responses of half of the clients; P(alarm) < 1e-6.

    Permanent responses are to two values, instantaneous ones to the same permanent bits twice.
    """
    noise = NOISES["dyadic"]
    clients = Clients(STRING, noise, tmp_path)
    if stage == "permanent":
        values = [VALUE, "example.org"]
        expected = noise.permanent(clients.filters(values).ravel())
    else:
        values = ["0f" * 16] * 2
        expected = noise.instantaneous(np.tile(np.array([1, 1, 1, 1, 0, 0, 0, 0]), 32))
    assert_law(clients.draw(values, [stage], clients=CLIENTS // 2), expected)


PERIODS: dict[str, Any] = {"memory": "period", "period_days": 7}


@pytest.mark.long
def test_a_periods_answers_are_exact_independent_and_in_uniform_cohorts(tmp_path):
    """As many answers to one value by one client: 3 cohorts, permanent bits, a report of each.

    P(false alarm) < 1e-6: half of it for the fit of the cohorts, the rest for the rates and pairs
    of permanent and of reported bits, in each cohort (whose filter is another) a twelfth each.
    """
    noise, m = NOISES["awkward"], 3
    clients = Clients({"type": "string", "k": 16, "h": 2, "m": m, **PERIODS}, noise, tmp_path)
    sample = clients.draw([VALUE] * CLIENTS, ["period"], clients=1).reshape(CLIENTS, -1)
    cohorts = sample[:, :16] @ (1 << np.arange(16))
    observed = np.bincount(cohorts, minlength=m)
    assert len(observed) == m
    assert chi_squared_p(observed, np.full(m, CLIENTS / m)) > ALARM / 2
    for cohort in range(m):
        drawn = sample[cohorts == cohort][:, 16:]
        permanent, reported = drawn[:, :16], drawn[:, 16:]
        bits = np.zeros(16, dtype=np.uint8)
        bits[bloom_positions(VALUE, cohort, k=16, h=2)] = 1
        assert_rates_and_pairs(permanent, noise.permanent(bits), ALARM / 12)
        assert_rates_and_pairs(reported, noise.reported(bits), ALARM / 12)


@pytest.mark.long
def test_open_strings_are_exact_and_independent_at_every_step(tmp_path):
    """All clients, half at each of two steps: the cohorts, permanent bits, a report of each.

    P(false alarm) < 1e-6: half of it for the fit of the cohorts, the rest for the rates and pairs
    of permanent and of reported bits, at each step an eighth each.
    """
    noise = NOISES["awkward"]
    entry = {"type": "open-string", "steps": [2], "k": 16, "m": 1}
    sample = Clients(entry, noise, tmp_path).draw([VALUE], ["period"])
    steps = sample[:, :16] @ (1 << np.arange(16))
    assert chi_squared_p(np.bincount(steps), np.full(2, CLIENTS / 2)) > ALARM / 2
    for step in range(2):
        drawn = sample[steps == step][:, 16:]
        hashed = open_string_bytes(VALUE, step, [2])
        bits = np.zeros(16, dtype=np.uint8)
        bits[hashed_positions(hashed, open_string_cohort(0, step, [2], 1), k=16, h=1)] = 1
        assert_rates_and_pairs(drawn[:, :16], noise.permanent(bits), ALARM / 8)
        assert_rates_and_pairs(drawn[:, 16:], noise.reported(bits), ALARM / 8)


def disjoint_values(clients: Clients) -> tuple[list[str], BitArray]:
    """Return two values that set h bits each and share none: the worst case of the theorems."""
    values = [f"value {i}" for i in range(200)]
    filters = clients.filters(values)
    full = [i for i in range(len(values)) if filters[i].sum() == SMALL["h"]]
    one, other = next((i, j) for i in full for j in full if not (filters[i] & filters[j]).any())
    return [values[one], values[other]], filters[[one, other]]


def counts_of_patterns(sample: BitArray) -> IntArray:
    patterns = sample @ (1 << np.arange(8))
    return np.asarray(np.bincount(patterns, minlength=PATTERNS), dtype=np.int64)


def law(chances: FloatArray) -> FloatArray:
    """Return the probability of each pattern if every lane is a coin of its own."""
    lanes = np.arange(PATTERNS)[:, None] >> np.arange(8) & 1
    return np.asarray(np.where(lanes == 1, chances, 1 - chances).prod(axis=1))


def fit_p(observed: IntArray, expected: FloatArray) -> float:
    """Return the p-value of pattern counts; patterns expected fewer than 50 times are pooled."""
    rare = expected < 50
    pooled = [np.append(x[~rare], x[rare].sum()) for x in (observed, expected)]
    kept = pooled[1] > 0
    return chi_squared_p(pooled[0][kept], pooled[1][kept])


def assert_epsilon(counts: list[IntArray], filters: BitArray, epsilon: float) -> None:
    """No pattern breaks epsilon, and the set of patterns that tells most attains it.

    P(false alarm) < 1e-6 / 4: exact bounds, 2 x 256 patterns and one set.
    """
    ones, others = counts
    n = int(ones.sum())
    for left, right in ((ones, others), (others, ones)):
        for pattern in range(PATTERNS):
            low, _ = loss_interval(int(left[pattern]), int(right[pattern]), n, ALARM / 16_384)
            assert low <= epsilon
    lanes = np.arange(PATTERNS)[:, None] >> np.arange(8) & 1
    differ = filters[0] != filters[1]
    telling = (lanes == filters[0])[:, differ].all(axis=1)
    low, high = loss_interval(int(ones[telling].sum()), int(others[telling].sum()), n, ALARM / 64)
    assert low <= epsilon <= high
    assert high - low < 0.25 * epsilon, "too few reports for an audit that could fail"


@pytest.mark.parametrize(
    ("fields", "noise", "share"),
    [
        pytest.param(SMALL, NOISES["dyadic"], 0.6, marks=pytest.mark.long),
        pytest.param(SMALL, NOISES["awkward"], 1.2, marks=pytest.mark.long),
        (BOOLEAN, NOISES["awkward"], 0.2),
        pytest.param(BOOLEAN, NOISES["awkward"], 0.6, marks=pytest.mark.long),
        pytest.param(SMALL, Noise(0.5, 0.0, 1.0), 0.6, marks=pytest.mark.long),
    ],
    ids=["dyadic", "awkward", "boolean", "boolean, more", "permanent alone"],
)
def test_reports_and_permanent_responses_keep_their_epsilons(fields, noise, share, tmp_path):
    """A share of the clients for each of two values; all 256 outputs are looked at.

    P(false alarm) < 1e-6: two audits at 1/4 of that each, four tests of fit at 1/8 each.
    """
    clients = Clients(fields, noise, tmp_path)
    if fields is BOOLEAN:
        values: list[Any] = [True, False]
        filters = clients.filters(values)
    else:
        values, filters = disjoint_values(clients)
    n = round(share * CLIENTS)
    samples = [clients.draw([v], ["period"], clients=n, label=f"audit {v}") for v in values]
    permanent = [counts_of_patterns(sample[:, 16:24]) for sample in samples]
    reported = [counts_of_patterns(sample[:, 24:]) for sample in samples]
    assert_epsilon(permanent, filters, clients.epsilons["permanent"])
    assert_epsilon(reported, filters, clients.epsilons["report"])
    for i, bits in enumerate(filters):
        assert fit_p(permanent[i], n * law(noise.permanent(bits))) > ALARM / 8
        assert fit_p(reported[i], n * law(noise.reported(bits))) > ALARM / 8
