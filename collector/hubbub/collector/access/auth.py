"""Authentication of apps and operators by bearer secrets, kept as hashes only.

A secret is 256 random bits that `generate_secret` drew, so it can't be guessed, offline or online,
and one SHA-256 protects it as well as a slow password hash would: there is no dictionary to try.
Only the hash is in the configuration. A secret that a person chose would be none of this, so
anything of another form is refused, whatever hashes are configured.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import re
import secrets
from collections.abc import Mapping
from typing import Generic, Literal, TypeVar

from hubbub.collector.config.settings import AdminToken, IngestKey, Scope
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
