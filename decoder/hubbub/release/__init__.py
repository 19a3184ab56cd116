"""Publish what is collected in the clear: mechanisms of central differential privacy."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubbub.release.dataset import Dataset
    from hubbub.release.errors import (
        BudgetError,
        DataError,
        LedgerError,
        QueryError,
        ReleaseError,
    )
    from hubbub.release.ledger import Ledger

_HOMES = {
    "BudgetError": "errors",
    "DataError": "errors",
    "Dataset": "dataset",
    "Ledger": "ledger",
    "LedgerError": "errors",
    "QueryError": "errors",
    "ReleaseError": "errors",
}

__all__ = [
    "BudgetError",
    "DataError",
    "Dataset",
    "Ledger",
    "LedgerError",
    "QueryError",
    "ReleaseError",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is used, so that `hubbub-release --help` stays fast."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
