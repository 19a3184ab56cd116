"""`reports_per_day = 1`: of a client's reports of a metric no two are stored on one day."""

import shutil
import time
from collections import Counter
from contextlib import closing

import pytest

from factories import make_metric, make_params, make_registry
from hubbub.client import Telemetry
from hubbub.client.delivery import DeliveryLoop, DeliverySettings
from hubbub.client.ledger import REPLACED_BY_NEWER, REPORTED_TODAY
from hubbub.client.outbox import LeasedBatch
from hubbub.client.transport import Answer, Outcome
from hubbub.protocol import SECONDS_A_DAY, EnumType
from unit.client.accounts import Process

NOON = 20_000.5 * SECONDS_A_DAY
COLOURS = EnumType(("red", "green", "blue"))
HARDLY_NOISY = make_params(f=1e-9, p=1e-9, q=1 - 1e-9)
"""A report is its value's bits; P(one of a few dozen isn't) < 1e-6."""
REGISTRY = make_registry(
    make_metric("theme", metric_type=COLOURS, params=HARDLY_NOISY, reports_per_day=1),
    make_metric("page", metric_type=COLOURS, params=HARDLY_NOISY),
)
DELIVERED = Answer(Outcome.DELIVERED)
UNREACHABLE = Answer(Outcome.RETRY, may_be_stored=False)
LOST = Answer(Outcome.RETRY, may_be_stored=True)


class Client:
    """A process, its clock, and a collector that notes the day of each batch that it stores."""

    def __init__(self, folder):
        self.process = Process(folder, REGISTRY)
        self.now = NOON
        self.stored = {}
        settings = DeliverySettings(100, 60.0, 2**24, 1.0)
        self.delivery = DeliveryLoop(
            self.process.recorder, folder, settings, lambda: self.now, lambda: 0.5
        )
        self.outbox = self.delivery.open()

    def record(self, *values, metric="theme"):
        """Record values and store their reports together; return what became of the others."""
        recorder = self.process.recorder
        for value in values:
            self.process.record(self.now, metric, value)
        self.delivery.store(self.outbox)
        dropped = recorder.dropped.copy()
        recorder.dropped.clear()
        return dropped

    def send(self, answer, *, arrives=False):
        """Send what is due, and return the colours that are stored by that."""
        self.delivery.reset_backoff(self.outbox)
        leased = self.delivery.schedule(self.outbox, at_once=True)
        if not isinstance(leased, LeasedBatch):
            return []
        batch_id, reports = leased.batch.batch_id, leased.batch.reports
        is_new = batch_id not in self.stored and (arrives or answer is DELIVERED)
        if is_new:
            self.stored[batch_id] = (self.now // SECONDS_A_DAY, [each.metric for each in reports])
        self.delivery.settle(self.outbox, leased, answer)
        bits = [each.bits[0] for each in reports if is_new]
        return [COLOURS.categories[each.bit_length() - 1] for each in bits]

    def close(self):
        self.outbox.close()


@pytest.fixture
def client(tmp_path):
    with closing(Client(tmp_path)) as opened:
        yield opened


def test_newest_of_several_unsent_reports_is_sent(client):
    assert client.record("red") == {}
    client.now += SECONDS_A_DAY
    assert client.record("green") == {REPLACED_BY_NEWER: 1}
    assert client.send(UNREACHABLE) == []
    client.now += SECONDS_A_DAY
    assert client.record("red", "green", "blue") == {REPLACED_BY_NEWER: 3}
    assert client.send(DELIVERED) == ["blue"]
    assert client.outbox.waiting() == 0


def test_day_has_one_report_and_the_next_another(client):
    client.record("red")
    assert client.send(DELIVERED) == ["red"]
    assert client.record("green", "blue") == {REPORTED_TODAY: 2}
    assert client.send(DELIVERED) == []
    client.now += SECONDS_A_DAY / 2
    assert client.record("green") == {}
    assert client.send(DELIVERED) == ["green"]
    (spent,) = client.process.recorder.spending().metrics
    assert spent.reports == 2


def test_preview_says_whether_there_may_be_another_report_today(client, tmp_path, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: client.now)
    app = Telemetry(REGISTRY, "http://localhost:9", tmp_path, consent=True)

    def refusals():
        return [app.preview(metric, "red").refusal for metric in ("theme", "page")]

    assert refusals() == [None, None]
    client.record("red")
    client.record("red", metric="page")
    assert refusals() == [None, None]
    client.send(DELIVERED)
    assert refusals() == [REPORTED_TODAY, None]
    client.now += SECONDS_A_DAY
    assert refusals() == [None, None]
    app.close()


def test_reports_that_may_have_arrived_are_neither_replaced_nor_followed_that_day(client):
    client.record("red")
    client.send(LOST, arrives=True)
    client.now += SECONDS_A_DAY
    assert client.record("green") == {REPORTED_TODAY: 1}
    client.send(DELIVERED)
    assert client.record("blue") == {REPORTED_TODAY: 1}
    client.now += SECONDS_A_DAY
    assert client.record("green") == {}


def test_metric_without_it_reports_each_recording(client):
    assert client.record("red", "green", "green", metric="page") == {}
    assert sorted(client.send(DELIVERED)) == ["green", "green", "red"]


def test_copy_counts_today_as_reported(tmp_path):
    with closing(Client(tmp_path / "original")) as client:
        client.record("red")
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    with closing(Client(tmp_path / "copy")) as client:
        client.now = time.time()
        assert client.record("red") == {REPORTED_TODAY: 1}


def test_whatever_happens_no_day_has_two_reports(tmp_path, rng):
    with closing(Client(tmp_path)) as client:
        client.outbox.connection.execute("PRAGMA synchronous = OFF")
        for _ in range(400):
            client.now += rng.uniform(0, SECONDS_A_DAY / 3)
            if rng.random() < 0.5:
                client.record(*rng.choice(COLOURS.categories, size=rng.integers(1, 3)))
            else:
                answer = (DELIVERED, UNREACHABLE, LOST)[rng.integers(3)]
                client.send(answer, arrives=answer is LOST and rng.random() < 0.5)
        days = Counter(day for day, reports in client.stored.values() for _ in reports)
    assert len(days) > 20
    assert set(days.values()) == {1}
