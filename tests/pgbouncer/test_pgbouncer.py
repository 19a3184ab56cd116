"""A store behind PgBouncer: in session mode all works."""

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa

from hubbub.simulations import running_collector
from hubbub.storage import open_store
from pgbouncer.pools import pooled
from service.commands import run_collector_command
from service.loads import Accounts, Load, assert_delivered, send_all_again

_DROPPED = ", ".join(
    [
        "statement_timeout",
        "default_transaction_read_only",
        "idle_in_transaction_session_timeout",
        "plan_cache_mode",
    ]
)
"""What administrators let PgBouncer drop, so that clients which send it may connect."""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_collector_works_by_session(metrics_file, postgresql_url, workers):
    accounts = Accounts()
    with (
        pooled(postgresql_url, "session") as pool,
        running_collector(metrics_file, pool.url, ["--workers", workers]) as collector,
    ):
        with Load(collector.url, accounts, connections=16) as load:
            for _ in range(3):
                load.wait_for(100)
                assert _run("maintain", "--store", pool.url).startswith("merged ")
            load.finish()
        assert set(send_all_again(collector.url, accounts.made[:100])) == {200}
        assert_delivered(pool.url, accounts)


def test_nothing_is_lost_or_doubled_when_the_pooler_is_killed_and_comes_back(
    metrics_file, postgresql_url
):
    accounts = Accounts()
    with (
        pooled(postgresql_url, "session") as pool,
        running_collector(metrics_file, pool.url) as collector,
    ):
        with Load(collector.url, accounts) as load:
            load.wait_for(50)
            pool.kill()
            load.wait_for_status(503)
            pool.start()
            load.wait_for(50)
            load.finish()
        assert_delivered(postgresql_url, accounts)


@pytest.mark.parametrize("dropped", ["", _DROPPED])
@pytest.mark.parametrize("create", [True, False], ids=["collector", "reader"])
def test_sessions_have_their_settings_whatever_pgbouncer_drops(postgresql_url, create, dropped):
    async def settings() -> list[str]:
        async with open_store(postgresql_url, create=True):
            pass
        with pooled(postgresql_url, "session", ignore_startup_parameters=dropped) as pool:
            async with (
                open_store(pool.url, create=create) as store,
                store.database.read() as session,
            ):
                names = ["transaction_isolation", "default_transaction_read_only"]
                names += ["statement_timeout"]
                return [str(await session.scalar(sa.text(f"SHOW {name}"))) for name in names]

    assert asyncio.run(settings()) == ["repeatable read", "off" if create else "on", "10s"]


def test_statement_mode_is_refused_with_the_reason(metrics_file, postgresql_url):
    with pooled(postgresql_url, "statement") as pool:
        assert "statement pooling mode" in _serve(metrics_file, pool.url)


def _serve(metrics: Path, url: str) -> str:
    command = ["serve", "--metrics", str(metrics), "--store", url, "--port", "0"]
    done = run_collector_command(*command)
    assert done.returncode == 1
    assert "listening" not in done.stdout
    return done.stderr


def _run(*arguments: str) -> str:
    done = run_collector_command(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout
