"""The bounds of power know what they say: the covariance of the scores that they test by."""

import itertools
from functools import cache

import numpy as np
import pytest
from scipy import linalg, stats

from evaluation.genie import Information
from evaluation.studies.cases import draw_records
from factories import make_params
from hubbub.decoder import count_records
from hubbub.inference import pack
from significance import ALARM

PARAMS = make_params(k=8, h=2, m=4)
VALUES = tuple(f"string {i}" for i in range(5))
SHARES = np.array([0.4, 0.3, 0.15, 0.1, 0.05])


def informations(number: int) -> tuple[Information, Information]:
    """Return what counts and what whole reports of the same 5,000 people say."""
    rng = np.random.default_rng([7, number])
    held = rng.choice(len(VALUES), size=5_000, p=SHARES)
    records = draw_records(VALUES, held, PARAMS, rng)
    return (
        Information.of(count_records(records, PARAMS), VALUES, SHARES, PARAMS),
        Information.of_reports(pack([records], PARAMS), VALUES, SHARES),
    )


@cache
def trials() -> list[tuple[Information, Information]]:
    return [informations(number) for number in range(60)]


@pytest.mark.parametrize("way", [0, 1], ids=["counts", "whole reports"])
def test_scores_have_the_covariance_that_the_genie_takes_them_to_have(way):
    """U' J^+ U is chi-squared with a degree less than strings (normal approximation of sums).

    P(false alarm) < 1e-6.
    """
    squares = sum(
        float(known.score @ linalg.pinvh(known.matrix, rtol=1e-9) @ known.score)
        for known in (trial[way] for trial in trials())
    )
    freedom = len(trials()) * (len(VALUES) - 1)
    assert stats.chi2.ppf(ALARM / 2, freedom) < squares < stats.chi2.isf(ALARM / 2, freedom)


def test_whole_reports_give_smaller_errors_than_their_counts():
    """The seeds are fixed, so that it passes always or never."""
    counts, whole = (
        np.mean([np.diag(trial[way].matrix) for trial in trials()], axis=0) for way in (0, 1)
    )
    assert (whole > counts).all()


def test_strings_of_unknown_bits_are_noise_of_the_size_that_is_stated():
    """Unlisted strings are others in each of 200 collections.

    U' J^-1 U is as large on average as strings are listed (Student). P(false alarm) < 1e-6.
    """
    listed, params = np.arange(len(VALUES)) % 2 == 0, make_params(k=8, h=2, m=32)
    squares = []
    for number in range(200):
        rng = np.random.default_rng([8, number])
        values = [v if known else f"{v}, {number}" for v, known in zip(VALUES, listed, strict=True)]
        held = rng.choice(len(VALUES), size=5_000, p=SHARES)
        counts = count_records(draw_records(tuple(values), held, params, rng), params)
        strings = tuple(itertools.compress(VALUES, listed))
        known = Information.of(counts, strings, SHARES[listed], params, SHARES[~listed])
        squares.append(known.score @ linalg.solve(known.matrix, known.score))
    error = float(np.std(squares, ddof=1)) / len(squares) ** 0.5
    limit = float(stats.t.isf(ALARM / 2, len(squares) - 1)) * error
    assert abs(np.mean(squares) - listed.sum()) < limit, (np.mean(squares), error)
