"""The errors of the collector, and how secrets are masked in their texts.

Known are keys and tokens of ours, by their form, and passwords in addresses.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Self

MASK = "***"
_SECRET = re.compile(r"(hub_(?:ingest|admin|unseal)_)[A-Za-z0-9_-]+")
# Up to the last @: a password that isn't percent-encoded, as it should be, may hold any character.
_PASSWORD = re.compile(r"(://[^\s:/?#@]*):\S+@|([?&](?:ssl)?password=)[^\s&#'\"]+", re.IGNORECASE)
_REASONS = {400: "malformed", 413: "too_large", 415: "media_type", 422: "invalid"}


class StoreError(Exception):
    """The store can't be opened, read or written, or holds something else than expected."""

    @classmethod
    def at(cls, url: str, fault: str) -> Self:
        """Return the error of a fault of the store at an address, whose password is masked."""
        return cls(f"store {mask_address(url)!r}: {fault}")


class ReportFileError(StoreError):
    """A file or directory of reports isn't what it should be; the message says where."""


class CountsError(StoreError):
    """A row of counts is damaged, or of other parameters; other rows are read as ever."""


class MissingFileError(ReportFileError):
    """A file of reports isn't there, or no longer."""


class StorageError(StoreError):
    """Object storage refuses, fails or is silent; the message says what to do."""


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


class QuarantineFullError(StoreError):
    """There is no room for what was to be kept apart; nothing of the batch was stored."""


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


def mask(text: str) -> str:
    """Return the text with every key, token and password in an address replaced by ***."""

    def without_password(match: re.Match[str]) -> str:
        user, parameter = match.groups()
        return f"{user}:{MASK}@" if parameter is None else f"{parameter}{MASK}"

    return _PASSWORD.sub(without_password, _SECRET.sub(rf"\1{MASK}", text))


def mask_address(url: str) -> str:
    """Return an address without its password, which may hold any character, spaces too."""
    url = re.sub(r"(://[^:/@]*):.*@", rf"\1:{MASK}@", url)
    return re.sub(r"(password=)[^&]*", rf"\1{MASK}", url)
