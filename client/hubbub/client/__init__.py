"""The client that apps embed: values in, noisy reports out."""

from hubbub.client.encoder import Encoder
from hubbub.client.errors import (
    EncodingError,
    HubbubError,
    MetricError,
    ParameterError,
    StateError,
    UnknownMetricError,
)
from hubbub.client.metrics import Metric, Registry, check_compatible
from hubbub.client.params import RapporParams
from hubbub.client.telemetry import Status, Telemetry
from hubbub.client.wire import Batch, Report, batch_to_json

__all__ = [
    "Batch",
    "Encoder",
    "EncodingError",
    "HubbubError",
    "Metric",
    "MetricError",
    "ParameterError",
    "RapporParams",
    "Registry",
    "Report",
    "StateError",
    "Status",
    "Telemetry",
    "UnknownMetricError",
    "batch_to_json",
    "check_compatible",
]
