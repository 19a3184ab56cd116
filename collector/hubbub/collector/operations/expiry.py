"""When the certificate, keys and tokens of a service end, so that somebody is told before."""

from __future__ import annotations

import datetime as dt
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from hubbub.collector.config.settings import Settings

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_DAY = dt.timedelta(days=1)  # what is valid through a day ends when the next begins
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17
"""Tags of DER."""


class Expiry(NamedTuple):
    """The end of something that lets others in."""

    type: str  # "certificate", "ingest_key" or "admin_token"
    name: str  # in the configuration; of a certificate, its file's
    at: dt.datetime  # the first moment at which it isn't good any more


def expiries(settings: Settings) -> list[Expiry]:
    """Return all that ends, the first of each chain of certificates."""
    found = [
        *_last_days("ingest_key", {n: it.expires for n, it in settings.ingest_keys.items()}),
        *_last_days("admin_token", {n: it.expires for n, it in settings.admin_tokens.items()}),
    ]
    if settings.tls_certificate and (ends := certificate_ends(settings.tls_certificate)):
        found.append(Expiry("certificate", settings.tls_certificate.name, min(ends)))
    return found


def _last_days(type_: str, days: dict[str, dt.date | None]) -> Iterator[Expiry]:
    for name, day in days.items():
        if day is not None:
            yield Expiry(type_, name, dt.datetime.combine(day + _DAY, dt.time(), dt.UTC))


def certificate_ends(file: Path) -> list[dt.datetime]:
    """Return when the certificates of a PEM file end; nothing of what can't be read."""
    try:
        text = file.read_text(encoding="ascii")
        return [_not_after(ssl.PEM_cert_to_DER_cert(pem)) for pem in _PEM.findall(text)]
    except (OSError, ValueError, IndexError):
        return []


def _not_after(der: bytes) -> dt.datetime:
    """Return the end of a certificate's validity (RFC 5280, section 4.1).

    Python's ssl tells it of a peer's certificate alone, and that's all of X.509 that is needed.
    """
    _, certificate, _ = _element(der)
    _, fields, _ = _element(certificate)
    tag, _, rest = _element(fields)
    # The serial number, the algorithm and the issuer come before; the version may.
    for _ in range(3 if tag == _VERSION else 2):
        _, _, rest = _element(rest)
    tag, validity, _ = _element(rest)
    if tag != _SEQUENCE:
        raise ValueError("no validity")
    _, _, rest = _element(validity)
    tag, moment, _ = _element(rest)
    text = moment.decode("ascii")
    if tag == _UTC_TIME:  # with two digits of the year, of which those up to 49 are after 2000
        text = f"{'20' if text < '5' else '19'}{text}"
    return dt.datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=dt.UTC)


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    tag, length, start = data[0], data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start])
    return tag, data[start : start + length], data[start + length :]
