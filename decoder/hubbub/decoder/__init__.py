"""The batch job that turns noisy reports into estimates with honest errors."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubbub.decoder.comparing import compare_metric
    from hubbub.decoder.pipeline import decode_metric, decode_rappor
    from hubbub.inference.categories.decoding import CategoryDecoding, decode_categories
    from hubbub.inference.counts import CohortCounts, count_records, empty_counts
    from hubbub.inference.decoding import Decoding, Summary, decode
    from hubbub.inference.numbers.decoding import NumberDecoding, decode_numbers
    from hubbub.inference.testing.multiple_testing import Correction
    from hubbub.inference.trends.decoding import (
        Trends,
        decode_category_days,
        decode_days,
        decode_number_days,
    )
    from hubbub.reporting.estimates import Estimates, Finding

_HOMES = {
    "CategoryDecoding": "hubbub.inference.categories.decoding",
    "CohortCounts": "hubbub.inference.counts",
    "Correction": "hubbub.inference.testing.multiple_testing",
    "Decoding": "hubbub.inference.decoding",
    "Estimates": "hubbub.reporting.estimates",
    "Finding": "hubbub.reporting.estimates",
    "NumberDecoding": "hubbub.inference.numbers.decoding",
    "Summary": "hubbub.inference.decoding",
    "Trends": "hubbub.inference.trends.decoding",
    "compare_metric": "hubbub.decoder.comparing",
    "count_records": "hubbub.inference.counts",
    "decode": "hubbub.inference.decoding",
    "decode_categories": "hubbub.inference.categories.decoding",
    "decode_category_days": "hubbub.inference.trends.decoding",
    "decode_days": "hubbub.inference.trends.decoding",
    "decode_metric": "hubbub.decoder.pipeline",
    "decode_rappor": "hubbub.decoder.pipeline",
    "decode_number_days": "hubbub.inference.trends.decoding",
    "decode_numbers": "hubbub.inference.numbers.decoding",
    "empty_counts": "hubbub.inference.counts",
}

__all__ = [
    "CategoryDecoding",
    "CohortCounts",
    "Correction",
    "Decoding",
    "Estimates",
    "Finding",
    "NumberDecoding",
    "Summary",
    "Trends",
    "compare_metric",
    "count_records",
    "decode",
    "decode_categories",
    "decode_category_days",
    "decode_days",
    "decode_metric",
    "decode_number_days",
    "decode_numbers",
    "decode_rappor",
    "empty_counts",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is used, so that `hubbub-decoder --help` stays fast."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
