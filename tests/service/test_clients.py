"""The real client and the real collector, through good times and bad."""

import contextlib
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from factories import make_metric, make_registry
from hubbub.client import Encoder, Telemetry
from hubbub.client.state import open_state
from programs import forked_collector
from service.posting import stored_count, stored_records


def test_stored_reports_bear_their_clients_cohorts(collector, database, metrics_file, tmp_path):
    folders = [tmp_path / f"client {i}" for i in range(6)]

    def report(folder: Path):
        with _telemetry(metrics_file, collector.url, folder) as telemetry:
            _record(telemetry, 10)
            assert telemetry.flush(timeout=60)

    with ThreadPoolExecutor(len(folders)) as pool:
        list(pool.map(report, folders))
    secrets = [open_state(folder, make_registry())[0] for folder in folders]
    cohorts = [Encoder(make_metric(), secret).cohort for secret in secrets]
    expected = Counter(cohorts * 10)
    assert Counter(int.from_bytes(r[:2], "little") for r in stored_records(database)) == expected


def test_waiting_reports_arrive_once_after_a_crash_of_the_collector(
    metrics_file, database, tmp_path
):
    with (
        _reserved_port() as port,
        _telemetry(metrics_file, f"http://127.0.0.1:{port}", tmp_path / "client") as telemetry,
    ):
        options = ["--port", str(port)]
        with forked_collector(metrics_file, database, options) as collector:
            _record(telemetry, 100)
            assert telemetry.flush(timeout=60)
            _record(telemetry, 40)  # under way, answered or not, when the collector is killed
            collector.process.kill()
            collector.process.wait()
        _record(telemetry, 60)
        assert not telemetry.flush(timeout=0.2)
        assert telemetry.status().waiting >= 60
        with forked_collector(metrics_file, database, options):
            assert telemetry.flush(timeout=60)
        status = telemetry.status()
    assert (status.recorded, status.delivered, status.waiting) == (200, 200, 0)
    assert status.dropped == {}
    assert stored_count(database) == 200


def _record(telemetry: Telemetry, reports: int) -> None:
    for i in range(reports):
        telemetry.record("homepage", f"page {i % 5}")


@contextlib.contextmanager
def _telemetry(metrics: Path, url: str, folder: Path) -> Iterator[Telemetry]:
    telemetry = Telemetry(metrics, url, folder, batch_size=20)
    try:
        yield telemetry
    finally:
        telemetry.close()


@contextlib.contextmanager
def _reserved_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
