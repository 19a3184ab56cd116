"""The batch job that turns noisy reports into estimates with honest errors."""

from hubbub.decoder.categories_decoding import CategoryDecoding, decode_categories
from hubbub.decoder.counts import CohortCounts, count_records, empty_counts
from hubbub.decoder.decoding import Decoding, Summary, decode
from hubbub.decoder.multiple_testing import Correction

__all__ = [
    "CategoryDecoding",
    "CohortCounts",
    "Correction",
    "Decoding",
    "Summary",
    "count_records",
    "decode",
    "decode_categories",
    "empty_counts",
]
