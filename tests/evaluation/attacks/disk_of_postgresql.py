"""Read from a PostgreSQL server in which order batches came, and what came together.

With the eyes of who has its disk: all files, rows by their places and by the transactions that they
are marked with, what ANALYZE sampled, a dump, an export, and the server's text log, which tells of
every statement here. The write-ahead log isn't recycled, as docs/do/operate.md asks for
(docs/understand/operator.md).
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

from databases import PostgresqlServer, running_postgresql
from evaluation.attacks.arrival import (
    MOST_NEIGHBOURS,
    Arrived,
    export,
    most_neighbours,
    neighbours,
    order_by_chance,
    order_kept,
)
from evaluation.attacks.outcome import Outcome

_TALKATIVE = {"wal_recycle": "off", "log_min_duration_statement": "0", "log_statement": "all"}
_BY = "SELECT encode(batch_id, 'hex') FROM batch_ids ORDER BY {}, md5(batch_id)"


def attack(*, quick: bool) -> Iterator[Outcome]:
    """Count neighbours of arrival that lie side by side, today and once the day is over."""
    with running_postgresql() as server:
        server.stop()
        server.start(**_TALKATIVE)
        with server.new_database() as url:
            yield from _attack(server, url, 200 if quick else 600)


def _attack(server: PostgresqlServer, url: str, number: int) -> Iterator[Outcome]:
    arrived = Arrived(number)
    asyncio.run(arrived.store(url, lambda: server.execute("ANALYZE", url=url)))
    today = neighbours(_ids_by(server, url, arrived, "ctid"))
    yield Outcome(f"today: ids beside the next one that came, of {number}", today, number)
    asyncio.run(arrived.end_day(url))
    # What the server does by itself, sooner or later.
    server.execute("CHECKPOINT", "SELECT pg_switch_wal()", "CHECKPOINT")
    by_place = _ids_by(server, url, arrived, "ctid")
    yield Outcome(
        f"a day that is over: the same of {number}", neighbours(by_place), MOST_NEIGHBOURS
    )
    chance = order_by_chance(number)
    yield Outcome("order of ids by place (tau)", order_kept(by_place), chance)
    by_transaction = _ids_by(server, url, arrived, "xmin::text::bigint")
    yield Outcome("order of ids by transaction (tau)", order_kept(by_transaction), chance)
    with tempfile.TemporaryDirectory() as folder:
        dump = Path(folder, "dump")
        server.run("pg_dump", "--file", dump, url)
        exported = Path(folder, "export")
        exported.write_bytes(asyncio.run(export(url)))
        files = [exported, *(path for path in server.data.rglob("*") if path.is_file())]
        for what, wanted, apart in (
            (f"ids beside the next one that came, of {number}", arrived.ids, 1),
            (f"reports beside one of their batch, of {len(arrived.reports)}", arrived.reports, 0),
        ):
            found = most_neighbours(files, wanted, apart)
            yield Outcome(f"any file: {what}", found, MOST_NEIGHBOURS)
            as_text = {each.hex().encode(): place for each, place in wanted.items()}
            found = most_neighbours([dump], as_text, apart)
            yield Outcome(f"pg_dump: {what}", found, MOST_NEIGHBOURS)
    log = (server.data.parent / "log").read_text(encoding="utf-8", errors="replace")
    everything = [*arrived.ids, *arrived.reports]
    told = sum(each.hex() in log for each in everything)
    yield Outcome(f"text log: ids and reports in it, of {len(everything)}", told, 0)


def _ids_by(server: PostgresqlServer, url: str, arrived: Arrived, by: str) -> list[int]:
    rows = server.execute(_BY.format(by), url=url).split()
    return [arrived.ids[bytes.fromhex(row)] for row in rows]
