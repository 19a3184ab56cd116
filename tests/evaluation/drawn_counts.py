"""Bit counts drawn by their exact distribution, without any single report.

Given who holds what, all bits of all reports are independent coins, so each count is the sum of two
binomial numbers: of the clients whose true bit it is, and of the others. Clients who report again
keep their permanent bits, so theirs are drawn first, and then what they report of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from hubbub.decoder import CohortCounts
from hubbub.inference import FloatArray, IntArray
from hubbub.protocol import Metric, MetricType, NumberType, RapporParams, Value
from hubbub.simulations import TrueBits, draw_cell_counts, true_bits


def draw_counts(
    values: Sequence[Value],
    shares: FloatArray,
    params: RapporParams,
    reports: int,
    rng: np.random.Generator,
    metric_type: MetricType | None = None,
) -> CohortCounts:
    """Let so many clients report once, and return what is counted.

    shares: shape (v,): Chance that a client holds each.
    metric_type: Of the values, if they aren't listed strings.
    """
    true_bits_of = true_bits(values, params, metric_type)
    of_cohorts, true, _ = _true_counts(true_bits_of, shares, params, reports, rng)
    ones = rng.binomial(true, params.q_star)
    return CohortCounts(of_cohorts, ones + rng.binomial(of_cohorts[:, None] - true, params.p_star))


@dataclass(frozen=True, slots=True)
class RepeatedCounts:
    """Counts of clients who report several times, and what they report."""

    counts: CohortCounts
    share: FloatArray  # shape (v,): of the collected reports, each value's


def draw_repeated_counts(
    values: Sequence[Value],
    shares: FloatArray,
    params: RapporParams,
    clients: Mapping[int, int],
    rng: Generator,
    metric_type: MetricType | None = None,
) -> RepeatedCounts:
    """As `draw_counts`, of longitudinal reports.

    clients: From a number of reports to how many clients make so many, of one value each.
    """
    true_bits_of = true_bits(values, params, metric_type)
    f0, f1 = params.f0, params.f1
    reports: IntArray = np.zeros(params.m, dtype=np.int64)
    bits: IntArray = np.zeros((params.m, params.k), dtype=np.int64)
    held_reports: IntArray = np.zeros(len(values), dtype=np.int64)
    for each, n_clients in clients.items():
        of_cohorts, true, held = _true_counts(true_bits_of, shares, params, n_clients, rng)
        held_reports += each * held
        others = of_cohorts[:, None] - true
        permanent = rng.binomial(true, 1 - f1) + rng.binomial(others, f0)
        bits += rng.binomial(each * permanent, params.q)
        bits += rng.binomial(each * (of_cohorts[:, None] - permanent), params.p)
        reports += each * of_cohorts
    return RepeatedCounts(CohortCounts(reports, bits), held_reports / held_reports.sum())


def _true_counts(
    bits: TrueBits, shares: FloatArray, params: RapporParams, clients: int, rng: Generator
) -> tuple[IntArray, IntArray, IntArray]:
    """Return how many clients each cohort has, have each true bit there, and hold each value."""
    of_cohorts = rng.multinomial(clients, np.full(params.m, 1 / params.m))
    true = np.zeros((params.m, params.k), dtype=np.int64)
    in_all: IntArray = np.zeros(len(shares), dtype=np.int64)
    for cohort, size in enumerate(of_cohorts.tolist()):
        held = rng.multinomial(size, shares)
        there = np.flatnonzero(held)
        packed = bits.take(there, np.full(len(there), cohort))
        true[cohort] = held[there] @ np.unpackbits(packed, axis=1, bitorder="little")
        in_all += held
    return of_cohorts, true, in_all


def draw_cells(
    metric: Metric, values: Sequence[float], shares: FloatArray, reports: int, rng: Generator
) -> CohortCounts:
    """Let so many clients answer once with cells, and return what is counted.

    metric: Whose response draws a whole report at once.
    values: Numbers of categories, from 0; or the numbers themselves, of a metric of type number.
    shares: shape (v,): Chance that a client holds each.
    reports: Of as many clients.
    rng: The coins.
    """
    params, cells = metric.params, metric.response.cells or 0
    of_cohorts = rng.multinomial(reports, np.full(params.m, 1 / params.m))
    bits = np.zeros((params.m, params.k), dtype=np.int64)
    for cohort, size in enumerate(of_cohorts.tolist()):
        held = rng.multinomial(size, shares)
        holders = _positions(metric, values, held, cohort, rng)
        bits[cohort, :cells] = draw_cell_counts(metric.response, holders, rng)
    return CohortCounts(of_cohorts, bits)


def _positions(
    metric: Metric, values: Sequence[float], held: IntArray, cohort: int, rng: Generator
) -> IntArray:
    """Return how many clients answer for each category, or from each position."""
    a_type = metric.type
    if not isinstance(a_type, NumberType):
        found = np.zeros(metric.response.cells or 0, dtype=np.int64)
        found[np.asarray(values, dtype=np.int64)] = held
        return found
    units = np.array([a_type.unit(value) for value in values]) ** (1 + cohort)
    below = np.minimum((units * a_type.positions).astype(np.int64), a_type.positions - 1)
    up = rng.binomial(held, np.clip(units * a_type.positions - below, 0.0, 1.0))
    found = np.zeros(a_type.positions + 1, dtype=np.int64)
    np.add.at(found, below, held - up)
    np.add.at(found, below + 1, up)
    return found
