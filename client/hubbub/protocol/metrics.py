"""A metric: one registered question to the population, how answers are blurred, and their cost.

A `Response` defines how a value's bits are blurred, and what that promises. `UNARY` gives every bit
independent noise, once or twice: it is RAPPOR. `Subset` and `Window` draw a whole report at once,
from as many cells as there are categories or outputs, and can be asked once per answer only.
Invariant: a response's epsilon is that of the very doubles by which clients draw, rounded up.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from hubbub.protocol.dimensions import MIN_REPORTS, Dimension, parse_slice, slice_of
from hubbub.protocol.params import ByDefinition, chance_bound

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from hubbub.protocol.metric_types.base import MetricType
    from hubbub.protocol.params import RapporParams

MAX_VALUES = 100
"""Default of `max_values`: distinct values that a client reports of a metric's version."""
MAX_PERIODS = 100
"""Default of `max_periods`: periods that a client answers, over all versions of a metric."""
SECONDS_A_DAY = 86_400  # of Unix time, which has no leap seconds

Memory = Literal["value", "period"]
Mode = Literal["longitudinal", "one-time", "once"]


class Response(ByDefinition):
    """One way to answer; two are equal if they draw the same reports.

    This one is RAPPOR's: every bit has independent noise, a permanent response, an instantaneous
    one, or both, and the type defines its promise.
    """

    __slots__ = ()
    name: ClassVar[str] = "unary"

    @property
    def ones(self) -> int | None:
        """How many bits every report has set; None if that is left to chance."""
        return None

    @property
    def cells(self) -> int | None:
        """How many of the first bits may be set; None: all."""
        return None

    def log_chance(self, params: RapporParams) -> float:  # noqa: ARG002
        """Return the greatest natural logarithm of the chance of any one report, where known."""
        return 0.0

    def epsilon_after(self, metric_type: MetricType, params: RapporParams, reports: float) -> float:
        """Return the bound on what so many reports of one answer reveal; infinite: all of them."""
        return metric_type.epsilon_after(params, reports)


class _Cells(Response):
    """A report in which a fixed number of cells is set.

    `cells`: d, at least 2. `width`: w, between 1 and d - 1. `chance`: q, strictly between 0 and 1,
    and above w/d: the probability of the outcomes that favour the value.

    Notes
    -----
    Both responses have w favoured outcomes of one kind and d - w of the other, so that any report
    is at most q (d - w) / ((1 - q) w) times as probable under one value as under another.
    """

    __slots__ = ("_cells", "chance", "width")

    def __init__(self, cells: int, width: int, chance: float) -> None:
        self._cells = cells
        self.width = width
        self.chance = chance

    @property
    def cells(self) -> int:
        """Number of cells that may be set: d."""
        return self._cells

    def epsilon_after(self, metric_type: MetricType, params: RapporParams, reports: float) -> float:  # noqa: ARG002
        """Return ln(q (d - w) / ((1 - q) w)) a report, for each is drawn from the value itself."""
        return reports * chance_bound(self.chance, self.cells - self.width, self.width)


class Subset(_Cells):
    """Subset selection: a set of w categories that holds one's own with probability q.

    The others are uniform among those that are left (Ye, Barg: "Optimal schemes for discrete
    distribution estimation under locally differential privacy", 2018). w = 1 is generalized
    randomized response.
    """

    __slots__ = ()
    name = "subset"

    @property
    def ones(self) -> int:
        """Size of the set: w."""
        return self.width

    @property
    def other_chance(self) -> float:
        """Probability of a category that isn't one's own: (q (w-1) + (1-q) w) / (d-1)."""
        w, q = self.width, self.chance
        return (q * (w - 1) + (1 - q) * w) / (self.cells - 1)

    def definition(self) -> dict[str, object]:
        """Return the size of sets; the categories and q are in the rest of the definition."""
        return {"response": "subset", "size": self.width}

    def log_chance(self, params: RapporParams) -> float:  # noqa: ARG002
        """Return the chance of a set that holds one's own: q over the number of these."""
        rest = math.lgamma(self.cells) - math.lgamma(self.width)
        return math.log(self.chance) - rest + math.lgamma(self.cells - self.width + 1)


class Window(_Cells):
    """One cell, in a window of w cells around a number's position with probability q.

    Positions are 0 to d - w; the window of position s is the cells s to s + w - 1. Else the cell is
    uniform among the others. It is the piecewise mechanism (Wang et al.: "Collecting and analyzing
    multidimensional data with local differential privacy", ICDE 2019) on a grid.
    """

    __slots__ = ()
    name = "window"

    @property
    def ones(self) -> int:
        """Return 1."""
        return 1

    def definition(self) -> dict[str, object]:
        """Return q; the cells and the window are in the type's definition."""
        return {"response": "window", "chance": self.chance}

    def log_chance(self, params: RapporParams) -> float:  # noqa: ARG002
        """Return the chance of a cell of the window."""
        return math.log(self.chance / self.width)


UNARY = Response()


def response_of(definition: Mapping[str, Any]) -> Response:
    """Return the response of a `Metric.definition`, as stores keep those of earlier versions."""
    if definition.get("response") == Subset.name:
        size, q = definition["size"], definition["q"]
        # p is (q (w - 1) + (1 - q) w) / (d - 1), whatever the type calls its d categories.
        others = round((q * (size - 1) + (1 - q) * size) / definition["p"])
        return Subset(1 + others, size, q)
    if definition.get("response") == Window.name:
        return Window(definition["cells"], definition["window"], definition["chance"])
    return UNARY


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
        return self.epsilon_after(math.inf)

    @property
    def epsilon_report(self) -> float:
        """Bound on what a single report reveals; see `Response`."""
        return self.epsilon_after(1)

    def epsilon_after(self, reports: float) -> float:
        """Bound on what so many reports of one answer reveal; see `Response`."""
        return self.response.epsilon_after(self.type, self.params, reports)

    @property
    def price(self) -> float:
        """The cost of an admitted answer, however often it is reported."""
        return self.epsilon_report if self.reports_once else self.epsilon_permanent

    @property
    def reserve(self) -> float:
        """The most it costs if only times decide: one answer, or one each period."""
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
