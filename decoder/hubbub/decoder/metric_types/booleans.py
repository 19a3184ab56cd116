"""The type "boolean": yes or no, in a single bit."""

from __future__ import annotations

from hubbub.decoder.metric_types.categories import CategoryDecoder
from hubbub.inference.ratios import Ratios, bit_ratios
from hubbub.protocol.metric_types.enums import BooleanType
from hubbub.protocol.params import RapporParams


class BooleanDecoder(CategoryDecoder[BooleanType]):
    """The two values differ in one bit, where those of other types differ in two or more."""

    theorem = (
        "the exact law of one randomized bit (Warner 1965), as RAPPOR's theorem {} for one bit"
    )

    def report_ratios(self, params: RapporParams, reports: int = 1) -> tuple[Ratios, ...]:
        """Return the ratios of true against false, and of false against true."""
        ratios = bit_ratios(params, reports)
        return ratios, ratios.swapped()
