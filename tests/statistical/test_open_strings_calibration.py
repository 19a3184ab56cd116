"""Open strings: intervals that hold, and nothing found where there is nothing.

Seeded, so what passes once always does; the chances say how likely another seed would fail.
"""

import numpy as np
import pytest
from scipy import stats

from hubbub.inference import ONCE_OF_REPORTS, decode_open_strings
from hubbub.protocol import OpenStringType
from parameters import number_of_runs
from unit.decoder.open_counts import draw_counts, open_params

pytestmark = pytest.mark.long

STEPS = (2, 4)
PARAMS = open_params(STEPS, k=64, m=64)
TYPE = OpenStringType(STEPS, 64)
ROOM = 10_000
RUNS = number_of_runs(15)
ALARM = 1e-6
LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz"))


def words(n: int, rng: np.random.Generator) -> list[str]:
    """Return n different words of three to seven letters."""
    found = dict[str, None]()
    while len(found) < n:
        found["".join(rng.choice(LETTERS, rng.integers(3, 8)))] = None
    return list(found)


def test_intervals_of_found_strings_hold():
    """The share of all clients, of some 20 strings detected in each run.

    P(false alarm) < 1e-6 at the stated coverage of .95, taken as .93 for what normal tails leave.
    """
    held, total, false = 0, 0, 0
    for run in range(RUNS):
        rng = np.random.default_rng([7, run])
        names = words(60, rng)
        shares = 1 / np.arange(1, 61)
        clients = rng.multinomial(60_000, shares / shares.sum())
        truth = dict(zip(names, clients.tolist(), strict=True))
        counts = draw_counts(truth, PARAMS, STEPS, rng)
        decoding = decode_open_strings(
            counts, PARAMS, TYPE, room=ROOM, repeats=ONCE_OF_REPORTS
        ).decoding
        for row in decoding.largest_detected().tolist():
            share = truth.get(decoding.candidates[row], 0) / 60_000
            held += int(decoding.low[row] <= share <= decoding.high[row] and share > 0)
            false += int(share == 0)
            total += int(share > 0)
    assert total > 10 * RUNS
    assert held >= stats.binom.ppf(ALARM, total, 0.93)
    # At most .05 are expected to be false; a run's false names come together, so twice the spread.
    assert false <= 0.05 * (total + false) + 2 * 4.75 * np.sqrt(0.05 * (total + false))


def test_little_is_found_where_everybody_has_another_string():
    """Any detection at alpha = .05 among 4,000 clients with a string each.

    P(false alarm) < 1e-6 (binomial).
    """
    found = 0
    for run in range(RUNS):
        rng = np.random.default_rng([8, run])
        counts = draw_counts(dict.fromkeys(words(4_000, rng), 1), PARAMS, STEPS, rng)
        decoding = decode_open_strings(
            counts, PARAMS, TYPE, room=ROOM, repeats=ONCE_OF_REPORTS
        ).decoding
        found += int(decoding.detected.any())
    assert found <= stats.binom.isf(ALARM, RUNS, 0.05)
