"""GET /readyz: yes only as long as reports can be made durable."""

import resource

import pytest

from programs import forked_collector
from service.faults import errors_kept_in
from service.posting import make_batch, post, send, wait_until


def test_collector_is_ready_once_it_listens(collector):
    answer = send(collector.url, "GET", "/readyz")
    assert (answer.status, answer.json) == (200, {"status": "ready"})


def test_collector_with_a_full_disk_is_alive_but_not_ready_and_tells_its_log_why(
    metrics_file, database, tmp_path
):
    too_much, errors = str(10**18), tmp_path / "errors"
    options = ["--min-free-bytes", too_much]
    with errors_kept_in(errors), forked_collector(metrics_file, database, options) as collector:
        for _ in range(3):
            answer = send(collector.url, "GET", "/readyz")
            assert (answer.status, answer.json["detail"]) == (503, "not ready")
            assert int(answer.headers["Retry-After"]) > 0
        assert send(collector.url, "GET", "/livez").json == {"status": "alive"}
    reason = f"not ready: disk: fewer than min_free_bytes = {too_much} are free"
    assert errors.read_text(encoding="utf-8").count(reason) == 1


@pytest.mark.long
def test_collector_without_its_database_server_is_not_ready_until_it_is_back(
    metrics_file, postgresql, postgresql_url
):
    with forked_collector(metrics_file, postgresql_url) as collector:
        assert send(collector.url, "GET", "/readyz").status == 200
        postgresql.stop()
        wait_until(lambda: send(collector.url, "GET", "/readyz").status == 503)
        for answer in (send(collector.url, "GET", "/readyz"), post(collector.url, make_batch())):
            assert answer.status == 503
            # Strangers don't learn what it runs on and what is wrong with it.
            for word in ("socket", "connect", "postgres", "hubbub-pg"):
                assert word not in answer.body.decode().lower()
        assert send(collector.url, "GET", "/livez").status == 200
        postgresql.start()
        wait_until(lambda: send(collector.url, "GET", "/readyz").status == 200)
        assert post(collector.url, make_batch()).status == 201


def test_limit_of_open_files_is_raised_for_the_connections(metrics_file, database):
    ours, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))  # which the collector inherits
    try:
        with forked_collector(metrics_file, database, ["--max-connections", "700"]) as collector:
            soft, _ = resource.prlimit(collector.process.pid, resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (ours, hard))
    assert soft >= 700
