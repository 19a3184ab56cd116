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
from typing import Self

from hubbub.client.encoder import SECRET_BYTES
from hubbub.client.ledger import Account, AnswerKey, ClientLedger
from hubbub.client.recorder import CLOSED, FORGOTTEN, WITHDRAWN
from hubbub.client.telemetry import BaseTelemetry
from hubbub.protocol.metric_types.base import Value
from hubbub.protocol.registry import Registry

_NOWHERE = "http://127.0.0.1:9"  # the discard port
_NO_FOLDER = os.devnull  # nothing can be made in it


class _Double(BaseTelemetry):
    """What both doubles share; see `RecordingTelemetry`."""

    def __init__(self, metrics: Registry | str | Path, *, consent: bool = True) -> None:
        # Without consent the real constructor opens nothing and asks no environment.
        super().__init__(metrics, _NOWHERE, _NO_FOLDER, consent=False, development=True)
        self._recorder.answers_all = True
        self.calls: list[tuple[str, Value]] = []
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
        if self._is_delivering():
            self._deliver()

    def values(self, metric: str) -> list[Value]:
        """Return what was recorded of one metric."""
        return [value for name, value in self.calls if name == metric]

    def reset(self) -> None:
        """Draw a new secret; what was spent stays in the ledger, which counts the reset."""
        before = self._account.ledger
        rows = [before.row(answer) for answer in self._answers]
        resets = before.spending().resets + 1
        self._open(
            Account(
                self._registry,
                ClientLedger(self._registry, rows, resets, revealing=before.revealing),
            )
        )

    def set_consent(self, consent: bool) -> None:
        """Take the user's new answer, whatever the tests' environment holds."""
        if self._delivery.closed:
            return
        if consent:
            self._recorder.disabled = None
        elif self._recorder.disabled is None:
            self._recorder.disable("no consent", "INFO")
            self._recorder.drop_pending(WITHDRAWN)

    def _prepare(self) -> None:
        self._answers: set[AnswerKey] = set()
        self._open(Account(self._registry))

    def _open(self, account: Account) -> None:
        self._account, self._throwaway_secret = account, os.urandom(SECRET_BYTES)
        self._recorder.open(self._throwaway_secret, account)

    def _is_delivering(self) -> bool:
        return True

    def _deliver(self) -> None:
        recordings = self._recorder.drain(self._throwaway_secret)
        self._account = self._account.copy()
        charges = self._account.charge(recordings)
        self._answers.update(cached.answer for cached in charges.admitted)
        self._recorder.settle(self._account, charges)
        self._recorder.delivered += len(charges.admitted)

    def _forget(self) -> str:
        from hubbub.client.explanations import describe_forgetting

        words = describe_forgetting(self.ledger())
        self._recorder.drop_pending(FORGOTTEN)
        self._prepare()
        return words


class RecordingTelemetry(_Double):  # as of Telemetry: numpydoc ignore=PR02
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

    def flush(self, timeout: float = 10.0) -> bool:  # noqa: ARG002 (as in Telemetry)
        """Return whether there is consent and it isn't closed: there is nothing to wait for."""
        return self._recorder.disabled is None

    def close(self, timeout: float = 2.0) -> None:  # noqa: ARG002 (as in Telemetry)
        """Drop later calls."""
        self._delivery.close(CLOSED)

    def forget(self) -> str:
        """Close, empty the ledger and return what that means; `calls` stays."""
        self._delivery.close(FORGOTTEN)
        return self._forget()

    def __enter__(self) -> Self:
        """Return the object itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close."""
        self.close()


class AsyncRecordingTelemetry(_Double):  # as of Telemetry: numpydoc ignore=PR02
    """Stands in for `AsyncTelemetry`: no state, no task, no network.

    What it records counts as delivered once its context is entered, and waits until then.

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

    _entered = False

    async def flush(self, timeout: float = 10.0) -> bool:  # noqa: ARG002 (as in AsyncTelemetry)
        """Return whether there is consent and the context is entered."""
        return self._entered and self._recorder.disabled is None

    async def close(self, timeout: float = 2.0) -> None:  # noqa: ARG002 (as in AsyncTelemetry)
        """Drop later calls, if the context was entered."""
        if self._entered:
            self._delivery.close(CLOSED)

    async def forget(self) -> str:
        """Close, empty the ledger and return what that means; `calls` stays."""
        self._delivery.close(FORGOTTEN)
        return self._forget()

    async def __aenter__(self) -> Self:
        """Begin to deliver."""
        self._entered = True
        self._deliver()
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close."""
        await self.close()

    def _is_delivering(self) -> bool:
        return self._entered
