"""Densities, held against the enumeration of all reports and of all strings."""

import numpy as np
import pytest

from factories import make_params
from hubbub.inference import (
    PositionArray,
    densities,
    distinct_positions,
    ratio_rows,
    unknown_density,
)
from unit.decoder.packed import every_report, every_tuple, likelihood_ratio

TINY = tuple(make_params(k=8, h=h, m=2, f=0.3, p=0.2, q=0.7) for h in (1, 2, 3))


def positions_of(*strings: tuple[int, ...]) -> PositionArray:
    return np.array(strings, dtype=np.int16)


@pytest.mark.parametrize("params", TINY, ids=lambda params: f"{params.h} hashes")
def test_density_is_the_ratio_of_the_reports_probabilities(params):
    """All 256 reports, strings with and without repeated positions."""
    bits = every_report(params)
    strings = [(3,) * params.h, tuple(range(params.h)), (7, 2, 2, 5)[: params.h]]
    found = densities(ratio_rows(bits, params), distinct_positions(positions_of(*strings), params))
    for density, string in zip(found, strings, strict=True):
        np.testing.assert_allclose(density, likelihood_ratio(bits, string, params), rtol=1e-12)


@pytest.mark.parametrize("params", TINY, ids=lambda params: f"{params.h} hashes")
def test_unknown_strings_density_is_the_mean_over_all_strings(params):
    bits = every_report(params)
    mean = np.mean([likelihood_ratio(bits, string, params) for string in every_tuple(params)], 0)
    np.testing.assert_allclose(unknown_density(bits, params), mean, rtol=1e-12)
