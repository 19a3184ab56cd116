"""Candidates near the limit: tested with their rivals, and estimated without their allies, too."""

import numpy as np
import pytest

from factories import make_params
from hubbub.decoder import Correction
from hubbub.inference import (
    Candidates,
    PresenceTests,
    Search,
    estimate_all,
    estimated_in,
    fit_selected,
    make_design,
    mapped,
    reduced,
    selection_corrected_models,
)
from unit.decoder.models import noisy_bits

PARAMS = make_params(k=32, h=2, m=32)


def shadowing(n_shared: int) -> Candidates:
    """Return two strings, the second of which nobody has but which has most bits of the first."""
    rng = np.random.default_rng(8)
    positions = rng.integers(0, PARAMS.k, (40, PARAMS.m, PARAMS.h)).astype(np.int16)
    positions[1] = positions[0]
    positions[1, n_shared:] = (positions[0, n_shared:] + 1 + PARAMS.k // 3) % PARAMS.k
    return mapped([f"string {i}" for i in range(40)], positions, PARAMS)


def test_ally_is_out_of_the_model_that_a_string_is_estimated_in(rng):
    """Two strings without a common bit raise each other's shares, and so help each other in."""
    crowded = make_params(k=8, h=2, m=64)
    draws = np.random.default_rng(8)
    positions = draws.integers(0, crowded.k, (40, crowded.m, crowded.h)).astype(np.int16)
    positions[0], positions[1] = draws.permuted(
        np.tile(np.arange(4, dtype=np.int16), (2, crowded.m, 1)), axis=2
    )[:, :, :2]
    positions[1] += 4
    candidates = mapped([f"string {i}" for i in range(40)], positions, crowded)
    design = make_design(positions, crowded)
    truth = np.concatenate([[0.025, 0.025], np.zeros(38)])
    bits = noisy_bits(design, rng, truth, 2e3, crowded)
    fit = fit_selected(bits, design, np.array([0, 1]), crowded)
    tests = PresenceTests(fit, candidates, bits, crowded)
    estimates = estimate_all(fit, candidates, bits, crowded)
    log_p = tests.log_p_values(estimates)
    stronger, weaker = np.argsort(log_p[:2]).tolist()

    just_passed = float(log_p[weaker]) + 0.1  # beside the other string, and not without it
    without = selection_corrected_models(tests, log_p, just_passed)
    assert without[stronger].fit.selected.tolist() == [stronger]
    found = estimated_in({stronger: without[stronger]}, fit, estimates)
    alone = reduced(fit, np.array([weaker]))
    assert found.share[stronger] == pytest.approx(alone.coefficients[1])
    assert found.share[stronger] < estimates.share[stronger]
    assert found.std_error[stronger] < estimates.std_error[stronger]
    others = np.arange(40) != stronger
    np.testing.assert_array_equal(found.share[others], estimates.share[others])

    weaker_alone = reduced(fit, np.array([stronger]))
    easily_passed = 1.0 + float(
        PresenceTests(weaker_alone, candidates, bits, crowded).log_p_values(
            estimate_all(weaker_alone, candidates, bits, crowded)
        )[weaker]
    )
    assert easily_passed + np.log(1e-4) < log_p[stronger] < easily_passed
    assert selection_corrected_models(tests, log_p, easily_passed) == {}


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
