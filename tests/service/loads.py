"""Load of which every batch is accounted for, whatever happens to the collector meanwhile.

Each report carries a serial number of its own in its bits, so what a store holds can be compared
with what was sent, report by report: what was acknowledged is there once, what was never sent isn't
there, and no batch is there in part.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from factories import make_metric, make_report
from hubbub.client import Batch, Metric, batch_to_json
from hubbub.storage import MetricVersion, open_store
from service.posting import wait_until
from unit.collector.exchanges import segments_of

_METRIC = make_metric()
_COHORTS = _METRIC.params.m
_PATIENCE = 60.0
_PAUSE = 0.02
_LATER = (429, 503)
_GONE = (OSError, asyncio.IncompleteReadError, TimeoutError)


@dataclass(slots=True)
class Parcel:
    """A batch on its way."""

    batch: Batch
    attempts: int = 0  # how often it was sent

    @property
    def records(self) -> list[bytes]:
        return [r.cohort.to_bytes(2, "little") + r.bits for r in self.batch.reports]


@dataclass(slots=True)
class Accounts:
    """Every batch that was ever made, and those that a collector answered for."""

    reports: int = 5  # reports of a batch
    made: list[Parcel] = field(default_factory=list)
    # Ids of the batches that were answered 200 or 201.
    acknowledged: set[str] = field(default_factory=set)
    _serials: itertools.count[int] = field(default_factory=itertools.count)

    def new(self) -> Parcel:
        """Make a batch whose reports differ from all others."""
        serials = itertools.islice(self._serials, self.reports)
        reports = tuple(make_report(_METRIC, cohort=n % _COHORTS, bits=n) for n in serials)
        self.made.append(Parcel(Batch(reports)))
        return self.made[-1]

    def assert_kept(self, stored: Sequence[bytes]) -> None:
        """Fail unless a store holds what was acknowledged, and of the rest each batch or none."""
        found = Counter(stored)
        doubled = sum(times > 1 for times in found.values())
        lost = cut = 0
        expected: set[bytes] = set()
        for parcel in self.made:
            records = parcel.records
            expected.update(records)
            present = sum(record in found for record in records)
            lost += parcel.batch.batch_id in self.acknowledged and present < len(records)
            cut += 0 < present < len(records)
        faults = {"lost": lost, "doubled": doubled, "cut": cut, "alien": len(set(found) - expected)}
        assert not any(faults.values()), faults

    def assert_all_counted_once(self, stored: Sequence[bytes]) -> None:
        """Fail unless a store holds every report that was ever made, once."""
        assert len(self.acknowledged) == len(self.made)
        self.assert_kept(stored)
        assert len(stored) == sum(len(parcel.batch.reports) for parcel in self.made)


class Load:
    """Clients that post batches over kept connections, and again until they are acknowledged.

    They run in a thread of their own as long as the context is open. An answer that no client
    should ever get fails the test when the context is left.

    `url`: the collector's base address. `pause`: seconds between two batches of a client. Both
    attributes may be set meanwhile. `statuses`: how often each status was answered; 0 stands for no
    answer.
    """

    def __init__(
        self, url: str, accounts: Accounts, *, connections: int = 8, pause: float = 0.0
    ) -> None:
        self.url = url
        self.statuses: Counter[int] = Counter()
        self._accounts = accounts
        self._connections = connections
        self.pause = pause
        self._again: deque[Parcel] = deque()
        self._is_finishing = False
        self._is_over = False
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over = True
        self._thread.join()
        if kind is None and self._fault is not None:
            raise self._fault

    @property
    def acknowledged(self) -> int:
        """Number of batches that were acknowledged so far."""
        return len(self._accounts.acknowledged)

    def wait_for(self, batches: int) -> None:
        enough = self.acknowledged + batches
        wait_until(lambda: self._fault is not None or self.acknowledged >= enough)

    def wait_for_status(self, status: int, times: int = 1) -> None:
        """Wait until a status was answered so many more times (0: no answer came)."""
        enough = self.statuses[status] + times
        wait_until(lambda: self._fault is not None or self.statuses[status] >= enough)

    def finish(self) -> None:
        """Make no new batches, and send the others until each is acknowledged."""
        self._is_finishing = True
        self._thread.join(_PATIENCE)
        assert not self._thread.is_alive(), "some batches could not be delivered"

    def _run(self) -> None:
        try:
            asyncio.run(self._work_together())
        except BaseException as error:
            self._fault = error

    async def _work_together(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            workers = [tasks.create_task(self._work()) for _ in range(self._connections)]
            while not self._is_over and not all(worker.done() for worker in workers):
                await asyncio.sleep(_PAUSE)
            for worker in workers:
                worker.cancel()

    async def _work(self) -> None:
        connection = Connection()
        try:
            while parcel := self._next():
                await self._deliver(parcel, connection)
                await asyncio.sleep(self.pause)
        finally:
            connection.close()

    def _next(self) -> Parcel | None:
        if self._again:
            return self._again.popleft()
        return None if self._is_finishing else self._accounts.new()

    async def _deliver(self, parcel: Parcel, connection: Connection) -> None:
        """Send a batch once; leave it for later if that was in vain."""
        parcel.attempts += 1
        try:
            async with asyncio.timeout(_PATIENCE):
                answer = await connection.post(self.url, batch_to_json(parcel.batch))
        except _GONE:
            answer = Reply(0, {}, b"")
            connection.close()
        except asyncio.CancelledError:
            self._again.append(parcel)
            raise
        self.statuses[answer.status] += 1
        if answer.status == 201 or (answer.status == 200 and parcel.attempts > 1):
            self._accounts.acknowledged.add(parcel.batch.batch_id)
            return
        is_polite = answer.status in _LATER and "retry-after" in answer.headers
        assert is_polite or not answer.status, (answer, parcel.attempts)
        self._again.append(parcel)
        await asyncio.sleep(_PAUSE)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, as a client sees it; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Connection:
    """One connection at a time, opened when it is needed."""

    def __init__(self) -> None:
        self._url = ""
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, url: str, body: bytes) -> Reply:
        """Post a JSON body and return the answer."""
        if self._streams is None or url != self._url:
            self.close()
            address = urlsplit(url)
            self._streams = await asyncio.open_connection(address.hostname, address.port)
            self._url = url
        reader, writer = self._streams
        writer.write(
            b"POST /v1/reports HTTP/1.1\r\nHost: collector\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        reply = await read_reply(reader)
        if reply.headers.get("connection") == "close":
            self.close()
        return reply

    def close(self) -> None:
        """Close the connection, if one is open."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


async def read_reply(reader: asyncio.StreamReader) -> Reply:
    """Read one answer with a Content-Length, past interim ones."""
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split(" ")[1])
        if status >= 200:
            break
    fields = (line.partition(":") for line in head[1:] if line)
    headers = {name.lower(): value.strip() for name, _, value in fields}
    return Reply(status, headers, await reader.readexactly(int(headers["content-length"])))


def stored_in(url: str, metric: Metric | None = None) -> list[bytes]:
    """Return the records of a metric in the store at an address."""
    metric = metric or _METRIC
    width = 2 + metric.params.k // 8

    async def read() -> list[bytes]:
        async with open_store(url, create=False) as store:
            key = MetricVersion(metric.name, metric.version)
            pieces = await segments_of(store, key)
        return [piece[i : i + width] for piece in pieces for i in range(0, len(piece), width)]

    return asyncio.run(read())


def send_all_again(url: str, parcels: Collection[Parcel]) -> Counter[int]:
    """Post batches once more; return how often each status was answered."""

    async def send() -> Counter[int]:
        connection = Connection()
        try:
            replies = [await connection.post(url, batch_to_json(p.batch)) for p in parcels]
        finally:
            connection.close()
        return Counter(reply.status for reply in replies)

    return asyncio.run(send())


def assert_delivered(url: str, accounts: Accounts) -> None:
    """Fail unless the store at an address holds all of an account, once."""
    accounts.assert_all_counted_once(stored_in(url))
