"""Nothing is acknowledged that isn't stored, whatever happens to the collector or its disk."""

import contextlib
import http.client
import itertools
import resource
import signal
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hubbub.client import Batch
from hubbub.simulations import Collector
from programs import forked_collector
from service.posting import make_batch, post, records_of, send, stored_count, stored_records

_CLIENTS = 8
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class _Traffic:
    """Batches that were acknowledged, and those whose fate their clients don't know."""

    acknowledged: list[Batch] = field(default_factory=list)
    unanswered: list[Batch] = field(default_factory=list)


def test_acknowledged_batch_survives_kill_9(metrics_file, database):
    traffic = _Traffic()
    for _ in range(_ROUNDS):
        with forked_collector(metrics_file, database) as collector:
            _post_until_ended(collector, signal.SIGKILL, traffic)
            assert collector.process.wait() == -signal.SIGKILL
    assert len(traffic.unanswered) >= _ROUNDS
    _assert_counted_once_when_sent_again(traffic, metrics_file, database)


@pytest.mark.long
def test_acknowledged_batch_survives_sigterm_under_load(metrics_file, database):
    traffic = _Traffic()
    for _ in range(2):
        with forked_collector(metrics_file, database) as collector:
            _post_until_ended(collector, signal.SIGTERM, traffic)
            assert collector.process.wait() == 0
    _assert_counted_once_when_sent_again(traffic, metrics_file, database)


@pytest.mark.long
def test_only_batch_survives_kill_9_at_its_answer(metrics_file, database):
    batches = [make_batch() for _ in range(_ROUNDS)]
    for batch in batches:
        with forked_collector(metrics_file, database) as collector:
            answer = post(collector.url, batch)
            collector.process.kill()
            assert answer.status == 201
            assert collector.process.wait() == -signal.SIGKILL
    assert sorted(stored_records(database)) == sorted(_ROUNDS * records_of(batches[0]))
    _assert_counted_once_when_sent_again(_Traffic(batches), metrics_file, database)


@pytest.mark.long
def test_batch_waits_for_a_locked_store_and_is_then_stored(collector, database):
    batch = make_batch()
    with ThreadPoolExecutor(1) as pool:
        with _locked(database):
            answer = pool.submit(post, collector.url, batch)
            with pytest.raises(TimeoutError):  # an answer now would be a promise not yet kept
                answer.result(timeout=1.0)
            assert send(collector.url, "GET", "/livez").status == 200
        assert answer.result().status == 201
    assert stored_count(database) == len(batch.reports)


@pytest.mark.long
def test_batch_that_waited_at_kill_9_was_not_acknowledged(metrics_file, database):
    batch = make_batch()
    with forked_collector(metrics_file, database) as collector, ThreadPoolExecutor(1) as pool:
        with _locked(database):
            answer = pool.submit(post, collector.url, batch)
            with pytest.raises(TimeoutError):
                answer.result(timeout=0.5)
            collector.process.kill()
            with pytest.raises((ConnectionError, http.client.HTTPException)):
                answer.result()
        collector.process.wait()
    assert stored_count(database) == 0
    with forked_collector(metrics_file, database) as restarted:
        assert post(restarted.url, batch).status == 201
    assert stored_count(database) == len(batch.reports)


def test_batch_that_the_disk_refuses_is_answered_503_and_taken_later(collector, database):
    stored, refused = make_batch(), make_batch()
    assert post(collector.url, stored).status == 201
    with _full_disk(collector):
        for _ in range(2):
            answer = post(collector.url, refused)
            assert answer.status == 503
            assert int(answer.headers["Retry-After"]) > 0
            assert answer.headers.get_content_type() == "application/problem+json"
            assert answer.json["detail"]
        assert send(collector.url, "GET", "/livez").status == 200
    assert stored_count(database) == len(stored.reports)
    assert post(collector.url, refused).status == 201
    assert post(collector.url, stored).status == 200
    assert stored_count(database) == len(stored.reports) + len(refused.reports)


@pytest.mark.long
def test_refused_by_the_disk_and_then_killed_counts_once(metrics_file, database):
    refused = make_batch()
    with forked_collector(metrics_file, database) as collector:
        with _full_disk(collector):
            assert post(collector.url, refused).status == 503
        collector.process.kill()
        collector.process.wait()
    with forked_collector(metrics_file, database) as restarted:
        assert post(restarted.url, refused).status == 201
    assert stored_count(database) == len(refused.reports)


def _post_until_ended(collector: Collector, number: signal.Signals, traffic: _Traffic) -> None:
    """Post from many clients; the one that gets the 60th answer ends the collector at once."""
    answers = itertools.count(1)

    def work() -> None:
        while True:
            batch = make_batch()
            try:
                answer = post(collector.url, batch)
            except (OSError, http.client.HTTPException):
                traffic.unanswered.append(batch)
                return
            if next(answers) == 60:
                collector.process.send_signal(number)
            assert answer.status == 201
            traffic.acknowledged.append(batch)

    with ThreadPoolExecutor(_CLIENTS) as pool:
        for worker in [pool.submit(work) for _ in range(_CLIENTS)]:
            worker.result()


def _assert_counted_once_when_sent_again(
    traffic: _Traffic, metrics_file: Path, database: Path
) -> None:
    with forked_collector(metrics_file, database) as collector:
        for batch in traffic.acknowledged:
            answer = post(collector.url, batch)
            assert (answer.status, answer.json["duplicate"]) == (200, True)
        for batch in traffic.unanswered:
            assert post(collector.url, batch).status in {200, 201}
    sent = traffic.acknowledged + traffic.unanswered
    assert stored_count(database) == sum(len(batch.reports) for batch in sent)


@contextlib.contextmanager
def _locked(database: Path) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")


@contextlib.contextmanager
def _full_disk(collector: Collector) -> Iterator[None]:
    """Let the system refuse the collector's writes to files, beyond their first page."""
    process = collector.process.pid
    usual = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (4096, usual[1]))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, usual)
