"""What a person can see and decide: consent, previews, the ledger, forgetting."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from factories import make_metric, make_params, make_registry
from http_servers import scripted_server
from hubbub.client import Encoder, EncodingError, Telemetry, UnknownMetricError
from hubbub.client.state import open_state
from service.apps import NOWHERE

EPSILON = make_metric().epsilon_permanent


def own_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("hubbub")]


@pytest.mark.parametrize(
    ("consent", "environment", "reason"),
    [
        (False, {}, "no consent"),
        (True, {"DO_NOT_TRACK": "1"}, "DO_NOT_TRACK is set"),
        (True, {"HUBBUB_DISABLED": "true"}, "HUBBUB_DISABLED is set"),
    ],
)
def test_without_consent_there_is_no_state_no_thread_and_no_report(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    consent: bool,
    environment: dict[str, str],
    reason: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    before = own_threads()
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path / "state", consent=consent)
    telemetry.record("homepage", "x")
    assert telemetry.flush() is False
    assert own_threads() == before
    telemetry.close()
    assert list(tmp_path.iterdir()) == []
    status = telemetry.status()
    assert status.disabled == reason
    assert (status.recorded, status.dropped) == (0, {"disabled": 1})


@pytest.mark.parametrize("value", ["", "0", "false", "No "])
def test_switch_that_is_off_means_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("DO_NOT_TRACK", value)
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path)
    telemetry.close(0)
    assert telemetry.status().disabled == "closed"


def test_no_thread_runs_before_the_first_report(tmp_path: Path) -> None:
    before = own_threads()
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path)
    assert own_threads() == before
    telemetry.record("homepage", "x")
    assert sorted(own_threads()) == sorted([*before, "hubbub disk", "hubbub network"])
    telemetry.close(0)


def test_preview_is_what_record_would_send(tmp_path: Path) -> None:
    """Where the second response is the identity, preview and record give the very same bits."""
    registry = make_registry(make_metric(params=make_params(p=0.0, q=1.0), one_time=True))
    with scripted_server() as server:
        telemetry = Telemetry(registry, server.url, tmp_path)
        preview = telemetry.preview("homepage", "news.example.org")
        telemetry.record("homepage", "news.example.org")
        telemetry.close(20)
    assert json.loads(preview.body)["reports"] == server.reports
    assert preview.report.bits.hex() in preview.words
    assert preview.refusal is None


def test_preview_spends_nothing_and_sends_nothing(tmp_path: Path) -> None:
    telemetry = Telemetry(make_registry(make_metric(max_values=1)), NOWHERE, tmp_path)
    before = own_threads()
    previews = [telemetry.preview("homepage", f"x{i}") for i in range(10)]
    assert all(preview.refusal is None for preview in previews)
    assert telemetry.ledger().epsilon == 0
    assert own_threads() == before
    telemetry.close(0)
    assert telemetry.status().recorded == 0


def test_preview_tells_epsilon_and_why_it_would_be_refused(tmp_path: Path) -> None:
    telemetry = Telemetry(make_registry(make_metric(max_values=1)), NOWHERE, tmp_path)
    telemetry.record("homepage", "one")
    preview = telemetry.preview("homepage", "two")
    telemetry.close(0)
    assert preview.refusal == "more distinct values than max_values"
    assert "would not be sent" in preview.words
    assert preview.epsilon_permanent == EPSILON
    assert "81-fold" in preview.words
    assert "privacy@example.com" in preview.words


def test_preview_works_before_consent_and_leaves_no_trace(tmp_path: Path) -> None:
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path / "state", consent=False)
    preview = telemetry.preview("homepage", "x")
    assert preview.refusal == "no consent"
    assert len(preview.report.bits) == 16
    assert not (tmp_path / "state").exists()


def test_preview_raises_for_mistakes(tmp_path: Path) -> None:
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path, consent=False)
    with pytest.raises(UnknownMetricError):
        telemetry.preview("hompage", "x")
    with pytest.raises(EncodingError):
        telemetry.preview("homepage", 3)


def test_ledger_is_kept_across_starts(tmp_path: Path) -> None:
    for _ in range(2):
        telemetry = Telemetry(make_registry(), NOWHERE, tmp_path)
        for value in ("one", "two", "one"):
            telemetry.record("homepage", value)
        telemetry.close(0)
    (metric,) = Telemetry(make_registry(), NOWHERE, tmp_path).ledger().metrics
    assert (metric.distinct_values, metric.reports) == (2, 6)
    assert metric.epsilon == pytest.approx(EPSILON + 2 * make_metric().epsilon_report)


def test_cap_of_values_holds_across_starts_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry = make_registry(make_metric(max_values=3))
    for value in ("one", "two", "three", "four", "five", "one"):
        telemetry = Telemetry(registry, NOWHERE, tmp_path)
        telemetry.record("homepage", value)
        telemetry.close(0)
    assert telemetry.ledger().metrics[0].distinct_values == 3
    assert telemetry.ledger().metrics[0].reports == 4
    assert caplog.text.count("more distinct values than max_values") == 2
    assert "four" not in caplog.text


def test_lifetime_budget_is_never_exceeded(tmp_path: Path) -> None:
    registry = make_registry(make_metric(max_values=1000), lifetime_epsilon=3 * EPSILON)
    telemetry = Telemetry(registry, NOWHERE, tmp_path)
    for number in range(100):
        telemetry.record("homepage", f"value {number // 3}")
    spending = telemetry.ledger()
    assert 2 * EPSILON < spending.epsilon <= 3 * EPSILON
    assert spending.lifetime_epsilon == 3 * EPSILON
    telemetry.close(0)
    assert telemetry.status().dropped["over the lifetime budget"] > 80


def test_one_time_metric_is_sent_once_in_a_life(tmp_path: Path) -> None:
    registry = make_registry(make_metric(params=make_params(f=0.0), one_time=True))
    with scripted_server() as server:
        for _ in range(3):
            telemetry = Telemetry(registry, server.url, tmp_path)
            telemetry.record("homepage", "x")
            telemetry.record("homepage", "x")
            telemetry.close(20)
    assert len(server.reports) == 1
    assert telemetry.status().dropped == {"already reported (one-time metric)": 2}


def test_two_processes_cannot_spend_the_same_budget_twice(tmp_path: Path) -> None:
    """Two objects on one directory know of each other's spending only through the disk."""
    registry = make_registry(make_metric(max_values=2))
    with scripted_server() as server:
        one, other = (Telemetry(registry, server.url, tmp_path) for _ in range(2))
        for value in ("a", "b"):
            one.record("homepage", value)
        for value in ("c", "a"):
            other.record("homepage", value)
        assert one.flush(20)
        assert other.flush(20)
        one.close()
        other.close()
    assert len(server.reports) == 3
    assert other.status().dropped == {"more distinct values than max_values": 1}


def test_explanation_adds_metrics_and_people_up(tmp_path: Path) -> None:
    registry = make_registry(make_metric(), make_metric("search"), lifetime_epsilon=50.0)
    telemetry = Telemetry(registry, NOWHERE, tmp_path)
    telemetry.record("homepage", "x")
    text = telemetry.explain(people=3)
    telemetry.close(0)
    assert "homepage (version 1, string): What the tests ask. Asked by privacy@" in text
    assert "at most 8.79 in total" in text
    assert "never more than 50" in text
    assert "3 people" in text
    assert "26.4 for one answer each" in text


def test_forgetting_leaves_nothing_and_says_what_was_spent(tmp_path: Path) -> None:
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path)
    telemetry.record("homepage", "x")
    telemetry.flush(0.3)
    words = telemetry.forget()
    telemetry.record("homepage", "x")
    assert list(tmp_path.iterdir()) == []
    assert "it has spent epsilon = 2.04" in words
    assert telemetry.status().disabled is not None


def test_reset_makes_another_client_and_is_counted(tmp_path: Path) -> None:
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path)
    telemetry.record("homepage", "x")
    assert not telemetry.flush(0.5)
    telemetry.reset()
    telemetry.record("homepage", "x")
    telemetry.close(0)
    spending = Telemetry(make_registry(), NOWHERE, tmp_path).ledger()
    assert spending.resets == 1
    assert spending.metrics[0].distinct_values == 2  # the same answer, under another secret
    assert "replaced 1 times" in telemetry.explain()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("secret", b"garbage"),
        ("secret", None),
        ("client.db", b"garbage" * 2000),
        ("client.db", b""),
        ("client.db", None),
    ],
)
def test_damaged_state_fails_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, damage: bytes | None
) -> None:
    open_state(tmp_path, make_registry())
    if damage is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(damage)
    before = damaged_files(tmp_path, name)
    with scripted_server() as server:
        telemetry = Telemetry(make_registry(), server.url, tmp_path)
        telemetry.record("homepage", "x")
        telemetry.flush(1)
        telemetry.close()
    assert server.received == []
    assert "nothing is sent" in str(telemetry.status().disabled)
    assert telemetry.status().dropped == {"disabled": 1}
    assert caplog.text.count("hubbub is off") == 1
    assert damaged_files(tmp_path, name) == before


def damaged_files(folder: Path, name: str) -> list[bytes]:
    """Return the content of the file, if it is there."""
    return [path.read_bytes() for path in folder.iterdir() if path.name == name]


def test_digests_in_the_ledger_are_keyed(tmp_path: Path) -> None:
    digests = set()
    for client in ("a", "b"):
        secret, _ = open_state(tmp_path / client, make_registry())
        encoder = Encoder(make_metric(params=make_params(m=1)), secret)
        digests.add(encoder.value_digest(encoder.true_bits("x")))
    assert len(digests) == 2
