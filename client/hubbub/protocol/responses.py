"""How a value's bits are blurred: the responses that a metric can have, and what each promises.

`Unary` gives every bit independent noise, once or twice: it is RAPPOR. `Subset` and `Window` draw a
whole report at once, from as many cells as there are categories or outputs, and can be asked once
per answer only. Invariant: a response's epsilon is that of the very doubles by which clients draw,
rounded up.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from hubbub.protocol.params import chance_bound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hubbub.protocol.metric_types.base import MetricType
    from hubbub.protocol.params import RapporParams


class Response(ABC):
    """One way to answer; two are equal if they draw the same reports."""

    __slots__ = ()
    name: ClassVar[str]  # of the class

    def definition(self) -> dict[str, object]:
        """Return what, besides the parameters, reports depend on."""
        return {}

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

    @abstractmethod
    def epsilon_after(self, metric_type: MetricType, params: RapporParams, reports: int) -> float:
        """Return the bound on what so many reports of one answer reveal."""

    @abstractmethod
    def epsilon_report(self, metric_type: MetricType, params: RapporParams) -> float:
        """Return the bound on what a single report reveals."""

    @abstractmethod
    def epsilon_permanent(self, metric_type: MetricType, params: RapporParams) -> float:
        """Return the bound on what all reports ever made of one answer reveal."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.definition() == other.definition()

    def __hash__(self) -> int:
        return hash((self.name, repr(self.definition())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.definition()})"


class Unary(Response):
    """Every bit has independent noise: a permanent response, an instantaneous one, or both."""

    __slots__ = ()
    name = "unary"

    def epsilon_after(self, metric_type: MetricType, params: RapporParams, reports: int) -> float:
        """Return the exact price of one-hot values, and a bound for filters."""
        return metric_type.epsilon_after(params, reports)

    def epsilon_report(self, metric_type: MetricType, params: RapporParams) -> float:
        """Return theorem 2's bound, as the type has it."""
        return metric_type.epsilon_report(params)

    def epsilon_permanent(self, metric_type: MetricType, params: RapporParams) -> float:
        """Return theorem 1's bound, as the type has it."""
        return metric_type.epsilon_permanent(params)


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

    def epsilon_report(self, metric_type: MetricType, params: RapporParams) -> float:  # noqa: ARG002
        """Return ln(q (d - w) / ((1 - q) w))."""
        return chance_bound(self.chance, self.cells - self.width, self.width)

    def epsilon_permanent(self, metric_type: MetricType, params: RapporParams) -> float:  # noqa: ARG002
        """Return infinity: each report would be drawn from the value itself."""
        return math.inf

    def epsilon_after(self, metric_type: MetricType, params: RapporParams, reports: int) -> float:
        """Return the sum over the reports."""
        return reports * self.epsilon_report(metric_type, params)


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


UNARY = Unary()


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
