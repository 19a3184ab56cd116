"""A type that hubbub doesn't have, on the decoder's side: letters in the alphabet's order."""

from __future__ import annotations

from string import ascii_lowercase

from hubbub.decoder.metric_types.categories import CategoryDecoder
from hubbub.decoder.type_decoder import Categories
from hubbub.protocol.metric_types.base import MetricType


class LetterDecoder(CategoryDecoder[MetricType]):
    def categories(self, metric_type: MetricType) -> Categories:  # noqa: ARG002
        return Categories(tuple(ascii_lowercase))
