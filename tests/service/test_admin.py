"""The admin listener: for operators with a token that allows what they ask, and for nobody else."""

import base64
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from factories import make_metric, registry_toml
from hubbub.collector import generate_secret
from hubbub.simulations import Collector
from programs import forked_collector
from service.faults import workers_of
from service.posting import Answer, make_batch, post, send, wait_until, wait_until_published

_TOKEN, _HASH = generate_secret("admin")
_CONFIG = f'''admin_port = 0
publish_seconds = 0.2
[admin_tokens.ops]
sha256 = "{_HASH}"
'''
_PATHS = ("/", "/status.json", "/metrics")


class Served(NamedTuple):
    """A collector and the address of its admin listener."""

    collector: Collector
    admin: str

    def ask(self, path: str) -> Answer:
        return send(self.admin, "GET", path, headers={"Authorization": f"Bearer {_TOKEN}"})

    def counted(self, family: str, **labels: str) -> float:
        """Return a number that Prometheus would read."""
        body = self.ask("/metrics").body.decode()
        return sum(
            sample.value
            for found in text_string_to_metric_families(body)
            for sample in found.samples
            if sample.name == family and labels.items() <= sample.labels.items()
        )


_EITHER = [
    pytest.param(1, id="alone"),
    pytest.param(2, id="two workers", marks=pytest.mark.long),
]
_WORKERS = pytest.mark.parametrize("workers", _EITHER)


@contextmanager
def serving(workers: int, metrics: Path, database: Path) -> Iterator[Served]:
    config = database.with_name("collector.toml")
    config.write_text(f"workers = {workers}\n{_CONFIG}", encoding="utf-8")
    with forked_collector(metrics, database, ["--config", str(config)]) as collector:
        served = Served(collector, collector.read_admin_url())
        wait_until_published(served.admin, _TOKEN)
        yield served


@pytest.fixture
def served(workers, metrics_file, database) -> Iterator[Served]:
    with serving(workers, metrics_file, database) as running:
        yield running


@pytest.fixture(scope="module", params=_EITHER)
def empty(request, tmp_path_factory) -> Iterator[Served]:
    """Serve a store that stays empty, for all tests that send no reports."""
    folder = tmp_path_factory.mktemp("empty")
    metrics = folder / "metrics.toml"
    metrics.write_text(registry_toml(), encoding="utf-8")
    with serving(request.param, metrics, folder / "hubbub.db") as running:
        yield running


def test_each_path_opens_to_a_token_alone_which_a_browser_may_send_as_a_password(empty):
    pair = base64.b64encode(f"operator:{_TOKEN}".encode()).decode()
    for path in _PATHS:
        for header in ({}, {"Authorization": "Bearer guess"}):
            stranger = send(empty.admin, "GET", path, headers=header)
            assert stranger.status == 401
            challenges = stranger.headers.get_all("WWW-Authenticate") or []
            assert [it.split()[0] for it in challenges] == ["Bearer", "Basic"]
        assert empty.ask(path).status == 200
        basic = {"Authorization": f"Basic {pair}"}
        assert send(empty.admin, "GET", path, headers=basic).status == 200
        assert send(empty.admin, "DELETE", path, headers=basic).status == 405


def test_credentials_that_are_no_text_are_refused_like_wrong_ones(empty):
    for header in ("Basic \xe9", "Basic ////", "Basic", "Bearer \xe9"):
        assert send(empty.admin, "GET", "/", headers={"Authorization": header}).status == 401


@_WORKERS
def test_numbers_are_those_of_what_was_sent_by_whichever_worker(served):
    url = served.collector.url
    batches = [make_batch(3) for _ in range(20)]
    for batch in (*batches, *batches[:4]):
        assert post(url, batch).status in {200, 201}
    for _ in range(3):
        assert post(url, b"not json").status == 400
    wait_until(lambda: served.counted("hubbub_request_seconds_count") == 27)
    assert served.counted("hubbub_reports_total", metric="homepage") in {0, 100}
    assert served.counted("hubbub_requests_total", status="201", reason="stored") == 20
    assert served.counted("hubbub_requests_total", status="200", reason="duplicate") == 4
    assert served.counted("hubbub_requests_total", status="400", reason="malformed") == 3
    wait_until(lambda: served.counted("hubbub_upkeep_runs_total", task="merge") >= 1)
    status = served.ask("/status.json").json
    assert status["reports"] == 60


@_WORKERS
def test_numbers_do_not_go_back_when_a_worker_is_killed(served):
    for _ in range(10):
        assert post(served.collector.url, make_batch(2)).status == 201
    wait_until(lambda: served.counted("hubbub_commit_seconds_count") >= 10)
    if workers := workers_of(served.collector):
        os.kill(workers[0], signal.SIGKILL)
        wait_until(lambda: set(workers) != set(workers_of(served.collector)))
        assert served.counted("hubbub_commit_seconds_count") == 10


def test_answers_are_kept_to_the_reader(empty):
    for path in (*_PATHS, "/nothing"):
        headers = empty.ask(path).headers
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert empty.ask("/nothing").headers.get_content_type() == "application/problem+json"


def test_free_space_is_published(empty):
    wait_until(lambda: empty.ask("/status.json").json["stored_at"] is not None)
    free = empty.ask("/status.json").json["store_free_bytes"]
    assert free > 0
    assert free % 2**20 == 0
    assert empty.counted("hubbub_store_free_bytes") == pytest.approx(free, rel=0.5)
    assert " free</dd>" in empty.ask("/").body.decode()


def test_nothing_of_the_public_routes_is_on_the_admin_listener_and_the_reverse(empty):
    assert send(empty.collector.url, "GET", "/metrics").status == 404
    assert send(empty.collector.url, "GET", "/status.json").status == 404
    assert post(empty.admin, make_batch()).status in {401, 404, 413}


@_WORKERS
def test_new_metric_is_on_the_page_after_a_hangup(served, metrics_file):
    metrics_file.write_text(registry_toml(make_metric(), make_metric("search")), encoding="utf-8")
    assert "search" not in served.ask("/").body.decode()
    served.collector.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "search" in served.ask("/").body.decode())
