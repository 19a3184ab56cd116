"""Metrics as their owners registered them: metrics.toml -> `Registry`.

Client, collector and decoder read this one file. What a metric's reports mean may never change
under the same version, because reports drawn in different ways can't be told apart afterwards;
`check_compatible` is the guard.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from hubbub.client.errors import MetricError, UnknownMetricError
from hubbub.client.kinds import BooleanKind, Kind
from hubbub.client.params import RapporParams

if TYPE_CHECKING:
    import datetime as dt
    from pathlib import Path

MAX_VALUES = 100
"""Default of `max_values`: distinct values that a client reports of a metric in its life."""
MAX_PERIODS = 100
"""Default of `max_periods`: answers that a client gives to a metric with periods in its life."""
SECONDS_A_DAY = 86_400

Memory = Literal["value", "period"]


class Metric(NamedTuple):
    """One registered question to the population.

    Attributes
    ----------
    application : str
        The registry's application; with name and version, the domain that keeps this metric's
        permanent responses apart from every other's.
    name : str
    version : int
    kind : Kind
        The variable's type.
    params : RapporParams
    description, owner : str
        What is asked and why, and who answers for it.
    expires : datetime.date
        Last day (UTC) on which clients report.
    one_time : bool
        Whether a client reports once in its life; one of the two responses is then left out.
    max_values : int
        Distinct values that a client reports in its life; not with ``memory = "period"``.
    memory : "value" or "period"
        What has a permanent response: each distinct value, for life, or each period.
    period_days, max_periods : int
        Length of a period, and how many a client answers in; 0 with ``memory = "value"``.
    """

    application: str
    name: str
    version: int
    kind: Kind
    params: RapporParams
    description: str
    owner: str
    expires: dt.date
    one_time: bool = False
    max_values: int = MAX_VALUES
    memory: Memory = "value"
    period_days: int = 0
    max_periods: int = 0

    @property
    def epsilon_permanent(self) -> float:
        """Bound on what all reports ever made of one value reveal; see `RapporParams`."""
        if isinstance(self.kind, BooleanKind):
            return self.params.epsilon_permanent_of_a_bit
        return self.params.epsilon_permanent

    @property
    def epsilon_report(self) -> float:
        """Bound on what a single report reveals; see `RapporParams`."""
        if isinstance(self.kind, BooleanKind):
            return self.params.epsilon_report_of_a_bit
        return self.params.epsilon_report

    @property
    def price(self) -> float:
        """What an admitted answer costs, however often it is reported."""
        return self.epsilon_report if self.one_time else self.epsilon_permanent

    @property
    def reserve(self) -> float:
        """What it costs at most if times alone decide: one answer, or one each period."""
        return self.price * (self.max_periods if self.memory == "period" else 1)

    @property
    def max_answers(self) -> int:
        """How many answers a client gives in its life: values, periods, or one report."""
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
        definition = {"type": self.kind.name, **self.kind.definition(), **self.params._asdict()}
        return definition | periods

    def period(self, seconds: float) -> int:
        """Return the number of the period in which a moment (seconds since the epoch) falls."""
        return int(seconds // (self.period_days * SECONDS_A_DAY))


class Registry(Mapping[str, Metric]):
    """The metrics of one application, by name; read-only.

    Parameters
    ----------
    application : str
    metrics : mapping of str to Metric
    lifetime_epsilon : float, optional
        What a client may spend in its life, over all metrics; None: no bound but `max_values`.
    """

    __slots__ = ("_metrics", "application", "lifetime_epsilon")

    def __init__(
        self,
        application: str,
        metrics: Mapping[str, Metric],
        lifetime_epsilon: float | None = None,
    ) -> None:
        self.application = application
        self.lifetime_epsilon = lifetime_epsilon
        self._metrics = dict(metrics)

    @classmethod
    def load(cls, path: str | Path) -> Registry:
        """Read metrics.toml.

        Raises
        ------
        MetricError
            If the file can't be read, isn't TOML, or an entry is wrong (the message says where).
        """
        from pathlib import Path

        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise MetricError(f"{path}: can't be read as UTF-8 text: {error}") from error
        return cls.parse(text)

    @classmethod
    def parse(cls, text: str) -> Registry:
        """Read a registry from the text of a metrics.toml (raises as `load`)."""
        from hubbub.client.registration import read_registry

        application, metrics, lifetime_epsilon = read_registry(text)
        return cls(application, metrics, lifetime_epsilon)

    def __getitem__(self, name: str) -> Metric:
        try:
            return self._metrics[name]
        except KeyError:
            known = ", ".join(sorted(self._metrics))
            raise UnknownMetricError(f"metric {name!r}: must be one of: {known}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._metrics)

    def __len__(self) -> int:
        return len(self._metrics)


def check_compatible(old: Registry, new: Registry) -> None:
    """Refuse a registry that changes what an existing version means.

    Raises
    ------
    MetricError
        If the application differs, a version goes down, a definition changed without a new one,
        or `lifetime_epsilon` leaves less for changed answers than before (what clients spent on
        these already would then decide whether they answer new questions).
    """
    if old.application != new.application:
        raise MetricError(
            f"application = {new.application!r}: must stay {old.application!r}, because every "
            "client's permanent responses depend on it"
        )
    if old.lifetime_epsilon is not None and new.lifetime_epsilon is not None:
        still = {(metric.name, metric.version) for metric in new.values()}
        gone = [m.reserve for m in old.values() if (m.name, m.version) not in still]
        needed = math.fsum([*gone, *(m.reserve for m in new.values()), old.lifetime_epsilon])
        needed -= math.fsum(m.reserve for m in old.values())
        if new.lifetime_epsilon < needed * (1 - 1e-9):
            raise MetricError(
                f"lifetime_epsilon = {new.lifetime_epsilon}: must be at least {needed:.6g}, which "
                "adds the price of each new metric and version, so that clients' silence doesn't "
                "depend on how often their answers changed"
            )
    for name in old.keys() & new.keys():
        before, after = old[name], new[name]
        if after.version < before.version:
            raise MetricError(
                f"metrics.{name}.version = {after.version}: must be at least {before.version}"
            )
        if after.version == before.version and after.definition != before.definition:
            raise MetricError(
                f"metrics.{name}: changed from {before.definition} to {after.definition}; "
                f"version must be greater than {before.version}"
            )
