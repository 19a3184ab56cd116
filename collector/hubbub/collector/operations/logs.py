"""Logs as lines of JSON on standard error, with nothing in them that could identify a client.

A line holds an event and its level, but no time: one finer than a day could link a line to a
request, and what runs the service (systemd, Kubernetes) adds times anyway. With `log_times` the
lines of `get_logger(LIFECYCLE)`, about start, stop and reload, carry one. Invariant: nothing of a
request reaches a line. Texts of exceptions, which may quote one, are left out, messages of other
libraries are cut to their first words, and known secrets are masked.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import math
import sys
import traceback
from collections.abc import MutableMapping
from itertools import islice
from typing import Any, TextIO

from hubbub.storage import mask

LIFECYCLE = "hubbub.collector.lifecycle"
_OURS = "hubbub"
_LONGEST_TEXT = 2000  # characters: the bounds below and this keep a line within 64 KiB or so
_MOST_KEYS = 20  # our own events have at most a dozen
_MOST_FRAMES = 20  # the innermost ones, where an error arose
_OF_LOGGING = ("exc_info", "stack_info", "stacklevel")


class EventLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose calls take an event and keys: `log.info("started", workers=2)`."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Put the keys into the record, where `_JsonFormatter` finds them."""
        options = {name: kwargs.pop(name) for name in _OF_LOGGING if name in kwargs}
        return msg, {**options, "extra": {"keys": dict(kwargs)}}


def get_logger(name: str) -> EventLogger:
    """Return a logger of events and keys.

    `name`: such as "hubbub.storage"; or `LIFECYCLE`, for what no request causes.
    """
    return EventLogger(logging.getLogger(name))


def configure(
    level: str = "info", *, log_times: bool = False, stream: TextIO | None = None
) -> None:
    """Let all logging of this process go to standard error as JSON lines.

    `level`: the lowest level of our own lines. Of other libraries only warnings and errors are
    written: below that some quote statements with their parameters. `log_times`: put the time into
    the lines of `LIFECYCLE`. `stream`: instead of standard error.
    """
    handler = _Handler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter(log_times=log_times))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in list(logging.root.manager.loggerDict):
        if not name.startswith(_OURS):
            library = logging.getLogger(name)
            if logging.NOTSET < library.level < logging.WARNING:
                library.setLevel(logging.WARNING)
    logging.getLogger(_OURS).setLevel(level.upper())
    logging.captureWarnings(capture=True)


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Drop the line: the default handler would print it unmasked."""


class _JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON, bounded and masked; "event" and "level" come first."""

    def __init__(self, *, log_times: bool) -> None:
        super().__init__()
        self._log_times = log_times

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {"event": _message(record), "level": record.levelname.lower()}
        keys: dict[str, object] = dict(getattr(record, "keys", {}))
        if not record.name.startswith(_OURS):
            keys["logger"] = record.name
        if self._log_times and record.name == LIFECYCLE:
            keys["time"] = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
        if record.exc_info and record.exc_info[0] is not None:
            keys["exception"] = record.exc_info[0].__name__
            frames = traceback.extract_tb(record.exc_info[2])[-_MOST_FRAMES:]
            keys["frames"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        line |= dict(islice(keys.items(), _MOST_KEYS))
        return json.dumps({_bounded(name): _bounded_value(value) for name, value in line.items()})


def _message(record: logging.LogRecord) -> str:
    """Return a record's message; of other libraries, which may quote what they work on, a part."""
    message = record.getMessage()
    if record.name.startswith(_OURS):
        return message
    if record.name.startswith("aiohttp"):  # quotes addresses and bytes from its first words on
        return "trouble in the HTTP library"
    message = message.partition("\n")[0]
    # asyncio quotes the arguments of callbacks.
    return message.partition("(")[0] if record.name == "asyncio" else message


def _bounded_value(value: object) -> object:
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, (list, tuple)):
        return [_bounded(str(item)) for item in value[:_MOST_FRAMES]]
    return _bounded(str(value))


def _bounded(text: str) -> str:
    text = mask(text)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."
