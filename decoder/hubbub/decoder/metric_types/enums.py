"""The type "enum": one of a few known texts."""

from __future__ import annotations

from hubbub.decoder.metric_types.categories import CategoryDecoder
from hubbub.decoder.type_decoder import Categories
from hubbub.protocol.metric_types.enums import EnumType


class EnumDecoder(CategoryDecoder[EnumType]):
    """Results state how far each category is behind the largest."""

    def categories(self, metric_type: EnumType) -> Categories:
        """Return the registry's texts, and perhaps that of all others."""
        return Categories(metric_type.labels, ranked=True)
