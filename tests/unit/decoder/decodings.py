"""Makers of counts and decodings for the tests of this folder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibration.trials import count_fleet
from factories import make_params
from hubbub.client import RapporParams
from hubbub.decoder import CohortCounts, Correction, Decoding, Summary
from hubbub.decoder.arrays import FloatArray

CLEAR = make_params(k=64, h=2, m=16, f=0.1, p=0.1, q=0.9)
"""Little noise: a few thousand reports tell a handful of strings apart."""


def counts_of(
    held: dict[str, int], params: RapporParams = CLEAR, seed: int = 20140814
) -> CohortCounts:
    """Return the counts of so many clients a string, from the simulated fleet."""
    indices = np.repeat(np.arange(len(held)), list(held.values()))
    return count_fleet(tuple(held), indices, params, np.random.default_rng(seed))


def make_decoding(
    candidates: Sequence[str],
    share: Sequence[float] | None = None,
    detected: Sequence[bool] | None = None,
    *,
    n_reports: int = 1000,
    correction: Correction = Correction.BH,
    unknown_share: float = 0.25,
) -> Decoding:
    """Return a decoding whose shares are given: a standard error of 0.01 and p = 1e-9 each."""
    n = len(candidates)
    shares: FloatArray = np.array(share if share is not None else [0.5 / n] * n, dtype=np.float64)
    known = np.where(np.isnan(shares), np.nan, 1.0)
    found = np.array(detected if detected is not None else [True] * n, dtype=np.bool_)
    return Decoding(
        candidates=candidates,
        share=shares,
        std_error=0.01 * known,
        low=shares - 0.02,
        high=shares + 0.02,
        p_value=np.full(n, 1e-9),
        q_value=np.full(n, 2e-9),
        detected=found,
        summary=Summary(
            reports=n_reports,
            cohorts=16,
            empty_cohorts=1,
            candidates=n,
            detected=int(found.sum()),
            indistinguishable=int(np.isnan(shares).sum()),
            alpha=0.05,
            correction=correction,
            epsilon_permanent=11.8,
            epsilon_report=4.4,
            detection_limit=0.03,
            unknown_share=unknown_share,
            unknown_std_error=0.02,
            forged_share=0.01,
            forgery_shift=0.025,
        ),
    )
