"""How well reports can be linked by their content alone, though nobody kept which came together.

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

from hubbub.inference.arrays import FloatArray
from hubbub.inference.binomial import at_most
from hubbub.protocol.params import RapporParams

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

    I = sum over bits of the mutual information of the two reported bits. Values are taken to be
    spread evenly over the bits that values can set.

    `params`: of the reports. `width`: bits of which a value sets one (of a single bit: or not);
    None: h of k by hashing. `known`: whether one side is the permanent response itself, as after
    many linked reports.
    """
    return sum(each.count * each.information for each in _lanes(params, width, known))


def linked_clients(params: RapporParams, width: int | None, *, known: bool = False) -> float:
    """Return m e^I: the N at which the information is ln(N/m), and more than half of links right.

    Parameters are those of `link_information`; infinite beyond what a double holds.
    """
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
    # Of equal reports in a cohort nobody can tell which is whose, and 2^k can differ.
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
    # Where L says next to nothing, rounding decides between messages; to look at each report by
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
    # What is below the grid never competes.
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

    All are on the grid, as `_placed` has it. The sum lies above the larger of both by what their
    difference decides, so each number of cells that it can be above takes a convolution.

    `grid`, shape (c,): equally far apart.
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
    """Return the distribution of X - Y, both on a grid whose middle cell is 0; ends hold the rest.

    It may add up to less than 1, as `first` may.
    """
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
