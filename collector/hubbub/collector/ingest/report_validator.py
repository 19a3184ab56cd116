"""Improbable reports in batches: counted by metric, or refused if so configured.

`poisoning` says how many set bits are plausible for a metric; this applies it to batches. Where a
response fixes the number of set bits, a report with another one is impossible, and always refused.
Invariant: whatever is counted of reports is counted once they are durable where they belong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hubbub.collector.config.settings import Settings
from hubbub.collector.operations.metrics import Metrics
from hubbub.collector.problems import BatchError
from hubbub.protocol.poisoning import (
    SetBits,
    improbable,
    plausible_set_bits,
)
from hubbub.protocol.records import Records, joined
from hubbub.protocol.registry import Registry
from hubbub.storage import MetricVersion, NewBatch


class ReportValidator:
    """Compares set bits with what is plausible for the registry's current versions."""

    def __init__(self, registry: Registry, settings: Settings, metrics: Metrics) -> None:
        self._tail = settings.improbable_tail
        self._refuses = settings.improbable_reports == "refuse"
        self._count = metrics.improbable
        self._bounds: Mapping[MetricVersion, SetBits] = {}
        self.use(registry)

    def use(self, registry: Registry) -> None:
        """Use another registry from now on."""
        self._bounds = {
            MetricVersion(metric.name, metric.version): plausible_set_bits(
                metric.params, metric.type, self._tail, metric.response
            )
            for metric in registry.values()
        }

    def check(self, batch: NewBatch) -> None:
        """Refuse a batch with impossible reports, or with improbable ones if so configured.

        Raises `BatchError`: 422, saying how many reports of which metric.
        """
        for key, records in batch.records.items():
            bounds = self._refused_by(key)
            if bounds and (found := int(improbable(records, bounds).sum())):
                raise BatchError(
                    422, f"reports: {found} of {key.metric} with {_fault(bounds)}",
                    reason="improbable" if bounds.cells is None else "impossible",
                )  # fmt: skip

    def _refused_by(self, key: MetricVersion) -> SetBits | None:
        bounds = self._bounds.get(key.whole)
        return bounds if bounds and (self._refuses or bounds.cells is not None) else None

    def flag(self, batches: Iterable[NewBatch]) -> None:
        """Count the improbable reports of stored batches, by metric."""
        pools: dict[MetricVersion, list[Records]] = {}
        for batch in batches:
            for key, records in batch.records.items():
                pools.setdefault(key, []).append(records)
        for key, pool in pools.items():
            bounds = self._bounds.get(key.whole)
            if bounds and (found := int(improbable(joined(pool), bounds).sum())):
                self._count(key.metric, found)


def _fault(bounds: SetBits) -> str:
    if bounds.cells is None:
        return f"an improbable number of set bits; must be between {bounds.low} and {bounds.high}"
    return f"impossible bits; must be exactly {bounds.low} of the first {bounds.cells}"
