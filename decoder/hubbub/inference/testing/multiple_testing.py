"""From p-values to what may be called detected, and what follows from having picked it.

*Many candidates.* Benjamini and Hochberg's procedure holds alpha times the share of absent
candidates, so where most of a list is there it is too strict by far. That share is estimated
upwards and made use of (Storey, Taylor and Siegmund, Journal of the Royal Statistical Society B 66,
2004): candidates that are there hardly ever have p-values above 1/2, of the absent ones half do. No
p-value above 1/2 counts as a detection, however many others are there.

*Intervals.* Of strings near the limit those are detected whose noise was upward, so that the usual
interval holds the truth too rarely: its promise is about all candidates, not about the detected.
Here the distribution of the estimate is taken given that it passed its threshold, and the interval
holds 95% of the times *under that distribution*, for every share from 0 on. It is made as Feldman
and Cousins (Physical Review D 57, 1998) do: a share is inside if the estimate is among the
likeliest 95% for it, judged by its likelihood relative to the best share's. So no interval is empty
or goes below 0.

*Totals.* For the same reason the sum of the detected estimates is too high. By how much follows
without any assumption about the shares: for a normal estimate X of theta with variance sigma^2 and
a threshold c,

    E[(X - theta) 1{X > c}] = sigma^2 f(c),

f being the density of X (Stein, Annals of Statistics 9, 1981). Summed over all candidates it is the
density of their z-scores at the threshold, which can be seen on both sides of it. This holds
however the estimates depend on each other. Shares that have to add up give it back, each its part.
"""

from __future__ import annotations

import enum
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import special

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray
from hubbub.inference.testing.hash_null import HashNull

# Storey's lambda: above it nearly all p-values are of absent candidates.
_HALF = 0.5
LOG_HALF = float(np.log(_HALF))
"""ln of the largest p-value that can count as a detection."""
# p = 1 would be z = -infinity; that is 6 standard deviations below 0.
_LARGEST_LOG_P = -1e-9
# Keeps a quotient finite where p-values are alike.
_TINY = 1e-300


class Correction(enum.StrEnum):
    """The error rate that is held at alpha.

    BH holds the expected share of false names among those detected (the false discovery rate);
    BONFERRONI the chance of even one false name (the family-wise error rate).
    """

    BH = "bh"
    BONFERRONI = "bonferroni"


def z_scores(log_p: FloatArray) -> FloatArray:
    """Return the z-scores whose one-sided p-values these are.

    `log_p`: natural logarithms.
    """
    return np.asarray(-special.ndtri_exp(np.minimum(log_p, _LARGEST_LOG_P)))


def counted_tests(
    log_p: FloatArray,
    correction: Correction,
    n_candidates: int | None = None,
    log_weights: FloatArray | None = None,
) -> float:
    """Return by how many tests p-values have to be corrected: for BH those of absent candidates.

    `log_p` has shape (n,). `correction`: which error rate is bounded: false discoveries, or the
    chance of any false detection. `n_candidates`: of how many candidates these are the p-values;
    all others count as absent. `log_weights`, shape (n,): ln of the weights that divide
    p-values; their mean over all candidates is 1.

    Notes
    -----
    2 (1 + #{p > 1/2}), at most n (Storey et al. 2004, equation 2.4 and theorem 3). With weights
    each candidate counts by its own, and the largest takes the place of the 1 (Ramdas, Barber,
    Wainwright, Jordan 2019, section 3).
    """
    total = n_candidates or len(log_p)
    if correction is Correction.BONFERRONI:
        return float(total)
    if log_weights is None:
        largest, above = 1.0, float(np.count_nonzero(log_p > LOG_HALF)) + total - len(log_p)
    else:
        weights = np.exp(log_weights)
        largest = float(weights.max())
        above = float(weights[log_p > LOG_HALF].sum()) + max(total - float(weights.sum()), 0.0)
    return min((largest + above) / _HALF, float(total))


def log_q_values(
    log_p: FloatArray, correction: Correction, n_tests: float | None = None, elsewhere: int = 0
) -> FloatArray:
    """Return ln of the smallest alpha at which each candidate is detected.

    `log_p`, shape (n,): natural logarithms, because a strong candidate's p-value underflows.
    `correction`: Benjamini and Hochberg 1995, or Bonferroni. `n_tests`: by how many tests to
    correct (`counted_tests`): n if not given. `elsewhere`: how many others are detected at the same
    error rate; any share of them may be false.

    Examples
    --------
    >>> log_p = np.log([0.001, 0.02, 0.5])
    >>> np.exp(log_q_values(log_p, Correction.BONFERRONI)).round(3).tolist()
    [0.003, 0.06, 1.0]
    >>> np.exp(log_q_values(log_p, Correction.BH)).round(3).tolist()
    [0.003, 0.03, 0.5]
    """
    order = np.argsort(log_p)  # equal ones are adjusted alike, whatever their order
    stepped = log_p[order]
    stepped += np.log(n_tests or max(len(log_p), 1))
    if correction is Correction.BH:
        stepped -= np.log(np.arange(1, len(log_p) + 1) + elsewhere)
        np.minimum.accumulate(stepped[::-1], out=stepped[::-1])
    adjusted = np.empty(len(log_p))
    adjusted[order] = np.minimum(stepped, 0.0, out=stepped)
    if n_tests is not None:
        adjusted[log_p > LOG_HALF] = 0.0
    return adjusted


def log_cutoff(detected: int, n_tests: float, log_alpha: float, correction: Correction) -> float:
    """Return ln of the largest p-value that counts as a detection.

    For Benjamini-Hochberg it follows from how many are detected and how many have p-values above
    1/2, and is what a detected candidate had to stay below whatever its own p-value.
    """
    steps = max(detected, 1) if correction is Correction.BH else 1
    return float(min(log_alpha + np.log(steps / n_tests), LOG_HALF))


def local_false_rates(weighted: FloatArray, n_tests: float) -> FloatArray:
    """Return how likely each hypothesis is to be true, given about how small its p-value is.

    Of n true ones, n du have weighted p-values in du; the density of all of them falls with u, and
    is estimated with nothing else supposed (Grenander 1956; Efron et al. 2001; Strimmer 2008).

    `weighted`, shape (n,): p-values, divided by weights whose mean is 1 over all that were tested.
    `n_tests`: how many were, those included of which the largest p-values were left out.
    """
    from scipy.optimize import isotonic_regression  # noqa: PLC0415 - slow, and seldom needed

    values, where, n_each = np.unique(
        np.minimum(weighted, 1.0), return_inverse=True, return_counts=True
    )
    widths = np.maximum(np.diff(values, prepend=0.0), _TINY)
    density = isotonic_regression(n_each / widths, weights=widths, increasing=False).x
    return np.asarray(np.minimum(n_tests / density, 1.0)[where])


# Candidates within half a standard error of their cutoff show how dense they are there: narrower
# has too few of them, wider isn't there.
_HALF_WIDTH = 0.5
# The correction is known to about 40%: its error is added to the total's.
_RELATIVE_ERROR = 0.4


def selection_bias(
    share: FloatArray,
    std_error: FloatArray,
    log_p: FloatArray,
    detected: BoolArray,
    log_cutoff: FloatArray | float,
    n_absent: float,
    typical: float | None = None,
) -> tuple[float, float]:
    """Return by how much the sum of the detected is expected to be too high, and its variance.

    `share` and `std_error` and `log_p`, shape (n,): of all candidates; nan where they aren't
    determined. `detected` has shape (n,). `log_cutoff` has shape (n,). `n_absent`: about how many
    candidates are absent. `typical`: the median standard error of all candidates, if these are some
    of them: at least those within half a standard error of the limit of detection.

    Notes
    -----
    The density at the threshold is that of the absent candidates, which is normal and steep there,
    and a kernel estimate of what is seen within half a standard error beyond that. The variance is
    that of what is counted and, because errors are only nearly normal and the density isn't
    straight, the square of 0.4 times the bias, with which intervals held in simulated populations
    (docs/understand/statistics.md).
    """
    known = ~np.isnan(share)
    if not detected.any():
        return 0.0, 0.0
    z = z_scores(log_p[known])
    cutoffs = z_scores(np.asarray(log_cutoff))
    if cutoffs.ndim:
        cutoffs = cutoffs[known]
    near = np.abs(z - cutoffs) < _HALF_WIDTH
    scale = std_error[known][near]
    within = special.ndtr(cutoffs + _HALF_WIDTH) - special.ndtr(cutoffs - _HALF_WIDTH)
    at_cutoffs = np.exp(-(cutoffs**2) / 2) / np.sqrt(2 * np.pi)
    of_absent = float(np.mean(at_cutoffs - within / (2 * _HALF_WIDTH)))
    if typical is None:
        typical = float(np.median(std_error[known]))
    bias = float(scale.sum()) / (2 * _HALF_WIDTH) + n_absent * of_absent * typical
    counted = float(scale @ scale) / (2 * _HALF_WIDTH) ** 2
    return bias, counted + (_RELATIVE_ERROR * bias) ** 2


CONFIDENCE = 0.95  # by convention
Z_CONFIDENCE = float(special.ndtri((1 + CONFIDENCE) / 2))
# The grid of errors, in standard errors: ends are interpolated between cells of .04. It goes
# further to the right, where errors are heavier if strong unlisted strings may collide with a
# candidate.
_STEP = 0.04
_LOWEST, _HIGHEST = -14.0, 24.0
_THRESHOLD_STEP = 2 * _STEP  # so that shares, thresholds and errors share one grid
# Above a threshold: shares of which such an estimate would be a 14-sigma accident, and estimates
# that no such share gives.
_SHARES_BEYOND, _ESTIMATES = 14.0, round(20.0 / _STEP)
# Further above its threshold an estimate isn't touched by the selection: the interval is the usual
# one.
_FAR = 8.0
_NEAR_MOST = 6.0
"""Standard errors below the largest share from which on that makes no difference."""
_LEAST_STEP = 1e-9  # the distribution ends where its grid stands still


class ErrorDistribution:
    """The distribution of an estimate's error in standard errors, on a grid.

    `null`: whose shape it has: heavy to the right where a few strong unlisted strings may collide
    with a candidate. None, and a distribution of few outcomes, stand for the normal distribution.
    """

    def __init__(self, null: HashNull | None = None) -> None:
        edges = np.arange(_LOWEST, _HIGHEST + _STEP / 2, _STEP)
        known = null.standardised() if null else None
        if known is None:
            log_tails = special.log_ndtr(-edges)
        else:
            z, tails = known
            steepest = (tails[-1] - tails[-2]) / max(z[-1] - z[-2], _LEAST_STEP)
            beyond = tails[-1] + steepest * np.maximum(edges - z[-1], 0)
            log_tails = np.where(edges > z[-1], beyond, np.interp(edges, z, tails, left=0.0))
        chances = np.maximum(-np.diff(np.exp(log_tails)), np.finfo(float).tiny)
        self._chances = chances / chances.sum()
        self._known: dict[tuple[int, int, int], tuple[float, float]] = {}

    def quantiles(self) -> tuple[float, float]:
        """Return the errors that 2.5% fall below, and 2.5% exceed."""
        upper_edges = _LOWEST + _STEP * (np.arange(len(self._chances)) + 1)
        low, high = np.interp(
            [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], np.cumsum(self._chances), upper_edges
        )
        return float(low), float(high)

    def bounds(
        self, estimate: float, threshold: float, most: float = np.inf
    ) -> tuple[float, float]:
        """Return the interval of a detected share; all in standard errors.

        `estimate`: the estimate. `threshold`: which it had to pass; at least 0. `most`: the largest
        share that there can be.
        """
        step = round(threshold / _THRESHOLD_STEP)
        highest = step * _THRESHOLD_STEP + _SHARES_BEYOND
        if most < estimate + _NEAR_MOST:
            highest = min(most, highest)
        end = round(highest / _STEP)
        above = (estimate - step * _THRESHOLD_STEP) / _STEP
        column = int(np.clip(above, 0, _ESTIMATES - 1))
        if (step, end, column) not in self._known:
            self._known[step, end, column] = self._bounds(step * _THRESHOLD_STEP, end, column)
        return self._known[step, end, column]

    def _bounds(self, threshold: float, end: int, column: int) -> tuple[float, float]:
        """Return the bounds for one of the estimates above a threshold, of so many steps of shares.

        A share is inside if estimates whose ratio of likelihoods is larger have less than 95%.
        """
        # An estimate's cell is that of its error: a share higher by a step is a cell lower.
        first = round((threshold - _LOWEST) / _STEP)
        cells = np.pad(self._chances, (0, first), mode="edge")
        shares = slice(first - end, first + 1)
        rows = sliding_window_view(cells, _ESTIMATES)[shares][::-1]
        totals = rows.sum(axis=1)
        ratios = sliding_window_view(np.log(cells), _ESTIMATES)[shares][::-1]
        ratios = ratios - np.log(totals)[:, None]
        best = int(ratios[:, column].argmax())
        ratios -= ratios.max(axis=0)
        likelier = ratios > ratios[:, column, None]
        inside = np.einsum("ij,ij->i", rows, likelier) < CONFIDENCE * totals
        inside[best] = True
        low, high = np.flatnonzero(inside)[[0, -1]] * _STEP
        return max(low - _STEP / 2, 0.0), high + _STEP / 2  # a share stands for its cell


@cache
def _normal() -> ErrorDistribution:
    return ErrorDistribution()


def reported_intervals(
    share: FloatArray,
    std_error: FloatArray,
    detected: IntArray,
    threshold: FloatArray,
    null: HashNull,
) -> tuple[FloatArray, FloatArray]:
    """Return 95% intervals: plain ones, and of the detected those that hold given detection.

    `share` and `std_error` have shape (n,). `detected`, shape (d,): the detected candidates.
    `threshold`, shape (d,): shares above which they are detected. `null`: distribution of an absent
    candidate's score, whose shape the errors have.
    """
    half_width = Z_CONFIDENCE * std_error
    low, high = share - half_width, share + half_width
    if len(detected):
        low[detected], high[detected] = after_selection(
            share[detected], std_error[detected], threshold, ErrorDistribution(null)
        )
    return low, high


def after_selection(
    share: FloatArray,
    std_error: FloatArray,
    threshold: FloatArray,
    noise: ErrorDistribution | None = None,
    unselected: tuple[FloatArray, FloatArray] | None = None,
    most: float = np.inf,
) -> tuple[FloatArray, FloatArray]:
    """Return 95% intervals that hold given that each estimate passed its threshold.

    `share` and `std_error` and `threshold`, shape (d,): estimates, at least their thresholds, which
    are at least 0. `noise`: by default the normal distribution. `unselected`, shape (d,): intervals
    of estimates that are so far above that selection doesn't touch them; by default those of the
    noise. `most`: the largest share that there can be, if that matters. Returns `low, high`, shape
    (d,).
    """
    distribution = noise or _normal()
    lowest, highest = distribution.quantiles()
    low, high = unselected or (share - highest * std_error, share - lowest * std_error)
    low, high = low.copy(), high.copy()
    estimate, needed = share / std_error, np.maximum(threshold / std_error, 0.0)
    for i in np.flatnonzero(estimate - needed < _FAR):
        bounds = distribution.bounds(float(estimate[i]), float(needed[i]), most / std_error[i])
        low[i], high[i] = (min(bound * std_error[i], most) for bound in bounds)
    return low, high


_FARTHEST_SHARE = 1e4  # standard errors below 0; from there on the interval no longer shrinks
# Grid steps, of which each is .04% of its place: interpolated ends are exact to 5 digits.
_SHARE_STEPS = 20_001


class ShareInterval(NamedTuple):
    """Lower and upper ends, each a float64 array of the estimates' shape."""

    low: FloatArray
    high: FloatArray


def share_interval(estimate: FloatArray, std_error: FloatArray) -> ShareInterval:
    """Return 95% confidence intervals of shares, which lie between 0 and 1.

    Cutting the usual interval off at 0 would leave nothing of some. The construction of Feldman and
    Cousins (Physical Review D 57, 1998) holds the confidence at every share, 0 included, and never
    gives an empty interval.

    `estimate`: unbiased and about normal; may fall outside [0, 1]. `std_error`: above 0.

    Notes
    -----
    In standard errors from the nearer end of [0, 1], with truth mu >= 0 and estimate x: the values
    of x that are accepted at mu are those of greatest likelihood ratio against the best mu that is
    possible, max(x, 0). For mu >= z = 1.96 these are mu - z to mu + z. For mu < z they run from
    mu - u < 0 to mu + t with

        Phi(t) = 0.95 + Phi(-u),        mu = u - sqrt(u^2 - t^2),

    because exp(-t^2/2) = exp(mu (mu - u) - mu^2/2) at both ends. u >= z parametrises the curve. The
    interval is the set of mu that accept x, which beyond 2z is x - z to x + z. The other end of
    [0, 1] is taken to be far away; where standard errors are so large that it isn't, what lies
    beyond is cut off.
    """
    from_top = estimate > 0.5
    x = np.where(from_top, 1 - estimate, estimate) / std_error
    mu, lowest, highest = _accepted()
    low = np.where(x > 2 * Z_CONFIDENCE, x - Z_CONFIDENCE, np.interp(x, highest, mu, left=0.0))
    high = np.where(x >= 0, x + Z_CONFIDENCE, np.interp(x, lowest, mu))
    low, high = np.clip(low * std_error, 0.0, 1.0), np.clip(high * std_error, 0.0, 1.0)
    return ShareInterval(np.where(from_top, 1 - high, low), np.where(from_top, 1 - low, high))


@cache
def _accepted() -> tuple[FloatArray, FloatArray, FloatArray]:
    u = np.geomspace(_FARTHEST_SHARE, Z_CONFIDENCE, _SHARE_STEPS)
    t = special.ndtri(CONFIDENCE + special.ndtr(-u))
    t[-1] = Z_CONFIDENCE
    root = np.sqrt(u**2 - t**2)
    mu = t**2 / (u + root)  # = u - root, without the cancellation
    return mu, -root, mu + t
