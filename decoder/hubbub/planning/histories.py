"""Bounds on what one client's linked reports reveal of its response and history of values.

Each reported bit is a new coin with bias q or p, so from n linked reports the permanent bits follow
one by one, with an error that falls exponentially. The permanent response is a fingerprint, not a
value: epsilon_permanent still holds. These probabilities are exact sums of binomials.

Histories are compared in two senses. The first compares histories that change at the same times:
that is what the client's account adds up. The second compares *any* two histories that record at
the same times; where a change itself can be seen there is no such bound, and the figure is
infinite. docs/understand/proofs.md has the proofs. Reports come once a day, however the periods'
borders lie. Invariant: every rounding makes a bound larger.

How well reports can be linked by their content alone, though no record keeps which came together.

All reports of a permanent response are copies of one random pattern, in noise. Two reports of one
client have a log likelihood ratio L against two of different clients: a sum over bits, whose mean
is the information I that a report has about another. Whoever holds two shuffled days matches all
reports at once, and `right_links` predicts the share of right links of the best such attacker: a
link is found if its L exceeds what both of its ends would gain by other partners, in a world where
these partners' gains are independent (the cavity method). docs/understand/proofs.md has the
derivation, and how close the prediction is to attacks.

Invariant: where the prediction leaves something out, it is in the attacker's favour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hubbub.inference import FloatArray, at_most, more_than
from hubbub.protocol import Metric, RapporParams, Registry, most_answers

_CELLS = 768  # twice as many change no prediction by more than .0003
_ROOM = 16.0  # nats beyond ln(N/m) that the grid has: what lies outside has a chance below 1e-6
_FINE = 1 / 128  # nats; each bit's rounding adds a variance of 4e-6 at most
_FINE_CELLS = 2**15  # a power of 2, for the transforms; holds a typical metric's whole law
_DEVIATIONS = 12  # of L to either side of its mean, that the fine lattice holds
_LOST = 1e-13  # chances below are rounding of the transforms
_TURNS, _SETTLED = 200, 1e-6  # until a share of which three digits are printed stands still
_KEPT = 0.5  # of the last turn's messages: without it they would swing
ROUNDED_UP = 1 + 1e-12  # of a bound: some thousand roundings of doubles
_MANY = 100  # others in a cohort: sizes then differ too little to matter


@dataclass(frozen=True, slots=True)
class _Lanes:
    """Bits that are alike."""

    count: int
    # Shape (2, 2); chance of what one side shows (0 or 1) and what the other does, both being one
    # client's.
    joint: FloatArray
    ratio: FloatArray  # shape (2, 2); log of how much likelier that is than of two clients

    @property
    def information(self) -> float:
        """Nats that one side has about the other, of one bit."""
        return float((self.joint * self.ratio).sum())

    @property
    def variance(self) -> float:
        """Variance of the log likelihood ratio of one bit, both sides being one client's."""
        return float((self.joint * (self.ratio - self.information) ** 2).sum())


def link_information(params: RapporParams, width: int | None, *, known: bool = False) -> float:
    """Return the information I, in nats, that a report has about another of the same response.

    I = sum over bits of the mutual information of the two reported bits. Values are spread evenly
    over the bits that values can set: `width` of which a value sets one (None: h of k by hashing).
    `known`: one side is the permanent response itself, as after many linked reports.
    """
    return sum(each.count * each.information for each in _lanes(params, width, known))


def linked_clients(params: RapporParams, width: int | None, *, known: bool = False) -> float:
    """Return m e^I, the N at which the information is ln(N/m): more than half of links right."""
    nats = link_information(params, width, known=known) + math.log(params.m)
    return math.exp(nats) if nats < 700 else math.inf


def value_ratio(epsilon: float) -> float:
    """Return how much likelier two reports of independent responses are of one client, at most.

    Two periods' reports of mode "once" share nothing but the value and the slice; this is about
    reports of one slice. With pi_v the values' shares
    and l_v(r) = P(r | v)/P(r), the likelihood ratio against two clients is sum_v pi_v l_v(r1)
    l_v(r2), at most the larger of sum_v pi_v l_v(r)^2. The l_v of a report have the mean 1 and
    differ by a factor of e^eps at most, so that is at most cosh^2(eps/2): where the ratios are
    e^eps and 1 over their mean, and both kinds of values weigh as much. Rounded up.
    """
    return math.cosh(epsilon / 2) ** 2 * ROUNDED_UP


def right_links(
    params: RapporParams, width: int | None, clients: int, *, known: bool = False
) -> float:
    """Return the share of right links that the best attacker reaches between two shuffled days.

    Each day each of N clients reports once, all of unchanged permanent responses. The attacker
    links each report of one day to the one of the other day that is most probably its client's.

    `params` and `width`: as for `link_information`. `clients`: N, at least 1. `known`: whether
    reports are linked to permanent responses.

    Notes
    -----
    Let Z be L of a right link, W that of a wrong one, and n the others in a cohort. The messages
    Y_n (what a report would gain by n wrong partners) solve

        Y_n = ln sum over n wrong partners of e^(W - X),    X = ln(e^(Z - Y_n') + e^(Y_(n-1))),

    all independent, and a link is right if Z - Y_n exceeds the largest W - X of its report (Mezard,
    Parisi 1985; for planted matchings Moharrami, Moore, Xu 2019; Semerjian, Sicuro, Zdeborova
    2020). Of the sum the largest term is exact and the others are replaced by their mean.
    """
    others = (clients - 1) / params.m
    # Small cohorts differ in size: eight sizes are equally likely for a client.
    below = at_most(np.arange(2 * _MANY), clients - 1, 1 / params.m)
    quantiles = np.searchsorted(below, (np.arange(8) + 0.5) / 8) if others < _MANY else others
    lanes = _lanes(params, width, known)
    sizes, times = np.unique(quantiles, return_counts=True)
    shares = [_right_of(lanes, float(size)) for size in sizes]
    share = float(np.average(shares, weights=times))
    # Equal reports in a cohort can't be attributed, and 2^k can differ.
    return min(share, params.m * 2.0 ** min(params.k, 1000) / clients)


def _right_of(lanes: Sequence[_Lanes], n: float) -> float:
    """Return the share of right links in a cohort with n others."""
    if n == 0:
        return 1.0
    spread = math.log(max(n, 1.0))
    step = 2 * (spread + _ROOM) / _CELLS
    grid = step * (np.arange(_CELLS, dtype=np.float64) - _CELLS // 2)
    right, wrong = _ratio_laws(lanes, grid)
    logsum = logsums(grid)
    of_all, of_others = np.zeros((2, _CELLS))  # distributions of Y_n and Y_(n-1)
    for message in (of_all, of_others):
        message[_CELLS // 2 + round(spread / 2 / step)] = 1.0  # what L = 0 everywhere gives
    share = 0.0
    for _ in range(_TURNS):
        partner = _difference(right, of_all)
        offers = _difference(wrong, logsum(partner, of_others))
        mean_below = np.cumsum(offers * np.exp(grid)) / np.maximum(np.cumsum(offers), _LOST)
        for message, wrong_ones in ((of_all, n), (of_others, max(n - 1, 0.0))):
            largest = np.diff(_not_above(offers, wrong_ones), prepend=0.0)
            rest = max(wrong_ones - 1, 0.0) * mean_below
            total = np.logaddexp(grid, np.log(np.maximum(rest, 1e-300)))
            message[:] = _KEPT * message + (1 - _KEPT) * _placed(total, grid)(largest)
        before, share = share, float(_difference(right, of_all) @ _chosen(offers, n))
        if abs(share - before) < _SETTLED:
            break
    # Where L holds little information, rounding decides between messages; to look at each report by
    # itself is an attack, too.
    return min(max(share, float(right @ _chosen(wrong, n))), 1.0)


def _not_above(offers: FloatArray, n: float) -> FloatArray:
    above = np.append(np.cumsum(offers[::-1])[-2::-1], 0.0)
    return np.asarray(np.exp(n * np.log1p(-np.minimum(above, 1 - 1e-15))))


def _chosen(offers: FloatArray, n: float) -> FloatArray:
    """Return the chance that what lies in each cell is chosen before n independent offers.

    Among equals chance decides: that is the mean of (1 - x)^n for x from the chance that an offer
    is above to that it is at least as high.
    """
    none_left = math.exp((n + 1) * math.log1p(-min(float(offers.sum()), 1 - 1e-15)))
    tied = np.diff(_not_above(offers, n + 1), prepend=none_left)
    # Where hardly any offer lies, differences are rounding and ties don't occur.
    share = tied / np.maximum((n + 1) * offers, 1e-300)
    return np.where((n + 1) * offers > 1e-9, share, _not_above(offers, n))


def _lanes(params: RapporParams, width: int | None, known: bool) -> list[_Lanes]:
    """Return the kinds of bits: those that values can set, and the padding of the last byte."""
    if width is None:
        parts = [(params.k, 1 - (1 - 1 / params.k) ** params.h)]
    else:
        parts = [(width, 1 / max(width, 2)), (params.k - width, 0.0)]
    reported = np.array([[1 - params.p, params.p], [1 - params.q, params.q]])
    lanes = []
    for count, true in parts:
        one = params.f0 + true * (1 - params.f)
        permanent = np.diag([1 - one, one])
        joint = (permanent if known else reported.T @ permanent) @ reported
        apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
        possible = joint > 0
        ratio = np.log(np.divide(joint, apart, out=np.ones((2, 2)), where=possible))
        lanes.append(_Lanes(count, joint, ratio))
    return lanes


def _ratio_laws(lanes: Sequence[_Lanes], grid: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the distributions, on a grid, of a right link's and of a wrong link's L.

    That of a right link is a convolution over bits; a wrong link's is e^-L times that.
    """
    mean = sum(each.count * each.information for each in lanes)
    deviation = math.sqrt(max(sum(each.count * each.variance for each in lanes), 1e-12))
    step = max(min(_FINE, deviation / 64), 2 * _DEVIATIONS * deviation / _FINE_CELLS)
    transform = np.ones(_FINE_CELLS // 2 + 1, dtype=np.complex128)
    for each in lanes:
        one_bit = np.zeros(_FINE_CELLS)
        below = np.floor(each.ratio.ravel() / step)
        upper = (each.ratio.ravel() / step - below) * each.joint.ravel()
        for places, weights in ((below, each.joint.ravel() - upper), (below + 1, upper)):
            np.add.at(one_bit, places.astype(np.int64) % _FINE_CELLS, weights)
        transform *= np.fft.rfft(one_bit) ** each.count
    middle = round(mean / step)
    law = np.roll(np.fft.irfft(transform, _FINE_CELLS), _FINE_CELLS // 2 - middle)
    law = np.where(law < _LOST, 0.0, law)
    ratios = step * (np.arange(_FINE_CELLS, dtype=np.float64) + middle - _FINE_CELLS // 2)
    place = _placed(ratios, grid)
    # Ratios below the grid never compete.
    wrong = np.where(ratios < grid[0], 0.0, law * np.exp(-np.maximum(ratios, grid[0])))
    return place(law / law.sum()), place(wrong)


def _placed(values: FloatArray, grid: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Return a function that turns chances of the values into a distribution on a grid.

    Each value is split between its neighbours so that its mean stays; what lies beyond an end
    counts at that end.
    """
    cells = len(grid)
    scaled = np.clip((values - grid[0]) / (grid[1] - grid[0]), 0.0, cells - 1.0)
    below = np.minimum(scaled.astype(np.int64), cells - 2)
    upper = scaled - below

    def place(chances: FloatArray) -> FloatArray:
        above = chances * upper
        found = np.bincount(below, chances - above, cells)
        found += np.bincount(below + 1, above, cells)
        return np.asarray(found, dtype=np.float64)

    return place


def logsums(grid: FloatArray) -> Callable[[FloatArray, FloatArray], FloatArray]:
    """Return a function that gives the distribution of ln(e^X + e^Y) from those of X and Y.

    All are on the grid, shape (c,), equally far apart. The sum lies above the larger of both by
    what their difference decides, so each number of cells that it can be above takes a convolution.
    """
    cells, step = len(grid), grid[1] - grid[0]
    above = np.log1p(np.exp(-step * np.arange(cells))) / step
    whole = np.floor(above)
    upper = above - whole
    kernels = []
    for more in range(int(whole[0]) + 2):
        kernel = np.where(whole == more, 1 - upper, 0.0) + np.where(whole == more - 1, upper, 0.0)
        last = np.max(np.flatnonzero(kernel), initial=0)
        kernels.append(kernel[: 1 + int(last)])

    def logsum(first: FloatArray, second: FloatArray) -> FloatArray:
        found = np.zeros(cells + len(kernels))
        for more, kernel in enumerate(kernels):
            smaller = np.append(0.0, kernel[1:])  # equal ones count once
            larger = first * np.convolve(kernel, second)[:cells]
            larger += second * np.convolve(smaller, first)[:cells]
            found[more : more + cells] += larger
        found[cells - 1] += found[cells:].sum()  # an end holds what lies beyond
        return found[:cells]

    return logsum


def _difference(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return the distribution of X - Y on a grid whose middle cell is 0; ends hold the rest."""
    cells = len(first)
    size = 2 * cells
    transform = np.fft.rfft(first, size) * np.fft.rfft(second[::-1], size)
    # Cell i of X and j of Y meet in cell i + (cells - 1 - j); 0 lies where i = j.
    sums = np.maximum(np.fft.irfft(transform, size), 0.0)
    low = cells - 1 - cells // 2
    found = sums[low : low + cells].copy()
    found[0] += sums[:low].sum()
    found[-1] += sums[low + cells :].sum()
    return found


_MOST = 2**40  # reports: 3 billion years of days
_TIE = 1e-9  # as a share of n: what rounding can do to an equal number of ones and zeros
_TOLERANCE = 1 + 1e-9  # of the client's account: docs/protocol, section 6


def permanent_known(params: RapporParams, reports: int, prior: float = 0.5) -> float:
    """Return the probability that all k permanent bits are guessed right from n linked reports.

    The observer takes each bit's likelier value; of two equally likely ones, either. The value has
    h distinct bits. `prior` is its share of ones: 0.5 if the reports alone decide, `share_of_ones`
    for one who knows f, h and k as well. f must be above 0.
    """
    if_one, if_zero = _right(params, reports, prior)
    of_true = (1 - params.f1) * if_one + params.f1 * if_zero
    of_others = params.f0 * if_one + (1 - params.f0) * if_zero
    return of_true**params.h * of_others ** (params.k - params.h)


def share_of_ones(params: RapporParams) -> float:
    """Return the expected share of ones among the permanent bits of a value with h true bits."""
    return params.f0 + params.h / params.k * (1 - params.f)


def reports_to_know(params: RapporParams, probability: float) -> float:
    """Return after how many linked reports an observer of f, p, q, h and k knows the response.

    n reports reach the probability and n - 1 don't; infinite beyond 2^40.
    """
    prior, high = share_of_ones(params), 1
    while permanent_known(params, high, prior) < probability:
        high *= 2
        if high > _MOST:
            return math.inf
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if permanent_known(params, middle, prior) >= probability:
            high = middle
        else:
            low = middle
    return high


def _right(params: RapporParams, n: int, prior: float) -> tuple[float, float]:
    """Return the chance that a permanent 1, and a permanent 0, is guessed right from n coins."""
    low, high = sorted((params.p, params.q))
    line = _line(n, low, high, prior if params.q > params.p else 1 - prior)
    nearest = round(line)
    tie = abs(line - nearest) < _TIE * n
    last, share = (nearest, 0.5) if tie else (math.floor(line), 0.0)
    # A tie counts half: what is right with it, and what is right without.
    if_high = (1 - share) * more_than(last, n, high) + share * more_than(last - 1, n, high)
    if_low = (1 - share) * at_most(last, n, low) + share * at_most(last - 1, n, low)
    right = float(if_high), float(if_low)
    return right if params.q > params.p else right[::-1]


def _line(n: int, low: float, high: float, prior: float) -> float:
    """Return the number of ones above which the bias `high` is likelier; may be < 0 or > n."""
    odds = math.log(prior / (1 - prior))
    if low == 0:  # which a single one refutes
        return 0.5 if high == 1 or odds < -n * math.log1p(-high) else -1.0
    if high == 1:  # which a single zero refutes
        return n - 0.5 if odds > n * math.log(low) else n + 1.0
    zeros, ones = math.log((1 - low) / (1 - high)), math.log(high / low)
    return (n * zeros - odds) / (zeros + ones)


@dataclass(frozen=True, slots=True)
class LifetimeBudget:
    """How a client divides its lifetime_epsilon (docs/protocol, section 6)."""

    # The price of what times alone decide: first values, periods, one-time reports.
    reserve: float = 0.0
    # Budget left for second and later values; infinite without a lifetime_epsilon.
    changes: float = math.inf

    @classmethod
    def of(cls, registry: Registry) -> LifetimeBudget:
        """Return the division for a client that never knew another registry."""
        reserve = registry.reserve()
        if registry.lifetime_epsilon is None:
            return cls(reserve)
        return cls(reserve, max(registry.lifetime_epsilon - reserve, 0.0))

    def most_values(self, metric: Metric) -> int:
        """Return how many distinct values of a metric a client can ever report."""
        if metric.one_time:
            return 1
        changes = self.changes * _TOLERANCE / metric.price
        return int(min(metric.max_values, 1 + changes))


def constant_epsilon(metric: Metric, days: int) -> float:
    """Return what a client's daily reports of one value reveal; exact for one hash."""

    def of_one(reports: int) -> float:
        return min(metric.epsilon_after(reports), metric.price)

    return _over_responses(metric, days, of_one)


def same_times_epsilon(metric: Metric, days: int, values: int) -> float:
    """Return the same for histories of at most V values that are equal at the same times.

    Of n reports of a value epsilon_n is at most n s, s being the largest epsilon_n / n, and at most
    epsilon_T: so however T reports are divided among V values, they reveal min(T s, V epsilon_T) at
    most. A symmetric permanent response has s = epsilon_1. With periods the number of values
    doesn't matter.
    """
    if metric.memory == "period" or values == 1:
        return constant_epsilon(metric, days)
    reports = _reports(metric, days)
    most = min(values, reports)
    each = reports * dearest_report(metric, reports)
    return min(each, most * metric.epsilon_after(reports), most * metric.price) * ROUNDED_UP


def dearest_report(metric: Metric, most: int) -> float:
    """Return the largest epsilon_n / n for n up to a number of reports."""
    dearest, n = metric.epsilon_report, 2
    # With more reports the permanent epsilon alone shows that each costs less.
    while n <= most and metric.price > dearest * n:
        dearest = max(dearest, metric.epsilon_after(n) / n)
        n += 1
    return dearest


def any_history_epsilon(metric: Metric, days: int, most_values: int) -> float:
    """Return the bound for any two histories that record at the same times; infinite if none.

    T days have a report each; after `most_values` distinct values later ones are never heard.
    """
    if metric.memory == "value" and not metric.reports_once and most_values > 1:
        return math.inf
    return constant_epsilon(metric, days)


def life_epsilon(metric: Metric, most_values: int) -> float:
    """Return what a client ever reveals, of any two histories; infinite if changes are seen."""
    if metric.memory == "value" and not metric.reports_once and most_values > 1:
        return math.inf
    return metric.reserve * ROUNDED_UP


def most_periods(metric: Metric, days: int) -> int:
    """Return in how many periods a client answers in T days, at most (``memory = "period"``)."""
    most = most_answers(days, metric.period_days, metric.mode)
    return min(most, metric.max_periods)


def _over_responses(metric: Metric, days: int, loss: Callable[[int], float]) -> float:
    """Add up what the reports of each permanent response reveal, for T days.

    With periods it is the worst of all ways in which their borders may lie: the first period has
    1 to D of the days, each further one D, the last the rest; from `max_periods` on the client is
    silent.
    """
    if metric.memory == "value":
        return loss(_reports(metric, days))
    if metric.reports_once:
        return most_periods(metric, days) * loss(1) * ROUNDED_UP
    length, most = metric.period_days, metric.max_periods
    whole = loss(length)
    worst = 0.0
    for first in range(1, min(length, days) + 1):
        full, rest = divmod(days - first, length)
        full = min(full, most - 1)
        last = loss(rest) if rest and full + 1 < most else 0.0
        worst = max(worst, loss(first) + full * whole + last)
    return worst * ROUNDED_UP


def _reports(metric: Metric, days: int) -> int:
    return 1 if metric.reports_once else days
