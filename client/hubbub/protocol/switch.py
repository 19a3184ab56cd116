"""The switch: a file that turns metrics off, or down to a sample of clients, and nothing else.

docs/protocol, section 12, describes it. The file is JSON, behind one line with a signature if it is
signed, so that any host of files can serve it. Invariant: a rate is below 1 and a metric has the
least rate that is given for it, so no document turns anything on or up.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from hubbub.protocol.checks import is_metric_name
from hubbub.protocol.errors import SwitchError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FORMAT = 1
MOST_BYTES = 65_536
"""Longest file; longer ones are malformed."""
PATH = "/v1/switch"
"""Where a collector serves it."""
LEAST_RATE = 0.001
"""Smallest sample. Below it, of 100,000 clients fewer than 100 are left, the fewest reports that
are published for a part of them (`min_reports`). But it would single out the few that answer."""
CLOCK_SKEW = 86_400.0
"""Seconds by which a file may seem to be from the future: a clock that is set to local time instead
of UTC is wrong by up to 14 hours."""

_DOMAIN = b"hubbub/1/switch\n"
_LINE = re.compile(rb"hubbub-switch-1 ([A-Za-z0-9_-]{86})\n")
_KEY = re.compile(r"hub_(sign|verify)_([A-Za-z0-9_-]{43})")
_ISSUED = re.compile(
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z"
)
_KEY_BYTES = 32
_LARGEST_VERSION = 2**31 - 1
_MEMBERS = frozenset({"hubbub_switch", "application", "issued", "rates"})
_LATEST = 253_402_300_799  # the last second of the year 9999
_SHOWN = 80  # characters of a value in a message


class Rate(NamedTuple):
    """The share of clients that report a metric."""

    metric: str
    version: int | None  # none: all versions
    rate: float  # from 0 (no client) to below 1


class SwitchDocument(NamedTuple):
    """The rates of metrics that are off or sampled."""

    application: str  # the registry's: others don't obey it
    issued: str  # UTC, such as "2026-11-27T09:30:00Z"; a later document has a greater text
    rates: tuple[Rate, ...] = ()

    def rate(self, metric: str, version: int) -> float:
        """Return the share of clients that reports a metric's version; 1 unless it is turned down.

        >>> document = SwitchDocument("b", "2026-11-27T09:30:00Z", (Rate("homepage", 2, 0.1),))
        >>> document.rate("homepage", 1), document.rate("homepage", 2)
        (1.0, 0.1)
        """
        named = (r.rate for r in self.rates if r.metric == metric and r.version in {None, version})
        return min(named, default=1.0)

    def to_json(self) -> bytes:
        """Return the file's body, a line for each rate."""
        rates = [{k: v for k, v in r._asdict().items() if v is not None} for r in self.rates]
        head = {"hubbub_switch": FORMAT, "application": self.application, "issued": self.issued}
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
        listed = ",".join(f"\n    {json.dumps(rate)}" for rate in rates)
        end = "\n  ]" if rates else "]"
        return "\n".join(["{", *lines, f'  "rates": [{listed}{end}', "}", ""]).encode()


def parse_document(body: bytes) -> SwitchDocument:
    """Read a document without a signature's line (SwitchError; docs/protocol, section 12)."""
    if len(body) > MOST_BYTES:
        raise SwitchError(f"switch: {len(body):,} bytes; must be at most {MOST_BYTES:,}")
    try:
        document = json.loads(body.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise SwitchError("switch: must be JSON, in UTF-8") from error
    table = _table(document, "switch", _MEMBERS)
    if not _is_integer(table["hubbub_switch"]) or table["hubbub_switch"] != FORMAT:
        raise _wrong("hubbub_switch", table["hubbub_switch"], f"{FORMAT}")
    if not isinstance(table["application"], str):
        raise _wrong("application", table["application"], "a text")
    issued = table["issued"]
    if not (isinstance(issued, str) and _ISSUED.fullmatch(issued)):
        raise _wrong("issued", issued, "a UTC time such as 2026-11-27T09:30:00Z")
    if not isinstance(table["rates"], list):
        raise _wrong("rates", table["rates"], "a list")
    rates = tuple(_rate(entry, f"rates[{i}]") for i, entry in enumerate(table["rates"]))
    return SwitchDocument(table["application"], issued, rates)


def _rate(entry: object, field: str) -> Rate:
    required = frozenset({"metric", "rate"})
    table = _table(entry, field, required, frozenset({"version"}))
    metric, rate = table["metric"], table["rate"]
    if not (isinstance(metric, str) and is_metric_name(metric)):
        raise _wrong(f"{field}.metric", metric, "a metric's name")
    check_rate(f"{field}.rate", rate)
    if "version" not in table:
        return Rate(metric, None, float(rate))
    version = table["version"]
    if not (_is_integer(version) and 1 <= version <= _LARGEST_VERSION):
        raise _wrong(f"{field}.version", version, f"an integer from 1 to {_LARGEST_VERSION}")
    return Rate(metric, int(version), float(rate))


def check_rate(field: str, rate: object) -> None:
    """Raise SwitchError unless a switch may have this rate."""
    if not _is_number(rate) or not (rate == 0 or LEAST_RATE <= rate < 1):  # type: ignore[operator]
        raise _wrong(field, rate, f"0, or a number from {LEAST_RATE} to below 1")


def _table(
    value: object, field: str, required: frozenset[str], optional: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return an object that has the members it must have, and no others than it may have."""
    if not isinstance(value, dict):
        raise _wrong(field, value, "an object")
    if missing := sorted(required - value.keys()):
        raise SwitchError.about(field, f"{field}: {missing[0]} is missing")
    if unknown := sorted(value.keys() - required - optional):
        raise SwitchError.about(field, f"{field}: unknown member {_shown(unknown[0])}")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return _is_number(value) and value == value // 1  # type: ignore[operator]


def _refuse_constant(name: str) -> object:
    raise ValueError(name)  # NaN and Infinity aren't JSON


def _wrong(field: str, found: object, expected: str) -> SwitchError:
    error = SwitchError(f"{field} = {_shown(found)}: must be {expected}")
    error.field, error.found, error.expected = field, found, expected
    return error


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


class VerifyKey(NamedTuple):
    """The public key that an app carries."""

    public: bytes  # an Ed25519 key, 32 bytes (RFC 8032)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a text such as "hub_verify_..." (raises SwitchError)."""
        return cls(_parse_key("verify", text))

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        return _format_key("verify", self.public)

    def require(self) -> None:
        """Raise SwitchError if `cryptography`, which checks signatures, is missing."""
        _require_cryptography()

    def check(self, signature: bytes, body: bytes) -> None:
        """Raise SwitchError unless the signature is the body's, or if `cryptography` is missing."""
        _require_cryptography()
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, _DOMAIN + body)
        except InvalidSignature as error:
            raise SwitchError(
                "switch: its signature isn't this key's, or it was changed"
            ) from error


class SigningKey:
    """The private key with which files are signed: 32 bytes."""

    def __init__(self, private: bytes) -> None:
        _require_cryptography()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._key: Ed25519PrivateKey = Ed25519PrivateKey.from_private_bytes(private)
        self.public = VerifyKey(self._key.public_key().public_bytes_raw())

    @classmethod
    def generate(cls) -> Self:
        """Draw a key from the operating system's generator."""
        return cls(os.urandom(_KEY_BYTES))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a text such as "hub_sign_..." (raises SwitchError, without the key)."""
        return cls(_parse_key("sign", text))

    def __str__(self) -> str:
        """Return the text that `parse` reads: the secret itself."""
        return _format_key("sign", self._key.private_bytes_raw())

    def sign(self, body: bytes) -> bytes:
        """Return the signed file: the line with the signature, then the body."""
        signature = base64.urlsafe_b64encode(self._key.sign(_DOMAIN + body)).rstrip(b"=")
        return b"hubbub-switch-1 " + signature + b"\n" + body


class SwitchFile(NamedTuple):
    """A file's parts."""

    document: SwitchDocument
    body: bytes  # what is signed: all of the file, or what follows the signature's line
    signature: bytes | None  # 64 bytes; None if it isn't signed

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read a file; its signature isn't looked at (raises SwitchError)."""
        if len(data) > MOST_BYTES:
            raise SwitchError(f"switch: must be at most {MOST_BYTES:,} bytes")
        line = _LINE.match(data)
        if line is None:
            return cls(parse_document(data), data, None)
        body = data[line.end() :]
        return cls(parse_document(body), body, _decoded(line[1].decode()))

    def check(self, application: str, key: VerifyKey | None, now: float) -> None:
        """Raise SwitchError unless an application may obey it at a moment.

        If there is a `key`, it must have signed the file. A file from the future would outlast all
        that are issued until then.
        """
        if self.document.application != application:
            raise _wrong("application", self.document.application, _shown(application))
        seconds = min((now + CLOCK_SKEW) // 1, _LATEST)
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)  # noqa: DTZ001
        latest = f"{moment.isoformat()}Z"
        if self.document.issued > latest:
            expected = f"at most {latest}, a day from now by this machine's clock"
            raise _wrong("issued", self.document.issued, expected)
        if key is None:
            return
        if self.signature is None:
            raise SwitchError("switch: isn't signed; must be, as this app has a key")
        key.check(self.signature, self.body)


def _require_cryptography() -> None:
    try:
        import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: F401
    except ImportError as error:
        raise SwitchError(
            "a signed switch needs the package cryptography: pip install 'hubbub[switch]'"
        ) from error


def _parse_key(purpose: str, text: str) -> bytes:
    found = _KEY.fullmatch(text.strip())
    if not found or found[1] != purpose:
        raise SwitchError(f"key: must be hub_{purpose}_ and 43 letters, digits, - and _")
    key = _decoded(found[2])
    if _format_key(purpose, key) != text.strip():
        raise SwitchError("key: its last letter has spare bits set")
    return key


def _format_key(purpose: str, key: bytes) -> str:
    return f"hub_{purpose}_{base64.urlsafe_b64encode(key).decode().rstrip('=')}"


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
