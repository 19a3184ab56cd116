"""How many reports a key may send: a token bucket for each.

A bucket holds at most `burst` tokens and gains `rate` of them a second; a report takes one. So in
any t seconds a key gets at most burst + rate * t reports through. Each worker process has buckets
of its own with its share of the rate, because a shared one would cost every request a lock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from hubbub.collector.config.settings import IngestKey

_ROUNDING = 1e-6  # of a token: who waits as long as told is let in whatever the last digits say


class TokenBucket:
    """Tokens that come at a steady rate; full at the start.

    Parameters
    ----------
    rate : float
        Tokens a second.
    burst : float
        Most tokens it holds.
    clock : callable
        Returns seconds; must not run backwards.
    """

    __slots__ = ("_burst", "_clock", "_rate", "_then", "_tokens")

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not (0 < rate < math.inf and 0 < burst < math.inf):
            raise ValueError(f"rate = {rate}, burst = {burst}: must be positive and finite")
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._tokens = burst
        self._then = clock()

    def take(self, n: int) -> float:
        """Take n tokens if they are there.

        Returns
        -------
        float
            0.0 if they were taken. Otherwise none was, and this is how many seconds it will be
            until there are n, if nobody else takes some; infinity if n is more than the burst.
        """
        if n > self._burst:
            return math.inf
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._then) * self._rate)
        self._then = now
        missing = n - self._tokens
        if missing > _ROUNDING:
            return missing / self._rate
        self._tokens = max(0.0, -missing)
        return 0.0


class Quotas:
    """The buckets of all ingest keys, in one worker process.

    Parameters
    ----------
    keys : mapping of str to IngestKey
    workers : int
        How many processes share the rates. The burst is whole in each, or a batch could fit into
        no bucket.
    clock : callable
        Returns seconds.
    """

    def __init__(
        self,
        keys: Mapping[str, IngestKey],
        workers: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._buckets = {
            name: TokenBucket(key.reports_per_second / workers, key.burst, clock)
            for name, key in keys.items()
        }

    def take(self, name: str | None, reports: int) -> float:
        """Return 0.0 if a key may send so many reports now, else the seconds to wait.

        Parameters
        ----------
        name : str or None
            As `IngestGate.admit` returns it; requests without a key have no quota.
        reports : int
            Infinity is returned for more than the key's burst: such a batch is too large (413).
        """
        return 0.0 if name is None else self._buckets[name].take(reports)
