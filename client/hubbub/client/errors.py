"""What can go wrong in the client, as one small family of exceptions.

Every message names the field, the value found and what was expected instead. The one exception
that must never appear here is one raised out of `Telemetry.record`: after start-up the client
counts and logs its trouble and leaves the app alone.
"""


class HubbubError(Exception):
    """Base of every error that hubbub raises on purpose."""


class ParameterError(HubbubError, ValueError):
    """A RAPPOR parameter, or a combination of them, is not usable."""


class MetricError(HubbubError, ValueError):
    """A metrics.toml entry is wrong, or a metric isn't registered."""


class UnknownMetricError(MetricError, KeyError):
    """A metric's name isn't in the registry."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the message in quotes


class StateError(HubbubError):
    """The client's state can't be trusted, or is that of another client."""


class ForgottenError(StateError):
    """Another process has deleted this client's state."""


class ReplacedSecretError(StateError):
    """Another process has replaced this client's secret."""


class UnavailableError(HubbubError):
    """The client's state can't be read or written for now (in use, disk full): try again later."""


class EncodingError(HubbubError, ValueError):
    """A value can't be encoded as the metric's type demands."""


class UnknownCategoryError(EncodingError):
    """A value isn't one of an enum's categories."""
