"""Reports in quarantine become countable once a registry knows them, if they pass its checks.

They came when nobody could say what they should be like, so they are asked now: whether the cohort
exists and, where improbable reports are refused, whether the number of set bits is plausible.
Invariant: whatever is counted of reports is counted once they are durable where they belong.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from hubbub.collector.config.settings import Settings
from hubbub.collector.ingest.report_validator import ReportValidator
from hubbub.collector.operations.metrics import Metrics
from hubbub.protocol.registry import Registry
from hubbub.storage import NewBatch, Replayed, Store


async def replay(
    store: Store, registry: Registry, settings: Settings, metrics: Metrics
) -> AsyncGenerator[Replayed, None]:
    """Move what a registry knows by now out of quarantine; yield what was moved.

    Parameters
    ----------
    store : Store
        Its collectors have declared the registry.
    registry : Registry
    settings : Settings
        Say what happens to improbable reports.
    metrics : Metrics
        Where they are counted.

    Raises
    ------
    StoreError
        If the store fails; the rest stays in quarantine.
    """
    validator = ReportValidator(registry, settings, metrics)
    async for replayed in store.replay_quarantine(registry, validator.screen):
        metrics.replayed(replayed.records.reports)
        validator.flag([NewBatch(b"", {replayed.key: replayed.records})])
        yield replayed
