"""P-values from the distribution of a score over the hash, given everything else.

An absent string's positions are independent and uniform, whatever the reports hold, so its score in
a model that doesn't know it has exactly the distribution of the score tables' cells. Each cohort's
say is weighed, so that no single collision with a strong unlisted string decides. A member is
tested as if it had never been proposed: it is taken out, and the others move to where they would be
the most likely without it.

Invariant: they move *all*, those at 0 too; otherwise, of many absent strings that compete to
explain an unlisted one, the winner looks present.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubbub.decoder.arrays import FloatArray
from hubbub.decoder.inference.hash_null import HashNull
from hubbub.decoder.likelihood.cells import CellTables
from hubbub.decoder.likelihood.mixture import Solution, best_of_quadratic
from hubbub.decoder.likelihood.model import FreeModel, random_strings
from hubbub.decoder.likelihood.sums import Mixture, Moved

_CLIP = 4.0
_PROBE_CELLS = 16_384
_LEAST_VARIANCE = 1e-3
_SURE_Z = 6.0
PARTS = np.linspace(0.0, 1.0, 41)


@dataclass(frozen=True, slots=True, eq=False)
class Weighed:
    """Scores in which cohorts have the say that their noise leaves them.

    Attributes
    ----------
    excess_variance : float
        tau^2: variance of a cohort's own estimate of the share beyond the model's.
    floor : float
        Least variance of a cohort's score.
    table : float64 array, shape (m, cells)
    null : HashNull
        Distribution of an absent string's total.
    mean, deviation : float
        Of that distribution.
    """

    excess_variance: float
    floor: float
    table: FloatArray
    null: HashNull
    mean: float
    deviation: float

    def __call__(self, score: FloatArray, variance: FloatArray) -> FloatArray:
        """Return weighed scores."""
        return _weighed(score, variance, self.excess_variance, self.floor)


def weigh_scores(tables: CellTables, reports: FloatArray) -> Weighed:
    """Weigh each cohort's score by its noise, and bound it at 4 standard deviations.

    Parameters
    ----------
    tables : CellTables
    reports : float64 array, shape (m,)
        Of each cohort.

    Notes
    -----
    A cohort's score G with variance V estimates the share by G / V. Unlisted strings give that
    estimate a variance tau^2 beyond 1 / V, taken to be the same everywhere and estimated by moments
    over all cells; the best weights of such estimates turn G into G / (1 + tau^2 V). Without
    unlisted strings tau is 0 and the score the likelihood's own.
    """
    variance = tables.information - reports[:, None]
    chance = np.bincount(tables.cells.of_tuple) / len(tables.cells.of_tuple)
    floor = _LEAST_VARIANCE * float((variance @ chance).mean())
    excess = float(((tables.score**2 - variance) @ chance).sum())
    excess_variance = max(0.0, excess / float((variance**2 @ chance).sum()))
    table = _weighed(tables.score, variance, excess_variance, floor)
    distribution = table[:, tables.cells.of_tuple]
    mean, deviation = (
        float(distribution.mean(axis=1).sum()),
        float(np.sqrt(distribution.var(axis=1).sum())),
    )
    return Weighed(excess_variance, floor, table, HashNull(distribution, 1), mean, deviation)


def member_scores(
    mixture: Mixture, solution: Solution, model: FreeModel, weighed: Weighed, phi: float
) -> FloatArray:
    """Return the members' weighed scores in the mixture without them, as draws from the null.

    Parameters
    ----------
    mixture : Mixture
        Of all members, those at 0, too.
    solution : Solution
        Its most likely shares.
    model : FreeModel
    weighed : Weighed
    phi : float
        Overdispersion.

    Returns
    -------
    float64 array, shape (a, parts)
        As if a member's estimate were the part `PARTS` of what it is.

    Notes
    -----
    By how much the distribution of absent strings' scores moves and widens when a member is taken
    out is seen on random strings, to first order in the shares' moves; its shape is taken to stay.
    The member's own score is taken to first order, too, so that the two agree, unless it is 6
    standard errors above 0: then that would be far too little, for a large share explains its own
    reports.
    """
    chosen = model.kept[1:]
    sure = solution.shares[chosen] > _SURE_Z * np.sqrt(phi * np.diag(model.inverse)[1:])
    moves = np.zeros((len(solution.shares), 1 + len(chosen)))
    moves[model.kept, 0] = model.step
    for column, component in enumerate(chosen, start=1):
        moves[:, column] = _move_without(int(component), solution)
    params = mixture.reports.params
    others = random_strings(params, max(_PROBE_CELLS // params.m, 1))
    own, other = mixture.moved(solution.shares, moves, chosen, others)
    before = _moments(weighed, other, 0)
    tested = np.empty((len(chosen), len(PARTS)))
    for place in range(len(chosen)):
        mean, deviation = _moments(weighed, other, 1 + place)
        for column, part in enumerate(PARTS):
            aside = np.array([1 - part, 0.0, part] if sure[place] else [1 - part, part, 0.0])
            scores = weighed(
                own.score[:, place] + own.score_change[:, place] @ aside,
                own.variance[:, place] + own.variance_change[:, place] @ aside,
            )
            shifted = float(scores.sum()) - part * (mean - before[0]) - weighed.mean
            widened = 1 + part * (deviation / before[1] - 1)
            tested[place, column] = weighed.mean + shifted / widened
    return tested


def _move_without(component: int, solution: Solution) -> FloatArray:
    """Return how the shares move if a member is taken out, the log-likelihood being a parabola."""
    information = solution.at.information
    score = solution.at.gradient - float(solution.shares @ solution.at.gradient)
    rest = np.delete(np.arange(len(score)), component)
    # The unknown may go below 0: it is moved up by all there is, and back.
    floor = (rest == 0).astype(np.float64)
    aim = best_of_quadratic(
        information[np.ix_(rest, rest)],
        score[rest] + information[rest, component] * solution.shares[component],
        solution.shares[rest] + floor,
    )
    move = np.empty(len(score))
    move[component] = -solution.shares[component]
    move[rest] = aim - floor - solution.shares[rest]
    return move


def _moments(weighed: Weighed, other: Moved, move: int) -> tuple[float, float]:
    """Return mean and standard deviation of absent strings' totals, cohorts being independent."""
    scores = weighed(
        other.score + other.score_change[:, :, move],
        other.variance + other.variance_change[:, :, move],
    )
    return float(scores.mean(axis=1).sum()), float(np.sqrt(scores.var(axis=1).sum()))


def _weighed(
    score: FloatArray, variance: FloatArray, excess_variance: float, floor: float
) -> FloatArray:
    known = np.maximum(variance, floor)
    deviation = np.sqrt(known + excess_variance * known**2)
    return np.clip(score / deviation, -_CLIP, _CLIP) * (known / deviation)
