"""How small a share of the population can be found: the theory, before any report is collected.

A string is detected if its one-sided test at level alpha / n rejects, so the share that is found
with a given power lies z_level standard errors of an absent string and z_power of a present one
above 0. Both errors follow from (k, h, m, p*, q*) and N; docs/understand/planning.md derives them
and compares them with simulations. They are of counts of bits: whole reports find no
less. All functions are pure.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from hubbub.inference import SEARCHED, PlanError, is_short
from hubbub.protocol import RapporParams

MOST_REPORTS = 1e15
"""For which these formulas are computed: counts and the reports themselves stay exact doubles."""

_STEPS = 200  # measured: two to twenty; more as unlisted strings weigh more
_CLOSE = 1e-7  # relative: far below the four digits that are printed, so that curves are smooth
_CLOSE_REPORTS = 1e-6  # of a logarithm: as many digits of a number of reports are right
_EULER = 0.5772156649015329  # Euler's constant, of the harmonic numbers


def bit_rate(k: int, h: int) -> float:
    """Return b = 1 - (1 - 1/k)^h, the chance that a random string sets a given bit."""
    return 1.0 - (1.0 - 1.0 / k) ** h


def filter_variance(k: int, h: int) -> float:
    """Return the mean variance of a random string's bits over the k positions: b - E[D^2]/k^2.

    D is the number of its distinct bits. Its filter has D ones, so this is less than b(1 - b) by
    what D itself varies.
    """
    two_bits = 1 - 2 * (1 - 1 / k) ** h + (1 - 2 / k) ** h  # the chance that it sets two given bits
    return (1 - 1 / k) * (bit_rate(k, h) - two_bits)


@dataclass(frozen=True, slots=True)
class DetectionTest:
    """The test that a plan answers; raises `PlanError` if a number is out of range."""

    candidates: float  # n, strings that are tested
    # Chance of even one false name (Bonferroni). Benjamini-Hochberg at the same alpha finds the
    # share, too, and smaller ones if there are many to find.
    alpha: float = 0.05
    # Probability with which a string of the limit's share is to be found, above 1/2.
    power: float = 0.9
    # Sum of the squared shares of the strings that aren't detected; None takes Zipf's law, below
    # the limit.
    concentration: float | None = None
    # Over how many strings Zipf's law is taken; None: over the candidates.
    strings: float | None = None
    # R, reports that each client makes of one permanent response. All functions here take the
    # number of clients.
    reports_each: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what has no answer."""
        _require("candidates", self.candidates, 1, math.inf)
        _require("alpha", self.alpha, 0, 1, open_ended=True)
        _require("power", self.power, 0.5, 1, open_ended=True)
        if self.concentration is not None:
            _require("concentration", self.concentration, 0, 1)

    @property
    def level(self) -> float:
        """The level of one test, alpha / n: what the first detection needs."""
        return self.alpha / self.candidates

    def scatter(self, limit: float) -> float:
        """Return the undetected strings' sum of squared shares if `limit` is the limit.

        By Zipf's law the share of rank r is C / r with C = 1 / (1 + 1/2 + ... + 1/n); the squares
        of those below the limit add up to about C limit.
        """
        if self.concentration is not None:
            return self.concentration
        strings = self.strings or self.candidates
        harmonic = math.log(strings) + _EULER + 1 / (2 * strings)
        return min(limit, 1.0) / harmonic


@dataclass(frozen=True, slots=True)
class Errors:
    """Standard errors of a string's estimated share."""

    # For an absent string, as its test supposes, and for the share that was asked about.
    absent: float
    present: float
    skewness: float  # of the test's statistic if it is absent

    def threshold(self, z: float) -> float:
        """Return the estimate from which on a string is detected, z being that of the level."""
        return corrected(z, self.skewness) * self.absent


def detection_limit(params: RapporParams, n_clients: float, test: DetectionTest) -> float:
    """Return the smallest share that N clients' reports show with the test's power, or inf."""
    _require("n_clients", n_clients, 0, math.inf, open_ended=True)
    z, z_power = _level_z(params, test), float(special.ndtri(test.power))
    share = 0.0
    for _ in range(_STEPS):  # ascends to the least fixed point: both errors grow with the share
        errors = string_errors(params, n_clients, share, test)
        needed = errors.threshold(z) + z_power * errors.present
        if needed > 1:
            return math.inf
        if needed - share <= _CLOSE * needed:
            return needed
        share = needed
    return math.inf


def detection_power(
    params: RapporParams, n_clients: float, share: float, test: DetectionTest
) -> float:
    """Return the probability that a string of a given share is found."""
    errors = string_errors(params, n_clients, share, test)
    threshold = errors.threshold(_level_z(params, test))
    return float(special.ndtr((share - threshold) / errors.present))


def least_reaching(reaches: Callable[[float], bool], high: float, close: float) -> float:
    """Return the least number that reaches something which all larger ones do, too.

    Infinite if not even `high` does. Limits of bits fall in small jumps, so the interval from 0 is
    halved, until it is `close`, rather than interpolated.
    """
    if not reaches(high):
        return math.inf
    low = 0.0
    while high - low > close:
        middle = (low + high) / 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high


def reports_reaching(value: Callable[[float], float], wanted: float) -> float:
    """Return the least number of reports at which a value that falls with them is what is wanted.

    Infinite if `MOST_REPORTS` aren't enough, such as where unlisted strings' bits leave an error
    that more reports don't lower.
    """
    high = math.log(MOST_REPORTS)
    return math.exp(
        least_reaching(lambda log_n: value(math.exp(log_n)) <= wanted, high, _CLOSE_REPORTS)
    )


def string_errors(
    params: RapporParams, n_clients: float, share: float, test: DetectionTest
) -> Errors:
    """Return the errors of a string of a given share.

    They are those of the sum of bit rates at a string's h positions in m cohorts, less their mean:
    over the positions of one cohort the rates vary by the coins of the two responses, by which
    strings the reports drew, by unlisted ones, and by the string's own raised bits.
    """
    k, h = params.k, params.h
    b, filters, each = bit_rate(k, h), filter_variance(k, h), test.reports_each
    per_cohort = n_clients / params.m
    unlisted = filters * test.scatter(share) * per_cohort
    raised = filters * share**2 * per_cohort
    drawn = (1 - share) * (filters + h * share * (1 - b) ** 2)
    seen = b + share * (1 - b)
    of_absent = (1 - 1 / k) * coin_variance(params, b, each) + filters + unlisted + raised
    of_present = (1 - 1 / k) * coin_variance(params, seen, each) + drawn + unlisted
    scale = n_clients * h * (1 - b) ** 2
    return Errors(
        absent=math.sqrt(of_absent / scale),
        present=math.sqrt(of_present / scale),
        skewness=_skewness_of_counts(params, n_clients, share / math.sqrt(of_absent - raised)),
    )


def _level_z(params: RapporParams, test: DetectionTest) -> float:
    """Return the z of the level at which one string is tested; in a search a little higher."""
    searches = not is_short(test.candidates, params.k * params.m)
    # With `strings` given, n is the number of candidates that a search was measured to equal.
    raised = SEARCHED if searches and test.strings is None else 1.0
    return -float(special.ndtri(test.level / raised))


def corrected(z: float, skewness: float) -> float:
    """Return the normal threshold moved for a slight skewness (Cornish and Fisher).

    Skewness that helps lowers it by a quarter at most: beyond that the expansion means nothing.
    """
    return z + max(skewness * (z * z - 1) / 6, -z / 4)


def _skewness_of_counts(params: RapporParams, n_clients: float, raised: float) -> float:
    """Skewness of the sum over h m random bits: binomial counts, and own bits that are raised.

    `raised` is the share in standard deviations of one report's bit.
    """
    b, draws = bit_rate(params.k, params.h), params.h * params.m
    p_star, q_star = _star_rates(params)
    slope = q_star - p_star
    rate = p_star + slope * b
    of_counts = math.copysign(1.0, slope) * (1 - 2 * rate)
    of_counts /= math.sqrt(n_clients * params.h * rate * (1 - rate))
    in_cell = raised * math.sqrt(n_clients / params.m)
    return of_counts + b * (1 - b) * (1 - 2 * b) * in_cell**3 / math.sqrt(draws)


@functools.lru_cache(maxsize=1024)
def _star_rates(params: RapporParams) -> tuple[float, float]:
    return params.p_star, params.q_star


def coin_variance(params: RapporParams, rate: float, reports_each: float = 1.0) -> float:
    """Return the two responses' part in the variance of a true bit's rate, from one client.

    ((1 - rate) v_0 + rate v_1) / (q* - p*)^2, where v_0 = p*(1 - p*) and v_1 = q*(1 - q*) from one
    report. R reports repeat the permanent response, so then v_0 = f0(1 - f0)(q - p)^2 +
    (f0 q(1 - q) + (1 - f0) p(1 - p))/R, and v_1 the same with f1, and p and q exchanged.
    """
    p_star, q_star = _star_rates(params)
    of_zero, of_one = p_star * (1 - p_star), q_star * (1 - q_star)
    if reports_each > 1:
        permanent = (params.q - params.p) ** 2
        kept_zero, kept_one = params.f0 * (1 - params.f0), params.f1 * (1 - params.f1)
        of_zero = (of_zero + (reports_each - 1) * kept_zero * permanent) / reports_each
        of_one = (of_one + (reports_each - 1) * kept_one * permanent) / reports_each
    return ((1 - rate) * of_zero + rate * of_one) / (q_star - p_star) ** 2


def equivalent_reports(params: RapporParams, n_clients: float, reports_each: float) -> float:
    """Return how many clients with one report estimate an absent share as well."""
    one = coin_variance(params, 0.0)
    return n_clients * (one / coin_variance(params, 0.0, reports_each))  # 1 exactly for one each


def cells_error(
    params: RapporParams,
    cells: int,
    summed: int = 1,
    share: float = 0.0,
    reports_each: float = 1.0,
) -> float:
    """Return the standard error of the share of some cells together, times the root of N clients.

    With d_c a cell's noise from both responses, D the sum of them and pi_c its share, the estimates
    that add up to 1 have the covariance diag(d) - d d^T / D + diag(pi) - pi pi^T, over N
    (`categories.shares.estimate_categories`). d_c is a line in pi_c, so a sum over cells needs how
    many they are and their share together, not how it is divided.
    """
    empty, full = (coin_variance(params, rate, reports_each) for rate in (0.0, 1.0))
    noise = summed * empty + share * (full - empty)
    of_all = cells * empty + full - empty
    return math.sqrt(max(noise - noise**2 / of_all, 0.0) + share * (1 - share))


def bit_limit(params: RapporParams, n_clients: float, test: DetectionTest) -> float:
    """Return the smallest share of a cell with a bit of its own that is detected with the power.

    Infinite if none is. A bit of an empty cell is 1 in Binomial(N, p*) reports, and of a
    share pi in Binomial(N, p* + pi (q* - p*)): both tails are exact if each client reports once.
    Otherwise they are those of `equivalent_reports`.
    """
    p, q = _rates(params)
    n_reports = equivalent_reports(params, n_clients, test.reports_each)
    threshold = _threshold(n_reports, p, test.level)
    if threshold > n_reports:
        return math.inf
    rate = float(special.betaincinv(threshold, n_reports - threshold + 1, test.power))
    share = (rate - p) / (q - p)
    return share if share <= 1 else math.inf


def bit_power(params: RapporParams, n_clients: float, share: float, test: DetectionTest) -> float:
    """Return the probability that a cell of a share with a bit of its own is detected."""
    p, q = _rates(params)
    n_reports = equivalent_reports(params, n_clients, test.reports_each)
    threshold = _threshold(n_reports, p, test.level)
    rate = p + share * (q - p)
    return float(special.betainc(threshold, max(n_reports - threshold, 0) + 1, rate))


def _rates(params: RapporParams) -> tuple[float, float]:
    p, q = params.p_star, params.q_star
    return (p, q) if p < q else (1 - p, 1 - q)


def _threshold(n_reports: float, rate: float, level: float) -> int:
    low, high = 0, math.floor(n_reports) + 1  # which is never reached
    while high - low > 1:
        middle = (low + high) // 2
        reached = special.betainc(middle, n_reports - middle + 1, rate) <= level
        low, high = (low, middle) if reached else (middle, high)
    return high


def fewest_cohorts(k: int, h: int, level: float) -> int:
    """Return the least m with which a test at `level` works as in theory.

    A p-value is never below k^-(h m) (see `hash_null`), and the statistic is close to normal only
    if no single bit must decide: z^2 / (h m) is kept below 1.
    """
    z = -float(special.ndtri(level))
    floor = -math.log(level) / (h * math.log(k))
    return max(1, math.ceil(floor), math.ceil(z * z / h))


def _require(name: str, value: float, low: float, high: float, *, open_ended: bool = False) -> None:
    inside = low < value < high if open_ended else low <= value <= high
    if not inside or not np.isfinite(value):
        bounds = f"above {low:g} and below {high:g}" if open_ended else f"{low:g} to {high:g}"
        raise PlanError(f"{name} = {value:g}: must be a number {bounds}")
