"""Filters of closed days: stored in parts, and kept in memory by a process that stores batches.

A closed day's table takes no more ids. Maintenance puts these into their own order and reads them,
stores the filter (`bloom`) in parts under its digest, and last names that digest by a trigger on
the table.
Each transaction reads these names, and looks in a table only for the ids that its filter, if it is
in memory, doesn't deny. Invariants: a filter is used only of a table that names it in that
transaction, and so takes no more ids; where none is used, as it isn't loaded yet, is damaged or
has no room, every id is looked for; and filters take no more memory than they may.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from hubbub.storage.bloom import WORD_BYTES, FilteredTables, IdFilter
from hubbub.storage.database import Database
from hubbub.storage.errors import StoreError
from hubbub.storage.id_tables import Catalogue
from hubbub.storage.schema import id_filters

PART_BYTES = 1024**2
"""What is stored or loaded at a time, so that nobody waits for long."""

_RETRY_SECONDS = 60.0  # without a filter each batch costs a look into the table: slower, not wrong

_log = logging.getLogger("hubbub.collector")


class LoadedFilters:
    """The filters that a process has in memory: those of the youngest tables, as far as they fit.

    Clients try again soon, so that an id that is known is rarely in an old table. Transactions use
    filters in any thread; loading is done in the event loop, beside them.

    `catalogue`: returns which tables there are, and their filters.
    """

    def __init__(self, database: Database, catalogue: Callable[[], Awaitable[Catalogue]]) -> None:
        self._database = database
        self._catalogue = catalogue
        self._most_bytes = math.inf
        self._filters: dict[bytes, IdFilter] = {}  # replaced, never changed
        self._sizes: dict[bytes, int] = {}  # in bytes, as far as they are known
        self._damaged: set[bytes] = set()
        self._unfit = 0  # filters without room, when that was last logged
        self._seen = Catalogue((), frozenset(), {})
        self._complete: Catalogue | None = None  # which nothing was missing of when last looked
        self._chosen = (self._seen, self._filters, FilteredTables({}))
        self._loading: asyncio.Task[None] | None = None
        self._retry_at = float("-inf")

    def of(self, catalogue: Catalogue) -> FilteredTables:
        """Return the tables of those that a transaction found which it need not search for all."""
        self._seen = catalogue
        loaded = self._filters
        seen, used, tables = self._chosen
        # The same objects as long as no name changes, and nothing is loaded.
        if seen is not catalogue or used is not loaded:
            digests = catalogue.filters.items()
            there = {table: loaded[digest] for table, digest in digests if digest in loaded}
            tables = FilteredTables(there)
            self._chosen = (catalogue, loaded, tables)
        return tables

    def load_soon(self) -> None:
        """Begin to load what the last transaction could have used, unless it is being loaded."""
        if self._loading is not None or self._seen is self._complete:
            return
        if not self._missing():
            self._complete = self._seen
        elif time.monotonic() > self._retry_at:
            self._loading = asyncio.create_task(self._load(), name="filters of batch ids")

    async def load(self, most_bytes: float = math.inf) -> None:
        """Load filters now, and not soon after the first transaction that could use them.

        `most_bytes`: memory that they may take, now and later. Days whose filters don't fit are
        searched.
        """
        self._most_bytes, self._complete = most_bytes, None
        self._seen = await self._catalogue()
        self._make_room()
        self.load_soon()
        if self._loading is not None:
            await self._loading

    async def close(self) -> None:
        """Load no more."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])

    def _fitting(self) -> list[bytes]:
        """Return the filters that are to be in memory, those of the youngest tables first.

        Those of unknown sizes, too, so that they become known.
        """
        room, fitting = self._most_bytes, list[bytes]()
        tables = sorted(self._seen.filters, key=lambda it: (it.day, it.section or 0))
        for digest in (self._seen.filters[table] for table in reversed(tables)):
            size = self._sizes.get(digest, 0)
            if digest not in self._damaged and digest not in fitting and size <= room:
                fitting.append(digest)
                room -= size
        return fitting

    def _missing(self) -> list[bytes]:
        return [digest for digest in self._fitting() if digest not in self._filters]

    async def _load(self) -> None:
        tried = set[bytes]()
        try:
            while left := [digest for digest in self._missing() if digest not in tried]:
                if unknown := [digest for digest in left if digest not in self._sizes]:
                    async with self._database.read() as connection:
                        self._sizes |= {it: await stored_size(connection, it) for it in unknown}
                    continue  # perhaps they don't fit
                tried.add(left[0])
                await self._load_one(left[0])
            self._tell_unfit()
        except Exception as error:
            reason = error if isinstance(error, StoreError) else type(error).__name__
            _log.warning("could not load a filter of batch ids and will try again: %s", reason)
            self._retry_at = time.monotonic() + _RETRY_SECONDS
        finally:
            self._loading = None

    def _make_room(self) -> None:
        fitting = set(self._fitting())
        self._filters = {it: there for it, there in self._filters.items() if it in fitting}

    async def _load_one(self, digest: bytes) -> None:
        """Load a filter that fits, once there is room for it."""
        self._make_room()
        found = await _read(self._database, digest)
        in_force = set((await self._catalogue()).filters.values())
        kept = {it: there for it, there in self._filters.items() if it in in_force}
        self._sizes = {it: size for it, size in self._sizes.items() if it in in_force}
        if found is not None:
            self._filters = {**kept, digest: found}
        elif digest in in_force:
            self._damaged.add(digest)
            _log.warning("a filter of batch ids is damaged, so their day is searched")

    def _tell_unfit(self) -> None:
        digests = set(self._seen.filters.values())
        unfit = len(digests - set(self._fitting()) - self._damaged)
        if unfit != self._unfit:
            self._unfit = unfit
            _log.warning(
                "%d of %d filters of batch ids don't fit into max_filter_bytes = %d, so that their "
                "days are searched",
                unfit,
                len(digests),
                self._most_bytes,
            )


async def store_filter(database: Database, made: IdFilter) -> bytes:
    """Store a filter part by part, and return its digest."""
    digest, data = await asyncio.to_thread(lambda: made.digest), made.data
    for part, start in enumerate(range(0, len(data), PART_BYTES)):
        words = bytes(data[start : start + PART_BYTES])
        row = {"digest": digest, "part": part, "words": words}
        async with database.write() as connection:
            await connection.execute(database.insert_if_absent(id_filters), [row])
        database.note_written(len(words))
    return digest


async def stored_filters(database: Database) -> set[bytes]:
    """Return the digests of all filters of which there is any part."""
    async with database.read() as connection:
        return set((await connection.scalars(sa.select(id_filters.c.digest).distinct())).all())


async def stored_size(connection: AsyncConnection, digest: bytes) -> int:
    """Return how many bytes of a filter there are."""
    query = sa.select(sa.func.sum(sa.func.length(id_filters.c.words)))
    return int(await connection.scalar(query.where(id_filters.c.digest == digest)) or 0)


async def _read(database: Database, digest: bytes) -> IdFilter | None:
    """Return a filter; None if not all of it is there as it was made."""
    async with database.read() as connection:
        size = await stored_size(connection, digest)
    if not size or size % WORD_BYTES:
        return None
    data = bytearray(size)
    for part, start in enumerate(range(0, size, PART_BYTES)):
        which = (id_filters.c.digest == digest, id_filters.c.part == part)
        async with database.read() as connection:
            words = await connection.scalar(sa.select(id_filters.c.words).where(*which))
        if words is None or len(words) != min(PART_BYTES, size - start):
            return None
        data[start : start + len(words)] = words
    found = IdFilter.of_data(data)
    return found if await asyncio.to_thread(lambda: found.digest) == digest else None
