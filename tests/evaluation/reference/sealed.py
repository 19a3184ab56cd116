"""Section 9 of docs/protocol: sealed batches, with HPKE (RFC 9180) written out.

X25519 and AES-GCM are a library's; the key schedule is here, so that ephemeral keys can be given.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from evaluation.reference.compact import Report, record

SIZES = (64, 128, 256, 512, 1024)
_KEM = b"KEM\x00\x20"
_SUITE = b"HPKE\x00\x20\x00\x01\x00\x01"


class Sealing(NamedTuple):
    """What single-shot encryption makes of a shared secret."""

    enc: bytes
    key: bytes
    nonce: bytes


def _extract(suite: bytes, salt: bytes, label: bytes, material: bytes) -> bytes:
    message = b"HPKE-v1" + suite + label + material
    return hmac.digest(salt or bytes(32), message, "sha256")


def _expand(suite: bytes, secret: bytes, label: bytes, info: bytes, length: int) -> bytes:
    labelled = struct.pack(">H", length) + b"HPKE-v1" + suite + label + info
    return hmac.digest(secret, labelled + b"\x01", "sha256")[:length]


def setup(public: bytes, info: bytes, ephemeral: bytes) -> Sealing:
    """Encapsulate (section 4.1) and derive the key and the first nonce (5.1), in base mode."""
    secret_key = X25519PrivateKey.from_private_bytes(ephemeral)
    enc = secret_key.public_key().public_bytes_raw()
    dh = secret_key.exchange(X25519PublicKey.from_public_bytes(public))
    shared = _expand(_KEM, _extract(_KEM, b"", b"eae_prk", dh), b"shared_secret", enc + public, 32)
    no_psk = _extract(_SUITE, b"", b"psk_id_hash", b"")
    context = b"\x00" + no_psk + _extract(_SUITE, b"", b"info_hash", info)
    secret = _extract(_SUITE, shared, b"secret", b"")
    key = _expand(_SUITE, secret, b"key", context, 16)
    return Sealing(enc, key, _expand(_SUITE, secret, b"base_nonce", context, 12))


def encrypt(sealing: Sealing, plain: bytes, aad: bytes = b"") -> bytes:
    return AESGCM(sealing.key).encrypt(sealing.nonce, plain, aad)


def prefixed(*parts: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def public_text(day: str, public: bytes) -> str:
    return f"hub_seal_{day}_{base64.urlsafe_b64encode(public).decode().rstrip('=')}"


def key_id(day: str, public: bytes) -> bytes:
    message = prefixed(b"hubbub/1/sealing key", day.encode(), public)
    return hashlib.sha256(message).digest()[:8]


def number(
    secret: bytes, application: str, batch_id: bytes, report: Report, equal_before: int
) -> bytes:
    message = prefixed(
        b"hubbub/1/sealed",
        secret,
        application.encode(),
        report.name.encode(),
        struct.pack("<I", report.version),
        batch_id,
        record(report),
        struct.pack("<I", equal_before),
    )
    return hashlib.shake_256(message).digest(16)


def payload(numbered: bytes, report: Report, size: int) -> bytes:
    name = report.name.encode()
    head = struct.pack("<B", len(name)) + name
    head += struct.pack("<IH", report.version, len(report.bits))
    return (numbered + head + record(report)).ljust(size, b"\0")


def size_for(metrics: list[tuple[str, int]]) -> int:
    """Return the size of payloads for metrics of these names, with the longest slice, and bits."""
    needed = max(16 + 1 + len(name) + 6 + 2 + k // 8 for name, k in metrics)
    return next(size for size in SIZES if size >= needed)


def seal(plain: bytes, day: str, public: bytes, application: str, ephemeral: bytes) -> bytes:
    named = key_id(day, public)
    info = prefixed(b"hubbub/1/sealed", named, application.encode())
    sealing = setup(public, info, ephemeral)
    return named + sealing.enc + encrypt(sealing, plain)


def body(batch_id: bytes, size: int, records: list[bytes]) -> bytes:
    head = struct.pack("<B16sHH", 1, batch_id, size, len(records))
    return head + b"".join(sorted(records))
