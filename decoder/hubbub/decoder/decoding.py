"""The whole decoding: counts and candidates in, one row a candidate and a summary out.

bits -> screen and Lasso -> fit -> p-values -> detected candidates join the fit -> again, until the
detected stay the same. Deterministic: the same input gives the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from hubbub.client.params import RapporParams
from hubbub.decoder.arrays import BoolArray, FloatArray
from hubbub.decoder.bits import BitEstimates, estimate_bits
from hubbub.decoder.candidates import Candidates, Design, hashed, indistinguishable, make_design
from hubbub.decoder.counts import CohortCounts
from hubbub.decoder.errors import CandidateError
from hubbub.decoder.forgery import FORGED_SHARE, largest_shift
from hubbub.decoder.hash_null import HashNull, score_totals
from hubbub.decoder.multiple_testing import Correction, log_q_values
from hubbub.decoder.regression import (
    Estimates,
    Fit,
    estimate_all,
    fit_selected,
    reports_by_row,
    total_share,
    without_candidate,
)
from hubbub.decoder.selection import keep_fittest, select

CONFIDENCE = 0.95
Z_CONFIDENCE = float(stats.norm.ppf((1 + CONFIDENCE) / 2))
POWER = 0.9
_MAX_ROUNDS = 8
_CLIP = 4.0


@dataclass(frozen=True, slots=True)
class Summary:
    """What a reader must know besides the rows.

    Attributes
    ----------
    reports, cohorts, empty_cohorts : int
    candidates, detected : int
    indistinguishable : int
        Candidates that set the same bits as another one and so can't be told apart.
    alpha : float
    correction : Correction
    epsilon_permanent, epsilon_report : float
    detection_limit : float
        Share of the population that is detected with probability 0.9.
    unknown_share, unknown_std_error : float
        Share of reports whose string isn't among the detected.
    forged_share, forgery_shift : float
        If such a share of the reports were forged, how far an estimated share could move by it.
    """

    reports: int
    cohorts: int
    empty_cohorts: int
    candidates: int
    detected: int
    indistinguishable: int
    alpha: float
    correction: Correction
    epsilon_permanent: float
    epsilon_report: float
    detection_limit: float
    unknown_share: float
    unknown_std_error: float
    forged_share: float
    forgery_shift: float


@dataclass(frozen=True, slots=True)
class Decoding:
    """Estimates of all candidates, in the order given; nan where the data can't tell.

    Attributes
    ----------
    candidates : sequence of str, length n
    share, std_error : float64 array, shape (n,)
        Share of the collected reports and its standard error.
    low, high : float64 array, shape (n,)
        95% confidence interval of the share; unclipped, so below 0 for most absent strings.
    p_value, q_value : float64 array, shape (n,)
        Against "this string is absent"; q is corrected for the number of candidates.
    detected : bool array, shape (n,)
        q_value <= alpha.
    summary : Summary
    """

    candidates: Sequence[str]
    share: FloatArray
    std_error: FloatArray
    low: FloatArray
    high: FloatArray
    p_value: FloatArray
    q_value: FloatArray
    detected: BoolArray
    summary: Summary


def decode(
    counts: CohortCounts,
    params: RapporParams,
    candidates: Sequence[str] | Candidates,
    *,
    alpha: float = 0.05,
    correction: Correction = Correction.BH,
) -> Decoding:
    """Find which candidates are present, and how often.

    Parameters
    ----------
    counts : CohortCounts
    params : RapporParams
        With which the reports were made.
    candidates : sequence of str, or Candidates
        Distinct strings, at least one; hashed as hubbub's clients do if their positions aren't
        given.
    alpha : float
        Level of the correction's error rate, in (0, 1).
    correction : Correction

    Raises
    ------
    CandidateError
        If there is no candidate, one occurs twice, or one can't be a client's value.
    UndecodableError
        If there are no reports or the counts don't fit the parameters.
    ValueError
        If alpha isn't in (0, 1).
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha = {alpha}: must be between 0 and 1")
    strings = candidates.strings if isinstance(candidates, Candidates) else candidates
    if not strings or len(set(strings)) < len(strings):
        raise CandidateError("candidates: must be at least one string, each once")
    bits = estimate_bits(counts, params)
    listed = candidates if isinstance(candidates, Candidates) else hashed(strings, params)
    if listed.positions.shape != (len(strings), params.m, params.h):
        raise CandidateError(
            f"positions of shape {listed.positions.shape}: must be "
            f"{(len(strings), params.m, params.h)} for {len(strings)} candidates"
        )
    design = make_design(listed.positions, params)
    twins = indistinguishable(listed.positions, counts.reports > 0)
    inference = _Inference(bits, design, twins, params, np.log(alpha), correction)
    fit, estimates, log_p = inference.run()
    log_q = log_q_values(log_p, correction)
    detected = log_q <= np.log(alpha)
    half_width = Z_CONFIDENCE * estimates.std_error
    unknown, unknown_std_error = total_share(fit, estimates, np.flatnonzero(detected))
    return Decoding(
        candidates=strings,
        share=estimates.share,
        std_error=estimates.std_error,
        low=estimates.share - half_width,
        high=estimates.share + half_width,
        p_value=np.exp(log_p),
        q_value=np.exp(log_q),
        detected=detected,
        summary=Summary(
            reports=counts.total,
            cohorts=params.m,
            empty_cohorts=int(np.count_nonzero(counts.reports == 0)),
            candidates=len(strings),
            detected=int(detected.sum()),
            indistinguishable=int(twins.sum()),
            alpha=alpha,
            correction=correction,
            epsilon_permanent=params.epsilon_permanent,
            epsilon_report=params.epsilon_report,
            detection_limit=_detection_limit(estimates, alpha / len(strings)),
            unknown_share=1.0 - unknown,
            unknown_std_error=unknown_std_error,
            forged_share=FORGED_SHARE,
            forgery_shift=largest_shift(fit, bits, params, FORGED_SHARE),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Inference:
    """The loop between what is in the model and what is detected."""

    bits: BitEstimates
    design: Design
    twins: BoolArray
    params: RapporParams
    log_alpha: float
    correction: Correction

    def run(self) -> tuple[Fit, Estimates, FloatArray]:
        """Return the settled fit, its estimates and the log p-values."""
        fit = fit_selected(self.bits, self.design, np.empty(0, dtype=np.int64), self.params)
        selected = select(fit, self._estimates(fit), self.design, self.bits)
        for _ in range(_MAX_ROUNDS):
            fit = fit_selected(self.bits, self.design, selected, self.params)
            estimates = self._estimates(fit)
            log_p = self._log_p_values(fit, estimates)
            detected = log_q_values(log_p, self.correction) <= self.log_alpha
            wanted = np.union1d(fit.selected, np.flatnonzero(detected))
            if len(wanted) == len(fit.selected):
                break
            selected = keep_fittest(wanted, -log_p[wanted], self.bits)
        return fit, estimates, log_p

    def _estimates(self, fit: Fit) -> Estimates:
        estimates = estimate_all(fit, self.design, reports_by_row(self.bits))
        estimates.share[self.twins] = np.nan
        estimates.std_error[self.twins] = np.nan
        return estimates

    def _log_p_values(self, fit: Fit, estimates: Estimates) -> FloatArray:
        """Test each candidate's residual score against the hash; see docs/statistics.md."""
        scores = self._scores(fit.residuals, fit)
        null = HashNull(scores, self.params.h)
        log_p = null.log_tails(score_totals(scores, self.design.positions))
        for candidate in fit.selected:
            log_p[candidate] = self._own_log_p_value(fit, int(candidate))
        log_p[np.isnan(estimates.share)] = 0.0
        return log_p

    def _own_log_p_value(self, fit: Fit, candidate: int) -> float:
        """Test a member of the model against residuals that still hold its own share."""
        scores = self._scores(without_candidate(fit, self.design, candidate), fit)
        total = score_totals(scores, self.design.positions[candidate : candidate + 1])[0]
        return HashNull(scores, self.params.h).log_tail(float(total))

    def _scores(self, residuals: FloatArray, fit: Fit) -> FloatArray:
        """Standardise residuals and bound each one's say, so that no single row decides."""
        inverse_sd = np.sqrt(fit.weights)
        scores = np.clip(residuals * inverse_sd, -_CLIP, _CLIP) * inverse_sd
        return scores.reshape(self.params.m, self.params.k)


def _detection_limit(estimates: Estimates, level: float) -> float:
    """Return the share whose one-sided test at `level` has power 0.9, for a typical candidate."""
    if np.isnan(estimates.std_error).all():
        return np.nan
    z = stats.norm.isf(level) + stats.norm.ppf(POWER)
    return float(z * np.nanmedian(estimates.std_error))
