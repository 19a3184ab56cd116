"""From the most likely mixture to an estimate, an error and a p-value of *every* candidate.

A candidate in the model has its share there, every other one the share that it would have if it
alone were added (one Newton step, which is what makes it unbiased). Errors come from the observed
information, widened by what unlisted strings add; docs/understand/likelihood.md derives all of it.

P-values come from the distribution of a score over the hash, given everything else. An absent
string's positions are independent and uniform, whatever the reports hold, so its score in a model
that doesn't know it has exactly the distribution of the score tables' cells. Each cohort's score is
weighted, so that no single collision with a strong unlisted string decides. A member is tested as
if it had never been proposed: it is taken out, and the others move to where they would be the most
likely without it. Invariant: they move *all*, those at 0 too; otherwise, of many absent strings
that compete to explain an unlisted one, the winner looks present.

What the likelihood can take: how many members, and which filters.

Whoever only asks whether whole reports are worth decoding needs these numbers and nothing else.

Sums over reports for *every* string at once: one number per cohort and set of bits.

A string's score is a sum over cohorts of a number that depends on its h positions there alone. So
one table over all position tuples serves a million candidates, and its columns are the exact
distribution of the score of an absent string, whose positions are uniform. Tuples that set
the same bits share a cell; sums over reports of products over bits are matrix products of half of
the bits by the other half.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hubbub.inference.arrays import FloatArray, IntArray, PositionArray, RealArray
from hubbub.inference.candidates import Candidates, distinct_positions
from hubbub.inference.counts import ReportBlock
from hubbub.inference.errors import UndecodableError
from hubbub.inference.likelihood.mixture import (
    Crossings,
    EstimationModel,
    Fitted,
    Moved,
    ReportMixture,
    Solution,
    block_rows,
    densities,
    estimation_model,
    random_strings,
    ratio_rows,
    sums_by_cohort,
)
from hubbub.inference.regression.model import best_without
from hubbub.inference.testing.hash_null import HashNull
from hubbub.protocol import RapporParams

MOST_MEMBERS = 300
"""Most candidates that are in the mixture from the start."""
LARGEST_SPREAD = 1 / 3
"""Largest standard deviation of the information about absent strings, over its mean, at which
shares are estimated without the members that lack evidence.

Beyond it a few reports decide about a string, and estimates aren't normal: errors of absent strings
were stated at a half to a tenth of what they were (docs/understand/likelihood.md, Limits).
"""
# Tables of all tuples of positions stay within 128 MB of doubles (docs/understand/likelihood.md,
# Limits).
MAX_TUPLES = 2**16
MAX_NUMBERS = 2**24


def require_tabulable(params: RapporParams) -> None:
    """Raise UndecodableError if filters have too many sets of bits for tables."""
    tuples = params.k**params.h
    if tuples > MAX_TUPLES or tuples * params.m > MAX_NUMBERS:
        raise UndecodableError(
            f"likelihood: k = {params.k}, h = {params.h}, m = {params.m} give {tuples:,} ways to "
            f"set bits in each cohort; expected k^h of at most {MAX_TUPLES:,} and k^h m of at most "
            f"{MAX_NUMBERS:,}. Use --method regression"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The sets of bits that a string can set in one cohort."""

    # Shape (k^h,); the cell of positions (J_1 ... J_h), which have the number J_1 k^(h-1) + ... +
    # J_h.
    of_tuple: IntArray
    # Shape (l, h // 2) and (r, h - h // 2); different first and second halves of the cells' bits.
    left: PositionArray
    right: PositionArray
    half_left: IntArray  # shape (cells,); each cell's halves
    half_right: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class CellTables:
    """Sums over each cohort's reports, for a string that sets a cell's bits."""

    cells: Cells
    score: FloatArray  # shape (m, cells); sum_i w_i (L_i / mix_i (1 - shift_i) - 1)
    information: FloatArray  # shape (m, cells); sum_i w_i L_i^2 / mix_i^2
    # Shape (m, cells); sum_i w_i L_i L_i0 / mix_i^2, component 0 being the unknown string.
    unknown: FloatArray


def make_cells(params: RapporParams) -> Cells:
    """Return the sets of bits that h positions can set, numbered."""
    require_tabulable(params)
    tuples = np.array(list(itertools.product(range(params.k), repeat=params.h)), dtype=np.int16)
    sets, of_tuple = np.unique(distinct_positions(tuples, params), axis=0, return_inverse=True)
    half = params.h // 2
    left, half_left = np.unique(sets[:, :half], axis=0, return_inverse=True)
    right, half_right = np.unique(sets[:, half:], axis=0, return_inverse=True)
    return Cells(of_tuple.ravel(), left, right, half_left.ravel(), half_right.ravel())


def tabulate(mixture: ReportMixture, shares: FloatArray, shift: FloatArray) -> CellTables:
    """Sum over all reports.

    `mixture`: the reports, and the strings of which they may be. `shares`, shape (1 + a,): mix_i =
    sum_s shares_s L_is. `shift`, shape (1 + a,): a small change of the shares; shift_i = sum_s
    shift_s L_is / mix_i. To first order the scores are those at `shares + shift`.
    """
    params, precision = mixture.reports.params, mixture.precision
    cells = make_cells(params)
    at, by = shares.astype(precision), shift.astype(precision)

    def work(block: ReportBlock) -> tuple[RealArray, RealArray, RealArray]:
        density = mixture.densities(block, precision)
        mixed = at @ density
        weights = block.weights.astype(precision)
        once = weights / mixed * (1 - by @ density / mixed)
        twice = weights / mixed**2
        rows = ratio_rows(block.bits, params, precision)
        left, right = _products(rows, cells.left), _products(rows, cells.right)
        score = _table(cells, left * once, right) - block.weights.sum()
        unknown = _table(cells, left * (twice * density[0]), right)
        return score, _table(cells, left * left * twice, right * right), unknown

    rows = block_rows(len(shares) + len(cells.left) + len(cells.right))
    shapes = [(len(cells.half_left),)] * 3
    return CellTables(cells, *sums_by_cohort(mixture.reports, rows, work, shapes))


def totals(cells: Cells, tables: Sequence[FloatArray], candidates: Candidates) -> FloatArray:
    """Return the sum over cohorts of each candidate's entries in some tables.

    `cells`: the cells, and which of them each string belongs to. `tables` has shape (m, cells).
    Returns an array of shape (len(tables), n).
    """
    params = candidates.params
    first = np.arange(params.m) * tables[0].shape[1]
    # Bits have numbers in all cohorts, of which each hash brings the cohort's first.
    added = np.arange(params.m) * params.k * sum(params.k**hash_ for hash_ in range(params.h))
    sums = np.empty((len(tables), len(candidates)))
    for rows in candidates.pieces(slice(0, len(candidates))):
        numbers = candidates.numbers(rows)
        tuples = numbers[:, 0].astype(np.intp)
        for later in range(1, params.h):
            tuples *= params.k
            tuples += numbers[:, later]
        tuples -= added
        # Entries are in range: "clip" only spares numpy the looking.
        entries = np.take(cells.of_tuple, tuples, mode="clip")
        entries += first
        for table, out in zip(tables, sums, strict=True):
            np.add.reduce(np.take(table, entries, mode="clip"), axis=1, out=out[rows])
    return sums


def _products(rows: RealArray, positions: PositionArray) -> RealArray:
    if not positions.shape[1]:
        return np.ones((1, rows.shape[1]), dtype=rows.dtype)
    return densities(rows, positions)


def _table(cells: Cells, left: RealArray, right: RealArray) -> RealArray:
    return np.asarray((left @ right.T)[cells.half_left, cells.half_right])


# No cohort decides alone: 4 standard deviations, as for rows of bit counts
# (docs/understand/likelihood.md, Tests).
_CLIP = 4.0
# Random strings whose mean information stands for all outsiders': with the cohorts they are up to
# 16,384 samples, whose mean is known to about 1%.
_MOST_PROBES, _PROBE_CELLS = 128, 16_384
# Part of the mean variance: keeps a cohort with hardly any reports from counting as exact.
_LEAST_VARIANCE = 1e-3
EXACT_FROM_Z = 6.0
"""Standard errors from which on a member's own score is computed exactly when it is left out, for
large shares explain their own reports (docs/understand/likelihood.md, Tests)."""
# Steps in which a member's estimate is imagined smaller: the threshold between two is interpolated.
PARTS = np.linspace(0.0, 1.0, 41)
# So many candidates that look the most present get exact information.
_EXACT = 256
_TINY = 1e-6  # of a string's information, as rounding to single precision leaves it
_LEAST_INFORMATION = 1.0
"""Least information about a string's share: its error, 1 over the root, is below 100%."""
_LEAST_NOISE = 1e-3  # of a variance that is left when the sampling of a string's own clients goes


@dataclass(frozen=True, slots=True, eq=False)
class Weighed:
    """Scores in which each cohort has the weight that its noise allows."""

    # Tau^2: variance of a cohort's own estimate of the share beyond the model's.
    excess_variance: float
    floor: float  # least variance of a cohort's score
    table: FloatArray  # shape (m, cells)
    null: HashNull  # distribution of an absent string's total
    mean: float  # of that distribution

    def __call__(self, score: FloatArray, variance: FloatArray) -> FloatArray:
        """Return weighed scores."""
        return _weighed(score, variance, self.excess_variance, self.floor)


def weigh_scores(tables: CellTables, reports: FloatArray) -> Weighed:
    """Weigh each cohort's score by its noise, and bound it at 4 standard deviations.

    `tables`: scores and their information, summed over the reports of each cohort. `reports`, shape
    (m,): of each cohort. Raises `UndecodableError` if an absent string's share would have a
    standard error of 100% or more.

    Notes
    -----
    A cohort's score G with variance V estimates the share by G / V. Unlisted strings give that
    estimate a variance tau^2 beyond 1 / V, taken to be the same everywhere and estimated by moments
    over all cells; the best weights of such estimates turn G into G / (1 + tau^2 V). Without
    unlisted strings tau is 0 and the score the likelihood's own.
    """
    variance = tables.information - reports[:, None]
    chance = np.bincount(tables.cells.of_tuple) / len(tables.cells.of_tuple)
    of_absent = variance @ chance
    # For a handful of reports it may even be negative, and then there is no floor.
    _require_information(float(of_absent.sum()), int(reports.sum()))
    floor = _LEAST_VARIANCE * float(of_absent.mean())
    excess = float(((tables.score**2 - variance) @ chance).sum())
    excess_variance = max(0.0, excess / float((variance**2 @ chance).sum()))
    table = _weighed(tables.score, variance, excess_variance, floor)
    distribution = table[:, tables.cells.of_tuple]
    mean = float(distribution.mean(axis=1).sum())
    return Weighed(excess_variance, floor, table, HashNull(distribution, 1), mean)


def member_scores(
    fitted: Fitted,
    model: EstimationModel,
    weighed: Weighed,
    phi: float,
    probes: Crossings,
) -> FloatArray:
    """Return the members' weighed scores in the mixture without them, as draws from the null.

    `fitted`: of all members, those at 0, too. `model`: which of them are above 0, and their
    information. `weighed`: all candidates' scores, as `weigh_scores` returns them. `phi`:
    overdispersion. `probes`: of absent strings with the components of the whole mixture.
    Returns an array of shape (a, parts): as if a member's estimate were the part `PARTS` of what it
    is.

    Notes
    -----
    By how much the distribution of absent strings' scores moves and widens when a member is taken
    out is seen on random strings, to first order in the shares' moves; its shape is taken to stay.
    The member's own score is taken to first order, too, so that the two agree, unless it is 6
    standard errors above 0: then that would be far too little, for a large share explains its own
    reports.
    """
    mixture, solution, _ = fitted
    chosen = model.kept[1:]
    sure = solution.shares[chosen] > EXACT_FROM_Z * np.sqrt(phi * np.diag(model.inverse)[1:])
    moves = np.zeros((len(solution.shares), 1 + len(chosen)))
    moves[model.kept, 0] = model.step
    at, shares = solution.at, solution.shares
    score = at.gradient - float(shares @ at.gradient)
    for column, component in enumerate(chosen, start=1):
        moves[:, column] = best_without(at.information, score, shares, int(component)) - shares
    own, other = mixture.moved(solution.shares, moves, chosen, sure), probes.moved(moves)
    before = _moments(weighed, other, 0)
    aside = np.stack([1 - PARTS, PARTS])
    tested = np.empty((len(chosen), len(PARTS)))
    for place in range(len(chosen)):
        mean, deviation = _moments(weighed, other, 1 + place)
        scores = weighed(
            own.score[:, place, None] + own.score_change[:, place] @ aside,
            own.variance[:, place, None] + own.variance_change[:, place] @ aside,
        )
        shifted = scores.sum(axis=0) - PARTS * (mean - before[0]) - weighed.mean
        widened = 1 + PARTS * (deviation / before[1] - 1)
        tested[place] = weighed.mean + shifted / widened
    return tested


def _moments(weighed: Weighed, other: Moved, move: int) -> tuple[float, float]:
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


@dataclass(frozen=True, slots=True, eq=False)
class Presence:
    """Tests of every candidate against "no client has it"."""

    log_p: FloatArray  # shape (n,); ln of the one-sided p-value
    null: HashNull  # distribution of an absent candidate's weighed score
    members: IntArray  # shape (a,); candidates in the model, in ascending order
    # Shape (a, parts); the members' weighed scores if their estimates were the parts `PARTS` of
    # what they are.
    by_part: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """Estimates of every candidate; nan where the reports don't determine them."""

    # Shape (n,); unbiased share of the collected reports; negative where the reports are evidence
    # against it.
    share: FloatArray
    std_error: FloatArray
    noise: HashNull  # distribution of an absent candidate's score, which is that of its estimate
    members: IntArray  # shape (a,); candidates in the model, in ascending order
    model_share: FloatArray  # shape (1 + a,); the unknown's share and theirs
    # Shape (1 + a, 1 + a); of those, as estimates of the collected reports' true shares.
    covariance: FloatArray
    spread: float  # standard deviation of the information about absent strings, over its mean


class FittedMixture:
    """A mixture at its maximum, and what absent strings' scores in it are like.

    Raises `UndecodableError` if a typical candidate's share would have a standard error of 100% or
    more.
    """

    def __init__(self, fitted: Fitted) -> None:
        mixture, solution, members = fitted
        self.fitted = fitted
        self._model = estimation_model(mixture, solution, members)
        self._total = mixture.reports.total
        # Random strings share as much with the model as absent ones do.
        n_probes = min(max(_PROBE_CELLS // mixture.reports.params.m, 1), _MOST_PROBES)
        probes = random_strings(mixture.reports.params, n_probes)
        self._crossings = mixture.crossings(solution.shares, probes)
        self._probe_shared = self._crossings.shared.sum(axis=0)[:, self._model.kept]
        self._probe_own = self._crossings.variance.sum(axis=0) + self._total
        left_over = float(self._model.left_over(self._probe_own, self._probe_shared).mean())
        _require_information(left_over, self._total)
        self._tables = tabulate(self._model.mixture, self._model.shares, self._model.step)
        self._distribution = self._tables.score[:, self._tables.cells.of_tuple]
        # phi, by which unlisted strings make variances larger than the model's
        self._phi = max(1.0, float(self._distribution.var(axis=1).sum()) / left_over)
        _require_information(left_over / self._phi, self._total)

    def tested(self, candidates: Candidates) -> Presence:
        """Test all candidates."""
        model = self._model
        weighed = weigh_scores(self._tables, self.fitted.mixture.reports.by_cohort)
        (scores,) = totals(self._tables.cells, (weighed.table,), candidates)
        by_part = member_scores(self.fitted, model, weighed, self._phi, self._crossings)
        scores[model.rows] = by_part[:, -1]
        return Presence(weighed.null.log_tails(scores), weighed.null, model.rows, by_part)

    def estimated(self, candidates: Candidates) -> Shares:
        """Estimate all candidates."""
        model, tables, n_reports = self._model, self._tables, self._total
        in_tables = (tables.score, tables.information, tables.unknown)
        score, own, unknown = totals(tables.cells, in_tables, candidates)
        probes = self._probe_own, self._probe_shared
        information = _information(
            model, self.fitted.solution, probes, candidates, (score, own, unknown)
        )
        known = information > _TINY * own
        share = np.divide(score, information, out=np.full(len(score), np.nan), where=known)
        variance = np.divide(self._phi, information, out=np.full(len(score), np.nan), where=known)
        shares = model.shares + model.step
        share[model.rows] = shares[1:]
        variance[model.rows] = self._phi * np.diag(model.inverse)[1:]
        covariance = self._phi * model.inverse
        np.fill_diagonal(covariance, _without_sampling(np.diag(covariance), shares, n_reports))
        return Shares(
            share=share,
            std_error=np.sqrt(_without_sampling(variance, share, n_reports)),
            noise=HashNull(self._distribution, 1),
            members=model.rows,
            model_share=shares,
            covariance=covariance,
            spread=self.spread,
        )

    @property
    def members(self) -> IntArray:
        """Candidates above 0 whose bits the others don't explain, in ascending order."""
        return self._model.rows

    @property
    def spread(self) -> float:
        """Standard deviation of the information about absent strings, over its mean."""
        return _spread(self._tables.information[:, self._tables.cells.of_tuple], self._total)


def _spread(information: FloatArray, n_reports: int) -> float:
    deviation = float(np.sqrt(information.var(axis=1).sum()))
    return deviation / (float(information.mean(axis=1).sum()) - n_reports)


def _require_information(information: float, n_reports: int) -> None:
    if not information > _LEAST_INFORMATION:  # it may be nan
        raise UndecodableError(
            f"likelihood: {n_reports:,} reports are too few at these parameters; "
            "expected enough for standard errors below 100%. Use --method regression"
        )


def _without_sampling(variance: FloatArray, share: FloatArray, n_reports: int) -> FloatArray:
    """Take out what comes from drawing the string's own clients: share / N.

    The inverse information is the covariance about the *population's* shares but for
    -pi pi' / N (they add up to 1), and the collected reports' shares scatter about those by
    (diag(pi) - pi pi') / N. The difference is what the collected reports' shares are missed by.
    """
    sampling = np.clip(share, 0.0, 1.0) / n_reports
    return np.asarray(variance - np.minimum(sampling, (1 - _LEAST_NOISE) * variance))


def _information(
    model: EstimationModel,
    solution: Solution,
    probes: tuple[FloatArray, FloatArray],
    candidates: Candidates,
    sums: tuple[FloatArray, FloatArray, FloatArray],
) -> FloatArray:
    """Return each candidate's information beyond the model's.

    It is exact for those that look the most present. Of the others it is exact beyond the
    unknown's, and the members' part is the average that random strings have.
    """
    score, own, unknown = sums
    probe_own, shared = probes
    of_unknown = float(solution.at.information[0, 0])
    beyond_unknown = (probe_own - shared[:, 0] ** 2 / of_unknown).mean()
    ratio = float(model.left_over(probe_own, shared).mean() / beyond_unknown)
    found = np.asarray(ratio * (own - unknown**2 / of_unknown))
    z = score / np.sqrt(np.maximum(found, _TINY))
    z[model.rows] = -np.inf
    best = np.argsort(-z, kind="stable")[:_EXACT]
    exact = best[np.isfinite(z[best])]
    positions = distinct_positions(candidates.positions(exact), candidates.params)
    overlaps = model.mixture.overlaps(model.shares, positions)
    found[exact] = model.left_over(overlaps.own, overlaps.shared)
    return found
