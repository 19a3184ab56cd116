"""What can go wrong in the collector."""

from __future__ import annotations

from collections.abc import Mapping


class StoreError(Exception):
    """The store can't be opened, read or written, or holds something else than expected."""


class BusyError(Exception):
    """More batches are waiting than the collector is willing to hold."""


class BatchError(Exception):
    """A request that can't become a batch.

    Attributes
    ----------
    status : int
        The HTTP status that tells this class of fault.
    detail : str
        Names the (first) report, the field and what was expected.
    reports : mapping of int to str
        The same for each report that is at fault by itself; the others were in order.
    """

    def __init__(self, status: int, detail: str, reports: Mapping[int, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.reports = reports or {}
