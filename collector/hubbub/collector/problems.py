"""Errors as RFC 9457 problem details, so that a client's author can read what was wrong."""

from __future__ import annotations

import http
import json
import logging
import math
import traceback
from collections.abc import Mapping
from typing import Annotated

import msgspec

from hubbub.collector.errors import BatchError, RefusalError
from hubbub.collector.http1 import Response

_SENT_AGAIN = frozenset({408, 429, 503})
"""The refusals after which clients send a batch again: they come before anything is stored."""

UNEXPECTED = "unexpected error; it has been logged"


class ReportProblem(msgspec.Struct, forbid_unknown_fields=True):
    """A report that will never be accepted as it is."""

    report: Annotated[int, msgspec.Meta(ge=0)]
    detail: str


class Problem(msgspec.Struct, forbid_unknown_fields=True):
    """Problem details (RFC 9457)."""

    type: str
    title: str
    status: Annotated[int, msgspec.Meta(ge=400, le=599)]
    detail: Annotated[
        str, msgspec.Meta(description="Names the report, the field and what was expected.")
    ]
    errors: Annotated[list[ReportProblem], msgspec.Meta(min_length=1)] | msgspec.UnsetType = (
        msgspec.UNSET
    )
    stored: (
        Annotated[
            bool,
            msgspec.Meta(
                description="False: nothing of this request was stored, so the reports may be sent "
                "again under another `batch_id`, unless an earlier request had this one."
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET


def problem(
    status: int,
    detail: str,
    *,
    retry_after: float | None = None,
    reports: Mapping[int, str] | None = None,
    headers: Mapping[str, str] | None = None,
    is_unstored: bool = False,
) -> Response:
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
    is_unstored : bool
        Say that nothing was stored, of a request that may be sent again.
    """
    body = Problem("about:blank", http.HTTPStatus(status).phrase, status, detail)
    if reports:
        body.errors = [ReportProblem(index, text) for index, text in reports.items()]
    if is_unstored:
        body.stored = False
    fields = tuple((headers or {}).items())
    if retry_after is not None:
        fields += (("Retry-After", str(math.ceil(retry_after))),)
    text = json.dumps(msgspec.to_builtins(body))
    return Response(status, text.encode(), "application/problem+json", fields)


def refusal(error: RefusalError) -> Response:
    """Return the answer that a refusal asks for."""
    return problem(
        error.status,
        error.detail,
        retry_after=error.retry_after,
        reports=error.reports if isinstance(error, BatchError) else None,
        headers=error.headers,
        is_unstored=error.status in _SENT_AGAIN,
    )


def unexpected(error: Exception, log: logging.Logger) -> Response:
    """Log where an unexpected error was raised, and return the answer 500.

    The error's text reaches neither, because it may quote the request.
    """
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error("unexpected %s\n%s", type(error).__name__, frames)
    return problem(500, UNEXPECTED)
