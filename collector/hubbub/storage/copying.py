"""Ids and reports as PostgreSQL's COPY takes them, in its binary format.

A server writes the parameters of statements into its log as soon as somebody looks for slow ones
(`log_min_duration_statement`), each with its time, and so do extensions; what COPY reads is written
to a table and nowhere else. Ids are looked for among others before they are stored, so they are
copied into a temporary table, which the server neither logs nor keeps. Invariant: no batch id and
no record is ever the parameter of a statement, or part of its text.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from hubbub.storage.ids import ID_BYTES
from hubbub.storage.interfaces import Row

ARRIVED = "hubbub_arrived"
"""The temporary table: one row, with the ids of a transaction in the order in which it has them."""

MAKE_ARRIVED = f"CREATE TEMPORARY TABLE IF NOT EXISTS {ARRIVED} (ids uuid[])"
COPY_IDS = f"COPY {ARRIVED} FROM STDIN (FORMAT binary)"

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_EPOCH = dt.date(2000, 1, 1)
_UUID = 2950
_LENGTH = struct.Struct(">i")
_ARRAY = struct.Struct(">iiiii")

_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    sa.BigInteger: struct.Struct(">q").pack,
    sa.Integer: _LENGTH.pack,
    sa.Date: lambda day: _LENGTH.pack((day - _EPOCH).days),
    sa.Text: str.encode,
    sa.LargeBinary: bytes,
}


def copied_ids(ids: Sequence[bytes]) -> bytes:
    """Return what `COPY_IDS` reads."""
    elements = [_LENGTH.pack(ID_BYTES) + each for each in ids]
    return _stream([[_ARRAY.pack(1, 0, _UUID, len(ids), 1) + b"".join(elements)]])


def copy_statement(table: sa.Table) -> str:
    """Return what stores rows in a table of segments, or the like."""
    return f"COPY {table.name} ({', '.join(table.columns.keys())}) FROM STDIN (FORMAT binary)"


def copied_rows(table: sa.Table, rows: Iterable[Row]) -> bytes:
    """Return what `copy_statement` reads."""
    encoders = [(column.name, _ENCODERS[type(column.type)]) for column in table.columns]
    return _stream([[encode(row[name]) for name, encode in encoders] for row in rows])


def _stream(rows: Iterable[Sequence[bytes]]) -> bytes:
    parts = [_HEADER]
    for row in rows:
        parts.append(struct.pack(">h", len(row)))
        for field in row:
            parts += (_LENGTH.pack(len(field)), field)
    parts.append(_TRAILER)
    return b"".join(parts)
