"""Charts of scored decodings: estimates beside the truth, what is found by share, p-values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hubbub.inference.arrays import BoolArray, FloatArray
from hubbub.inference.decoding import Decoding
from hubbub.reporting.charts import GroupedBars, Histogram, Labels, Series, XYChart
from hubbub.reporting.text import visible
from hubbub.simulations.experiments.scoring import Band, DecodedShares

_NAMED = 12  # points with a name beside them; more names cover each other
_BINS = 20
"""Of p-values: the first is those below .05."""


def estimates_chart(
    strings: tuple[str, ...],
    truth: FloatArray,
    estimates: DecodedShares | Decoding,
    title: str,
    what: str = "strings",
) -> XYChart:
    """Return truth against estimate: detected strings with error bars, other present ones as dots.

    Parameters
    ----------
    strings : tuple of str, length n
    truth : float64 array, shape (n,)
        Shares.
    estimates : DecodedShares or Decoding
    title : str
    what : str
        What they are, in the chart's words.
    """
    truth, share, detected = 100 * truth, 100 * estimates.share, estimates.detected
    low, high = 100 * estimates.low, 100 * estimates.high
    found = np.flatnonzero(detected)
    largest = set(found[np.argsort(-share[found])][:_NAMED].tolist())

    def points(chosen: BoolArray, label: str) -> Series:
        names = tuple(
            visible(strings[i]) if i in largest else "" for i in np.flatnonzero(chosen).tolist()
        )
        return Series(
            label, truth[chosen], share[chosen], "points", low[chosen], high[chosen], names
        )

    missed = ~detected & (truth > 0) & ~np.isnan(share)
    top = max(float(truth.max()), float(share[detected].max(initial=0.0)), 0.1)
    series = [
        Series("held by someone, not detected", truth[missed], share[missed], "cloud"),
        points(detected & (truth > 0), "detected, with 95% interval"),
        points(detected & (truth == 0), "detected, but held by nobody"),
        Series("estimate = truth", np.array([0.0, top]), np.array([0.0, top]), "reference"),
    ]
    wrong = int((detected & (truth == 0)).sum())
    described = (
        f"{int(detected.sum()):,} {what} were detected, {wrong:,} of them held by nobody; "
        f"{int(missed.sum()):,} others are held by someone. Unbiased estimates lie about the line."
    )
    words = Labels(
        "truth", title, described, "true share of the reports (%)", "estimated share (%)"
    )
    return XYChart(words, [each for each in series if len(each.x)])


def bands_chart(rows: Sequence[Band]) -> GroupedBars:
    """Return recall by true shares, and precision by estimated ones: two bars a decade."""
    described = (
        "Common strings are found, rare ones are not; precision should stay high at every share. "
        "A band without strings has no bar."
    )
    words = Labels(
        "by-share",
        "Recall and precision by share",
        described,
        "share of the reports",
        "share of the strings",
    )
    groups = (
        ("recall: of the strings that common, found", np.array([band.recall for band in rows])),
        (
            "precision: of those reported as that common, true",
            np.array([band.precision for band in rows]),
        ),
    )
    return GroupedBars(words, tuple(f"≤ {100 * band.high:g}%" for band in rows), groups)


def p_values_chart(p_values: FloatArray) -> Histogram:
    """Return the histogram of absent candidates' p-values, level if they are what they should be.

    Parameters
    ----------
    p_values : float64 array, shape (n,)
        At least one.
    """
    heights, edges = np.histogram(p_values, bins=_BINS, range=(0.0, 1.0))
    even = len(p_values) / _BINS
    described = (
        f"Histogram of {len(p_values):,} p-values of strings that nobody holds: {heights[0]:,} are "
        f"below {1 / _BINS:g}; {even:,.4g} would be in every bar if all were equally likely."
    )
    words = Labels("p-values", "P-values of strings that nobody holds", described, "p-value",
                   "strings")  # fmt: skip
    return Histogram(words, heights.astype(float), edges, np.full(_BINS, even))
