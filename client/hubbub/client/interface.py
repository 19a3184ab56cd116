"""The interface that the real clients and the doubles for tests satisfy.

An app that annotates its parameters with these protocols can take `Telemetry` in production and
`hubbub.client.testing.RecordingTelemetry` in its tests, and a type checker ensures that both fit.
Code that only records needs `TelemetryProtocol`, with threads as with asyncio.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from hubbub.client.ledger import Spending
from hubbub.protocol.metric_types.base import Value
from hubbub.protocol.wire import Report

if TYPE_CHECKING:
    from hubbub.client.transport import DeliveryFailure


class Status(NamedTuple):
    """Counters of a `Telemetry` in this process.

    Attributes
    ----------
    recorded, delivered : int
        Reports made here, and reports that the collector acknowledged to this process.
    waiting : int
        Reports still to be sent, in memory and, when this process last looked, on disk (also those
        of earlier runs and other processes).
    stale : int
        Reports of an earlier answer, in place of a value beyond `max_values` or the budget; counted
        when they are stored, about a second after the call.
    dropped : mapping of str to int
        Reports or calls dropped, by reason; what no room was left for, by calls of the last second
        or by other processes, when it would have been stored.
    disabled : str or None
        Why nothing is recorded at all, if so.
    last_error : DeliveryFailure or None
        Why a batch was last not delivered, and when.
    first_periods : mapping of str to str
        By metric, the day (UTC) on which this client's first period starts; nothing is reported
        before it. Only metrics that wait for it are listed.
    postponed : str or None
        Why reports are stored and not sent until the next start, if so.
    """

    recorded: int
    delivered: int
    waiting: int
    stale: int
    dropped: Mapping[str, int]
    disabled: str | None
    last_error: DeliveryFailure | None
    first_periods: Mapping[str, str] = MappingProxyType({})
    postponed: str | None = None


class Preview(NamedTuple):
    """The report that `record` would send for a value.

    Attributes
    ----------
    report : Report
        Drawn as `record` would draw it; each call draws another.
    media_type : str
    body : bytes
        The bytes and their form if this report were sent by itself: the compact one
        (docs/protocol, section 8).
    words : str
        The same for people.
    refusal : str or None
        Why it wouldn't be sent, if so.
    stale : bool
        Whether the report is of an earlier answer, because there is no room for another value.
    epsilon_report, epsilon_permanent : float
    """

    report: Report
    media_type: str
    body: bytes
    words: str
    refusal: str | None
    stale: bool
    epsilon_report: float
    epsilon_permanent: float


class TelemetryProtocol(Protocol):
    """The methods that never wait, the same with threads and asyncio; see `Telemetry`."""

    def record(self, metric: str, value: Value) -> None: ...
    def status(self) -> Status: ...
    def ledger(self) -> Spending: ...
    def explain(self, people: int = 1) -> str: ...
    def preview(self, metric: str, value: Value) -> Preview: ...
    def set_consent(self, consent: bool) -> None: ...
    def reset(self) -> None: ...


class SyncTelemetryProtocol(TelemetryProtocol, Protocol):
    """`Telemetry` and `RecordingTelemetry`."""

    def flush(self, timeout: float = ...) -> bool: ...
    def close(self, timeout: float = ...) -> None: ...
    def forget(self) -> str: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_error: object) -> None: ...


class AsyncTelemetryProtocol(TelemetryProtocol, Protocol):
    """`AsyncTelemetry` and `AsyncRecordingTelemetry`."""

    async def flush(self, timeout: float = ...) -> bool: ...
    async def close(self, timeout: float = ...) -> None: ...
    async def forget(self) -> str: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *_error: object) -> None: ...
