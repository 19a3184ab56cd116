"""A decoding -> the charts of its report."""

from __future__ import annotations

import numpy as np
from scipy import stats

from hubbub.decoder.arrays import FloatArray, IntArray
from hubbub.decoder.decoding import Decoding, Diagnostics
from hubbub.decoder.html.charts import (
    Chart,
    Interval,
    Labels,
    agreement,
    balance_chart,
    histogram,
    interval_chart,
    stacked,
)
from hubbub.decoder.inference.intervals import CONFIDENCE
from hubbub.decoder.output.strings import largest_detected, visible

TOP = 30
"""Most strings in the chart of intervals."""


def strongest_chart(decoding: Decoding) -> Chart | None:
    """Draw the estimates of the strongest detected strings."""
    shown = largest_detected(decoding)[:TOP]
    if not len(shown):
        return None
    intervals = [
        Interval(
            visible(decoding.candidates[int(i)]),
            100 * float(decoding.share[i]),
            100 * float(decoding.low[i]),
            100 * float(decoding.high[i]),
        )
        for i in shown
    ]
    n_detected = decoding.summary.detected
    described = (
        f"The {len(shown)} largest of {n_detected:,} detected strings, from "
        f"{intervals[0].estimate:.3g}% down to {intervals[-1].estimate:.3g}% of the reports; "
        f"bars are {CONFIDENCE:.0%} intervals."
    )
    labels = Labels("estimates", "Estimated shares", described, "share of the reports")
    return interval_chart(labels, intervals)


def unknown_chart(decoding: Decoding) -> Chart:
    """Draw the detected strings' share beside the unknown mass."""
    unknown = 100 * decoding.summary.unknown_share
    described = (
        f"{100 - unknown:.3g}% of the reports hold a detected string, {unknown:.3g}% none of them."
    )
    axis = "share of the reports: detected strings (dark), then unknown (light)"
    labels = Labels("unknown", "Unknown mass", described, axis)
    return stacked(labels, [("detected strings", 100 - unknown), ("unknown", unknown)])


def p_value_chart(decoding: Decoding) -> Chart | None:
    """Draw the p-values of all candidates, and the flat line of absent strings."""
    known = decoding.p_value[~np.isnan(decoding.share)]
    if not len(known):
        return None
    heights, edges = np.histogram(known, bins=20, range=(0.0, 1.0))
    described = (
        f"{heights[0]:,} of {len(known):,} candidates have a p-value below 0.05; "
        f"{len(known) / 20:,.4g} would if none were present, as in every bar."
    )
    labels = Labels("p-values", "P-values of all candidates", described, "p-value", "candidates")
    return histogram(labels, heights.astype(float), edges, np.full(20, len(known) / 20))


def bits_chart(diagnostics: Diagnostics) -> Chart:
    """Draw observed against fitted rates of bits."""
    seen = diagnostics.reports > 0
    fitted, observed = diagnostics.fitted[seen].ravel(), diagnostics.observed[seen].ravel()
    described = (
        f"{len(fitted):,} bits of all cohorts; they lie about the diagonal if the model explains "
        f"the counts. Correlation {_correlation(fitted, observed):.3f}."
    )
    labels = Labels("bits", "Observed against fitted bits", described, "fitted rate",
                    "observed rate")  # fmt: skip
    return agreement(labels, fitted, observed)


def residuals_chart(diagnostics: Diagnostics) -> Chart:
    """Draw standardised residuals beside the normal law."""
    seen = diagnostics.reports > 0
    off = (diagnostics.observed - diagnostics.fitted)[seen]
    residuals = (off / diagnostics.std_error[seen]).ravel()
    edges = np.linspace(-5.0, 5.0, 41)
    heights, _ = np.histogram(np.clip(residuals, -5.0, 5.0), bins=edges)
    expected = len(residuals) * np.diff(stats.norm.cdf(edges))
    beyond = int(np.count_nonzero(np.abs(residuals) > 4))
    described = (
        f"{len(residuals):,} residuals in units of their standard deviation, beside the normal "
        f"law: standard deviation {residuals.std():.3f} (expected: about 1), {beyond:,} beyond 4. "
        "The outermost bars hold all that lies further out."
    )
    labels = Labels("residuals", "Residuals", described, "standardised residual", "bits")
    return histogram(labels, heights.astype(float), edges, expected)


def cohorts_chart(reports: IntArray) -> Chart:
    """Draw how reports are spread over cohorts."""
    mean = float(reports.mean())
    described = (
        f"{len(reports):,} cohorts with {reports.min():,} to {reports.max():,} reports, "
        f"{mean:,.1f} on average (the line)."
    )
    return balance_chart(Labels("cohorts", "Cohort sizes", described, "cohort", "reports"), reports)


def _correlation(x: FloatArray, y: FloatArray) -> float:
    return float(np.corrcoef(x, y)[0, 1]) if x.std() > 0 and y.std() > 0 else 0.0
