"""Errors as RFC 9457 problem details, so that a client's author can read what was wrong."""

from __future__ import annotations

import http
import json
import math
from collections.abc import Mapping

from aiohttp import web

from hubbub.collector.errors import BatchError, RefusalError


def problem(
    status: int,
    detail: str,
    *,
    retry_after: float | None = None,
    reports: Mapping[int, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Return an application/problem+json answer.

    Parameters
    ----------
    status : int
    detail : str
        What was wrong and what was expected.
    retry_after : float, optional
        Seconds after which to try again; rounded up.
    reports : mapping of int to str, optional
        Details of single reports, by their index in the batch: the member "errors".
    headers : mapping of str to str, optional
    """
    body = {
        "type": "about:blank",
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    if reports:
        body["errors"] = [{"report": index, "detail": text} for index, text in reports.items()]
    extra = dict(headers or {})
    if retry_after is not None:
        extra["Retry-After"] = str(math.ceil(retry_after))
    return web.Response(
        status=status,
        text=json.dumps(body),
        content_type="application/problem+json",
        headers=extra,
    )


def refusal(error: RefusalError) -> web.Response:
    """Return the answer that a refusal asks for."""
    return problem(
        error.status,
        error.detail,
        retry_after=error.retry_after,
        reports=error.reports if isinstance(error, BatchError) else None,
        headers=error.headers,
    )
