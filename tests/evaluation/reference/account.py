"""The account of section 6, and the clocks of section 5: what becomes of each recording.

Values stand for themselves here, and an answer is a row in a list: no digests, no responses, no
disk.
"""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass, field
from typing import Any

from evaluation.reference import protocol

DAY = 86_400
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
    period: int | None = None
    behind_since: float | None = None
    is_fresh: bool = True  # no answer of this secret yet


class Account:
    """A client's account from its first start on; `registry` may be replaced, as by an update."""

    def __init__(self, registry: Json) -> None:
        self.registry = registry
        self.versions: dict[tuple[str, int], Version] = {}
        self.answers: list[Answer] = []

    def record(self, time: float, metric: str, value: Any) -> tuple[str, int | None]:
        """Return what becomes of a recording, and the number of the answer that it reports."""
        entry = self.registry["metrics"][metric]
        version = self._version(metric)
        if not self._is_as_answered(metric):
            return "refused", None
        if entry.get("mode") == "one-time":
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
        """Return what an answer's reports reveal, or more if its version isn't registered."""
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
        length = entry["period_days"] * DAY
        now = int(time // length)
        if version.period is not None and now == version.period:
            version.behind_since = None
            return "again", version.answers[-1]
        if version.period is not None and now < version.period:
            if version.behind_since is None or time < version.behind_since:
                version.behind_since = time
            if time < version.behind_since + length:
                return "again", version.answers[-1]
        if len(version.answers) >= entry.get("max_periods", 100):
            return "refused", None
        result, answer = self._admit_first(metric, version)
        if answer is not None:
            version.period, version.behind_since = now, None
        return result, answer

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
        of_metrics = math.fsum(
            prices(metrics[name])[0] * times(metrics[name]) for name in registered
        )
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

    def reset(self) -> None:
        """Take another secret: no former answer can be reported, and the next one is a first."""
        for version in self.versions.values():
            version.by_value.clear()
            version.period = version.behind_since = None
            version.is_fresh = True

    @staticmethod
    def _fits(total: float, bound: float) -> bool:
        return total <= bound * (1 + TOLERANCE)


def definition(entry: Json) -> Json:
    """Return what may not change under a version, with the defaults written out."""
    one_time = {"p": 0, "q": 1} if entry.get("mode") == "one-time" else {}
    kept = ("type", "categories", "edges", "k", "h", "m", "f", "p", "q", "memory", "period_days")
    full = {"memory": "value"} | one_time | entry
    return {key: full[key] for key in kept if key in full}


def prices(entry: Json) -> tuple[float, float]:
    """Return what an answer costs, and what one report of it reveals."""
    f, p, q = entry["f"], entry.get("p", 0.0), entry.get("q", 1.0)
    permanent, report = protocol.epsilons(entry["type"], entry.get("h", 1), f, p, q)
    return (report if entry.get("mode") == "one-time" else permanent), report


def epsilon_after(entry: Json, reports: int) -> float:
    """Return what so many reports of an answer reveal."""
    f, p, q = entry["f"], entry.get("p", 0.0), entry.get("q", 1.0)
    return protocol.epsilon_after(entry["type"], entry.get("h", 1), f, p, q, reports)


def times(entry: Json) -> int:
    """Return how many answers of a metric times alone decide."""
    return int(entry.get("max_periods", 100)) if entry.get("memory") == "period" else 1
