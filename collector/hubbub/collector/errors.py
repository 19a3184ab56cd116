"""The errors with which the collector refuses requests."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hubbub.protocol.errors import HubbubError

_REASONS = {400: "malformed", 413: "too_large", 415: "media_type", 422: "invalid"}


class RefusalError(HubbubError):
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
    key : str, optional
        The name of the ingest key because of which it is refused.
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
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason
        self.detail = detail
        self.headers = headers or {}
        self.retry_after = retry_after
        self.key = key


class BatchError(RefusalError):
    """A body that can't become a batch.

    Attributes
    ----------
    reports : mapping of int to str
        The fault of each report that is at fault by itself; the others were in order.
    unknown : collection of (str, int)
        The metrics and versions among them that the collector doesn't know.
    reason : str
        By default "unregistered" if there are any, or else what the status stands for.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        reports: Mapping[int, str] | None = None,
        unknown: Collection[tuple[str, int]] = (),
        *,
        reason: str | None = None,
    ) -> None:
        reason = reason or ("unregistered" if unknown else _REASONS[status])
        super().__init__(status, reason, detail)
        self.reports = reports or {}
        self.unknown = unknown
