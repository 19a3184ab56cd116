"""Mode "once" and groups on the account: one report a period, at times that say nothing."""

import shutil
import sqlite3
from collections import Counter
from contextlib import closing

import pytest
from hypothesis import given, strategies as st

from factories import APPLICATION, make_metric, make_registry, make_secret
from hubbub.client import Encoder, Registry
from hubbub.client.ledger import REPORTED_IN_PERIOD, WAITING, Account
from hubbub.client.outbox import DATABASE
from hubbub.client.recorder import Recorder
from hubbub.client.schedule import first_day, period_at
from hubbub.client.state import open_state
from hubbub.client.testing import RecordingTelemetry
from hubbub.protocol import SECONDS_A_DAY, EnumType, Group, Subset, UnknownCategoryError
from parameters import examples
from unit.client.accounts import Process, _take

COLOURS = EnumType(("red", "green", "blue"))
DAYS = 7
CLIENTS = 210


def once(name="crash", period_days=DAYS, **others):
    return make_metric(
        name, metric_type=COLOURS, mode="once", response=Subset(3, 1, 0.8),
        period_days=period_days, **others,
    )  # fmt: skip


def grouped(*metrics, choice="life"):
    registry = make_registry(*metrics)
    group = Group("mood", tuple(registry), choice)
    return Registry(APPLICATION, registry, None, [group])


class Client:
    """A process that never gets to its disk; it commits after each recording."""

    def __init__(self, registry, number=0):
        self.secret = make_secret(number)
        self.recorder = Recorder(registry, 100, 100, development=True)
        self.account = Account(registry)
        self.recorder.open(self.secret, self.account)

    def record(self, day, metric="crash", value="red"):
        """Return whether there is a report."""
        _take(self.recorder, day * SECONDS_A_DAY + 3600.0, metric, value)
        recordings = self.recorder.drain()
        self.account = self.account.copy()
        charges = self.account.charge(recordings)
        self.recorder.settle(self.account, charges)
        return bool(charges.admitted)

    def days_of_reports(self, days, metric="crash"):
        return [day for day in days if self.record(day, metric)]


def test_a_roll_out_reports_evenly_from_its_first_day_on():
    """Chi-squared of 6 degrees of freedom; P(> 45) < 5e-8, and the clients are fixed."""
    registry = make_registry(once())
    start = 20_000  # in the middle of a period of the calendar
    clients = [Client(registry, number) for number in range(CLIENTS)]
    days = [client.days_of_reports(range(start, start + 3 * DAYS)) for client in clients]
    for week in range(3):
        found = Counter(day for each in days for day in each if (day - start) // DAYS == week)
        expected = CLIENTS / DAYS
        of_days = [found[start + week * DAYS + day] for day in range(DAYS)]
        assert sum((n - expected) ** 2 for n in of_days) / expected < 45


def test_reasons_are_counted_and_what_was_asked_costs_one_report_each():
    client = Client(make_registry(once()))
    begins = first_day(once(), client.secret, 3000)
    assert not client.record(begins - 2)
    assert not client.record(begins - 1)
    assert client.recorder.dropped == {WAITING: 2}
    assert client.record(begins)
    assert not client.record(begins)
    assert client.recorder.dropped == {WAITING: 2, REPORTED_IN_PERIOD: 1}
    spending = client.recorder.spending()
    assert spending.epsilon == spending.committed == pytest.approx(once().epsilon_report)
    assert spending.epsilon_any_history == spending.epsilon


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from(COLOURS.categories)), max_size=30))
def test_when_a_client_reports_never_depends_on_values(recordings):
    one, other = Client(make_registry(once())), Client(make_registry(once()))
    for day, value in recordings:
        assert one.record(20_000 + day, value=value) == other.record(20_000 + day, value="red")


@examples(60)
@given(st.lists(st.integers(-30, 40), max_size=40))
def test_no_period_is_reported_twice_while_the_clock_goes_forward(days):
    client = Client(make_registry(once()))
    reported = client.days_of_reports(sorted(20_000 + day for day in days))
    periods = [period_at(once(), client.secret, day * SECONDS_A_DAY)[0] for day in reported]
    assert len(set(periods)) == len(periods)


def stored_memory(folder):
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        return connection.execute("SELECT answer, cohort, bits FROM memory").fetchall()


def test_nothing_of_the_value_stays_on_the_disk_but_the_unsent_report(tmp_path):
    process = Process(tmp_path, make_registry(once(period_days=1)))
    process.store(20_000 * SECONDS_A_DAY, "crash", "blue")
    assert stored_memory(tmp_path) == []


def test_a_copy_counts_the_current_period_as_reported(tmp_path):
    registry = make_registry(once(period_days=1))
    open_state(tmp_path / "original", registry)
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    process = Process(tmp_path / "copy", registry)
    assert process.recorder._account.periods["crash"].answered is False


def test_doubles_for_apps_tests_record_every_metric_at_once():
    with RecordingTelemetry(grouped(once(), once("page"))) as telemetry:
        telemetry.record("crash", "red")
        assert telemetry.status().delivered == 1


def test_refused_recordings_draw_no_coins_but_must_be_valid(monkeypatch):
    client = Client(make_registry(once()))
    begins = first_day(once(), client.secret, 3000)
    assert client.record(begins)
    drawn: list[object] = []
    monkeypatch.setattr(Encoder, "fresh_response", drawn.append)
    assert not client.record(begins)
    with pytest.raises(UnknownCategoryError):
        client.record(begins, value="mauve")
    assert drawn == []
    assert client.recorder.dropped == {REPORTED_IN_PERIOD: 1}
