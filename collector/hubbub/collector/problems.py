"""Errors as RFC 9457 problem details, so that a client's author can read what was wrong."""

from __future__ import annotations

import http
import json

from aiohttp import web


def problem(status: int, detail: str, retry_after: int | None = None) -> web.Response:
    """Return an application/problem+json answer.

    Parameters
    ----------
    status : int
    detail : str
        What was wrong and what was expected.
    retry_after : int, optional
        Seconds after which to try again.
    """
    body = {"type": "about:blank", "title": http.HTTPStatus(status).phrase, "status": status}
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return web.Response(
        status=status,
        text=json.dumps({**body, "detail": detail}),
        content_type="application/problem+json",
        headers=headers,
    )
