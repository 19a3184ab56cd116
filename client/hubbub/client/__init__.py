"""The client that apps embed: values in, noisy reports out."""

from hubbub.client.encoder import Encoder
from hubbub.client.ledger import MetricSpending, Spending
from hubbub.client.telemetry import AsyncTelemetry, Preview, Status, Telemetry, consent_refusal
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

__version__ = "0.1.0"

__all__ = [
    "AsyncTelemetry",
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
    "Telemetry",
    "UnknownCategoryError",
    "UnknownMetricError",
    "__version__",
    "batch_to_json",
    "check_compatible",
    "consent_refusal",
]
