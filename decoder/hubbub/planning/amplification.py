"""The central (epsilon, delta) of one client among N shuffled ones, from above.

An observer of N clients' shuffled reports doesn't know which are whose. A theorem that knows the
likelihood ratios of RAPPOR's own reports turns that into an upper bound.

All reports that a client makes of one permanent response are one message: its cohort and permanent
noise are in each of them, so days aren't independent and their figures don't add up. Only answers
with fresh cohorts and fresh noise (``memory = "period"``) compose.

The theorem needs E[(X_1 + ... + X_N)_+] of independent draws of a variable with few values.
The values move to a lattice, each split between its two neighbours so that the mean stays: that
makes the sum more spread out in the convex order, and so its positive part larger, never smaller.
The distribution of the sum follows by one Fourier transform; what that could lose is bounded and
added.

Invariant: every rounding, cut and discretisation makes delta larger. docs/understand/proofs.md has
the proofs.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import fft, optimize

from hubbub.decoder import decoder_of
from hubbub.inference import FloatArray, IntArray, Ratios, cell_ratios
from hubbub.planning.histories import ROUNDED_UP, constant_epsilon, most_periods
from hubbub.protocol import UNARY, Metric

# Finer lattices lower the bound, coarser ones only raise it: a choice of time, not of truth.
_CELLS_OF_A_DEVIATION = 24
_FEWEST_CELLS, _MOST_CELLS = 2**12, 2**19  # of a transform: 4 MB at most
_HALF_WIDTHS = (12.0, 24.0, 48.0, 96.0, 192.0)  # of the window, in standard deviations
_SMALL = 1e-3  # of the resolution: what may fall outside the window
_UNIT = 2.0**-52  # of a double's rounding
_TINY = 1e-300  # stands for 0 in logarithms and quotients: the least power of ten but for a few
_NEVER = 1e-12  # relative: what rounding leaves of a value that can't be positive
_ROUNDING = 1e-9  # relative: of sums of doubles, and of means that the lattice keeps but for those
_MOST_STEPS = 60  # halving alone would end within them
_RELATIVE = 2e-4  # of epsilon, of which four digits are printed; it is rounded up
_SLACK = 1e-11  # relative: of a quotient of doubles


def mean_positive_part(
    values: FloatArray, chance: FloatArray, n_draws: int, resolution: float
) -> float:
    """Return an upper bound on E[(X_1 + ... + X_n)_+] of n draws.

    `values` and `chance` have shape (a,); what is missing to 1 is the chance of 0. The window grows
    until what it may leave out is far below `resolution`.
    """
    at_most = n_draws * float(chance @ np.maximum(values, 0.0))
    if values.max() <= _NEVER * np.abs(values).max():
        return at_most  # no draw is positive, but for rounding
    tilt = _tilt(values, chance)
    lifted, _ = _tilted(values, chance, tilt)
    deviation = math.sqrt(n_draws * max(float(lifted @ values**2 - (lifted @ values) ** 2), _TINY))
    for half_width in _HALF_WIDTHS:
        cells, step = _lattice(half_width * deviation, values, chance)
        places, weights = _on_lattice(values / step, chance)
        top = cells // 2
        lost = _beyond(places, weights, n_draws, top)
        if lost * step <= _SMALL * resolution:
            break
    inside = _inside(places, weights, n_draws, top, tilt * step)
    bound = step * (inside + lost) * (1 + _ROUNDING + 16 * _UNIT * n_draws)
    return min(bound, at_most)


def _tilt(values: FloatArray, chance: FloatArray) -> float:
    """Return the t >= 0 at which draws weighted by e^(tX) have mean 0 (or 0, if it's there)."""
    if chance @ values >= 0:
        return 0.0

    def mean(tilt: float) -> float:
        return float(_tilted(values, chance, tilt)[0] @ values)

    highest = 1 / float(values.max())
    while mean(highest) < 0:
        highest *= 2
    return float(optimize.brentq(mean, 0, highest, rtol=1e-6))


def _tilted(values: FloatArray, chance: FloatArray, tilt: float) -> tuple[FloatArray, float]:
    """Return probabilities in proportion to e^(tX), 0 included, and the log of their sum."""
    exponents = tilt * values
    highest = max(float(exponents.max()), 0.0)
    weights = chance * np.exp(exponents - highest)
    none = max(1.0 - float(chance.sum()), 0.0) * math.exp(-highest)
    total = float(weights.sum()) + none
    return weights / total, highest + math.log(total)


def _lattice(half_width: float, values: FloatArray, chance: FloatArray) -> tuple[int, float]:
    deviation = math.sqrt(float(chance @ values**2) / float(chance.sum()))
    wanted = 2 * half_width / deviation * _CELLS_OF_A_DEVIATION
    cells = min(max(2 ** math.ceil(math.log2(max(wanted, 1.0))), _FEWEST_CELLS), _MOST_CELLS)
    return cells, 2 * half_width / cells


def _on_lattice(scaled: FloatArray, chance: FloatArray) -> tuple[IntArray, FloatArray]:
    below = np.floor(scaled)
    upper = (scaled - below) * chance
    places = np.concatenate([below, below + 1, [0.0]]).astype(np.int64)
    return places, np.concatenate([chance - upper, upper, [max(1.0 - chance.sum(), 0.0)]])


def _beyond(places: IntArray, weights: FloatArray, n_draws: int, top: int) -> float:
    deviation = math.sqrt(n_draws * float(weights @ places.astype(np.float64) ** 2))
    slopes = np.maximum(np.geomspace(0.5, 200, 60) / deviation, 1 / top)
    exponents = slopes[:, None] * places
    highest = exponents.max(axis=1)
    cumulants = highest + np.log(np.exp(exponents - highest[:, None]) @ weights)
    return top * math.exp(min(float(np.min(n_draws * cumulants - slopes * top)), 700.0))


def _inside(
    places: IntArray, weights: FloatArray, n_draws: int, cells_above: int, tilt: float
) -> float:
    """Return E[S_+; S < top] plus a bound on the transforms' error; the window has 2 top cells.

    The distribution is tilted by e^(tS), so that what matters isn't in its tail, and tilted back
    afterwards: errors are then small against the result. Mass from outside of the window is folded
    into it, which can only add.
    """
    cells = 2 * cells_above
    tilted, log_total = _tilted(places.astype(np.float64), weights, tilt)
    distribution = np.zeros(cells)
    np.add.at(distribution, places % cells, tilted)
    transform = fft.rfft(distribution)
    # Most of the powers underflow, and are left out: each is less than 1e-300, and the bound on the
    # error is at least 1e-20 and counts double.
    size, least = np.abs(transform), math.exp(-700 / n_draws)
    counted = size > least
    power = np.zeros_like(transform)
    power[counted] = transform[counted] ** n_draws
    law_of_sum = fft.irfft(power, cells)
    sums = np.arange(1, cells_above)
    worth = sums * np.exp(n_draws * log_total - tilt * sums)
    # A transform of a probability vector is off by at most this; a power of it by n |.|^(n-1) times
    # that, and the inverse transform averages over the frequencies.
    error = 4 * _UNIT * math.log2(cells)
    slopes = float(np.sum(size[counted] ** (n_draws - 1)))
    slopes += np.count_nonzero(~counted) * least ** (n_draws - 1)
    each = error * (n_draws + 1) * slopes / len(size) * 2
    return float(worth @ (np.maximum(law_of_sum[sums], 0.0) + each))


@lru_cache(maxsize=64)  # one report is asked for twice where there is no other
def amplified_epsilon(metric: Metric, clients: int, delta: float, reports: int = 1) -> float:
    """Bound what N clients' reports, shuffled, reveal about one of the clients.

    Clients follow the protocol, report at the same times, `reports` each of one permanent response,
    and the observer may know their values. Reports may be shuffled together, or those of each day
    by themselves: that only reveals less. Never more than one client's reports alone, linked.
    """
    if clients < 1 or not 0 < delta < 1:
        raise ValueError(f"clients = {clients}, delta = {delta}: must be >= 1 and in (0, 1)")
    local = metric.epsilon_after(reports)
    worst = (
        decoder_of(metric).report_ratios(metric.params, reports)
        if metric.response == UNARY
        else (cell_ratios(metric.response),)
    )
    return min(local, max(blanket_epsilon(ratios, clients, delta, local) for ratios in worst))


def central_epsilon(metric: Metric, days: int, clients: int, delta: float) -> float:
    """Bound what N clients reveal of one in T days, each of which is shuffled by itself.

    With ``memory = "value"`` that holds for clients whose value stays the same, of whom there are
    N. With periods it holds for any histories: each period is taken to hold as many days as it can,
    and spends the same part of delta (sequential composition). Of mode "once" each period has one
    report, shuffled among N of its day.
    """
    if metric.one_time:
        return amplified_epsilon(metric, clients, delta)
    if metric.memory == "value":
        return amplified_epsilon(metric, clients, delta, days)
    periods = most_periods(metric, days)
    longest = 1 if metric.reports_once else min(days, metric.period_days)
    each = amplified_epsilon(metric, clients, delta / periods * (1 - _SLACK), longest)
    return min(periods * each * ROUNDED_UP, constant_epsilon(metric, days))


def blanket_epsilon(ratios: Ratios, n_reports: int, delta: float, local: float) -> float:
    """Return an epsilon in [0, local] at which the blanket's bound on delta is small enough.

    Steps are secants of ln delta over epsilon^2, nearly a line, as of a normal distribution, and
    aim a little high; where one leaves the bracket, it is halved. Whatever is returned was checked,
    or is `local`, at which delta is 0.
    """

    def delta_at(epsilon: float) -> float:
        return blanket_delta(ratios, n_reports, epsilon, delta)

    at_zero = delta_at(0.0)
    if at_zero <= delta:
        return 0.0
    square, found = 0.0, math.log(at_zero / delta)
    low, high = 0.0, local
    # Start from the normal distribution with this mean positive part.
    epsilon = at_zero * math.sqrt(4 * math.pi * found)
    for _ in range(_MOST_STEPS):
        if not low < epsilon < high:
            epsilon = (low + high) / 2
        before, at_before = square, found
        square, found = epsilon * epsilon, math.log(max(delta_at(epsilon), _TINY) / delta)
        slope = (found - at_before) / (square - before)
        root = math.sqrt(max(square - found / slope, 0.0)) if slope < 0 else 0.0
        if found > 0:
            low = epsilon
        else:
            high = epsilon
            if root > high * (1 - _RELATIVE):
                break
        if high <= low * (1 + _RELATIVE):
            break
        epsilon = root * (1 + _RELATIVE / 2)
    return high


def blanket_delta(
    ratios: Ratios, n_reports: int, epsilon: float, resolution: float = 1e-9
) -> float:
    """Return delta at epsilon from the reports' own likelihood ratios.

    E[(sum of N draws of X)_+] / (N gamma): X is 0 with probability 1 - gamma, and otherwise `first`
    - e^epsilon `second` of a report from the blanket (Balle et al. 2019, section 5). Errors of the
    arithmetic, always added, are small against the `resolution`.
    """
    values = ratios.first - math.exp(epsilon) * ratios.second
    scale = n_reports * ratios.blanket
    chance = ratios.blanket * ratios.chance
    return mean_positive_part(values, chance, n_reports, resolution * scale) / scale
