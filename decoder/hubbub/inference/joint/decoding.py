"""Counts of a joint metric -> its cells, and what its table says.

Cells with a bit each are estimated as categories are, hashed ones decoded as strings are; from the
table on, both are the same. Deterministic: the same counts give the same result.

A table's estimates -> all that is said about it: margins, conditional shares, departures.

This is what joint metrics of every kind, and pairs of google/rappor's reports, have in common.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray
from hubbub.inference.categories.decoding import (
    CategoryDecoding,
    CategorySummary,
    KnownRates,
    decode_categories,
)
from hubbub.inference.categories.shares import ShareInterval
from hubbub.inference.counts import CohortCounts
from hubbub.inference.decoding import Decoding, Summary
from hubbub.inference.joint.hashed import decode_tuples, one_hot_estimates, tuple_candidates
from hubbub.inference.joint.independence import (
    Independence,
    Residuals,
    assess_independence,
    residuals,
    shrunk_cells,
)
from hubbub.inference.joint.table import Conditional, FieldLabels, JointEstimates, conditionals
from hubbub.inference.repeated_reports import ONCE, RepeatedReports
from hubbub.inference.testing.multiple_testing import Correction
from hubbub.protocol import JointType, Metric, StringType


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
    """What a table's estimates say."""

    estimates: JointEstimates
    margins: tuple[Margin, ...]
    refit: FloatArray  # shape (n,); cells drawn towards independence (`shrunk_cells`)
    residuals: Residuals
    conditionals: tuple[Conditional, ...]  # of each field given each other one
    independence: tuple[Independence, ...]  # of each two fields; of three fields also of all


def analyse_table(estimates: JointEstimates) -> TableAnalysis:
    """Say all that can be said about a table of two or three fields.

    Deterministic: the same estimates give the same result.
    """
    axes = range(len(estimates.shape))
    tables = [estimates.margin(*pair) for pair in itertools.combinations(axes, 2)]
    if len(axes) > 2:
        tables.append(estimates)
    return TableAnalysis(
        estimates=estimates,
        margins=tuple(_margin(estimates, axis) for axis in axes),
        refit=shrunk_cells(estimates),
        residuals=residuals(estimates),
        conditionals=conditionals(estimates),
        independence=tuple(map(assess_independence, tables)),
    )


def _margin(estimates: JointEstimates, axis: int) -> Margin:
    field, margin = estimates.fields[axis], estimates.margin(axis)
    return Margin(field.name, field.labels, margin.unbiased, margin.std_error, margin.intervals())


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
    """Which values of fields go together."""

    fields: tuple[FieldLabels, ...]  # all values; of string fields, the candidates
    cells: CellEstimates
    table: TableAnalysis | None  # of the common values; None if too few are known
    rows: IntArray  # shape (t,); which cells the table's are
    source: CategoryDecoding | Decoding  # of the cells by their numbers

    @property
    def summary(self) -> CategorySummary | Summary:
        """What a reader must know in addition to the cells."""
        return self.source.summary

    @property
    def known_rates(self) -> KnownRates | None:
        """Of cells with a bit each."""
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
    estimates = one_hot_estimates(fields, one_hot.estimates, counts.total, metric, repeats)
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
