"""Section 8 of docs/protocol: the compact form of a batch, and what isn't one."""

from __future__ import annotations

import struct
from typing import NamedTuple


class Report(NamedTuple):
    """One noisy report."""

    metric: str
    version: int
    cohort: int
    bits: bytes
    slice: str = ""

    @property
    def name(self) -> str:
        return self.metric + (f";{self.slice}" if self.slice else "")


def encode(batch_id: str, reports: list[Report]) -> tuple[bytes, list[int]]:
    names = sorted({(report.name, report.version) for report in reports})
    body = b"\x01" + bytes.fromhex(batch_id) + struct.pack("<H", len(names))
    order: list[int] = []
    for name, version in names:
        members = [i for i, r in enumerate(reports) if (r.name, r.version) == (name, version)]
        members.sort(key=lambda i: record(reports[i]))
        order += members
        width = len(reports[members[0]].bits)
        body += struct.pack("<B", len(name)) + name.encode("ascii")
        body += struct.pack("<IHH", version, width, len(members))
        body += b"".join(record(reports[i]) for i in members)
    return body, order


def record(report: Report) -> bytes:
    return struct.pack("<H", report.cohort) + report.bits


def decode(body: bytes) -> tuple[str, list[Report]] | None:
    """Return a batch's id and reports, or None if the body isn't what `encode` makes of them."""
    try:
        batch_id, sections = struct.unpack_from("<16sH", body, 1)
        at = 19
        reports: list[Report] = []
        for _ in range(sections):
            name = body[at + 1 : at + 1 + body[at]]
            at += 1 + body[at]
            version, width, count = struct.unpack_from("<IHH", body, at)
            at += 8
            for _ in range(count):
                cohort, bits = struct.unpack_from(f"<H{width}s", body, at)
                at += 2 + width
                metric, _, slice_ = name.decode("ascii").partition(";")
                reports.append(Report(metric, version, cohort, bits, slice_))
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    sizes = all(1 <= len(r.metric) <= 64 and 1 <= len(r.bits) <= 512 for r in reports)
    if not reports or not sizes or encode(batch_id.hex(), reports)[0] != body:
        return None
    return batch_id.hex(), reports
