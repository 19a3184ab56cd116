"""Joint values over real HTTP, from both clients: the widest reports there are, and hashed ones."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evaluation.reference import protocol
from factories import make_metric, make_params, make_registry, registry_toml
from hubbub.client import Encoder, Telemetry
from hubbub.client.state import open_state
from hubbub.collector import generate_secret
from hubbub.protocol import EnumType, Field, JointType, StringType, Value, registry_json
from programs import forked_collector
from service.commands import collector_output
from service.posting import send, stored_records, wait_until, wait_until_published
from unit.javascript.node import run_program

# Hardly any noise, so that stored bits are the true ones.
PARAMS = make_params(f=1e-13, p=1e-13, q=1 - 1e-13)
PAGE = Field("page", EnumType(tuple(f"p{i}" for i in range(64))))
CRASH = Field("crash", EnumType(tuple(f"c{i}" for i in range(63)), other=True))
DRIVER = Field("driver", StringType())
WIDE = make_metric("wide", metric_type=JointType((PAGE, CRASH)), params=PARAMS)
HASHED = make_metric("hashed", metric_type=JointType((DRIVER, CRASH)), params=PARAMS)
REGISTRY = make_registry(WIDE, HASHED)
CELLS: list[dict[str, Any]] = [
    {"page": "p0", "crash": "c0"},
    {"page": "p63", "crash": "c62"},
    {"page": "p63", "crash": "unheard of"},
]
TUPLES: list[dict[str, Any]] = [
    {"driver": "Zu\u0308rich", "crash": "c10"},
    {"driver": "", "crash": "unheard of"},
    {"driver": "\u00ff", "crash": "c1"},
]
MANY = 1_500


def expected_record(metric_type: JointType, value: dict[str, Any], cohort: int) -> bytes:
    """Return the record without noise, by the plain implementation of the protocol."""
    fields: Any = metric_type.definition()["fields"]
    if metric_type.hashed:
        data = protocol.joint_bytes(fields, value)
        bits = protocol.bits_to_bytes(protocol.hashed_positions(data, cohort, 128, 2), 128)
    else:
        bits = protocol.bits_to_bytes([protocol.joint_cell(fields, value)], 4096)
    return cohort.to_bytes(2, "little") + bits


def of_cells(values: list[dict[str, Any]]) -> Counter[bytes]:
    return Counter(expected_record(JointType((PAGE, CRASH)), value, 0) for value in values)


@pytest.fixture
def metrics(tmp_path) -> Path:
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(WIDE, HASHED), encoding="utf-8")
    return path


def test_reports_of_4096_bits_and_hashed_ones_arrive_from_python(metrics, database, tmp_path):
    """More of the wide ones than fit into a request: 1,500 of 684 characters of bits alone.

    P(false failure) < 1e-6: 1,503 reports, of up to 4,096 bits that are wrong with 1.5e-13 each.
    """
    token, hashed = generate_secret("admin")
    config = tmp_path / "collector.toml"
    config.write_text(
        f'admin_port = 0\npublish_seconds = 0.2\n[admin_tokens.all]\nsha256 = "{hashed}"\n'
    )
    with (
        forked_collector(metrics, database, ["--config", str(config)]) as collector,
        Telemetry(REGISTRY, collector.url, tmp_path / "state", batch_size=MANY) as telemetry,
    ):
        admin = collector.read_admin_url()
        wait_until_published(admin, token)
        for i in range(MANY):
            telemetry.record("wide", CELLS[i % 3])
        for value in TUPLES:
            telemetry.record("hashed", value)
        assert telemetry.flush(timeout=60)
        status = telemetry.status()
        assert (status.delivered, status.dropped) == (MANY + 3, {})
        assert_operators_see_them(admin, token)
    assert Counter(stored_records(database, WIDE)) == of_cells(CELLS * (MANY // 3))
    cohort = Encoder(HASHED, open_state(tmp_path / "state", REGISTRY).secret).cohort
    assert isinstance(HASHED.type, JointType)
    assert sorted(stored_records(database, HASHED)) == sorted(
        expected_record(HASHED.type, value, cohort) for value in TUPLES
    )
    assert_export_and_import_keep(metrics, database, tmp_path)


def assert_operators_see_them(admin: str, token: str) -> None:
    header = {"Authorization": f"Bearer {token}"}
    page = send(admin, "GET", "/", headers=header)
    assert page.status == 200

    def status() -> Any:
        return send(admin, "GET", "/status.json", headers=header).json

    wait_until(lambda: status()["reports"] == MANY + len(TUPLES))
    counted = {metric["name"]: metric["counted"] for metric in status()["metrics"]}
    assert counted["wide"] == MANY
    assert counted["hashed"] in {0, 100}


def assert_export_and_import_keep(metrics: Path, database: Path, folder: Path) -> None:
    moved = folder / "moved.db"
    collector_output("export", "--store", f"sqlite:///{database}", "--to", folder / "out")
    collector_output(
        "import", folder / "out", "--metrics", metrics, "--store", f"sqlite:///{moved}"
    )
    for metric in (WIDE, HASHED):
        kept, original = (Counter(stored_records(path, metric)) for path in (moved, database))
        assert kept == original


def test_javascript_clients_report_the_same(metrics, database):
    """30 clients of each metric. P(false failure) < 1e-7: 30 reports of 4,096 bits."""
    registry = json.loads(registry_json(metrics))

    def report(metric: str, values: list[dict[str, Any]], url: str):
        job = {"registry": registry, "endpoint": url, "metric": metric, "values": values}
        done = run_program("fleet.js", job)
        assert done == {"recorded": len(values), "delivered": len(values), "dropped": 0}

    with forked_collector(metrics, database) as collector:
        report("wide", CELLS * 10, collector.url)
        report("hashed", TUPLES * 10, collector.url)
    assert Counter(stored_records(database, WIDE)) == of_cells(CELLS * 10)
    assert isinstance(HASHED.type, JointType)
    stored = stored_records(database, HASHED)
    seen = Counter(
        number
        for record in stored
        for number, value in enumerate(TUPLES)
        if record == expected_record(HASHED.type, value, int.from_bytes(record[:2], "little"))
    )
    assert seen == {0: 10, 1: 10, 2: 10}
    assert len({record[:2] for record in stored}) > 5


def test_both_clients_refuse_what_isnt_a_tuple(metrics, database, tmp_path):
    wrong: list[Value] = ["p0", {"page": "p0"}, {"page": "unheard of", "crash": "c0"}]
    with forked_collector(metrics, database) as collector:
        with Telemetry(REGISTRY, collector.url, tmp_path / "state") as telemetry:
            for value in wrong:
                telemetry.record("wide", value)
            assert telemetry.status().dropped == {"bad value": 2, "unknown category": 1}
        job = {"registry": json.loads(registry_json(metrics)), "endpoint": collector.url}
        done = run_program("fleet.js", {**job, "metric": "wide", "values": wrong})
        assert done == {"recorded": 0, "delivered": 0, "dropped": 3}
    assert stored_records(database, WIDE) == []
