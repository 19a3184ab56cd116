"""How good a decoding was, where the truth is known."""

from __future__ import annotations

import math
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
    false_negatives : int
        Candidates that some client holds and that were not reported.
    total_variation : float
        Half the summed distance between the true and the estimated shares of the detected strings
        and of "anything else", estimated as 1 minus their sum.
    total_variation_all : float
        Half the summed distance between true and estimated shares of all strings, the estimate of
        what isn't detected being 0, as google/rappor's tests measure it.
    interval_coverage, interval_coverage_detected : float
        Share of the 95% intervals that hold the truth, over all candidates that have an interval,
        and over the detected (nan if none).
    """

    detected: int
    true_positives: int
    false_positives: int
    false_negatives: int
    total_variation: float
    total_variation_all: float
    interval_coverage: float
    interval_coverage_detected: float

    @property
    def false_share(self) -> float:
        """False names among the detected; 0 if nothing was detected."""
        return self.false_positives / max(self.detected, 1)

    @property
    def precision(self) -> float:
        """Share of the detected that somebody holds; nan if nothing was detected."""
        return self.true_positives / self.detected if self.detected else math.nan

    @property
    def recall(self) -> float:
        """Share of the candidates that somebody holds that were detected; nan if there is none."""
        present = self.true_positives + self.false_negatives
        return self.true_positives / present if present else math.nan


def score(
    truth: FloatArray,
    share: FloatArray,
    low: FloatArray,
    high: FloatArray,
    detected: BoolArray,
    refit: FloatArray | None = None,
) -> Score:
    """Compare estimates with the truth.

    Parameters
    ----------
    truth, share, low, high : float64 array, shape (n,)
        Shares of the collected reports; nan where there is no estimate.
    detected : bool array, shape (n,)
    refit : float64 array, shape (n,), or None
        Shares that add up, of which the total variation is taken; `share` if None.
    """
    present = truth > 0
    covered = (low <= truth) & (truth <= high)
    errors = (share if refit is None else refit)[detected] - truth[detected]
    missed = 1.0 - float(truth[detected].sum())
    return Score(
        detected=int(detected.sum()),
        true_positives=int((detected & present).sum()),
        false_positives=int((detected & ~present).sum()),
        false_negatives=int((~detected & present).sum()),
        total_variation=float(np.abs(errors).sum() + abs(errors.sum())) / 2,
        total_variation_all=(float(np.abs(errors).sum()) + missed) / 2,
        interval_coverage=_mean(covered[~np.isnan(share)]),
        interval_coverage_detected=_mean(covered[detected]),
    )


def _mean(values: BoolArray) -> float:
    return float(values.mean()) if len(values) else float("nan")
