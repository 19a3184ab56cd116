"""Goals of a plan: the parameters worth trying for each, and the words for it.

A goal states which share some parameters show, and in which words. Unless a subclass differs
it is the rarest of random strings whose bits are hashed (`limits`): the subclasses differ in which
reports they have for it, and in what else they state. A schedule gives how many reports N clients
make in T days, how many of them repeat one response, and what they reveal; that holds for however
the periods' borders lie.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

from hubbub.inference import PlanError
from hubbub.planning.limits import (
    DetectionTest,
    bit_limit,
    bit_power,
    cells_error,
    detection_limit,
    detection_power,
    reports_reaching,
    string_errors,
)
from hubbub.planning.noise import Budget
from hubbub.protocol import (
    UNARY,
    Memory,
    Metric,
    Mode,
    RapporParams,
    Response,
    Subset,
    Window,
    chance_bound,
    most_answers,
)
from hubbub.reporting import Finding

A_YEAR = 365
"""Days of the longest window that plans compare."""

USUAL_PERIOD, USUAL_PERIODS = 30, 24
"""Days of a period, and how many a client answers in: months, for two years."""


class Collected(NamedTuple):
    """Reports of a window of days."""

    reports: float  # of all clients
    each: float  # of one permanent response, which repeat its noise


@dataclass(frozen=True, slots=True)
class Schedule:
    """A mode, with its numbers; raises `PlanError` if one is out of range."""

    mode: Mode  # "once" a period, "one-time", or "longitudinal"
    # Whether a longitudinal metric keeps the response of a "value" for life, or for a "period".
    memory: Memory = "period"
    period_days: int = USUAL_PERIOD  # length of a period, and how many a client answers in
    max_periods: int = USUAL_PERIODS

    def __post_init__(self) -> None:
        """Refuse what no client can do."""
        for name in ("period_days", "max_periods"):
            if getattr(self, name) < 1:
                raise PlanError(f"{name} = {getattr(self, name)}: must be at least 1")

    def collected(self, clients: float, days: float) -> Collected | None:
        """Return what clients, evenly spread, report in some days; None of mode "one-time"."""
        if self.mode == "one-time":
            return Collected(clients, 1.0) if days >= A_YEAR else None
        if self.mode == "once":
            return Collected(clients * min(days / self.period_days, self.max_periods), 1.0)
        most = self.period_days if self.memory == "period" else math.inf
        return Collected(clients * days, min(days, most))

    def epsilon(self, epsilon_after: Callable[[int], float], days: int) -> float:
        """Return what a client reveals in some days, its value staying the same."""
        if self.mode == "one-time":
            return epsilon_after(1)
        if self.mode == "longitudinal" and self.memory == "value":
            return epsilon_after(days)
        most = most_answers(days, self.period_days, self.mode)
        return min(most, self.max_periods) * epsilon_after(self.reports_of_an_answer)

    @property
    def reports_of_an_answer(self) -> int:
        """How many reports of an answer a client makes in a period: one a day, or one."""
        return self.period_days if self.mode == "longitudinal" else 1

    def epsilon_of_life(self, epsilon_after: Callable[[int], float]) -> float:
        """Return what a client ever reveals, of any values; infinite if changes are seen."""
        if self.mode == "longitudinal" and self.memory == "value":
            return math.inf
        periods = 1 if self.mode == "one-time" else self.max_periods
        return periods * epsilon_after(self.reports_of_an_answer)


_WIDTH = 100  # of a line of an entry, as of all our files


def is_one_time(params: RapporParams) -> bool:
    """Whether one of the two responses is left out, so that a second report must not be made."""
    return not (params.has_permanent and params.has_instantaneous)


def entry_text(
    params: RapporParams, name: str, metric_type: str, keys: Sequence[str] = ("k", "h", "m"),
    schedule: Schedule | None = None, *, noise: Mapping[str, object] | None = None,
    before: Sequence[str] = (), after: Sequence[str] = (),
) -> str:  # fmt: skip
    """Return a metrics.toml entry, all of whose texts but the noise are to be filled in.

    `keys` are those of k, h and m that the type needs; `before` and `after` its own lines before
    the parameters and at the end.
    """
    noise = noise or params.noise
    if params.has_permanent and not params.has_instantaneous:
        noise = {key: value for key, value in noise.items() if key not in ("p", "q")}
    lines = [
        f"[metrics.{name}]",
        "version = 1",
        f'type = "{metric_type}"',
        'description = "..."',
        'owner = "..."',
        "expires = 2099-12-31",
        *_mode_lines(params, schedule),
        *before,
        *(f"{key} = {getattr(params, key)}" for key in keys),
        *(f"{key} = {_toml(value)}" for key, value in noise.items()),
        *after,
    ]
    return "\n".join(lines)


def _mode_lines(params: RapporParams, schedule: Schedule | None) -> list[str]:
    """Return an entry's keys for when clients report, where they aren't the defaults."""
    if schedule is None:
        return ['mode = "one-time"'] if is_one_time(params) else []
    periods = [f"period_days = {schedule.period_days}", f"max_periods = {schedule.max_periods}"]
    if schedule.mode != "longitudinal":
        return [f'mode = "{schedule.mode}"', *(periods if schedule.mode == "once" else [])]
    memory = ['memory = "period"', *periods] if schedule.memory == "period" else []
    return [*memory, "reports_per_day = 1"]  # as `Schedule.collected` supposes


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)


def category_lines(size: int) -> list[str]:
    """Return an entry's lines with so many categories, which are numbers to be replaced."""
    lines, line = [f"categories = [  # {size} texts"], "   "
    for text in (f' "{i + 1}",' for i in range(size)):
        if len(line) + len(text) > _WIDTH:
            lines.append(line)
            line = "   "
        line += text
    return [*lines, line, "]"]


def wrong_type(metric: Metric, reason: str) -> PlanError:
    """Return the error for a metric whose type isn't planned so."""
    return PlanError(f"metrics.{metric.name}.type = {metric.type.name!r}: {reason}")


def reports_text(reports: float) -> str:
    """Return a number of reports, which may be infinite."""
    return f"{reports:,.0f}" if reports < math.inf else "never"


def share_text(share: float) -> str:
    """Return a share in percent, which may be infinite."""
    return f"{share:.3%}" if share < math.inf else "none"


def percents(*errors: float) -> str:
    """Return standard errors in percent."""
    return ", ".join(f"{100 * error:.3g}%" for error in errors)


def epsilon_text(epsilon: float) -> str:
    """Return an epsilon, which may be infinite, in three digits: decimals waste a thousandth."""
    if epsilon == math.inf:
        return "not bounded"
    return f"{epsilon:.3g}" if epsilon < _FEW_DIGITS else f"{epsilon:,.0f}"


_FEW_DIGITS = 999.5  # from here on three digits would be written with an exponent
EVERYBODY = 1e10
"""More clients than there are people."""


def clients_text(clients: float) -> str:
    """Return a number of clients, which may be more than there are people."""
    return f"{clients:,.0f}" if clients < EVERYBODY else "everybody"


NEAR_BEST = 1.01
"""A limit within 1% of the best counts as the best: the theory itself is off by 4% to 7% where
docs/understand/planning.md finds it worst."""


class SearchSpace(NamedTuple):
    """Parameters with one hash, among which the search looks for the best."""

    # Ascending numbers of bits. On a range the limit falls, so it is bisected, and q* is sought
    # for the first and the last that are tried; of a few numbers it is sought for each.
    bits: Sequence[int]
    cohorts: Callable[[int], Sequence[int]]  # ascending numbers of cohorts for a number of bits
    first: tuple[int, int]  # k and m with which the noise is sought first
    rate: float | None = None  # q*, if theory knows the best; None: it is searched for
    near_bits: float = NEAR_BEST  # how many times the best limit that of fewer bits may be


@dataclass(frozen=True, slots=True)
class Plan:
    """Parameters, and what they achieve."""

    name: str  # what the table calls it
    goal: Goal  # what it was made for
    params: RapporParams  # of one report; of open strings, of one step
    reports: float  # N
    limit: float  # share that N reports show with the goal's power; infinite if none
    std_error: float  # of the share of an absent value
    # Further figures of the goal (`Goal.figures`).
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def epsilon_report(self) -> float:
        """The epsilon of a report."""
        return self.goal.epsilon_report(self.params)


@dataclass(frozen=True, slots=True)
class PlanSearch:
    """The plans that a search found."""

    budget: Budget  # what may be spent; with given parameters, what they spend
    best: Plan  # what was chosen
    alternatives: tuple[Plan, ...] = ()  # other modes and responses
    given: Plan | None = None  # parameters that were to be evaluated

    @property
    def subject(self) -> Plan:
        """The plan that it is about: the given one, or the best."""
        return self.given or self.best

    @property
    def plans(self) -> tuple[Plan, ...]:
        """All plans, in the order of the table."""
        return tuple(plan for plan in (self.given, self.best, *self.alternatives) if plan)


@dataclass(frozen=True, slots=True)
class Goal(ABC):
    """The share, error or difference that a plan is for."""

    # How many candidates are tested at which level, and with which power they are found.
    test: DetectionTest
    # When clients report; None if that isn't asked.
    schedule: Schedule | None = field(default=None, kw_only=True)
    sought: ClassVar[str] = "A value held by"
    """How a sentence about a share begins."""

    @property
    def groups(self) -> int:
        """Into how many groups of equal size the clients are divided, each for the same test."""
        return 1

    def clients(self, n_reports: float) -> float:
        """Return of how many clients of a group N reports are."""
        return n_reports / (self.groups * self.test.reports_each)

    def width(self, params: RapporParams) -> int | None:  # noqa: ARG002
        """Return how many values have a bit each; None: values are hashed."""
        return None

    def limit(self, params: RapporParams, n_reports: float) -> float:
        """Return the smallest share that N reports show with the power; infinite if none."""
        law = bit_limit if self.width(params) else detection_limit
        return law(params, self.clients(n_reports), self.test)

    def error(self, params: RapporParams, n_reports: float) -> float:
        """Return the standard error of the share of an absent value."""
        clients = self.clients(n_reports)
        if width := self.width(params):
            each = self.test.reports_each
            return cells_error(params, width, reports_each=each) / math.sqrt(clients)
        return string_errors(params, clients, 0.0, self.test).absent

    def power(self, params: RapporParams, n_reports: float, share: float) -> float:
        """Return the probability with which N reports show a share."""
        law = bit_power if self.width(params) else detection_power
        return law(params, self.clients(n_reports), share, self.test)

    def reports_needed(self, params: RapporParams, share: float) -> float:
        """Return at how many reports a share is the limit; infinite if at none."""
        return reports_reaching(lambda n: self.limit(params, n), share)

    def response(self, params: RapporParams) -> Response:  # noqa: ARG002
        """Return the response that parameters are of."""
        return UNARY

    def epsilon_report(self, params: RapporParams) -> float:
        """Return what a report spends."""
        return self.epsilon_after(params, 1)

    def epsilon_after(self, params: RapporParams, reports: int) -> float:
        """Return what so many reports of one answer spend."""
        response = self.response(params)
        if isinstance(response, Subset | Window):
            outside = response.cells - response.width
            return reports * chance_bound(response.chance, outside, response.width)
        return params.epsilon_after(reports)

    def over(self, reports_each: float) -> Self:
        """Return the goal if each client makes so many reports of a permanent response."""
        return replace(self, test=replace(self.test, reports_each=reports_each))

    def figures(self, params: RapporParams, n_reports: float) -> Mapping[str, Any]:  # noqa: ARG002
        """Return further figures of the parameters: columns after those of all plans."""
        return {}

    @abstractmethod
    def space(self, budget: Budget, n_reports: float, most_bits: int) -> SearchSpace | RapporParams:
        """Return among which parameters to search, or the best, if theory knows them."""

    def asked(self) -> Mapping[str, object]:
        """Return what was asked, besides epsilons and targets."""
        return {"alpha": self.test.alpha, "power": self.test.power}

    @abstractmethod
    def title(self, reports: str) -> str:
        """Return what the table is about."""

    @abstractmethod
    def about_limit(self, plan: Plan) -> str:
        """Return what a plan finds, in a sentence."""

    @abstractmethod
    def remarks(self, plan: Plan) -> Iterator[Finding]:
        """Yield what else a plan means."""

    def all_bits(self, params: RapporParams) -> tuple[RapporParams, int | None]:
        """Return the parameters with the cohorts of all groups, and `width`."""
        return params._replace(m=self.groups * params.m), self.width(params)

    @abstractmethod
    def entry(self, params: RapporParams, name: str) -> str:
        """Return the metrics.toml entry."""
