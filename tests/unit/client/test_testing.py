"""The doubles for the tests of apps: what the real clients would do, without any of their means."""

import asyncio
import datetime as dt
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from factories import make_metric, make_params, make_registry
from hubbub.client import EncodingError, Telemetry, UnknownCategoryError, UnknownMetricError
from hubbub.client.testing import AsyncRecordingTelemetry, RecordingTelemetry
from hubbub.protocol import BooleanType, EnumType

REGISTRY = make_registry(
    make_metric(max_values=2),
    make_metric("theme", metric_type=EnumType(("light", "dark"))),
    make_metric("restored", metric_type=BooleanType(), period_days=30),
    make_metric("first_page", params=make_params(f=0.0), one_time=True),
)
CALLS = [
    ("homepage", "a"),
    ("theme", "dark"),
    ("homepage", "b"),
    ("homepage", "beyond max_values"),
    ("restored", True),
    ("restored", False),
    ("first_page", "x"),
    ("first_page", "y"),
]
NOWHERE = "http://127.0.0.1:9"
Double = RecordingTelemetry | AsyncRecordingTelemetry


def record(telemetry: Telemetry | Double, calls: list[tuple[str, Any]]) -> None:
    for metric, value in calls:
        telemetry.record(metric, value)


def run(app: Coroutine[Any, Any, None]) -> None:
    """Run to the end, at which no task may be left."""

    async def watched() -> None:
        await app
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(watched())


def test_calls_are_kept_in_order():
    telemetry = RecordingTelemetry(REGISTRY)
    record(telemetry, CALLS)
    assert telemetry.calls == CALLS
    assert telemetry.values("homepage") == ["a", "b", "beyond max_values"]


def test_status_counts_as_the_real_client_does(tmp_path):
    real = Telemetry(REGISTRY, NOWHERE, tmp_path)
    double = RecordingTelemetry(REGISTRY)
    record(real, CALLS)
    record(double, CALLS)
    real.close(0)  # all is charged once it is stored
    there, here = real.status(), double.status()
    assert (here.recorded, here.stale, here.dropped) == (there.recorded, there.stale, there.dropped)
    assert (here.recorded, here.stale) == (7, 1)
    assert here.dropped == {"already reported (one-time metric)": 1}
    assert (here.delivered, here.waiting, here.disabled, here.last_error) == (7, 0, None, None)


def test_ledger_and_explanation_say_what_the_real_client_says(tmp_path):
    real = Telemetry(REGISTRY, NOWHERE, tmp_path)
    double = RecordingTelemetry(REGISTRY)
    record(real, CALLS)
    record(double, CALLS)
    real.close(0)
    assert double.ledger() == real.ledger()
    assert double.explain() == real.explain()
    assert double.ledger().epsilon > 0


def test_preview_spends_nothing_and_says_what_would_be_sent():
    telemetry = RecordingTelemetry(REGISTRY)
    preview = telemetry.preview("homepage", "a")
    assert (preview.refusal, preview.stale) == (None, False)
    assert preview.report.bits.hex() in preview.words
    assert telemetry.calls == []
    assert telemetry.ledger().epsilon == 0
    record(telemetry, CALLS)
    assert telemetry.preview("homepage", "another").stale
    assert telemetry.preview("first_page", "x").refusal is not None


def test_mistakes_that_the_client_would_drop_fail_the_test():
    for telemetry in (RecordingTelemetry(REGISTRY), AsyncRecordingTelemetry(REGISTRY)):
        with pytest.raises(UnknownMetricError):
            telemetry.record("hompage", "a")
        with pytest.raises(UnknownCategoryError):
            telemetry.record("theme", "purple")
        with pytest.raises(EncodingError):
            telemetry.record("homepage", 3)
        with pytest.raises(EncodingError):
            telemetry.preview("restored", "yes")
        assert telemetry.calls == []
        assert telemetry.status().recorded == 0


def test_nothing_is_recorded_without_consent_and_the_preview_says_so():
    telemetry = RecordingTelemetry(REGISTRY, consent=False)
    telemetry.record("homepage", "a")
    assert telemetry.calls == []
    assert telemetry.status().disabled == "no consent"
    assert telemetry.preview("homepage", "a").refusal == "no consent"
    assert not telemetry.flush()
    telemetry.set_consent(True)
    telemetry.record("homepage", "b")
    telemetry.set_consent(False)
    telemetry.record("homepage", "c")
    assert telemetry.calls == [("homepage", "b")]
    assert telemetry.status().dropped == {"disabled": 2}


@pytest.mark.parametrize("switch", ["DO_NOT_TRACK", "HUBBUB_DISABLED"])
def test_environment_of_the_tests_has_no_say(switch, monkeypatch, tmp_path):
    monkeypatch.setenv(switch, "1")
    assert Telemetry(REGISTRY, NOWHERE, tmp_path).status().disabled == f"{switch} is set"
    telemetry = RecordingTelemetry(REGISTRY)
    telemetry.set_consent(True)
    telemetry.record("homepage", "a")
    assert telemetry.calls == [("homepage", "a")]


def test_expired_metric_is_kept_and_counted_so_that_no_test_breaks_on_a_day():
    registry = make_registry(make_metric(expires=dt.date(2001, 1, 1)))
    telemetry = RecordingTelemetry(registry)
    telemetry.record("homepage", "a")
    assert telemetry.calls == [("homepage", "a")]
    assert telemetry.status().dropped == {"expired metric": 1}
    assert telemetry.ledger().epsilon == 0


def test_recordings_after_the_context_are_dropped():
    with RecordingTelemetry(REGISTRY) as telemetry:
        telemetry.record("homepage", "a")
        assert telemetry.flush()
    telemetry.record("homepage", "b")
    telemetry.set_consent(True)
    assert telemetry.calls == [("homepage", "a")]
    assert telemetry.status().disabled == "closed"
    assert telemetry.status().dropped == {"closed": 1}
    assert not telemetry.flush()


def test_forgetting_says_what_was_spent_and_empties_the_ledger():
    telemetry = RecordingTelemetry(REGISTRY)
    telemetry.record("homepage", "a")
    assert "at most 7.72-fold (epsilon 2.04)" in telemetry.forget()
    telemetry.record("homepage", "b")
    assert telemetry.ledger().metrics == ()
    assert telemetry.calls == [("homepage", "a")]
    assert telemetry.status().disabled == "forgotten"


def test_double_leaves_no_file_and_no_thread(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    threads = threading.enumerate()
    telemetry = RecordingTelemetry(REGISTRY)
    record(telemetry, CALLS)
    telemetry.set_consent(False)
    telemetry.ledger()
    telemetry.forget()
    assert threading.enumerate() == threads
    assert list(tmp_path.iterdir()) == []


def test_double_for_asyncio_delivers_at_once_and_is_closed_at_the_end():
    async def app():
        async with AsyncRecordingTelemetry(REGISTRY) as telemetry:
            telemetry.record("homepage", "a")
            assert await telemetry.flush()
            assert (telemetry.status().waiting, telemetry.status().delivered) == (0, 1)
        telemetry.record("homepage", "b")
        assert telemetry.calls == [("homepage", "a")]
        assert telemetry.status().dropped == {"closed": 1}

    run(app())
