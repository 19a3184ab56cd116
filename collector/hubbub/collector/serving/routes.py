"""The routes that take no reports: an orchestrator's probes, the switch's file, openapi.json.

Strangers may ask for all of them, so each answers from memory and never asks the store.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from importlib.resources import files as resources
from pathlib import Path

from aiohttp import web

from hubbub.collector.config import Settings
from hubbub.collector.ingest.commit import GroupCommit
from hubbub.collector.problems import Answer, RefusalError, problem
from hubbub.collector.serving.app import Handler, Routes
from hubbub.protocol import MOST_BYTES, SwitchError, SwitchFile
from hubbub.storage import Store, StoreError

_LOOK_SECONDS = 1.0  # however many probes ask, the store is asked once a second
_PATIENCE_SECONDS = 5.0  # for the store's answer, which takes milliseconds
_HANGS_SECONDS = 30.0  # a look takes up to _PATIENCE_SECONDS, and longer on a busy machine
_NOT_READY = "not ready"
"""Strangers read this: why is in the log and in the metrics."""

_log = logging.getLogger("hubbub.collector")

_PREFLIGHT = Answer(
    200,
    b"",
    fields=(
        ("Access-Control-Allow-Methods", "POST"),
        ("Access-Control-Allow-Headers", "Authorization, Content-Type"),
        ("Access-Control-Max-Age", "86400"),
    ),
)


def fixed(answer: Answer) -> Mapping[str, Handler]:
    """Return the methods of a path that always answers the same."""

    async def get(_request: web.BaseRequest) -> Answer:
        return answer

    return {"GET": get, "HEAD": get}


async def preflight(_request: web.BaseRequest) -> Answer:
    """Answer a browser that asks whether a page may send."""
    return _PREFLIGHT


async def refuse_for_now(_request: web.BaseRequest) -> Answer:
    """Answer while there is no store yet (raises RefusalError: 503)."""
    raise RefusalError(503, "store", _NOT_READY, retry_after=_PATIENCE_SECONDS)


OPENAPI = fixed(Answer(200, resources("hubbub.collector").joinpath("openapi.json").read_bytes()))
_ALIVE = Answer(200, b'{"status": "alive"}')
NOT_READY: Routes = {
    "/livez": fixed(_ALIVE),
    "/readyz": {"GET": refuse_for_now, "HEAD": refuse_for_now},
}
"""The probes of a collector that waits for its store."""


class Probes:
    """Answers GET /livez and GET /readyz.

    Orchestrators ask every few seconds, and anyone may, so an answer is what `watch` found out last
    and no more than yes or no. It may be asked from any thread, so also while the event loop that
    takes reports is busy. The reason is logged when it changes. `draining`: set it to be ready no
    more.
    """

    def __init__(self, settings: Settings, store: Store, commit: GroupCommit) -> None:
        self.draining = False
        self.routes: Routes = {
            "/livez": {"GET": self._get_livez, "HEAD": self._get_livez},
            "/readyz": {"GET": self._get_readyz, "HEAD": self._get_readyz},
        }
        self._settings = settings
        self._store = store
        self._commit = commit
        self._reason: str | None = None
        self._looked_at = time.monotonic()

    async def watch(self) -> None:
        """Look once a second, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Find out whether reports can be taken."""
        reason = await self._ask()
        if reason != self._reason:
            _log.warning("ready again" if reason is None else f"not ready: {reason}")
        self._reason, self._looked_at = reason, time.monotonic()

    @property
    def _hangs(self) -> bool:
        return time.monotonic() - self._looked_at > _HANGS_SECONDS

    async def _get_livez(self, _request: web.BaseRequest) -> Answer:
        return problem(503, "hangs") if self._hangs else _ALIVE

    async def _get_readyz(self, _request: web.BaseRequest) -> Answer:
        if self.draining or self._reason is not None or self._hangs:
            return problem(503, _NOT_READY, retry_after=self._settings.retry_after_seconds)
        return Answer(200, b'{"status": "ready"}')

    async def _ask(self) -> str | None:
        """Return None, or why reports can't be taken."""
        # After a pause a refusal counts no more: only new reports can show whether the store takes
        # them again, and an instance that isn't ready gets none.
        if time.monotonic() - self._commit.refused_at < self._settings.retry_after_seconds:
            return "store: refuses reports"
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._store.ping()
        except (StoreError, TimeoutError):
            return "store: can't be reached"
        return None


def read_switch(path: Path, application: str) -> bytes:
    """Return the bytes of a switch's file.

    Raises `SwitchError` if it can't be read, isn't a switch that is obeyed now, or is another
    application's.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        SwitchFile.parse(data).check(application, None, time.time())
    except OSError as error:
        raise SwitchError(f"{path}: {error.strerror or error}") from error
    except SwitchError as error:
        raise SwitchError(f"{path}: {error}") from error
    return data
