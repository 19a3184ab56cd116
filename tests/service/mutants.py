"""Requests that are wrong in thousands of ways, each made again from its seed and number.

A mutant is a valid POST /v1/reports of which the body, the headers or the framing was damaged; some
are left whole, and some damage does no harm. What a collector that takes one should have stored is
decoded here by other means than the collector's.
"""

import base64
import gzip
import itertools
import json
import random
import zlib
from dataclasses import dataclass
from typing import Any

from evaluation.reference import compact as reference
from factories import make_metric, make_report
from hubbub.client import Batch
from service.posting import COMPACT, FORMS

METRIC = make_metric()
_TYPES = [*FORMS, "text/plain", "", "application/", "\xff/\xfe", "application/json;" * 50]
_ENCODINGS = ["gzip", "deflate", "br", "zstd", "identity", "gzip, gzip", "", "x" * 300, "GZIP"]
_TOKENS: list[bytes] = [
    b"null", b"true", b"-1", b"1e400", b"NaN", b"9" * 400, b"0.5", b'"', b"{", b"[" * 5000, b"\\",
    b'"\\ud800"', b'"\\u0000"', b"\xff\xfe", b"\xc0\x80", b"\xdb\xff\xff\xff\xff", b"\xdd\xff\xff",
    b"\xc7\xff\x05", b"\xde\x80\x00", b"\x91" * 5000, b"\x00", b",", b"18446744073709551616",
    b"\x01\x00", b"\xff\xff",
]  # fmt: skip
_NUMBERS = ["", "-1", "+5", "0x10", "1e3", "1 1", "9" * 30, "5, 5", "5\r\nContent-Length: 6"]
_SIZES = [b"", b"\r\n", b"-1\r\n", b"z\r\n", b"0\r\n", b"1\r\n", b"f" * 20 + b"\r\n", b"5;x=y\n"]
_PATHS = ["/", "/v1/reports/", "/v1/reports?x=" + "y" * 500, "/../v1", "*", "//", "/%00", "/é"]
_METHODS = ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "post", "BREW", "P ST"]
_LINES = [
    "Expect: nonsense", "Authorization: Bearer ", "Authorization: \xff", "Host: other", "Foo: " +
    "x" * 9000, "Upgrade: websocket\r\nConnection: Upgrade", "Cookie: a=b", "X: y\r\n z", ": empty",
    "No colon", "A\x00: b", "Content-Type: a\r\nContent-Type: b", "Transfer-Encoding: identity",
    "Transfer-Encoding: chunked, chunked", "Transfer-Encoding: xchunked", "Connection: close",
]  # fmt: skip

Stored = tuple[str, int, bytes]
"""A report's metric, version and record."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A request."""

    raw: bytes  # all of it, as it goes over the wire
    content_type: str  # what its headers say of the body
    encoding: str
    body: bytes  # without the framing
    is_framed: bool  # whether its end is where the headers say, so that another request may follow

    def contents(self) -> tuple[str, list[Stored]]:
        """Return the batch id, and what is stored if the mutant is accepted."""
        body = self.body
        if self.encoding.lower() == "gzip":
            body = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(body)
        if self.content_type.startswith(COMPACT):
            return _compact_contents(body)
        document = json.loads(body)
        return document["batch_id"], [_record(report) for report in document["reports"]]


def _compact_contents(body: bytes) -> tuple[str, list[Stored]]:
    decoded = reference.decode(body)
    assert decoded is not None
    batch_id, reports = decoded
    return batch_id, [(*report[:2], reference.record(report)) for report in reports]


def _record(report: dict[str, Any]) -> Stored:
    bits = base64.b64decode(report["bits"], validate=True)
    cohort: int = report["cohort"]
    return report["metric"], report["version"], cohort.to_bytes(2, "little") + bits


def make_mutant(seed: int, number: int) -> Mutant:
    """Return a mutant, always the same one for the same seed and number."""
    chance = random.Random(f"{seed} {number}")  # noqa: S311
    content_type = chance.choice(list(FORMS))
    body = _valid_body(chance, number, content_type)
    encoding = chance.choice(["", "", "gzip"])
    kinds = [_whole, _damaged, _damaged, _compressed_damaged, _mislabelled, _misframed]
    kind = chance.choice(kinds)
    return kind(chance, content_type, encoding, body)


def _valid_body(chance: random.Random, number: int, content_type: str) -> bytes:
    first = 8 * number
    reports = tuple(
        make_report(METRIC, cohort=chance.randrange(64), bits=first + i)
        for i in range(chance.randint(1, 4))
    )
    batch = Batch(reports, chance.randbytes(16).hex())
    return FORMS[content_type](batch)


def _whole(chance: random.Random, content_type: str, encoding: str, body: bytes) -> Mutant:
    return _framed(chance, content_type, encoding, _packed(body, encoding))


def _damaged(chance: random.Random, content_type: str, encoding: str, body: bytes) -> Mutant:
    return _framed(chance, content_type, encoding, _packed(_damage(chance, body), encoding))


def _compressed_damaged(
    chance: random.Random, content_type: str, encoding: str, body: bytes
) -> Mutant:
    return _framed(chance, content_type, encoding, _damage(chance, _packed(body, encoding)))


def _mislabelled(chance: random.Random, content_type: str, encoding: str, body: bytes) -> Mutant:
    packed = _packed(body, encoding)
    if chance.random() < 0.5:
        return _framed(chance, chance.choice(_TYPES), encoding, packed)
    return _framed(chance, content_type, chance.choice(_ENCODINGS), packed)


def _misframed(chance: random.Random, content_type: str, encoding: str, body: bytes) -> Mutant:
    """Damage whatever tells the server where the request ends, and what it is."""
    body = _packed(body, encoding)
    head = _head(content_type, encoding)
    length = f"Content-Length: {len(body)}"
    wrong = f"Content-Length: {chance.choice([0, len(body) - 1, len(body) + 1, 2 * len(body)])}"
    # What the chunks hold stays whole, or the records of a lucky one could not be foretold.
    chunks = _chunked(chance, body, chance.choice(_SIZES))
    other_version = head.replace("1.1", chance.choice(["1.0", "2.0", "1.11", "x"]), 1)
    raw = chance.choice(
        [
            _request(head, wrong, body),
            _request(head, f"Content-Length: {chance.choice(_NUMBERS)}", body),
            _request(head, "Transfer-Encoding: chunked", chunks),
            _request(head, f"Transfer-Encoding: chunked\r\n{length}", body),
            _request(head, f"{chance.choice(_LINES)}\r\n{length}", body),
            _request(head.replace("/v1/reports", chance.choice(_PATHS), 1), length, body),
            _request(head.replace("POST", chance.choice(_METHODS), 1), length, body),
            _request(other_version, length, body),
            _damage(chance, f"{head}{length}\r\n\r\n".encode("latin-1")) + body,
            chance.randbytes(chance.randint(1, 2000)),
            b"",
        ]
    )
    return Mutant(raw, content_type, encoding, body, is_framed=False)


def _framed(chance: random.Random, content_type: str, encoding: str, body: bytes) -> Mutant:
    head = _head(content_type, encoding)
    if chance.random() < 0.2:
        raw = _request(head, "Transfer-Encoding: chunked", _chunked(chance, body))
    else:
        raw = _request(head, f"Content-Length: {len(body)}", body)
    return Mutant(raw, content_type, encoding, body, is_framed=True)


def _head(content_type: str, encoding: str) -> str:
    lines = ["POST /v1/reports HTTP/1.1", "Host: collector", f"Content-Type: {content_type}"]
    lines += [f"Content-Encoding: {encoding}"] if encoding else []
    return "".join(f"{line}\r\n" for line in lines)


def _request(head: str, framing: str, body: bytes) -> bytes:
    return f"{head}{framing}\r\n\r\n".encode("utf-8", "surrogateescape") + body


def _chunked(chance: random.Random, body: bytes, wrong_size: bytes | None = None) -> bytes:
    """Cut a body into chunks; one of them may have a line of its own that tells its size."""
    chunks = []
    while body:
        size = chance.randint(1, 200)
        chunks.append([b"%x\r\n" % len(body[:size]), body[:size], b"\r\n"])
        body = body[size:]
    chunks.append([b"0\r\n", b"", b"\r\n"])
    if wrong_size is not None:
        chance.choice(chunks)[0] = wrong_size
    return b"".join(itertools.chain.from_iterable(chunks))


def _packed(body: bytes, encoding: str) -> bytes:
    return _gzip(body) if encoding == "gzip" else body


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)


def _damage(chance: random.Random, data: bytes) -> bytes:
    """Change bytes here and there, as a bad cable, a bad programmer or a bad person might."""
    damaged = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        at = chance.randrange(len(damaged) + 1)
        length = chance.choice([1, 1, 4, 30])
        match chance.randrange(7):
            case 0:
                damaged[at : at + 1] = chance.randbytes(1)
            case 1:
                del damaged[at : at + length]
            case 2:
                damaged[at:at] = chance.choice(_TOKENS)
            case 3:
                damaged[at : at + length] = chance.choice(_TOKENS)
            case 4:
                damaged[at:at] = damaged[at : at + length] * chance.choice([1, 50])
            case 5:
                del damaged[at:]
            case 6 if at < len(damaged):
                damaged[at] ^= 1 << chance.randrange(8)
    return bytes(damaged)
