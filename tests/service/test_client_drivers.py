"""What a client does whether its own threads drive it or an app's event loop."""

import pytest

from factories import make_registry
from http_servers import Answer, scripted_server
from hubbub.client.transport import DeliveryFailure
from service.apps import NOWHERE, bytes_on_disk
from service.drivers import DRIVERS, Client
from service.posting import wait_until

pytestmark = pytest.mark.parametrize("opened", DRIVERS.values(), ids=DRIVERS.keys())


def record(telemetry: Client, count: int) -> None:
    for _ in range(count):
        telemetry.record("homepage", "x")


def test_what_is_recorded_is_delivered(tmp_path, opened):
    with scripted_server() as server, opened(make_registry(), server.url, tmp_path) as telemetry:
        for number in range(250):
            telemetry.record("homepage", f"https://example.com/{number % 5}")
        assert telemetry.flush(30)
        status = telemetry.status()
    assert len(server.reports) == 250
    assert (status.recorded, status.delivered, status.waiting) == (250, 250, 0)
    assert status.dropped == {}
    assert status.disabled is None


def test_full_batch_is_sent_without_waiting(tmp_path, opened):
    with scripted_server() as server:
        with opened(make_registry(), server.url, tmp_path, batch_size=5) as telemetry:
            record(telemetry, 11)
            wait_until(lambda: telemetry.status().delivered >= 10)
            assert all(5 <= len(r.batch["reports"]) < 10 for r in server.received)
            assert telemetry.flush(20)
        assert len(server.reports) == 11


def test_small_batch_is_sent_when_its_time_has_come(tmp_path, opened):
    options = {"batch_size": 5, "batch_seconds": 0.1}
    with (
        scripted_server() as server,
        opened(make_registry(), server.url, tmp_path, **options) as telemetry,
    ):
        record(telemetry, 7)
        wait_until(lambda: telemetry.status().delivered == 7)
        record(telemetry, 1)
        wait_until(lambda: telemetry.status().delivered == 8)


def test_batch_keeps_its_id_through_every_retry(tmp_path, opened):
    answers = [Answer(503), Answer(0), Answer(200, b"captive portal"), Answer(201)]
    with (
        scripted_server(lambda n: answers[min(n, 3)]) as server,
        opened(make_registry(), server.url, tmp_path) as telemetry,
    ):
        record(telemetry, 1)
        assert telemetry.flush(30)
        assert telemetry.status().delivered == 1
    assert len(server.received) == 4
    assert len({request.body for request in server.received}) == 1


def test_ingest_key_goes_with_each_batch_and_is_said_nowhere(tmp_path, caplog, opened):
    key = "hub_ingest_zaphod"
    with (
        scripted_server(lambda _: Answer(401)) as server,
        opened(make_registry(), server.url, tmp_path, ingest_key=key) as telemetry,
    ):
        for number in (1, 2):
            record(telemetry, 1)
            assert telemetry.flush(30)
            assert telemetry.status().dropped == {"refused by the collector: ingest key": number}
        said = (telemetry.status(), telemetry.preview("homepage", "x"), telemetry.explain())
    assert len(server.received) == 2
    for request in server.received:
        assert request.headers["Authorization"] == f"Bearer {key}"
    assert caplog.text
    assert "zaphod" not in caplog.text + repr(said)
    assert b"zaphod" not in b"".join(bytes_on_disk(tmp_path))


def test_last_error_tells_that_nobody_answers(tmp_path, opened):
    told: list[DeliveryFailure] = []
    with opened(make_registry(), NOWHERE, tmp_path, on_error=told.append) as telemetry:
        assert telemetry.status().last_error is None
        record(telemetry, 1)
        telemetry.flush(0.5)
        wait_until(lambda: telemetry.status().last_error is not None)
        error = telemetry.status().last_error
        assert error in told
    assert error is not None
    assert {(each.kind, each.status) for each in told} == {("connection", None)}
