"""Whether the cohorts are as large as honest clients would make them.

A client's cohort is uniform, but all of its reports are in the same one, so that cohorts differ in
size by more than single draws would. How much more depends on how many reports a client sends,
which nobody knows (reports can't be linked); so the answer is that number instead of a p-value.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Balance(NamedTuple):
    """How uneven cohorts are.

    Attributes
    ----------
    cohort : int
        The most conspicuous cohort.
    ratio : float
        Its size as a multiple of the mean size.
    dispersion : float
        Pearson's chi-squared over its m - 1 degrees of freedom: about 1 if each client reported
        once, about sum r^2 / sum r over clients with r reports each otherwise.
    clients_must_send : float
        An honest population shows such a cohort with probability above `alarm` only if some
        client sent more reports than this.
    """

    cohort: int
    ratio: float
    dispersion: float
    clients_must_send: float


def cohort_balance(reports: NDArray[np.int64], alarm: float) -> Balance:
    """Compare cohorts' sizes.

    Parameters
    ----------
    reports : int64 array, shape (m,)
        Reports of each cohort.
    alarm : float
        In (0, 1).

    Raises
    ------
    ValueError
        If there is no cohort or `alarm` isn't in (0, 1).

    Notes
    -----
    Let client i send r_i <= R reports. A cohort's size is sum_i r_i 1[c_i = c] with independent c_i
    and mean mu = N/m; over R it is a sum of independent variables in [0, 1], so Chernoff's bound
    holds: P(size >= (1 + d) mu) <= exp(-(mu/R) phi(d)), phi(d) = (1 + d) ln(1 + d) - d, and the
    same for (1 - d). Over m cohorts and two sides, sizes this uneven have probability at most
    `alarm` unless R > mu phi(d) / ln(2m / alarm). No approximation is involved, and neither is
    anything supposed about who sends how much.
    """
    if not reports.size:
        raise ValueError("reports: must be of at least one cohort")
    if not 0 < alarm < 1:
        raise ValueError(f"alarm = {alarm}: must be between 0 and 1")
    m, mean = len(reports), float(reports.mean())
    if m == 1 or not mean:
        return Balance(0, 1.0, 1.0, 0.0)
    ratio = reports / mean
    with np.errstate(divide="ignore", invalid="ignore"):
        deviation = np.where(reports > 0, ratio * np.log(ratio), 0.0) - (ratio - 1)
    worst = int(np.argmax(deviation))
    return Balance(
        cohort=worst,
        ratio=float(ratio[worst]),
        dispersion=float(((reports - mean) ** 2).sum() / mean / (m - 1)),
        clients_must_send=mean * float(deviation[worst]) / float(np.log(2 * m / alarm)),
    )
