# What others may use of hubbub.decoder; each name is imported when it is first used.

from hubbub.decoder.comparing import compare_metric as compare_metric
from hubbub.decoder.pipeline import decode_metric as decode_metric, decode_rappor as decode_rappor
from hubbub.decoder.type_decoder import decoder_of as decoder_of
from hubbub.inference.categories.decoding import (
    CategoryDecoding as CategoryDecoding,
    decode_categories as decode_categories,
)
from hubbub.inference.counts import count_records as count_records
from hubbub.inference.decoding import Decoding as Decoding, Summary as Summary, decode as decode
from hubbub.inference.numbers import (
    NumberDecoding as NumberDecoding,
    decode_numbers as decode_numbers,
)
from hubbub.inference.testing.multiple_testing import Correction as Correction
from hubbub.inference.trends.decoding import (
    Trends as Trends,
    decode_category_days as decode_category_days,
    decode_days as decode_days,
    decode_number_days as decode_number_days,
)
from hubbub.protocol.records import CohortCounts as CohortCounts, empty_counts as empty_counts
from hubbub.reporting.estimates import Estimates as Estimates
from hubbub.reporting.findings import Finding as Finding
