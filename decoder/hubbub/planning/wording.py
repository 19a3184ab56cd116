"""What plans print of any goal: shares, numbers of reports, entries for metrics.toml.

When clients report: how many reports some days have, and what they reveal.

The three modes of a metric, as a plan sees them: how many reports N clients make in T days and how
many of these repeat one response, from which errors follow; and what T days of a client reveal.
Invariant: what they reveal holds for however the periods' borders lie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hubbub.inference.errors import PlanError
from hubbub.protocol.metrics import Memory, Mode, most_answers
from hubbub.protocol.params import RapporParams

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
    """A mode, with its numbers.

    Raises `PlanError` if a number is out of range.
    """

    mode: Mode  # "once" a period, "one-time", or "longitudinal"
    # Whether a longitudinal metric keeps the response of a "value" for life, or for a "period".
    memory: Memory = "period"
    period_days: int = USUAL_PERIOD  # length of a period, and how many a client answers in
    max_periods: int = USUAL_PERIODS
    # Reports that a client of a longitudinal metric makes in a period.
    reports_each: int = USUAL_PERIOD

    def __post_init__(self) -> None:
        """Refuse what no client can do."""
        for name in ("period_days", "max_periods", "reports_each"):
            if getattr(self, name) < 1:
                raise PlanError(f"{name} = {getattr(self, name)}: must be at least 1")
        if self.reports_each > self.period_days:
            raise PlanError(
                f"reports_each = {self.reports_each}: must be at most period_days = "
                f"{self.period_days}, for a client reports once a day"
            )

    def collected(self, clients: float, days: float) -> Collected | None:
        """Return what the clients report in some days; None if mode "one-time" leaves that open.

        Clients that report once a period do so on days that are spread evenly.
        """
        if self.mode == "one-time":
            return Collected(clients, 1.0) if days >= A_YEAR else None
        if self.mode == "once":
            return Collected(clients * min(days / self.period_days, self.max_periods), 1.0)
        of_one = days * self.reports_each / self.period_days
        most = self.reports_each if self.memory == "period" else math.inf
        return Collected(clients * of_one, max(1.0, min(of_one, most)))

    def epsilon(self, epsilon_after: Callable[[int], float], days: int) -> float:
        """Return what a client reveals in some days, its value staying the same.

        `epsilon_after`: what so many reports of one answer reveal. `days`: T.
        """
        if self.mode == "one-time":
            return epsilon_after(1)
        if self.mode == "longitudinal" and self.memory == "value":
            return epsilon_after(math.ceil(days * self.reports_each / self.period_days))
        most = most_answers(days, self.period_days, self.mode)
        return min(most, self.max_periods) * epsilon_after(self.reports_of_an_answer)

    @property
    def reports_of_an_answer(self) -> int:
        """How many reports of an answer a client makes in a period."""
        return self.reports_each if self.mode == "longitudinal" else 1

    def epsilon_of_life(self, epsilon_after: Callable[[int], float]) -> float:
        """Return what a client ever reveals, of any values; infinite if changes are seen.

        `epsilon_after`: what so many reports of one answer reveal.
        """
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

    `params`: the metric's parameters. `name`: the metric's name. `metric_type`: the registry's
    `type`. `keys`: which of k, h and m the type needs. `schedule`: when clients report; else it
    follows from the responses. `noise`: keys of the response, if it isn't unary. `before` and
    `after`: lines of the type's own, before the parameters and at the end.
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
    """Return what an entry says of when clients report, where it isn't the default."""
    if schedule is None:
        return ['mode = "one-time"'] if is_one_time(params) else []
    periods = [f"period_days = {schedule.period_days}", f"max_periods = {schedule.max_periods}"]
    if schedule.mode != "longitudinal":
        return [f'mode = "{schedule.mode}"', *(periods if schedule.mode == "once" else [])]
    memory = ['memory = "period"', *periods] if schedule.memory == "period" else []
    return [*memory, "reports_per_day = 1"]  # as `Schedule.reports_each` supposes


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
    """Return an epsilon, which may be infinite."""
    return f"{epsilon:.4g}" if epsilon < math.inf else "not bounded"
