"""What can go wrong with the client's state, beside the errors that all sides share.

The one exception that must never appear here is one raised out of `Telemetry.record`: after
start-up the client counts and logs its trouble and leaves the app alone.
"""

from hubbub.protocol.errors import HubbubError


class StateError(HubbubError):
    """The client's state can't be trusted, or is that of another client."""


class OtherApplicationError(StateError):
    """The client's state directory is another application's."""


class ForgottenError(StateError):
    """Another process has deleted this client's state."""


class ReplacedSecretError(StateError):
    """Another process has replaced this client's secret."""


class UnavailableError(HubbubError):
    """The client's state can't be read or written for now (in use, disk full): try again later."""

    is_busy = False
    """Whether another process has it in use."""
