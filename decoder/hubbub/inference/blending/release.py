"""Noisy counts of an opted-in group: what local reports are blended with."""

from __future__ import annotations

from dataclasses import dataclass

from hubbub.inference.arrays import FloatArray
from hubbub.inference.blending.noise import CountNoise


@dataclass(frozen=True, slots=True)
class CentralRelease:
    """How many users of an opted-in group hold each key, with noise.

    Attributes
    ----------
    keys : tuple of str, length r
        Distinct, in their normal form.
    counts : float64 array, shape (r,)
        Unbiased; may be negative.
    noise : CountNoise
        Of each count.
    total, total_variance : float
        How many users were counted, with noise, and that noise's variance.
    epsilon, delta : float
        What the release cost each of them.
    name : str
        The file's.
    """

    keys: tuple[str, ...]
    counts: FloatArray
    noise: CountNoise
    total: float
    total_variance: float
    epsilon: float
    delta: float
    mechanism: str
    name: str

    @property
    def users(self) -> int:
        """The number of users who were counted, as far as it is known."""
        return round(self.total)
