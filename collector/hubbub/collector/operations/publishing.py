"""Which numbers are published when: what requests move changes at full ten minutes only.

Whoever reads the admin listener may look every second and keep for years what is there, send
batches too, and know when somebody's request came from elsewhere. So nothing tells within
`publish_seconds` when a batch came, and reports by metric are in hundreds that are rounded at
random: what a batch adds shows at the next step with a probability of its reports of that metric
over a hundred, whatever else was sent. Invariants: all collectors publish at the same moments of
the clock, and counters begin with the first of them after the start, so that neither restarts nor
differences tell of less than a whole step.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from hubbub.collector.operations.metrics import (
    FAMILIES,
    CounterName,
    FamilyType,
    Metrics,
    MetricValues,
)

HUNDRED = 100
"""Reports by metric are published in multiples of this."""

_BY_METRIC = "reports"
_LIVE = frozenset({"reloads", "reload_failing", "reload_success", "switch_failing", "processes"})
"""What no request moves is published as it is. How long an upkeep takes, requests do move."""

_SINCE_START = _LIVE | {"upkeep"}
"""What is counted from the start on, since it tells nothing of requests."""

_STARTED = "upkeep_success"
"""What begins with the time of the start instead of 0."""

_OF_CONNECTIONS = "process_open_fds"
"""Each connection is an open file, so this would tell of the moment."""

_Key = TypeVar("_Key", bound=Hashable)


class Coarse:
    """Rounds numbers of reports to hundreds, at random, so that they are right on average.

    A number is shown anew as it was, plus the hundreds that it lacks, plus one more with the
    probability of what is left, over a hundred. So r reports move what is shown with a probability
    of at most r/100 at a step; otherwise it can't be told that they were there, nor later that it
    was then. What is shown is always less than a hundred off.

    `chance`: returns random numbers in [0, 1); the operating system's if not given.
    """

    def __init__(self, chance: Callable[[], float] | None = None) -> None:
        self._chance = chance or secrets.SystemRandom().random
        self._shown: Mapping[Any, int] = {}

    def __call__(self, numbers: Mapping[_Key, float]) -> dict[_Key, int]:
        """Return what is to be shown of these numbers from now on; others are forgotten."""
        shown = {key: self._move(self._shown.get(key, 0), int(n)) for key, n in numbers.items()}
        self._shown = shown
        return shown

    def _move(self, shown: int, number: int) -> int:
        if number < shown:  # some were deleted, or more are shown than there are
            return shown - (shown - number) // HUNDRED * HUNDRED
        hundreds, rest = divmod(number - shown, HUNDRED)
        return shown + HUNDRED * (hundreds + (self._chance() < rest / HUNDRED))


class Publisher:
    """Publishes the numbers of all processes of a collector; one process does it for all.

    `facts`: numbers that aren't counted, such as the size of the store; set them at a step.
    `exact`: the numbers of the last step before reports by metric were rounded, for sums over
    metrics.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.facts: Mapping[CounterName, float] = {}
        self._metrics = metrics
        self._coarse = Coarse()
        self._base: Mapping[CounterName, float] | None = None
        self._processes: list[Metric] = []
        self._published: Mapping[CounterName, float] = {
            name: n if name.family == _STARTED else 0.0
            for name, n in metrics.snapshot().numbers.items()
            if not name.labels or name in metrics.begun
        }
        self.exact = MetricValues(self._published)

    def step(self) -> None:
        """Publish what was counted since the first step."""
        numbers = self._metrics.snapshot().numbers
        if self._base is None:
            self._base = numbers
        counted = {
            name: number - self._base.get(name, 0.0) if _is_counted(name) else number
            for name, number in numbers.items()
        }
        self.exact = MetricValues(counted)
        by_metric = {name: n for name, n in counted.items() if name.family == _BY_METRIC}
        published = counted | self._coarse(by_metric)
        # That there is a number of a metric, or of a reason, would tell that there was one, unless
        # there always is.
        begun = self._metrics.begun
        self._published = {
            name: n for name, n in published.items() if n or not name.labels or name in begun
        }
        registry = CollectorRegistry(auto_describe=False)
        of_process = ProcessCollector(registry=registry)
        self._processes = [it for it in of_process.collect() if it.name != _OF_CONNECTIONS]

    def values(self) -> MetricValues:
        """Return what is published now."""
        live = self._metrics.snapshot().numbers
        live = {name: number for name, number in live.items() if name.family in _LIVE}
        return MetricValues({**self._published, **live, **self.facts})

    def exposition(self) -> tuple[bytes, str]:
        """Return the same in Prometheus' format, and its media type."""
        return generate_latest(self), CONTENT_TYPE_PLAIN_0_0_4

    def collect(self) -> Iterator[Metric]:
        """Yield the same in the form of prometheus_client."""
        yield from _metric_families(self.values())
        yield from self._processes


def _is_counted(name: CounterName) -> bool:
    is_sum = FAMILIES[name.family].type in {FamilyType.COUNTER, FamilyType.HISTOGRAM}
    return is_sum and name.family not in _SINCE_START


def _metric_families(values: MetricValues) -> Iterator[Metric]:
    """Yield numbers in the form of prometheus_client, those of all families."""
    for name, family in FAMILIES.items():
        if family.type is FamilyType.HISTOGRAM:
            exposed = HistogramMetricFamily(family.exposed, family.help)
            histogram = values.histogram(name)
            exposed.add_metric([], list(histogram.counts), histogram.total)
            yield exposed
            continue
        make = CounterMetricFamily if family.type is FamilyType.COUNTER else GaugeMetricFamily
        simple = make(family.exposed, family.help, labels=family.labels)
        for labels, number in values.by(name):
            simple.add_metric(list(labels), number)
        yield simple
