"""The type "ordinal": numbers in buckets."""

from __future__ import annotations

from hubbub.decoder.categories.ordinal import bucket_bounds, bucket_label
from hubbub.decoder.metric_types.categories import CategoryDecoder
from hubbub.decoder.type_decoder import Categories
from hubbub.protocol.metric_types.ordinals import OrdinalType


class OrdinalDecoder(CategoryDecoder[OrdinalType]):
    """Results have cumulative shares, quantiles and a mean as well."""

    def categories(self, metric_type: OrdinalType) -> Categories:
        """Return the buckets, such as "[10, 20)", and the edges between them."""
        edges = metric_type.edges
        return Categories(tuple(bucket_label(*bucket) for bucket in bucket_bounds(edges)), edges)
