"""A double for the tests of apps: checks every call as the real client would, and keeps it.

telemetry = RecordingTelemetry("metrics.toml")
start_browser(telemetry)
assert telemetry.calls == [("homepage", "news.example.org")]
"""

from __future__ import annotations

from pathlib import Path

from hubbub.client.base import Status
from hubbub.client.encoder import SECRET_BYTES, Encoder
from hubbub.client.kinds import Value
from hubbub.client.metrics import Registry


class RecordingTelemetry:
    """Stands in for `Telemetry`: no state, no thread, no network.

    Parameters
    ----------
    metrics : Registry, str or Path

    Attributes
    ----------
    calls : list of (metric, value)
        What was recorded, in order.
    """

    def __init__(self, metrics: Registry | str | Path) -> None:
        registry = metrics if isinstance(metrics, Registry) else Registry.load(metrics)
        self._registry = registry
        self._encoders = {name: Encoder(m, bytes(SECRET_BYTES)) for name, m in registry.items()}
        self.calls: list[tuple[str, Value]] = []

    def record(self, metric: str, value: Value) -> None:
        """Keep a call.

        Raises
        ------
        UnknownMetricError, EncodingError
            Where the real client would drop it: a test should fail for that.
        """
        self._registry[metric]
        self._encoders[metric].encode(value)
        self.calls.append((metric, value))

    def values(self, metric: str) -> list[Value]:
        """Return what was recorded of one metric."""
        return [value for name, value in self.calls if name == metric]

    def flush(self, timeout: float = 10.0) -> bool:  # noqa: ARG002 (as in Telemetry)
        """Return True: there is nothing to wait for."""
        return True

    def close(self, timeout: float = 2.0) -> None:
        """Do nothing."""

    def status(self) -> Status:
        """Return that everything was delivered."""
        n = len(self.calls)
        return Status(recorded=n, delivered=n, waiting=0, dropped={}, disabled=None)
