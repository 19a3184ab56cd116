"""The disk fails and recovers under load: refusals meanwhile, nothing lost, no restart needed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hubbub.simulations import Collector, running_collector
from service.faults import full_disk, processes_of, status_of
from service.loads import Accounts, Load, stored_in
from service.posting import make_batch, post, send, wait_until

pytestmark = pytest.mark.long

_ROUNDS = 2


@pytest.fixture
def store_folder(tmp_path) -> Path:
    """Make a folder that holds nothing but the store."""
    folder = tmp_path / "store"
    folder.mkdir()
    return folder


@pytest.fixture
def alone(metrics_file, store_folder) -> Iterator[Collector]:
    """Serve into that folder."""
    with running_collector(metrics_file, store_folder / "hubbub.db") as running:
        yield running


@pytest.mark.parametrize("workers", ["1", "2"])
def test_full_disk_is_survived_under_load(metrics_file, sqlite_url, workers):
    accounts = Accounts()
    options = ["--workers", workers, "--upkeep-seconds", "0.2"]
    with (
        running_collector(metrics_file, sqlite_url, options) as collector,
        Load(collector.url, accounts, connections=4) as load,
    ):
        load.wait_for(20)
        processes = processes_of(collector)
        for _ in range(_ROUNDS):
            with full_disk(collector):
                load.wait_for_status(503, 50)
                assert status_of(collector, "/livez") == 200
                wait_until(lambda: status_of(collector, "/readyz") == 503)
                accounts.assert_kept(stored_in(sqlite_url))
            load.wait_for(20)
            wait_until(lambda: status_of(collector, "/readyz") == 200)
        load.finish()
        assert processes_of(collector) == processes
    accounts.assert_all_counted_once(stored_in(sqlite_url))


def test_readyz_says_that_the_store_refuses_until_it_is_worth_another_try(metrics_file, database):
    with running_collector(metrics_file, database, ["--retry-after-seconds", "2"]) as collector:
        with full_disk(collector):
            wait_until(lambda: _is_not_ready_after_a_refusal(collector))
        # An orchestrator that sends nothing to who isn't ready must not wait for ever.
        wait_until(lambda: status_of(collector, "/readyz") == 200)
        assert post(collector.url, make_batch()).status == 201


def test_a_folder_that_vanishes_for_a_while_fails_readyz_and_nothing_is_lost(alone, store_folder):
    accounts = Accounts()
    elsewhere = store_folder.with_name("elsewhere")
    with Load(alone.url, accounts, connections=4) as load:
        load.wait_for(20)
        store_folder.rename(elsewhere)
        wait_until(lambda: status_of(alone, "/readyz") == 503)
        assert status_of(alone, "/livez") == 200
        elsewhere.rename(store_folder)
        load.wait_for(20)
        load.finish()
    wait_until(lambda: status_of(alone, "/readyz") == 200)
    accounts.assert_all_counted_once(stored_in(f"sqlite:///{store_folder / 'hubbub.db'}"))


def _is_not_ready_after_a_refusal(collector: Collector) -> bool:
    assert post(collector.url, make_batch()).status == 503
    answer = send(collector.url, "GET", "/readyz")
    # Where the machine stalled in between, it is worth another try already.
    return answer.status == 503 and int(answer.headers["Retry-After"]) > 0
