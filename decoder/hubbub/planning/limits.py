"""How small a share of the population can be found: the theory, before any report is collected.

A string is detected if its one-sided test at level alpha / n rejects, so the share that is found
with a given power lies z_level standard errors of an absent string and z_power of a present one
above 0. Both errors follow from (k, h, m, p*, q*) and N; docs/understand/planning.md derives them
and compares them with simulations. All functions are pure.

For whole reports the errors follow from the exact Fisher information of one string among
random strings. A report's likelihood under a string, relative to noise alone, depends
on how many of the string's bits it has; under a random string on how many bits it has at all. So
all expectations are sums over those two numbers.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from hubbub.inference import EXACT_FROM_Z, MOST_MEMBERS, SEARCHED, FloatArray, PlanError, is_short
from hubbub.protocol import RapporParams

_NEGLIGIBLE = 1e-13  # of the information: what is left out, however often, is below rounding
_RARE = 1e-5  # probability of an overlap that is left out: 0.4% of the variance, measured
_STEPS = 200  # measured: two to twenty; more as unlisted strings weigh more
_CLOSE = 1e-7  # relative: far below the four digits that are printed, so that curves are smooth
_MOST_REPORTS = 1e18  # a hundred million of every human: more than there will be
_NO_SHARE = 1e3  # stands for an infinite limit in logarithms: above any share, so its sign is right
_RIGHT = 1e-9  # relative: below _CLOSE, which compares what follows from it
_EULER = 0.5772156649015329  # Euler's constant, of the harmonic numbers


@dataclass(frozen=True, slots=True)
class Information:
    """Classes of reports, by how many bits the string has, how many of them and others are set."""

    chance: FloatArray  # shape (a,); probability of each class if there were no true bits at all
    # Shape (a,); likelihood under the string, and under a random string, relative to that.
    string: FloatArray
    random: FloatArray
    # Variance, over the hash, of what another string adds to the score for each of its reports.
    overlap: float
    # If no client has the string: the information, and the skewness of one report's score.
    absent: float
    skewness: float

    @classmethod
    @functools.lru_cache(maxsize=512)
    def of_string(cls, k: int, h: int, p_star: float, q_star: float) -> Information:
        """Tabulate the classes of reports for strings of h hashes into k bits."""
        one, zero = q_star / p_star, (1 - q_star) / (1 - p_star)
        random = _random_likelihood(k, h, one, zero)
        distinct = distinct_bits(k, h)
        chance, string, unlisted = [], [], []
        for d in np.flatnonzero(distinct):
            own = np.arange(d + 1)
            own_chance = distinct[d] * _binomial(int(d), p_star)
            chance.append(np.outer(own_chance, _binomial(k - int(d), p_star)).ravel())
            string.append(np.repeat(one**own * zero ** (d - own), k - d + 1))
            unlisted.append(random[np.add.outer(own, np.arange(k - d + 1))].ravel())
        classes = (np.concatenate(chance), np.concatenate(string), np.concatenate(unlisted))
        weight = classes[0] * (classes[1] ** 2 / classes[2] + classes[2])
        kept = weight > _NEGLIGIBLE * weight.sum()
        base, of_string, of_random = (values[kept] for values in classes)
        overlap = _overlap_variance(k, distinct, random, p_star, q_star)
        score, weights = of_string / of_random - 1, base * of_random
        absent = float(weights @ score**2)
        skewness = float(weights @ score**3) / math.sqrt(absent) ** 3
        return cls(base, of_string, of_random, overlap, absent, skewness)

    def at(self, share: float) -> float:
        """Return the information of one report about the string's share of a mixture.

        E[((L_s - L_0) / ((1 - share) L_0 + share L_s))^2], L_0 being the random string's.
        """
        difference = self.string - self.random
        mixture = self.random + share * difference
        return float(self.chance @ (difference**2 / mixture))


def bit_rate(k: int, h: int) -> float:
    """Return b = 1 - (1 - 1/k)^h, the chance that a random string sets a given bit."""
    return 1.0 - (1.0 - 1.0 / k) ** h


@functools.lru_cache(maxsize=256)
def filter_variance(k: int, h: int) -> float:
    """Return the mean variance of a random string's bits over the k positions: b - E[D^2]/k^2.

    D is the number of its distinct bits. Its filter has D ones, so this is less than b(1 - b) by
    what D itself varies.
    """
    squares = float(distinct_bits(k, h) @ np.arange(h + 1) ** 2)
    return bit_rate(k, h) - squares / k**2


def distinct_bits(k: int, h: int) -> FloatArray:
    """Return the distribution of the number of distinct bits among h hashes: shape (h + 1,)."""
    distribution = np.zeros(h + 1)
    distribution[0] = 1.0
    hit = np.arange(h + 1) / k
    for _ in range(h):
        distribution = distribution * hit + np.concatenate([[0.0], (distribution * (1 - hit))[:-1]])
    return distribution


def _random_likelihood(k: int, h: int, one: float, zero: float) -> FloatArray:
    """Return a random string's likelihood of reports with 0 ... k bits set, relative to noise."""
    ones = np.arange(k + 1)
    total = np.zeros(k + 1)
    for d, probability in enumerate(distinct_bits(k, h)):
        for i in range(d + 1):
            ways = special.binom(ones, i) * special.binom(k - ones, d - i) / special.binom(k, d)
            total += probability * ways * one**i * zero ** (d - i)
    return total


def _overlap_variance(
    k: int, distinct: FloatArray, random: FloatArray, p_star: float, q_star: float
) -> float:
    """Return the variance, over two strings' hashes, of the mean score under the other one."""
    one, zero = q_star / p_star, (1 - q_star) / (1 - p_star)
    chances, means = [], []

    @functools.cache
    def of_others(mine: int, apart: int) -> FloatArray:
        """Return the mean of 1 / random over the other bits, by how many of its own are set."""
        rest = np.convolve(_binomial(apart, q_star), _binomial(k - mine - apart, p_star))
        windows = np.lib.stride_tricks.sliding_window_view(1 / random, len(rest))
        return np.asarray(windows @ rest)

    for mine in np.flatnonzero(distinct):
        for others in np.flatnonzero(distinct):
            for shared in range(int(min(mine, others)) + 1):
                ways = special.binom(mine, shared) * special.binom(k - mine, others - shared)
                chance = distinct[mine] * distinct[others] * ways / special.binom(k, others)
                if chance < _RARE:
                    continue
                own = np.convolve(_binomial(shared, q_star), _binomial(int(mine) - shared, p_star))
                set_bits = np.arange(mine + 1)
                likelihood = one**set_bits * zero ** (mine - set_bits)
                chances.append(chance)
                means.append(float((own * likelihood) @ of_others(int(mine), int(others) - shared)))
    weights, values = np.array(chances), np.array(means)
    mean = weights @ values / weights.sum()
    return float(weights @ (values - mean) ** 2 / weights.sum())


@functools.lru_cache(maxsize=1024)
def _binomial(n: int, p: float) -> FloatArray:
    i = np.arange(n + 1)
    log_ways = special.gammaln(n + 1) - special.gammaln(i + 1) - special.gammaln(n - i + 1)
    return np.asarray(np.exp(log_ways + i * np.log(p) + (n - i) * np.log1p(-p)))


class DetectionMethod(enum.Enum):
    """How reports will be decoded."""

    REGRESSION = "regression"
    LIKELIHOOD = "likelihood"


@dataclass(frozen=True, slots=True)
class DetectionTest:
    """The test that a plan answers; raises `PlanError` if a number is out of range."""

    candidates: float  # n, strings that are tested
    # Chance of even one false name (Bonferroni). Benjamini-Hochberg at the same alpha finds the
    # share, too, and smaller ones if there are many to find.
    alpha: float = 0.05
    # Probability with which a string of the limit's share is to be found, above 1/2.
    power: float = 0.9
    method: DetectionMethod = DetectionMethod.REGRESSION  # how reports will be decoded
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
        if self.reports_each > 1 and self.method is DetectionMethod.LIKELIHOOD:
            raise PlanError(
                "method = likelihood: plans for one report of each client; use regression"
            )

    @property
    def level(self) -> float:
        """The level of one test, alpha / n: what the first detection needs."""
        return self.alpha / self.candidates

    def scatter(self, limit: float) -> float:
        """Return the undetected strings' sum of squared shares if `limit` is the limit.

        By Zipf's law the share of rank r is C / r with C = 1 / (1 + 1/2 + ... + 1/n); the squares
        of those below the limit add up to about C limit. Where the likelihood has the whole list in
        its mixture, nothing is left that it doesn't know.
        """
        if self.concentration is not None:
            return self.concentration
        if self.method is DetectionMethod.LIKELIHOOD and self.candidates <= MOST_MEMBERS:
            return 0.0
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
    # How many times larger the estimate must be because its score is taken to first order (by
    # likelihood, unless it is 6 standard errors above 0).
    flattening: float = 1.0

    def threshold(self, z: float) -> float:
        """Return the estimate from which on a string is detected, z being that of the level."""
        exact = corrected(z, self.skewness) * self.absent
        return max(exact, min(exact * self.flattening, EXACT_FROM_Z * self.present))


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


def reports_needed(params: RapporParams, share: float, test: DetectionTest) -> float:
    """Return from how many clients `share` is the detection limit; infinite if none."""
    _require("share", share, 0, 1, open_ended=True)
    return reports_reaching(lambda n: detection_limit(params, n, test), share)


def reports_reaching(value: Callable[[float], float], wanted: float) -> float:
    """Return the number of reports at which a value that falls with them is what is wanted.

    Infinite if no number up to 10^18 is enough, such as where unlisted strings' bits leave an error
    that more reports don't lower.
    """

    def excess(log_reports: float) -> float:
        return math.log(min(value(math.exp(log_reports)), _NO_SHARE) / wanted)

    high = math.log(_MOST_REPORTS)
    if excess(high) > 0:
        return math.inf
    return math.exp(optimize.brentq(excess, 0.0, high, xtol=1e-6))


def string_errors(
    params: RapporParams, n_clients: float, share: float, test: DetectionTest
) -> Errors:
    """Return the errors of a string of a given share, by either method.

    From whole reports, one of each client, they follow from the Fisher information of one string
    among random strings.
    From counts they are those of the sum of bit rates at a string's h positions in m cohorts, less
    their mean: over the positions of one cohort the rates vary by the coins of the two responses,
    by which strings the reports drew, by unlisted ones, and by the string's own raised
    bits.
    """
    if test.method is DetectionMethod.LIKELIHOOD:
        information = Information.of_string(params.k, params.h, *_star_rates(params))
        excess_variance = test.scatter(share) * information.overlap
        excess_variance /= params.m * information.absent**2
        absent = math.sqrt(1 / (n_clients * information.absent) + excess_variance)
        skewness = information.skewness / math.sqrt(n_clients)
        exact = corrected(_level_z(params, test), skewness) * absent
        return Errors(
            absent=absent,
            present=math.sqrt(1 / (n_clients * information.at(share)) + excess_variance),
            skewness=skewness,
            flattening=_flattening(information, exact),
        )
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


def _flattening(information: Information, exact: float) -> float:
    """Return I(0) / I(t) at the estimate t whose score, to first order, reaches `exact`.

    A score in the model without the string is N t I(0) where the string has the share t. To first
    order it is the slope's change back to 0, N t I(t), which is less. t I(t) rises with t, for its
    derivative is E[(L_s - L_0)^2 L_0 / ((1 - t) L_0 + t L_s)^2]; if not even t = 1 is enough, the
    flattening is infinite. A level of one half or more asks for no score above 0.
    """
    if exact <= 0:
        return 1.0
    wanted = exact * information.absent
    if information.at(1.0) <= wanted:
        return math.inf
    share = optimize.brentq(lambda t: t * information.at(t) - wanted, 0.0, 1.0, rtol=_RIGHT)
    return float(share) / exact


def _level_z(params: RapporParams, test: DetectionTest) -> float:
    """Return the z of the level at which one string is tested; in a search a little higher."""
    searches = not is_short(test.candidates, params.k * params.m)
    searches = searches and test.method is DetectionMethod.REGRESSION
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
