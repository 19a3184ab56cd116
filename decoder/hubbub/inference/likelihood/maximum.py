"""The best mixture: shares >= 0 that make the reports most likely, with a proof of how good.

The log-likelihood l(pi) = sum_i w_i log(sum_s pi_s L_is) is concave, so Newton's method with the
constraint kept (sequential quadratic programming) needs a few passes where EM needs thousands. It
stops at a certificate, not when steps get small: no shares whatever gain more than the gap
    max_s dl/dpi_s - N
over what was reached, N = sum_i w_i (Kim, Carbonetto, Stephens, Anitescu 2020).

Estimates are made in the model of the unknown and the members of which there is evidence. Members
at the boundary have no normal distribution and are left out; each of them, like every candidate
outside, is estimated as if it alone were added. The unknown always stays, and may go
below 0, so that estimates are unbiased when everything is listed, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import linalg

from hubbub.inference.arrays import FloatArray, IntArray, PositionArray
from hubbub.inference.errors import UndecodableError
from hubbub.inference.likelihood.sums import Evaluation, ReportMixture, distinct_positions
from hubbub.inference.quadratic import best_of_quadratic
from hubbub.protocol import RapporParams

TOLERANCE = 1e-3
"""Gap at which to stop. A log-likelihood d^2 / 2 short of its maximum is d standard errors off, so
what is left to gain moves no estimate by more than 0.045 of its standard error."""
# Steps converge quadratically near the maximum; what hasn't by then is refused.
_MAX_PASSES = 100
# The line search: the usual part of the expected gain (Nocedal and Wright, section 3.1), steps
# shortened to .3 of themselves, and what rounding of a sum over all reports may hide.
_SLOPE = 1e-4
_SHORTEN = 0.3
_ROUNDING = 1e-13
# Any fixed number: the same reports give the same estimates.
_PROBE_SEED = 20140814
_DEPENDENT = 1e-6  # single precision leaves less


@dataclass(frozen=True, slots=True)
class Solution:
    """Shares that no others beat by more than the gap."""

    shares: FloatArray  # shape (a,); at least 0, with sum 1
    at: Evaluation  # there
    gap: float  # log-likelihood that may still be missing, at most
    passes: int  # evaluations that it took


class Fitted(NamedTuple):
    """The most likely mixture of some candidates."""

    mixture: ReportMixture
    solution: Solution
    members: IntArray  # shape (a,); which candidates the mixture's members are, in ascending order


def maximise(
    evaluate: Callable[[FloatArray], Evaluation],
    total: float,
    start: FloatArray,
    *,
    tolerance: float = TOLERANCE,
    progress: Callable[[float], None] = lambda _gap: None,
) -> Solution:
    """Find the most likely shares.

    `evaluate`: from shares to the log-likelihood there. `total`: N, the sum of the reports'
    weights. `start`, shape (a,): at least 0, with a positive sum; components at 0 may rise.
    `tolerance`: gap at which to stop. `progress`: called with the gap after each pass. Raises
    `UndecodableError` if the gap doesn't get there.
    """
    shares = start / start.sum()
    at = evaluate(shares)
    for passes in range(1, _MAX_PASSES):
        gap = float(at.gradient.max()) - total
        progress(gap)
        if gap <= tolerance:
            return Solution(shares, at, max(gap, 0.0), passes)
        aim = best_of_quadratic(at.information, at.gradient - total, shares)
        aim /= aim.sum()
        slope = float(at.gradient @ (aim - shares))
        step, ahead = 1.0, evaluate(aim)
        while ahead.value < at.value + _SLOPE * step * slope - _ROUNDING * abs(at.value):
            step *= _SHORTEN
            ahead = evaluate((1 - step) * shares + step * aim)
        shares, at = (1 - step) * shares + step * aim, ahead
    raise UndecodableError(
        f"likelihood: {_MAX_PASSES} passes left a gap of {gap:.3g}; expected at most "
        f"{tolerance:g}. Use --method regression"
    )


def best_among(solution: Solution, components: IntArray) -> FloatArray:
    """Return the most likely shares of some components without the others.

    The log-likelihood is taken to be a parabola: a start for `maximise`.
    """
    at, shares = solution.at, solution.shares
    others = np.setdiff1d(np.arange(len(shares)), components)
    score = at.gradient - float(shares @ at.gradient)
    return best_of_quadratic(
        at.information[np.ix_(components, components)],
        score[components] + at.information[np.ix_(components, others)] @ shares[others],
        shares[components],
    )


@dataclass(frozen=True, slots=True, eq=False)
class EstimationModel:
    """The model that estimates are made in: the unknown, and the members that were kept."""

    mixture: ReportMixture  # of the kept members alone
    kept: IntArray  # shape (1 + a,); their components in the whole mixture: 0, the unknown, first
    rows: IntArray  # shape (a,); which candidates the members are, in ascending order
    shares: FloatArray  # shape (1 + a,); at the maximum
    step: FloatArray  # shape (1 + a,); the Newton step from there that lets the unknown go below 0
    inverse: FloatArray  # shape (1 + a, 1 + a); of the observed information

    def left_over(self, own: FloatArray, shared: FloatArray) -> FloatArray:
        """Return the information that strings have beyond what they share with the model.

        `own` has shape (o,). `shared` has shape (o, 1 + a).
        """
        return np.asarray(own - np.einsum("ij,ij->i", shared @ self.inverse, shared))


def estimation_model(
    mixture: ReportMixture, solution: Solution, members: IntArray
) -> EstimationModel:
    """Keep the members above 0, but for those whose bits the others explain.

    `mixture`: the reports, and the strings of which they may be. `solution`: its most likely
    shares. `members`, shape (a,): which candidates its members are.
    """
    kept = _independent(solution)
    inverse = linalg.inv(solution.at.information[np.ix_(kept, kept)])
    step = inverse @ (solution.at.gradient[kept] - mixture.reports.total)
    smaller = ReportMixture(mixture.reports, mixture.members[kept[1:] - 1], mixture.threads)
    return EstimationModel(
        smaller, kept, members[kept[1:] - 1], solution.shares[kept], step, inverse
    )


def with_evidence(solution: Solution, total: float, least_z: float) -> IntArray:
    """Return the members that are left when the weakest leaves until all have evidence.

    Of many absent strings about half lie above 0 at the maximum, by chance. Kept in the model, they
    take from the unknown what they have too much, and make every error larger.

    `solution`: the most likely shares of the unknown, component 0, and of all members. `total`: N,
    the sum of the reports' weights. `least_z`: least share of those that are left, in its standard
    errors in their model, the log-likelihood being taken for a parabola. Returns numbers of
    members, in ascending order.
    """
    kept = _independent(solution)
    inverse = linalg.inv(solution.at.information[np.ix_(kept, kept)])
    shares = solution.shares[kept] + inverse @ (solution.at.gradient[kept] - total)
    while len(kept) > 1:
        z = shares[1:] / np.sqrt(np.diag(inverse)[1:])
        weakest = 1 + int(z.argmin())
        if z[weakest - 1] >= least_z:
            break
        others = np.delete(np.arange(len(kept)), weakest)
        pull = inverse[others, weakest] / inverse[weakest, weakest]
        shares = shares[others] - pull * shares[weakest]
        inverse = inverse[np.ix_(others, others)] - np.outer(pull, inverse[weakest, others])
        kept = kept[others]
    return kept[1:] - 1


def _independent(solution: Solution) -> IntArray:
    kept = np.concatenate([[0], 1 + np.flatnonzero(solution.shares[1:] > 0)])
    information = solution.at.information[np.ix_(kept, kept)]
    scale = np.sqrt(np.diag(information))
    scale[0] /= 2  # the largest pivot comes first: the unknown always stays
    _, pivots, rank, _ = linalg.lapack.dpstrf(information / np.outer(scale, scale), tol=_DEPENDENT)
    return np.asarray(kept[np.sort(pivots[:rank]) - 1])


def random_strings(params: RapporParams, n: int) -> PositionArray:
    """Return the distinct positions of absent strings, the same at every call."""
    rng = np.random.default_rng(_PROBE_SEED)
    drawn = rng.integers(params.k, size=(n, params.m, params.h), dtype=np.int16)
    return distinct_positions(drawn, params)
