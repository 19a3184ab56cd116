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
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, Self, TypeVar
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from hubbub.client.base import (
    EXIT_SECONDS,
    IDLE_SECONDS,
    RETRY_DISK_SECONDS,
    SPOOL_SECONDS,
    BaseTelemetry,
)
from hubbub.client.delivery import ClientStore, Fetch
from hubbub.client.errors import ReplacedSecretError, StateError, UnavailableError
from hubbub.client.forks import notice_fork
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
        return await self._hurry_until(self._is_settled, timeout)

    async def close(self, timeout: float = EXIT_SECONDS) -> None:
        """Send what waits, for at most `timeout` seconds and until an attempt fails, then stop.

        What is left stays on disk.
        """
        if elsewhere := self._running_elsewhere():
            await _in_loop(elsewhere, self.close(timeout), timeout)
            return
        try:
            if timeout > 0:
                await self._hurry_until(self._is_idle, timeout)
        finally:
            await self._stop()

    async def _hurry_until(self, reached: Callable[[], bool], timeout: float) -> bool:
        """Send what waits, now; return whether a state was reached in time."""
        if self._recorder.disabled or self._loop is None:
            return False
        if elsewhere := self._running_elsewhere():
            done = await _in_loop(elsewhere, self._hurry_until(reached, timeout), timeout)
            return bool(done)
        self._start()
        with self._recorder.changed:
            self._lanes.hurry()
        self._wake.set()
        try:
            return await self._wait(reached, timeout) and self._recorder.disabled is None
        finally:
            self._lanes.relax()

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
        if self._loop is None or self._lanes.closed:
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
        self._lanes.reset_after_fork()  # what the tasks of a loop that ended were doing
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
        self._store_now()

    def _wake_up(self) -> None:
        loop = self._loop  # another thread may be closing
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed, and this object not
                loop.call_soon_threadsafe(self._wake.set)

    async def _with_store(self, work: Callable[[ClientStore], Awaitable[None]]) -> None:
        """Do a lane's work with its own connection, as long as the state can be trusted."""
        former = None
        while self._is_running():
            try:
                store = await self._in_pool(partial(self._open_store, former))
                former = store.secret
                try:
                    await work(store)
                finally:
                    self._submit(store.close)
                    if self._recorder.pending:  # perhaps the loop ends, and nobody closes this
                        self._store_soon()
            except UnavailableError as error:
                self._note_unavailable(error)
                await asyncio.sleep(RETRY_DISK_SECONDS)
            except ReplacedSecretError:
                continue
            except Exception as error:  # an app must never fail because of telemetry
                self._fail(error)
                return

    async def _write(self, store: ClientStore) -> None:
        while self._is_running():
            await self._wait(self._has_work)
            await self._wait(self._is_time_to_store, SPOOL_SECONDS)
            if self._is_running() and not await self._in_pool(partial(self._store_waiting, store)):
                await asyncio.sleep(RETRY_DISK_SECONDS)

    async def _send(self, store: ClientStore) -> None:
        """Bring batches to the collector until closed (another task)."""
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(
                sock_connect=self._settings.connect_timeout,
                total=self._settings.connect_timeout + self._settings.read_timeout,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),  # a cookie would link batches
        ) as self._session:
            await self._send_batches(store)

    async def _send_batches(self, store: ClientStore) -> None:
        while self._is_running():
            seen = self._lanes.changes  # before the disk is read, or a report would be overlooked
            seconds = IDLE_SECONDS
            if self._may_send():
                try:
                    seconds = await self._send_once(store, seen)
                except UnavailableError:
                    seconds = RETRY_DISK_SECONDS
            if seconds:
                await self._wait(partial(self._is_time_to_send, seen), seconds)

    async def _send_once(self, store: ClientStore, seen: int) -> float:
        """Send a batch or ask for the switch, if that is due; return seconds until the next."""
        step = await self._in_pool(partial(self._next_step, store))
        if isinstance(step, float):
            self._note_end_of_sending(seen)
            return step
        if isinstance(step, Fetch):
            answer = await self._fetch(self._switch_address or "")
            await self._in_pool(partial(self._obey, store, answer))
            return 0.0
        answer = await self._post(step.batch)
        self._note(answer)
        await self._in_pool(partial(self._settle, store, step, answer))
        if answer.is_to_be_repeated:
            self._note_end_of_sending(seen)
        return 0.0

    async def _stop(self) -> None:
        tasks, self._tasks = self._tasks, ()
        loop, self._loop = self._loop, None
        self._shut()
        if loop is asyncio.get_running_loop():
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(StateError, UnavailableError):
            await self._in_pool(self._store_the_rest)
        self._pool.shutdown()

    def _store_the_rest(self) -> None:
        if self._recorder.pending or self._lanes.withdrawn:
            with closing(self._open_store()) as store:
                self._store_waiting(store)

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
            proxy, login = await self._in_pool(lambda: _proxy_for(self._url))
            tunnelled = self._url.startswith("https://")  # the login is for the proxy alone
            async with self._session.post(
                self._url,
                data=data,
                headers=headers if tunnelled else headers | login,
                allow_redirects=False,
                proxy=proxy,
                proxy_headers=login if tunnelled else None,
            ) as response:
                answer = await _read(response.content)
                return classify_response(response.status, response.headers, answer, time.time())
        except _FAILURES as error:
            return failure(error, time.time())

    async def _fetch(self, address: str) -> bytes | Answer:
        """Ask for the switch, once, as every client does (never raises)."""
        try:
            proxy, login = await self._in_pool(lambda: _proxy_for(address))
            tunnelled = address.startswith("https://")
            async with self._session.get(
                address,
                headers=SWITCH_HEADERS if tunnelled else SWITCH_HEADERS | login,
                allow_redirects=False,
                proxy=proxy,
                proxy_headers=login if tunnelled else None,
            ) as response:
                body = await _read(response.content, SWITCH_BYTES)
                return switch_answer(response.status, response.headers, body, time.time())
        except _FAILURES as error:
            return failure(error, time.time())

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
        instance._store_now()


_instances: weakref.WeakSet[AsyncTelemetry] = weakref.WeakSet()


def _proxy_for(address: str) -> tuple[URL | None, dict[str, str]]:
    """Return the environment's proxy for an address, and the header with its login.

    The HTTP library's own `trust_env` would also send the user's login from ~/.netrc.
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


async def _read(content: aiohttp.StreamReader, most: int = MAX_ANSWER) -> bytes:
    body = b""
    while piece := await content.read(most - len(body)):
        body += piece
    return body
