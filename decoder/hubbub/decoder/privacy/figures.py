"""What a registry's metrics reveal: of a report, a life, a household, a whole registry, a crowd.

Each figure is an upper bound and names the theorem that it rests on. The sums are those of the
client's own ledger (`hubbub.client.ledger`), so that what operators read is what clients enforce.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hubbub.client.kinds import BooleanKind
from hubbub.client.ledger import Price
from hubbub.client.metrics import Metric, Registry
from hubbub.decoder.errors import PlanError
from hubbub.decoder.privacy.amplification import Amplification, amplify
from hubbub.decoder.privacy.tracking import reports_to_know

_ROUNDED_UP = 1 + 1e-12
KNOWN = (0.5, 0.99)
"""Probabilities with which an observer is said to know a permanent response."""

OF_PAPER = "Erlingsson, Pihur, Korolova 2014, theorem {}"
OF_BIT = "the exact law of one randomized bit (Warner 1965), as RAPPOR's theorem {} for one bit"
OF_DAYS = (
    "min(reports x epsilon_report, epsilon_permanent): docs/statistics.md, What a client spends"
)
EXACT = (
    "the exact law of n reports that share a permanent response: docs/privacy.md, Linked reports"
)
SEQUENTIAL = "sequential composition (Dwork et al. 2006; McSherry 2009, theorem 3)"
PARALLEL = "parallel composition (McSherry 2009, theorem 4) of the metrics that exclude each other"
LEDGER = "the client's ledger, which refuses to spend more than lifetime_epsilon"
GROUP = "group privacy (Dwork, Roth 2014, theorem 2.2)"
TRACKING = "exact binomial probabilities of the likeliest permanent bits: docs/privacy.md, Tracking"
CLOSED_FORM = "Feldman, McMillan, Talwar 2021, theorem 3.1; needs epsilon_report <= {:.3g}"
CLONES = (
    "Feldman, McMillan, Talwar 2021, section 3: the clones' pair of binomials, summed numerically"
)
BLANKET = "Balle, Bell, Gascon, Nissim 2019, section 5, with the report's own likelihood ratios"
LEAST = "the least of the bounds on one shuffled report, each of which holds"


@dataclass(frozen=True, slots=True)
class Situation:
    """How much a client reports, and who else does.

    Attributes
    ----------
    days : int
        T; a client makes one report of each metric a day.
    values : int
        V, distinct values of a metric that it reports in that time, at most.
    household : int
        Clients whose reports stand for the same person, or people with the same answer.
    reports : int or None
        N shuffled reports of each metric, one a client; None: no figures for a crowd.
    delta : float
        Of the crowd's (epsilon, delta).

    Raises
    ------
    PlanError
        If a number is out of range.
    """

    days: int = 365
    values: int = 1
    household: int = 1
    reports: int | None = None
    delta: float = 1e-6

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        for name in ("days", "values", "household", "reports"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise PlanError(f"{name} = {number}: must be at least 1")
        if not 0 < self.delta < 1:
            raise PlanError(f"delta = {self.delta}: must be above 0 and below 1")


@dataclass(frozen=True, slots=True)
class Figure:
    """One number and why it holds.

    Attributes
    ----------
    key : str
    value : float
        Infinite: no bound; nan: doesn't apply.
    theorem : str
    """

    key: str
    value: float
    theorem: str


def metric_figures(metric: Metric, situation: Situation) -> tuple[Figure, ...]:
    """Return all figures of a metric; those of a crowd only if its size is known."""
    law = OF_BIT if isinstance(metric.kind, BooleanKind) else OF_PAPER
    figures = [
        Figure("epsilon_report", metric.epsilon_report, law.format(2)),
        Figure("epsilon_permanent", metric.epsilon_permanent, law.format(1)),
        Figure("epsilon_days", days_epsilon(metric, situation.days), OF_DAYS),
        Figure("epsilon_days_exact", linked_epsilon(metric, situation.days), EXACT),
        Figure("epsilon_values", spent(metric, situation), f"{OF_DAYS}; {SEQUENTIAL}"),
        Figure("epsilon_household", situation.household * spent(metric, situation), GROUP),
    ]
    for probability in KNOWN:
        reports = math.nan if metric.one_time else reports_to_know(metric.params, probability)
        figures.append(Figure(f"reports_known_{probability:g}", reports, TRACKING))
    if situation.reports is not None:
        figures.extend(_crowd(amplify(metric, situation.reports, situation.delta), situation))
    return tuple(figures)


def registry_figures(
    registry: Registry, situation: Situation, exclusive: Sequence[Collection[str]] = ()
) -> tuple[Figure, ...]:
    """Return what a client spends on all metrics together, and a household.

    Parameters
    ----------
    registry : Registry
    situation : Situation
    exclusive : sequence of collections of str
        Groups of metrics of which a client reports one at most, chosen without regard to values.

    Raises
    ------
    PlanError
        If a group has less than two names, or a name stands in two.
    UnknownMetricError
        If a name isn't registered.
    """
    _check_groups(registry, exclusive)
    grouped = {name for group in exclusive for name in group}
    alone = [spent(registry[name], situation) for name in registry if name not in grouped]
    worst = [max(spent(registry[name], situation) for name in group) for group in exclusive]
    total = math.fsum(alone + worst) * _ROUNDED_UP
    theorem = f"{SEQUENTIAL}; {PARALLEL}" if exclusive else SEQUENTIAL
    if registry.lifetime_epsilon is not None and registry.lifetime_epsilon < total:
        total, theorem = registry.lifetime_epsilon, LEDGER
    return (
        Figure("epsilon_registry", total, theorem),
        Figure("epsilon_registry_household", situation.household * total, f"{theorem}; {GROUP}"),
    )


def days_epsilon(metric: Metric, days: int) -> float:
    """Return what a client's daily reports of one value reveal, together, at most."""
    return Price(metric.epsilon_report, metric.epsilon_permanent).of(_reports(metric, days))


def spent(metric: Metric, situation: Situation) -> float:
    """Return the same for up to V values: min(T epsilon_report, V epsilon_permanent).

    However T reports are divided among V values: each term of the ledger's sum is at most
    n_v epsilon_report and at most epsilon_permanent.
    """
    reports = _reports(metric, situation.days)
    values = min(situation.values, metric.max_values, reports)
    bound = min(reports * metric.epsilon_report, values * metric.epsilon_permanent)
    return bound if values == 1 else bound * _ROUNDED_UP


def linked_epsilon(metric: Metric, reports: int) -> float:
    """Return the exact loss of linked reports of one value: the largest log likelihood ratio.

    With a = 1 - f/2 and u the log ratio that n reports give for a permanent bit, a true bit's is
    G(u) = 2 artanh((2a - 1) tanh(u/2)); u is largest if all reports agree. Two values of h bits
    differ in 2h of them.
    """
    params = metric.params
    n = _reports(metric, reports)
    ones = _true_ratio(n * _log_ratio(params.q, params.p), params.flip)
    zeros = _true_ratio(n * _log_ratio(1 - params.q, 1 - params.p), params.flip)
    if isinstance(metric.kind, BooleanKind):
        exact = max(abs(ones), abs(zeros))
    else:
        exact = params.h * abs(ones - zeros)
    return min(exact * _ROUNDED_UP, days_epsilon(metric, reports))


def _reports(metric: Metric, days: int) -> int:
    return 1 if metric.one_time else days


def _log_ratio(one: float, other: float) -> float:
    if one == 0 or other == 0:
        return math.inf if one else -math.inf
    return math.log(one / other)


def _true_ratio(permanent: float, flip: float) -> float:
    """Return G(u); u itself where there is no permanent response."""
    if flip == 0:
        return permanent
    slope = (1 - 2 * flip) * math.tanh(permanent / 2)
    return 2 * math.atanh(slope) if abs(slope) < 1 else math.copysign(math.inf, slope)


def _crowd(found: Amplification, situation: Situation) -> list[Figure]:
    size = f"; {situation.reports:,} reports, one a client, delta = {situation.delta:g}"
    closed = CLOSED_FORM.format(found.highest_local)
    return [
        Figure("central_closed_form", found.closed_form, closed + size),
        Figure("central_clones", found.clones, CLONES + size),
        Figure("central_blanket", found.blanket, BLANKET + size),
        Figure("central_epsilon", found.best, LEAST + size),
    ]


def _check_groups(registry: Registry, exclusive: Sequence[Collection[str]]) -> None:
    seen: set[str] = set()
    for group in exclusive:
        if len(set(group)) < 2:
            raise PlanError(f"exclusive = {','.join(group)}: must be two metrics or more")
        for name in group:
            registry[name]  # raises if there is none
            if name in seen:
                raise PlanError(f"exclusive: metric {name!r} stands in it twice")
            seen.add(name)
