"""Mode "once" and groups on the account: one report a period, at times that say nothing."""

import datetime as dt
import shutil
import sqlite3
from collections import Counter
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import APPLICATION, make_metric, make_params, make_registry, make_secret
from hubbub.client import Registry, Telemetry
from hubbub.client.encoder import Encoder
from hubbub.client.ledger import NOT_CHOSEN, REPORTED_IN_PERIOD, WAITING, Account
from hubbub.client.outbox import DATABASE
from hubbub.client.recorder import Recorder
from hubbub.client.schedule import chosen, first_day, period_at
from hubbub.client.state import open_state
from hubbub.client.testing import RecordingTelemetry
from hubbub.protocol.errors import UnknownCategoryError
from hubbub.protocol.metric_types.enums import EnumType
from hubbub.protocol.metrics import SECONDS_A_DAY
from hubbub.protocol.registry import Group
from hubbub.protocol.responses import Subset
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


def test_status_says_when_the_first_period_starts(tmp_path, monkeypatch):
    days = {"crash": 30, "theme": 7}
    registry = make_registry(*(once(name, period_days) for name, period_days in days.items()))
    now = 20_000 * SECONDS_A_DAY + 3600.0
    monkeypatch.setattr("time.time", lambda: now)
    waiting = 0
    for number in range(20):
        telemetry = Telemetry(registry, "http://127.0.0.1:9", tmp_path / f"{number}")
        said = telemetry.status().first_periods
        telemetry.close(0)
        secret = telemetry._recorder.secret
        assert secret
        for name, period_days in days.items():
            starts = [
                day
                for day in range(20_000, 20_000 + 2 * period_days)
                if period_at(registry[name], secret, day * SECONDS_A_DAY).first_day == day
            ]
            expected = str(dt.date(1970, 1, 1) + dt.timedelta(starts[0]))
            assert said.get(name) == (None if starts[0] == 20_000 else expected)
            waiting += name in said
    assert waiting > 20  # it is 37 on average; 20 or fewer have a chance below 1e-12


def test_status_says_nothing_of_periods_that_have_started(tmp_path):
    registry, nowhere = make_registry(once()), "http://127.0.0.1:9"
    with Telemetry(registry, nowhere, tmp_path, development=True) as telemetry:
        assert telemetry.status().first_periods == {}
        telemetry.record("crash", "red")
    with Telemetry(registry, nowhere, tmp_path) as telemetry:
        assert telemetry.status().first_periods == {}


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
        recordings = self.recorder.drain(self.secret)
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


def test_a_period_of_a_day_never_waits():
    client = Client(make_registry(once(period_days=1)))
    assert client.days_of_reports(range(20_000, 20_005)) == list(range(20_000, 20_005))


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


def test_a_client_is_silent_after_the_last_of_its_periods():
    client = Client(make_registry(once(period_days=1, max_periods=3)))
    assert client.days_of_reports(range(20_000, 20_010)) == [20_000, 20_001, 20_002]


def test_a_new_version_waits_for_the_next_period():
    old = Client(make_registry(once()))
    days = old.days_of_reports(range(20_000, 20_000 + 2 * DAYS))
    new = Client(make_registry(once(version=2)))
    period = period_at(once(), new.secret, days[-1] * SECONDS_A_DAY).number
    following = first_day(once(), new.secret, period + 1)
    assert new.days_of_reports(range(days[-1] + 1, following + 1)) == [following]


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


def test_a_clock_that_begins_in_1970_at_every_start_costs_no_report():
    client = Client(make_registry(once()))
    first, following = (first_day(once(), client.secret, period) for period in (3000, 3001))
    assert client.record(first)
    for day in range(first + 1, following):
        assert not client.record(0)
        assert not client.record(day)
    assert client.record(following)


def test_a_clock_that_stays_behind_is_gone_by_after_the_length_of_a_period():
    client = Client(make_registry(once()))
    first = first_day(once(), client.secret, 3000)
    assert client.record(first)
    behind = first - 5 * DAYS
    assert client.days_of_reports(range(behind, behind + DAYS + 1)) == [behind + DAYS]


def stored_memory(folder):
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        return connection.execute("SELECT answer, cohort, bits FROM memory").fetchall()


def test_nothing_of_the_value_stays_on_the_disk_but_the_unsent_report(tmp_path):
    process = Process(tmp_path, make_registry(once(period_days=1)))
    process.store(20_000 * SECONDS_A_DAY, "crash", "blue")
    assert stored_memory(tmp_path) == []


def test_other_processes_and_later_starts_know_that_a_period_was_reported(tmp_path):
    registry = make_registry(once(period_days=1))
    one, other = (Process(tmp_path, registry) for _ in range(2))
    now = 20_000 * SECONDS_A_DAY
    for process in (one, other):
        process.record(now, "crash", "red")
    assert len(one.commit_reports(now).admitted) == 1
    assert other.commit_reports(now).refused == {REPORTED_IN_PERIOD: 1}
    later = Process(tmp_path, registry)
    later.record(now + 60, "crash", "blue")
    assert not later.recorder.pending


def test_a_copy_counts_the_current_period_as_reported(tmp_path):
    registry = make_registry(once(period_days=1))
    open_state(tmp_path / "original", registry)
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    process = Process(tmp_path / "copy", registry)
    assert process.recorder._account.periods["crash"].answered is False


def test_reports_of_different_periods_are_in_fresh_cohorts():
    metric = make_metric("page", mode="once", params=make_params(f=0.0, m=64), period_days=1)
    encoder = Encoder(metric, make_secret())
    assert len({encoder.encode("x").cohort for _ in range(64)}) > 8


NAMES = ("crash", "page")


def test_a_client_answers_one_metric_of_a_group_for_life():
    registry = grouped(once(period_days=1), once("page", period_days=1))
    answered: Counter[str] = Counter()
    for number in range(40):
        client = Client(registry, number)
        own = chosen(registry.groups["mood"], APPLICATION, client.secret)
        for day in range(20_000, 20_003):
            assert [name for name in NAMES if client.record(day, name)] == [own]
        assert client.recorder.dropped == {NOT_CHOSEN: 3}
        answered[own] += 1
    assert set(answered) == set(NAMES)


def test_a_group_may_choose_anew_for_each_period_and_costs_one_report_in_it():
    metrics = [once(name, period_days=2) for name in NAMES]
    client = Client(grouped(*metrics, choice="period"))
    grouped_metric = metrics[0]._replace(group="mood")
    start = first_day(grouped_metric, client.secret, 10_000)
    end = first_day(grouped_metric, client.secret, 10_020)
    found = [name for day in range(start, end) for name in NAMES if client.record(day, name)]
    assert len(found) == 20
    assert set(found) == set(NAMES)
    assert client.recorder.spending().epsilon == pytest.approx(20 * metrics[0].epsilon_report)


def test_metrics_of_a_group_share_their_periods_and_cost_no_more_than_the_dearest():
    weekly = [once(name, max_periods=3) for name in ("a", "b", "c")]
    registry = grouped(*weekly, choice="period")
    for number in range(5):
        client = Client(registry, number)
        for day in range(20_000, 20_000 + 10 * DAYS):
            for name in registry:
                client.record(day, name)
        spending = client.recorder.spending()
        assert sum(metric.answers for metric in spending.metrics) == 3
        assert spending.epsilon == pytest.approx(registry.reserve())


def test_a_clock_that_is_set_back_finds_a_groups_period_answered_by_another_metric():
    """As it would be by the metric itself; as long as the clock isn't behind for a period."""
    weekly = [once(name) for name in NAMES]
    client = Client(grouped(*weekly, choice="period"))
    metric = weekly[0]._replace(group="mood")
    firsts = [first_day(metric, client.secret, 3000 + i) for i in range(30)]
    for now in firsts:
        assert sum(client.record(now, name) for name in NAMES) == 1
        behind = range(now - 20, now - 20 + DAYS)
        assert not any(client.record(day, name) for day in behind for name in NAMES)


def test_a_version_raised_within_a_period_does_not_report_again_in_it():
    reported_twice = 0
    for number in range(33):
        old = Client(make_registry(once(period_days=1)), number)
        assert old.record(20_000)
        new = Client(make_registry(once(period_days=1, version=2)), number)
        new.account = Account(
            make_registry(once(period_days=1, version=2)),
            periods=old.account.periods,
            memory=old.account.memory,
        )
        new.recorder.refresh(new.account)
        reported_twice += new.record(20_000)
        assert new.record(20_001)
    assert reported_twice == 0


def test_the_account_holds_to_a_groups_first_answer_when_its_metrics_change():
    alone = make_registry(once(period_days=1), once("page", period_days=1))
    for number in range(10):
        client = Client(alone, number)
        assert client.record(20_000, "crash")
        both = Registry(APPLICATION, alone, None, [Group("mood", NAMES, "life")])
        later = Client(both, number)
        later.account = Account(both, client.account.ledger, periods=client.account.periods)
        later.recorder.refresh(later.account)
        assert not later.record(20_001, "page")


def test_doubles_for_apps_tests_record_every_metric_at_once():
    with RecordingTelemetry(grouped(once(), once("page"))) as telemetry:
        telemetry.record("crash", "red")
        assert telemetry.status().delivered == 1


def test_what_is_refused_takes_no_coins_but_must_be_a_value(monkeypatch):
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
