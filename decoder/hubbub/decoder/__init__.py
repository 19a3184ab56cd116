"""The batch job that turns noisy reports into estimates with honest errors."""

from hubbub.decoder.counts import CohortCounts, count_records, empty_counts
from hubbub.decoder.decoding import Decoding, Summary, decode
from hubbub.decoder.multiple_testing import Correction

__all__ = [
    "CohortCounts",
    "Correction",
    "Decoding",
    "Summary",
    "count_records",
    "decode",
    "empty_counts",
]
