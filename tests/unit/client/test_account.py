"""The laws of the account: silence tells nothing of values, and what is admitted is paid for."""

import math
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, strategies as st

from evaluation.reference import histories
from evaluation.reference.account import Account as ReferenceAccount, Json
from evaluation.reference.histories import BOOLEAN, COLOURS, ENUM, HOUR, START
from evaluation.reference.schedule import DAY
from factories import APPLICATION, make_metric, make_params, make_registry
from hubbub.client import Metric, Registry, Report, StateError
from hubbub.client.ledger import CHANGED_DEFINITION, AnswerKey
from hubbub.client.outbox import Outbox
from hubbub.client.state import read_account
from hubbub.protocol import BooleanType, EnumType, Value
from parameters import examples
from unit.client.accounts import (
    REFUSED,
    MemoryClient,
    Outcome,
    Process,
    registry_of,
    stored_reports,
)

TYPES = [ENUM, BOOLEAN, ENUM | {"f": 0.25}, BOOLEAN | {"f": 0.25}]
ONE_TIME = [{**ENUM, "f": 0.0}, {"type": "boolean", "f": 0.25}]
NAMES = ("a", "b", "c")
ENUM_PRICE = histories.ENUM_PRICE
THEME = make_metric("theme", metric_type=EnumType(tuple(COLOURS)))


class Moment(NamedTuple):
    """When which metric is recorded: all of a recording but its value."""

    time: int
    metric: str


@st.composite
def metrics(draw: st.DrawFn) -> Json:
    of_type = draw(st.sampled_from(TYPES))
    memory = draw(st.sampled_from(["value", "period", "once"]))
    if memory == "value":
        return histories.metric(of_type, max_values=draw(st.integers(1, 3)))
    if memory == "period":
        return histories.periods(of_type, draw(st.integers(1, 3)), draw(st.integers(1, 4)))
    return histories.metric(draw(st.sampled_from(ONE_TIME)), mode="one-time")


def registries() -> st.SearchStrategy[Json]:
    """Registries whose budgets are often met exactly: prices are multiples of a boolean's."""
    exact = st.integers(1, 30).map(lambda n: n * histories.BOOLEAN_PRICE)
    return st.builds(
        lambda of_metrics, budget: histories.registry(
            budget, **dict(zip(NAMES, of_metrics, strict=False))
        ),
        st.lists(metrics(), min_size=1, max_size=len(NAMES)),
        st.none() | exact | st.floats(0.5, 40.0),
    )


def moments(rules: Json) -> st.SearchStrategy[Moment]:
    """Readings of a clock that goes where it likes."""
    times = st.integers(-8 * 24, 8 * 24).map(lambda hours: START + hours * HOUR)
    return st.builds(Moment, times, st.sampled_from(sorted(rules["metrics"])))


def value_of(rules: Json, metric: str, number: int) -> Value:
    if rules["metrics"][metric]["type"] == "boolean":
        return bool(number % 2)
    return COLOURS[number]


def history(rules: Json, times: Sequence[Moment], numbers: Sequence[int]) -> list[Any]:
    return [(*m, value_of(rules, m.metric, n)) for m, n in zip(times, numbers, strict=True)]


NUMBERS = st.integers(0, len(COLOURS) - 1)


def values(n: int) -> st.SearchStrategy[list[int]]:
    return st.lists(NUMBERS, min_size=n, max_size=n)


@examples(200)
@given(data=st.data())
def test_silence_depends_on_times_alone(data):
    """For any two histories of values with the same recording times and metrics."""
    rules = data.draw(registries())
    times = data.draw(st.lists(moments(rules), min_size=1, max_size=40))
    silences = []
    for _ in range(2):
        client = MemoryClient(registry_of(rules))
        recordings = history(rules, times, data.draw(values(len(times))))
        silences.append([client.record(*recording) == REFUSED for recording in recordings])
    assert silences[0] == silences[1]


@examples(30)
@given(data=st.data())
def test_silence_of_two_processes_depends_on_times_alone(data):
    """Whoever records and whoever comes to the disk first, however long others wait for it."""
    rules = data.draw(registries())
    times = data.draw(st.lists(moments(rules), min_size=1, max_size=10))
    turns = data.draw(
        st.lists(
            st.tuples(st.integers(0, 1), st.sets(st.integers(0, 1))),
            min_size=len(times),
            max_size=len(times),
        )
    )
    counts = []
    for _ in range(2):
        recordings = history(rules, times, data.draw(values(len(times))))
        counts.append(reports_after_each(registry_of(rules), recordings, turns))
    assert counts[0] == counts[1]


def reports_after_each(
    registry: Registry, recordings: Sequence[Any], turns: Sequence[tuple[int, set[int]]]
) -> list[tuple[int, int]]:
    """Return how many reports wait in memory and on disk after each recording.

    A turn says which process records, and which come to the disk then.
    """
    counts = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes = [Process(folder, registry) for _ in range(2)]
        for recording, (recorder, committing) in zip(recordings, turns, strict=True):
            processes[recorder].record(*recording)
            for i in sorted(committing):
                processes[i].commit_reports(recording[0])
            pending = sum(len(process.recorder.pending) for process in processes)
            counts.append((pending, sum(stored_reports(folder).values())))
    return counts


@examples(200)
@given(data=st.data())
def test_recordings_become_what_the_document_says(data):
    rules = data.draw(registries())
    times = data.draw(st.lists(moments(rules), min_size=1, max_size=40))
    recordings = history(rules, times, data.draw(values(len(times))))
    client, reference = MemoryClient(registry_of(rules)), ReferenceAccount(rules)
    for recording in recordings:
        assert client.record(*recording) == Outcome(*reference.record(*recording))
    assert client.spending().committed == pytest.approx(reference.committed)
    assert client.spending().epsilon == pytest.approx(reference.spent)


@examples(200)
@given(data=st.data())
def test_when_recordings_are_stored_changes_nothing_of_what_becomes_of_them(data):
    """They are charged once, all those that wait together: nothing is admitted beyond a cap."""
    rules = data.draw(registries())
    times = data.draw(st.lists(moments(rules), min_size=1, max_size=40))
    recordings = history(rules, times, data.draw(values(len(times))))
    stored_after = data.draw(st.sets(st.integers(0, len(times) - 1)))
    client, reference = MemoryClient(registry_of(rules)), ReferenceAccount(rules)
    outcomes, waiting = [REFUSED] * len(recordings), []
    for number, recording in enumerate(recordings):
        waiting += [number] * client.take(*recording)
        projected = client.spending()
        if number in stored_after | {len(times) - 1}:
            for kept, outcome in zip(waiting, client.commit(), strict=True):
                outcomes[kept] = outcome
            assert client.spending() == projected
            waiting = []
    assert outcomes == [Outcome(*reference.record(*recording)) for recording in recordings]
    assert client.spending().committed == pytest.approx(reference.committed)


@examples(200)
@given(data=st.data())
def test_admitted_values_are_charged_and_stay_in_the_budget(data):
    rules = data.draw(registries())
    times = data.draw(st.lists(moments(rules), min_size=1, max_size=40))
    registry = registry_of(rules)
    client, prices = MemoryClient(registry), [0.0]
    for recording in history(rules, times, data.draw(values(len(times)))):
        if client.record(*recording).result == "admitted":
            prices.append(registry[recording[1]].price)
        spending = client.spending()
        assert spending.committed == pytest.approx(math.fsum(prices))
        assert spending.epsilon <= spending.committed * (1 + 1e-12)
        if registry.lifetime_epsilon is not None:
            assert spending.committed <= registry.lifetime_epsilon * (1 + 1e-9)


@pytest.mark.parametrize("winner", [0, 1])
def test_the_period_is_answered_by_the_process_that_is_stored_first(tmp_path, winner):
    """In m = 1024 cohorts two answers share one with chance 1/1024: so of 20 periods one may."""
    metric = make_metric("page", params=make_params(m=1024), period_days=1)
    processes = [Process(tmp_path, make_registry(metric)) for _ in range(2)]
    differing = 0
    for day in range(20):
        time = START + day * DAY
        for process, value in zip(processes, ("example.com", "example.org"), strict=True):
            process.record(time, "page", value)
        drawn = [process.recorder.pending[0].own.response for process in processes]
        for i in (winner, 1 - winner):
            process = processes[i]
            (admitted,) = process.commit_reports(time).admitted
            assert admitted.response == drawn[winner]
        assert {report.cohort for report in take_spool(tmp_path)} == {drawn[winner].cohort}
        differing += drawn[0].cohort != drawn[1].cohort
    assert differing >= 16  # fewer by chance: P < 1e-10
    assert sorted(stored_reports(tmp_path).values()) == [2] * 20


def take_spool(folder: Path) -> list[Report]:
    with closing(Outbox(folder, APPLICATION)) as outbox, outbox.transaction() as connection:
        rows = connection.execute("SELECT metric, version, record FROM reports").fetchall()
        connection.execute("DELETE FROM reports")
    assert len(rows) == 2
    return [
        Report(metric, version, int.from_bytes(record[:2], "little"), record[2:])
        for metric, version, record in rows
    ]


def test_a_report_whose_price_can_t_be_stored_isn_t_stored_either(tmp_path):
    process = Process(tmp_path, make_registry(THEME))
    with closing(Outbox(tmp_path, APPLICATION)) as outbox:
        refusal = "BEFORE INSERT ON answers BEGIN SELECT RAISE(FAIL, 'no more'); END"
        outbox.connection.execute(f"CREATE TRIGGER price {refusal}")
        with pytest.raises(StateError, match="no more"):
            process.store(START, "theme", "red")
        assert outbox.waiting() == 0


def test_of_two_processes_with_room_for_one_value_the_second_reports_the_firsts(tmp_path):
    registry = make_registry(THEME._replace(max_values=1))
    first, second = Process(tmp_path, registry), Process(tmp_path, registry)
    for process, value in ((first, "red"), (second, "blue")):
        process.record(START, "theme", value)
    assert first.commit_reports(START).stale == 0
    result = second.commit_reports(START)
    assert (result.stale, len(result.admitted), not result.refused) == (1, 1, True)
    assert list(stored_reports(tmp_path).values()) == [2]


def test_of_two_versions_of_an_app_one_answers_a_period(tmp_path):
    """While an update spreads, processes of both write to one directory."""
    old, new = (Process(tmp_path, make_registry(mood(version=version))) for version in (1, 2))
    for first, second, day in ((old, new, 0), (new, old, 10)):
        for hour in range(6):
            now = START + day * DAY + hour * HOUR
            assert not first.store(now, "mood", True).refused
            second.store(now, "mood", True)
    assert sorted(stored_reports(tmp_path).items()) == [
        (AnswerKey("mood", version, b"\0\0\0\1"), 6) for version in (1, 2)
    ]


def test_periods_are_deleted_when_they_are_over_also_of_metrics_that_are_no_longer_registered(
    tmp_path,
):
    old = Process(tmp_path, make_registry(mood(), THEME))
    old.store(START, "mood", True)
    new = Process(tmp_path, make_registry(THEME))
    for time, periods_left in ((START + 10 * DAY - 1, 1), (START + 10 * DAY, 0)):
        new.store(time, "theme", "red")
        assert stored_periods(tmp_path) == periods_left


def stored_periods(folder: Path) -> int:
    query = "SELECT count(*) FROM memory WHERE end_day IS NOT NULL"
    with closing(Outbox(folder, APPLICATION)) as outbox, outbox.transaction() as connection:
        return int(connection.execute(query).fetchone()[0])


@pytest.mark.parametrize("period_days", [0, 5])
def test_a_metric_that_changed_under_its_version_harms_no_other(tmp_path, period_days):
    """Nor does it lose its answer, should the change be taken back."""
    rightly = make_registry(mood(), THEME)
    before = Process(tmp_path, rightly)
    before.store(START, "mood", True)
    wrongly = Process(tmp_path, make_registry(mood(period_days=period_days), THEME))
    for metric, value in (("mood", False), ("theme", "red")):
        wrongly.record(START + 6 * DAY, metric, value)
    (admitted,) = wrongly.commit_reports(START + 6 * DAY).admitted
    assert admitted.answer.metric == "theme"
    assert wrongly.recorder.dropped == {CHANGED_DEFINITION: 1}
    again = Process(tmp_path, rightly)
    again.store(START + 7 * DAY, "mood", False)
    assert sorted(stored_reports(tmp_path).values()) == [1, 2]


def mood(*, version: int = 1, period_days: int = 10) -> Metric:
    return make_metric("mood", version=version, metric_type=BooleanType(), period_days=period_days)


def test_a_clock_that_one_process_saw_go_back_went_back_for_all(tmp_path):
    """From their next visit to the disk others, too, count from the reading that is stored."""
    processes = [Process(tmp_path, make_registry(mood())) for _ in range(3)]
    for turn, days in enumerate((0, -15, -12, -11, -5, -4, -4)):
        process = processes[turn % 3]
        process.store(START + days * DAY, "mood", True)
    assert sorted(stored_reports(tmp_path).values()) == [3, 4]


def test_processes_share_the_stored_clock(tmp_path):
    """The second learns at the disk alone since when the clock is behind."""
    first, second = (Process(tmp_path, make_registry(mood())) for _ in range(2))
    for process, days in ((first, 0), (second, 0), (first, -15), (second, -5)):
        process.store(START + days * DAY, "mood", True)
    assert sorted(stored_reports(tmp_path).values()) == [1, 3]
    second.store(START - 5 * DAY, "mood", True)
    assert sorted(stored_reports(tmp_path).values()) == [2, 3]


def test_shown_values_stay_shown_when_max_values_is_lowered(tmp_path):
    """Of 60 reports in which two values alternate every change can be seen, for ever."""
    before = Process(tmp_path, make_registry(THEME._replace(max_values=2)))
    for number in range(60):
        before.store(START, "theme", ("red", "green")[number % 2])
    after = Process(tmp_path, make_registry(THEME._replace(max_values=1)))
    after.store(START, "theme", "red")
    without = Process(tmp_path, make_registry(THEME._replace(name="other", max_values=1)))
    for process in (before, after, without):
        assert read_account(tmp_path, process.registry).spending().epsilon_any_history == math.inf


def test_a_lifetime_s_budget_holds_after_an_update_that_reserves_less(tmp_path):
    """What four periods cost stays spent, though one would be asked for from now on."""
    theme = THEME._replace(max_values=3)
    budget = 4 * mood().price + 2 * theme.price
    before, after = (
        make_registry(mood()._replace(max_periods=most), theme, lifetime_epsilon=budget)
        for most in (4, 1)
    )
    process = Process(tmp_path, before)
    for period in range(4):
        process.store(START + 10 * period * DAY, "mood", True)
    assert [process.store(START, "theme", colour).stale for colour in ("red", "green")] == [0, 0]
    assert Process(tmp_path, after).store(START, "theme", "blue").stale == 1


def test_where_no_second_value_was_ever_reported_any_history_is_bounded(tmp_path):
    alone = Process(tmp_path, make_registry(THEME._replace(max_values=1)))
    for colour in ("red", "green", "red"):
        alone.store(START, "theme", colour)
    raised = make_registry(THEME._replace(max_values=2))
    (spending,) = read_account(tmp_path, raised).spending().metrics
    assert spending.reports == 3
    assert spending.epsilon_any_history == spending.epsilon < math.inf
    later = Process(tmp_path, raised)
    later.store(START, "theme", "red")
    assert read_account(tmp_path, raised).spending().epsilon_any_history == math.inf
