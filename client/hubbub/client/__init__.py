"""The client that apps embed: values in, noisy reports out."""

from typing import TYPE_CHECKING

from hubbub.client.encoder import Encoder
from hubbub.client.interface import (
    AsyncTelemetryProtocol,
    Preview,
    Status,
    SyncTelemetryProtocol,
    TelemetryProtocol,
)
from hubbub.client.ledger import MetricSpending, Spending
from hubbub.client.telemetry import Telemetry, consent_refusal
from hubbub.protocol.errors import (
    EncodingError,
    HubbubError,
    MetricError,
    ParameterError,
    StateError,
    UnknownCategoryError,
    UnknownMetricError,
)
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import RapporParams
from hubbub.protocol.registry import Registry, check_compatible
from hubbub.protocol.wire import Batch, Report, batch_to_json

if TYPE_CHECKING:
    from hubbub.client.aio import AsyncTelemetry as AsyncTelemetry

__version__ = "0.1.0"

__all__ = [
    "AsyncTelemetryProtocol",
    "Batch",
    "Encoder",
    "EncodingError",
    "HubbubError",
    "Metric",
    "MetricError",
    "MetricSpending",
    "ParameterError",
    "Preview",
    "RapporParams",
    "Registry",
    "Report",
    "Spending",
    "StateError",
    "Status",
    "SyncTelemetryProtocol",
    "Telemetry",
    "TelemetryProtocol",
    "UnknownCategoryError",
    "UnknownMetricError",
    "__version__",
    "batch_to_json",
    "check_compatible",
    "consent_refusal",
]


def __getattr__(name: str) -> object:
    """Import `AsyncTelemetry` when it is asked for: threads need no aiohttp."""
    if name == "AsyncTelemetry":
        from hubbub.client.aio import AsyncTelemetry

        return AsyncTelemetry
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
