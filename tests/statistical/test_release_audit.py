"""Central mechanisms under attack: neighbouring data are told apart no better than claimed.

OpenDP draws from the operating system, so nothing is seeded: bounds leave an alarm a probability
below 1e-6 (Clopper-Pearson). Each audit also shows that it would see a mechanism that claims half
of what it costs.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from evaluation.studies.releases import laplace_tail
from hubbub.inference import FloatArray
from hubbub.release.mechanisms.counts import (
    Lattice,
    Mechanism,
    Row,
    bounded_mean,
    bounded_sum,
    count,
    histogram,
    lattice,
    threshold,
    thresholded_histogram,
)
from hubbub.release.mechanisms.selection import (
    aggregate_mean,
    aggregate_median,
    aggregate_mode,
    lead_threshold,
    median_by_test,
    median_distance,
    most_common,
    quantile,
    stable_mode,
)
from hubbub.release.noise import (
    add_gaussian,
    add_laplace,
    gaussian_radius,
    gaussian_scale,
    laplace_radius,
    laplace_scale,
    laplace_threshold,
    select,
    select_scale,
)
from parameters import long_but

ALARM = 1e-6
DRAWS = 3_000
HALF, ONE, TWO, FOUR = Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4)
TWENTIETH = Fraction(1, 20)
EPSILONS = [HALF, ONE, TWO, Fraction(3)]
UNIT = lattice(0.0, 1.0)
COARSE = Lattice(exponent=0, low=0, high=1)
"""Where Gaussian noise gives the most away."""

Rows = tuple[Row, ...]


def bounds(hits: int, draws: int) -> tuple[float, float]:
    """Return where the probability of an event is, but with probability `ALARM`."""
    low = stats.beta.ppf(ALARM / 2, hits, draws - hits + 1) if hits else 0.0
    high = stats.beta.isf(ALARM / 2, hits + 1, draws - hits) if hits < draws else 1.0
    return float(low), float(high)


def least_epsilon(likely: int, unlikely: int, draws: int, delta: Fraction) -> float:
    """Return the epsilon that two frequencies of one event show at least."""
    return math.log((bounds(likely, draws)[0] - delta) / bounds(unlikely, draws)[1])


@dataclass(frozen=True, slots=True)
class Attack:
    """Neighbouring data, and an event whose probabilities differ as much as they may, or nearly."""

    mechanism: Mechanism[Any]
    likely: object  # likely, unlikely: The data
    unlikely: object
    event: Callable[[Rows], int]  # how often it happens in one release
    # releases of each; or, of mechanisms that draw for many at once, events that may happen
    draws: int = DRAWS
    calls: int = DRAWS  # how many calls make so many draws
    # of epsilon that is seen at least: a mechanism that claims so little is found out
    share: Fraction = HALF

    def epsilon(self) -> float:
        """Return the epsilon that the mechanism is seen to cost at least."""
        hits = [
            sum(self.event(self.mechanism(data)) for _ in range(self.calls))
            for data in (self.likely, self.unlikely)
        ]
        return least_epsilon(hits[0], hits[1], self.draws, self.mechanism.cost.delta)


def at_least(value: float) -> Callable[[Rows], int]:
    """Return the event that a released number is at least so large; nan isn't."""
    return lambda rows: int(bool(rows) and float(rows[0].value) >= value)


def is_option(*values: float | str) -> Callable[[Rows], int]:
    """Return the event that these are released, in this order."""
    return lambda rows: int(tuple(row.value for row in rows) == values)


def is_between(low: float, high: float) -> Callable[[Rows], int]:
    """Return the event that a released number lies between two."""
    return lambda rows: int(low < float(rows[0].value) < high)


def released(rows: Rows) -> int:
    return len(rows)


def many(n_keys: int, rows: int) -> list[str]:
    return [str(key) for key in range(n_keys) for _ in range(rows)]


def bins_attack(delta: Fraction, draws: int) -> Attack:
    """A histogram whose bins' noise is independent: each is an attack on one user's bin."""
    epsilon, reached = (FOUR, 2) if delta else (TWO, 1)
    mechanism = histogram(many(draws, 1), rows_per_user=1, epsilon=epsilon, delta=delta)
    event = lambda rows: sum(float(row.value) >= reached for row in rows)  # noqa: E731
    return Attack(mechanism, many(draws, 1), [], event, draws=draws, calls=1)


def mean_attack() -> Attack:
    """A user at the upper bound, who also decides whether there are enough rows for a mean."""
    mechanism = bounded_mean(UNIT, rows_per_user=1, epsilon=FOUR)
    n = laplace_radius(laplace_scale(1, TWO), 0.975)
    values, event = [0.5] * n, at_least(0.5 + 0.5 / (n + 1))
    return Attack(mechanism, np.array([*values, 1.0]), np.array(values), event)


def gaussian_mean_attack() -> Attack:
    """Two halves with a slack each: no event is known that shows half of their sum."""
    bounds = Lattice(exponent=0, low=0, high=2)
    mechanism = bounded_mean(bounds, rows_per_user=1, epsilon=2 * FOUR, delta=2 * TWENTIETH)
    scale, _ = gaussian_scale(1.0, FOUR, TWENTIETH)
    n = gaussian_radius(scale, 0.975)
    values, event = [1.0] * n, at_least(1 + 1 / (n + 1))
    likely, unlikely = np.array([*values, 2.0]), np.array(values)
    return Attack(mechanism, likely, unlikely, event, share=Fraction(1, 6))


def clusters(low: int, between: int, high: int) -> FloatArray:
    """Return values at 0, 4 and 65: three of 66 options lie between the first, 60 the last."""
    return np.repeat([0.0, 4.0, 65.0], [low, between, high])


def quantile_attack() -> Attack:
    """A user above lowers the scores of three options, and raises those of sixty others."""
    mechanism = quantile(0, 65, HALF, options=66, rows_per_user=1, epsilon=TWO)
    return Attack(
        mechanism, clusters(5, 2, 4), clusters(5, 2, 5), is_between(0.5, 3.5),
        draws=6_000, calls=6_000, share=Fraction(2, 5),
    )  # fmt: skip


def replaced_estimate_attack() -> Attack:
    """A user replaces a low estimate by a high one: as above, by twice as much."""
    mechanism = aggregate_median(0, 65, options=66, epsilon=TWO)
    return Attack(
        mechanism, clusters(5, 2, 4), clusters(4, 2, 5), is_between(0.5, 3.5),
        draws=9_000, calls=9_000, share=Fraction(2, 5),
    )  # fmt: skip


def two_heaps(n: int) -> FloatArray:
    """Return n values in two heaps a width apart, the upper one larger if n is odd."""
    return np.array([0.25] * (n // 2) + [0.75] * (n - n // 2))


def proposed_median_attack() -> Attack:
    """A user who moves the median by the whole width, and the distance to the threshold by one."""
    mechanism = median_by_test(UNIT, 0.5, rows_per_user=1, epsilon=FOUR, delta=TWENTIETH)
    least = laplace_threshold(laplace_scale(1, TWO), TWENTIETH)
    steps = round(0.5 / UNIT.step)
    distances = [
        median_distance(UNIT.numbers(two_heaps(n)), UNIT.low, UNIT.high, steps, 1)
        for n in range(40)
    ]
    n = next(n for n in range(1, 40, 2) if distances[n] == least)
    assert distances[n - 1] == least - 1
    event = at_least(0.75)
    return Attack(mechanism, two_heaps(n), two_heaps(n - 1), event, draws=5_000, calls=5_000)


def stable_mode_attack() -> Attack:
    _, least = lead_threshold(1, TWO, TWENTIETH)
    mechanism = stable_mode(rows_per_user=1, epsilon=TWO, delta=TWENTIETH)
    return Attack(mechanism, ["a"] * least, ["a"] * (least - 1), released)


def thresholded_attack() -> Attack:
    least = threshold(laplace_scale(1, TWO), 1, TWENTIETH)
    mechanism = thresholded_histogram(rows_per_user=1, epsilon=TWO, delta=TWENTIETH)
    likely, unlikely = many(DRAWS, least), many(DRAWS, least - 1)
    return Attack(mechanism, likely, unlikely, released, calls=1)


def aggregate_mode_attack() -> Attack:
    _, least = lead_threshold(2, TWO, TWENTIETH)
    mechanism = aggregate_mode(epsilon=TWO, delta=TWENTIETH)
    likely = np.array([1.0] * (least + 1) + [2.0])
    return Attack(mechanism, likely, np.where(np.arange(len(likely)), likely, 2.0), released)


def top_attack(best: int, draws: int) -> Attack:
    """A user has a row of the one option that isn't among the most common."""
    options = [str(option) for option in range(best + 1)]
    mechanism = most_common(options, best, rows_per_user=1, epsilon=FOUR)
    event = lambda rows: all(row.value != "0" for row in rows)  # noqa: E731
    return Attack(mechanism, [], ["0"], event, draws=draws, calls=draws)


HOSTILE = np.eye(1, 50)[0]
"""Estimates of 50 blocks by an estimator that says whether it sees a certain user."""

ATTACKS: dict[str, Callable[[], Attack]] = {
    "count": lambda: Attack(count(rows_per_user=1, epsilon=TWO), 1, 0, at_least(1)),
    "count, three rows": lambda: Attack(count(rows_per_user=3, epsilon=TWO), 3, 0, at_least(3)),
    "count, Gaussian": lambda: Attack(
        count(rows_per_user=1, epsilon=FOUR, delta=TWENTIETH),
        1, 0, at_least(2), draws=9_000, calls=9_000,
    ),
    "sum": lambda: Attack(
        bounded_sum(UNIT, rows_per_user=1, epsilon=TWO), np.ones(1), np.zeros(0), at_least(1)
    ),
    "sum, Gaussian": lambda: Attack(
        bounded_sum(COARSE, rows_per_user=1, epsilon=FOUR, delta=TWENTIETH),
        np.ones(1), np.zeros(0), at_least(2), draws=9_000, calls=9_000,
    ),
    "mean": mean_attack,
    "mean, Gaussian": gaussian_mean_attack,
    "histogram": lambda: bins_attack(Fraction(0), DRAWS),
    "histogram, Gaussian": lambda: bins_attack(TWENTIETH, 20_000),
    "thresholded histogram": thresholded_attack,
    "quantile": quantile_attack,
    "mode of options": lambda: Attack(
        most_common("ab", 1, rows_per_user=1, epsilon=TWO), [], ["b"], is_option("a")
    ),
    "top 2": lambda: top_attack(2, 6_000),
    "top 3": lambda: top_attack(3, 9_000),
    "stable mode": stable_mode_attack,
    "propose-test-release": proposed_median_attack,
    "aggregate, mean": lambda: Attack(
        aggregate_mean(UNIT, blocks=50, epsilon=TWO), HOSTILE, HOSTILE * 0, at_least(1 / 50)
    ),
    "aggregate, mean, Gaussian": lambda: Attack(
        aggregate_mean(COARSE, blocks=50, epsilon=FOUR, delta=TWENTIETH),
        HOSTILE, HOSTILE * 0, at_least(2 / 50), draws=9_000, calls=9_000,
    ),
    "aggregate, median": replaced_estimate_attack,
    "aggregate, mode": aggregate_mode_attack,
}  # fmt: skip


@pytest.mark.parametrize("name", long_but("mean", ATTACKS, str))
def test_mechanisms_hide_a_user(name):
    attack = ATTACKS[name]()
    epsilon = attack.mechanism.cost.epsilon
    assert attack.share * epsilon < attack.epsilon() <= epsilon


DELTAS = {HALF: "0.23", ONE: "0.27", TWO: "0.12", Fraction(3): "0.0475"}
"""Deltas that thresholds can meet nearly, by the epsilon of their noise (1 / scale)."""
HITS = 300


def thresholded_key(epsilon: Fraction, delta: Fraction, draws: int) -> int:
    """How often keys of one user are released."""
    release = thresholded_histogram(rows_per_user=1, epsilon=epsilon, delta=delta)
    return len(release(many(draws, 1)))


def decided_mode(epsilon: Fraction, delta: Fraction, draws: int) -> int:
    """How often the mode is released that one user's only row decides."""
    release = stable_mode(rows_per_user=1, epsilon=epsilon, delta=delta)
    return sum(len(release(["a"])) for _ in range(draws))


def far_moved_median(epsilon: Fraction, delta: Fraction, draws: int) -> int:
    """How often a median is released that one user moves by the whole range; half for the test."""
    release = median_by_test(UNIT, 0.5, rows_per_user=1, epsilon=2 * epsilon, delta=delta)
    values = np.array([0.0] * 5 + [1.0] * 5)
    return sum(len(release(values)) for _ in range(draws))


def replaced_mode(epsilon: Fraction, delta: Fraction, draws: int) -> int:
    """How often the mode of estimates is released that leads by 2; noise is for replacing one."""
    release = aggregate_mode(epsilon=2 * epsilon, delta=delta)
    estimates = np.array([1.0, 1.0, 1.0, 2.0])
    return sum(len(release(estimates)) for _ in range(draws))


@pytest.mark.parametrize("epsilon", long_but("1", EPSILONS, str))
@pytest.mark.parametrize(
    "false_releases", [thresholded_key, decided_mode, far_moved_median, replaced_mode]
)
def test_a_single_users_value_is_released_with_at_most_delta(false_releases, epsilon):
    """And with more than half of it: a mechanism that claims half would be found out."""
    delta, scale = Fraction(DELTAS[epsilon]), laplace_scale(1, epsilon)
    exact = laplace_tail(laplace_threshold(scale, delta), scale)
    draws = round(HITS / exact)
    low, high = bounds(false_releases(epsilon, delta, draws), draws)
    assert delta / 2 < low <= exact <= high
    assert exact <= delta


def selection_law(scores: Sequence[int], scale: float) -> list[float]:
    """Return the probability of each option by permute-and-flip (McKenna, Sheldon 2020).

    It is that of having the highest score plus exponential noise: the integral over the noise x of
    e^-x times the product of 1 - e^(-(x + lead over each other one)), expanded.
    """
    law = []
    for i, own in enumerate(scores):
        others = [(own - score) / scale for j, score in enumerate(scores) if j != i]
        least = max(0.0, -min(others, default=0.0))
        law.append(
            sum(
                (-1) ** n * math.exp(-sum(leads) - (n + 1) * least) / (n + 1)
                for n in range(len(others) + 1)
                for leads in itertools.combinations(others, n)
            )
        )
    return law


def top_law(scores: Sequence[int], best: int, scale: float) -> dict[tuple[int, ...], float]:
    """Return the probability of each ranking: one selection after the other."""
    rankings: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(best):
        longer: dict[tuple[int, ...], float] = {}
        for chosen, chance in rankings.items():
            left = [i for i in range(len(scores)) if i not in chosen]
            law = selection_law([scores[i] for i in left], scale)
            longer |= {(*chosen, i): chance * p for i, p in zip(left, law, strict=True)}
        rankings = longer
    return rankings


@pytest.mark.parametrize("best", long_but("3", [2, 3], str))
def test_rankings_have_the_law_of_one_selection_after_the_other(best):
    scores, draws = [2, 1, 0, 1], 3_000
    for monotonic in (False, True):
        scale = select_scale(1, FOUR, monotonic=monotonic, best=best)
        found = Counter(
            tuple(select(scores, scale, best=best, monotonic=monotonic)) for _ in range(draws)
        )
        for ranking, exact in top_law(scores, best, scale).items():
            low, high = bounds(found[ranking], draws)
            assert low <= exact <= high


@pytest.mark.parametrize("best", long_but("2", [2, 3], str))
@pytest.mark.parametrize("monotonic", [False, True])
def test_rankings_cost_what_opendp_says_and_barely_less(best, monotonic):
    """The largest log ratio of all rankings, of scores from 0 to 4 and what a user makes of them.

    He moves each score by 1 at most; monotonic ones all in the same direction.
    """
    scale = select_scale(1, FOUR, monotonic=monotonic, best=best)
    moves = (0, 1) if monotonic else (-1, 0, 1)
    laws = {
        scores: top_law(scores, best, scale)
        for scores in itertools.product(range(-1, 6), repeat=best + 1)
    }
    largest = max(
        abs(math.log(chance / laws[other][ranking]))
        for scores, law in laws.items()
        if 0 in scores and 0 <= min(scores) <= max(scores) <= 4
        for move in itertools.product(moves, repeat=best + 1)
        for other in [tuple(np.add(scores, move).tolist())]
        for ranking, chance in law.items()
    )
    assert 0.9 * FOUR < largest <= FOUR * (1 + 1e-9)


def test_radii_of_noise_hold_as_often_as_they_say():
    """Of the least radius, so that hardly more than 95% are within it."""
    draws, scale = 20_000, laplace_scale(1, Fraction(1, 20))
    within = int((np.abs(add_laplace([0] * draws, scale)) <= laplace_radius(scale)).sum())
    low, high = bounds(within, draws)
    assert low <= 0.96
    assert high >= 0.95
    sigma, _ = gaussian_scale(10.0, ONE, Fraction("1e-6"))
    within = int((np.abs(add_gaussian([0] * draws, sigma)) <= gaussian_radius(sigma)).sum())
    low, high = bounds(within, draws)
    assert low <= 0.96
    assert high >= 0.95
