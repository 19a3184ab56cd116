"""Whole reports -> a `Decoding`, as bit counts give one: the likelihood's numbers in its rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import stats

from hubbub.decoder.arrays import FloatArray, IntArray
from hubbub.decoder.candidates.listing import Candidates
from hubbub.decoder.decoding import POWER, Decoding
from hubbub.decoder.inference.intervals import reported_intervals
from hubbub.decoder.inference.multiple_testing import SEARCHED, log_cutoff
from hubbub.decoder.likelihood.fitting import Likelihood, Progress, fit_reports
from hubbub.decoder.likelihood.inference import Inference
from hubbub.decoder.likelihood.tests import PARTS
from hubbub.decoder.regression.model import unknown_column
from hubbub.decoder.regression.power import threshold_z
from hubbub.decoder.reports.packed import PackedReports
from hubbub.protocol.params import RapporParams

LIKELIHOOD = "likelihood"


def decode_reports(
    reports: PackedReports,
    counted: Decoding,
    candidates: Candidates,
    *,
    reason: str,
    threads: int | None = None,
    progress: Progress = lambda _passes, _gap: None,
) -> Decoding:
    """Decode whole reports, from a decoding of their counts on.

    Parameters
    ----------
    reports : PackedReports
    counted : Decoding
        Of the same reports' counts and candidates; its level and correction are kept.
    candidates : Candidates
    reason : str
        Why not by least squares, for the summary.
    threads, progress
        As of `fit_reports`.

    Raises
    ------
    UndecodableError
        As `fit_reports`.
    """
    summary = counted.summary
    found = fit_reports(
        reports,
        counted,
        candidates,
        alpha=summary.alpha,
        correction=summary.correction,
        threads=threads,
        progress=progress,
    )
    estimates = found.inference
    low, high = _intervals(found, counted)
    level = summary.alpha / (summary.candidates * SEARCHED)
    return replace(
        counted,
        share=estimates.share,
        std_error=estimates.std_error,
        low=low,
        high=high,
        p_value=np.exp(estimates.log_p),
        q_value=np.exp(found.log_q),
        detected=found.detected,
        refit=found.refit,
        summary=replace(
            summary,
            detected=int(found.detected.sum()),
            method=LIKELIHOOD,
            method_reason=reason,
            duality_gap=found.gap,
            detection_limit=_detection_limit(estimates, level),
            unknown_share=found.unknown_share,
            unknown_std_error=found.unknown_std_error,
        ),
        diagnostics=replace(
            counted.diagnostics, fitted=fitted_rates(estimates, candidates, reports.params)
        ),
    )


def fitted_rates(found: Inference, candidates: Candidates, params: RapporParams) -> FloatArray:
    """Return the share of clients whose true bit is set, as the model says; shape (m, k)."""
    rates = np.full((params.m, params.k), found.model_share[0] * unknown_column(params))
    cohorts = np.arange(params.m)
    for share, row in zip(found.model_share[1:], found.members, strict=True):
        bits = np.zeros((params.m, params.k), dtype=np.bool_)
        bits[cohorts[:, None], candidates.positions(slice(int(row), int(row) + 1))[0]] = True
        rates[bits] += share
    return rates


def _intervals(found: Likelihood, counted: Decoding) -> tuple[FloatArray, FloatArray]:
    estimates, summary = found.inference, counted.summary

    def thresholds(chosen: IntArray) -> FloatArray:
        cutoff = log_cutoff(
            len(chosen),
            len(found.detected),
            float(np.log(summary.alpha)),
            summary.correction,
            allowance=SEARCHED,
        )
        return _thresholds(estimates, chosen, cutoff)

    return reported_intervals(
        estimates.share, estimates.std_error, found.detected, thresholds, estimates.noise
    )


def _thresholds(found: Inference, chosen: IntArray, cutoff: float) -> FloatArray:
    """Return the shares at which the p-values of detected candidates would be the cutoff.

    For members they are looked up; otherwise the root of -ln p is taken to grow with the share.
    """
    parts = np.sqrt(cutoff / np.minimum(found.log_p[chosen], cutoff))
    places = np.searchsorted(found.members, chosen)
    for i in np.flatnonzero(np.isin(chosen, found.members)):
        log_p = np.minimum.accumulate(found.test.null.log_tails(found.test.by_part[places[i]]))
        parts[i] = np.interp(-cutoff, -log_p, PARTS)
    return np.asarray(found.share[chosen] * parts)


def _detection_limit(found: Inference, level: float) -> float:
    """Return the share that a typical candidate needs to be detected with probability 0.9."""
    if np.isnan(found.std_error).all():
        return np.nan
    z = threshold_z(found.test.null, level) + float(stats.norm.ppf(POWER))
    return z * float(np.nanmedian(found.std_error))
