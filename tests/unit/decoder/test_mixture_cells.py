"""Tables over sets of bits, held against direct sums over reports."""

import numpy as np
import pytest

from factories import make_params
from hubbub.client import RapporParams
from hubbub.inference import (
    ReportMixture,
    UndecodableError,
    hashed,
    make_cells,
    require_tabulable,
    tabulate,
    totals,
)
from unit.decoder.packed import every_tuple, members_of, reports_of

HELD = {"alpha": 600, "beta": 300, "gamma": 100}
OTHERS = [f"other {i}" for i in range(30)]
SHAPES = (
    make_params(k=8, h=1, m=4, f=0.3, p=0.2, q=0.8),
    make_params(k=8, h=2, m=4, f=0.3, p=0.2, q=0.8),
    make_params(k=8, h=3, m=3, f=0.3, p=0.2, q=0.8),
    make_params(k=8, h=5, m=2, f=0.3, p=0.2, q=0.8),
    make_params(k=16, h=4, m=2, f=0.3, p=0.2, q=0.8),
    make_params(k=32, h=3, m=2, f=0.3, p=0.2, q=0.8),
    make_params(k=64, h=2, m=3, f=0.3, p=0.2, q=0.8),
)
SHARES = np.array([0.2, 0.5, 0.2, 0.1])


def mixture_of(params: RapporParams) -> ReportMixture:
    return ReportMixture(reports_of(HELD, params), members_of(list(HELD), params))


def shape(params: RapporParams) -> str:
    return f"k={params.k} h={params.h}"


@pytest.mark.parametrize("params", SHAPES, ids=shape)
def test_candidates_totals_are_their_sums_over_reports(params):
    mixture = mixture_of(params)
    tables = tabulate(mixture, SHARES, np.zeros(4))
    summed = (tables.score, tables.information, tables.unknown)
    score, own, unknown = totals(tables.cells, summed, hashed(OTHERS, params))
    others = members_of(OTHERS, params)
    direct, by_cohort = mixture.overlaps(SHARES, others), mixture.crossings(SHARES, others)
    np.testing.assert_allclose(score, by_cohort.score.sum(axis=0), atol=1e-8)
    np.testing.assert_allclose(own, direct.own, rtol=1e-10)
    np.testing.assert_allclose(unknown, direct.shared[:, 0], rtol=1e-10)


@pytest.mark.parametrize("params", SHAPES, ids=shape)
def test_mean_over_all_strings_is_the_unknowns_score(params):
    mixture = mixture_of(params)
    tables = tabulate(mixture, SHARES, np.zeros(4))
    law = tables.score[:, tables.cells.of_tuple]
    unknown = mixture.evaluate(SHARES).gradient[0] - mixture.reports.total
    assert law.mean(axis=1).sum() == pytest.approx(unknown, abs=1e-8)


def test_tuples_of_the_same_bits_share_a_cell():
    params = make_params(k=8, h=3, m=1)
    cells = make_cells(params).of_tuple
    by_set: dict[frozenset[int], set[int]] = {}
    for number, positions in enumerate(every_tuple(params)):
        by_set.setdefault(frozenset(positions), set()).add(int(cells[number]))
    assert all(len(own) == 1 for own in by_set.values())
    assert len(set().union(*by_set.values())) == len(by_set)


@pytest.mark.parametrize(("k", "h", "m"), [(128, 3, 1), (1024, 2, 1), (8, 6, 1), (256, 2, 512)])
def test_filters_with_too_many_sets_of_bits_are_refused(k, h, m):
    with pytest.raises(UndecodableError, match=f"k = {k}, h = {h}, m = {m}"):
        require_tabulable(make_params(k=k, h=h, m=m))
