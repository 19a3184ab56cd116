"""What linked reports say of a client's history: exact log likelihood ratios of whole transcripts.

A transcript is all reports that a client makes of one metric, in order, with their cohorts.
Reports that share a permanent response form a group; given that response they are independent, and
so are lanes and groups, so the likelihood of a transcript is a product over lanes and groups of
sums of two terms. Transcripts come from the client's own `Encoder` and the system's coins.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import special

from hubbub.client import Encoder, Metric, RapporParams, Report
from hubbub.client.encoder import PermanentResponse
from hubbub.protocol import BooleanType, EnumType, JointType, MetricType, OrdinalType, Value
from significance import FloatArray, IntArray, unpack

_PAIRS = 300


class Recordings(NamedTuple):
    """What an app records of one metric: a value a day."""

    values: tuple[Value, ...]
    # of the first, in days since a period's border; of no concern with ``memory = "value"``
    first_day: int = 0


class Groups(NamedTuple):
    """Which reports share a permanent response, and of what."""

    of_report: IntArray  # shape (n,): each report's group
    true_bits: IntArray  # shape (groups, k)


def record(metric: Metric, recordings: Recordings) -> list[Report]:
    """Return the reports that a new client makes, one of each recording.

    With ``memory = "period"`` the first value of a period fixes its answer, and with
    ``max_values = 1`` the first value of all; a one-time metric is reported once.
    """
    encoder = Encoder(metric, os.urandom(32))
    answers: dict[int, PermanentResponse] = {}
    reports = []
    values = recordings.values[:1] if metric.one_time else recordings.values
    for value, key in zip(values, answer_keys(metric, recordings), strict=False):
        if key not in answers and metric.memory == "period":
            answers[key] = encoder.fresh_response(value)
        elif key not in answers:
            answers[key] = encoder.permanent_response(encoder.true_bits(value))
        reports.append(encoder.report(answers[key]))
    return reports


def answer_keys(metric: Metric, recordings: Recordings) -> list[int]:
    """Return the number of each recording's answer."""
    values, first_day = recordings
    if metric.memory == "period":
        return [(first_day + day) // metric.period_days for day in range(len(values))]
    if metric.max_answers == 1:
        return [0] * len(values)
    return [values.index(value) for value in values]


def log_ratio(
    metric: Metric, transcript: Sequence[Report], first: Recordings, second: Recordings
) -> float:
    """Return the log of how much more likely a transcript is under the first history."""
    cohorts = [report.cohort for report in transcript]
    reported = unpack(b"".join(report.bits for report in transcript), metric.params.k)
    ratio = 0.0
    for sign, recordings in ((1, first), (-1, second)):
        groups = grouped(metric, recordings, cohorts)
        for group, true_bits in enumerate(groups.true_bits):
            of_group = reported[groups.of_report == group]
            ones = of_group.sum(axis=0, dtype=np.int64)
            law = lane_log_likelihood(metric.params, true_bits, ones, len(of_group))
            ratio += sign * float(law.sum())
    return ratio


def grouped(metric: Metric, recordings: Recordings, cohorts: Sequence[int]) -> Groups:
    """Return the groups of a history, in the cohorts that its reports show."""
    width, metric_type = metric.params.k // 8, metric.type
    keys = answer_keys(metric, recordings)[: len(cohorts)]
    answers: dict[int, int] = {}
    for key, value, cohort in zip(keys, recordings.values, cohorts, strict=False):
        if key not in answers:
            answers[key] = metric_type.bits(value, cohort, metric.params)
    if metric.memory == "value":  # equal Bloom filters have one permanent response
        responses = list(dict.fromkeys(answers.values()))
        places = {key: responses.index(bits) for key, bits in answers.items()}
    else:
        responses = list(answers.values())
        places = {key: place for place, key in enumerate(answers)}
    packed = b"".join(bits.to_bytes(width, "little") for bits in responses)
    true_bits = unpack(packed, metric.params.k).astype(np.int64)
    return Groups(np.array([places[key] for key in keys]), true_bits)


def lane_log_likelihood(
    params: RapporParams, true_bit: IntArray, ones: IntArray, reports: IntArray | int
) -> FloatArray:
    """Return ln P(these reports of a lane | its true bit): the sum over its permanent bit."""
    zeros = reports - ones
    if_one = special.xlogy(ones, params.q) + special.xlog1py(zeros, -params.q)
    if_zero = special.xlogy(ones, params.p) + special.xlog1py(zeros, -params.p)
    chance = np.where(true_bit == 1, 1 - params.f / 2, params.f / 2)
    with np.errstate(divide="ignore"):  # ln 0, where f = 0
        return np.logaddexp(np.log(chance) + if_one, np.log1p(-chance) + if_zero)


def largest_log_ratio(metric: Metric, first: Recordings, second: Recordings) -> float:
    """Return the largest log likelihood ratio of all transcripts, all cohorts being 0.

    Lanes are independent, and so are reports that no group of either history joins, so that each
    can be at its worst; within those only the numbers of ones count.
    """
    n_reports = 1 if metric.one_time else len(first.values)
    sides = [grouped(metric, recordings, [0] * n_reports) for recordings in (first, second)]
    joined = np.stack([side.of_report for side in sides])
    lanes = np.unique(
        np.concatenate([side.true_bits for side in sides]).T, axis=0, return_counts=True
    )
    total = 0.0
    for component in _components(joined):
        cells, sizes = np.unique(joined[:, component], axis=1, return_counts=True)
        counts = np.indices([size + 1 for size in sizes.tolist()]).reshape(len(sizes), -1)
        for bits, n_lanes in zip(*lanes, strict=True):
            of_first, of_second = np.split(bits, [len(sides[0].true_bits)])
            ratio = np.zeros(counts.shape[1])
            for sign, of_side, places in zip((1, -1), (of_first, of_second), cells, strict=True):
                for group in np.unique(places):
                    inside = places == group
                    ones, reports = counts[inside].sum(axis=0), int(sizes[inside].sum())
                    bit = np.full(len(ones), of_side[group])
                    ratio += sign * lane_log_likelihood(metric.params, bit, ones, reports)
            total += n_lanes * float(ratio.max())
    return total


def _components(joined: IntArray) -> list[IntArray]:
    """Return the reports in sets that no group of either history crosses."""
    labels = np.arange(joined.shape[1])
    while True:
        merged = labels
        for side in joined:
            least = np.full(side.max() + 1, len(labels))
            np.minimum.at(least, side, merged)
            merged = least[side]
        if np.array_equal(merged, labels):
            return [np.flatnonzero(labels == label) for label in np.unique(labels)]
        labels = merged


def worst_values(metric: Metric) -> tuple[Value, Value]:
    """Return two values that set as many different bits as can be, in as many cohorts as can be."""
    return _worst_values(metric.type, metric.params)


@cache
def _worst_values(metric_type: MetricType, params: RapporParams) -> tuple[Value, Value]:
    pairs = [_two_values(metric_type, number) for number in range(_PAIRS)]
    return max(pairs, key=lambda pair: _cohorts_apart(metric_type, params, pair))


def _two_values(metric_type: MetricType, number: int) -> tuple[Value, Value]:
    """Return two different values; of texts, others for each number."""
    if isinstance(metric_type, BooleanType):
        return True, False
    if isinstance(metric_type, EnumType):
        return metric_type.labels[0], metric_type.labels[1]
    if isinstance(metric_type, OrdinalType):
        return metric_type.edges[0] - 1, metric_type.edges[0]
    if isinstance(metric_type, JointType):
        pairs = {name: _two_values(a_type, number) for name, a_type in metric_type.fields}
        one, other = ({name: pair[i] for name, pair in pairs.items()} for i in range(2))
        return one, other
    return f"value {number}", f"other {number}"


def _cohorts_apart(metric_type: MetricType, params: RapporParams, pair: tuple[Value, Value]) -> int:
    apart = 0
    for cohort in range(params.m):
        one, other = (metric_type.bits(value, cohort, params) for value in pair)
        apart += (one ^ other).bit_count() == 2 * params.h
    return apart
