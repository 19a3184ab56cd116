"""One HTTP attempt to deliver a batch, and what its outcome means.

Only an answer that the collector itself could have given counts as delivered: a captive portal that
redirects, or says 200 with a page of its own, must not make the client throw reports away.
"""

from __future__ import annotations

import enum
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

_RETRY_STATUSES = frozenset({408, 429})


class Outcome(enum.Enum):
    """What became of an attempt."""

    DELIVERED = "delivered"
    RETRY = "retry"
    REFUSED = "refused"


class HttpSender:
    """Post batches to a collector; standard library only.

    Parameters
    ----------
    endpoint : str
        Base address, such as "https://telemetry.example.com".
    timeout : float
        Seconds for connecting and for each read.

    Raises
    ------
    ValueError
        If the endpoint isn't an http or https address.
    """

    def __init__(self, endpoint: str, timeout: float = 10.0) -> None:
        if not endpoint.startswith(("https://", "http://")):
            raise ValueError(f"endpoint = {endpoint!r}: must start with https:// or http://")
        self._url = endpoint.rstrip("/") + "/v1/reports"
        self._timeout = timeout
        self._opener: OpenerDirector | None = None

    def send(self, body: bytes) -> Outcome:
        """Try once. Never raises for anything that the network or the server does."""
        from http.client import HTTPException  # noqa: PLC0415 (apps that never send don't pay)
        from urllib.error import HTTPError  # noqa: PLC0415
        from urllib.request import Request  # noqa: PLC0415

        headers = {"Content-Type": "application/json", "User-Agent": "hubbub"}
        request = Request(self._url, data=body, headers=headers, method="POST")  # noqa: S310
        try:
            with self._open().open(request, timeout=self._timeout) as response:
                return _judge_answer(response.read(65_536))
        except HTTPError as error:
            with error:
                return _judge_status(error.code)
        except (OSError, HTTPException):
            return Outcome.RETRY

    def _open(self) -> OpenerDirector:
        if self._opener is None:
            self._opener = _opener_without_redirects()
        return self._opener


def _opener_without_redirects() -> OpenerDirector:
    from urllib.request import HTTPRedirectHandler, build_opener  # noqa: PLC0415

    class NoRedirects(HTTPRedirectHandler):
        def redirect_request(self, *_args: object) -> None:
            return None

    return build_opener(NoRedirects)


def _judge_answer(body: bytes) -> Outcome:
    try:
        answer = json.loads(body)
    except ValueError:
        return Outcome.RETRY
    accepted = isinstance(answer, dict) and isinstance(answer.get("accepted"), int)
    return Outcome.DELIVERED if accepted else Outcome.RETRY


def _judge_status(status: int) -> Outcome:
    final = 400 <= status < 500 and status not in _RETRY_STATUSES
    return Outcome.REFUSED if final else Outcome.RETRY
