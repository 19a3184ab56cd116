"""Candidates near the limit are tested with their rivals."""

import numpy as np
import pytest

from factories import make_params
from hubbub.decoder import Correction
from hubbub.inference import Candidates, Search, make_design, mapped
from unit.decoder.models import noisy_bits

PARAMS = make_params(k=32, h=2, m=32)


def shadowing(n_shared: int) -> Candidates:
    """Return two strings, the second of which nobody has but which has most bits of the first."""
    rng = np.random.default_rng(8)
    positions = rng.integers(0, PARAMS.k, (40, PARAMS.m, PARAMS.h)).astype(np.int16)
    positions[1] = positions[0]
    positions[1, n_shared:] = (positions[0, n_shared:] + 1 + PARAMS.k // 3) % PARAMS.k
    return mapped([f"string {i}" for i in range(40)], positions, PARAMS)


@pytest.mark.parametrize("seed", range(3))
def test_search_detects_the_string_and_not_its_shadow(seed):
    """Of a list too long to go in whole."""
    candidates = shadowing(n_shared=24)
    design = make_design(candidates.positions(slice(None)), PARAMS)
    truth = np.append(0.05, np.zeros(39))
    bits = noisy_bits(design, np.random.default_rng(seed), truth, 1e4, PARAMS)
    search = Search(bits, candidates, PARAMS, float(np.log(0.05)), Correction.BH, listed=4_000)
    settled = search.settle(np.array([1]))
    assert np.flatnonzero(settled.log_q <= np.log(0.05)).tolist() == [0]
