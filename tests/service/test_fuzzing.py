"""Malformed requests by the thousand, pipelined: refused politely, or taken and then counted once.

HUBBUB_FUZZ says how many, HUBBUB_FUZZ_SEED which; a failure names the seed and the request.
"""

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from hubbub.simulations import Collector
from programs import forked_collector
from service.faults import resident_bytes, status_of
from service.loads import Reply, read_reply, stored_in
from service.mutants import METRIC, Mutant, Stored, make_mutant

REQUESTS = int(os.environ.get("HUBBUB_FUZZ", "8000"))
SEED = int(os.environ.get("HUBBUB_FUZZ_SEED", "20140814"))
pytestmark = pytest.mark.timeout(300 + REQUESTS / 100)

_CONNECTIONS = 8
_PIPELINED = 16
_WARM_UP = 500
_MOST_GROWTH = 60 * 2**20
_ATTEMPTS = 5
_SECONDS = 60.0
_SILENCE_SECONDS = 0.03  # then an answer is no longer waited for where none need come
_BROKEN = (OSError, asyncio.IncompleteReadError, TimeoutError)


def test_malformed_requests_are_refused_and_valid_ones_among_them_counted_once(
    metrics_file, sqlite_url
):
    options = ["--body-seconds", "2", "--header-seconds", "2", "--log-level", "error"]
    numbers = range(1, REQUESTS, 2)
    fuzz = _Fuzz()
    with forked_collector(metrics_file, sqlite_url, options) as collector:
        fuzz.send(collector, numbers[:_WARM_UP])
        before = resident_bytes(collector.process.pid)
        fuzz.send(collector, numbers[_WARM_UP:])
        grown = resident_bytes(collector.process.pid) - before
        assert status_of(collector, "/livez") == 200
        assert status_of(collector, "/readyz") == 200
    print(f"seed {SEED}: {dict(fuzz.statuses)}, memory {grown / 2**20:+.1f} MiB")
    assert grown < _MOST_GROWTH
    assert {201, 400, 404, 405, 415, 422} <= set(fuzz.statuses)
    stored = Counter((METRIC.name, 1, record) for record in stored_in(sqlite_url))
    assert not fuzz.accepted - stored
    assert not stored - fuzz.accepted - fuzz.undecided


class _Fuzz:
    """Sends mutants and keeps the books.

    `accepted`: reports that must be stored. `undecided`: reports of requests that were damaged in
    such a way that no answer need come.
    """

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.accepted: Counter[Stored] = Counter()
        self.undecided: Counter[Stored] = Counter()
        self._ids: set[str] = set()

    def send(self, collector: Collector, numbers: range) -> None:
        asyncio.run(self._send(collector.url, iter(numbers)))

    async def _send(self, url: str, numbers: Iterator[int]) -> None:
        async with asyncio.timeout(_SECONDS + REQUESTS / 100), asyncio.TaskGroup() as tasks:
            for _ in range(_CONNECTIONS):
                tasks.create_task(self._work(url, numbers))

    async def _work(self, url: str, numbers: Iterator[int]) -> None:
        while some := list(itertools.islice(numbers, _PIPELINED)):
            mutants = {number: make_mutant(SEED, number) for number in some}
            await self._pipeline(url, {n: m for n, m in mutants.items() if m.is_framed})
            for number, mutant in mutants.items():
                if not mutant.is_framed:
                    await self._send_alone(url, number, mutant)

    async def _pipeline(self, url: str, mutants: dict[int, Mutant]) -> None:
        """Send many at once, and those again that the server closed the connection before."""
        attempts = 0
        resent: set[int] = set()
        while mutants:
            replies = await _exchange(url, b"".join(m.raw for m in mutants.values()), len(mutants))
            for (number, mutant), reply in zip(list(mutants.items()), replies, strict=False):
                self._book(number, mutant, reply, is_resent=number in resent)
                del mutants[number]
            resent.update(mutants)
            # A reset may swallow answers, but not again and again.
            attempts = 0 if replies else attempts + 1
            assert attempts < _ATTEMPTS, f"seed {SEED}, request {next(iter(mutants))}: no answer"
            if attempts:
                number, mutant = next(iter(mutants.items()))
                if replies := await _exchange(url, mutant.raw, 1):
                    self._book(number, mutant, replies[0], is_resent=True)
                    del mutants[number]
                    attempts = 0

    async def _send_alone(self, url: str, number: int, mutant: Mutant) -> None:
        self.undecided.update(mutant.contents()[1])
        for reply in await _exchange(url, mutant.raw, 100, patience=_SILENCE_SECONDS):
            self._book_status(number, reply)

    def _book(self, number: int, mutant: Mutant, reply: Reply, *, is_resent: bool) -> None:
        self._book_status(number, reply)
        if reply.status not in {200, 201}:
            return
        batch_id, records = mutant.contents()
        is_known = batch_id in self._ids
        assert is_known or reply.status == 201 or is_resent, f"seed {SEED}, request {number}"
        assert b'"accepted": %d' % len(records) in reply.body, f"seed {SEED}, request {number}"
        if not is_known:
            self._ids.add(batch_id)
            self.accepted.update(records)

    def _book_status(self, number: int, reply: Reply) -> None:
        self.statuses[reply.status] += 1
        is_expected = reply.status in {200, 201} or 400 <= reply.status < 500
        assert is_expected, f"seed {SEED}, request {number}: {reply}"


async def _exchange(url: str, raw: bytes, most: int, patience: float | None = None) -> list[Reply]:
    """Send bytes over a new connection; return the answers, until enough, silence or its end."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    replies: list[Reply] = []
    try:
        writer.write(raw)
        while len(replies) < most:
            async with asyncio.timeout(patience):
                replies.append(await read_reply(reader))
    except _BROKEN:
        pass
    finally:
        writer.transport.abort()
    return replies
