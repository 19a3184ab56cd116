"""What a client remembers of its answers, as whoever links all of its reports sees it."""

import base64
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from factories import make_metric, make_params, make_registry
from http_servers import ScriptedServer, scripted_server
from hubbub.client import Registry, Telemetry
from hubbub.protocol import EnumType
from service.apps import NOWHERE, App, bytes_on_disk

DAY = 86_400.0
NOON = 20_000 * DAY + DAY / 2
WEEKLY = make_registry(make_metric("page", params=make_params(k=8, h=1, m=2), period_days=7))
REPORTS = 400


class Clock:
    """The system's clock, set by the test; it stands still."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Iterator[Clock]:
    clock = Clock()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", clock)
        yield clock


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as server:
        yield server


def permanent_bits(reports: list[dict[str, object]]) -> tuple[int, ...]:
    """Return what some hundred linked reports show: each lane's likelier permanent bit.

    A lane is read wrongly if a binomial of 400 with mean 100 or 300 crosses 200: 1e-30.
    """
    raw = b"".join(base64.b64decode(str(report["bits"])) for report in reports)
    bits = np.unpackbits(np.frombuffer(raw, np.uint8).reshape(len(reports), -1), axis=1)
    assert len(reports) >= REPORTS
    return tuple((bits.mean(axis=0) > 0.5).astype(int).tolist())


def answers(reports: list[dict[str, object]], each: int = REPORTS) -> list[tuple[object, ...]]:
    """Return (cohort, permanent bits) of each run of so many reports."""
    runs = [reports[i : i + each] for i in range(0, len(reports), each)]
    for run in runs:
        assert len({report["cohort"] for report in run}) == 1
    return [(run[0]["cohort"], permanent_bits(run)) for run in runs]


def record(
    folder: Path, server: ScriptedServer, *values: str, registry: Registry = WEEKLY
) -> Telemetry:
    """Let one run of an app record each value some hundred times, and deliver that in order."""
    telemetry = Telemetry(registry, server.url, folder, batch_size=REPORTS)
    for value in values:
        for _ in range(REPORTS):
            telemetry.record("page", value)
        assert telemetry.flush(30)
    telemetry.close()
    return telemetry


@pytest.mark.usefixtures("clock")
def test_stored_bits_have_the_reported_distribution(tmp_path, server):
    record(tmp_path, server, "a", "b")
    with closing(sqlite3.connect(tmp_path / "client.db")) as connection:
        ((cohort, bits),) = connection.execute("SELECT cohort, bits FROM memory").fetchall()
    lanes = np.unpackbits(np.frombuffer(bits, np.uint8)).tolist()
    assert answers(server.reports) == [(cohort, tuple(lanes))] * 2


def test_each_period_draws_its_answer_and_its_cohort_again(tmp_path, server, clock):
    """Of 10 draws among 1,024 cohorts 5 or fewer are different with probability below 1e-10."""
    one_report = make_registry(
        make_metric("page", params=make_params(k=8, h=1, m=1024), period_days=1)
    )
    for _ in range(10):
        telemetry = Telemetry(one_report, server.url, tmp_path)
        telemetry.record("page", "always the same")
        assert telemetry.flush(30)
        telemetry.close()
        clock.now += DAY
    cohorts = [report["cohort"] for report in server.reports]
    assert len(set(cohorts)) > 5
    assert telemetry.ledger().metrics[0].answers == 10


@pytest.mark.parametrize("then", ["another report", "a restart"])
def test_answer_of_a_period_that_is_over_is_on_no_disk(tmp_path, clock, then):
    registry = make_registry(make_metric("page", period_days=7), make_metric("other"))
    telemetry = Telemetry(registry, NOWHERE, tmp_path)
    telemetry.record("page", "a")
    telemetry.flush(0.5)
    with closing(sqlite3.connect(tmp_path / "client.db")) as connection:
        query = "SELECT bits FROM memory WHERE metric = 'page'"
        ((bits,),) = connection.execute(query).fetchall()
    assert any(bits in content for content in bytes_on_disk(tmp_path))
    clock.now += 7 * DAY
    if then == "another report":
        telemetry.record("other", "x")
        telemetry.flush(0.5)
    telemetry.close()
    if then == "a restart":
        Telemetry(registry, NOWHERE, tmp_path).close(0)
    assert not any(bits in content for content in bytes_on_disk(tmp_path))


def test_clock_that_goes_back_draws_no_answer_uncounted_and_stops_nothing(tmp_path, server, clock):
    record(tmp_path, server, "a")
    clock.now += 10 * 365 * DAY  # by mistake
    record(tmp_path, server, "b")
    clock.now -= 10 * 365 * DAY
    record(tmp_path, server, "c")  # the answer of ten years ahead, for a week
    clock.now += 6.9 * DAY
    record(tmp_path, server, "d")
    clock.now += 0.2 * DAY
    telemetry = record(tmp_path, server, "e")  # the clock was right
    first, ahead, same, also, last = answers(server.reports)
    assert ahead == same == also
    assert telemetry.ledger().metrics[0].answers == 3
    assert telemetry.status().dropped == {}
    clock.now += 7 * DAY
    assert record(tmp_path, server, "f").ledger().metrics[0].answers == 4
    assert (first, last) != (ahead, ahead)


SILENCES = {
    "one value": make_registry(make_metric("page", max_values=1)),
    "two values": make_registry(make_metric("page", max_values=2)),
    "a budget for one": make_registry(
        make_metric("page"), lifetime_epsilon=make_metric().epsilon_permanent
    ),
    "a budget that others' values use up": make_registry(
        make_metric("page"), make_metric("other"), lifetime_epsilon=3 * make_metric().price
    ),
    "periods": make_registry(make_metric("page", period_days=3, max_periods=1)),
    "categories": make_registry(
        make_metric("page", metric_type=EnumType(("a", "b", "c")), max_values=1)
    ),
}


@pytest.mark.parametrize("registry", SILENCES.values(), ids=SILENCES.keys())
def test_silence_does_not_depend_on_values(tmp_path, clock, registry):
    """The same times, other values: as many requests, each with as many reports of each metric."""
    seen = []
    for history in ("aaaaaa", "aabbaa", "abcabc", "cccbbb"):
        clock.now = NOON
        with scripted_server() as server:
            telemetry = Telemetry(registry, server.url, tmp_path / history)
            for value in history:
                for metric in registry:
                    telemetry.record(metric, value)
                assert telemetry.flush(30)
                clock.now += DAY
            telemetry.close()
        seen.append(
            [sorted(r["metric"] for r in request.batch["reports"]) for request in server.received]
        )
        assert telemetry.ledger().committed <= (registry.lifetime_epsilon or 1e9) * (1 + 1e-9)
    assert all(requests == seen[0] for requests in seen)
    assert seen[0]


def test_cap_that_is_reached_goes_on_with_the_last_admitted_answer(tmp_path, server):
    registry = make_registry(make_metric("page", params=make_params(k=128, h=1, m=2), max_values=2))
    telemetry = record(tmp_path, server, "a", "b", "c", registry=registry)
    assert telemetry.status().stale == REPORTS
    again = record(tmp_path, server, "d", "a", registry=registry)
    assert again.status().stale == REPORTS
    a, b, c, d, once_more = answers(server.reports)
    assert a != b == c == d
    assert once_more == a
    assert again.ledger().metrics[0].answers == 2


def test_processes_that_answer_at_once_share_a_periods_answer(tmp_path, server):
    """Real processes, whose first values differ; P(two answers look alike) is that of 8 lanes."""
    script = """
telemetry = open_telemetry(batch_size=500)
for _ in range(400):
    telemetry.record("page", str(os.getpid()))
sys.exit(not telemetry.flush(40))
"""
    app = App(tmp_path, server.url, WEEKLY["page"])
    with app.started(script) as one, app.started(script) as two, app.started(script) as three:
        assert [process.wait(60) for process in (one, two, three)] == [0, 0, 0]
    with closing(sqlite3.connect(app.state / "client.db")) as connection:
        rows = connection.execute("SELECT reports FROM answers").fetchall()
    assert rows == [(3 * REPORTS,)]
    assert len({report["cohort"] for report in server.reports}) == 1
    batches = [json.loads(json.dumps(request.batch)) for request in server.received]
    assert len({batch["batch_id"] for batch in batches}) == len(batches)


def test_fork_between_two_reports_keeps_the_periods_answer(tmp_path, server):
    script = """
telemetry = open_telemetry(batch_size=500)
for _ in range(400):
    telemetry.record("page", "parent")
child = os.fork()
if child == 0:
    for _ in range(400):
        telemetry.record("page", "child")
    os._exit(not telemetry.flush(40))
settled = os.waitpid(child, 0)[1] == 0 and telemetry.flush(40)
sys.exit(not settled)
"""
    app = App(tmp_path, server.url, WEEKLY["page"])
    app.run(script)
    assert len(set(answers(server.reports, each=2 * REPORTS))) == 1


def test_late_recordings_of_a_period_that_is_over_are_not_answered_again(tmp_path, server, clock):
    """Several processes hold recordings of the last second; the first to write ends the period."""
    registry = make_registry(WEEKLY["page"], make_metric("other"))
    workers = [Telemetry(registry, server.url, tmp_path) for _ in range(3)]
    workers[0].record("page", "a")
    assert workers[0].flush(30)
    with ExitStack() as held:
        for worker in workers[1:]:
            held.enter_context(worker._recorder.changed)  # none of theirs comes to the disk
            worker.record("page", "b")
        clock.now += 7 * DAY
        workers[0].record("other", "x")
        assert workers[0].flush(30)
    for worker in workers:
        worker.record("other", "x")
        assert worker.flush(30)
        worker.close()
    answers_given = {m.metric: m.answers for m in workers[2].ledger().metrics}
    assert answers_given["page"] == 1
    late = [worker.status().dropped for worker in workers[1:]]
    assert late == [{"recorded in a period that is over": 1}] * 2
    assert [r["metric"] for r in server.reports].count("page") == 1


def test_two_wrong_clocks_keep_an_answer_for_no_longer_than_a_period(tmp_path, server, clock):
    true = clock.now
    clock.now = true + 14 * 365 * DAY
    record(tmp_path, server, "a")
    clock.now = true + 9 * 365 * DAY
    record(tmp_path, server, "b")
    clock.now = true
    record(tmp_path, server, "c")
    clock.now = true + 8 * DAY
    telemetry = record(tmp_path, server, "d")
    assert telemetry.ledger().metrics[0].answers == 2


@pytest.mark.parametrize("f", [0.0, 0.5])
def test_nothing_of_a_one_time_answer_is_kept(tmp_path, f):
    """With f = 0 its permanent response would be the true bits."""
    params = make_params(f=f, p=0.25, q=0.75) if f == 0 else make_params(f=f, p=0.0, q=1.0)
    metric_type = EnumType(("a", "b", "c", "hiv"))
    registry = make_registry(
        make_metric("page", metric_type=metric_type, params=params, one_time=True)
    )
    with scripted_server() as server:
        telemetry = Telemetry(registry, server.url, tmp_path)
        telemetry.record("page", "hiv")
        assert telemetry.flush(30)
        telemetry.close()
    with closing(sqlite3.connect(tmp_path / "client.db")) as connection:
        assert connection.execute("SELECT * FROM memory").fetchall() == []
        assert connection.execute("SELECT answer FROM answers").fetchall() == [(b"",)]


def test_a_later_budget_silences_no_changed_value(tmp_path):
    before = make_registry(make_metric("page"))
    after = make_registry(
        make_metric("page"), make_metric("other"), lifetime_epsilon=3 * make_metric().price
    )
    reported = []
    for history in ("aaaaaa", "abcdef"):
        with scripted_server() as server:
            for registry, values in ((before, history), (after, "x")):
                with Telemetry(registry, server.url, tmp_path / history) as telemetry:
                    for value in values:
                        telemetry.record("page" if registry is before else "other", value)
                    assert telemetry.flush(30)
        reported.append([r["metric"] for r in server.reports])
    assert reported[0] == reported[1] == ["page"] * 6 + ["other"]
