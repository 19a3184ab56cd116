"""How good a decoding was, where the truth is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubbub.decoder.arrays import BoolArray, FloatArray


@dataclass(frozen=True, slots=True)
class Score:
    """Figures of one decoding.

    Attributes
    ----------
    detected, true_positives, false_positives : int
        Candidates reported; those that some client holds; those that none does.
    total_variation : float
        Half the summed distance between the true and the estimated shares of the detected strings
        and of "anything else", estimated as 1 minus their sum.
    interval_coverage, interval_coverage_detected : float
        Share of the 95% intervals that hold the truth, over all candidates that have an interval,
        and over the detected (nan if none).
    """

    detected: int
    true_positives: int
    false_positives: int
    total_variation: float
    interval_coverage: float
    interval_coverage_detected: float


def score(
    truth: FloatArray,
    share: FloatArray,
    low: FloatArray,
    high: FloatArray,
    detected: BoolArray,
) -> Score:
    """Compare estimates with the truth.

    Parameters
    ----------
    truth, share, low, high : float64 array, shape (n,)
        Shares of the collected reports; nan where there is no estimate.
    detected : bool array, shape (n,)
    """
    present = truth > 0
    covered = (low <= truth) & (truth <= high)
    errors = share[detected] - truth[detected]
    return Score(
        detected=int(detected.sum()),
        true_positives=int((detected & present).sum()),
        false_positives=int((detected & ~present).sum()),
        total_variation=float(np.abs(errors).sum() + abs(errors.sum())) / 2,
        interval_coverage=_mean(covered[~np.isnan(share)]),
        interval_coverage_detected=_mean(covered[detected]),
    )


def _mean(values: BoolArray) -> float:
    return float(values.mean()) if len(values) else float("nan")
