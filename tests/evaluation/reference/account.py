"""The account of section 6, the clocks of section 5, and section 10: what becomes of recordings.

Values stand for themselves here, and an answer is a row in a list: no digests, no responses, no
disk.
"""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass, field
from typing import Any

from evaluation.reference import protocol, responses, schedule
from evaluation.reference.schedule import DAY

TOLERANCE = 1e-9

Json = dict[str, Any]


@dataclass
class Answer:
    """An admitted answer: a row that is paid for."""

    number: int
    metric: str
    version: int
    price: float
    epsilon_report: float
    first: bool
    reports: int = 0


@dataclass
class Version:
    """What a client keeps of one version of a metric.

    A period's answer stays here until another is admitted, though clients delete it when the period
    is over; no vector depends on when.
    """

    definition: Json | None = None
    answers: list[Answer] = field(default_factory=list)
    by_value: dict[Any, Answer] = field(default_factory=dict)
    is_fresh: bool = True  # no answer of this secret yet


@dataclass
class LastPeriod:
    """The last period of a metric, of whichever version, that was answered or waited in.

    It lasts from day `first` to the day before `end`.
    """

    version: int
    first: int
    end: int
    behind_since: float | None = None


class Account:
    """A client's account from its first start on; `registry` may be replaced, as by an update."""

    def __init__(self, registry: Json, secret: bytes = b"") -> None:
        self.registry = registry
        self.secret = secret
        self.versions: dict[tuple[str, int], Version] = {}
        self.periods: dict[str, LastPeriod] = {}
        self.answers: list[Answer] = []

    def record(self, time: float, metric: str, value: Any) -> tuple[str, int | None]:
        """Return what becomes of a recording, and the number of the answer that it reports."""
        entry = self.registry["metrics"][metric]
        version = self._version(metric)
        if not self._is_chosen(time, metric) or not self._is_as_answered(metric):
            return "refused", None
        if self._answers_another(metric):
            return "refused", None
        if entry.get("mode") == "once":
            result, answer = self._record_once_a_period(time, metric, version)
        elif entry.get("mode") == "one-time":
            result, answer = self._record_once(metric, version)
        elif entry.get("memory") == "period":
            result, answer = self._record_in_period(time, metric, version)
        else:
            result, answer = self._record_value(metric, version, value)
        if answer is None:
            return result, None
        answer.reports += 1
        return result, answer.number

    @property
    def committed(self) -> float:
        return math.fsum(answer.price for answer in self.answers)

    @property
    def spent(self) -> float:
        return math.fsum(map(self._spent_on, self.answers))

    def _spent_on(self, answer: Answer) -> float:
        if not answer.reports:
            return 0.0
        entry = self.registry["metrics"].get(answer.metric)
        if entry and entry["version"] == answer.version and self._is_as_answered(answer.metric):
            return min(epsilon_after(entry, answer.reports), answer.price)
        return answer.epsilon_report if answer.reports == 1 else answer.price

    def _record_once(self, metric: str, version: Version) -> tuple[str, Answer | None]:
        if version.answers:
            return "refused", None
        return self._admit_first(metric, version)

    def _record_value(self, metric: str, version: Version, value: Any) -> tuple[str, Answer | None]:
        known = unicodedata.normalize("NFC", value) if isinstance(value, str) else value
        if known in version.by_value:
            return "again", version.by_value[known]
        entry = self.registry["metrics"][metric]
        if version.is_fresh:
            result, answer = self._admit_first(metric, version)
        elif len(version.answers) < entry.get("max_values", 100) and self._change_fits(
            prices(entry)[0]
        ):
            result, answer = "admitted", self._admit(metric, version, first=False)
        else:
            return "stale", version.answers[-1]
        if answer is not None:
            version.by_value[known] = answer
        return result, answer

    def _record_in_period(
        self, time: float, metric: str, version: Version
    ) -> tuple[str, Answer | None]:
        entry = self.registry["metrics"][metric]
        days = entry["period_days"]
        first = int(time // (days * DAY)) * days
        if self._is_in_use(time, first, days, metric):
            is_own = self.periods[metric].version == entry["version"]
            return ("again", version.answers[-1]) if is_own else ("refused", None)
        return self._admit_period(metric, version, first, first + days)

    def _record_once_a_period(
        self, time: float, metric: str, version: Version
    ) -> tuple[str, Answer | None]:
        entry = self.registry["metrics"][metric]
        days = entry["period_days"]
        number, is_first_day = self._period(time, metric)
        first, end = (self._first_day(metric, i) for i in (number, number + 1))
        together = self._together(metric)
        in_use = [self._is_in_use(time, first, days, name) for name in together]
        if any(in_use):
            return "refused", None
        if not is_first_day and not any(name in self.periods for name in together):
            self.periods[metric] = LastPeriod(entry["version"], first, end)
            return "refused", None
        return self._admit_period(metric, version, first, end)

    def _admit_period(
        self, metric: str, version: Version, first: int, end: int
    ) -> tuple[str, Answer | None]:
        entry = self.registry["metrics"][metric]
        names = self._together(metric)
        firsts = sum(answer.first and answer.metric in names for answer in self.answers)
        if firsts >= entry.get("max_periods", 100):
            return "refused", None
        result, answer = self._admit_first(metric, version)
        if answer is not None:
            self.periods[metric] = LastPeriod(entry["version"], first, end)
        return result, answer

    def _together(self, metric: str) -> list[str]:
        found = schedule.group_of(self.registry, metric)
        by_period = found is not None and found[1].get("choice") == "period"
        return list(found[1]["metrics"]) if found is not None and by_period else [metric]

    def _is_in_use(self, time: float, first: int, days: int, metric: str) -> bool:
        """Whether a last period keeps one from being answered that begins on a day."""
        last = self.periods.get(metric)
        if last is None or first >= last.end:
            return False
        if time >= last.first * DAY:
            last.behind_since = None
            return True
        if last.behind_since is None or time < last.behind_since:
            last.behind_since = time
        return time < last.behind_since + days * DAY

    def _period(self, time: float, metric: str) -> tuple[int, bool]:
        days = self.registry["metrics"][metric]["period_days"]
        name = schedule.shared_name(self.registry, metric)
        return schedule.period(time, self.secret, self.registry["application"], name, days)

    def _first_day(self, metric: str, number: int) -> int:
        days = self.registry["metrics"][metric]["period_days"]
        name = schedule.shared_name(self.registry, metric)
        application = self.registry["application"]
        return schedule.first_day(self.secret, application, name, days, number)

    def _is_chosen(self, time: float, metric: str) -> bool:
        found = schedule.group_of(self.registry, metric)
        if found is None:
            return True
        name, group = found
        number = self._period(time, metric)[0] if group.get("choice") == "period" else 0
        application = self.registry["application"]
        return metric == schedule.choice(self.secret, application, name, group, number)

    def _answers_another(self, metric: str) -> bool:
        found = schedule.group_of(self.registry, metric)
        if found is None or found[1].get("choice") == "period":
            return False
        others = [name for name in found[1]["metrics"] if name != metric]
        return any(answer.metric in others for answer in self.answers)

    def _admit_first(self, metric: str, version: Version) -> tuple[str, Answer | None]:
        price = prices(self.registry["metrics"][metric])[0]
        firsts = math.fsum(answer.price for answer in self.answers if answer.first)
        limited = math.isfinite(self._budget)
        if limited and not self._fits(firsts + price, min(self._reserve(), self._budget)):
            return "refused", None
        return "admitted", self._admit(metric, version, first=True)

    def _admit(self, metric: str, version: Version, *, first: bool) -> Answer:
        entry = self.registry["metrics"][metric]
        price, of_report = prices(entry)
        answer = Answer(len(self.answers), metric, entry["version"], price, of_report, first)
        version.definition = definition(entry)
        version.is_fresh = False
        version.answers.append(answer)
        self.answers.append(answer)
        return answer

    def _change_fits(self, price: float) -> bool:
        changed = math.fsum(answer.price for answer in self.answers if not answer.first)
        room = max(0.0, self._budget - self._reserve())
        in_part = self._fits(changed + price, room)
        return in_part and self._fits(self.committed + price, self._budget)

    def _reserve(self) -> float:
        metrics = self.registry["metrics"]
        # With another definition than its answers it isn't the version that they are of.
        registered = [name for name in metrics if self._is_as_answered(name)]
        versions = [(name, metrics[name]["version"]) for name in registered]
        dearest: dict[str, float] = {}
        for name in registered:
            together = schedule.shared_name(self.registry, name)
            cost = prices(metrics[name])[0] * times(metrics[name])
            dearest[together] = max(cost, dearest.get(together, 0.0))
        of_metrics = math.fsum(dearest.values())
        of_others = math.fsum(
            answer.price
            for answer in self.answers
            if answer.first and (answer.metric, answer.version) not in versions
        )
        return of_metrics + of_others

    def _version(self, metric: str) -> Version:
        number = self.registry["metrics"][metric]["version"]
        return self.versions.setdefault((metric, number), Version())

    def _is_as_answered(self, metric: str) -> bool:
        entry = self.registry["metrics"][metric]
        return self._version(metric).definition in (None, definition(entry))

    @property
    def _budget(self) -> float:
        return float(self.registry.get("lifetime_epsilon", math.inf))

    @staticmethod
    def _fits(total: float, bound: float) -> bool:
        return total <= bound * (1 + TOLERANCE)


def definition(entry: Json) -> Json:
    """Return what may not change under a version, with the defaults written out."""
    kept = (
        "type", "categories", "edges", "k", "h", "m", "memory", "period_days", "response", "size",
        "low", "high", "cells", "window", "variance",
    )  # fmt: skip
    once = entry.get("mode") == "once"
    full = {"memory": "period" if once else "value"} | entry
    chances = protocol.noise(entry)._asdict()
    return {key: full[key] for key in kept if key in full} | chances | {"once": once}


def prices(entry: Json) -> tuple[float, float]:
    """Return what an answer costs, and what one report of it reveals."""
    if "response" in entry or entry["type"] == "number":
        return (responses.epsilon(entry),) * 2
    chances = protocol.noise(entry)._asdict()
    permanent, report = protocol.epsilons(entry["type"], entry.get("h", 1), **chances)
    return (permanent if entry.get("mode", "longitudinal") == "longitudinal" else report), report


def epsilon_after(entry: Json, reports: int) -> float:
    """Return what so many reports of an answer reveal."""
    if reports == 1:
        return prices(entry)[1]
    h, chances = entry.get("h", 1), protocol.noise(entry)
    return protocol.epsilon_after(entry["type"], h, chances, reports)


def times(entry: Json) -> int:
    """Return how many answers of a metric times alone decide."""
    has_periods = entry.get("memory") == "period" or entry.get("mode") == "once"
    return int(entry.get("max_periods", 100)) if has_periods else 1
