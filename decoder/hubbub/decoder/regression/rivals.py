"""Test a candidate as if it had never been listed: its rivals in the model, itself out of it.

A string that nobody has sets random bits, independent of the reports and of all other candidates.
So its test is exact in whatever model the search would have found *without it*. In the model that
was found with it, a string that is there and shares bits with it may be missing: what that one
explains was attributed to the other, which then passes its test with help from its own noise. Such
*rivals* are the candidates outside of the model that are detected where the tested one is left out.
Before a candidate near the limit counts as detected they join the model, for its test alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import linalg, sparse

from hubbub.decoder.arrays import FloatArray, IntArray, SparseMatrix
from hubbub.decoder.candidates.listing import make_design
from hubbub.decoder.inference.hash_null import HashNull
from hubbub.decoder.regression.estimates import LeftOut, PresenceTests, bounded_scores
from hubbub.decoder.regression.model import Fit
from hubbub.decoder.regression.sensitivity import thresholds_z

_BEYOND_DOUBT = float(np.log(1e-4))
_OWN_INFORMATION = 1e-6


def models_with_rivals(
    tests: PresenceTests, log_p: FloatArray, log_cutoff: FloatArray | float
) -> dict[int, LeftOut]:
    """Return the models in which candidates near the limit are to be tested, where rivals exist.

    Parameters
    ----------
    tests : PresenceTests
        Of the candidates among which rivals are looked for; all members are fixed effects.
    log_p : float64 array, shape (n,)
        As found in the model without rivals.
    log_cutoff : float64 array, shape (n,), or float
        ln of the largest p-value that counts as a detection; one that is smaller by a factor of
        10,000 is beyond doubt.
    """
    fit, params, candidates = tests.fit, tests.params, tests.candidates
    tested = np.flatnonzero((log_p <= log_cutoff) & (log_p > log_cutoff + _BEYOND_DOUBT))
    if not len(tested):
        return {}
    numbers = candidates.numbers(slice(0, len(candidates)))
    entries = numbers.reshape(len(numbers), -1).astype(np.intp)
    outside = np.ones(len(candidates), dtype=np.bool_)
    outside[fit.selected] = False
    needed = thresholds_z(tests.null, log_cutoff)
    place_of = {candidate: place for place, candidate in enumerate(fit.selected.tolist())}
    found = {}
    for candidate in tested.tolist():
        if candidate in place_of:
            residuals, weights = tests.without(LeftOut(fit, place_of[candidate]))
        else:
            residuals, weights = fit.residuals, fit.weights
        table = bounded_scores(weights * residuals, weights, params)
        totals = np.take(table.ravel(), entries).sum(axis=1)
        passing = outside & (HashNull(table, params.h).z_scores(totals) >= needed)
        rivals = [other for other in np.flatnonzero(passing).tolist() if other != candidate]
        if rivals:
            joining = rivals if candidate in place_of else [candidate, *rivals]
            rows = np.array(joining, dtype=np.int64)
            design = make_design(candidates.positions(rows), params)
            larger = extended(fit, rows, design.matrix)
            place = np.flatnonzero(larger.selected == candidate)
            if len(place):
                found[candidate] = LeftOut(larger, int(place[0]))
    return found


def extended(fit: Fit, rows: IntArray, matrix: SparseMatrix) -> Fit:
    """Add fixed effects to a fit, its weights being what they are.

    Parameters
    ----------
    rows : int64 array, shape (r,)
        Candidates that are added after the selected; left out if the fit explains their columns.
    matrix : sparse 0/1 float64 array, shape (r, m * k)

    Notes
    -----
    The inverse of a bordered matrix: with U = X'W B the new columns' products with the old, and
    S = X'W X - U C U', the new coefficients are S^-1 X'W (y - fitted).
    """
    weighted = SparseMatrix(matrix @ sparse.diags_array(fit.weights))
    crossed = np.asarray((weighted @ fit.basis.T).toarray()) @ fit.covariance
    own = np.asarray((weighted @ matrix.T).toarray())
    schur = own - crossed @ np.asarray((fit.basis @ weighted.T).toarray())
    kept = np.diag(schur) > _OWN_INFORMATION * np.diag(own)
    if not kept.all():
        return extended(fit, rows[kept], SparseMatrix(matrix[kept])) if kept.any() else fit
    inverse = np.asarray(linalg.pinvh(schur))
    steps = inverse @ np.asarray(weighted @ fit.residuals)
    moved = crossed.T @ inverse
    covariance = np.block([[fit.covariance + moved @ crossed, -moved], [-moved.T, inverse]])
    moves = np.asarray(matrix.T @ steps) - np.asarray(fit.basis.T @ (crossed.T @ steps))
    return replace(
        fit,
        selected=np.append(fit.selected, rows),
        basis=SparseMatrix(sparse.vstack([fit.basis, matrix], format="csr")),
        penalties=np.append(fit.penalties, np.zeros(len(rows))),
        coefficients=np.append(fit.coefficients - crossed.T @ steps, steps),
        covariance=covariance,
        residuals=fit.residuals - moves,
    )
