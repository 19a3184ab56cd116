"""Doubles for the tests of apps: they check every call as the real clients would, and keep it.

telemetry = RecordingTelemetry("metrics.toml")
start_browser(telemetry)
assert telemetry.calls == [("homepage", "news.example.org")]

Encoding, account, preview and words are the real clients' own code, with a secret that is thrown
away. Invariant: a double opens no file, starts no thread and reaches no network.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from hubbub.client.encoder import SECRET_BYTES
from hubbub.client.ledger import Account
from hubbub.client.recorder import CLOSED, FORGOTTEN
from hubbub.client.telemetry import AsyncTelemetry, BaseTelemetry, Telemetry
from hubbub.protocol.metric_types.base import Value
from hubbub.protocol.registry import Registry

_NOWHERE = "http://127.0.0.1:9"  # the discard port
_NO_FOLDER = os.devnull  # nothing can be made in it


class _Double(BaseTelemetry):
    """Base of both doubles; see `RecordingTelemetry`."""

    _account: Account

    def __init__(self, metrics: Registry | str | Path, *, consent: bool = True) -> None:
        # Without consent the real constructor opens nothing and asks no environment.
        super().__init__(metrics, _NOWHERE, _NO_FOLDER, consent=False, development=True)
        self._recorder.answers_all = True
        self.calls: list[tuple[str, Value]] = []
        self._open(Account(self._registry))
        self.set_consent(consent)

    def record(self, metric: str, value: Value) -> None:
        """Keep a call.

        Raises `UnknownMetricError, EncodingError` where the real client would drop it: a test
        should fail for that.
        """
        self._recorder.record(metric, value)
        if self._recorder.disabled is None:
            # An app may go on to change its mapping; the call was about what it held.
            kept = dict(value) if isinstance(value, Mapping) else value
            self.calls.append((metric, kept))
        # All that is recorded counts as delivered at once.
        recordings = self._recorder.drain()
        self._account = self._account.copy()
        charges = self._account.charge(recordings)
        self._recorder.settle(self._account, charges)
        self._recorder.delivered += len(charges.admitted)

    def values(self, metric: str) -> list[Value]:
        """Return what was recorded of one metric."""
        return [value for name, value in self.calls if name == metric]

    def set_consent(self, consent: bool) -> None:
        """Take the user's new answer, whatever the tests' environment holds."""
        if self._delivery.closed:
            return
        if consent:
            self._recorder.disabled = None
        elif self._recorder.disabled is None:
            self._recorder.disable("no consent", "INFO")

    def _open(self, account: Account) -> None:
        self._account = account
        self._recorder.open(os.urandom(SECRET_BYTES), account)

    def _flush(self, timeout: float) -> bool:  # noqa: ARG002 (as in Telemetry)
        return self._recorder.disabled is None

    def _close(self, timeout: float) -> None:  # noqa: ARG002 (as in Telemetry)
        self._delivery.close(CLOSED)

    def _forget(self) -> str:
        from hubbub.client.explanations import describe_forgetting

        words = describe_forgetting(self.ledger())
        self._delivery.close(FORGOTTEN)
        self._open(Account(self._registry))
        return words


class RecordingTelemetry(_Double, Telemetry):  # as of Telemetry: numpydoc ignore=PR02
    """Stands in for `Telemetry`: no state, no thread, no network.

    What it records counts as delivered at once.

    Parameters
    ----------
    metrics : Registry, str or Path
    consent : bool
        As in `Telemetry`, but DO_NOT_TRACK and HUBBUB_DISABLED are ignored: a test must not
        depend on them.

    Attributes
    ----------
    calls : list of (metric, value)
        What was recorded, in order, while there was consent and the object wasn't closed. That
        includes what isn't reported again (a one-time metric) or any more (an expired one);
        `status` and `ledger` show that.

    Examples
    --------
    >>> telemetry = RecordingTelemetry("metrics.toml")
    >>> telemetry.record("theme", "dark")
    >>> telemetry.calls
    [('theme', 'dark')]
    >>> telemetry.record("theme", "purple")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    hubbub.protocol.errors.UnknownCategoryError: value: must be one of the categories ...
    """


class AsyncRecordingTelemetry(_Double, AsyncTelemetry):  # as of Telemetry: numpydoc ignore=PR02
    """Stands in for `AsyncTelemetry`, as `RecordingTelemetry` for `Telemetry`.

    Parameters
    ----------
    metrics : Registry, str or Path
    consent : bool
        As in `RecordingTelemetry`.

    Attributes
    ----------
    calls : list of (metric, value)
        As in `RecordingTelemetry`.
    """
