"""Who may send, and how much: ingest keys and admin tokens, kept as hashes only, and quotas.

A secret is 256 random bits that `generate_secret` drew, so it can't be guessed, offline or online,
and one SHA-256 protects it as well as a slow password hash would: there is no dictionary to try. A
secret that a person chose would be none of this, so anything of another form is refused.

Each key has a token bucket, which holds at most `burst` tokens and gains `rate` of them a second. A
report takes one. A batch takes `LEAST_CHARGE` at least, and as many again for each slice that a
metric's version has beyond one, or all that a smaller bucket holds: its id and its rows cost memory
and disk, too. So in any t seconds a key gets at most burst + rate * t reports through, and a tenth
as many batches. What is stored already and comes again costs nothing of that but has a second
bucket of the same size, so that nobody makes more than twice the work of a quota. Each worker
process has buckets of its own with its share of the rate, because shared ones would cost every
request a lock. Without keys in the configuration anyone may send what there is room for.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import math
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Generic, Literal, TypeVar

from hubbub.collector.config import LEAST_CHARGE, AdminToken, IngestKey, Scope, Settings
from hubbub.collector.problems import RefusalError

Purpose = Literal["ingest", "admin"]

_SECRET_BYTES = 32  # 256 bits: nobody guesses one, so a plain hash of it may be kept
_CHECKSUM_LENGTH = 4  # base64url digits: a mistyped secret passes with chance 2^-24
_Entry = TypeVar("_Entry", IngestKey, AdminToken)


class AuthError(RefusalError):
    """A request that isn't admitted (RFC 6750): 401 without a valid secret, 403 without the scope.

    The detail says what was expected, and reveals nothing of what was presented.
    """

    def __init__(
        self, status: int, reason: str, detail: str, challenge: str, key: str | None = None
    ) -> None:
        headers = {"WWW-Authenticate": challenge}
        super().__init__(status, reason, detail, headers=headers, key=key)


def generate_secret(purpose: Purpose) -> tuple[str, str]:
    """Return a new secret and its SHA-256 in hex.

    The secret's prefix lets scanners of source code and logs find it; its last four characters are
    a checksum, which distinguishes a cut or mistyped secret from an unknown one.
    """
    body = _base64url(secrets.token_bytes(_SECRET_BYTES))
    secret = f"hub_{purpose}_{body}"
    secret += _checksum(secret)
    return secret, hash_secret(secret)


def hash_secret(secret: str) -> str:
    """Return what the configuration holds of a secret."""
    return hashlib.sha256(secret.encode("ascii")).hexdigest()


def is_secret(text: str, purpose: Purpose) -> bool:
    """Return whether a text has the form of what `generate_secret` returns for a purpose."""
    fits = re.fullmatch(_form(purpose), text) is not None
    return fits and _checksum(text[:-_CHECKSUM_LENGTH]) == text[-_CHECKSUM_LENGTH:]


class SecretTable(Generic[_Entry]):
    """Hashed secrets with their names.

    `purpose`: secrets for the other purpose are refused.
    """

    def __init__(self, entries: Mapping[str, _Entry], purpose: Purpose) -> None:
        self._purpose: Purpose = purpose
        self._header = re.compile(rf"(?i:bearer) +({_form(purpose)}) *")
        self._by_hash: dict[bytes, tuple[str, _Entry]] = {
            bytes.fromhex(entry.sha256): (name, entry) for name, entry in entries.items()
        }

    def __len__(self) -> int:
        return len(self._by_hash)

    def find(self, authorization: str | None, today: dt.date) -> tuple[str, _Entry]:
        """Return the name and the entry of the secret that an Authorization header presents.

        The time it takes reveals nothing of the secrets, because a hash is looked up, and nobody
        can choose a text by the first bytes of its hash.

        `authorization`: the header's value: "Bearer SECRET". `today`: in UTC. Raises `AuthError`:
        status 401, if there is no such entry or it has expired.
        """
        if authorization is None:
            expected = f"must be Bearer hub_{self._purpose}_..."
            raise _unauthorized("key_missing", f"missing; {expected}")
        presented = self._header.fullmatch(authorization)
        if presented is None:
            expected = f"must be Bearer hub_{self._purpose}_..., whole and nothing else"
            raise _unauthorized("key_malformed", expected, "invalid_token")
        found = self._by_hash.get(hashlib.sha256(presented[1].encode("ascii")).digest())
        if found is None:
            if is_secret(presented[1], self._purpose):
                raise _unauthorized("key_unknown", "unknown key", "invalid_token")
            fault = "mistyped key (its checksum is wrong)"
            raise _unauthorized("key_malformed", fault, "invalid_token")
        name, entry = found
        if entry.expires is not None and today > entry.expires:
            fault = f"key expired on {entry.expires}"
            raise _unauthorized("key_expired", fault, "invalid_token", name)
        return found


class IngestGate:
    """Who may send reports.

    `anonymous`: whether requests without a key are taken.
    """

    def __init__(self, keys: Mapping[str, IngestKey], *, anonymous: bool) -> None:
        self._secrets = SecretTable(keys, "ingest")
        self._anonymous = anonymous

    def admit(self, authorization: str | None, today: dt.date) -> str | None:
        """Return the name of the key that a request presents, or None if it comes without one.

        A wrong key is refused even where none is needed: its sender expects its quota.
        Without any keys in the configuration the header has no meaning here and is ignored.

        Raises `AuthError`: status 401.
        """
        if self._anonymous and (authorization is None or not len(self._secrets)):
            return None
        return self._secrets.find(authorization, today)[0]


class AdminGate:
    """Who may use the admin listener."""

    def __init__(self, tokens: Mapping[str, AdminToken]) -> None:
        self._secrets = SecretTable(tokens, "admin")

    def admit(self, authorization: str | None, scope: Scope, today: dt.date) -> str:
        """Return the name of the token that a request presents, if it may do this.

        Raises `AuthError`: status 401, or 403 if the token lacks the scope.
        """
        name, token = self._secrets.find(authorization, today)
        if scope not in token.scopes:
            raise AuthError(
                403,
                "scope",
                f"Authorization: the token lacks the scope {scope!r}",
                f'Bearer realm="hubbub", error="insufficient_scope", scope="{scope}"',
            )
        return name


def _unauthorized(
    reason: str, fault: str, error: str | None = None, key: str | None = None
) -> AuthError:
    challenge = 'Bearer realm="hubbub"' + (f', error="{error}"' if error else "")
    return AuthError(401, reason, f"Authorization: {fault}", challenge, key)


def _form(purpose: Purpose) -> str:
    return rf"hub_{purpose}_[A-Za-z0-9_-]{{47}}"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _checksum(text: str) -> str:
    return _base64url(hashlib.sha256(text.encode("ascii")).digest()[:3])


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
