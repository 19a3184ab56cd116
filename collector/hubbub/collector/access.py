"""Access and quotas: ingest keys and admin tokens, which are kept as hashes only.

A secret is 256 random bits that `generate_secret` drew, so it can't be guessed, offline or online,
and one SHA-256 protects it as well as a slow password hash would: there is no dictionary to try. A
secret that a person chose would be none of this, so anything of another form is refused.

Each key has a token bucket, which holds at most `burst` tokens and gains `rate` of them a second. A
report takes one. A batch takes `LEAST_CHARGE` at least, and as many again for each slice that a
metric's version has beyond one, or all that a smaller bucket holds: its id and its rows cost memory
and disk, too. So in any t seconds a key gets at most burst + rate * t reports through, and a tenth
as many batches; one that is stored already and comes again costs as much. Each worker process has
buckets of its own with its share of the rate, because shared ones would cost every request a lock.
Without keys in the configuration anyone may send what there is room for.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Literal

from hubbub.collector.config import LEAST_CHARGE, AdminToken, IngestKey
from hubbub.collector.problems import RefusalError

Purpose = Literal["ingest", "admin"]

_SECRET_BYTES = 32  # 256 bits can't be guessed, so a plain hash of it may be kept


class AuthError(RefusalError):
    """A request without a valid secret (RFC 6750): 401.

    `fault`: what was expected; it reveals nothing of what was presented.
    """

    def __init__(
        self, reason: str, fault: str, why: str = ', error="invalid_token"', key: str | None = None
    ) -> None:
        headers = {"WWW-Authenticate": f'Bearer realm="hubbub"{why}'}
        super().__init__(401, reason, f"Authorization: {fault}", headers=headers, key=key)


def generate_secret(purpose: Purpose) -> tuple[str, str]:
    """Return a new secret and its SHA-256 in hex.

    The secret's prefix lets scanners of source code and logs find it.
    """
    secret = f"hub_{purpose}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    return secret, hashlib.sha256(secret.encode("ascii")).hexdigest()


class Gate:
    """Secrets that give access for one purpose: `entries` by name.

    `anonymous`: whether requests without a secret pass; where there are no entries, the header then
    has no meaning and is ignored. A wrong secret is refused even where none is needed: its sender
    expects its quota.
    """

    def __init__(
        self,
        entries: Mapping[str, IngestKey | AdminToken],
        purpose: Purpose,
        *,
        anonymous: bool = False,
    ) -> None:
        self._purpose: Purpose = purpose
        self._anonymous = anonymous
        self._header = re.compile(rf"(?i:bearer) +(hub_{purpose}_[A-Za-z0-9_-]{{43}}) *")
        self._by_hash = {bytes.fromhex(it.sha256): (name, it) for name, it in entries.items()}

    def admit(self, authorization: str | None, today: dt.date) -> str | None:
        """Return the name of the secret in an Authorization header, or None if none is needed.

        The time it takes reveals nothing of the secrets, because a hash is looked up, and no one
        can choose a text by the first bytes of its hash. `today`: in UTC. Raises `AuthError`.
        """
        if self._anonymous and (authorization is None or not self._by_hash):
            return None
        expected = f"must be Bearer hub_{self._purpose}_..."
        if authorization is None:
            raise AuthError("key_missing", f"missing; {expected}", "")
        presented = self._header.fullmatch(authorization)
        if presented is None:
            raise AuthError("key_malformed", f"{expected}, whole and nothing else")
        found = self._by_hash.get(hashlib.sha256(presented[1].encode("ascii")).digest())
        if found is None:
            raise AuthError("key_unknown", "unknown key")
        name, entry = found
        if entry.expires is not None and today > entry.expires:
            raise AuthError("key_expired", f"key expired on {entry.expires}", key=name)
        return name


_ROUNDING = 1e-6  # of a token: a client that waited as long as asked passes, despite rounding


class Quotas:
    """The buckets of all ingest keys, in one worker process.

    A bucket is the time at which it will be full: each token that is taken puts that off by 1/rate,
    and there are tokens as long as it is at most burst/rate away. `workers`: how many processes
    share the rates. The burst is whole in each, or a batch could fit into no bucket. `clock`:
    returns seconds; must not run backwards.
    """

    def __init__(self, workers: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self._workers = workers
        self._clock = clock
        self._keys: Mapping[str, IngestKey] = {}
        self._full_at: dict[str, float] = {}

    def use(self, keys: Mapping[str, IngestKey]) -> None:
        """Go by these keys from now on; one that is as it was has spent what it had."""
        stay = {name for name, key in keys.items() if self._keys.get(name) == key}
        self._full_at = {name: at for name, at in self._full_at.items() if name in stay}
        self._keys = keys

    def spend(self, name: str | None, reports: int, sections: int = 1) -> None:
        """Take reports from a key's quota, or none at all.

        `name`: as `Gate.admit` returns it; requests without a key have no quota. `sections`: one,
        and one for each further slice of a metric's version. Raises `RefusalError`: 429 with the
        seconds to wait, or 413 if no wait would help.
        """
        key = self._keys.get(name or "")
        if name is None or key is None:  # revoked since the request was let in
            return
        tokens = max(reports, min(LEAST_CHARGE * sections, key.burst))
        if tokens > key.burst:
            detail = f"reports: {reports}; this key may send at most {key.burst} at once"
            raise RefusalError(413, "too_large", detail, key=name)
        rate, now = key.reports_per_second / self._workers, self._clock()
        full_at = max(self._full_at.get(name, now), now) + tokens / rate
        wait = full_at - now - key.burst / rate
        if wait > _ROUNDING / rate:
            detail = "quota of this key is used up; see Retry-After"
            raise RefusalError(429, "quota", detail, retry_after=wait, key=name)
        self._full_at[name] = full_at
