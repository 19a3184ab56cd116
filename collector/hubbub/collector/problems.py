"""Errors as RFC 9457 problem details, so that a client's author can read what was wrong."""

from __future__ import annotations

import http
import json
from collections.abc import Mapping

from aiohttp import web


def problem(
    status: int,
    detail: str,
    *,
    retry_after: int | None = None,
    reports: Mapping[int, str] | None = None,
) -> web.Response:
    """Return an application/problem+json answer.

    Parameters
    ----------
    status : int
    detail : str
        What was wrong and what was expected.
    retry_after : int, optional
        Seconds after which to try again.
    reports : mapping of int to str, optional
        Details of single reports, by their index in the batch: the member "errors".
    """
    body = {
        "type": "about:blank",
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    if reports:
        body["errors"] = [{"report": index, "detail": text} for index, text in reports.items()]
    return web.Response(
        status=status,
        text=json.dumps(body),
        content_type="application/problem+json",
        headers={} if retry_after is None else {"Retry-After": str(retry_after)},
    )
