"""One line of JSON on standard error for everything that the service says.

A line holds what happened and how bad it is; no time, because a time finer than a day could link a
line to a request, and who runs the service (systemd, Kubernetes) notes times anyway. On request
(`log_times`) the lines of the service's own life, which no request causes, carry one: those of
`get_logger(LIFE)`. Nothing of a request reaches a line: texts of exceptions, which may quote one,
are left out, other libraries are cut to the head of what they say, and known secrets are masked.
"""

from __future__ import annotations

import datetime as dt
import logging
import math
import sys
import traceback
from collections.abc import Mapping
from types import TracebackType
from typing import TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from hubbub.collector.config.masking import mask

LIFE = "hubbub.collector.life"
_OURS = "hubbub"
_LONGEST_TEXT = 2000
_MOST_KEYS = 20
_MOST_FRAMES = 20


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return a logger whose calls take an event and keys: `log.info("started", workers=2)`.

    Parameters
    ----------
    name : str
        Such as "hubbub.collector.store"; or `LIFE`, for what no request causes.
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
        Least important lines of our own to write. Of other libraries warnings and errors are
        written, whatever the level: below that some quote statements with their parameters.
    log_times : bool
        Put the time into lines of the service's own life.
    stream : text file, optional
        Instead of standard error.
    """
    handler = _Handler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_only_head],
            processors=[
                structlog.stdlib.add_log_level,
                *([_add_time] if log_times else []),
                _without_texts_of_exceptions,
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
            _raise_to_warning(logging.getLogger(name))
    logging.getLogger(_OURS).setLevel(level.upper())
    logging.captureWarnings(capture=True)


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Lose the line: the usual complaint would quote it, unmasked."""


def _raise_to_warning(logger: logging.Logger) -> None:
    if logging.NOTSET < logger.level < logging.WARNING:
        logger.setLevel(logging.WARNING)


def _only_head(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Cut what other libraries say, which may go on with what they were working on."""
    library = event["_record"].name
    if not library.startswith(_OURS):
        said = str(event["event"]).partition("\n")[0]
        if library.startswith("aiohttp"):  # quotes addresses and bytes from its first words on
            said = "trouble in the HTTP library"
        elif library == "asyncio":  # quotes the arguments of callbacks
            said = said.partition("(")[0]
        event["event"], event["logger"] = said, library
    return event


def _add_time(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    if event["_record"].name == LIFE:
        event["time"] = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
    return event


def _without_texts_of_exceptions(
    _logger: WrappedLogger, _method: str, event: EventDict
) -> EventDict:
    """Say which kind of exception it was, and where; not its text."""
    given = event.pop("exc_info", None) or event["_record"].exc_info
    event.pop("stack_info", None)
    if given is True:
        given = sys.exc_info()
    if isinstance(given, BaseException):
        given = (type(given), given, given.__traceback__)
    if isinstance(given, tuple) and given[0] is not None:
        event["exception"] = given[0].__name__
        event["frames"] = _frames(given[2])
    return event


def _frames(place: TracebackType | None) -> list[str]:
    frames = traceback.extract_tb(place)[-_MOST_FRAMES:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]


def _plain(_logger: WrappedLogger, _method: str, event: EventDict) -> Mapping[str, object]:
    """Keep what JSON can say, bounded and masked; "event" and "level" first."""
    said: dict[str, object] = {"event": event.pop("event", ""), "level": event.pop("level")}
    given = {name: value for name, value in event.items() if not name.startswith("_")}
    said |= dict(list(given.items())[:_MOST_KEYS])
    return {_bounded(name): _bounded_value(value) for name, value in said.items()}


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
