"""Telemetry for asyncio apps that use aiohttp: `async with AsyncTelemetry(...) as telemetry`.

The same recording, ledger and outbox as `Telemetry`, but one task of the app's event loop delivers
reports; a worker thread uses the disk, so that the loop never waits for it. Needs the extra: pip
install 'hubbub[aiohttp]'.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar
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
from hubbub.client.delivery import ClientStore
from hubbub.client.errors import ReplacedSecretError, StateError, UnavailableError
from hubbub.client.transport import (
    MAX_ANSWER,
    Answer,
    BatchRequest,
    RequestEncoder,
    check_endpoint,
    classify_response,
    failure,
)
from hubbub.protocol.errors import SealedError
from hubbub.protocol.metric_types.base import Value
from hubbub.protocol.wire import Batch

_Result = TypeVar("_Result")


class AsyncTelemetry(BaseTelemetry):
    """Records values and delivers their noisy reports from the running event loop.

    Takes the parameters of `Telemetry`. Enter it as an asynchronous context; leaving it flushes for
    up to two seconds, and what is left stays on disk for the next start. `record` may be called
    from the loop's thread, and from others; `set_consent` from the loop's thread. A forked child
    starts anew: it has to enter the context again before its own reports are delivered.
    """

    _loop: asyncio.AbstractEventLoop | None
    _pool: ThreadPoolExecutor
    _session: aiohttp.ClientSession
    _store: ClientStore | None
    _former: bytes | None
    _task: asyncio.Task[None] | None
    _entered: bool
    _woken: bool

    def record(self, metric: str, value: Value) -> None:
        """Report a value, in noise. Returns at once and never raises (but see `development`)."""
        self._recorder.record(metric, value)
        self._wake_up()

    async def __aenter__(self) -> Self:
        """Open the disk and begin to deliver."""
        self._entered = True
        if not self._recorder.disabled:
            self._begin()
            try:
                await self._open()
            except UnavailableError as error:
                self._note_unavailable(error)
            except Exception as error:
                self._fail(error)
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Flush, then stop."""
        await self.close()

    async def flush(self, timeout: float = 10.0) -> bool:
        """Send what waits, now; return whether everything was settled within `timeout` seconds."""
        if self._task is None or self._task.done():
            return False
        return await self._hurry_until(self._settled, timeout)

    async def close(self, timeout: float = EXIT_SECONDS) -> None:
        """Send what waits, for at most `timeout` seconds and until an attempt fails, then stop.

        What is left stays on disk.
        """
        if self._task is None:
            self._shut()
            return
        try:
            if not self._task.done():
                await self._hurry_until(self._idle, timeout)
        finally:
            await self._stop()

    async def _hurry_until(self, reached: asyncio.Event, timeout: float) -> bool:
        """Send what waits, now; return whether a state was reached in time."""
        self._retry_at_once = self._hurry = True
        self._settled.clear()
        self._idle.clear()
        self._wake.set()
        try:
            async with asyncio.timeout(timeout):
                await reached.wait()
        except TimeoutError:
            return False
        finally:
            self._hurry = False
        return self._recorder.disabled is None

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
        self._encoder = RequestEncoder(self._ingest_key, self._sealer)
        self._reset_after_fork()

    def _reset_after_fork(self) -> None:
        """Set everything that a task uses; a forked child starts here too."""
        self._task = self._loop = self._store = self._former = None
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
        self._idle = asyncio.Event()  # all is on disk, and no more can be sent now
        self._entered = self._hurry = self._retry_at_once = self._woken = False

    def _begin(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="hubbub disk")
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(
                sock_connect=self._settings.connect_timeout,
                total=self._settings.connect_timeout + self._settings.read_timeout,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),  # a cookie would link batches
        )
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._deliver_for_ever(), name="hubbub")

    def _withdraw(self) -> None:
        self._wake_up()

    def _resume(self) -> None:
        if self._entered and self._task is None and not self._recorder.disabled:
            self._begin()
        self._wake_up()

    def _wake_up(self) -> None:
        loop = self._loop  # another thread may be closing
        if not self._woken and loop is not None:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop was closed, and this object not
                loop.call_soon_threadsafe(self._wake.set)

    async def _deliver_for_ever(self) -> None:
        while self._task is asyncio.current_task():  # a forked child has none, or its own
            try:
                await self._rest(await self._step())
            except UnavailableError as error:
                self._note_unavailable(error)
                await asyncio.sleep(RETRY_DISK_SECONDS)
            except ReplacedSecretError:
                await self._close_store()
            except Exception as error:  # an app must never fail because of telemetry
                self._fail(error)
                return

    async def _open(self) -> ClientStore:
        if self._store is None:
            store = await self._in_pool(lambda: self._open_store(self._former))
            if self._store is None:
                self._store = store
            else:
                store.close()
        return self._store

    async def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            self._former = store.secret
            await self._in_pool(store.close)

    def _fail(self, error: Exception) -> None:
        super()._fail(error)
        self._settled.set()
        self._idle.set()

    async def _stop(self) -> None:
        task, self._task, self._loop = self._task, None, None
        if task is None:
            return
        self._shut()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self._session.close()
        with contextlib.suppress(StateError, UnavailableError):
            store = await self._open()
            await self._in_pool(lambda: self._write(store))
        await self._close_store()
        self._pool.shutdown()

    async def _step(self) -> float:
        """Store what is pending and bring one batch to the collector; return the pause."""
        store = await self._open()
        if await self._in_pool(lambda: self._write(store)) is None:
            return RETRY_DISK_SECONDS
        if self._recorder.disabled or self._withdrawn:
            self._settled.set()
            self._idle.set()
            return IDLE_SECONDS
        hurry = self._hurry
        step = await self._in_pool(lambda: self._next_batch(store))
        if isinstance(step, float):
            if hurry and not self._recorder.pending:
                self._idle.set()
                if not self._on_disk:
                    self._settled.set()
            return step
        answer = await self._post_and_write(step.batch, store)
        self._note(answer)
        await self._in_pool(lambda: self._settle(store, step, answer))
        if hurry and answer.is_to_be_repeated:
            self._idle.set()
        return 0.0

    def _write(self, store: ClientStore) -> int | None:
        """Store what is pending (in the pool: a cancelled task can't lose it)."""
        self._woken = False
        return self._commit(store)

    async def _rest(self, seconds: float) -> None:
        """Wait until something is recorded, or flushed, and then a moment for more to come."""
        if not seconds or self._retry_at_once:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()
        if self._woken and not self._hurry:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SPOOL_SECONDS):
                    await self._wake.wait()

    async def _post_and_write(self, batch: Batch, store: ClientStore) -> Answer:
        """Try once, and store what is recorded meanwhile."""
        post = asyncio.create_task(self._post(batch, store.secret))
        try:
            while not (await asyncio.wait({post}, timeout=SPOOL_SECONDS))[0]:
                await self._in_pool(lambda: self._write(store))
            return post.result()
        finally:
            post.cancel()

    async def _post(self, batch: Batch, secret: bytes) -> Answer:
        """Try once. Never raises for anything that the network or the server does."""
        try:
            request = await self._in_pool(lambda: self._encoder.encode(batch, secret))
        except SealedError as error:
            return failure(error, time.time())
        answer = await self._attempt(request)
        if again := await self._in_pool(lambda: self._encoder.encode_again(batch, answer)):
            answer = await self._attempt(again)
        return self._encoder.interpret(answer)

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
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return failure(error, time.time())

    async def _in_pool(self, work: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


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


async def _read(content: aiohttp.StreamReader) -> bytes:
    """Return an answer's body, or so much of it as may be of interest."""
    body = b""
    while piece := await content.read(MAX_ANSWER - len(body)):
        body += piece
    return body
