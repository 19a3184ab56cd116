"""What a store in PostgreSQL sends to append to the open day: seen, and meddled with, by tests."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import pytest
import sqlalchemy as sa

Listener = Callable[[asyncpg.Connection, str, tuple[Any, ...]], Awaitable[None]]
"""Called with a connection, a statement and its values. It may use the connection (`fetchval`)."""

STORES_IDS = "INSERT INTO batch_ids"
"""Part of the statement that stores ids; what stores reports comes next, with COMMIT."""


async def _pass(_connection: asyncpg.Connection, _sql: str, _values: tuple[Any, ...]) -> None:
    """Do nothing."""


@contextmanager
def listening_to_appends(before: Listener = _pass, after: Listener = _pass) -> Iterator[None]:
    """Call listeners before and after each statement that isn't SQLAlchemy's."""

    def listened_to(send: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def send_and_tell(connection: asyncpg.Connection, sql: str, *values: Any) -> Any:
            await before(connection, sql, values)
            answer = await send(connection, sql, *values)
            await after(connection, sql, values)
            return answer

        return send_and_tell

    with pytest.MonkeyPatch.context() as patch:
        for name in ("execute", "fetch", "fetchrow"):
            sent = getattr(asyncpg.Connection, name)
            patch.setattr(asyncpg.Connection, name, listened_to(sent))
        yield


@contextmanager
def listening(event: str, listener: Any, target: type = sa.Engine) -> Iterator[None]:
    """Call a listener at each of SQLAlchemy's events of a name."""
    sa.event.listen(target, event, listener)
    try:
        yield
    finally:
        sa.event.remove(target, event, listener)
