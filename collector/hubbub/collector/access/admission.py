"""Whether a request is admitted: its key (401), that key's quota, and the room there is (429).

Each key has a token bucket, which holds at most `burst` tokens and gains `rate` of them a second. A
report takes one. A batch takes `LEAST_CHARGE` at least, and as many again for each slice that a
metric's version has beyond one, or all that a smaller bucket holds: its id and its rows cost memory
and disk, too. So in any t seconds a key gets at most burst + rate * t reports through, and a tenth
as many batches. What is stored already and comes again costs nothing of that but has a second
bucket of the same size, so that nobody makes more than twice the work of a quota. Each worker
process has buckets of its own with its share of the rate, because shared ones would cost every
request a lock. Without keys in the configuration anyone may send what there is room for. Requests
that were let in are served to their end; one too many is shed before its body is read.
Invariant: the probes of an orchestrator never pass through here.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import math
import secrets
import time
from collections.abc import Callable, Mapping

from hubbub.collector.access.auth import IngestGate
from hubbub.collector.config.settings import LEAST_CHARGE, IngestKey, Settings
from hubbub.collector.problems import RefusalError

_ROUNDING = 1e-6  # of a token: a client that waited as long as asked passes, despite rounding


class TokenBucket:
    """Tokens that come at a steady rate; full at the start.

    `rate`: tokens a second. `burst`: most tokens it holds. `clock`: returns seconds; must not run
    backwards.
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

        Returns 0.0 if they were taken. Otherwise none was, and this is how many seconds it will be
        until there are n, if no others are taken; infinity if n is more than the burst.
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

    def put(self, n: int) -> None:
        """Put back n tokens that were taken; what doesn't fit is lost."""
        self._tokens = min(self._burst, self._tokens + n)


class Quotas:
    """The buckets of all ingest keys, in one worker process.

    `workers`: how many processes share the rates. The burst is whole in each, or a batch could fit
    into no bucket. `clock`: returns seconds.
    """

    def __init__(
        self,
        keys: Mapping[str, IngestKey],
        workers: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._workers = workers
        self._clock = clock
        self._keys: Mapping[str, IngestKey] = {}
        self._buckets: dict[str, TokenBucket] = {}
        self._repeats: dict[str, TokenBucket] = {}
        self.use(keys)

    def use(self, keys: Mapping[str, IngestKey]) -> None:
        """Go by these keys from now on; one that is as it was has spent what it had."""
        for buckets in (self._buckets, self._repeats):
            for name in self._keys.keys() - keys.keys():
                del buckets[name]
            for name, key in keys.items():
                if self._keys.get(name) != key:
                    rate = key.reports_per_second / self._workers
                    buckets[name] = TokenBucket(rate, key.burst, self._clock)
        self._keys = keys

    def take(self, name: str | None, reports: int, sections: int = 1) -> float:
        """Return 0.0 if a key may send so many reports now, else the seconds to wait.

        `name`: as `IngestGate.admit` returns it; requests without a key have no quota. `reports`:
        infinity is returned for more than the key's burst: such a batch is too large (413).
        `sections`: one, and one for each further slice of a metric's version.
        """
        bucket = self._buckets.get(name or "")  # none: revoked since the request was let in
        return bucket.take(self._charge(name, reports, sections)) if bucket else 0.0

    def repeat(self, name: str | None, reports: int, sections: int = 1) -> bool:
        """Return whether a key may now send again so many reports, and count them as sent again."""
        bucket = self._repeats.get(name or "")
        return not bucket or bucket.take(self._charge(name, reports, sections)) == 0

    def refund(self, name: str | None, reports: int, sections: int = 1) -> None:
        """Give back what was taken for reports that had been stored already, as far as allowed."""
        bucket = self._buckets.get(name or "")
        if bucket and self.repeat(name, reports, sections):
            bucket.put(self._charge(name, reports, sections))

    def _charge(self, name: str | None, reports: int, sections: int) -> int:
        return max(reports, min(LEAST_CHARGE * sections, self._keys[name or ""].burst))


class Admission:
    """The ingest keys and quotas of one worker process."""

    def __init__(self, settings: Settings) -> None:
        self._quotas = Quotas({}, settings.workers)
        self.use(settings)

    def use(self, settings: Settings) -> None:
        """Go by the keys of these settings from now on."""
        self._keys = settings.ingest_keys
        self._gate = IngestGate(settings.ingest_keys, anonymous=settings.anonymous)
        self._quotas.use(settings.ingest_keys)

    def key(self, authorization: str | None) -> str | None:
        """Return the name of the key in an Authorization header, or None.

        Raises `AuthError`: 401, if there is no such key or none was given where one is needed.
        """
        return self._gate.admit(authorization, dt.datetime.now(dt.UTC).date())

    def spend(self, key: str | None, reports: int, sections: int) -> None:
        """Take reports from a key's quota.

        Raises `RefusalError`: 429 with the seconds to wait, or 413 if no wait would help.
        """
        wait = self._quotas.take(key, reports, sections)
        if math.isinf(wait):
            burst = self._keys[key or ""].burst
            detail = f"reports: {reports}; this key may send at most {burst} at once"
            raise RefusalError(413, "too_large", detail, key=key)
        if wait:
            detail = "quota of this key is used up; see Retry-After"
            raise RefusalError(429, "quota", detail, retry_after=wait, key=key)

    def may_repeat(self, key: str | None, reports: int, sections: int) -> bool:
        """Return whether a key without quota may ask if these reports are stored already."""
        return self._quotas.repeat(key, reports, sections)

    def refund(self, key: str | None, reports: int, sections: int) -> None:
        """Give back the quota for reports that turned out to be stored already."""
        self._quotas.refund(key, reports, sections)


class LoadLimiter:
    """Counts the requests under way, and the bytes that these and all connections hold.

    `retry_after`: seconds. Shed clients are told to wait between once and twice as long, at random,
    so that they don't all come back at the same moment.
    """

    def __init__(self, max_requests: int, max_bytes: int, retry_after: float) -> None:
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._retry_after = retry_after
        self._requests = 0
        self._bytes = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def held(self) -> int:
        """Bytes that are held now."""
        return self._bytes

    def acquire(self) -> Slot:
        """Let a request in; its slot must be released.

        Raises `RefusalError`: 429, if there are too many already.
        """
        if self._requests >= self._max_requests:
            raise self._full("requests", f"{self._requests} requests are under way already")
        self._requests += 1
        self._empty.clear()
        return Slot(self)

    def hold(self, size: int) -> None:
        """Count more bytes as held (raises RefusalError: 429, if there are too many)."""
        if self._bytes + size > self._max_bytes:
            raise self._full("bytes", f"{self._bytes} bytes are under way already")
        self._bytes += size

    def keep(self, size: int) -> RefusalError | None:
        """Count more bytes as held outside requests, or fewer (below 0).

        What was in requests may take all the room that there is, and so may what wasn't. What
        doesn't fit isn't counted, and the refusal (429) for it is returned.
        """
        if size > 0 and self._bytes + size > self._max_bytes:
            return self._full("bytes", f"{self._bytes} bytes are under way already")
        self._bytes += size
        return None

    def release(self, size: int) -> None:
        """Count a request and its bytes out."""
        self._requests -= 1
        self._bytes -= size
        if not self._requests:
            self._empty.set()

    async def wait_until_empty(self, seconds: float) -> bool:
        """Wait until no request is under way, or some seconds; return whether none is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        return not self._requests

    def _full(self, reason: str, detail: str) -> RefusalError:
        wait = self._retry_after * (1 + secrets.randbelow(1001) / 1000)
        return RefusalError(429, f"shed_{reason}", f"too busy: {detail}", retry_after=wait)


class Slot:
    """The place of one request among those that a `LoadLimiter` has let in."""

    __slots__ = ("_held", "_limiter")

    def __init__(self, limiter: LoadLimiter) -> None:
        self._limiter = limiter
        self._held = 0

    def hold(self, size: int) -> None:
        """Set how many bytes this request holds (raises RefusalError: 429, if too many)."""
        self._limiter.hold(size - self._held)
        self._held = size

    def release(self) -> None:
        """Give the slot and its bytes back."""
        self._limiter.release(self._held)
