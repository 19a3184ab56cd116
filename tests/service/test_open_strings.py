"""Open strings over real HTTP: reports depend on their client's part of a value, and arrive."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evaluation.reference import protocol
from factories import make_metric, make_params, make_registry, registry_toml
from hubbub.client import Encoder, Metric, Telemetry
from hubbub.client.state import open_state
from hubbub.protocol import OpenStringType
from programs import forked_collector
from service.commands import collector_output
from service.posting import stored_records

STEPS = [4, 7]
COHORTS = 21_845
# Hardly any noise, so that stored bits are the true ones.
PARAMS = make_params(f=1e-12, p=1e-12, q=1 - 1e-12)
TYPE = OpenStringType(tuple(STEPS), COHORTS)
WORDS = make_metric("words", metric_type=TYPE, params=PARAMS)
VISITS = make_metric("visits", metric_type=TYPE, params=PARAMS, period_days=3650)
VALUES = ["example.com", "exam", "ex", "", "Zu\u0308rich \u65e5\u672c", "a\0b"]


def expected_record(value: str, cohort: int) -> bytes:
    """Return the record without noise, by the plain implementation of the protocol."""
    step, in_step = divmod(cohort, COHORTS)
    hashed = protocol.open_string_bytes(value, step, STEPS)
    number = protocol.open_string_cohort(in_step, step, STEPS, COHORTS)
    positions = protocol.hashed_positions(hashed, number, PARAMS.k, 1)
    return cohort.to_bytes(2, "little") + protocol.bits_to_bytes(positions, PARAMS.k)


@pytest.fixture
def metrics(tmp_path) -> Path:
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(WORDS, VISITS), encoding="utf-8")
    return path


def test_stored_reports_are_of_each_clients_part_in_its_cohort(metrics, database, tmp_path):
    """24 clients, 4 of each value; 65,535 cohorts, of which some only two bytes can number.

    P(false failure) < 1e-6: 72 reports of 128 bits, two lanes in 1e12 wrong (2e-8), and all
    lasting cohorts at one step or below 256 (2e-11).
    """
    clients = {tmp_path / f"client {i}": VALUES[i % len(VALUES)] for i in range(24)}
    with forked_collector(metrics, database) as collector:

        def report(folder: Path):
            with Telemetry(metrics, collector.url, folder) as telemetry:
                telemetry.record("words", clients[folder])
                telemetry.record("words", clients[folder])
                telemetry.record("visits", "example.com")
                assert telemetry.flush(timeout=60)
            assert telemetry.status().delivered == 3

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(report, clients))
    cohorts = {folder: lasting_cohort(folder) for folder in clients}
    assert len({cohort // COHORTS for cohort in cohorts.values()}) > 1
    assert max(cohorts.values()) > 255
    expected = Counter(expected_record(value, cohorts[f]) for f, value in clients.items())
    stored = Counter(stored_records(database, WORDS))
    assert stored == Counter({record: 2 * times for record, times in expected.items()})
    drawn = stored_records(database, VISITS)
    assert len(drawn) == 24
    for record in drawn:
        cohort = int.from_bytes(record[:2], "little")
        assert record == expected_record("example.com", cohort)
    assert_export_and_import_keep(metrics, database, tmp_path)


def lasting_cohort(folder: Path) -> int:
    return Encoder(WORDS, open_state(folder, make_registry(WORDS, VISITS)).secret).cohort


def assert_export_and_import_keep(metrics: Path, database: Path, folder: Path) -> None:
    moved = folder / "moved.db"
    collector_output("export", "--store", f"sqlite:///{database}", "--to", folder / "out")
    collector_output(
        "import", folder / "out", "--metrics", metrics, "--store", f"sqlite:///{moved}"
    )

    def contents(path: Path, metric: Metric) -> Counter[bytes]:
        return Counter(stored_records(path, metric))

    for metric in (WORDS, VISITS):
        assert contents(moved, metric) == contents(database, metric)
