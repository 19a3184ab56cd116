"""A type that hubbub doesn't have, on the decoder's side: letters in the alphabet's order."""

from hubbub.decoder.metric_types.categories import CategoryDecoder
from hubbub.protocol import MetricType


class LetterDecoder(CategoryDecoder[MetricType]):
    """What all types have whose values are listed."""
