"""Life inside an app: never raises, never waits, counts whatever is lost."""

import base64
import datetime as dt
import enum
import logging
import re
import subprocess
import sys
import threading
from collections import UserString
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from factories import make_metric, make_registry
from http_servers import Answer, scripted_server
from hubbub.client import (
    AsyncTelemetry,
    EncodingError,
    MetricError,
    StateError,
    Telemetry,
    UnknownCategoryError,
    UnknownMetricError,
)
from hubbub.protocol import BooleanType, EnumType, OrdinalType, UnavailableError, bloom_bits
from service.apps import NOWHERE, bytes_on_disk, held_database
from service.posting import wait_until


def test_no_value_leaves_the_process(tmp_path):
    with scripted_server() as server:
        telemetry = Telemetry(make_registry(), server.url, tmp_path)
        telemetry.record("homepage", "https://intranet.example/secret-project")
        telemetry.close(20)
    (request,) = server.received
    assert b"secret-project" not in request.body
    assert set(request.batch["reports"][0]) == {"metric", "version", "cohort", "bits"}


def test_oldest_report_goes_when_the_disk_is_full(tmp_path):
    with scripted_server(lambda _: Answer(503)) as server:
        telemetry = Telemetry(
            make_registry(), server.url, tmp_path, batch_size=10, max_outbox_bytes=5_000
        )
        for _ in range(100):
            telemetry.record("homepage", "x")
        wait_until(lambda: telemetry.status().dropped.get("no room on disk", 0) > 0)
        telemetry.flush(0.5)
        status = telemetry.status()
        telemetry.close(0)
    assert status.recorded == 100 == status.waiting + status.dropped["no room on disk"]
    assert status.waiting >= 30


def test_closing_reports_what_is_left_on_disk(tmp_path):
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path)
    for _ in range(3):
        telemetry.record("homepage", "x")
    telemetry.close(0)
    assert telemetry.status().waiting == 3
    later = Telemetry(make_registry(), NOWHERE, tmp_path)
    assert later.status().waiting == 3
    later.forget()
    assert later.status().waiting == 0


def test_oldest_report_goes_when_memory_is_full(tmp_path):
    """No thread runs before the recorder is drained, because all is recorded under its lock."""
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path, batch_size=10, max_pending=10)
    with telemetry._recorder.changed:
        for _ in range(13):
            telemetry.record("homepage", "x")
    telemetry.close(0)
    assert telemetry.status().dropped == {"no room in memory": 3}


def test_record_never_raises_whatever_it_is_given(tmp_path, caplog):
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path)

    class Surprise(str):
        def encode(self, *_args: object, **_kw: object) -> bytes:
            raise ZeroDivisionError("my secret home page")

    calls: list[tuple[object, object]] = [
        ("homepage", None), ("homepage", "\ud800 my secret home page"), ("homepage", "x" * 70_000),
        ("search", "x"), (None, "x"), ([], "x"), ("homepage", Surprise("my secret home page")),
        ]  # fmt: skip
    for metric, value in calls:
        telemetry.record(metric, value)  # type: ignore[arg-type]
    status = telemetry.status()
    assert status.recorded <= 1  # the surprising string may be normalised before it can surprise
    assert status.dropped["bad value"] == 3
    assert status.dropped["unknown metric"] == 2
    assert sum(status.dropped.values()) + status.recorded == 7
    telemetry.close(0)
    assert "my secret home page" not in caplog.text


def test_odd_texts_are_recorded_and_other_types_are_counted(tmp_path):
    """Values that other telemetry clients turned into their representation, or failed at."""
    texts = ["", "a\0b", "a\nb", type("Text", (str,), {})("a"), Colour.RED]
    others = [b"a", 1, True, Decimal(1), 10**5000, UserString("a"), None, "a\ud800", "x" * 10**6]
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path)
    for value in (*texts, *others):
        telemetry.record("homepage", value)
    telemetry.close(0)
    status = telemetry.status()
    assert (status.recorded, status.dropped) == (len(texts), {"bad value": len(others)})


def test_each_kind_of_loss_is_logged_once(tmp_path, caplog):
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path)
    with caplog.at_level(logging.WARNING, "hubbub.client"):
        for _ in range(5):
            telemetry.record("hompage", "x")
    telemetry.close(0)
    assert [r.getMessage() for r in caplog.records] == [
        "hubbub dropped a report (unknown metric) metric: must be one of: homepage"
    ]
    assert telemetry.status().dropped == {"unknown metric": 5}


def test_expired_metric_is_not_reported(tmp_path):
    yesterday = dt.datetime.now(dt.UTC).date() - dt.timedelta(days=1)
    telemetry = Telemetry(make_registry(make_metric(expires=yesterday)), NOWHERE, tmp_path)
    telemetry.record("homepage", "x")
    telemetry.close(0)
    assert telemetry.status().dropped == {"expired metric": 1}
    assert telemetry.status().recorded == 0


def test_reports_left_on_disk_arrive_after_the_next_start(tmp_path):
    with scripted_server(lambda n: Answer(503 if n == 0 else 201)) as server:
        telemetry = Telemetry(make_registry(), server.url, tmp_path)
        for _ in range(5):
            telemetry.record("homepage", "x")
        telemetry.close()
        assert len(server.received) == 1
        telemetry = Telemetry(make_registry(), server.url, tmp_path)
        wait_until(lambda: telemetry.status().waiting == 0)  # without any call
        telemetry.close()
    assert telemetry.status().delivered == 5
    first, second = (request.batch for request in server.received)
    assert first == second
    assert len(first["reports"]) == 5


def test_reports_for_another_collector_are_not_sent_to_this_one(tmp_path):
    with scripted_server(lambda _: Answer(503)) as old, scripted_server() as new:
        with Telemetry(make_registry(), old.url, tmp_path) as telemetry:
            telemetry.record("homepage", "x")
        with Telemetry(make_registry(), new.url, tmp_path) as telemetry:
            telemetry.record("homepage", "x")
            assert telemetry.flush(20)
            assert telemetry.status().waiting == 0
        assert len(new.reports) == 1
        left = Telemetry(make_registry(), old.url, tmp_path)
        assert left.status().waiting == 1
        left.close()


def test_refused_reports_go_and_the_others_are_sent_again(tmp_path):
    refusal = Answer(422, b'{"errors": [{"report": 0}, {"report": 2}]}')
    with scripted_server(lambda n: Answer() if n else refusal) as server:
        telemetry = Telemetry(make_registry(), server.url, tmp_path)
        for _ in range(5):
            telemetry.record("homepage", "x")
        assert telemetry.flush(20)
        telemetry.close()
    first, second = (request.batch for request in server.received)
    assert second["batch_id"] == first["batch_id"]
    assert second["reports"] == [first["reports"][i] for i in (1, 3, 4)]
    status = telemetry.status()
    assert status.delivered == 3
    assert status.dropped == {"refused by the collector": 2}


@pytest.mark.parametrize("period_days", [0, 7])
def test_neither_values_nor_true_bits_are_ever_on_disk(tmp_path, period_days):
    """The permanent response of the last answer is; true bits in any cohort would be found."""
    metric = make_metric(period_days=period_days)
    registry = make_registry(metric)
    telemetry = Telemetry(registry, NOWHERE, tmp_path)
    value = "https://intranet.example/secret-project"
    forms = [b"secret-project"]
    for cohort in range(metric.params.m):
        bits = bloom_bits(value, cohort, metric.params).to_bytes(16, "little")
        forms += [bits, bits.hex().encode(), base64.b64encode(bits)]
    for _ in range(20):
        telemetry.record("homepage", "https://intranet.example/secret-project")
    telemetry.flush(0.3)
    telemetry.close(0)
    contents = bytes_on_disk(tmp_path)
    assert sum(map(len, contents)) > 4096
    # SQLite's header has as many zeros, and some ones, as true bits have.
    contents = [content[100 * content.startswith(b"SQLite ") :] for content in contents]
    assert not [form for form in forms for content in contents if form in content]


def test_enum_boolean_and_ordinal_are_reported(tmp_path):
    registry = make_registry(
        make_metric("theme", metric_type=EnumType(("light", "dark"))),
        make_metric("crashed", metric_type=BooleanType()),
        make_metric("tabs", metric_type=OrdinalType((1.0, 10.0))),
    )
    with scripted_server() as server:
        telemetry = Telemetry(registry, server.url, tmp_path)
        telemetry.record("theme", "dark")
        telemetry.record("crashed", False)
        telemetry.record("tabs", 7)
        telemetry.record("theme", "purple")
        telemetry.record("tabs", "seven")
        telemetry.close(20)
    assert {report["metric"] for report in server.reports} == {"theme", "crashed", "tabs"}
    assert len(server.reports) == 3
    assert telemetry.status().dropped == {"unknown category": 1, "bad value": 1}


@pytest.mark.parametrize(
    ("metric", "value", "error", "message"),
    [
        ("theme", "purple", UnknownCategoryError, "must be one of the categories light, dark"),
        ("theme", 3, EncodingError, "value of type int: must be a string"),
        ("them", "light", UnknownMetricError, "metric 'them': must be one of: theme"),
    ],
)
def test_development_mode_raises_what_the_author_should_mend(
    tmp_path, metric, value, error, message
):
    registry = make_registry(make_metric("theme", metric_type=EnumType(("light", "dark"))))
    telemetry = Telemetry(registry, NOWHERE, tmp_path, development=True)
    with pytest.raises(error, match=message):
        telemetry.record(metric, value)
    telemetry.close(0)


def test_mistakes_at_start_up_are_raised(tmp_path):
    with pytest.raises(MetricError, match="can't be read"):
        Telemetry(tmp_path / "missing.toml", NOWHERE, tmp_path)
    with pytest.raises(ValueError, match=r"endpoint = 'example\.com': must start with"):
        Telemetry(make_registry(), "example.com", tmp_path)
    with pytest.raises(ValueError, match="batch_size = 0: must be between 1 and max_pending"):
        Telemetry(make_registry(), NOWHERE, tmp_path, batch_size=0)
    with pytest.raises(ValueError, match="ingest_key: must be letters, digits and"):
        Telemetry(make_registry(), NOWHERE, tmp_path, ingest_key="two\nlines")


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"state_dir": 5}, "state_dir = 5: must be a path"),
        ({"state_dir": ""}, "state_dir = '': must be a path"),
        (
            {"state_dir": "~nobody-has-this-name/state"},
            "state_dir = '~nobody-has-this-name/state': ",
        ),
        ({"metrics": 5}, "metrics = 5: must be a Registry or a path"),
        ({"endpoint": 5}, "endpoint = 5: must start with https:// or http://"),
        ({"endpoint": "https:///reports"}, "endpoint = 'https:///reports': must name a host"),
        ({"batch_size": "5"}, "batch_size = '5': must be a number"),
        ({"timeout": None}, "timeout = None: must be a number"),
        ({"batch_seconds": float("nan")}, "batch_seconds = nan: must be a number"),
    ],
)
@pytest.mark.parametrize("kind", [Telemetry, AsyncTelemetry])
def test_arguments_of_a_wrong_kind_are_named(tmp_path, kind, wrong, message):
    arguments = {"metrics": make_registry(), "endpoint": NOWHERE, "state_dir": tmp_path}
    with pytest.raises(ValueError, match=re.escape(message)):
        kind(**(arguments | wrong))


def _refused_folder(_: Path) -> Path:
    return Path("/proc/hubbub")


def _file(tmp_path: Path) -> Path:
    (tmp_path / "state").touch()
    return tmp_path / "state"


def _below_a_file(tmp_path: Path) -> Path:
    return _file(tmp_path) / "state"


def _damaged(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_bytes(b"garbage")
    (tmp_path / "secret").chmod(0o600)
    return tmp_path


@pytest.mark.parametrize("place", [_file, _below_a_file, _refused_folder, _damaged])
def test_state_that_can_not_be_used_raises_while_an_app_is_developed(tmp_path, place):
    folder = place(tmp_path)
    for kind in (Telemetry, AsyncTelemetry):
        with pytest.raises((StateError, UnavailableError), match=re.escape(str(folder))):
            kind(make_registry(), NOWHERE, folder, development=True)
    with Telemetry(make_registry(), NOWHERE, folder) as telemetry:  # users' apps go on
        assert str(folder) in str(telemetry.status().disabled)
    unsure = Telemetry(make_registry(), NOWHERE, folder, development=True, consent=False)
    with pytest.raises((StateError, UnavailableError)):
        unsure.set_consent(True)


def test_state_that_another_process_uses_does_not_raise(tmp_path):
    with Telemetry(make_registry(), NOWHERE, tmp_path):
        pass
    with held_database(tmp_path):
        telemetry = Telemetry(make_registry(), NOWHERE, tmp_path, development=True)
        assert "database is locked; will try again" in str(telemetry.status().disabled)
    telemetry.close(0)


@pytest.mark.parametrize(
    ("endpoint", "warns"),
    [
        ("http://telemetry.example.com:8100/a", True),
        ("http://127.0.0.1.example.com", True),
        ("http://192.168.0.7", True),
        ("http://127.8.0.1:8100", False),
        ("http://[::1]:8100", False),
        ("http://LocalHost", False),
        ("https://telemetry.example.com", False),
    ],
)
def test_plain_http_to_another_machine_is_warned_of(tmp_path, caplog, endpoint, warns):
    Telemetry(make_registry(), endpoint, tmp_path, ingest_key="a-key").close(0)
    said = "reports and the ingest key travel in the clear: use https"
    assert caplog.text.count(said) == warns
    assert "a-key" not in caplog.text


def test_importing_the_client_stays_cheap_and_offers_both_kinds():
    program = """
import sys, hubbub.client
heavy = {"aiohttp", "asyncio", "ssl", "sqlite3", "urllib.request", "logging"} & set(sys.modules)
from hubbub.client import AsyncTelemetry
print(sorted(heavy), AsyncTelemetry.__module__, hasattr(hubbub.client, "nothing"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.decode() == "[] hubbub.client.telemetry False\n"


def test_threads_lose_nothing_between_them(tmp_path):
    with scripted_server() as server:
        telemetry = Telemetry(make_registry(), server.url, tmp_path, batch_size=50)

        def work():
            for _ in range(200):
                telemetry.record("homepage", "x")

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        telemetry.close(30)
    status = telemetry.status()
    assert len(server.reports) == status.delivered == status.recorded == 1600
    assert (status.waiting, status.dropped, status.disabled) == (0, {}, "closed")


@pytest.mark.parametrize(
    ("status", "reason", "detail"),
    [
        (401, "refused by the collector: ingest key", "ingest key"),
        (404, "refused by the collector: no such address", "address"),
        (422, "refused by the collector", ""),
    ],
)
def test_last_error_gives_the_reason_of_a_refusal(tmp_path, caplog, status, reason, detail):
    with (
        caplog.at_level(logging.DEBUG, "hubbub.client"),
        scripted_server(lambda _: Answer(status)) as server,
        Telemetry(make_registry(), server.url, tmp_path) as telemetry,
    ):
        telemetry.record("homepage", "x")
        assert telemetry.flush(20)
        seen = telemetry.status()
    assert seen.dropped == {reason: 1}
    assert seen.last_error is not None
    assert (seen.last_error.kind, seen.last_error.status) == ("status", status)
    assert detail in seen.last_error.detail
    assert "hubbub didn't deliver a batch (status): " in caplog.text
    assert (seen.last_error.detail in caplog.text) == (status != 422)


def test_numbers_of_numpy_and_decimal_are_numbers(tmp_path):
    registry = make_registry(
        make_metric("tabs", metric_type=OrdinalType((1.0, 10.0))),
        make_metric("on", metric_type=BooleanType()),
    )
    telemetry = Telemetry(registry, NOWHERE, tmp_path, development=True)
    for number in (np.int64(5), np.float32(5), Decimal("5.5"), Fraction(11, 2), 10**400):
        telemetry.record("tabs", number)
    telemetry.record("on", np.bool_(True))
    for bad in (Decimal("NaN"), Decimal("sNaN"), np.float32("nan"), 1j, True, np.bool_(True), "5"):
        with pytest.raises(EncodingError):
            telemetry.record("tabs", bad)  # type: ignore[arg-type]
    telemetry.close(0)
    assert telemetry.status().recorded == 6


def record(telemetry: Telemetry, count: int) -> None:
    for _ in range(count):
        telemetry.record("homepage", "x")


def test_batch_keeps_its_id_through_every_retry(tmp_path):
    answers = [Answer(503), Answer(0), Answer(200, b"captive portal"), Answer(201)]
    with (
        scripted_server(lambda n: answers[min(n, 3)]) as server,
        Telemetry(make_registry(), server.url, tmp_path) as telemetry,
    ):
        record(telemetry, 1)
        assert telemetry.flush(30)
        assert telemetry.status().delivered == 1
    assert len(server.received) == 4
    assert len({request.body for request in server.received}) == 1


def test_the_ingest_key_goes_with_each_batch_and_appears_nowhere_else(tmp_path, caplog):
    key = "hub_ingest_zaphod"
    with (
        scripted_server(lambda _: Answer(401)) as server,
        Telemetry(make_registry(), server.url, tmp_path, ingest_key=key) as telemetry,
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
