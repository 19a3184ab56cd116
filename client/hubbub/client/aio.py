"""Telemetry for asyncio apps that use aiohttp: `async with AsyncTelemetry(...) as telemetry`.

The same recording, ledger and outbox as `Telemetry`, driven by one task of the app's event loop
instead of threads; the disk is used in a worker thread, so that the loop never waits for it. Needs
the extra: pip install 'hubbub[aiohttp]'.
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

from hubbub.client.base import BaseTelemetry
from hubbub.client.disk import Disk
from hubbub.client.errors import BusyError, StateError
from hubbub.client.kinds import Value
from hubbub.client.outbox import Parcel
from hubbub.client.transport import (
    MAX_ANSWER,
    UNREACHABLE,
    Answer,
    check_endpoint,
    encode_request,
    judge,
)

_EXIT_SECONDS = 2.0
_RETRY_DISK_SECONDS = 5.0
_SPOOL_SECONDS = 1.0  # a killed app loses at most what it recorded so long ago
_Result = TypeVar("_Result")


class AsyncTelemetry(BaseTelemetry):
    """Records values and delivers their noisy reports from the running event loop.

    Takes the parameters of `Telemetry`. Enter it as an asynchronous context; leaving it flushes for
    up to two seconds, and what is left stays on disk for the next start. `record` may be called
    from the loop's thread, and from others.
    """

    _loop: asyncio.AbstractEventLoop | None
    _pool: ThreadPoolExecutor
    _session: aiohttp.ClientSession
    _disk: Disk
    _task: asyncio.Task[None] | None
    _woken: bool

    def record(self, metric: str, value: Value) -> None:
        """Report a value, in noise. Returns at once and never raises (but see `development`)."""
        self._intake.take(metric, value)
        loop = self._loop  # another thread may be closing
        if not self._woken and loop is not None:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop was closed, and this object not
                loop.call_soon_threadsafe(self._wake.set)

    async def __aenter__(self) -> Self:
        """Open the disk and begin to deliver."""
        if not self._intake.disabled:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="hubbub disk")
            try:
                self._disk = await self._in_pool(self._open_disk)
            except StateError as error:
                self._intake.disable(str(error))
                self._pool.shutdown(wait=False)
            else:
                self._session = aiohttp.ClientSession(
                    timeout=aiohttp.ClientTimeout(
                        sock_connect=self._settings.connect_timeout,
                        total=self._settings.connect_timeout + self._settings.read_timeout,
                    ),
                    cookie_jar=aiohttp.DummyCookieJar(),  # a cookie would link batches
                )
                self._loop = asyncio.get_running_loop()
                self._task = asyncio.create_task(self._deliver_for_ever(), name="hubbub")
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Flush, then stop."""
        await self.close()

    async def flush(self, timeout: float = 10.0) -> bool:
        """Send what waits, now; return whether everything was settled within `timeout` seconds."""
        if self._task is None or self._task.done():
            return False
        self._rush = self._hurry = True
        self._settled.clear()
        self._wake.set()
        try:
            async with asyncio.timeout(timeout):
                await self._settled.wait()
        except TimeoutError:
            return False
        finally:
            self._hurry = False
        return self._intake.disabled is None

    async def close(self, timeout: float = _EXIT_SECONDS) -> None:
        """Flush for at most `timeout` seconds, then stop; what is left stays on disk."""
        if self._task is None:
            return
        try:
            await self.flush(timeout)
        finally:
            await self._stop()

    async def forget(self) -> str:
        """Delete this client's secret, ledger and unsent reports; return what that means.

        Raises
        ------
        StateError
            If a file can't be removed.
        """
        await self.close(0)
        return await asyncio.to_thread(self._forget)

    def _prepare(self) -> None:
        self._url = check_endpoint(self._endpoint)
        self._task = self._loop = None
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
        self._hurry = self._rush = self._woken = False

    async def _deliver_for_ever(self) -> None:
        try:
            while True:
                await self._rest(await self._step())
        except StateError as error:
            self._intake.disable(str(error))
            self._intake.drop("disabled", len(self._intake.drain()))
            self._settled.set()

    async def _stop(self) -> None:
        task, self._task, self._loop = self._task, None, None
        if task is None:
            return
        self._intake.disabled = self._intake.disabled or "closed"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self._session.close()
        with contextlib.suppress(StateError):
            await self._in_pool(self._write)
        await self._in_pool(self._disk.close)
        self._pool.shutdown()

    async def _step(self) -> float:
        """Bring what is pending to the disk and one parcel to the collector; return the pause."""
        if not await self._in_pool(self._write):
            return _RETRY_DISK_SECONDS
        try:
            return await self._deliver()
        except BusyError:
            return _RETRY_DISK_SECONDS  # busy, or the disk is full

    async def _deliver(self) -> float:
        disk, hurry = self._disk, self._hurry
        if self._rush:
            self._rush = False
            disk.courier.rush()
        step = await self._in_pool(lambda: disk.courier.next(hurry=hurry))
        self._count(disk.outbox)
        if not isinstance(step, Parcel):
            if hurry and not self._intake.pending and not await self._in_pool(disk.outbox.waiting):
                self._settled.set()
            return step
        answer = await self._post_and_write(step.body)
        settled = await self._in_pool(lambda: disk.courier.settle(step, answer))
        self._count(disk.outbox, settled)
        return 0.0

    def _write(self) -> bool:
        """Bring what is pending to the disk (in the pool: a cancelled task can't lose it)."""
        self._woken = False
        entries = self._intake.drain()
        return not entries or self._absorb(self._disk, entries)

    async def _rest(self, seconds: float) -> None:
        """Wait until something is recorded, or flushed, and then a moment for more to come."""
        if not seconds or self._rush:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()
        if self._woken and not self._hurry:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SPOOL_SECONDS):
                    await self._wake.wait()

    async def _post_and_write(self, body: bytes) -> Answer:
        """Try once, and bring to the disk what is recorded until that has come to something."""
        post = asyncio.create_task(self._post(body))
        try:
            while not (await asyncio.wait({post}, timeout=_SPOOL_SECONDS))[0]:
                await self._in_pool(self._write)
            return post.result()
        finally:
            post.cancel()

    async def _post(self, body: bytes) -> Answer:
        """Try once. Never raises for anything that the network or the server does."""
        data, headers = encode_request(body, self._ingest_key)
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
                return judge(response.status, response.headers, answer, time.time())
        except (aiohttp.ClientError, OSError, ValueError):
            return UNREACHABLE

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
