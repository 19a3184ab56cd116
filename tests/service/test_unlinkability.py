"""What the collector keeps and says can't tell who sent a report, when, or with which others."""

import contextlib
import gzip
import re
import secrets
import shutil
import socket
import sqlite3
import struct
import time
from pathlib import Path
from typing import Literal

import pytest

from factories import make_report
from hubbub.client import Batch, batch_to_json
from programs import forked_collector
from service.posting import connect, make_batch, post, records_of, send, stored_records

_ADDRESS = "127.45.67.89"
_MARK = "Zaphod-7f3a"
_HEADERS = {
    "User-Agent": f"{_MARK}-agent/4.2",
    "Cookie": f"session={_MARK}-cookie; bad,name={_MARK}",
    "Referer": f"https://{_MARK}-referer.example/",
    "Authorization": f"Bearer {_MARK}-token",
    "X-Forwarded-For": "203.0.113.77",
    "X-Request-Id": f"{_MARK}-request",
    "Accept-Language": f"{_MARK}-language",
}
_TELLTALES = (_ADDRESS, _MARK, "203.0.113.77")
_BYTE_ORDERS: tuple[Literal["big", "little"], ...] = ("big", "little")
_TIMES = (
    rb"\d{4}-\d\d-\d\d[T ]\d\d",  # a date that goes on with an hour
    rb"\d\d:\d\d:\d\d",
    rb"\d\d/[A-Z][a-z][a-z]/\d{4}",
)


def test_nothing_stored_or_logged_names_a_client_or_a_time(metrics_file, database, tmp_path, capfd):
    """P(false alarm) < 1e-8: three times one of 250 binary numbers, in 20 kB of random bytes.

    What is kept with batches or reports is there twelve times at least, so three times are a leak.
    """
    begun = int(time.time())
    batches = [make_batch(9) for _ in range(12)]
    with forked_collector(metrics_file, database) as collector:
        for batch in batches:
            assert post(collector.url, batch, headers=_HEADERS, source=_ADDRESS).status == 201
            assert post(collector.url, batch, headers=_HEADERS, source=_ADDRESS).status == 200
            _provoke_errors(collector.url)
        kept = _files(database, tmp_path / "copy")
        collector.stop()
        said = collector.process.stdout.read() if collector.process.stdout else ""
    said += capfd.readouterr().err
    afterwards = _files(database, tmp_path / "afterwards")
    ended = int(time.time())

    assert len(stored_records(database)) == 12 * 9
    seconds = [str(second).encode() for second in range(begun, ended + 1)]
    for content in (kept, afterwards, said.encode()):
        for telltale in _TELLTALES:
            assert telltale.lower().encode() not in content.lower()
        for batch in batches:
            assert batch.batch_id.encode() not in content
        for pattern in _TIMES:
            assert not re.search(pattern, content)
        assert not any(second in content for second in seconds)
        assert sum(map(content.count, _in_binary(begun, ended))) < 3
    # The days, which may be kept, show that the search would have found what it looked for.
    assert re.search(rb"\d{4}-\d\d-\d\d", kept)


def test_errors_of_the_store_are_logged_without_the_batch(metrics_file, database, capfd):
    batch = make_batch()
    with forked_collector(metrics_file, database) as collector:
        with contextlib.closing(sqlite3.connect(database)) as connection:
            connection.execute("ALTER TABLE segments RENAME TO elsewhere")
        answer = post(collector.url, batch, headers=_HEADERS, source=_ADDRESS)
        assert answer.status == 503
        collector.stop()
    said = capfd.readouterr().err
    assert "could not store 1 batches" in said
    for telltale in (*_TELLTALES, batch.batch_id, repr(bytes.fromhex(batch.batch_id))[2:-1]):
        assert telltale not in said
        assert telltale not in answer.body.decode()


def test_no_column_links_reports_to_a_batch(collector, database):
    assert post(collector.url, make_batch()).status == 201
    with contextlib.closing(sqlite3.connect(database)) as connection:
        columns = {table: _columns(connection, table) for table in _tables(connection)}
        assert columns.pop("hubbub_schema") == ["version"]
        assert columns == {
            "segments": ["segment_id", "metric", "version", "slice", "day", "reports", "records"],
            **{table: ["batch_id"] for table in _id_tables(connection)},
            "parameters": ["metric", "version", "parameters", "dimensions"],
            "counts": ["metric", "version", "slice", "day", "reports", "counts"],
            "upkeep_day": ["day"],
        }
        for table in columns:
            assert connection.execute(f"PRAGMA foreign_key_list({table})").fetchall() == []


def test_batch_ids_are_found_nowhere_but_in_their_own_table(collector, database):
    batches = [make_batch() for _ in range(20)]
    for batch in batches:
        assert post(collector.url, batch).status == 201
    ids = {bytes.fromhex(batch.batch_id) for batch in batches}
    with contextlib.closing(sqlite3.connect(database)) as connection:
        id_tables = _id_tables(connection)
        assert set(_stored_ids(connection)) == ids
        for table in _tables(connection) - id_tables:
            for row in connection.execute(f"SELECT * FROM {table}"):  # noqa: S608
                for value in map(_as_bytes, row):
                    assert not any(i in value or i.hex().encode() in value for i in ids)


def test_reports_of_a_batch_are_stored_in_another_order(collector, database):
    """P(false alarm) = 1/256!"""
    batch = Batch(tuple(make_report(cohort=i % 64, bits=i) for i in range(256)))
    sent = [r.cohort.to_bytes(2, "little") + r.bits for r in batch.reports]
    assert post(collector.url, batch).status == 201
    stored = stored_records(database)
    assert stored != sent
    assert sorted(stored) == records_of(batch)


def test_segments_and_batches_do_not_show_their_order_of_arrival(collector, database):
    """P(false alarm) = 4/24! for one of the two tables in order, or in reverse."""
    batches = [Batch((make_report(cohort=i),)) for i in range(24)]
    for batch in batches:
        assert post(collector.url, batch).status == 201
    with contextlib.closing(sqlite3.connect(database)) as connection:
        segments = connection.execute("SELECT records FROM segments ORDER BY rowid").fetchall()
        records = b"".join([row[0] for row in segments])
        cohorts = [records[i] for i in range(0, len(records), 18)]
        ids = [batch_id.hex() for batch_id in _stored_ids(connection)]
        for table in _id_tables(connection):
            with pytest.raises(sqlite3.OperationalError, match="no such column: rowid"):
                connection.execute(f"SELECT rowid FROM {table}")  # noqa: S608
    arrival = [batch.batch_id for batch in batches]
    assert sorted(cohorts) == list(range(24))
    assert cohorts not in ([*range(24)], [*range(23, -1, -1)])
    assert sorted(ids) == sorted(arrival)
    assert ids not in (arrival, arrival[::-1])


def test_after_upkeep_no_byte_links_reports_to_batches(metrics_file, database):
    """In a quiet hour every batch has a segment of its own, until the collector has merged them.

    P(false alarm) < 1e-20: records in the order of their arrival, or found where they aren't.
    """
    batches = [
        Batch(tuple(make_report(cohort=i, bits=secrets.randbits(128)) for _ in range(3)))
        for i in range(24)
    ]
    with forked_collector(metrics_file, database) as collector:
        for batch in batches:
            assert post(collector.url, batch).status == 201
        before = _everything(database)
        collector.stop()
    after = _everything(database)
    left = {path.name for path in database.parent.glob(f"{database.name}*")}
    assert left == {database.name, f"{database.name}-lock"}
    for batch in batches:
        assert before.count(bytes.fromhex(batch.batch_id)) >= 1
        assert after.count(bytes.fromhex(batch.batch_id)) == 1
        assert [after.count(report.bits) for report in batch.reports] == [1, 1, 1]
    with contextlib.closing(sqlite3.connect(database)) as connection:
        ((records,),) = connection.execute("SELECT records FROM segments").fetchall()
    cohorts = [records[i] for i in range(0, len(records), 18)]
    assert sorted(cohorts) == sorted(3 * [*range(24)])
    assert cohorts not in (sorted(cohorts), sorted(cohorts)[::-1])


def _in_binary(begun: int, ended: int) -> list[bytes]:
    seconds = [
        second.to_bytes(4, order) for second in range(begun, ended + 1) for order in _BYTE_ORDERS
    ]
    return [socket.inet_aton(_ADDRESS), *seconds]


def _everything(database: Path) -> bytes:
    paths = sorted(database.parent.glob(f"{database.name}*"))
    return b"".join(path.read_bytes() for path in paths)


def _provoke_errors(url: str) -> None:
    """Make every kind of trouble that a stranger can make, leaving marks everywhere."""
    mark = _MARK.encode()
    wrong = batch_to_json(make_batch()).replace(b"homepage", mark)
    headers = {**_HEADERS, "Content-Encoding": "gzip"}
    for body, others in (
        (wrong, _HEADERS),
        (mark, _HEADERS),
        (mark, headers),
        (gzip.compress(mark * 99_999), headers),
    ):
        assert post(url, body, headers=others, source=_ADDRESS).status in {400, 413, 422}
    assert post(url, mark, _MARK, _HEADERS, source=_ADDRESS).status == 415
    assert send(url, "GET", f"/{_MARK}?{_MARK}", None, _HEADERS, source=_ADDRESS).status == 404
    assert send(url, "PUT", f"/v1/reports?{_MARK}", None, _HEADERS, source=_ADDRESS).status == 405
    for garbage in (
        mark + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00" + mark + secrets.token_bytes(64),
        b"GET /" + mark + b" HTTP/9.9\r\n\r\n",
        b"GET /" + mark * 2000 + b" HTTP/1.1\r\n\r\n",
        b"POST /v1/reports HTTP/1.1\r\nHost: " + mark + b"\r\nContent-Length: " + mark,
        b"POST /v1/reports HTTP/1.1\r\nContent-Length: " + mark + b"\r\n\r\n",
        b"POST /v1/reports HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + mark + b"\r\n\r\n",
        b"POST /v1/reports HTTP/1.1\r\nX: " + mark * 2000 + b"\r\n\r\n",
        b"POST /v1/reports HTTP/1.1\r\nExpect: " + mark + b"\r\nContent-Length: 1\r\n\r\nx",
        b"GET /livez HTTP/1.1\r\nUpgrade: " + mark + b"\r\nConnection: Upgrade\r\n\r\n" + mark,
    ):
        _send_and_end(url, garbage, reset=False)
        _send_and_end(url, garbage, reset=True)
    half = b"POST /v1/reports HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 999\r\n"
    half += b"User-Agent: " + mark + b"\r\n\r\n" + wrong[:99]
    _send_and_end(url, half, reset=False)
    _send_and_end(url, half, reset=True)


def _send_and_end(url: str, data: bytes, *, reset: bool) -> None:
    """Send bytes, then break the connection or end it and read whatever is answered."""
    with connect(url, _ADDRESS) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(data)
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65_536):
            pass


def _files(database: Path, copies: Path) -> bytes:
    copies.mkdir()
    for path in database.parent.glob(f"{database.name}*"):
        shutil.copy(path, copies)
    content = b"".join(path.read_bytes() for path in copies.iterdir())
    assert content
    return content


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {
        row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type='table'")
    }


def _id_tables(connection: sqlite3.Connection) -> set[str]:
    tables = {table for table in _tables(connection) if table.startswith("batch_ids_")}
    assert tables
    return tables


def _stored_ids(connection: sqlite3.Connection) -> list[bytes]:
    queries = [f"SELECT batch_id FROM {t}" for t in sorted(_id_tables(connection))]  # noqa: S608
    return [row[0] for query in queries for row in connection.execute(query)]


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_xinfo({table})")]


def _as_bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
