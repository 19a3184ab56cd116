"""The whole decoding: counts and candidates in, one row per candidate and a summary out.

counts -> rates of bits -> candidates -> members of the model, which are proposed and tested
(`regression.search`) -> shares with errors, intervals and masses. `decode` has these steps.
Strings are found and tested by errors about the collected reports, in which an absent one has no
share at all; where the population's shares are asked for, the drawing of clients is added to the
errors of what was found. Deterministic: the same input gives the same result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray
from hubbub.inference.candidates import Candidates, hashed
from hubbub.inference.counts import estimate_bits
from hubbub.inference.errors import CandidateError
from hubbub.inference.parallel import one_thread
from hubbub.inference.regression.estimates import (
    FORGED_SHARE,
    CandidateEstimates,
    constrained_shares,
    largest_shift,
    limit_of_detection,
    total_share,
)
from hubbub.inference.regression.search import Search, SearchResult
from hubbub.inference.repeated_reports import ONCE, RepeatedReports
from hubbub.inference.scanning import NO_GROUPS, CollisionGroups, indistinguishable
from hubbub.inference.testing.hash_null import HashNull
from hubbub.inference.testing.multiple_testing import (
    Correction,
    counted_tests,
    reported_intervals,
    selection_bias,
)
from hubbub.protocol import CohortCounts, RapporParams

# By convention a limit of detection is what is found nine times in ten.
POWER = 0.9
LEAST_SQUARES, LIKELIHOOD = "least squares", "likelihood"


@dataclass(frozen=True, slots=True)
class Summary:
    """Facts about a decoding beyond its rows.

    Attributes
    ----------
    detected : int
        Groups of candidates that set the same bits count once.
    indistinguishable : int
        Candidates that set the same bits as another one.
    method, method_reason : str
        "least squares" or "likelihood", and why.
    settled : bool
        Whether the search for the model came to an end: what is in it is what is detected.
    duality_gap : float
        By how much the log-likelihood may fall short of its maximum; nan for least squares.
    detection_limit : float
        Share of the population that is detected with probability 0.9.
    unknown_share, unknown_std_error : float
        Share of reports whose string isn't among the detected; allows for these having been
        selected.
    unlisted_share, unlisted_std_error : float
        Share of reports whose string isn't among the candidates; nan where rows are fewer than
        three per candidate or don't determine all shares, and for more than 1,200 candidates.
    forged_share, forgery_shift : float
        If such a share of the reports were forged, how far an estimated share could move by it.
    information_spread : float
        Of the likelihood alone: how much the information about absent strings scatters, as a part
        of its mean.
    repeats : RepeatedReports
        How often the reports' clients have reported, and whose shares are estimated.
    """

    reports: int
    cohorts: int
    empty_cohorts: int
    candidates: int
    detected: int
    indistinguishable: int
    alpha: float
    correction: Correction
    method: str
    method_reason: str
    settled: bool
    duality_gap: float
    epsilon_permanent: float
    epsilon_report: float
    detection_limit: float
    unknown_share: float
    unknown_std_error: float
    unlisted_share: float
    unlisted_std_error: float
    forged_share: float
    forgery_shift: float
    information_spread: float = math.nan
    repeats: RepeatedReports = ONCE


class OtherTests(NamedTuple):
    """Tests and rates besides those of a decoding's candidates."""

    # Shape (m, k), or 0.0; rates that other strings are known to have.
    known: FloatArray | float = 0.0
    # How many are tested, those included that were dropped before: weights have mean 1 over all.
    tests: int | None = None
    detected: int = 0  # how many others are detected, by tests at the same error rate


NO_OTHERS = OtherTests()
"""For candidates that are all that is known."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """Estimates of all candidates, in the order given; nan where the data don't determine them.

    Attributes
    ----------
    candidates : sequence of str, length n
    share, std_error : float64 array, shape (n,)
        Share of the population (or the collected reports: `Summary.repeats`), and its standard
        error.
    low, high : float64 array, shape (n,)
        95% confidence interval of the share. Of detected candidates it holds given that they were
        detected; of others it is unclipped, so below 0 for most absent strings.
    p_value, q_value : float64 array, shape (n,)
        Against "this string is absent"; q is corrected for the number of candidates.
    detected : bool array, shape (n,)
        q_value <= alpha.
    constrained_share : float64 array, shape (n,)
        Shares of the detected under the constraint that none is negative and all, with the unknown
        mass, are at most 1; 0 for others. For adding up and plotting: less noisy, but not unbiased.
    same_bits : CollisionGroups
        Candidates with the same bits as an earlier one. All of a group have the numbers of the
        first, which are the group's; the constrained share is the first one's alone.
    allowance : float
        By which q-values were raised because the model was searched for in the same reports.
    """

    candidates: Sequence[str]
    share: FloatArray
    std_error: FloatArray
    low: FloatArray
    high: FloatArray
    p_value: FloatArray
    q_value: FloatArray
    detected: BoolArray
    constrained_share: FloatArray
    same_bits: CollisionGroups
    summary: Summary
    # tau, the standard deviation of what unlisted strings add to a bit's rate.
    excess_deviation: float
    allowance: float = 1.0

    @property
    def sampling_variance(self) -> FloatArray:
        """The part of the squared standard errors that is the drawing of clients; shape (n,)."""
        return self.summary.repeats.sampling_variance(self.share, self.summary.reports)

    def distinct(self) -> Decoding:
        """Return the decoding of the first candidate of each group alone."""
        rows = self.same_bits.others(len(self.candidates))
        return replace(
            self._rows(rows),
            candidates=[self.candidates[row] for row in rows.tolist()],
            same_bits=NO_GROUPS,
            summary=replace(self.summary, candidates=len(rows), indistinguishable=0),
        )

    def with_groups(self, candidates: Sequence[str], same_bits: CollisionGroups) -> Decoding:
        """Return the decoding of all candidates from one of the first of each group."""
        places = np.empty(len(candidates), dtype=np.int64)
        places[same_bits.others(len(candidates))] = np.arange(len(self.candidates))
        places[same_bits.rows] = places[same_bits.first]
        everyone = replace(
            self._rows(places),
            candidates=candidates,
            same_bits=same_bits,
            summary=replace(
                self.summary,
                candidates=len(candidates),
                indistinguishable=same_bits.candidates,
            ),
        )
        everyone.constrained_share[same_bits.rows] = 0.0
        return everyone

    def only(self, rows: IntArray) -> Decoding:
        """Return some rows, in ascending order; the summary stays that of all."""
        same, place = self.same_bits, np.full(len(self.candidates), -1)
        place[rows] = np.arange(len(rows))
        both = (place[same.rows] >= 0) & (place[same.first] >= 0)
        return replace(
            self._rows(rows),
            candidates=[self.candidates[row] for row in rows.tolist()],
            same_bits=CollisionGroups(place[same.rows[both]], place[same.first[both]]),
        )

    def firsts(self, marked: BoolArray) -> IntArray:
        """Return the marked candidates (an array to write into), one a group."""
        marked[self.same_bits.rows] = False
        return np.flatnonzero(marked)

    def largest_detected(self) -> IntArray:
        """Return the detected candidates, one a group, the largest share first."""
        found = self.firsts(self.detected.copy())
        return np.asarray(found[np.argsort(-self.share[found], kind="stable")])

    def _rows(self, rows: IntArray) -> Decoding:
        return replace(self, **{name: getattr(self, name)[rows] for name in _COLUMNS})


_COLUMNS = (
    "share", "std_error", "low", "high", "p_value", "q_value", "detected", "constrained_share",
)  # fmt: skip


def merged(
    candidates: Sequence[str], parts: Sequence[Decoding], rows: Sequence[IntArray]
) -> Decoding:
    """Return the decodings of parts of some candidates as one, all else being the last part's.

    `parts`: at least one. `rows`: which of the candidates each part has, ascending; each candidate
    is in one.
    """
    of_all = {name: np.empty(len(candidates), getattr(parts[-1], name).dtype) for name in _COLUMNS}
    for own, part in zip(rows, parts, strict=True):
        for name, column in of_all.items():
            column[own] = getattr(part, name)
    groups = [
        np.stack([own[part.same_bits.rows], own[part.same_bits.first]])
        for own, part in zip(rows, parts, strict=True)
    ]
    same = np.concatenate(groups, axis=1)
    same_bits = CollisionGroups(*same[:, np.argsort(same[0])])
    allowance = max(part.allowance for part in parts)
    everyone = replace(parts[-1], candidates=candidates, same_bits=same_bits, allowance=allowance)
    return replace(everyone, **of_all)  # type: ignore[arg-type]


def decode(
    counts: CohortCounts,
    params: RapporParams,
    candidates: Sequence[str] | Candidates,
    *,
    alpha: float = 0.05,
    correction: Correction = Correction.BH,
    weights: FloatArray | None = None,
    collected: int | None = None,
    repeats: RepeatedReports = ONCE,
    others: OtherTests = NO_OTHERS,
) -> Decoding:
    """Find which candidates are present, and how often.

    Parameters
    ----------
    counts : CohortCounts
        Reports and set bits of each cohort.
    params : RapporParams
        With which the reports were made.
    candidates : sequence of str, or Candidates
        Distinct strings, at least one; hashed as hubbub's clients do if their positions aren't
        given.
    alpha : float
        Level of the correction's error rate, in (0, 1).
    correction : Correction
        Which error rate `alpha` bounds: false discoveries, or the chance of any false detection.
    weights : float64 array, shape (n,), optional
        The expected share of each candidate before these reports were seen, above 0.
    collected : int, optional
        Number of reports of which these are a random part, if they aren't all; shares are of those.
    repeats : RepeatedReports
        How often the reports' clients have reported, and whose shares are asked for.
    others : OtherTests
        Strings known and tested besides the candidates.

    Raises
    ------
    CandidateError
        If there is no candidate, one occurs twice, or one can't be a client's value.
    UndecodableError
        If there are no reports or the counts don't fit the parameters.
    ValueError
        If alpha isn't in (0, 1).

    Examples
    --------
    A thousand reports in each of eight cohorts, of two strings; no client has the third:

    >>> import numpy as np
    >>> from hubbub.inference.candidates import bit_positions
    >>> params = RapporParams(k=64, h=2, m=8, f=0.0, p=0.25, q=0.75)
    >>> names = ["firefox", "safari", "opera"]
    >>> filters = np.zeros((3, 8, 64))
    >>> np.put_along_axis(filters, bit_positions(names, params), 1.0, axis=2)
    >>> rates = 0.25 + 0.5 * np.tensordot([0.6, 0.4, 0.0], filters, axes=1)
    >>> bits = np.random.default_rng(1).binomial(1000, rates)
    >>> found = decode(CohortCounts(np.full(8, 1000), bits), params, names)
    >>> found.detected.tolist()
    [True, True, False]
    >>> (found.share.round(2) + 0.0).tolist()
    [0.6, 0.4, 0.0]
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha = {alpha}: must be between 0 and 1")
    if not candidates:
        raise CandidateError("candidates: must be at least one string, each once")
    # Counts -> rates of bits.
    bits = estimate_bits(counts, params, collected).beyond(others.known)
    # Rates -> groups of candidates: those with the same bits are one.
    listed = candidates if isinstance(candidates, Candidates) else hashed(candidates, params)
    listed.check(params)
    same_bits = indistinguishable(listed, counts.reports > 0)
    rows = same_bits.others(len(listed))
    distinct = listed.take(rows) if len(same_bits.rows) else listed
    log_weights = None
    if weights is not None:
        of_groups = weights.copy()
        np.add.at(of_groups, same_bits.first, weights[same_bits.rows])
        of_tests = 1.0 if others.tests else float(of_groups[rows].mean())
        log_weights = np.log(of_groups[rows] / of_tests)
    # Candidates -> members of the model, and a test of each candidate in it.
    search = Search(
        bits,
        distinct,
        params,
        float(np.log(alpha)),
        correction,
        tests=others.tests,
        elsewhere=others.detected,
        log_weights=log_weights,
    )
    # The digits that sums of many threads end in depend on how many there are.
    with one_thread():
        found = search.run()
        # Members -> shares with errors, intervals and masses.
        decoding = _decoding_of(found, search, counts, alpha, repeats)
    return decoding.with_groups(listed.strings, same_bits) if len(same_bits.rows) else decoding


def _decoding_of(
    found: SearchResult,
    search: Search,
    counts: CohortCounts,
    alpha: float,
    repeats: RepeatedReports,
) -> Decoding:
    bits, fit, estimates = search.bits, found.fit, found.estimates
    detected, shape = found.detected, bits.rate.shape
    chosen = np.flatnonzero(detected)
    # Errors: those of the regression, and the drawing of clients from the population.
    drawn = repeats.sampling_variance(estimates.share, bits.collected)
    std_error = np.hypot(estimates.std_error, np.sqrt(drawn))
    # Intervals, which of the detected hold given that they were detected; errors are distributed
    # as an absent string's score is, no row's part bounded.
    noise = HashNull(fit.scores.reshape(shape), search.params.h)
    thresholds = found.tests.thresholds(estimates, found.log_p, chosen, found.log_cutoffs[chosen])
    low, high = reported_intervals(estimates.share, std_error, chosen, thresholds, noise)
    # Shares that add up; of random effects they are only cut off.
    constrained = np.where(detected, np.clip(estimates.share, 0.0, 1.0), 0.0)
    if len(chosen):
        selected, shares = constrained_shares(fit)
        constrained[selected] = np.where(detected[selected], shares, 0.0)
        constrained /= max(float(constrained.sum()), 1.0)
    return Decoding(
        candidates=search.candidates.strings,
        share=estimates.share,
        std_error=std_error,
        low=low,
        high=high,
        p_value=np.exp(found.log_p),
        q_value=np.exp(found.log_q),
        detected=detected,
        constrained_share=constrained,
        same_bits=NO_GROUPS,
        summary=_summary(found, search, noise, counts, alpha, repeats),
        excess_deviation=float(np.sqrt(fit.excess_variance)),
        allowance=found.allowance,
    )


def _summary(
    found: SearchResult,
    search: Search,
    noise: HashNull,
    counts: CohortCounts,
    alpha: float,
    repeats: RepeatedReports,
) -> Summary:
    params, bits, fit, estimates = search.params, search.bits, found.fit, found.estimates
    n, detected = found.listed, found.detected
    # The unknown mass, without what the detected owe to their having been selected. Candidates with
    # weights were chosen: those of which least was expected were dropped, far from their limits, so
    # that p-values above 1/2 show how many absent ones may lie near theirs.
    total, total_error = total_share(fit, estimates, bits, params, np.flatnonzero(detected))
    absent, cutoff = found.n_tests, np.asarray(found.log_cutoff)
    if found.log_weights is not None:
        absent, cutoff = counted_tests(found.log_p, Correction.BH), found.log_cutoffs
    bias, added = selection_bias(
        estimates.share,
        estimates.std_error,
        found.log_p,
        detected,
        cutoff,
        absent,
        estimates.typical_error,
    )
    # The mass of unlisted strings, if the rows determine all listed shares.
    listed, listed_error = np.nan, np.nan
    if whole := search.all_listed(found):
        shares = CandidateEstimates(whole.shares, np.zeros(n))
        listed, listed_error = total_share(whole, shares, bits, params, np.arange(n))
    drawn = repeats.sampling_variance(np.array([total, listed]), bits.collected)
    limit = limit_of_detection(estimates, noise, params, counts.total, alpha / n, POWER)
    return Summary(
        reports=int(bits.collected),
        cohorts=params.m,
        empty_cohorts=int(np.count_nonzero(counts.reports == 0)),
        candidates=n,
        detected=int(detected.sum()),
        indistinguishable=0,
        alpha=alpha,
        correction=search.correction,
        method=LEAST_SQUARES,
        method_reason="from bit counts",
        settled=found.settled,
        duality_gap=float("nan"),
        epsilon_permanent=params.epsilon_permanent,
        epsilon_report=params.epsilon_report,
        detection_limit=limit,
        unknown_share=1.0 - (total - bias),
        unknown_std_error=float(np.sqrt(total_error**2 + added + drawn[0])),
        unlisted_share=1.0 - listed,
        unlisted_std_error=float(np.sqrt(listed_error**2 + drawn[1])),
        forged_share=FORGED_SHARE,
        forgery_shift=largest_shift(fit, bits, params, FORGED_SHARE),
        repeats=repeats,
    )
