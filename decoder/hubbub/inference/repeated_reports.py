"""How much wider errors are because clients report more than once.

The reports that a client makes of one value share its permanent response, and the value. With R_i
reports of client i among N, a bit's rate has the variance

    (instantaneous + D permanent + D share (1 - share)) / N,        D = sum R_i^2 / N,

of which the last part is that of drawing clients from a population; it is none of the error about
the collected reports' shares, if these are asked for. Reports name no clients,
but where a client reports at most once a day their numbers bound D: two days have at most as
many clients in common as the smaller one has reports. Invariant: D is never below 1, and never
taken to be less than what is known allows.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from scipy import special

from hubbub.inference.arrays import FloatArray, IntArray
from hubbub.protocol import Metric, RapporParams

# No saddlepoint is steeper unless a bit is set in all reports or none; halved until it is known to
# the last digit.
_STEEPEST, _HALVINGS = 64.0, 80
_NEAR_MEAN = 1e-4
"""Standard deviations: so near the mean the saddlepoint's correction is rounding."""


def instantaneous_variance(share: FloatArray, params: RapporParams) -> FloatArray:
    """Return the part of the variance of a report's rate that is new in every report.

    `share`: of the clients whose true bit is set.

    Notes
    -----
    A share u = share (1 - f1) + (1 - share) f0 of the permanent bits is 1, so that it is
    (u q(1 - q) + (1 - u) p(1 - p)) / (q* - p*)^2.
    """
    p, q = params.p, params.q
    ones = share * (1 - params.f1) + (1 - share) * params.f0
    slope = params.q_star - params.p_star
    return np.asarray((ones * q * (1 - q) + (1 - ones) * p * (1 - p)) / slope**2)


def permanent_variance(share: FloatArray, params: RapporParams) -> FloatArray:
    """Return the part of the variance of a report's rate that is the client's permanent response's.

    `share`: of the clients whose true bit is set.

    Notes
    -----
    ((1 - share) f0(1 - f0) + share f1(1 - f1)) (q - p)^2 / (q* - p*)^2.
    """
    of_zero, of_one = (chance * (1 - chance) for chance in (params.f0, params.f1))
    slope = (params.q - params.p) / (params.q_star - params.p_star)
    return np.asarray(((1 - share) * of_zero + share * of_one) * slope**2)


class RepeatSource(StrEnum):
    """How it is known how often clients have reported."""

    ONCE = "once"
    """Each client reports once."""
    ONE_DAY = "one day"
    """A client reports at most once a day."""
    DAYS = "days"
    """The most that the days' numbers of reports allow."""
    GIVEN = "given"
    """Given by --reports-per-client."""
    UNKNOWN = "unknown"
    """Without days; taken as one report per client."""


class Estimand(StrEnum):
    """Whose shares are estimated: what intervals and standard errors are about."""

    POPULATION = "population"
    """That the reports' clients were drawn from."""
    REPORTS = "reports"
    """Those that were collected, whoever else there is."""


@dataclass(frozen=True, slots=True)
class RepeatedReports:
    """How often an average report's client has reported, or at most; whose shares are asked for."""

    # D = sum R_i^2 / N over permanent responses, R_i being the reports that one of them has made.
    responses: float = 1.0
    # D over clients, who may have several permanent responses, and keep their value.
    clients: float = 1.0
    source: RepeatSource = RepeatSource.ONCE  # how that is known
    # Whether that holds only if no client has reported twice on a day: the metric's clients aren't
    # asked to keep to that (`Metric.reports_per_day`).
    assumes_daily: bool = False
    estimand: Estimand = Estimand.POPULATION  # whether the drawing of clients is an error

    @property
    def drawings(self) -> float:
        """How many times the drawing of clients counts: D; 0 if it is no error."""
        return self.clients if self.estimand is Estimand.POPULATION else 0.0

    def sampling_variance(self, share: FloatArray, n_reports: float) -> FloatArray:
        """Return the variance that the drawing of clients adds to shares: D share (1 - share) / N.

        `share`: estimates, which are taken to be at least 0 and at most 1.
        """
        clipped = np.clip(share, 0.0, 1.0)
        return np.asarray(self.drawings * clipped * (1 - clipped) / n_reports)

    def sampling_covariance(self, shares: FloatArray, n_reports: float) -> FloatArray:
        """Return the covariance that it adds to the shares of values that exclude each other.

        `shares`, shape (n,): at least 0, with a sum of at most 1. Returns an array of shape (n, n).
        """
        drawn = np.diag(shares) - np.outer(shares, shares)
        return np.asarray(self.drawings * drawn / n_reports)

    def noise_variance(self, share: FloatArray, params: RapporParams) -> FloatArray:
        """Return N times the variance of a rate by both responses, given the clients' values.

        `share`: of the clients whose true bit is set, in [0, 1].

        Notes
        -----
        Instantaneous + D permanent, where the two add up to that of one report,
        (share q*(1 - q*) + (1 - share) p*(1 - p*)) / (q* - p*)^2.
        """
        p_star, q_star = params.p_star, params.q_star
        once = share * q_star * (1 - q_star) + (1 - share) * p_star * (1 - p_star)
        again = (self.responses - 1) * permanent_variance(share, params)
        return np.asarray(once / (q_star - p_star) ** 2 + again)

    def log_tail(self, ones: IntArray, n_reports: int | IntArray, bit: AbsentBit) -> FloatArray:
        """Return the ln of the chance of so many reports or more with a bit set.

        Exact if no client has reported twice. Otherwise as if every permanent response had made D
        of the reports: a saddlepoint approximation.

        `ones`: reports in which the bit is set. `n_reports`: of how many. `bit`: how each is made.

        Notes
        -----
        A response's R reports have the cumulant generating function ln(g A^R + (1 - g) B^R), with
        A and B those of one report's bit given the permanent bit and g the chance that this is 1.
        It is convex in R, so of all histories with at most R reports a response none has a larger
        one than that in which each has made R of them: where D is the number of days, as if the
        same clients had come every day, no history has heavier tails.
        The tail is Lugannani's and Rice's (1980) in Barndorff-Nielsen's form.
        """
        if self.responses == 1:
            return np.asarray(_log_binomial_tail(ones, n_reports, bit.chance))
        return _saddlepoint_tail(np.asarray(ones - 0.5), n_reports, self.responses, bit)


ONCE = RepeatedReports()
"""No client has reported twice, and the population's shares are asked for."""
ONCE_OF_REPORTS = RepeatedReports(estimand=Estimand.REPORTS)
"""No client has reported twice, and the collected reports' shares are asked for."""


class AbsentBit(NamedTuple):
    """How a bit is reported that is true, or false, for no client."""

    permanent: float  # chance that the permanent bit is 1
    if_zero: float  # chance that a report's bit is 1, given the permanent one
    if_one: float

    @property
    def chance(self) -> float:
        """Chance that a report's bit is 1."""
        return self.permanent * self.if_one + (1 - self.permanent) * self.if_zero

    @property
    def turned(self) -> AbsentBit:
        """The same with 0 for 1 in reports."""
        return AbsentBit(self.permanent, 1 - self.if_zero, 1 - self.if_one)


def most_repeats(reports: Mapping[dt.date, int], within_days: int | None = None) -> float:
    """Return the largest D that days' numbers of reports allow, at one report per client and day.

    `reports`: each day's number of reports, not all 0. `within_days`: reports that are so many days
    apart, or more, share nothing.

    Notes
    -----
    sum_i R_i^2 counts the pairs of reports of one client, and two days have at most min(N_t, N_t')
    of them: sum_tt' min(N_t, N_t') / N, which clients attain who report on every day that has at
    least as many reports as their first.

    Examples
    --------
    >>> days = [dt.date(2026, 11, day) for day in (1, 2, 3)]
    >>> most_repeats(dict.fromkeys(days, 1000))
    3.0
    >>> most_repeats(dict(zip(days, (1000, 500, 500))))
    2.5
    """
    first, last = min(reports), max(reports)
    each_day = np.zeros((last - first).days + 1)
    for day, number in reports.items():
        each_day[(day - first).days] = number
    lags = len(each_day) if within_days is None else min(within_days, len(each_day))
    pairs = float(each_day.sum())
    for lag in range(1, lags):
        pairs += 2 * float(np.minimum(each_day[lag:], each_day[:-lag]).sum())
    return pairs / float(each_day.sum())


def repeats_of(
    metric: Metric,
    by_day: Mapping[dt.date, int] | None = None,
    reports_per_client: float | None = None,
    estimand: Estimand = Estimand.POPULATION,
) -> RepeatedReports:
    """Return how often clients have reported, or at most.

    `metric`: whose reports they are. `by_day`: each day's number of reports, if that is known.
    `reports_per_client`: sum R_i^2 / sum R_i, if that is known: what the client of an average
    report has sent. `estimand`: whose shares are asked for.
    """
    if metric.one_time:
        return RepeatedReports(estimand=estimand)
    if reports_per_client is not None:
        clients, source = reports_per_client, RepeatSource.GIVEN
    elif by_day:
        source = RepeatSource.DAYS if len(by_day) > 1 else RepeatSource.ONE_DAY
        clients = most_repeats(by_day)
        if metric.reports_once:
            clients = min(clients, float(_most_periods(by_day, metric.period_days)))
    else:
        return RepeatedReports(source=RepeatSource.UNKNOWN, estimand=estimand)
    if metric.reports_once:
        return RepeatedReports(1.0, clients, source, estimand=estimand)
    responses = clients
    if metric.memory == "period":
        within = metric.period_days
        responses = min(clients, most_repeats(by_day, within) if by_day else float(within))
    by_days = source is not RepeatSource.GIVEN or responses < clients
    assumes_daily = by_days and not metric.reports_per_day
    return RepeatedReports(responses, clients, source, assumes_daily, estimand)


def _most_periods(by_day: Mapping[dt.date, int], period_days: int) -> int:
    after_first = (max(by_day) - min(by_day)).days
    return 1 - (-after_first // period_days)


def _log_binomial_tail(ones: IntArray, n_reports: int | IntArray, chance: float) -> FloatArray:
    tail = special.bdtrc(ones - 1.0, n_reports, chance)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.where(ones == 0, 1.0, tail)))


def _saddlepoint_tail(
    reached: FloatArray, n_reports: int | IntArray, repeats: float, bit: AbsentBit
) -> FloatArray:
    """Return ln P(X >= reached) of n_reports / repeats responses of so many reports each."""
    responses = n_reports / repeats
    low, high = np.full(reached.shape, -_STEEPEST), np.full(reached.shape, _STEEPEST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = responses * _cumulants(middle, repeats, bit)[1] > reached
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    slope = (low + high) / 2
    cumulant, _, curvature = (responses * each for each in _cumulants(slope, repeats, bit))
    root = np.sign(slope) * np.sqrt(np.maximum(2 * (slope * reached - cumulant), 0.0))
    wald = slope * np.sqrt(curvature)
    # Without curvature all reports have the bit, and rounding leaves nothing to correct by.
    near = (np.abs(root) < _NEAR_MEAN) | (curvature <= 0)
    safe = np.where(near, 1.0, root)
    correction = np.where(near, 0.0, np.log(np.where(near, 1.0, wald) / safe) / safe)
    found = special.log_ndtr(-(root + correction))
    return np.asarray(np.where(reached < 0, 0.0, found))


def _cumulants(
    slope: FloatArray, repeats: float, bit: AbsentBit
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return a response's cumulant generating function and its first two derivatives."""
    log_zero, log_one = (
        np.logaddexp(math.log1p(-chance) if chance < 1 else -np.inf,
                     slope + math.log(chance) if chance > 0 else np.full_like(slope, -np.inf))
        for chance in (bit.if_zero, bit.if_one)
    )  # fmt: skip
    given_zero = bit.if_zero * np.exp(slope - log_zero)
    given_one = bit.if_one * np.exp(slope - log_one)
    from_zero = (math.log1p(-bit.permanent) if bit.permanent < 1 else -np.inf) + repeats * log_zero
    from_one = (math.log(bit.permanent) if bit.permanent else -np.inf) + repeats * log_one
    whole = np.logaddexp(from_zero, from_one)
    one = np.exp(from_one - whole)
    mean = one * given_one + (1 - one) * given_zero
    within = one * given_one * (1 - given_one) + (1 - one) * given_zero * (1 - given_zero)
    between = one * (1 - one) * (given_one - given_zero) ** 2
    return whole, repeats * mean, repeats * within + repeats**2 * between
