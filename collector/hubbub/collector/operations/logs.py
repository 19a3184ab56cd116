"""Logs as lines of JSON on standard error, with nothing in them that could identify a client.

A line holds an event and its level, but no time: one finer than a day could link a line to a
request, and what runs the service (systemd, Kubernetes) adds times anyway. Invariant: nothing of a
request reaches a line. Texts of exceptions, which may quote one, are left out, messages of other
libraries are cut to their first words, and known secrets are masked.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import MutableMapping
from typing import Any

from hubbub.storage import mask

_OURS = "hubbub"
_LONGEST_TEXT = 2000  # characters: this and the next bound keep a line within 64 KiB or so
_MOST_FRAMES = 20  # the innermost ones, where an error arose
_OF_LOGGING = ("exc_info", "stack_info", "stacklevel")


class EventLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose calls take an event and keys: `log.info("started", workers=2)`."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Put the keys into the record, where `_JsonFormatter` finds them."""
        options = {name: kwargs.pop(name) for name in _OF_LOGGING if name in kwargs}
        return msg, {**options, "extra": {"keys": dict(kwargs)}}


lifecycle = EventLogger(logging.getLogger("hubbub.collector.lifecycle"))
"""For what no request causes: start, stop and reload."""


def configure(level: str = "info") -> None:
    """Let all logging of this process go to standard error as JSON lines.

    `level`: the lowest level of our own lines. Of other libraries only warnings and errors are
    written: below that some quote statements with their parameters.
    """
    handler = logging.StreamHandler(sys.stderr)
    logging.raiseExceptions = False  # a line that can't be made would be printed unmasked
    handler.setFormatter(_JsonFormatter())
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


class _JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON, bounded and masked; "event" and "level" come first."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {"event": _message(record), "level": record.levelname.lower()}
        keys: dict[str, object] = dict(getattr(record, "keys", {}))
        if not record.name.startswith(_OURS):
            keys["logger"] = record.name
        if record.exc_info and record.exc_info[0] is not None:
            keys["exception"] = record.exc_info[0].__name__
            frames = traceback.extract_tb(record.exc_info[2])[-_MOST_FRAMES:]
            keys["frames"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return json.dumps(
            {_bounded(name): _bounded(value) for name, value in (line | keys).items()}
        )


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


def _bounded(value: object) -> Any:
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, (list, tuple)):
        return [_bounded(str(item)) for item in value[:_MOST_FRAMES]]
    text = mask(str(value))
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."
