"""The errors of the collector."""

from __future__ import annotations

from collections.abc import Mapping


class StoreError(Exception):
    """The store can't be opened, read or written, or holds something else than expected."""


class RefusalError(Exception):
    """A request that is answered with a problem instead of being served.

    Attributes
    ----------
    status : int
        The HTTP status of this class of fault.
    reason : str
        The fault in one word of the code's own, for counting: never made from what the client sent.
    detail : str
        What was wrong and what was expected.
    headers : mapping of str to str
        Headers that belong to the answer.
    retry_after : float, optional
        Seconds after which the same request may succeed.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason
        self.detail = detail
        self.headers = headers or {}
        self.retry_after = retry_after


class BatchError(RefusalError):
    """A body that can't become a batch.

    Attributes
    ----------
    reports : mapping of int to str
        The fault of each report that is at fault by itself; the others were in order.
    """

    def __init__(self, status: int, detail: str, reports: Mapping[int, str] | None = None) -> None:
        super().__init__(status, _REASONS[status], detail)
        self.reports = reports or {}


_REASONS = {400: "malformed", 413: "too_large", 415: "media_type", 422: "invalid"}
