"""Random effects of more candidates than rows, by the rows' covariance, and their feedback.

The rates are normal with the covariance V = W^-1 + X' D X, where D holds the variances of what
stands for each share (`sparse_effects`), so that a round costs as much as there are rows, however
many candidates there are. The rounds are kept, for decoys to be put through them afterwards
(`feedback`): each changes what stands for a few shares, and V by as many columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import linalg

from hubbub.inference.arrays import FloatArray, IntArray, SparseMatrix
from hubbub.inference.candidates import make_design
from hubbub.inference.counts import BitEstimates
from hubbub.inference.regression.estimates import Feedback, bounded_scores, draw_decoys
from hubbub.inference.regression.model import (
    Fit,
    ModelTerms,
    product,
    reports_by_row,
    weighted_gram,
)
from hubbub.inference.regression.sparse_effects import (
    UNDETERMINED,
    Effects,
    Round,
    effects_of,
    mixed,
    run_rounds,
)
from hubbub.inference.testing.hash_null import HashNull, score_totals
from hubbub.protocol.params import RapporParams

# Shares that may change by what a decoy takes. All others together would raise its z-score by .02;
# twice as many shares take twice the time.
_CHANGED = 32
# Of a variance: less is rounding.
_TINY = 1e-12


class _State(NamedTuple):
    """The rates, given what stands for each share."""

    # Shape (r, r); P = V^-1 less what the unknown mass, a fixed effect, explains.
    covariance: FloatArray
    scores: FloatArray  # shape (r,); P (y - X' D pulls)


@dataclass(frozen=True, slots=True)
class _Step:
    """One round, the state it set out from, and the rows' weights; shape (r,)."""

    past: Round
    state: _State
    weights: FloatArray


class RowEffects:
    """Random effects of candidates whose distribution is estimated.

    `members`: the candidates; what stands for their shares changes with each call of `draw`.
    """

    def __init__(self, bits: BitEstimates, members: ModelTerms, params: RapporParams) -> None:
        self.members = members
        self._params = params
        self._live = np.flatnonzero(reports_by_row(bits) > 0)
        self._rates = bits.rate.ravel()[self._live]
        self._columns = SparseMatrix(members.matrix[:, self._live])
        self._rows = SparseMatrix(self._columns.T)
        self._effects: Effects | None = None
        self._steps: list[_Step] = []

    def draw(self, fit: Fit, rounds: int) -> ModelTerms:
        """Return the members after some rounds more; the first ones set out from a guess.

        `fit`: a model, for its weights. `rounds`: as of `sparse_effects`.
        """
        weights = fit.weights[self._live]
        states: list[_State] = []

        def shares_without(effects: Effects) -> tuple[FloatArray, FloatArray]:
            states.append(self._state(weights, effects))
            sums, own = _sums(self._columns, states[-1])
            return _shares(sums, own, effects)

        own = np.asarray(self._columns @ weights)
        done = run_rounds(shares_without, own, self._effects, rounds)
        self._steps += [_Step(*each, weights) for each in zip(done, states, strict=True)]
        self._effects = done[-1].after
        return replace(self.members, effects=self._effects)

    def feedback(self, fit: Fit) -> Feedback:
        """Return what decoys' p-values would be if each were listed, too.

        `fit`: of what `draw` returned last.
        """
        params, live = self._params, self._live
        scores = bounded_scores(fit.scores, fit.weights, params)
        positions, weights = draw_decoys(scores, params.h)
        decoys = SparseMatrix(make_design(positions, params).matrix[:, live])
        effects = Effects(fit.penalties[1:], fit.pulls[1:])
        state = self._state(fit.weights[live], effects)
        changed = self._changed(decoys, state, effects)
        beside = self._beside(decoys, changed)
        # The others' scores without the decoy, but with what stands for them beside it.
        now = _moments(Effects(*(part[:, :-1] for part in beside)))
        before = _moments(Effects(*(part[changed] for part in effects)))
        inner, sums = self._among(decoys, changed, state)
        _, sums = _changed_to(now, before, inner[:, :-1, :-1], sums[:, :-1])
        moves = np.zeros((len(changed), self._columns.shape[0]))
        steps = now.means - before.means + (now.variances - before.variances) * sums
        np.put_along_axis(moves, changed, steps, axis=1)
        left = np.zeros((len(moves), params.m * params.k))
        left[:, live] = state.scores - (moves @ self._columns) @ state.covariance
        z = np.empty(len(left))
        for i, each in enumerate(left):
            bounded = bounded_scores(each, fit.weights, params)
            total = score_totals(bounded, positions[i : i + 1])
            z[i] = HashNull(bounded, params.h).z_scores(total)[0]
        null = HashNull(scores, params.h)
        return Feedback.of_decoys(null.log_tails(null.totals_at(z)), weights)

    def _state(self, weights: FloatArray, effects: Effects) -> _State:
        variances, means = _moments(effects)
        covariance = weighted_gram(self._rows, self._columns, variances)
        covariance[np.diag_indices(len(covariance))] += 1 / weights
        root = linalg.cholesky(covariance, lower=True, overwrite_a=True)
        inverse, _ = linalg.lapack.dtrtri(root, lower=1, overwrite_c=1)
        precision = inverse.T @ inverse
        unknown = precision.sum(axis=1)
        precision -= np.outer(unknown, unknown / unknown.sum())
        return _State(precision, precision @ (self._rates - np.asarray(self._rows @ means)))

    def _changed(self, decoys: SparseMatrix, state: _State, effects: Effects) -> IntArray:
        """Return the shares that change most if a decoy may hold what rows say; shape (d, c).

        These are shares that a decoy moves, and of which the mixture says something else then.
        """
        sums, own = _sums(self._columns, state)
        decoy_sums, decoy_own = _sums(decoys, state)
        crossed = np.asarray((self._columns @ product(decoys, state.covariance).T).T)
        part = crossed / np.maximum(decoy_own, _TINY)[:, None]
        beside, _ = _shares(sums - part * decoy_sums[:, None], own - part * crossed, effects)
        share, variance = _shares(sums, own, effects)
        error = np.sqrt(variance)
        bells, mixture = self._steps[-1].past.bells, self._steps[-1].past.mixture

        def expected(effects: Effects, share: FloatArray) -> FloatArray:
            return (effects.pulls + share / variance) / (effects.penalties + 1 / variance)

        def beyond(share: FloatArray) -> FloatArray:
            """Return what the mixture expects beyond what stood for the share."""
            made = effects_of(share, variance, bells, mixture)
            return (expected(made, share) - expected(effects, share)) / error

        moved = (beside - share) / error
        fallen, risen = (np.abs(beyond(share + s * error) - beyond(share)) for s in (-1, 1))
        change = moved**2 * np.where(moved < 0, fallen, risen)
        most = min(_CHANGED, len(share))
        return np.argpartition(-change, most - 1, axis=1)[:, :most]

    def _beside(self, decoys: SparseMatrix, changed: IntArray) -> Effects:
        """Put decoys through all rounds; return effects of the changed and of each decoy itself."""
        nothing = np.zeros((len(changed), 1))
        own = np.asarray(decoys @ self._steps[0].weights)[:, None]
        first = self._steps[0].past.before
        now = Effects(
            _with_decoy(first.penalties[changed], own), _with_decoy(first.pulls[changed], nothing)
        )
        for step in self._steps:
            inner, sums = self._among(decoys, changed, step.state)
            before = _moments(Effects(*(part[changed] for part in step.past.before)))
            without = _Moments(*(_with_decoy(part, nothing) for part in before))
            inner, sums = _changed_to(_moments(now), without, inner, sums)
            share, variance = _shares(sums, np.einsum("dii->di", inner), now)
            made = effects_of(share, variance, step.past.bells, step.past.mixture)
            now = mixed(now, made, step.past.kept)
        return now

    def _among(
        self, decoys: SparseMatrix, changed: IntArray, state: _State
    ) -> tuple[FloatArray, FloatArray]:
        """Return X P X' and X P (y - X' D pulls) of the changed shares' columns and a decoy's."""
        which, places = np.unique(changed, return_inverse=True)
        places = places.reshape(changed.shape)
        columns = SparseMatrix(self._columns[which])
        of_rows, of_decoys = product(columns, state.covariance), product(decoys, state.covariance)
        between = np.asarray(columns @ of_rows.T)
        crossed = np.take_along_axis(np.asarray((columns @ of_decoys.T).T), places, axis=1)
        sums, decoy_sums = np.asarray(columns @ state.scores), np.asarray(decoys @ state.scores)
        d, c = changed.shape
        inner = np.empty((d, c + 1, c + 1))
        inner[:, :c, :c] = between[places[:, :, None], places[:, None, :]]
        inner[:, :c, c] = inner[:, c, :c] = crossed
        inner[:, c, c] = _sums(decoys, state)[1]
        return inner, np.append(sums[places], decoy_sums[:, None], axis=1)


class _Moments(NamedTuple):
    """Variances D and means of what stands for shares; any shape."""

    variances: FloatArray
    means: FloatArray


def _moments(effects: Effects) -> _Moments:
    return _Moments(1 / effects.penalties, effects.pulls / effects.penalties)


def _with_decoy(part: FloatArray, own: FloatArray) -> FloatArray:
    return np.append(part, own, axis=1)


def _sums(columns: SparseMatrix, state: _State) -> tuple[FloatArray, FloatArray]:
    of_rows = product(columns, state.covariance)
    owner = np.repeat(np.arange(columns.shape[0]), np.diff(columns.indptr))
    own = np.bincount(owner, of_rows[owner, columns.indices], columns.shape[0])
    return np.asarray(columns @ state.scores), np.asarray(own, dtype=np.float64)


def _shares(sums: FloatArray, own: FloatArray, effects: Effects) -> tuple[FloatArray, FloatArray]:
    """Return shares and their variances as if each alone were a fixed effect; any shape.

    `sums` and `own`: x' P (y - X' D pulls), and x' P x. `effects`: what stands for the shares in P.
    """
    own = np.maximum(own, UNDETERMINED * effects.penalties)
    variance = np.maximum(1 / own - 1 / effects.penalties, _TINY / own)
    return effects.pulls / effects.penalties + sums / own, variance


def _changed_to(
    now: _Moments, before: _Moments, inner: FloatArray, sums: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return what `RowEffects._among` does where something else stands for the shares.

    `now` and `before`: shape (d, c) each. `inner`, shape (d, c, c): Q = X P X'. `sums` has shape
    (d, c).

    Notes
    -----
    With e the change of D, Q becomes (I + Q e)^-1 Q (Woodbury), and the sums likewise.
    """
    count = inner.shape[1]
    system = inner * (now.variances - before.variances)[:, None, :]
    system[:, np.arange(count), np.arange(count)] += 1
    sums = sums - np.einsum("dij,dj->di", inner, now.means - before.means)
    solved = np.linalg.solve(system, np.append(inner, sums[:, :, None], axis=2))
    return solved[:, :, :count], solved[:, :, count]
