"""Telemetry for asyncio apps that use aiohttp: `async with AsyncTelemetry(...) as telemetry`.

The same recording, ledger and outbox as `Telemetry`, but two tasks of the app's loop store and
send; a worker thread uses the disk, so that the loop never waits for it. Needs the extra: pip
install 'hubbub[aiohttp]'.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import contextlib
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, Self, TypeVar
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from hubbub.client.delivery import Fetch
from hubbub.client.forks import notice_fork
from hubbub.client.outbox import Outbox
from hubbub.client.recorder import CLOSED
from hubbub.client.telemetry import EXIT_SECONDS, IDLE_SECONDS, SPOOL_SECONDS, BaseTelemetry
from hubbub.client.transport import (
    MAX_ANSWER,
    SWITCH_BYTES,
    SWITCH_HEADERS,
    Answer,
    BatchRequest,
    RequestEncoder,
    check_endpoint,
    classify_response,
    failure,
    switch_answer,
)
from hubbub.protocol.errors import ReplacedSecretError, StateError, UnavailableError
from hubbub.protocol.metric_types.base import Value
from hubbub.protocol.wire import Batch

_Result = TypeVar("_Result")
# The last while Python is shutting down: names can't be looked up any more.
_FAILURES = (aiohttp.ClientError, OSError, ValueError, RuntimeError)


class AsyncTelemetry(BaseTelemetry):
    """Records values and delivers their noisy reports from the running event loop.

    Takes the parameters of `Telemetry`. Enter it as an asynchronous context; leaving it flushes for
    up to two seconds, and what is left stays on disk for the next start. `record` and `set_consent`
    may be called from the loop's thread, and from others. Where no loop runs (before the context is
    entered, once the loop has ended, in a forked child), reports are stored; they are sent when
    another loop enters the context, flushes or closes.

    Examples
    --------
    >>> import asyncio
    >>> async def main():
    ...     endpoint = "https://telemetry.example.com"
    ...     async with AsyncTelemetry("metrics.toml", endpoint, "state") as telemetry:
    ...         return telemetry.preview("theme", "dark").refusal
    >>> print(asyncio.run(main()))
    None
    """

    _loop: asyncio.AbstractEventLoop | None
    _pool: ThreadPoolExecutor
    _has_worker: bool
    _is_queued: bool
    _session: aiohttp.ClientSession
    _tasks: tuple[asyncio.Task[None], ...]
    _wake: asyncio.Event

    def record(self, metric: str, value: Value) -> None:
        """Report a value, in noise. Returns at once and never raises (but see `development`)."""
        notice_fork()
        self._recorder.record(metric, value)
        if self._recorder.pending and not self._has_loop():
            self._store_soon()

    async def __aenter__(self) -> Self:
        """Begin to deliver."""
        notice_fork()
        if not self._has_loop():
            self._tasks, self._loop = (), asyncio.get_running_loop()
        if not self._recorder.disabled:
            self._start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Flush, then stop."""
        await self.close()

    async def flush(self, timeout: float = 10.0) -> bool:
        """Send what waits, now; return whether everything was settled within `timeout` seconds."""
        return await self._flush_until(self._delivery.is_settled, timeout)

    async def close(self, timeout: float = EXIT_SECONDS) -> None:
        """Send what waits, for at most `timeout` seconds and until an attempt fails, then stop.

        What is left stays on disk.
        """
        if elsewhere := self._running_elsewhere():
            await _in_loop(elsewhere, self.close(timeout), timeout)
            return
        try:
            if timeout > 0:
                await self._flush_until(self._delivery.is_idle, timeout)
        finally:
            await self._stop()

    async def _flush_until(self, reached: Callable[[], bool], timeout: float) -> bool:
        """Send what waits, now; return whether a state was reached in time."""
        if self._recorder.disabled or self._loop is None:
            return False
        if elsewhere := self._running_elsewhere():
            done = await _in_loop(elsewhere, self._flush_until(reached, timeout), timeout)
            return bool(done)
        self._start()
        self._delivery.begin_flush()
        self._wake.set()
        try:
            return await self._wait(reached, timeout) and self._recorder.disabled is None
        finally:
            self._delivery.end_flush()

    async def forget(self) -> str:
        """Delete this client's secret, ledger and unsent reports; return what that means.

        Raises
        ------
        StateError, UnavailableError
            If a file can't be removed.
        """
        await self.close(0)
        return await asyncio.to_thread(self._forget)

    def _prepare(self) -> None:
        self._url = check_endpoint(self._endpoint)
        self._encoder = RequestEncoder(self._ingest_key)
        self._recorder.listener = self._wake_up
        _instances.add(self)
        self._reset_after_fork()

    def _reset_after_fork(self) -> None:
        self._tasks, self._loop = (), None
        self._wake = asyncio.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="hubbub disk")
        self._has_worker = self._is_queued = False

    def _is_to_be_resumed(self) -> bool:
        return True

    def _start(self) -> None:
        """Begin to store and to send in the loop that was entered, or in another if that ended."""
        if self._loop is None or self._delivery.closed:
            return
        if elsewhere := self._running_elsewhere():
            with contextlib.suppress(RuntimeError):  # it has just ended
                elsewhere.call_soon_threadsafe(self._start)
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # no loop runs: another one may come
            return
        if self._tasks and self._loop is loop:
            return
        self._loop, self._wake = loop, asyncio.Event()
        self._delivery.restart()  # without the tasks of a loop that ended
        self._tasks = tuple(
            loop.create_task(self._with_store(work), name="hubbub")
            for work in (self._write, self._send)
        )

    def _has_loop(self) -> bool:
        loop = self._loop  # another thread may be closing
        return loop is not None and loop.is_running()

    def _running_elsewhere(self) -> asyncio.AbstractEventLoop | None:
        loop = self._loop
        if loop is None or not loop.is_running() or loop is asyncio._get_running_loop():
            return None
        return loop

    def _store_soon(self) -> None:
        if not self._is_queued:
            self._is_queued = True
            self._submit(self._store_queued)

    def _store_queued(self) -> None:
        self._is_queued = False
        self._delivery.store_now()

    def _wake_up(self) -> None:
        loop = self._loop  # another thread may be closing
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed, and this object not
                loop.call_soon_threadsafe(self._wake.set)

    async def _with_store(self, work: Callable[[Outbox], Awaitable[None]]) -> None:
        """Do a lane's work with its own connection, as long as the state can be trusted."""
        former = None
        while self._is_running():
            try:
                outbox = await self._in_pool(partial(self._delivery.open, former))
                former = outbox.secret
                try:
                    await work(outbox)
                finally:
                    self._submit(outbox.close)
                    if self._recorder.pending:  # perhaps the loop ends, and nobody closes this
                        self._store_soon()
            except UnavailableError as error:
                self._delivery.note_unavailable(error)
                await asyncio.sleep(self._delivery.RETRY_DISK_SECONDS)
            except ReplacedSecretError:
                continue
            except Exception as error:  # an app must never fail because of telemetry
                self._delivery.fail(error)
                return

    async def _write(self, outbox: Outbox) -> None:
        """Store reports until closed (one task)."""
        delivery = self._delivery
        while self._is_running():
            await self._wait(delivery.has_work)
            await self._wait(delivery.is_time_to_store, SPOOL_SECONDS)
            if self._is_running() and await self._in_pool(partial(delivery.store, outbox)) is None:
                await asyncio.sleep(delivery.RETRY_DISK_SECONDS)

    async def _send(self, outbox: Outbox) -> None:
        """Bring batches to the collector until closed (another task)."""
        settings, delivery = self._delivery.settings, self._delivery
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(
                sock_connect=settings.connect_timeout,
                total=settings.connect_timeout + settings.read_timeout,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),  # a cookie would link batches
        ) as self._session:
            while self._is_running():
                seen = delivery.changes  # before the disk is read, or a report would be overlooked
                seconds = IDLE_SECONDS
                if delivery.may_send():
                    try:
                        seconds = await self._send_once(outbox, seen)
                    except UnavailableError:
                        seconds = delivery.RETRY_DISK_SECONDS
                if seconds:
                    await self._wait(partial(delivery.is_time_to_send, seen), seconds)

    async def _send_once(self, outbox: Outbox, seen: int) -> float:
        """Send a batch or ask for the switch, if that is due; return seconds until the next."""
        delivery = self._delivery
        step = await self._in_pool(partial(delivery.next_step, outbox))
        if isinstance(step, float):
            delivery.end_sending(seen)
            return step
        if isinstance(step, Fetch):
            got = await self._fetch(self._switch_address or "")
            await self._in_pool(partial(delivery.obey, outbox, got, self._switch_key))
            return 0.0
        answer = await self._post(step.batch)
        delivery.note(answer, self._on_error)
        await self._in_pool(partial(delivery.settle, outbox, step, answer))
        if answer.is_to_be_repeated:
            delivery.end_sending(seen)
        return 0.0

    async def _stop(self) -> None:
        tasks, self._tasks = self._tasks, ()
        loop, self._loop = self._loop, None
        self._delivery.close(CLOSED)
        if loop is asyncio.get_running_loop():
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(StateError, UnavailableError):
            await self._in_pool(self._store_the_rest)
        self._pool.shutdown()

    def _store_the_rest(self) -> None:
        if self._recorder.pending or self._delivery.withdrawn:
            with closing(self._delivery.open()) as outbox:
                self._delivery.store(outbox)

    def _why_postponed(self) -> str | None:
        if self._has_loop() or self._recorder.disabled:
            return None
        return "no event loop runs; reports are stored, and sent once one enters the context"

    def _is_running(self) -> bool:
        return asyncio.current_task() in self._tasks

    async def _wait(self, until: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait for a state; return whether it came in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not until():
                    self._wake.clear()
                    await self._wake.wait()
                return True
        return False

    async def _post(self, batch: Batch) -> Answer:
        request = await self._in_pool(lambda: self._encoder.encode(batch))
        answer = await self._attempt(request)
        if again := await self._in_pool(lambda: self._encoder.encode_again(batch, answer)):
            answer = await self._attempt(again)
        return answer

    async def _attempt(self, request: BatchRequest) -> Answer:
        data, headers = request
        try:
            status, answered, body = await self._request("POST", self._url, headers, data)
        except _FAILURES as error:
            return failure(error, time.time())
        return classify_response(status, answered, body, time.time())

    async def _fetch(self, address: str) -> bytes | Answer:
        """Ask for the switch, once, as every client does (never raises)."""
        try:
            answered = await self._request("GET", address, SWITCH_HEADERS, most=SWITCH_BYTES)
        except _FAILURES as error:
            return failure(error, time.time())
        return switch_answer(*answered, time.time())

    async def _request(
        self,
        method: str,
        address: str,
        headers: Mapping[str, str],
        data: bytes | None = None,
        most: int = MAX_ANSWER,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return the status, the headers and at most so many bytes of an answer."""
        proxy, login = await self._in_pool(lambda: _proxy_for(address))
        tunnelled = address.startswith("https://")  # the login is for the proxy alone
        async with self._session.request(
            method,
            address,
            data=data,
            headers=headers if tunnelled else {**headers, **login},
            allow_redirects=False,
            proxy=proxy,
            proxy_headers=login if tunnelled else None,
        ) as response:
            body = b""
            while piece := await response.content.read(most - len(body)):
                body += piece
            return response.status, response.headers, body

    async def _in_pool(self, work: Callable[[], _Result]) -> _Result:
        return await asyncio.wrap_future(self._submit(work))

    def _submit(self, work: Callable[[], _Result]) -> Future[_Result]:
        """Have the worker thread do something, or do it at once if there can be no such thread."""
        try:
            future = self._pool.submit(work)
            self._has_worker = True
        except RuntimeError:  # too many threads, or Python is shutting down
            # What it couldn't start a thread for it has queued, and mustn't do later.
            self._pool.shutdown(wait=False, cancel_futures=not self._has_worker)
            future = Future()
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)
        return future


async def _in_loop(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, _Result], seconds: float
) -> _Result | None:
    future = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
    with contextlib.suppress(TimeoutError):
        return await asyncio.wait_for(future, seconds + EXIT_SECONDS)
    return None


@atexit.register
def _store_all() -> None:
    for instance in list(_instances):
        instance._delivery.store_now()


_instances: weakref.WeakSet[AsyncTelemetry] = weakref.WeakSet()


def _proxy_for(address: str) -> tuple[URL | None, dict[str, str]]:
    """Return the environment's proxy for an address, and the header with its login.

    aiohttp's own `trust_env` would also send the user's login from ~/.netrc.
    """
    url = URL(address)
    proxy = getproxies().get(url.scheme)
    if proxy is None or proxy_bypass(url.raw_host or ""):
        return None, {}
    proxy_url = URL(proxy)
    if not proxy_url.user:
        return proxy_url, {}
    login = base64.b64encode(f"{proxy_url.user}:{proxy_url.password or ''}".encode()).decode()
    return proxy_url.with_user(None), {"Proxy-Authorization": f"Basic {login}"}
