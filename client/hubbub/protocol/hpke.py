"""Padded reports <-> sealed records, by HPKE (RFC 9180) in base mode.

The suite is DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM, in single-shot form: each record
has an encapsulated key of its own, so records of one sender have nothing in common. The
cryptography is the package `cryptography`'s, which pip install 'hubbub[sealed]' brings; here is
only what goes into it. Invariant: nothing is sealed but padded payloads of one size.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from hubbub.protocol.errors import NotOpenedError, SealedError
from hubbub.protocol.sealed import (
    ID_BYTES,
    SealedReport,
    SealingKey,
    format_key,
    parse_private_key,
    payload_size,
    read_payload,
    write_payload,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.hpke import Suite


def require_cryptography() -> Suite:
    """Return the suite; the package is imported only where something is sealed or opened.

    Raises
    ------
    SealedError
        If it isn't installed, or is too old to have HPKE.
    """
    try:
        from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
    except ImportError as error:
        raise SealedError(
            "sealing needs the package cryptography, 47 or newer: pip install 'hubbub[sealed]'"
        ) from error
    return Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


class PrivateKey(NamedTuple):
    """A key pair that opens records.

    Attributes
    ----------
    public : SealingKey
    private : bytes
        32 bytes.
    """

    public: SealingKey
    private: bytes

    @classmethod
    def generate(cls, last_day: dt.date) -> PrivateKey:
        """Draw a key from the operating system's generator."""
        require_cryptography()
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        return cls._of(last_day, X25519PrivateKey.generate())

    @classmethod
    def parse(cls, text: str) -> PrivateKey:
        """Read a text such as "hub_unseal_20270331_..." (raises SealedError)."""
        last_day, private = parse_private_key(text)
        require_cryptography()
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        return cls._of(last_day, X25519PrivateKey.from_private_bytes(private))

    @classmethod
    def _of(cls, last_day: dt.date, key: X25519PrivateKey) -> PrivateKey:
        public = SealingKey(last_day, key.public_key().public_bytes_raw())
        return cls(public, key.private_bytes_raw())

    def __str__(self) -> str:
        """Return the text that `parse` reads: the secret itself."""
        return format_key("unseal", self.public.last_day, self.private)

    def __repr__(self) -> str:
        """Return which key it is, without the secret."""
        return f"PrivateKey({self.public})"


def seal(
    reports: Iterable[SealedReport], key: SealingKey, application: str, least: int
) -> list[bytes]:
    """Return a record for each report, all of one length.

    Parameters
    ----------
    reports : iterable of SealedReport
    key : SealingKey
    application : str
    least : int
        Bytes of payloads; more only if a report needs more.

    Raises
    ------
    SealedError
        If the package `cryptography` is missing, or a report or the key can't be used.
    """
    suite = require_cryptography()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    payloads = [write_payload(report) for report in reports]
    size = payload_size(max([least, *map(len, payloads)]))
    public, info = X25519PublicKey.from_public_bytes(key.public), key.info(application)
    try:
        return [key.key_id + suite.encrypt(p.ljust(size, b"\0"), public, info) for p in payloads]
    except ValueError as error:  # of the few points to which everybody knows the shared secret
        raise SealedError(f"key: {key}: {error}") from error


class Opener:
    """Opens the records of some keys."""

    def __init__(self, keys: Sequence[PrivateKey], application: str) -> None:
        self._suite = require_cryptography()
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._invalid = InvalidTag
        self._keys = {
            key.public.key_id: (
                X25519PrivateKey.from_private_bytes(key.private),
                key.public.info(application),
            )
            for key in keys
        }

    def knows(self, record: bytes) -> bool:
        """Return whether a record says that it is sealed to one of the keys."""
        return record[:ID_BYTES] in self._keys

    def open(self, record: bytes) -> SealedReport:
        """Return what is in a record of a known key.

        Raises
        ------
        NotOpenedError
            If it wasn't sealed to this key and application, or was changed.
        SealedError
            If it was, but holds no report.
        """
        private, info = self._keys[record[:ID_BYTES]]
        try:
            payload = self._suite.decrypt(record[ID_BYTES:], private, info)
        except (self._invalid, ValueError) as error:
            raise NotOpenedError("record: not sealed to this key, or changed since") from error
        return read_payload(payload)
