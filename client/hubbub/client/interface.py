"""What apps may ask of any telemetry: the real clients and the doubles for tests satisfy this.

An app that annotates its parameters by these protocols takes `Telemetry` in production and
`hubbub.client.testing.RecordingTelemetry` in its tests, and a type checker sees to it that both
fit. Code that only records needs `TelemetryProtocol`, whichever way reports are delivered.
"""

from __future__ import annotations

from typing import Protocol, Self

from hubbub.client.base import Preview, Status
from hubbub.client.ledger import Spending
from hubbub.protocol.metric_types.base import Value


class TelemetryProtocol(Protocol):
    """What needs no waiting, and is the same with threads and with asyncio."""

    def record(self, metric: str, value: Value) -> None:
        """Report a value, in noise."""

    def status(self) -> Status:
        """Return counters and, if recording is off, the reason."""

    def ledger(self) -> Spending:
        """Return what this client has spent of its privacy."""

    def explain(self, people: int = 1) -> str:
        """Return in words what is asked, what it can reveal, and what has been spent."""

    def preview(self, metric: str, value: Value) -> Preview:
        """Return exactly what `record` would send, without spending anything."""

    def set_consent(self, consent: bool) -> None:
        """Take the user's new answer: begin to record, or stop at once."""

    def reset(self) -> None:
        """Draw a new secret: this client becomes another one."""


class SyncTelemetryProtocol(TelemetryProtocol, Protocol):
    """`Telemetry` and `RecordingTelemetry`."""

    def flush(self, timeout: float = ...) -> bool:
        """Send what waits, now; return whether everything was settled in time."""

    def close(self, timeout: float = ...) -> None:
        """Flush, then stop."""

    def forget(self) -> str:
        """Delete this client's secret, ledger and unsent reports; return what that means."""

    def __enter__(self) -> Self:
        """Return the object itself."""

    def __exit__(self, *_error: object) -> None:
        """Close."""


class AsyncTelemetryProtocol(TelemetryProtocol, Protocol):
    """`AsyncTelemetry` and `AsyncRecordingTelemetry`."""

    async def flush(self, timeout: float = ...) -> bool:
        """Send what waits, now; return whether everything was settled in time."""

    async def close(self, timeout: float = ...) -> None:
        """Flush, then stop."""

    async def forget(self) -> str:
        """Delete this client's secret, ledger and unsent reports; return what that means."""

    async def __aenter__(self) -> Self:
        """Begin to deliver."""

    async def __aexit__(self, *_error: object) -> None:
        """Close."""
