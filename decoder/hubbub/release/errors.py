"""Errors of a release."""

from __future__ import annotations

from hubbub.inference import DecoderError


class ReleaseError(DecoderError):
    """Base of the errors that releases raise on purpose; no message quotes a value of the data."""


class DataError(ReleaseError):
    """The data can't be read, or aren't what was declared of them."""


class QueryError(ReleaseError, ValueError):
    """A query's argument makes no sense; the message names it and what was expected."""


class BudgetError(ReleaseError):
    """A query would cost more than is left."""


class LedgerError(ReleaseError):
    """The ledger can't be made, read or written."""
