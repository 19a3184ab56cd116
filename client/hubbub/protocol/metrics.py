"""A metric: one registered question to the population, and what its answers cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from hubbub.protocol.dimensions import MIN_REPORTS, Dimension, parse_slice, slice_of
from hubbub.protocol.responses import UNARY, Response

if TYPE_CHECKING:
    import datetime as dt

    from hubbub.protocol.metric_types.base import MetricType
    from hubbub.protocol.params import RapporParams

MAX_VALUES = 100
"""Default of `max_values`: distinct values that a client reports of a metric's version."""
MAX_PERIODS = 100
"""Default of `max_periods`: periods that a client answers, over all versions of a metric."""
SECONDS_A_DAY = 86_400  # of Unix time, which has no leap seconds

Memory = Literal["value", "period"]
Mode = Literal["longitudinal", "one-time", "once"]


class Metric(NamedTuple):
    """One registered question to the population.

    Attributes
    ----------
    application : str
        The registry's application; with name and version, the domain that keeps this metric's
        permanent responses apart from every other's.
    name : str
    version : int
    type : MetricType
    params : RapporParams
    description, owner : str
        What is asked and why, and who answers for it.
    expires : datetime.date
        Last day (UTC) on which clients report.
    mode : "longitudinal", "one-time" or "once"
        How often a client reports an answer: again and again, with a permanent response; once in
        its life; or once per period. The last two have one response only.
    max_values : int
        Distinct values that a client reports of this version; not with ``memory = "period"``.
    memory : "value" or "period"
        What has a permanent response: each distinct value, for life, or each period.
    period_days, max_periods : int
        Length of a period, and how many a client answers in; 0 with ``memory = "value"``.
    response : Response
    reports_per_day : int
        1: a client sends one report a day (UTC), the newest of those that wait; 0: no limit.
    group : str
        Name of the group of metrics of which a client answers one; empty: of none.
    dimensions : tuple of Dimension
        What its reports state about the app, in the clear.
    min_reports : int
        Combinations of dimensions with fewer reports on a day are counted as others.
    slice : str
        In a client: what its reports state about this app (see `hubbub.protocol.dimensions`).
    """

    application: str
    name: str
    version: int
    type: MetricType
    params: RapporParams
    description: str
    owner: str
    expires: dt.date
    mode: Mode = "longitudinal"
    max_values: int = MAX_VALUES
    memory: Memory = "value"
    period_days: int = 0
    max_periods: int = 0
    response: Response = UNARY
    reports_per_day: int = 0
    group: str = ""
    dimensions: tuple[Dimension, ...] = ()
    min_reports: int = MIN_REPORTS
    slice: str = ""

    def slice_as(self, text: str) -> str:
        """Return a client's slice, reduced to what this metric's dimensions list."""
        return slice_of(self.dimensions, parse_slice(text)) if self.dimensions else ""

    @property
    def one_time(self) -> bool:
        """Whether a client reports this version once."""
        return self.mode == "one-time"

    @property
    def reports_once(self) -> bool:
        """Whether an answer is reported once, so that there is one response and not two."""
        return self.mode != "longitudinal"

    @property
    def epsilon_permanent(self) -> float:
        """Bound on what all reports ever made of one answer reveal; see `Response`."""
        return self.response.epsilon_permanent(self.type, self.params)

    @property
    def epsilon_report(self) -> float:
        """Bound on what a single report reveals; see `Response`."""
        return self.response.epsilon_report(self.type, self.params)

    def epsilon_after(self, reports: int) -> float:
        """Bound on what so many reports of one answer reveal; see `Response`."""
        return self.response.epsilon_after(self.type, self.params, reports)

    @property
    def price(self) -> float:
        """What an admitted answer costs, however often it is reported."""
        return self.epsilon_report if self.reports_once else self.epsilon_permanent

    @property
    def reserve(self) -> float:
        """What it costs at most if only times decide: one answer, or one each period."""
        return self.price * (self.max_periods if self.memory == "period" else 1)

    @property
    def max_answers(self) -> int:
        """How many answers a client gives: values, periods (of all versions), or one report."""
        if self.one_time:
            return 1
        return self.max_periods if self.memory == "period" else self.max_values

    @property
    def hides_changes(self) -> bool:
        """Whether no change of values can be seen in a client's linked reports."""
        return self.one_time or self.memory == "period" or self.max_values == 1

    @property
    def definition(self) -> dict[str, object]:
        """All that reports depend on, as JSON can hold it; fixed for a version."""
        periods = (
            {} if self.memory == "value" else {"memory": "period", "period_days": self.period_days}
        )
        once = {"mode": "once"} if self.mode == "once" else {}
        definition = {"type": self.type.name, **self.type.definition(), **self.params._asdict()}
        return definition | periods | once | self.response.definition()

    def period(self, seconds: float) -> int:
        """Return the number of the calendar's period at a moment (seconds since the epoch)."""
        return int(seconds // (self.period_days * SECONDS_A_DAY))


def most_answers(days: int, period_days: int, mode: Mode) -> int:
    """Return in how many periods a client answers in some days on end, at most.

    Calendar periods of D days: T days touch 1 + ceil((T - 1) / D). With mode "once" periods begin
    on days of their own, two of them perhaps on days that follow each other, and the one before
    may be answered late: of T > 1 days 2 + ceil((T - 2) / D).
    """
    if mode == "once" and days > 1:
        return 2 + -(-(days - 2) // period_days)
    return 1 + -(-(days - 1) // period_days)
