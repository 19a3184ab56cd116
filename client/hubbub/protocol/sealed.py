"""Sealed reports: keys as texts, a report padded for sealing, a batch of sealed records.

docs/protocol, section 9, describes them byte by byte; `hpke` encrypts. Invariants: all records of a
batch have one length, whatever their metrics, so that a collector that can't open them can't tell
them apart; and a report has one number in every attempt to deliver it, so that it is counted once
however often it is sealed.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import hashlib
import re
import struct
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple, Self

from hubbub.protocol.compact import SEPARATOR, section_head, section_name
from hubbub.protocol.dimensions import longest_slice
from hubbub.protocol.errors import SealedError, UnknownKeyError
from hubbub.protocol.params import COHORT_BYTES

if TYPE_CHECKING:
    from hubbub.protocol.metrics import Metric

MEDIA_TYPE = "application/vnd.hubbub.sealed"
FORMAT = 1  # first byte of a sealed batch; another arrangement of the bytes has another
PAYLOAD_SIZES = (64, 128, 256, 512, 1024)
"""The bytes that a padded report may have; the largest metric has room in the last."""

ID_BYTES = 8  # the few keys of a registry have different ids (two collide with chance 2^-64)
NUMBER_BYTES = 16  # 128 random bits of each report, which make all reports different
KEY_BYTES = 32  # of X25519 (RFC 7748)
OVERHEAD = ID_BYTES + KEY_BYTES + 16
"""What a record has besides the payload: the key's id, the encapsulated key, the tag."""

GRACE = dt.timedelta(days=30)
"""How long a key opens reports after the last day on which they are sealed to it."""

_HEAD = struct.Struct("<B16sHH")  # format, batch id, bytes of a payload, number of records
_NUMBERS = struct.Struct("<IH")  # version, bytes of bits
_MOST = 2**16 - 1  # the head counts records in two bytes
_KEY = re.compile(r"hub_(seal|unseal)_(\d{8})_([A-Za-z0-9_-]{43})")


def prefixed(*parts: bytes) -> bytes:
    """Join parts so that no two lists of parts give the same bytes (each behind its length)."""
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


class SealingKey(NamedTuple):
    """A public key to which reports are sealed.

    Attributes
    ----------
    last_day : datetime.date
        The last UTC day on which clients seal to it.
    public : bytes
        An X25519 key, 32 bytes.
    """

    last_day: dt.date
    public: bytes

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a text such as "hub_seal_20270331_..." (raises SealedError)."""
        return cls(*_parse_key("seal", text))

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        return format_key("seal", *self)

    @property
    def key_id(self) -> bytes:
        """Eight bytes by which the holder of several keys finds the right one; of day and key."""
        day = f"{self.last_day:%Y%m%d}".encode()
        message = prefixed(b"hubbub/1/sealing key", day, self.public)
        return hashlib.sha256(message).digest()[:ID_BYTES]

    @property
    def opens_until(self) -> dt.date:
        """The last day on which the private key is of use, before it is to be deleted."""
        return self.last_day + GRACE

    def info(self, application: str) -> bytes:
        """Return HPKE's `info`: what is sealed for one application and key opens for no other."""
        return prefixed(b"hubbub/1/sealed", self.key_id, application.encode())


def parse_private_key(text: str) -> tuple[dt.date, bytes]:
    """Read a text such as "hub_unseal_20270331_..." (raises SealedError, without the key)."""
    return _parse_key("unseal", text)


def format_key(purpose: str, last_day: dt.date, key: bytes) -> str:
    """Return the text of a key whose purpose is "seal" (public) or "unseal" (private)."""
    encoded = base64.urlsafe_b64encode(key).decode().rstrip("=")
    return f"hub_{purpose}_{last_day:%Y%m%d}_{encoded}"


def _parse_key(purpose: str, text: str) -> tuple[dt.date, bytes]:
    expected = f"must be hub_{purpose}_YYYYMMDD_ and 43 letters, digits, - and _"
    found = _KEY.fullmatch(text.strip())
    if not found or found[1] != purpose:
        if found:  # the texts of private keys don't belong in messages
            raise SealedError(f"key: hub_{found[1]}_...; {expected}")
        raise SealedError(f"key: {expected}")
    try:
        last_day = dt.datetime.strptime(found[2], "%Y%m%d").date()  # noqa: DTZ007
        key = base64.urlsafe_b64decode(found[3] + "=")
    except (ValueError, binascii.Error) as error:
        raise SealedError(f"key: hub_{purpose}_{found[2]}_...: {expected}") from error
    if format_key(purpose, last_day, key) != text.strip():
        raise SealedError(f"key: hub_{purpose}_{found[2]}_...: its last letter has spare bits set")
    return last_day, key


def key_in_force(keys: Iterable[SealingKey], today: dt.date) -> SealingKey | None:
    """Return the key to seal to on a day: of those whose days aren't over, the one that ends first.

    So a key that is added for later is used once the one before it has ended.
    """
    return min((key for key in keys if key.last_day >= today), default=None)


class SealedReport(NamedTuple):
    """What was sealed: a report, and its number.

    Attributes
    ----------
    number : bytes
        16 bytes; the same in every attempt to deliver this report.
    metric : str
    version : int
    record : bytes
        The cohort (2 bytes, little-endian), then the bits.
    slice : str
        What it says of the app.
    """

    number: bytes
    metric: str
    version: int
    record: bytes
    slice: str = ""


def least_payload(metrics: Iterable[Metric]) -> int:
    """Return the size of payloads in which the reports of all these metrics have room.

    Whatever the app tells of itself, so that its length tells nothing.
    """
    needed = []
    for metric in metrics:
        name = section_name(metric.name, longest_slice(metric.dimensions) * "x")
        needed.append(_size(len(name), COHORT_BYTES + metric.params.k // 8))
    return payload_size(max(needed))


def payload_size(needed: int) -> int:
    """Return the smallest size of payloads that has room for so many bytes (or SealedError)."""
    for size in PAYLOAD_SIZES:
        if needed <= size:
            return size
    raise SealedError(f"report of {needed} bytes: must be at most {PAYLOAD_SIZES[-1]}")


def _size(name: int, record: int) -> int:
    return NUMBER_BYTES + 1 + name + _NUMBERS.size + record


def write_payload(report: SealedReport) -> bytes:
    """Return what is sealed, before it is padded with zeros."""
    named = section_name(report.metric, report.slice)
    head = section_head(named, report.version, len(report.record))
    return report.number + head + report.record


def read_payload(payload: bytes) -> SealedReport:
    """Return the report of a padded payload; whether it fits its metric is for others to say.

    Raises
    ------
    SealedError
        If it is anything but what `write_payload` makes, and zeros.
    """
    at = NUMBER_BYTES + 1
    if len(payload) not in PAYLOAD_SIZES:
        raise SealedError(f"payload of {len(payload)} bytes: must be of {PAYLOAD_SIZES}")
    name = payload[at : at + payload[at - 1]]
    at += len(name)
    if not name or not name.isascii() or at + _NUMBERS.size > len(payload):
        raise SealedError("metric: must be a name in ASCII")
    version, bits = _NUMBERS.unpack_from(payload, at)
    at += _NUMBERS.size
    end = at + COHORT_BYTES + bits
    if not bits or end > len(payload):
        raise SealedError(f"bits: {bits} bytes; must be at least 1 and fit into the payload")
    if payload[end:].strip(b"\0"):
        raise SealedError("padding: must be zeros")
    metric, separator, slice_ = name.decode("ascii").partition(SEPARATOR)
    if separator and not slice_:
        raise SealedError("metric: must have a slice behind its separator, or none")
    return SealedReport(payload[:NUMBER_BYTES], metric, version, payload[at:end], slice_)


def write_sealed(batch_id: str, records: Iterable[bytes]) -> bytes:
    """Return the body of POST /v1/reports: the records ascend, so their order tells nothing."""
    rows = sorted(records)
    if not 0 < len(rows) <= _MOST:
        raise SealedError(f"records: {len(rows)}; must be between 1 and {_MOST}")
    head = _HEAD.pack(FORMAT, bytes.fromhex(batch_id), len(rows[0]) - OVERHEAD, len(rows))
    return head + b"".join(rows)


class SealedBatch(NamedTuple):
    """A batch of sealed records.

    Attributes
    ----------
    batch_id : bytes
    payload : int
        Bytes of each payload.
    records : bytes
        Each the key's id, the encapsulated key and the ciphertext; end to end.
    """

    batch_id: bytes
    payload: int
    records: bytes


def read_sealed(body: bytes, known: Collection[bytes]) -> SealedBatch:
    """Return the batch in a body.

    Parameters
    ----------
    body : bytes
    known : collection of bytes
        The ids of the keys to which records may be sealed.

    Raises
    ------
    SealedError
        If the body isn't a batch of sealed records; says where it isn't.
    UnknownKeyError
        If it is, but of another key.
    """
    if len(body) < _HEAD.size:
        raise SealedError(f"head: {len(body)} bytes; must be {_HEAD.size}")
    form, batch_id, payload, count = _HEAD.unpack_from(body)
    if form != FORMAT:
        raise SealedError(f"format = {form}: must be {FORMAT}")
    if payload not in PAYLOAD_SIZES:
        raise SealedError(f"payload = {payload}: must be one of {PAYLOAD_SIZES}")
    width, records = payload + OVERHEAD, body[_HEAD.size :]
    if not count or len(records) != count * width:
        raise SealedError(
            f"records: {len(records)} bytes; must be at least one record, and {count} of {width}"
        )
    rows = [records[start : start + width] for start in range(0, len(records), width)]
    if rows != sorted(set(rows)):
        raise SealedError("records: must strictly ascend")
    if not {row[:ID_BYTES] for row in rows} <= set(known):
        raise UnknownKeyError("records: sealed to a key that this collector doesn't take")
    return SealedBatch(batch_id, payload, records)
