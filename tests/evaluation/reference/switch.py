"""Section 12 of docs/protocol: files of a switch, what clients make of them, and samples.

It shares no code with the client: what each file means is written down beside it.
"""

from __future__ import annotations

import base64
import json
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from evaluation.reference import protocol
from evaluation.reference.schedule import eight_bytes

_APPLICATION = "com.example.browser"
_PRIVATE = protocol.shake(b"switch", 32)
_OTHER = protocol.shake(b"another switch", 32)
_NOON, _SECONDS = "2026-11-27T12:00:00Z", 1_795_780_800
_FAR = "9999-12-31T23:59:59Z"
_RATES = [{"metric": "homepage", "rate": 0}]
_OFF = {"homepage": {1: 0.0, 2: 0.0}}


class _Case(NamedTuple):
    name: str
    file: bytes
    rates: dict[str, dict[int, float]] | None = None
    """Of some versions of some metrics; None: the file is ignored."""
    signed: bool = False
    """Whether the client has a key."""
    spaces: int = 0
    """What follows the file."""


def _text(**members: object) -> str:
    document = {
        "hubbub_switch": 1, "application": _APPLICATION, "issued": _NOON, "rates": _RATES,
    }  # fmt: skip
    document |= members
    return json.dumps({name: value for name, value in document.items() if value is not ...})


def _body(**members: object) -> bytes:
    return _text(**members).encode()


def _raw(rate: str) -> bytes:
    return _rates(rate="?").replace(b'"?"', rate.encode())


def _rates(**entry: object) -> bytes:
    return _body(rates=[{"metric": "homepage", "rate": 0.5} | entry])


def _signed(body: bytes, private: bytes = _PRIVATE, domain: bytes = b"hubbub/1/switch\n") -> bytes:
    signature = Ed25519PrivateKey.from_private_bytes(private).sign(domain + body)
    return _line(signature) + body


def _line(signature: bytes) -> bytes:
    return b"hubbub-switch-1 " + base64.urlsafe_b64encode(signature).rstrip(b"=") + b"\n"


def _key(private: bytes) -> str:
    public = Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
    return "hub_verify_" + base64.urlsafe_b64encode(public).decode().rstrip("=")


_CASES = (
    _Case("a metric is off", _body(), _OFF),
    _Case("nothing is off", _body(rates=[]), {"homepage": {1: 1.0}}),
    _Case("white space", json.dumps(json.loads(_text()), indent=2).encode() + b"\r\n", _OFF),
    _Case("a sample", _rates(), {"homepage": {1: 0.5}, "theme": {1: 1.0}}),
    _Case("one version", _rates(version=2, rate=0.25), {"homepage": {1: 1.0, 2: 0.25}}),
    _Case("a version as 2.0", _rates(version=2.0), {"homepage": {1: 1.0, 2: 0.5}}),
    _Case(
        "the least rate",
        _body(
            rates=[
                {"metric": "homepage", "version": 2, "rate": 0.75},
                {"metric": "homepage", "rate": 0.5},
                {"metric": "homepage", "rate": 0.625},
                {"metric": "homepage", "version": 3, "rate": 0},
            ]
        ),
        {"homepage": {1: 0.5, 2: 0.5, 3: 0.0}},
    ),
    _Case("the last of two members", _text().replace("{", '{"rates": 7, ', 1).encode(), _OFF),
    _Case("escapes", _text().replace("homepage", "\\u0068omepage").encode(), _OFF),
    _Case("a rate of minus zero", _raw("-0.0"), {"homepage": {1: 0.0}}),
    _Case("the least rate of a sample", _raw("0.001"), {"homepage": {1: 0.001}}),
    _Case("a rate below that", _raw("0.00099999999999999")),
    _Case("a tiny rate", _raw("5e-324")),
    _Case("a rate too small for a double", _raw("1e-400"), {"homepage": {1: 0.0}}),
    _Case("the largest rate", _raw("0.9999999999999999"), {"homepage": {1: 1 - 2**-53}}),
    _Case("a signature without a key", _signed(_body()), _OFF),
    _Case("a signature", _signed(_body()), _OFF, signed=True),
    _Case("no signature", _body(), None, signed=True),
    _Case("another key's signature", _signed(_body(), _OTHER), None, signed=True),
    _Case("another purpose", _signed(_body(), domain=b""), None, signed=True),
    _Case("a changed body", _signed(_body()) + b" ", None, signed=True),
    _Case("a signature of zeros", _line(bytes(64)) + _body(), None, signed=True),
    _Case("a short signature", _line(bytes(63)) + _body()),
    _Case("two signatures", _signed(_signed(_body())), None, signed=True),
    _Case("a signature's line with a return", _signed(_body()).replace(b"\n", b"\r\n", 1)),
    _Case("nothing", b""),
    _Case("not JSON", b"off"),
    _Case("cut off", _body()[:-1]),
    _Case("a list", b"[]"),
    _Case("a byte order mark", b"\xef\xbb\xbf" + _body()),
    _Case("UTF-16", _text().encode("utf-16")),
    _Case("not UTF-8", _body().replace(b"homepage", b"\xff")),
    _Case("too long", _body(), spaces=65_537 - len(_body())),
    _Case("as long as may be", _body(), _OFF, spaces=65_536 - len(_body())),
    _Case("another format", _body(hubbub_switch=2)),
    _Case("a format that is a text", _body(hubbub_switch="1")),
    _Case("a format that is true", _body(hubbub_switch=True)),
    _Case("another application", _body(application="org.example.other")),
    _Case("no application", _body(application=...)),
    _Case("no rates", _body(rates=...)),
    _Case("an unknown member", _body(on=["homepage"])),
    _Case("rates that are an object", _body(rates={})),
    _Case("a rate that is a text", _body(rates=["homepage"])),
    _Case("an unknown member of a rate", _rates(epsilon=9)),
    _Case("a rate of 1", _rates(rate=1)),
    _Case("a rate that is rounded to 1", _raw("0.99999999999999999")),
    _Case("a rate above 1", _rates(rate=1.5)),
    _Case("a rate below 0", _rates(rate=-0.5)),
    _Case("a rate that is false", _rates(rate=False)),
    _Case("a rate that is a text", _rates(rate="0.5")),
    _Case("a rate that is null", _rates(rate=None)),
    _Case("a rate that is NaN", _raw("NaN")),
    _Case("a rate that is infinite", _raw("1e400")),
    _Case("a name in upper case", _rates(metric="Homepage")),
    _Case("a name with a line's end", _rates(metric="homepage\n")),
    _Case("a name that is a number", _rates(metric=7)),
    _Case("version 0", _rates(version=0)),
    _Case("version 1.5", _rates(version=1.5)),
    _Case("version 2**31", _rates(version=2**31)),
    _Case("a version that is null", _rates(version=None)),
    _Case("a day for a time", _body(issued="2026-11-27")),
    _Case("a time without Z", _body(issued="2026-11-27T12:00:00")),
    _Case("month 13", _body(issued="2026-13-27T12:00:00Z")),
    _Case("hour 24", _body(issued="2026-11-27T24:00:00Z")),
    _Case("a day from the future", _body(issued="2026-11-28T12:00:00Z"), _OFF),
    _Case("a second more than a day from the future", _body(issued="2026-11-28T12:00:01Z")),
    _Case("a signature for the year 9999", _signed(_body(issued=_FAR)), signed=True),
    _Case("a time with a line's end", _body(issued=_NOON + "\n")),
    _Case("a time in other digits", _body(issued=_NOON.replace("2", "\u0662"))),
)


def switch() -> list[dict[str, object]]:
    """Give files, the key that a client has, and which share of clients reports what."""
    return [
        {
            "name": case.name,
            "application": _APPLICATION,
            "key": _key(_PRIVATE) if case.signed else None,
            "now": _SECONDS,
            "file": case.file.hex(),
            "spaces": case.spaces,
            "rates": case.rates
            and [[m, v, rate] for m, rates in case.rates.items() for v, rate in rates.items()],
        }
        for case in _CASES
    ]


def samples() -> list[dict[str, object]]:
    """Give each client's number for some metrics, as integers below 2**53."""
    return [
        {
            "application": application,
            "metric": metric,
            "secret": secret.hex(),
            "period": period,
            "number": int.from_bytes(
                protocol.shake(_message(application, metric, secret, period), 7), "little"
            )
            // 8,
        }
        for application in (_APPLICATION, "Zürich")
        for metric in ("homepage", "theme")
        for secret in (bytes(32), bytes(range(32)))
        for period in (None, 0, 2811, -1)
    ]


def _message(application: str, metric: str, secret: bytes, period: int | None) -> bytes:
    names = (application.encode(), metric.encode())
    moment = () if period is None else (eight_bytes(period),)
    return protocol.message(b"hubbub/1/sample", secret, *names, *moment)
