"""Joint maximum likelihood on raw reports, put together.

counts' proposals -> most likely mixture -> estimates and tests of all candidates -> detected ones
join the mixture -> again, until the detected stay the same -> refit of the detected. It starts from
a decoding of the same reports' counts, which only proposes: nothing of its p-values is used.
Deterministic: the same reports and candidates give the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from hubbub.decoder.arrays import BoolArray, FloatArray, IntArray
from hubbub.decoder.candidates.listing import Candidates
from hubbub.decoder.candidates.scanning import indistinguishable
from hubbub.decoder.decoding import Decoding
from hubbub.decoder.errors import UndecodableError
from hubbub.decoder.inference.multiple_testing import SEARCHED, Correction, log_q_values
from hubbub.decoder.likelihood.cells import require_tabulable
from hubbub.decoder.likelihood.inference import Inference, infer
from hubbub.decoder.likelihood.mixture import TOLERANCE, Solution, maximise
from hubbub.decoder.likelihood.sums import Mixture
from hubbub.decoder.likelihood.terms import distinct_positions
from hubbub.decoder.parallel import cores
from hubbub.decoder.reports.packed import PackedReports

MOST_MEMBERS = 300
_LEAST_Z = 1.0
_MAX_ROUNDS = 4
_LEAST_START = 1e-3

Progress = Callable[[int, float], None]
"""Called after each pass over the reports, with passes so far and the gap that is left."""


@dataclass(frozen=True, slots=True, eq=False)
class Likelihood:
    """What whole reports say of n candidates.

    Attributes
    ----------
    inference : Inference
        Share, error and p-value of each.
    log_q : float64 array, shape (n,)
        ln of the p-value after correction.
    detected : bool array, shape (n,)
    refit : float64 array, shape (n,)
        The most likely shares >= 0 of a mixture of the detected and the unknown; 0 elsewhere.
    unknown_share, unknown_std_error : float
        Share of reports with none of the detected strings, as estimated without bias.
    gap : float
        By how much the log-likelihood of the larger of the two mixtures' gaps may be short of its
        maximum.
    passes : int
        Over all reports, to find the maxima.
    """

    inference: Inference
    log_q: FloatArray
    detected: BoolArray
    refit: FloatArray
    unknown_share: float
    unknown_std_error: float
    gap: float
    passes: int


def fit_reports(
    reports: PackedReports,
    proposals: Decoding,
    candidates: Candidates,
    *,
    alpha: float = 0.05,
    correction: Correction = Correction.BH,
    tolerance: float = TOLERANCE,
    threads: int | None = None,
    progress: Progress = lambda _passes, _gap: None,
) -> Likelihood:
    """Find which candidates are present, and how often, from whole reports.

    Parameters
    ----------
    reports : PackedReports
    proposals : Decoding
        Of the same reports' counts and the same candidates.
    candidates : Candidates
    alpha : float
        Level of the correction's error rate.
    correction : Correction
    tolerance : float
        Log-likelihood that may be missing at the end.
    threads : int, optional
        All cores if not given; the result is the same.
    progress : callable

    Raises
    ------
    UndecodableError
        If there are no reports or they tell too little, the proposals are of other candidates, or
        filters have too many sets of bits (see `require_tabulable`).
    """
    require_tabulable(reports.params)
    if not reports.total or len(proposals.share) != len(candidates):
        raise UndecodableError(
            f"likelihood: {reports.total:,} reports, proposals for {len(proposals.share):,} of "
            f"{len(candidates):,} candidates; expected reports, and proposals for all"
        )
    solver = _Solver(reports, candidates, threads or cores(), tolerance, progress)
    # Small systems of equations are solved by the hundred: threads of their own would only wait.
    with threadpool_limits(1):
        return _settle(solver, proposals, float(np.log(alpha)), correction)


def _settle(
    solver: _Solver, proposals: Decoding, log_alpha: float, correction: Correction
) -> Likelihood:
    """Fit, test, and let in what is detected, until it settles; then refit."""
    candidates = solver.candidates
    same = indistinguishable(candidates, np.diff(solver.reports.starts) > 0)
    members, shares = propose(proposals, same), proposals.share
    for _ in range(_MAX_ROUNDS):
        mixture, solution = solver.solve(members, shares[members])
        found = infer(mixture, solution, members, candidates, same)
        log_q = log_q_values(found.log_p, correction, allowance=SEARCHED)
        detected = log_q <= log_alpha
        wanted = np.union1d(members, np.flatnonzero(detected))
        if len(wanted) == len(members):
            break
        members, shares = wanted, found.share
    rows = np.flatnonzero(detected)
    _, refitted = solver.solve(rows, found.share[rows])
    refit = np.zeros(len(candidates))
    refit[rows] = refitted.shares[1:]
    unknown, unknown_std_error = _unknown(found, rows)
    return Likelihood(
        inference=found,
        log_q=log_q,
        detected=detected,
        refit=refit,
        unknown_share=unknown,
        unknown_std_error=unknown_std_error,
        gap=max(solution.gap, refitted.gap),
        passes=solver.passes,
    )


def propose(decoding: Decoding, indistinguishable: BoolArray) -> IntArray:
    """Return the candidates that the mixture begins with, in ascending order.

    All of them if they are few; otherwise those of which the counts have seen something, the
    strongest first, and all that the counts detected.
    """
    known = ~np.isnan(decoding.share) & ~indistinguishable
    if np.count_nonzero(known) <= MOST_MEMBERS:
        return np.flatnonzero(known)
    z = np.where(known, decoding.share / decoding.std_error, -np.inf)
    strongest = np.argsort(-z, kind="stable")[:MOST_MEMBERS]
    return np.union1d(strongest[z[strongest] > _LEAST_Z], np.flatnonzero(decoding.detected & known))


@dataclass(slots=True)
class _Solver:
    """Solves one mixture after the other, and counts the passes."""

    reports: PackedReports
    candidates: Candidates
    threads: int
    tolerance: float
    progress: Progress
    passes: int = 0

    def solve(self, members: IntArray, shares: FloatArray) -> tuple[Mixture, Solution]:
        params = self.reports.params
        positions = distinct_positions(self.candidates.positions(members), params)
        mixture = Mixture(self.reports, positions, self.threads)
        start = np.clip(np.nan_to_num(shares), 0.0, 1.0)
        start = np.concatenate([[max(1.0 - start.sum(), _LEAST_START)], start])
        solution = maximise(
            mixture.evaluate,
            self.reports.total,
            start,
            tolerance=self.tolerance,
            progress=self._passed,
        )
        return mixture, solution

    def _passed(self, gap: float) -> None:
        self.passes += 1
        self.progress(self.passes, gap)


def _unknown(found: Inference, detected: IntArray) -> tuple[float, float]:
    """Return 1 minus the detected shares, and its standard error."""
    inside = np.isin(detected, found.members)
    chosen = 1 + np.searchsorted(found.members, detected[inside])
    variance = float(found.covariance[np.ix_(chosen, chosen)].sum())
    apart = float((found.std_error[detected[~inside]] ** 2).sum())
    total = float(found.share[detected].sum())
    return 1.0 - total, float(np.sqrt(max(variance, 0.0) + apart))
