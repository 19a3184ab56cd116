"""The selection proposes what is there, and never more than the rows can carry."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from factories import make_params
from hubbub.client import RapporParams
from hubbub.inference.arrays import FloatArray, IntArray
from hubbub.inference.counts import BitEstimates
from hubbub.inference.regression.model import fit_selected
from hubbub.inference.regression.search import keep_fittest, select
from unit.decoder.models import candidates_of, design_of, noisy_bits

PARAMS = make_params()
N_CANDIDATES = 300
DESIGN = design_of(N_CANDIDATES, PARAMS)


def bits_of_a_population(
    shares: FloatArray, rng: np.random.Generator, n_reports: float = 1e4
) -> BitEstimates:
    """Return noisy rates of so many reports a cohort; the first candidates hold the shares."""
    return noisy_bits(DESIGN, rng, shares, n_reports, PARAMS)


def selected_from(bits: BitEstimates, n_candidates: int = N_CANDIDATES) -> IntArray:
    candidates = candidates_of(n_candidates, PARAMS)
    fit = fit_selected(bits, DESIGN, np.empty(0, dtype=np.int64), PARAMS)
    return select(fit, candidates, bits, n_candidates)


def test_every_strong_candidate_is_selected(rng):
    """The marginal standard error is about 0.2%; each of ten holds 5%."""
    selected = selected_from(bits_of_a_population(np.full(10, 0.05), rng))
    assert set(range(10)) <= set(selected.tolist())


def test_hardly_any_absent_candidate_is_selected(rng):
    """About one null in n passes the penalty, so a run selects a Poisson(1) number at most.

    P(more than 45 in 20 runs) < 1e-6 at a mean of 20.
    """
    runs = [selected_from(bits_of_a_population(np.full(10, 0.05), rng)) for _ in range(20)]
    assert sum(int((run >= 10).sum()) for run in runs) <= 45


def bits_of_shape(params: RapporParams, empty: int = 0) -> BitEstimates:
    reports = np.full((params.m, 1), 100.0)
    reports[:empty] = 0
    return BitEstimates(np.zeros((params.m, params.k)), reports, float(reports.sum()))


@given(arrays(np.float64, st.integers(0, 60), elements=st.floats(-1, 1)), st.integers(1, 9))
def test_fittest_are_the_best_of_positive_merit_that_the_rows_can_carry(merit, m):
    candidates = 3 * np.arange(len(merit)) + 7
    kept = keep_fittest(candidates, merit, bits_of_shape(make_params(k=8, m=m)))
    room = 8 * m // 3
    assert len(kept) == min(room, int((merit > 0).sum()))
    assert (np.diff(kept) > 0).all()
    out = ~np.isin(candidates, kept)
    assert (merit[~out] > 0).all()
    assert merit[out].max(initial=-1) <= max(merit[~out].min(initial=1), 0)
