"""Whole reports -> a `Decoding`, as bit counts give one, by joint maximum likelihood.

counts' proposals -> most likely mixture -> tests of all candidates -> detected ones join the
mixture -> again, until the detected stay the same -> estimates of all candidates in the model of
members with evidence -> constrained shares of the detected.
It starts from a decoding of the same reports' counts, which only proposes: nothing of its p-values
is used. Deterministic: the same reports and candidates give the same result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray
from hubbub.inference.candidates import Candidates, distinct_positions
from hubbub.inference.counts import PackedReports
from hubbub.inference.decoding import LIKELIHOOD, POWER, Decoding
from hubbub.inference.errors import UndecodableError
from hubbub.inference.likelihood.inference import (
    LARGEST_SPREAD,
    MOST_MEMBERS,
    PARTS,
    FittedMixture,
    Presence,
    Shares,
    require_tabulable,
)
from hubbub.inference.likelihood.mixture import (
    TOLERANCE,
    Fitted,
    ReportMixture,
    best_among,
    maximise,
    with_evidence,
)
from hubbub.inference.parallel import one_thread
from hubbub.inference.regression.estimates import threshold_z
from hubbub.inference.testing.multiple_testing import (
    Correction,
    counted_tests,
    log_cutoff,
    log_q_values,
    reported_intervals,
    selection_bias,
)

# Weaker candidates add work and hardly information (docs/understand/likelihood.md, Members).
_LEAST_Z = 1.0
# Least share of a member with evidence, in its standard errors; of a long list as much as lets
# about one absent string in by chance (docs/understand/likelihood.md, Members).
_LEAST_EVIDENCE_Z = 2.0
# Deviations of chance: more shows that some members without evidence are there.
_DEVIATIONS = 2.0
# Each round adds what was detected outside of the model.
_MAX_ROUNDS = 4
# The unknown starts above 0, so that its gradient counts; the maximum doesn't depend on the start.
_LEAST_START = 1e-3

Progress = Callable[[int, float], None]
"""Called after each pass over the reports, with passes so far and the gap that is left."""


@dataclass(frozen=True, slots=True, eq=False)
class Likelihood:
    """Estimates and tests of n candidates from whole reports."""

    shares: Shares  # share and error of each, in the model of members with evidence
    presence: Presence  # test of each, in the model of all members
    log_q: FloatArray  # shape (n,); ln of the p-value after correction
    n_tests: float  # by how many tests p-values were corrected
    detected: BoolArray  # shape (n,)
    # Shape (n,); the most likely shares >= 0 of a mixture of the detected and the unknown; 0
    # elsewhere.
    constrained_share: FloatArray
    # 1 minus the sum of the detected shares, which are too high on average because they were
    # detected.
    unknown_share: float
    unknown_std_error: float
    # Share of reports with none of the candidates; nan unless all are in the mixture.
    unlisted_share: float
    unlisted_std_error: float
    # The larger of the two mixtures' gaps to the maximum log-likelihood.
    gap: float


def fit_reports(
    reports: PackedReports,
    proposals: Decoding,
    candidates: Candidates,
    *,
    alpha: float = 0.05,
    correction: Correction = Correction.BH,
    tolerance: float = TOLERANCE,
    progress: Progress = lambda _passes, _gap: None,
) -> Likelihood:
    """Find which candidates are present, and how often, from whole reports.

    `reports`: all reports, packed. `proposals`: of the same reports' counts and the same
    candidates, of which no two set the same bits. `alpha`: level of the correction's error rate.
    `tolerance`: log-likelihood that may be missing at the end. `progress`: called after each pass
    over the reports, with passes so far and the gap that is left. Raises `UndecodableError` if
    there are no reports or they hold too little information, the proposals are of other candidates,
    or filters have too many sets of bits (see `require_tabulable`).
    """
    require_tabulable(reports.params)
    if not reports.total or len(proposals.share) != len(candidates):
        raise UndecodableError(
            f"likelihood: {reports.total:,} reports, proposals for {len(proposals.share):,} of "
            f"{len(candidates):,} candidates; expected reports, and proposals for all"
        )
    passes = 0

    def passed(gap: float) -> None:
        nonlocal passes
        passes += 1
        progress(passes, gap)

    def solve(members: IntArray, shares: FloatArray) -> Fitted:
        positions = distinct_positions(candidates.positions(members), reports.params)
        mixture = ReportMixture(reports, positions)
        start = np.clip(np.nan_to_num(shares), 0.0, 1.0)
        start = np.concatenate([[max(1.0 - start.sum(), _LEAST_START)], start])
        solution = maximise(
            mixture.evaluate, reports.total, start, tolerance=tolerance, progress=passed
        )
        return Fitted(mixture, solution, members)

    # Small systems of equations are solved by the hundred: threads of their own would only wait.
    with one_thread():
        wanted, start = propose(proposals), np.nan_to_num(proposals.share)
        for _ in range(_MAX_ROUNDS):
            whole = solve(wanted, start[wanted])
            model = FittedMixture(whole)
            presence = model.tested(candidates)
            n_tests = counted_tests(presence.log_p, correction)
            log_q = log_q_values(presence.log_p, correction, n_tests)
            detected = log_q <= np.log(alpha)
            wanted = np.union1d(wanted, np.flatnonzero(detected))
            if len(wanted) == len(whole.members):
                break
            start[whole.members] = whole.solution.shares[1:]
        needed = max(_LEAST_EVIDENCE_Z, -float(special.ndtri(1.0 / len(candidates))))
        estimating = estimating_model(model, needed, solve)
        fitted, found = estimating.fitted, estimating.estimated(candidates)
        detected &= ~np.isnan(found.share)
        rows = np.flatnonzero(detected)
        start, known = found.share.copy(), fitted.members[np.isin(fitted.members, rows)]
        places = np.concatenate([[0], 1 + np.searchsorted(fitted.members, known)])
        start[known] = best_among(fitted.solution, places)[1:]
        constrained = solve(rows, start[rows]).solution
    constrained_share = np.zeros(len(candidates))
    constrained_share[rows] = constrained.shares[1:]
    inside = np.isin(rows, found.members)
    chosen = 1 + np.searchsorted(found.members, rows[inside])
    variance = float(found.covariance[np.ix_(chosen, chosen)].sum())
    apart = float((found.std_error[rows[~inside]] ** 2).sum())
    unlisted, unlisted_variance = np.nan, np.nan
    if len(found.members) == len(candidates):
        unlisted = 1.0 - float(found.share.sum())
        unlisted_variance = float(found.covariance[1:, 1:].sum())
    return Likelihood(
        shares=found,
        presence=presence,
        log_q=log_q,
        n_tests=n_tests,
        detected=detected,
        constrained_share=constrained_share,
        unknown_share=1.0 - float(found.share[rows].sum()),
        unknown_std_error=float(np.sqrt(max(variance, 0.0) + apart)),
        unlisted_share=unlisted,
        unlisted_std_error=float(np.sqrt(np.maximum(unlisted_variance, 0.0))),
        gap=max(fitted.solution.gap, constrained.gap),
    )


def estimating_model(
    model: FittedMixture, least_z: float, solve: Callable[[IntArray, FloatArray], Fitted]
) -> FittedMixture:
    """Return the model of members with evidence, or that of all where it can't be relied on.

    `model`: of all members. `least_z`: as of `with_evidence`. `solve`: returns the most likely
    mixture of some candidates, from shares near it.
    """
    whole = model.fitted
    kept = with_evidence(whole.solution, whole.mixture.reports.total, least_z)
    if len(kept) == len(model.members):
        return model
    fitted = solve(whole.members[kept], whole.solution.shares[1 + kept])
    if misses_members(whole, fitted):
        return model
    smaller = FittedMixture(fitted)
    return smaller if smaller.spread <= LARGEST_SPREAD else model


def misses_members(whole: Fitted, fitted: Fitted) -> bool:
    """Say whether the reports speak for members that are without evidence one by one.

    A share above 0 by chance alone adds the square of a normal variable, 1 on average with variance
    2, to twice the log-likelihood (Chernoff 1954): where what all add together lies two standard
    deviations above that, some of them are there, and without them others' shares hold theirs.
    """
    above, left = ((each.solution.shares[1:] > 0).sum() for each in (whole, fitted))
    dropped = max(int(above - left), 0)
    gain = 2 * (whole.solution.at.value - fitted.solution.at.value)
    return gain > dropped + _DEVIATIONS * math.sqrt(2 * dropped)


def propose(decoding: Decoding) -> IntArray:
    """Return the candidates that the mixture begins with, in ascending order.

    All of them if they are few; otherwise those of which the counts have seen something, the
    strongest first, and all that the counts detected.
    """
    known = ~np.isnan(decoding.share)
    if np.count_nonzero(known) <= MOST_MEMBERS:
        return np.flatnonzero(known)
    z = np.where(known, decoding.share / decoding.std_error, -np.inf)
    strongest = np.argsort(-z, kind="stable")[:MOST_MEMBERS]
    return np.union1d(strongest[z[strongest] > _LEAST_Z], np.flatnonzero(decoding.detected & known))


def decode_reports(
    reports: PackedReports,
    counted: Decoding,
    candidates: Candidates,
    *,
    reason: str,
    progress: Progress = lambda _passes, _gap: None,
) -> Decoding:
    """Decode whole reports, from a decoding of their counts on; otherwise as `fit_reports`.

    `reports`: all reports, packed. `counted`: of the same reports' counts and candidates; its level
    and correction are kept. `candidates`: those of `counted`, in their order. `reason`: why least
    squares wasn't used, for the summary. `progress`: called after each pass over the reports, with
    passes so far and the gap that is left.
    """
    if len(counted.same_bits.rows):
        distinct = candidates.take(counted.same_bits.others(len(candidates)))
        decoding = decode_reports(
            reports, counted.distinct(), distinct, reason=reason, progress=progress
        )
        return decoding.with_groups(counted.candidates, counted.same_bits)
    summary = counted.summary
    found = fit_reports(
        reports,
        counted,
        candidates,
        alpha=summary.alpha,
        correction=summary.correction,
        progress=progress,
    )
    estimates, presence = found.shares, found.presence
    chosen = np.flatnonzero(found.detected)
    cutoff = log_cutoff(
        len(chosen), found.n_tests, float(np.log(summary.alpha)), summary.correction
    )
    reports_drawn, total = summary.repeats, summary.reports
    drawn = reports_drawn.sampling_variance(estimates.share, total)
    of_masses = np.array([found.unknown_share, found.unlisted_share])
    drawn_masses = reports_drawn.sampling_variance(of_masses, total)
    std_error = np.sqrt(estimates.std_error**2 + drawn)
    thresholds = _thresholds(presence, estimates.share, chosen, cutoff)
    low, high = reported_intervals(estimates.share, std_error, chosen, thresholds, estimates.noise)
    bias, added = selection_bias(
        estimates.share, estimates.std_error, presence.log_p, found.detected, cutoff, found.n_tests
    )
    # The share that a typical candidate needs to be detected with probability 0.9.
    limit = np.nan
    if not np.isnan(estimates.std_error).all():
        level = summary.alpha / summary.candidates
        z = threshold_z(presence.null, level) + float(special.ndtri(POWER))
        limit = z * float(np.nanmedian(estimates.std_error))
    return replace(
        counted,
        share=estimates.share,
        std_error=std_error,
        low=low,
        high=high,
        p_value=np.exp(presence.log_p),
        q_value=np.exp(found.log_q),
        detected=found.detected,
        constrained_share=found.constrained_share,
        summary=replace(
            summary,
            detected=int(found.detected.sum()),
            method=LIKELIHOOD,
            method_reason=reason,
            duality_gap=found.gap,
            detection_limit=limit,
            settled=True,
            information_spread=estimates.spread,
            unknown_share=found.unknown_share + bias,
            unknown_std_error=float(np.sqrt(found.unknown_std_error**2 + added + drawn_masses[0])),
            unlisted_share=found.unlisted_share,
            unlisted_std_error=float(np.sqrt(found.unlisted_std_error**2 + drawn_masses[1])),
        ),
        allowance=1.0,
    )


def _thresholds(
    presence: Presence, share: FloatArray, chosen: IntArray, cutoff: float
) -> FloatArray:
    """Return the shares at which the p-values of detected candidates would be the cutoff.

    For members they are looked up; otherwise the root of -ln p is taken to grow with the share.
    """
    parts = np.sqrt(cutoff / np.minimum(presence.log_p[chosen], cutoff))
    places = np.searchsorted(presence.members, chosen)
    for i in np.flatnonzero(np.isin(chosen, presence.members)):
        log_p = np.minimum.accumulate(presence.null.log_tails(presence.by_part[places[i]]))
        parts[i] = np.interp(-cutoff, -log_p, PARTS)
    return np.asarray(share[chosen] * parts)
