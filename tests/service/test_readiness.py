"""GET /readyz: yes only as long as reports can be made durable."""

import os
import resource
import signal
import socket
import time
from contextlib import closing
from pathlib import Path

import pytest

from hubbub.simulations import Collector, serve_arguments
from programs import forked_collector, run, start
from service.faults import errors_kept_in
from service.posting import make_batch, post, send, stored_count, wait_until


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


def test_collector_waits_for_a_server_that_is_away_or_recovers_and_says_so(
    metrics_file, postgresql, postgresql_url, tmp_path
):
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = str(free.getsockname()[1])
    url, errors = f"http://127.0.0.1:{port}", tmp_path / "errors"
    postgresql.stop()
    options = ["--port", port]
    with errors_kept_in(errors):
        process = start("hubbub.collector", *serve_arguments(metrics_file, postgresql_url, options))
    with process:
        try:
            wait_until(lambda: _status(url, "/readyz") == 503)
            assert _status(url, "/livez") == 200
            assert post(url, make_batch()).status == 503
            (postgresql.data / "standby.signal").touch()
            os.chown(postgresql.data / "standby.signal", postgresql.data.stat().st_uid, -1)
            postgresql.start()
            wait_until(lambda: "takes no writes" in errors.read_text(encoding="utf-8"))
            assert _status(url, "/readyz") == 503
            postgresql.execute("SELECT pg_promote()")
            assert process.stdout
            assert process.stdout.readline() == f"listening on {url}\n"
            assert _status(url, "/readyz") == 200
            assert post(url, make_batch()).status == 201
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
    assert errors.read_text(encoding="utf-8").count("waiting: store ") >= 2


def _status(url: str, path: str) -> int:
    try:
        return send(url, "GET", path).status
    except OSError:
        return 0


def test_second_collector_of_an_sqlite_file_is_refused_until_the_first_has_ended(
    metrics_file, database
):
    options = ["--workers", "2"]
    with forked_collector(metrics_file, database, options) as collector:
        assert post(collector.url, make_batch()).status == 201
        link = database.with_name("link.db")
        link.symlink_to(database)
        for path in (database, link):
            refused = run("hubbub.collector", *serve_arguments(metrics_file, path, options))
            assert refused.returncode == 1
            assert "another collector serves it" in refused.stderr
        assert (
            run("hubbub.collector", "maintain", "--store", f"sqlite:///{database}").returncode == 0
        )
        assert stored_count(database) == 3
        _kill(collector)
    with forked_collector(metrics_file, database) as collector:
        assert post(collector.url, make_batch()).status == 201
    with forked_collector(metrics_file, database):
        assert stored_count(database) == 6


def _kill(collector: Collector) -> None:
    collector.process.kill()
    collector.process.wait()


def test_workers_whose_supervisor_dies_while_they_start_end_silently(
    metrics_file, database, tmp_path
):
    errors = tmp_path / "errors"
    with errors_kept_in(errors):
        process = start(
            "hubbub.collector", *serve_arguments(metrics_file, database, ["--workers", "2"])
        )
    with process:
        try:
            wait_until(lambda: len(_workers(process.pid)) == 2)
            workers = _workers(process.pid)
            time.sleep(0.1)  # they read what to do, then import for longer than that
        finally:
            process.kill()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    assert "Traceback" not in errors.read_text(encoding="utf-8")


def _workers(pid: int) -> list[str]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        commands = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    except FileNotFoundError:
        return []
    return [child for child, it in zip(children, commands, strict=True) if b"import work" in it]
