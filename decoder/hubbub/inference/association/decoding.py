"""Reports of two or three values, and the strings to look for -> the table of what goes together.

Strings beyond what the reports can tell apart, or a table has room for, are left out, the weakest
first; they count as "Other", as those do that no list has. Deterministic: the same reports give the
same result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import comb, prod

import numpy as np
from scipy import special

from hubbub.inference.arrays import FloatArray, IntArray
from hubbub.inference.association.estimation import (
    IndistinctCellsError,
    Maximum,
    covariance,
    maximise,
)
from hubbub.inference.association.mixture import AssociationMixture, mixture_of, unpacked
from hubbub.inference.association.reports import STRING, AssociationReports, Variable
from hubbub.inference.association.shrinkage import near_table
from hubbub.inference.candidates import Candidates
from hubbub.inference.categories.shares import detected_interval
from hubbub.inference.counts import CohortCounts
from hubbub.inference.decoding import decode
from hubbub.inference.joint.analysis import analyse_table
from hubbub.inference.joint.decoding import CellEstimates, JointDecoding
from hubbub.inference.joint.table import FieldLabels, JointEstimates, about, normal_draws
from hubbub.inference.params import DecodingParams
from hubbub.inference.repeated_reports import ONCE, RepeatedReports
from hubbub.inference.scanning import indistinguishable
from hubbub.inference.testing.multiple_testing import (
    Correction,
    log_cutoff,
    log_q_values,
    z_scores,
)
from hubbub.protocol.metric_types.booleans import BooleanType
from hubbub.protocol.metric_types.strings import StringType

OTHER = "Other"
MOST_CELLS = 400
"""Cells of a table; the time that it takes grows with their square."""
MOST_SETS = 240
"""Combinations of bits that the strings of a table set in one cohort; as well."""

# At least three rates for each share: fewer leave no rows by which the fit could be doubted.
_EQUATIONS_A_CELL = 3
# When cells can't be told apart the table is made again with 30% fewer: a few tries, none of which
# throws half of a table away that would have been decodable.
_SMALLER = 0.7
# Two by three: the least table in which something can go together with something.
_TOO_FEW = 6
_BOOLEAN_LABELS = ("false", "true")


@dataclass(frozen=True, slots=True)
class AssociationSummary:
    """What a reader must know in addition to the cells.

    Attributes
    ----------
    cells, detected : int
        Of the table, "Other" included.
    left_out : mapping of str to int
        How many strings of a variable count as "Other" though they were listed.
    passes : int
        Evaluations of the likelihood.
    epsilon_permanent, epsilon_report : float
        Of all variables together: one client reports each of them.
    repeats : RepeatedReports
        Whose shares are estimated.
    """

    reports: int
    cells: int
    detected: int
    left_out: Mapping[str, int]
    passes: int
    alpha: float
    correction: Correction
    epsilon_permanent: float
    epsilon_report: float
    repeats: RepeatedReports = ONCE


def decode_association(
    reports: AssociationReports,
    candidates: Mapping[str, Candidates],
    *,
    alpha: float = 0.05,
    correction: Correction = Correction.BH,
    repeats: RepeatedReports = ONCE,
) -> JointDecoding:
    """Estimate how often each combination of values occurs, and what goes together.

    Parameters
    ----------
    reports : AssociationReports
        Reports of two or three variables, made by the same clients.
    candidates : mapping of str to Candidates
        Of each string variable, with positions for the reports' parameters.
    alpha : float
        Level of the correction's error rate, in (0, 1).
    correction : Correction
        Which error rate `alpha` bounds: false discoveries, or the chance of any false detection.
    repeats : RepeatedReports
        Whose shares are asked for; each client reports once.

    Returns
    -------
    JointDecoding
        Its summary is an `AssociationSummary`; the last value of strings is `OTHER`.

    Raises
    ------
    UndecodableError
        If the reports don't determine a table.
    ValueError
        If alpha isn't in (0, 1).
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha = {alpha}: must be between 0 and 1")
    chosen, mixture, maximum = _fitted(reports, candidates)
    names = {name: [candidates[name].strings[i] for i in rows] for name, rows in chosen.items()}
    fields = tuple(
        FieldLabels(each.name, (*names[each.name], _other(names[each.name])))
        if each.type == STRING
        else FieldLabels(each.name, _BOOLEAN_LABELS)
        for each in reports.variables
    )
    spread = about(covariance(mixture, maximum), maximum.shares, reports.total, repeats)
    estimates = JointEstimates(fields, maximum.shares, spread, normal_draws(spread))
    refit = _near(mixture, maximum, spread)
    table = replace(analyse_table(estimates), refit=refit)
    log_alpha, errors = float(np.log(alpha)), estimates.std_error
    log_p = special.log_ndtr(-estimates.unbiased / errors)
    log_q = log_q_values(log_p, correction)
    detected = log_q <= log_alpha
    cutoff = log_cutoff(int(detected.sum()), len(log_p), log_alpha, correction)
    threshold = z_scores(np.array(cutoff)) * errors
    low, high = detected_interval(estimates.unbiased, errors, detected, threshold)
    cells = CellEstimates(
        share=estimates.unbiased,
        std_error=errors,
        low=low,
        high=high,
        refit=refit,
        p_value=np.exp(log_p),
        q_value=np.exp(log_q),
        detected=detected,
    )
    permanent, of_report = _epsilons(reports.variables, reports.params)
    summary = AssociationSummary(
        reports=reports.total,
        cells=len(refit),
        detected=int(detected.sum()),
        left_out={
            name: len(listed) - len(chosen[name])
            for name, listed in candidates.items()
            if len(chosen[name]) < len(listed)
        },
        passes=maximum.passes,
        alpha=alpha,
        correction=correction,
        epsilon_permanent=permanent,
        epsilon_report=of_report,
        repeats=repeats,
    )
    return JointDecoding(fields, cells, summary, table, np.arange(len(refit)))


def counts_of(reports: AssociationReports, variable: int) -> CohortCounts:
    """Return how many reports each cohort has, and how many with each bit of a variable set."""
    params, width = reports.params, reports.variables[variable].width(reports.params)
    totals, bits = np.zeros(params.m, dtype=np.int64), np.zeros((params.m, width), dtype=np.int64)
    for cohort in range(params.m):
        rows = slice(int(reports.starts[cohort]), int(reports.starts[cohort + 1]))
        copies = reports.copies[rows]
        totals[cohort] = round(copies.sum())
        bits[cohort] = np.rint(unpacked(reports.bits[variable][rows], width) @ copies)
    return CohortCounts(totals, bits)


def _fitted(
    reports: AssociationReports, candidates: Mapping[str, Candidates]
) -> tuple[dict[str, IntArray], AssociationMixture, Maximum]:
    """Return which strings are in the table, by their rows, and the most likely shares."""
    strongest = {
        name: _strongest(reports, place, candidates[name])
        for place, (name, of_type) in enumerate(reports.variables)
        if of_type == STRING
    }
    room = _room(reports)
    while True:
        chosen = _within(room, reports, strongest)
        mixture = mixture_of(
            reports,
            tuple(
                candidates[each.name].positions(chosen[each.name]) if each.type == STRING else None
                for each in reports.variables
            ),
        )
        try:
            return chosen, mixture, maximise(mixture)
        except IndistinctCellsError:
            room = int(_SMALLER * prod(mixture.shape))
            if room < _TOO_FEW:
                raise


def _room(reports: AssociationReports) -> int:
    """Return how many cells a table may have: fewer than there are rates of bits together."""
    cohorts = int(np.count_nonzero(np.diff(reports.starts)))
    rates = prod(1 + each.width(reports.params) for each in reports.variables)
    return min(MOST_CELLS, max(cohorts * rates // _EQUATIONS_A_CELL, _TOO_FEW))


def _strongest(reports: AssociationReports, variable: int, listed: Candidates) -> IntArray:
    """Return the candidates, the most surely present first; of those with the same bits, one."""
    same = indistinguishable(listed, np.diff(reports.starts) > 0)
    rows = same.others(len(listed))
    if len(rows) * 4 < min(MOST_SETS, _room(reports)):
        return rows  # there will be room for all
    found = decode(counts_of(reports, variable), reports.params, listed.take(rows))
    z = np.nan_to_num(found.share / found.std_error, nan=-np.inf)
    return np.asarray(rows[np.argsort(-z, kind="stable")])


def _within(
    room: int, reports: AssociationReports, strongest: Mapping[str, IntArray]
) -> dict[str, IntArray]:
    """Return the strings that fit, in the order of their list: of the longest, fewer and fewer."""
    sizes = {name: len(rows) for name, rows in strongest.items()}
    booleans = 2 ** sum(each.type != STRING for each in reports.variables)
    of_bits = sum(comb(reports.params.k, d) for d in range(1, reports.params.h + 1))
    while max(sizes.values(), default=0) > 1 and (
        booleans * prod(1 + n for n in sizes.values()) > room
        or prod(1 + min(n, of_bits) for n in sizes.values()) > MOST_SETS
    ):
        longest = max(sizes, key=lambda name: sizes[name])
        sizes[longest] = max(1, min(sizes[longest] - 1, int(0.95 * sizes[longest])))
    return {name: np.sort(strongest[name][:n]) for name, n in sizes.items()}


def _other(names: list[str]) -> str:
    """Return a name for what isn't listed that no string has."""
    other = OTHER
    while other in names:
        other += " (unlisted)"
    return other


def _near(mixture: AssociationMixture, maximum: Maximum, spread: FloatArray) -> FloatArray:
    """Return the table for looking at; its rows are the values of the variable that has most."""
    shape, n = mixture.shape, len(maximum.shares)
    sizes = [0 if own is None else len(own) for own in mixture.positions]
    longest = int(np.argmax(sizes))
    order = np.moveaxis(np.arange(n).reshape(shape), longest, 0).ravel()
    near = near_table(
        maximum.shares[order].reshape(shape[longest], -1),
        spread[np.ix_(order, order)],
        maximum.information[np.ix_(order, order)] / mixture.reports.total,
        unlisted=mixture.positions[longest] is not None,
    )
    found = np.empty(n)
    found[order] = near.ravel()
    return found


def _epsilons(variables: tuple[Variable, ...], params: DecodingParams) -> tuple[float, float]:
    """Return what all reports of one set of values reveal, and a single report."""
    types = [StringType() if each.type == STRING else BooleanType() for each in variables]
    return (
        sum(each.epsilon_permanent(params) for each in types),
        sum(each.epsilon_report(params) for each in types),
    )
