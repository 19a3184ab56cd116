"""Parameters of counts that other systems made, whose filters needn't fill bytes."""

from __future__ import annotations

from typing import Self

from hubbub.protocol import ParameterError, RapporParams

# The protocol's most bits and cohorts, and twice its hashes, which only counts can have.
MAX_BITS = 4096
MAX_HASHES = 16
MAX_COHORTS = 2**16


class DecodingParams(RapporParams):
    """`RapporParams` for any k, h and m whose counts the decoder can take.

    Clients and stores of hubbub need k to fill bytes, and h and m within what the protocol allows;
    bit counts need neither. Single reports need `RapporParams`.

    `k`: bits, 2 to 4096. `h`: hash functions, 1 to 16. `m`: cohorts, 1 to 65,536. `f` and `p` and
    `q` and `f0` and `f1`: as of `RapporParams`. Raises `ParameterError` if a value is out of range,
    if p = q, or if some report would reveal a true bit for certain (such a bit has no noise by
    which it could be weighed).
    """

    __slots__ = ()

    def __new__(
        cls,
        k: int,
        h: int,
        m: int,
        f: float = 0.0,
        p: float = 0.0,
        q: float = 1.0,
        f0: float | None = None,
        f1: float | None = None,
    ) -> Self:
        """Check and keep the numbers."""
        for name, value, low, high in (
            ("k", k, 2, MAX_BITS),
            ("h", h, 1, MAX_HASHES),
            ("m", m, 1, MAX_COHORTS),
        ):
            if not low <= value <= high:
                raise ParameterError(
                    f"{name} = {value}: must be an integer between {low} and {high}"
                )
        checked = RapporParams(8, 1, 1, f, p, q, f0, f1)
        return tuple.__new__(cls, (k, h, m, *checked[3:]))
