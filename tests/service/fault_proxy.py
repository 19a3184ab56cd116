"""A TCP proxy that harms what passes through it, in ways that a seed decides.

Each connection is left in peace for some answers, then suffers one fault, and breaks. Whoever sends
through it can't know whether a request arrived whose answer didn't: that is what retries are about.
"""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from urllib.parse import urlsplit

_PIECE = 65_536
_LONGEST_DELAY = 0.1
_LONGEST_PEACE = 4
_LONGEST_TROUBLE = 4


class Fault(Enum):
    """What happens to a connection."""

    LOSE_REQUEST = auto()  # the connection breaks before anything reaches the server
    CUT_REQUEST = auto()  # the server gets a part
    LOSE_ANSWER = auto()  # the server has done its work, and nobody learns of it
    CUT_ANSWER = auto()  # the client gets a part
    DELAY = auto()
    CRUMBLE = auto()  # all arrives, in tiny pieces


class _BrokenError(Exception):
    """The proxy breaks the connection."""


@dataclass(slots=True)
class FaultProxy:
    """A running proxy."""

    target: str  # the base address of the server; may be set to another
    seed: int
    url: str = ""  # where clients connect
    faults: Counter[Fault] = field(default_factory=Counter)  # how often each fault happened
    _connections: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on, and harm it."""
        chance = random.Random(self.seed + self._connections)  # noqa: S311
        self._connections += 1
        address = urlsplit(self.target)
        server: asyncio.StreamWriter | None = None
        try:
            answers, server = await asyncio.open_connection(address.hostname, address.port)
            harm = _Harm(chance, self.faults)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pump(reader, server, harm.of_request))
                tasks.create_task(_pump(answers, writer, harm.of_answer))
        except (ExceptionGroup, OSError, asyncio.CancelledError):
            pass  # broken on purpose, by one of the two ends, or because the proxy closes
        finally:
            writer.transport.abort()
            if server is not None:
                server.transport.abort()


class _Harm:
    """One connection's fate."""

    def __init__(self, chance: random.Random, faults: Counter[Fault]) -> None:
        self._chance = chance
        self._faults = faults
        self._fault = chance.choice(list(Fault))
        self._peaceful_answers = chance.randrange(_LONGEST_PEACE)

    async def of_request(self, data: bytes, pass_on: Callable[[bytes], None]) -> None:
        await self._pass(data, pass_on, Fault.LOSE_REQUEST, Fault.CUT_REQUEST)

    async def of_answer(self, data: bytes, pass_on: Callable[[bytes], None]) -> None:
        await self._pass(data, pass_on, Fault.LOSE_ANSWER, Fault.CUT_ANSWER)
        self._peaceful_answers -= 1
        if self._peaceful_answers < -_LONGEST_TROUBLE:
            raise _BrokenError

    async def _pass(
        self, data: bytes, pass_on: Callable[[bytes], None], losing: Fault, cutting: Fault
    ) -> None:
        faults = {losing, cutting, Fault.DELAY, Fault.CRUMBLE}
        if self._peaceful_answers > 0 or self._fault not in faults:
            pass_on(data)
            return
        self._faults[self._fault] += 1
        if self._fault is Fault.CRUMBLE:
            await self._crumble(data, pass_on)
            return
        if self._fault is Fault.DELAY:
            await asyncio.sleep(self._chance.uniform(0.0, _LONGEST_DELAY))
            pass_on(data)
            return
        if self._fault is cutting:
            pass_on(data[: self._chance.randrange(len(data))])
            await asyncio.sleep(0)
        raise _BrokenError

    async def _crumble(self, data: bytes, pass_on: Callable[[bytes], None]) -> None:
        start = 0
        while start < len(data):
            stop = start + self._chance.randint(1, 16)
            pass_on(data[start:stop])
            await asyncio.sleep(0)
            start = stop


async def _pump(
    source: asyncio.StreamReader,
    target: asyncio.StreamWriter,
    harm: Callable[[bytes, Callable[[bytes], None]], Awaitable[None]],
) -> None:
    while data := await source.read(_PIECE):
        await harm(data, target.write)
        await target.drain()
    raise _BrokenError


@contextmanager
def fault_proxy(target: str, *, seed: int) -> Iterator[FaultProxy]:
    """Run a proxy on a free port of the loopback interface until the context closes."""
    proxy = FaultProxy(target, seed)
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    is_serving = threading.Event()

    async def run() -> None:
        server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        is_serving.set()
        await stop.wait()
        server.close()

    def main() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(run())  # the tasks of open connections are cancelled when it is left

    thread = threading.Thread(target=main, name="fault proxy")
    thread.start()
    is_serving.wait()
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
