"""Logs as lines of JSON on standard error, with nothing in them that could identify a client.

A line holds an event and its level, but no time: one finer than a day could link a line to a
request, and what runs the service (systemd, Kubernetes) adds times anyway. With `log_times` the
lines of `get_logger(LIFECYCLE)`, about start, stop and reload, carry one. Invariant: nothing of a
request reaches a line. Texts of exceptions, which may quote one, are left out, messages of other
libraries are cut to their first words, and known secrets are masked.
"""

from __future__ import annotations

import datetime as dt
import logging
import math
import sys
import traceback
from collections.abc import Mapping
from typing import TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from hubbub.storage.errors import mask

LIFECYCLE = "hubbub.collector.lifecycle"
_OURS = "hubbub"
_LONGEST_TEXT = 2000
_MOST_KEYS = 20
_MOST_FRAMES = 20


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return a logger whose calls take an event and keys: `log.info("started", workers=2)`.

    Parameters
    ----------
    name : str
        Such as "hubbub.storage"; or `LIFECYCLE`, for what no request causes.
    """
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return logger


def configure(
    level: str = "info", *, log_times: bool = False, stream: TextIO | None = None
) -> None:
    """Let all logging of this process go to standard error as JSON lines.

    Parameters
    ----------
    level : str
        The lowest level of our own lines. Of other libraries only warnings and errors are
        written: below that some quote statements with their parameters.
    log_times : bool
        Put the time into the lines of `LIFECYCLE`.
    stream : text file, optional
        Instead of standard error.
    """
    handler = _Handler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_cut_foreign_messages],
            processors=[
                structlog.stdlib.add_log_level,
                *([_add_time] if log_times else []),
                _strip_exception_texts,
                _plain,
                structlog.processors.JSONRenderer(ensure_ascii=True),
            ],
        )
    )
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


def _cut_foreign_messages(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Cut the messages of other libraries, which may quote what they were working on."""
    library = event["_record"].name
    if not library.startswith(_OURS):
        message = str(event["event"]).partition("\n")[0]
        if library.startswith("aiohttp"):  # quotes addresses and bytes from its first words on
            message = "trouble in the HTTP library"
        elif library == "asyncio":  # quotes the arguments of callbacks
            message = message.partition("(")[0]
        event["event"], event["logger"] = message, library
    return event


def _add_time(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    if event["_record"].name == LIFECYCLE:
        event["time"] = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
    return event


def _strip_exception_texts(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace an exception by its class and its frames, without its text."""
    given = event.pop("exc_info", None) or event["_record"].exc_info
    event.pop("stack_info", None)
    if given is True:
        given = sys.exc_info()
    if isinstance(given, BaseException):
        given = (type(given), given, given.__traceback__)
    if isinstance(given, tuple) and given[0] is not None:
        event["exception"] = given[0].__name__
        frames = traceback.extract_tb(given[2])[-_MOST_FRAMES:]
        event["frames"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return event


def _plain(_logger: WrappedLogger, _method: str, event: EventDict) -> Mapping[str, object]:
    """Keep what JSON can hold, bounded and masked; "event" and "level" first."""
    line: dict[str, object] = {"event": event.pop("event", ""), "level": event.pop("level")}
    given = {name: value for name, value in event.items() if not name.startswith("_")}
    line |= dict(list(given.items())[:_MOST_KEYS])
    return {_bounded(name): _bounded_value(value) for name, value in line.items()}


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
