"""Collectors with several processes are killed at random moments: each report counts once."""

import os
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

import pytest

from hubbub.simulations import Collector
from programs import forked_collector
from service.faults import is_alive, kill, processes_of, status_of, workers_of
from service.loads import Accounts, Load, send_all_again, stored_in
from service.posting import accepts_connections, wait_until

KILLS = int(os.environ.get("HUBBUB_KILLS", "1"))
pytestmark = [pytest.mark.long_on_postgresql, pytest.mark.timeout(300 + 30 * KILLS)]

_BATCHES = 20
_LONGEST_WAIT = 0.3
_PAUSE = 0.1  # after a kill, between batches: new processes take a second of CPU to start
_LONGER_THAN_ANY_WORKER_MAY_BE_SILENT = 6.0
_TWO_WORKERS = ["--workers", "2", "--upkeep-seconds", "0.2"]


def test_killed_worker_is_replaced_and_nothing_is_lost_or_doubled(metrics_file, any_store_url):
    chance = random.Random(1)  # noqa: S311
    with _collector_under_load(metrics_file, any_store_url) as (collector, load, accounts):
        for _ in range(KILLS):
            _wait_for_a_random_moment(load, chance)
            before = set(workers_of(collector))
            kill(chance.choice(sorted(before)))
            load.pause = _PAUSE
            load.wait_for(_BATCHES)
            assert status_of(collector, "/livez") == 200
            _wait_for_one_new(collector, before)
        load.finish()
        accounts.assert_all_counted_once(stored_in(any_store_url))
        assert set(send_all_again(collector.url, accounts.made)) == {200}
    accounts.assert_all_counted_once(stored_in(any_store_url))


@pytest.mark.long
def test_a_stopped_worker_is_replaced_and_its_connections_are_closed(metrics_file, sqlite_url):
    with _collector_under_load(metrics_file, sqlite_url) as (collector, load, accounts):
        load.wait_for(_BATCHES)
        before = set(workers_of(collector))
        stopped = min(before)
        os.kill(stopped, signal.SIGSTOP)
        with ThreadPoolExecutor(20) as pool:
            # Half of the probes reach the stopped one; it is killed before they have waited long.
            answers = list(pool.map(lambda _: _probe(collector), range(20)))
        assert set(answers) <= {200, None}
        assert 200 in answers
        _wait_for_one_new(collector, before)
        assert not is_alive(stopped)
        assert [_probe(collector) for _ in range(20)] == [200] * 20
        load.wait_for(_BATCHES)
        load.finish()
        accounts.assert_all_counted_once(stored_in(sqlite_url))


@pytest.mark.long
def test_collector_that_was_stopped_as_a_whole_goes_on_with_the_same_workers(
    metrics_file, sqlite_url
):
    with forked_collector(metrics_file, sqlite_url, _TWO_WORKERS) as collector:
        processes = processes_of(collector)
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(_LONGER_THAN_ANY_WORKER_MAY_BE_SILENT)
        for pid in processes:
            os.kill(pid, signal.SIGCONT)
        assert [_probe(collector) for _ in range(20)] == [200] * 20
        time.sleep(_LONGEST_WAIT)
        assert processes_of(collector) == processes


@pytest.mark.long
def test_workers_of_a_killed_supervisor_end_and_nothing_is_lost_or_doubled(
    metrics_file, any_store_url
):
    chance = random.Random(2)  # noqa: S311
    _kill_again_and_again(metrics_file, any_store_url, chance, only_supervisor=True)


def test_all_processes_killed_at_once_lose_and_double_nothing(metrics_file, any_store_url):
    chance = random.Random(3)  # noqa: S311
    _kill_again_and_again(metrics_file, any_store_url, chance, only_supervisor=False)


def _kill_again_and_again(
    metrics: Path, store: str, chance: random.Random, *, only_supervisor: bool
) -> None:
    """Kill collector after collector on one store, while clients go on and on."""
    accounts = Accounts()
    with Load("http://127.0.0.1:1", accounts) as load:
        for _ in range(KILLS):
            with forked_collector(metrics, store, _TWO_WORKERS) as collector:
                load.url = collector.url
                _wait_for_a_random_moment(load, chance)
                processes = processes_of(collector)
                kill(*(processes[:1] if only_supervisor else processes))
                load.pause = _PAUSE
                collector.process.wait()
                _wait_until_gone(collector, processes)
            accounts.assert_kept(stored_in(store))
        with forked_collector(metrics, store, _TWO_WORKERS) as collector:
            load.url = collector.url
            load.finish()
            accounts.assert_all_counted_once(stored_in(store))
            assert set(send_all_again(collector.url, accounts.made)) == {200}
    accounts.assert_all_counted_once(stored_in(store))


@contextmanager
def _collector_under_load(metrics: Path, store: str) -> Iterator[tuple[Collector, Load, Accounts]]:
    accounts = Accounts()
    with (
        forked_collector(metrics, store, _TWO_WORKERS) as collector,
        Load(collector.url, accounts) as load,
    ):
        yield collector, load, accounts


def _wait_for_a_random_moment(load: Load, chance: random.Random) -> None:
    load.pause = 0.0
    load.wait_for(_BATCHES)
    time.sleep(chance.uniform(0.0, _LONGEST_WAIT))


def _wait_until_gone(collector: Collector, processes: list[int]) -> None:
    wait_until(lambda: not any(map(is_alive, processes)))
    wait_until(lambda: not accepts_connections(collector.url))


def _probe(collector: Collector) -> int | None:
    try:
        return status_of(collector, "/livez")
    except (ConnectionError, HTTPException):
        return None


def _wait_for_one_new(collector: Collector, before: set[int]) -> None:
    def is_one_new() -> bool:
        now = workers_of(collector)
        return len(now) == len(before) and set(now) != before

    wait_until(is_one_new)
