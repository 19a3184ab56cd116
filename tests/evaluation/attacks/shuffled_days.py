"""Six days, each shuffled by itself: what the best observer's delta is at the epsilon claimed.

Everybody but one client holds one value, which the observer knows; the client holds this or
another. There are so many cohorts that most clients are alone in theirs, so that the cohort links
their days. The likelihood ratio of all that is seen is then a mean over clients, and delta the mean
of what it exceeds e^epsilon by.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy import stats

from evaluation.attacks.outcome import Outcome
from factories import make_metric
from hubbub.client import Metric, RapporParams
from hubbub.planning import PlanAssumptions, metric_figures
from significance import FloatArray

DAYS, CLIENTS, DELTA = 6, 200, 6e-6
PARAMS = RapporParams(k=128, h=1, m=1024, f=0.01, p=0.3, q=0.7)
_DEVIATIONS = 5.0  # of a mean that is known to be in [0, 1]: P(false alarm) < 1e-6


def attack(*, quick: bool) -> Iterator[Outcome]:
    """Attack the figure of six days in a crowd that is too small for it, and in larger ones."""
    rng = np.random.default_rng(21)
    for clients, delta in ((CLIENTS, DELTA), (2_000, 1e-2), (20_000, 1e-3)):
        epsilon = claimed(make_metric(params=PARAMS), clients, delta)
        reached = lower_delta(epsilon, clients, 5_000 if quick else 50_000, rng)
        what = f"delta of {DAYS} shuffled days of {clients:,} clients at epsilon {epsilon:.3g}"
        yield Outcome(what, reached, delta)


def claimed(metric: Metric, clients: int, delta: float, days: int = DAYS) -> float:
    """Return the epsilon that `hubbub-decoder privacy` prints for these days."""
    assumptions = PlanAssumptions(days=days, reports=clients, delta=delta)
    figures = {figure.key: figure.value for figure in metric_figures(metric, assumptions)}
    return figures["central_epsilon_days"]


def lower_delta(epsilon: float, clients: int, trials: int, rng: np.random.Generator) -> float:
    """Return a lower confidence bound of delta at epsilon, from simulated clients.

    Looked at are the clients who are alone in their cohorts. The one in question is each of N
    with the same probability, so with r_i = P(series | its value) / P(series | the others') the
    ratio is (sum of r_i over those alone + the number of all others) / N.
    """
    its, theirs = (_chances(PARAMS, DAYS, true) for true in ((1, 0), (0, 1)))
    ratio = np.divide(its, theirs)
    excess = np.empty(trials)
    for trial in range(trials):
        cohorts = rng.integers(PARAMS.m, size=clients)
        alone = np.bincount(cohorts, minlength=PARAMS.m)[cohorts] == 1
        n_alone = int(alone.sum())
        seen = rng.multinomial(n_alone - int(alone[0]), theirs)
        total = float(seen @ ratio) + clients - n_alone
        if alone[0]:
            total += ratio[rng.choice(len(its), p=its)]
        excess[trial] = max(1 - math.exp(epsilon) * clients / total, 0.0)
    return float(excess.mean() - _DEVIATIONS * excess.std() / math.sqrt(trials))


def _chances(params: RapporParams, days: int, true: tuple[int, int]) -> FloatArray:
    """Return the chance of each pair of numbers of ones, in the bits of either value."""
    ones = np.arange(days + 1)
    chances = []
    for bit in true:
        set_ = params.f / 2 + bit * (1 - params.f)
        of_one, of_zero = (stats.binom.pmf(ones, days, rate) for rate in (params.q, params.p))
        chances.append(set_ * of_one + (1 - set_) * of_zero)
    return np.outer(*chances).ravel()
