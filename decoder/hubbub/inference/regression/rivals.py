"""Test a candidate as if it had never been listed: its rivals in the model, itself out of it.

A string that nobody has sets random bits, independent of the reports and of all other candidates.
So its test is exact in whatever model the search would have found *without it*. In the model that
was found with it, a string that is there and shares bits with it may be missing: what that one
explains was attributed to the other, which then passes its test with help from its own noise. Such
*rivals* are the candidates outside of the model that are detected where the tested one is left out.
Before a candidate near the limit counts as detected they join the model, for its test alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from scipy import linalg, sparse

from hubbub.inference.arrays import FloatArray, IntArray, SparseMatrix
from hubbub.inference.candidates import Candidates
from hubbub.inference.regression.estimates import LeaveOneOutFit, PresenceTests, bounded_scores
from hubbub.inference.regression.model import ROWS_EACH, Fit, product
from hubbub.inference.regression.sensitivity import thresholds_z
from hubbub.inference.testing.hash_null import HashNull

# A p-value below the cutoff by a factor of 10,000: rivals were seen to raise p-values by up to
# seven times.
_BEYOND_DOUBT = float(np.log(1e-4))
# Of a column's information: less is rounding, and the column is dependent.
_OWN_INFORMATION = 1e-6
# 256 MB of models for reuse; speed alone depends on it.
_BYTES_KEPT = 2**28


class Models(Mapping[int, LeaveOneOutFit]):
    """Models that have a few members more than one fit, by candidate; computed when asked for.

    A model has the size of all rows and of the members' covariance, so hundreds of them, which long
    lists have, wouldn't fit in memory: the first ones that do are kept.

    `candidates`: those that the fit's `selected` counts.
    """

    def __init__(self, fit: Fit, candidates: Candidates) -> None:
        self._fit, self._candidates = fit, candidates
        self._members: dict[int, IntArray] = {}  # of each candidate's model, in its order
        self._own: IntArray | None = None
        self._kept: dict[int, LeaveOneOutFit] = {}
        size = 8 * (len(fit.weights) + len(fit.coefficients) ** 2)
        self._room = _BYTES_KEPT // size

    def named(self, names: IntArray) -> Models:
        """Return the models under other names: number i is candidate ``names[i]``, ascending."""
        renamed = Models(self._fit, self._candidates)
        renamed._members, renamed._kept, renamed._own = self._members, self._kept, names
        return renamed

    def __getitem__(self, name: int) -> LeaveOneOutFit:
        candidate = name if self._own is None else int(np.searchsorted(self._own, name))
        if self._own is not None and not (
            candidate < len(self._own) and self._own[candidate] == name
        ):
            raise KeyError(name)
        model = self._kept.get(candidate)
        if model is None:
            model = self._model_of(candidate)
            self._keep(candidate, model)
        return model

    def add(self, candidate: int, model: LeaveOneOutFit) -> None:
        """Add a candidate's model, by its number in the fit."""
        self._members[candidate] = model.fit.selected
        self._keep(candidate, model)

    def _keep(self, candidate: int, model: LeaveOneOutFit) -> None:
        if len(self._kept) < self._room:
            self._kept[candidate] = model

    def _model_of(self, candidate: int) -> LeaveOneOutFit:
        members, fit = self._members[candidate], self._fit
        joining = members[~np.isin(members, fit.selected)]
        if len(joining):
            fit = extended(fit, joining, self._candidates.filters(joining))
        return LeaveOneOutFit(fit, int(np.flatnonzero(fit.selected == candidate)[0]))

    def __iter__(self) -> Iterator[int]:
        if self._own is None:
            return iter(self._members)
        return (int(self._own[candidate]) for candidate in self._members)

    def __len__(self) -> int:
        return len(self._members)


def models_with_rivals(
    tests: PresenceTests, log_p: FloatArray, log_cutoff: FloatArray | float
) -> Models:
    """Return the models in which candidates near the limit are to be tested, where rivals exist.

    `tests`: of the candidates among which rivals are looked for; all members are fixed effects.
    `log_p`, shape (n,): as found in the model without rivals. `log_cutoff`, shape (n,): ln of the
    largest p-value that counts as a detection; one that is smaller by a factor of 10,000 is beyond
    doubt.
    """
    tested = np.flatnonzero((log_p <= log_cutoff) & (log_p > log_cutoff + _BEYOND_DOUBT))
    models = Models(tests.fit, tests.candidates)
    if not len(tested):
        return models
    look = _RivalsOf(tests, log_cutoff)
    for candidate in tested.tolist():
        place = np.flatnonzero(tests.fit.selected == candidate)
        member = LeaveOneOutFit(tests.fit, int(place[0])) if len(place) else None
        model = look(candidate, member)
        if model is not None:
            models.add(candidate, model)
    return models


class _RivalsOf:
    """Looks for the rivals of one candidate after the other."""

    def __init__(self, tests: PresenceTests, log_cutoff: FloatArray | float) -> None:
        candidates, fit = tests.candidates, tests.fit
        numbers = candidates.numbers(slice(0, len(candidates)))
        self._entries = numbers.reshape(len(numbers), -1).astype(np.intp)
        self._outside = np.ones(len(candidates), dtype=np.bool_)
        self._outside[fit.selected] = False
        self._needed = thresholds_z(tests.null, log_cutoff)
        self._tests = tests

    def __call__(self, candidate: int, member: LeaveOneOutFit | None) -> LeaveOneOutFit | None:
        """Return the model with the candidate and its rivals, if it has any.

        `member`: the candidate in a model; None if it isn't in the one that was found.
        """
        tests = self._tests
        fit, params, candidates = tests.fit, tests.params, tests.candidates
        residuals, weights = fit.residuals, fit.weights
        if member is not None:
            fit = member.fit
            residuals, weights = tests.without(member)
        table = bounded_scores(weights * residuals, weights, params)
        totals = np.take(table.ravel(), self._entries).sum(axis=1)
        beyond = HashNull(table, params.h).z_scores(totals) - self._needed
        passing = self._outside & (beyond >= 0)
        passing[fit.selected] = passing[candidate] = False
        rivals = np.flatnonzero(passing)
        # Where reports are few, thousands may stand out: more than the rows can carry.
        room = max(0, np.count_nonzero(weights) // ROWS_EACH - len(fit.selected) - 1)
        rivals = np.sort(rivals[np.argsort(-beyond[rivals], kind="stable")[:room]])
        if not len(rivals):
            return None
        rows = rivals if member is not None else np.append(candidate, rivals)
        larger = extended(fit, rows, candidates.filters(rows))
        place = np.flatnonzero(larger.selected == candidate)
        return LeaveOneOutFit(larger, int(place[0])) if len(place) else None


def extended(fit: Fit, rows: IntArray, filters: FloatArray) -> Fit:
    """Add fixed effects to a fit, its weights being what they are.

    `rows`, shape (r,): candidates that are added after the selected; left out if the fit explains
    their columns. `filters` has shape (r, m * k).

    Notes
    -----
    The inverse of a bordered matrix: with U = X'W B the new columns' products with the old, and
    S = X'W X - U C U', the new coefficients are S^-1 X'W (y - fitted).
    """
    weighted = filters * fit.weights
    with_old = product(fit.basis, weighted.T).T
    crossed, own = with_old @ fit.covariance, weighted @ filters.T
    schur = own - crossed @ with_old.T
    kept = np.diag(schur) > _OWN_INFORMATION * np.diag(own)
    if not kept.all():
        return extended(fit, rows[kept], filters[kept]) if kept.any() else fit
    inverse = np.asarray(linalg.pinvh(schur))
    steps = inverse @ (weighted @ fit.residuals)
    moved = crossed.T @ inverse
    covariance = np.block([[fit.covariance + moved @ crossed, -moved], [-moved.T, inverse]])
    moves = steps @ filters - np.asarray(fit.basis.T @ (crossed.T @ steps))
    return replace(
        fit,
        selected=np.append(fit.selected, rows),
        basis=_stacked(fit.basis, SparseMatrix(filters)),
        penalties=np.append(fit.penalties, np.zeros(len(rows))),
        pulls=np.append(fit.pulls, np.zeros(len(rows))),
        coefficients=np.append(fit.coefficients - crossed.T @ steps, steps),
        covariance=covariance,
        residuals=fit.residuals - moves,
    )


def _stacked(upper: SparseMatrix, lower: SparseMatrix) -> SparseMatrix:
    parts = (
        np.concatenate([upper.data, lower.data]),
        np.concatenate([upper.indices, lower.indices]),
        np.concatenate([upper.indptr, lower.indptr[1:] + upper.indptr[-1]]),
    )
    return sparse.csr_array(parts, shape=(upper.shape[0] + lower.shape[0], upper.shape[1]))
