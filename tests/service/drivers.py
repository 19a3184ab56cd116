"""Both drivers of the client behind one interface: its own threads, or an app's event loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar

from hubbub.client import AsyncTelemetry, Preview, Status, Telemetry
from hubbub.protocol import Value

_T = TypeVar("_T")


class Client(Protocol):
    """What a test does with a client, whichever it is."""

    def record(self, metric: str, value: Value) -> None: ...
    def status(self) -> Status: ...
    def preview(self, metric: str, value: Value) -> Preview: ...
    def explain(self) -> str: ...
    def flush(self, timeout: float = ...) -> bool: ...


Opener = Callable[..., AbstractContextManager[Client]]


class LoopClient:
    """An `AsyncTelemetry` whose loop runs in another thread, where it records and flushes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, telemetry: AsyncTelemetry) -> None:
        self._loop = loop
        self._telemetry = telemetry
        self.status = telemetry.status
        self.preview = telemetry.preview
        self.explain = telemetry.explain

    def record(self, metric: str, value: Value) -> None:
        async def record() -> None:
            self._telemetry.record(metric, value)

        _wait_for(self._loop, record())

    def flush(self, timeout: float = 10.0) -> bool:
        return _wait_for(self._loop, self._telemetry.flush(timeout))


@contextmanager
def open_in_loop(*arguments: Any, **options: Any) -> Iterator[Client]:
    """Open a client in the loop of a thread; leave no task behind."""
    with _running_loop() as loop:

        async def enter() -> AsyncTelemetry:
            return await AsyncTelemetry(*arguments, **options).__aenter__()

        async def leave() -> None:
            await telemetry.__aexit__(None, None, None)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        telemetry = _wait_for(loop, enter())
        try:
            yield LoopClient(loop, telemetry)
        finally:
            _wait_for(loop, leave())


@contextmanager
def _running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="an app's loop")
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _wait_for(loop: asyncio.AbstractEventLoop, call: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run_coroutine_threadsafe(call, loop).result()


DRIVERS: dict[str, Opener] = {"threads": Telemetry, "asyncio": open_in_loop}
