"""Estimate a joint metric's cells and the dependence of its fields from its counts.

Cells with a bit each are estimated as categories are.

Where tuples are hashed, every combination of the fields' values is a candidate, and they are
decoded as strings are. The table is made of values that occur in detected tuples; its cells are
fitted together, detected or not, so that rows and columns can be added up. Invariant: all detected
tuples are in that model, and values that are only just there, which came out high to be there at
all, aren't in the table.

From the table on, both are the same. Deterministic: the same counts give the same result.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np
from scipy import sparse

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray
from hubbub.inference.candidates import Candidates, hash_words, make_design, of_words
from hubbub.inference.categories.decoding import (
    CategoryDecoding,
    CategorySummary,
    KnownRates,
    decode_categories,
)
from hubbub.inference.categories.shares import CategoryEstimates
from hubbub.inference.counts import BitEstimates, estimate_bits, variance_of_one
from hubbub.inference.decoding import Decoding, Summary, decode
from hubbub.inference.joint.table import (
    Conditional,
    FieldLabels,
    Independence,
    JointEstimates,
    Residuals,
    about,
    assess_independence,
    conditionals,
    residuals,
    shrunk_cells,
)
from hubbub.inference.regression.estimates import pair_probability
from hubbub.inference.regression.model import Fit, fit_selected, reports_by_row, unknown_column
from hubbub.inference.repeated_reports import ONCE, Estimand, RepeatedReports, permanent_variance
from hubbub.inference.testing.multiple_testing import Correction, ShareInterval
from hubbub.protocol import CohortCounts, JointType, Metric, RapporParams, StringType


def one_hot_estimates(
    fields: tuple[FieldLabels, ...],
    cells: CategoryEstimates,
    n_reports: int,
    repeats: RepeatedReports = ONCE,
) -> JointEstimates:
    """Return the estimates of cells as those of a table."""
    scatter = cells.covariance
    if repeats.estimand is Estimand.REPORTS:
        of_people = replace(repeats, estimand=Estimand.POPULATION)
        scatter = scatter + of_people.sampling_covariance(cells.share, n_reports)
    return JointEstimates(fields, cells.unbiased, cells.covariance, scatter)


LEAST_Z = 6.0
"""Standard errors that the share of a field's value must be above 0 to be in the table."""

# Multiplications that the normal equations of the table may take: some seconds of one core.
_WORK = 1e10
# As in `search` for listed candidates: a third as many unknowns as rows leave noise to be
# estimated from.
_ROWS_A_CELL = 3


def tuple_candidates(
    metric_type: JointType, fields: tuple[FieldLabels, ...], params: RapporParams
) -> Candidates:
    """Return all combinations of the fields' values, the last field's changing fastest.

    `metric_type`: the metric's type, which makes tuples of fields. `fields`: of string
    fields, the candidates in their normal form; of others all values in order.
    """
    parts: list[Sequence[int | str]] = [
        field.labels if isinstance(own.type, StringType) else range(len(field.labels))
        for field, own in zip(fields, metric_type.fields, strict=True)
    ]
    words = hash_words([metric_type.tuple_bytes(each) for each in itertools.product(*parts)])
    names = [", ".join(each) for each in itertools.product(*(field.labels for field in fields))]
    return of_words(names, words, params)


def decode_tuples(
    counts: CohortCounts,
    params: RapporParams,
    candidates: Candidates,
    fields: tuple[FieldLabels, ...],
    listed: tuple[bool, ...],
    *,
    alpha: float,
    correction: Correction,
    repeats: RepeatedReports = ONCE,
) -> tuple[Decoding, tuple[JointEstimates, IntArray] | None]:
    """Decode all tuples; also return the table of common values, and which tuples its cells are.

    `candidates`: as `tuple_candidates` returns them. `fields`: each field's name and values.
    `listed`: whether all values of a field are known, so that there are no others. `alpha`: the
    error rate that is allowed, of the kind that `correction` names. Raises `CandidateError,
    UndecodableError, ValueError` as `decode`.
    """
    decoding = decode(
        counts, params, candidates, alpha=alpha, correction=correction, repeats=repeats
    )
    shape = tuple(len(field.labels) for field in fields)
    n_rows = int(np.count_nonzero(counts.reports)) * params.k
    room = min(n_rows // _ROWS_A_CELL, int(np.sqrt(_WORK / max(n_rows, 1))))
    values = _table_values(decoding, shape, listed, room)
    if values is None:
        return decoding, None
    rows = _rows_of(values, shape)
    detected = np.flatnonzero(decoding.detected)
    fitted = np.setdiff1d(np.union1d(rows, detected), decoding.same_bits.rows)
    chosen = candidates.take(fitted)
    bits = estimate_bits(counts, params)
    design = make_design(chosen.positions(slice(None)), params)
    fit = fit_selected(bits, design, np.arange(len(fitted)), params)
    members = fitted[fit.selected]
    if not np.isin(rows, members).all():  # some cells set the same bits
        return decoding, None
    places = 1 + np.searchsorted(members, rows)
    scatter = _covariance(fit, bits, params, places, repeats)
    unbiased = fit.coefficients[places]
    covariance = about(scatter, unbiased, counts.total, repeats)
    kept = _well_known(unbiased, covariance, values, listed)
    if kept is None:
        return decoding, None
    within = _rows_of(kept, tuple(map(len, values)))
    both = np.ix_(within, within)
    labels = tuple(
        FieldLabels(field.name, tuple(field.labels[i] for i in own[few].tolist()))
        for field, own, few in zip(fields, values, kept, strict=True)
    )
    table = JointEstimates(labels, unbiased[within], covariance[both], scatter[both])
    return decoding, (table, rows[within])


def _table_values(
    decoding: Decoding,
    shape: tuple[int, ...],
    listed: tuple[bool, ...],
    room: int,
) -> list[IntArray] | None:
    """Return which values of each field the table is made of; None if they make no table.

    They are those of detected tuples, the strongest first, as long as there is room; of fields
    whose values are all listed they are all, if with them two values of each other field fit in.
    """
    strongest = decoding.largest_detected()
    places = np.array(np.unravel_index(strongest, shape))
    whole = np.array(listed)
    least = prod(np.where(whole, shape, 2).tolist())
    if whole.all() or least > room:
        whole[:] = False
    while True:
        values = [
            np.arange(n) if every else np.unique(place)
            for n, every, place in zip(shape, whole, places, strict=True)
        ]
        if min(map(len, values)) < 2:
            return None
        if prod(map(len, values)) <= room:
            return values
        places = places[:, : places.shape[1] * 9 // 10]


def _rows_of(values: list[IntArray], shape: tuple[int, ...]) -> IntArray:
    grid = np.meshgrid(*values, indexing="ij")
    return np.ravel_multi_index([axis.ravel() for axis in grid], shape)


def _well_known(
    unbiased: FloatArray,
    covariance: FloatArray,
    values: list[IntArray],
    listed: tuple[bool, ...],
) -> list[IntArray] | None:
    """Return the values whose shares are well above 0, or that are all there are, by their places.

    None if they make no table.
    """
    shape = tuple(map(len, values))
    cells, twice = unbiased.reshape(shape), covariance.reshape(*shape, *shape)
    kept = []
    for axis in range(len(shape)):
        others = tuple(a for a in range(len(shape)) if a != axis)
        variance = np.diagonal(twice.sum(axis=(*others, *(len(shape) + a for a in others))))
        known = cells.sum(axis=others) > LEAST_Z * np.sqrt(variance)
        kept.append(np.flatnonzero(known | listed[axis]))
    return kept if min(map(len, kept)) >= 2 else None


def _covariance(
    fit: Fit, bits: BitEstimates, params: RapporParams, places: IntArray, repeats: RepeatedReports
) -> FloatArray:
    """Return the covariance of some coefficients, as estimates of the population's shares.

    `places`, shape (n,): in the coefficients. Returns an array of shape (n, n).

    Notes
    -----
    The coefficients are L y, L = C B W. Rates of different cohorts are independent; in one of N
    reports the true bits have the covariance P - t t', with P the chances that two bits are set
    together and t = diag P, noise adds to the diagonal, and so does the excess variance tau^2.
    Where clients report again, D times the clients' part is there (`repeated_reports`); tau^2 holds
    its mean over the rows already, which is taken off.
    """
    k = params.k
    shares = np.maximum(fit.coefficients[1:], 0.0)
    shares /= max(1.0, float(shares.sum()))
    unknown, single = 1.0 - float(shares.sum()), unknown_column(params)
    by_row, combinations = sparse.csc_array(fit.basis), fit.covariance[places]
    covariance = np.zeros((len(places), len(places)))
    fitted = np.clip(bits.rate.ravel() - fit.residuals, 0.0, 1.0)
    reports = reports_by_row(bits)
    counted = reports > 0
    added = _added_by_repeats(fitted[counted], params, repeats)
    excess = max(fit.excess_variance - float((added / reports[counted]).mean()), 0.0)
    for cohort in np.flatnonzero(bits.reports.ravel() > 0).tolist():
        rows = slice(cohort * k, (cohort + 1) * k)
        columns = by_row[:, rows].toarray()
        own, influence = columns[1:], combinations @ columns * fit.weights[rows]
        together = (own.T * shares) @ own + unknown * pair_probability(params)
        rate = shares @ own + unknown * single
        together = repeats.clients * (together - np.outer(rate, rate))
        added = _added_by_repeats(np.clip(rate, 0.0, 1.0), params, repeats)
        np.fill_diagonal(together, variance_of_one(rate, params) + added)
        together /= float(bits.reports[cohort, 0])
        together[np.diag_indices(k)] += excess
        covariance += influence @ together @ influence.T
    return covariance


def _added_by_repeats(
    rate: FloatArray, params: RapporParams, repeats: RepeatedReports
) -> FloatArray:
    drawing = (repeats.clients - 1) * rate * (1 - rate)
    return (repeats.responses - 1) * permanent_variance(rate, params) + drawing


@dataclass(frozen=True, slots=True)
class Margin:
    """Shares of one field's values."""

    name: str  # the field's
    labels: tuple[str, ...]
    share: FloatArray  # shape (n,); unbiased
    std_error: FloatArray
    interval: ShareInterval  # 95% intervals


@dataclass(frozen=True, slots=True)
class TableAnalysis:
    """A table's estimates and test of independence."""

    estimates: JointEstimates
    margins: tuple[Margin, ...]
    refit: FloatArray  # shape (n,); cells drawn towards independence (`shrunk_cells`)
    residuals: Residuals
    conditionals: tuple[Conditional, ...]  # of each field given each other one
    independence: tuple[Independence, ...]  # of each two fields; of three fields also of all


def analyse_table(estimates: JointEstimates) -> TableAnalysis:
    """Analyse a table of two or three fields.

    Deterministic: the same estimates give the same result.
    """
    axes = range(len(estimates.shape))
    tables = [estimates.margin(*pair) for pair in itertools.combinations(axes, 2)]
    if len(axes) > 2:
        tables.append(estimates)
    return TableAnalysis(
        estimates=estimates,
        margins=tuple(
            Margin(*field, margin.unbiased, margin.std_error, margin.intervals())
            for field, margin in zip(estimates.fields, map(estimates.margin, axes), strict=True)
        ),
        refit=shrunk_cells(estimates),
        residuals=residuals(estimates),
        conditionals=conditionals(estimates),
        independence=tuple(map(assess_independence, tables)),
    )


class CellEstimates(NamedTuple):
    """Estimates and tests of all n cells, the last field's values changing fastest."""

    share: FloatArray  # shape (n,)
    std_error: FloatArray
    low: FloatArray
    high: FloatArray
    # Shape (n,); at least 0 and nearer to the truth on the whole, but biased; for plotting and
    # adding up.
    refit: FloatArray
    p_value: FloatArray  # shape (n,)
    q_value: FloatArray
    detected: BoolArray  # shape (n,)


@dataclass(frozen=True, slots=True)
class JointDecoding:
    """Estimated shares of combinations of fields' values."""

    fields: tuple[FieldLabels, ...]  # all values; of string fields, the candidates
    cells: CellEstimates
    table: TableAnalysis | None  # of the common values; None if too few are known
    rows: IntArray  # shape (t,); which cells the table's are
    source: CategoryDecoding | Decoding  # of the cells by their numbers

    @property
    def summary(self) -> CategorySummary | Summary:
        """Facts about the decoding beyond its cells."""
        return self.source.summary

    @property
    def known_rates(self) -> KnownRates | None:
        """Rates of cells with a bit each."""
        return self.source.known_rates if isinstance(self.source, CategoryDecoding) else None

    @property
    def n_reports(self) -> int:
        """How many reports were decoded."""
        return self.summary.reports


def decode_joint(
    counts: CohortCounts,
    metric: Metric,
    fields: tuple[FieldLabels, ...],
    *,
    alpha: float = 0.05,
    correction: Correction = Correction.BH,
    repeats: RepeatedReports = ONCE,
) -> JointDecoding:
    """Estimate how often each combination of values occurs, and what goes together.

    `metric`: of type joint. `fields`: names and values of its fields; of string fields, candidates
    in their normal form. Raises `CandidateError, UndecodableError, ValueError` as
    `decode_categories` and `decode`.
    """
    metric_type = metric.type
    if not isinstance(metric_type, JointType):
        raise ValueError(f"metrics.{metric.name}.type = {metric_type.name!r}: must be 'joint'")
    if metric_type.hashed:
        candidates = tuple_candidates(metric_type, fields, metric.params)
        listed = tuple(not isinstance(own.type, StringType) for own in metric_type.fields)
        decoding, found = decode_tuples(
            counts,
            metric.params,
            candidates,
            fields,
            listed,
            alpha=alpha,
            correction=correction,
            repeats=repeats,
        )
        return _of_tuples(fields, decoding, found)
    one_hot = decode_categories(counts, metric, alpha=alpha, correction=correction, repeats=repeats)
    estimates = one_hot_estimates(fields, one_hot.estimates, counts.total, repeats)
    table = analyse_table(estimates)
    cells = CellEstimates(
        share=estimates.unbiased,
        std_error=estimates.std_error,
        low=one_hot.interval.low,
        high=one_hot.interval.high,
        refit=table.refit,
        p_value=np.exp(one_hot.estimates.log_p_value),
        q_value=one_hot.q_value,
        detected=one_hot.detected,
    )
    rows = np.arange(len(cells.share))
    return JointDecoding(fields, cells, table, rows, one_hot)


def _of_tuples(
    fields: tuple[FieldLabels, ...],
    decoding: Decoding,
    found: tuple[JointEstimates, IntArray] | None,
) -> JointDecoding:
    table, rows, refit = None, np.empty(0, dtype=np.int64), decoding.constrained_share
    if found:
        estimates, rows = found
        table, refit = analyse_table(estimates), refit.copy()
        refit[rows] = table.refit
    cells = CellEstimates(
        share=decoding.share,
        std_error=decoding.std_error,
        low=decoding.low,
        high=decoding.high,
        refit=refit,
        p_value=decoding.p_value,
        q_value=decoding.q_value,
        detected=decoding.detected,
    )
    return JointDecoding(fields, cells, table, rows, decoding)
