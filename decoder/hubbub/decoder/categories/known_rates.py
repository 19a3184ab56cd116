"""Bits whose rate is known before any report, against how often they are set.

Reports of enum, boolean and ordinal metrics fill whole bytes. The bits that no category uses are
pure noise, set with probability p* whatever people's values are; and exactly one of an enum's or
ordinal's own bits is true in every report, so their sum has a known mean as well. Forged reports,
and clients with other parameters than the registry's, may show in both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hubbub.decoder.arrays import FloatArray
from hubbub.decoder.counts import CohortCounts
from hubbub.decoder.reports.anomalies import ALARM, REPORTS_A_CLIENT
from hubbub.protocol.metrics import Metric


class KnownRates(NamedTuple):
    """How far such rates are off.

    Attributes
    ----------
    unused_bits : int
        Bits of a report that no category uses.
    unused_rate, expected_unused_rate : float
        How often they are set, and should be (p*); nan if there are none.
    own_bits_set, expected_own_bits_set : float
        Mean number of the categories' bits that are set in a report; nan for booleans.
    clients_must_send : float
        Honest reports show this with probability above `alarm` only if some client sent more
        reports than this.
    suspicious : bool
        Whether that is more than clients are supposed to send.
    """

    unused_bits: int
    unused_rate: float
    expected_unused_rate: float
    own_bits_set: float
    expected_own_bits_set: float
    clients_must_send: float
    suspicious: bool


def known_rates(counts: CohortCounts, metric: Metric, alarm: float = ALARM) -> KnownRates:
    """Compare the rates that are known with those of the reports.

    Parameters
    ----------
    counts : CohortCounts
        Of at least one report.
    metric : Metric
        Of type enum, boolean or ordinal.
    alarm : float
        In (0, 1).

    Raises
    ------
    ValueError
        If the metric's type has no categories.

    Notes
    -----
    Given their values, the bits of a client's reports are independent of each other, and of those
    of other clients; but its reports share a permanent response. So a sum over w bits is one of
    independent terms, each client's and bit's, in [0, r_i] if client i sent r_i <= R reports, and
    by Hoeffding's inequality P(|sum - mean| >= t) <= 2 exp(-2 t^2 / (w N R)). Each unused bit, all
    of them, and all own bits are such sums. Over s of them, deviations like the largest have
    probability at most `alarm` unless R > 2 t^2 / (w N ln(2s / alarm)). No approximation is
    involved.
    """
    width, params = metric.type.width, metric.params
    if width is None:
        raise ValueError(f"metric {metric.name!r}: must be of a type with categories")
    n_reports, bits = counts.total, counts.bits[0].astype(np.float64)
    own, unused = bits[:width], bits[width:]
    expected_own = params.q_star + (width - 1) * params.p_star
    squares = [_square_over_width(unused[i : i + 1] - n_reports * params.p_star)
               for i in range(len(unused))]  # fmt: skip
    if len(unused):
        squares.append(_square_over_width(unused - n_reports * params.p_star))
    one_hot = metric.type.true_bits(params) == range(1, 2)
    if one_hot:
        squares.append(_square_over_width(own - n_reports * expected_own / width))
    must_send = 2 * max(squares) / (n_reports * np.log(2 * len(squares) / alarm))
    return KnownRates(
        unused_bits=len(unused),
        unused_rate=float(unused.mean()) / n_reports if len(unused) else np.nan,
        expected_unused_rate=params.p_star if len(unused) else np.nan,
        own_bits_set=float(own.sum()) / n_reports if one_hot else np.nan,
        expected_own_bits_set=expected_own if one_hot else np.nan,
        clients_must_send=float(must_send),
        suspicious=bool(must_send > (1 if metric.one_time else REPORTS_A_CLIENT)),
    )


def _square_over_width(deviations: FloatArray) -> float:
    return float(deviations.sum()) ** 2 / len(deviations)
