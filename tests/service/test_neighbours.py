"""No byte tells, once a day is over, which of its reports came together, or in which order.

Every record's bits are random, so that where they lie in the files can be looked for. Files of
PostgreSQL are those of the whole server.
"""

import asyncio
import datetime as dt
import re
import secrets
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from databases import PostgresqlServer
from factories import make_metric, make_report
from hubbub.client import Batch
from hubbub.protocol import Records
from hubbub.storage import Maintenance, MetricVersion, NewBatch, open_store
from programs import forked_collector
from service.posting import post
from unit.collector.exchanges import segments_of

_KEY = MetricVersion("homepage", 1)
_TODAY = dt.date(2026, 3, 14)
_TOMORROW = _TODAY + dt.timedelta(days=1)
_MARK = secrets.token_bytes(6)
"""Begins the bits of each report, so that they are found in one search."""

_BITS = 16
_WIDTH = 2 + _BITS
_NEAR = 4 * _WIDTH


def _new_batches(number: int, reports: int) -> list[list[bytes]]:
    random = _BITS - len(_MARK)
    return [[_MARK + secrets.token_bytes(random) for _ in range(reports)] for _ in range(number)]


async def _append(url: str, batches: Sequence[Sequence[bytes]], day: dt.date = _TODAY) -> None:
    """Store each batch by itself, as in a quiet hour, with upkeep in between."""
    async with open_store(url, create=True) as store:
        await store.declare([make_metric()])
        upkeep = Maintenance(store, 14, None, 1e9)
        for number, batch in enumerate(batches):
            records = Records(_WIDTH, b"".join(bytes(2) + bits for bits in batch))
            await store.append([NewBatch(secrets.token_bytes(16), {_KEY: records})], day)
            if number % 40 == 39:
                await upkeep.run_once(day)


async def _end_day(url: str, day: dt.date = _TOMORROW) -> int:
    async with open_store(url, create=True) as store:
        done = await Maintenance(store, 14, None, 1e9).run_once(day)
        assert done.faults == {}
        return done.mixed


def _places(paths: Sequence[Path], batches: Sequence[Sequence[bytes]]) -> list[tuple[int, int]]:
    """Return where reports lie in all files, end to end, in order; and of which batch each is."""
    content = b"".join(path.read_bytes() for path in paths)
    batch_of = {bits: number for number, batch in enumerate(batches) for bits in batch}
    places = []
    for match in re.finditer(re.escape(_MARK), content):
        number = batch_of.get(content[match.start() : match.start() + _BITS])
        if number is not None:  # not in one piece
            places.append((match.start(), number))
    return places


def _neighbours(places: Sequence[tuple[int, int]]) -> int:
    return sum(one[1] == other[1] and other[0] - one[0] < _NEAR for one, other in pairwise(places))


def _files_of_server(server: PostgresqlServer, folder: str = "") -> list[Path]:
    return sorted(path for path in (server.data / folder).rglob("*") if path.is_file())


def _files_of_sqlite(url: str) -> list[Path]:
    path = Path(url.removeprefix("sqlite:///"))
    return sorted(path.parent.glob(f"{path.name}*"))


def _empty_log(server: PostgresqlServer) -> None:
    server.execute("CHECKPOINT", "SELECT pg_switch_wal()", "CHECKPOINT")


def _check(places: Sequence[tuple[int, int]], reports: int) -> None:
    # One or two are found in two pieces, at the border of a page.
    assert 0.98 * reports <= len(places) <= reports
    assert _neighbours(places) < 30


@pytest.mark.long
@pytest.mark.parametrize("day", [_TODAY, _TODAY - dt.timedelta(days=100)])
def test_files_of_postgresql_show_no_neighbours_once_the_day_is_over(
    postgresql, postgresql_url, day
):
    """Nor does its log, if it isn't recycled; P(false alarm) < 1e-20, as above."""
    batches = _new_batches(200, 3)
    postgresql.stop()
    postgresql.start(wal_recycle="off")
    asyncio.run(_append(postgresql_url, batches, day))
    _empty_log(postgresql)
    assert _neighbours(_places(_files_of_server(postgresql, "base"), batches)) >= 40
    assert asyncio.run(_end_day(postgresql_url, day + dt.timedelta(days=1))) == 600
    _empty_log(postgresql)
    _check(_places(_files_of_server(postgresql), batches), 600)
    postgresql.stop()


def test_imports_and_stores_of_older_collectors_leave_no_neighbours_in_postgresql(
    postgresql, postgresql_url
):
    """Their reports come to a table that all days share; P(false alarm) < 1e-20, as above."""
    batches = _new_batches(200, 3)
    old = _TODAY - dt.timedelta(days=3)

    async def import_all():
        async with open_store(postgresql_url, create=True) as store:
            for batch in batches:
                records = Records(_WIDTH, b"".join(bytes(2) + bits for bits in batch))
                new = NewBatch(secrets.token_bytes(16), {_KEY: records})
                await store.append([new], old, received=_TODAY)

    asyncio.run(import_all())
    assert postgresql.execute("SELECT count(*) FROM segments_late", url=postgresql_url) == "200"
    assert asyncio.run(_end_day(postgresql_url, _TODAY)) == 600
    postgresql.execute("CHECKPOINT")
    _check(_places(_files_of_server(postgresql, "base"), batches), 600)


def test_large_segments_do_not_stay_in_the_order_in_which_they_came(any_store_url):
    """P(false alarm) < 1e-100: a segment of 9 has none of 4,915 of 16,384 reports of another."""
    origins = 9

    async def run() -> list[bytes]:
        async with open_store(any_store_url, create=True) as store:
            for number in range(origins):
                records = number.to_bytes(2, "little") + bytes(_BITS)
                pool = Records(_WIDTH, records * 16_384)
                await store.append([NewBatch(secrets.token_bytes(16), {_KEY: pool})], _TODAY)
            done = await Maintenance(store, 14, None, 1e9).run_once(_TOMORROW)
            assert (done.mixed, done.faults) == (origins * 16_384, {})
            return await segments_of(store, _KEY)

    segments = asyncio.run(run())
    assert len(segments) == origins
    for segment in segments:
        assert set(segment[::_WIDTH]) == set(range(origins))


def test_stored_reports_show_no_neighbours_once_the_next_day_began(
    metrics_file, any_store_url, postgresql
):
    """P(false alarm) < 1e-20: 30 neighbours where 2 are expected."""
    batches = _new_batches(60, 4)
    today = dt.datetime.now(dt.UTC).date()
    options = ["--upkeep-seconds", "0.2"]
    with forked_collector(metrics_file, any_store_url, options) as collector:
        for batch in batches:
            bits = [int.from_bytes(bits, "little") for bits in batch]
            reports = tuple(make_report(cohort=1, bits=each) for each in bits)
            assert post(collector.url, Batch(reports)).status == 201
    asyncio.run(_end_day(any_store_url, today + dt.timedelta(days=1)))
    if any_store_url.startswith("sqlite"):
        files = _files_of_sqlite(any_store_url)
    else:
        postgresql.execute("CHECKPOINT")
        files = _files_of_server(postgresql, "base")
    _check(_places(files, batches), 240)
