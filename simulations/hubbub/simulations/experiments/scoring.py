"""How good a decoding was, where the truth is known: as a whole, and by how common strings are."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray
from hubbub.inference.decoding import Decoding
from hubbub.inference.testing.intervals import Z_CONFIDENCE
from hubbub.protocol.metric_types.base import normal_form

EDGES = (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Of the bands: one a decade of shares."""
LEVELS = (0.5, 0.1, 0.05, 0.01, 0.001)
"""At which p-values of absent candidates are counted."""
_ROUNDING = 1e-9
"""Of sums of shares, which are doubles."""
_COLUMNS = {
    "share": "proportion",
    "std_error": "prop_std_error",
    "low": "prop_low",
    "high": "prop_high",
    "p_value": "p_value",
}


@dataclass(frozen=True, slots=True)
class DecodedShares:
    """A decoding in the candidates' order, made in this process or by the decoder's command.

    Arrays have shape (n,).

    Attributes
    ----------
    share, std_error, low, high, p_value : float64 array
        As in `Decoding`.
    detected : bool array
    summary : dict
    """

    share: FloatArray
    std_error: FloatArray
    low: FloatArray
    high: FloatArray
    p_value: FloatArray
    detected: BoolArray
    summary: dict[str, float]

    @classmethod
    def of(cls, decoding: Decoding) -> DecodedShares:
        """Take a decoding's arrays."""
        columns = {name: getattr(decoding, name) for name in (*_COLUMNS, "detected")}
        return cls(**columns, summary=asdict(decoding.summary))

    def extended(self, n: int) -> DecodedShares:
        """Return so many rows, of which nothing is known beyond these."""
        more = n - len(self.share)
        columns = {
            name: np.concatenate([getattr(self, name), np.full(more, np.nan)]) for name in _COLUMNS
        }
        detected = np.concatenate([self.detected, np.zeros(more, dtype=np.bool_)])
        return DecodedShares(**columns, detected=detected, summary=self.summary)

    @classmethod
    def read(cls, path: Path) -> tuple[tuple[str, ...], DecodedShares]:
        """Read what `hubbub-decoder decode --output` wrote as JSON, and of which strings it is."""
        document = json.loads(path.read_text(encoding="utf-8"))
        columns = {
            name: np.array([row[column] for row in document["rows"]], dtype=np.float64)
            for name, column in _COLUMNS.items()
        }
        detected = np.array([row["detected"] for row in document["rows"]], dtype=np.bool_)
        strings = tuple(row["string"] for row in document["rows"])
        return strings, cls(**columns, detected=detected, summary=document["summary"])


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


def score_decoding(truth: FloatArray, decoding: Decoding) -> Score:
    """Compare a decoding with the truth, both of shape (n,)."""
    return score(
        truth,
        decoding.share,
        decoding.low,
        decoding.high,
        decoding.detected,
        decoding.constrained_share,
    )


def mass_covered(truth: float, estimate: float, std_error: float) -> bool | None:
    """Return whether the 95% interval of a mass holds it; None if the decoder gives no error."""
    if math.isnan(std_error):
        return None
    return abs(estimate - truth) <= Z_CONFIDENCE * std_error + _ROUNDING


def held_shares(values: Sequence[str], holders: IntArray) -> dict[str, float]:
    """Return the shares of the values that somebody holds, by the normal form that is reported.

    Parameters
    ----------
    values : sequence of str
    holders : int64 array, shape (v,)
        Reports of each value.
    """
    shares: dict[str, float] = {}
    n_reports = max(int(holders.sum()), 1)
    for value, count in zip(values, holders.tolist(), strict=True):
        if count:
            form = normal_form(value)
            shares[form] = shares.get(form, 0.0) + count / n_reports
    return shares


@dataclass(frozen=True, slots=True)
class Band:
    """Strings whose share lies above `low`, and at most at `high`.

    Attributes
    ----------
    low : float
    high : float
    present, found : int
        Candidates whose *true* share is in the band; those of them that were detected.
    reported, right : int
        Detected candidates whose *estimated* share is in the band; those that somebody holds.
    """

    low: float
    high: float
    present: int
    found: int
    reported: int
    right: int

    @property
    def recall(self) -> float:
        """Share of the present that were found; nan if none is present."""
        return self.found / self.present if self.present else math.nan

    @property
    def precision(self) -> float:
        """Share of the reported that are right; nan if none is reported."""
        return self.right / self.reported if self.reported else math.nan


def bands(truth: FloatArray, share: FloatArray, detected: BoolArray) -> tuple[Band, ...]:
    """Count by decades; arrays of shape (n,)."""
    rows = []
    for low, high in itertools.pairwise(EDGES):
        present = (truth > low) & (truth <= high)
        reported = detected & (share > low) & ((share <= high) | (high == 1))
        rows.append(
            Band(
                low=low,
                high=high,
                present=int(present.sum()),
                found=int((present & detected).sum()),
                reported=int(reported.sum()),
                right=int((reported & (truth > 0)).sum()),
            )
        )
    return tuple(rows)


def p_values_below(p_value: FloatArray, truth: FloatArray) -> dict[str, float]:
    """Return the share of absent candidates whose p-value is at most each of some levels.

    No more than the level itself if p-values are what they should be; nan without absent ones.
    """
    absent = p_value[(truth == 0) & ~np.isnan(p_value)]
    return {
        f"{level:g}": float((absent <= level).mean()) if len(absent) else math.nan
        for level in LEVELS
    }


def _mean(values: BoolArray) -> float:
    return float(values.mean()) if len(values) else math.nan
