"""What a person can see and decide: consent, previews, the ledger, forgetting."""

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from factories import make_metric, make_params, make_registry
from http_servers import Answer, scripted_server
from hubbub.client import Encoder, EncodingError, Telemetry, UnknownMetricError
from hubbub.client.state import open_state
from hubbub.protocol import MEDIA_TYPE
from service.apps import NOWHERE, Gate, held_database, records_on_disk
from service.posting import wait_until

EPSILON = make_metric().epsilon_permanent


def own_threads() -> set[threading.Thread]:
    """Return the client's threads; those of a test before may be about to end."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("hubbub")}


@pytest.mark.parametrize(
    ("consent", "environment", "reason"),
    [
        (False, {}, "no consent"),
        (True, {"DO_NOT_TRACK": "1"}, "DO_NOT_TRACK is set"),
        (True, {"HUBBUB_DISABLED": "true"}, "HUBBUB_DISABLED is set"),
    ],
)
def test_without_consent_there_is_no_state_no_thread_and_no_report(
    tmp_path, monkeypatch, consent, environment, reason
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    before = own_threads()
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path / "state", consent=consent)
    telemetry.record("homepage", "x")
    assert telemetry.flush() is False
    assert not own_threads() - before
    telemetry.close()
    assert list(tmp_path.iterdir()) == []
    status = telemetry.status()
    assert status.disabled == reason
    assert (status.recorded, status.dropped) == (0, {"disabled": 1})


@pytest.mark.parametrize("value", ["", "0", "false", "No "])
def test_switch_that_is_off_means_nothing(tmp_path, monkeypatch, value):
    monkeypatch.setenv("DO_NOT_TRACK", value)
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path)
    telemetry.close(0)
    assert telemetry.status().disabled == "closed"


def test_no_thread_runs_before_the_first_report(tmp_path):
    before = own_threads()
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path)
    assert not own_threads() - before
    telemetry.record("homepage", "x")
    started = sorted(thread.name for thread in own_threads() - before)
    assert started == ["hubbub disk", "hubbub network"]
    telemetry.close(0)


def test_preview_is_what_record_would_send(tmp_path):
    """Where the second response is the identity, preview and record give the very same bits."""
    registry = make_registry(make_metric(params=make_params(p=0.0, q=1.0), one_time=True))
    with scripted_server() as server:
        telemetry = Telemetry(registry, server.url, tmp_path)
        preview = telemetry.preview("homepage", "news.example.org")
        telemetry.record("homepage", "news.example.org")
        telemetry.close(20)
    (request,) = server.received
    assert (preview.media_type, preview.body[19:]) == (MEDIA_TYPE, request.body[19:])  # but the id
    assert request.headers["Content-Type"] == MEDIA_TYPE
    assert preview.report.bits.hex() in preview.words
    assert preview.refusal is None


def test_preview_spends_nothing_and_sends_nothing(tmp_path):
    telemetry = Telemetry(make_registry(make_metric(max_values=1)), NOWHERE, tmp_path)
    before = own_threads()
    previews = [telemetry.preview("homepage", f"x{i}") for i in range(10)]
    assert all(preview.refusal is None for preview in previews)
    assert telemetry.ledger().epsilon == 0
    assert not own_threads() - before
    telemetry.close(0)
    assert telemetry.status().recorded == 0


def test_preview_shows_epsilon_and_why_it_would_be_refused(tmp_path):
    telemetry = Telemetry(make_registry(make_metric(max_values=1)), NOWHERE, tmp_path)
    telemetry.record("homepage", "one")
    stale = telemetry.preview("homepage", "two")
    telemetry.close(0)
    assert (stale.stale, stale.refusal) == (True, None)
    assert "drawn from an earlier answer" in stale.words
    preview = telemetry.preview("homepage", "one")
    assert (preview.stale, preview.refusal) == (False, "closed")
    assert "would not be sent" in preview.words
    assert preview.epsilon_permanent == EPSILON
    assert "81-fold" in preview.words
    assert "privacy@example.com" in preview.words


def test_preview_works_before_consent_and_leaves_no_trace(tmp_path):
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path / "state", consent=False)
    preview = telemetry.preview("homepage", "x")
    assert preview.refusal == "no consent"
    assert len(preview.report.bits) == 16
    assert not (tmp_path / "state").exists()


def test_preview_raises_for_mistakes(tmp_path):
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path, consent=False)
    with pytest.raises(UnknownMetricError):
        telemetry.preview("hompage", "x")
    with pytest.raises(EncodingError):
        telemetry.preview("homepage", 3)


def test_ledger_is_kept_across_starts(tmp_path):
    for _ in range(2):
        telemetry = Telemetry(make_registry(), NOWHERE, tmp_path)
        for value in ("one", "two", "one"):
            telemetry.record("homepage", value)
        telemetry.close(0)
    (metric,) = Telemetry(make_registry(), NOWHERE, tmp_path).ledger().metrics
    assert (metric.answers, metric.reports) == (2, 6)
    each = make_metric()
    assert metric.epsilon == pytest.approx(each.epsilon_after(4) + each.epsilon_after(2))


def test_one_time_metric_is_sent_once_in_a_life(tmp_path):
    registry = make_registry(make_metric(params=make_params(f=0.0), one_time=True))
    with scripted_server() as server:
        for _ in range(3):
            telemetry = Telemetry(registry, server.url, tmp_path)
            telemetry.record("homepage", "x")
            telemetry.record("homepage", "x")
            telemetry.close(20)
    assert len(server.reports) == 1
    assert telemetry.status().dropped == {"already reported (one-time metric)": 2}


def test_two_processes_cannot_spend_the_same_budget_twice(tmp_path):
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
    assert len(server.reports) == 4
    assert (one.status().stale, other.status().stale) == (0, 1)
    assert other.ledger().metrics[0].answers == 2


def test_forgetting_leaves_nothing_and_says_what_was_spent(tmp_path):
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path)
    telemetry.record("homepage", "x")
    telemetry.flush(0.3)
    words = telemetry.forget()
    telemetry.record("homepage", "x")
    assert list(tmp_path.iterdir()) == []
    assert "at most 7.72-fold (epsilon 2.04), but not bounded for somebody who sees" in words
    assert telemetry.status().disabled is not None


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
def test_damaged_state_fails_closed(tmp_path, caplog, name, damage):
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
    return [path.read_bytes() for path in folder.iterdir() if path.name == name]


def test_digests_in_the_ledger_are_keyed(tmp_path):
    digests = set()
    for client in ("a", "b"):
        secret, *_ = open_state(tmp_path / client, make_registry())
        encoder = Encoder(make_metric(params=make_params(m=1)), secret)
        digests.add(encoder.value_digest(encoder.true_bits("x")))
    assert len(digests) == 2


def test_consent_that_is_given_at_run_time_begins_to_record(tmp_path):
    with scripted_server() as server:
        telemetry = Telemetry(make_registry(), server.url, tmp_path / "state", consent=False)
        telemetry.record("homepage", "x")
        telemetry.set_consent(True)
        telemetry.record("homepage", "x")
        assert telemetry.flush(20)
        telemetry.close()
    assert len(server.reports) == 1
    assert telemetry.status().dropped == {"disabled": 1}


def test_consent_that_is_withdrawn_stops_at_once_and_deletes_what_was_not_sent(tmp_path):
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path)
    for _ in range(3):
        telemetry.record("homepage", "x")
    telemetry.flush(0.3)
    with telemetry._recorder.changed:  # two more wait in memory
        telemetry.record("homepage", "x")
        telemetry.record("homepage", "x")
        telemetry.set_consent(False)
    telemetry.record("homepage", "x")
    wait_until(lambda: telemetry.status().dropped.get("consent withdrawn", 0) == 5)
    status = telemetry.status()
    assert (status.disabled, status.waiting) == ("no consent", 0)
    assert status.dropped == {"consent withdrawn": 5, "disabled": 1}
    telemetry.close()
    assert records_on_disk(tmp_path) == []
    assert Telemetry(make_registry(), NOWHERE, tmp_path).ledger().epsilon > 0  # the account stays


def test_consent_may_change_back_and_forth(tmp_path):
    with scripted_server() as server:
        telemetry = Telemetry(make_registry(), server.url, tmp_path)
        for consent in (False, True, True, False, False, True):
            telemetry.set_consent(consent)
            telemetry.record("homepage", "x")
        assert telemetry.flush(20)
        telemetry.close()
        telemetry.set_consent(True)
        telemetry.record("homepage", "x")
    status = telemetry.status()
    assert status.delivered == len(server.reports)
    assert status.recorded == 3
    withdrawn = status.dropped.get("consent withdrawn", 0)
    assert status.dropped["disabled"] == 3
    assert status.dropped["closed"] == 1
    assert status.delivered + withdrawn == 3


def test_environment_overrules_a_consent_given_at_run_time(tmp_path, monkeypatch):
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path / "state", consent=False)
    monkeypatch.setenv("DO_NOT_TRACK", "1")
    telemetry.set_consent(True)
    telemetry.record("homepage", "x")
    assert telemetry.status().disabled == "DO_NOT_TRACK is set"
    assert not (tmp_path / "state").exists()


def test_recording_a_one_time_metric_again_is_no_warning(tmp_path, caplog):
    registry = make_registry(make_metric(params=make_params(f=0.0), one_time=True))
    with caplog.at_level(logging.DEBUG, "hubbub.client"):
        for _ in range(3):
            with Telemetry(registry, NOWHERE, tmp_path) as telemetry:
                telemetry.record("homepage", "x")
                telemetry.flush(0.3)
    said = [r.levelno for r in caplog.records if "already reported" in r.getMessage()]
    assert said == [logging.DEBUG] * 2
    assert max(record.levelno for record in caplog.records) < logging.WARNING


def test_batch_that_is_under_way_when_the_consent_is_withdrawn_is_not_sent_again(tmp_path):
    gate = Gate()
    with scripted_server(gate) as server, ThreadPoolExecutor(1) as pool:
        telemetry = Telemetry(make_registry(), server.url, tmp_path, timeout=5.0)
        telemetry.record("homepage", "x")
        pool.submit(telemetry.flush, 20)
        wait_until(lambda: len(server.received) == 1)
        telemetry.set_consent(False)
        telemetry.close()
        gate.opened.set()
        again = Telemetry(make_registry(), server.url, tmp_path)
        assert again.flush(20)
        again.close()
    assert len(server.received) == 1


def test_no_and_yes_at_once_delete_what_was_recorded_before_the_no(tmp_path):
    with scripted_server(lambda _: Answer(503)) as server:
        telemetry = Telemetry(make_registry(), server.url, tmp_path, batch_seconds=1e6)
        for _ in range(3):
            telemetry.record("homepage", "x")
        telemetry.flush(0.3)
        wait_until(lambda: telemetry.status().waiting == 3 and not telemetry._recorder.pending)
        telemetry.set_consent(False)
        telemetry.set_consent(True)
        telemetry.record("homepage", "x")
        telemetry.close(0)
    assert telemetry.status().dropped.get("consent withdrawn", 0) <= 3
    assert len(records_on_disk(tmp_path)) == 1


def test_no_deletes_what_an_earlier_run_did_not_send_and_a_start_without_an_answer_does_not(
    tmp_path, caplog
):
    with Telemetry(make_registry(), NOWHERE, tmp_path) as telemetry:
        telemetry.record("homepage", "x")
        telemetry.flush(0.3)
    assert len(records_on_disk(tmp_path)) == 1
    refused = Telemetry(make_registry(), NOWHERE, tmp_path, consent=False)
    assert len(records_on_disk(tmp_path)) == 1
    refused.set_consent(False)
    assert records_on_disk(tmp_path) == []
    assert refused.status().dropped == {"consent withdrawn": 1}
    assert refused.ledger().epsilon > 0
    assert caplog.text == ""


def test_recordings_that_race_with_a_withdrawal_leave_nothing(tmp_path):
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path)
    ended = threading.Event()

    def work():
        while not ended.is_set():
            telemetry.record("homepage", "x")

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(20):
        telemetry.set_consent(True)
        time.sleep(0.005)
        telemetry.set_consent(False)
    ended.set()
    thread.join()
    telemetry.close()
    wait_until(lambda: records_on_disk(tmp_path) == [])
    assert not telemetry._recorder.pending


def test_withdrawal_that_finds_the_disk_busy_is_made_up_for_before_anything_is_sent(tmp_path):
    with scripted_server(lambda n: Answer(503 if n == 0 else 201)) as server:
        with Telemetry(make_registry(), server.url, tmp_path) as telemetry:
            for _ in range(5):
                telemetry.record("homepage", "x")
        assert len(server.received) == 1
        server.received.clear()
        with held_database(tmp_path):
            telemetry = Telemetry(make_registry(), server.url, tmp_path, consent=False)
            telemetry.set_consent(False)
        telemetry.set_consent(True)
        telemetry.record("homepage", "x")
        assert telemetry.flush(30)
        telemetry.close()
    assert len(server.reports) == 1
    assert telemetry.status().dropped == {"consent withdrawn": 5}


def test_consent_does_not_revive_a_client_that_was_forgotten_elsewhere(tmp_path):
    one, other = (Telemetry(make_registry(), NOWHERE, tmp_path) for _ in range(2))
    for telemetry in (one, other):
        telemetry.record("homepage", "x")
        telemetry.flush(0.3)
    one.forget()
    other.record("homepage", "x")
    wait_until(lambda: other.status().disabled is not None)
    for consent in (False, True):
        other.set_consent(consent)
    assert str(other.status().disabled).startswith("forgotten")
