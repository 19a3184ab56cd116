"""The batch job that turns noisy reports into estimates with honest errors."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubbub.decoder.categories.decoding import CategoryDecoding, decode_categories
    from hubbub.decoder.counts import CohortCounts, count_records, empty_counts
    from hubbub.decoder.decoding import Decoding, Summary, decode
    from hubbub.decoder.inference.multiple_testing import Correction
    from hubbub.decoder.job import decode_metric
    from hubbub.decoder.results.result import Result
    from hubbub.decoder.results.strings import StringsResult
    from hubbub.decoder.trends.categories import decode_category_days
    from hubbub.decoder.trends.decoding import Trends, decode_days

_HOMES = {
    "CategoryDecoding": "categories.decoding",
    "CohortCounts": "counts",
    "Correction": "inference.multiple_testing",
    "Decoding": "decoding",
    "Result": "results.result",
    "StringsResult": "results.strings",
    "Summary": "decoding",
    "Trends": "trends.decoding",
    "count_records": "counts",
    "decode": "decoding",
    "decode_categories": "categories.decoding",
    "decode_category_days": "trends.categories",
    "decode_days": "trends.decoding",
    "decode_metric": "job",
    "empty_counts": "counts",
}

__all__ = [
    "CategoryDecoding",
    "CohortCounts",
    "Correction",
    "Decoding",
    "Result",
    "StringsResult",
    "Summary",
    "Trends",
    "count_records",
    "decode",
    "decode_categories",
    "decode_category_days",
    "decode_days",
    "decode_metric",
    "empty_counts",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is used, so that `hubbub-decoder --help` stays fast."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
