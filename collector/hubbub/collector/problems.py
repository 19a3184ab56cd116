"""Answers, and refusals: RFC 9457 problem details, which name the fault to a client's author."""

from __future__ import annotations

import http
import json
import logging
import math
import traceback
from collections.abc import Collection, Mapping
from typing import NamedTuple

from hubbub.protocol import HubbubError


class Answer(NamedTuple):
    """The answer to a request."""

    status: int
    body: bytes
    content_type: str = "application/json"
    fields: tuple[tuple[str, str], ...] = ()  # more of its head


class RefusalError(HubbubError):
    """A request that is answered with a problem instead of being served.

    `status`: the HTTP status of this class of fault. `reason`: the fault in one word of the code's
    own, for counting: never made from what the client sent. `detail`: what was wrong and what was
    expected. `headers`: headers that belong to the answer. `retry_after`: seconds after which the
    same request may succeed. `key`: the name of the ingest key because of which it is refused.
    `reports`: the fault of each report that is at fault by itself. `unknown`: metrics and versions
    that the collector doesn't know yet.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        retry_after: float | None = None,
        key: str | None = None,
        reports: Mapping[int, str] | None = None,
        unknown: Collection[tuple[str, int]] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason
        self.detail = detail
        self.headers = headers or {}
        self.retry_after = retry_after
        self.key = key
        self.reports = reports or {}
        self.unknown = unknown


_SENT_AGAIN = frozenset({408, 429, 503})
"""The refusals after which clients send a batch again: they come before anything is stored."""


def problem(
    status: int,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    retry_after: float | None = None,
    **members: object,
) -> Answer:
    """Return an application/problem+json answer; openapi.json says what its members mean.

    `detail`: what was wrong and what was expected. `retry_after`: seconds after which to try again;
    rounded up.
    """
    title = http.HTTPStatus(status).phrase
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **members}
    fields = tuple((headers or {}).items())
    if retry_after is not None:
        fields += (("Retry-After", str(math.ceil(retry_after))),)
    return Answer(status, json.dumps(body).encode(), "application/problem+json", fields)


def refusal(error: RefusalError) -> Answer:
    """Return the answer that a refusal asks for."""
    members: dict[str, object] = {}
    if error.reports:
        members["errors"] = [{"report": at, "detail": text} for at, text in error.reports.items()]
    if error.unknown:
        members["retry"] = True
        members["unknown"] = [{"metric": name, "version": n} for name, n in sorted(error.unknown)]
    if error.status in _SENT_AGAIN:
        members["stored"] = False
    return problem(
        error.status, error.detail, headers=error.headers, retry_after=error.retry_after, **members
    )


def unexpected(error: BaseException | None, log: logging.Logger) -> Answer:
    """Log where an unexpected error was raised, and return the answer 500.

    The error's text reaches neither, because it may quote the request.
    """
    frames = "".join(traceback.format_tb(error.__traceback__)) if error else ""
    log.error("unexpected %s\n%s", type(error).__name__, frames)
    return problem(500, "unexpected error; it has been logged")
