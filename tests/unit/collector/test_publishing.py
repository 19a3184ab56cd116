"""Numbers that requests move are published in steps, and reports by metric in hundreds."""

import random
import time

import pytest

from factories import make_metric, make_registry
from hubbub.collector import Metrics, Publisher, RoundedCounter, task_statuses

_NAME = ("reports", "homepage", "1")


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def test_nothing_that_requests_move_changes_between_steps(metrics):
    publisher = Publisher(metrics)
    publisher.step()
    before = publisher.values()
    _count(metrics, 700)
    assert publisher.values() == before
    publisher.step()
    values = publisher.values()
    assert values.of("requests", "201", "stored") == 1
    assert values.of("reports", "homepage", "1") == 700
    assert values.of("request_seconds", "+Inf") == 1
    assert publisher.recent.total("requests") == 1
    publisher.step()
    assert publisher.recent.total("requests") == 0


def test_requests_before_the_first_step_are_not_published(metrics):
    """All steps of all collectors are at the same moments, so that no shorter time can be told."""
    publisher = Publisher(metrics)
    empty = publisher.values()
    _count(metrics, 700)
    assert publisher.values() == empty
    publisher.step()
    assert publisher.values().keys() == empty.keys()
    publisher.step()
    assert publisher.values().keys() == empty.keys()
    _count(metrics, 200)
    publisher.step()
    assert publisher.values().of("reports", "homepage", "1") == 200
    assert publisher.exact.total("reports") == 200


def test_duration_of_an_upkeep_is_not_published(metrics):
    """It takes longer if reports came since the one before."""
    publisher = Publisher(metrics)
    metrics.upkeep("merge", succeeded=True)
    assert not publisher.values().by("upkeep_runs")
    publisher.step()
    values = publisher.values()
    assert values.of("upkeep_runs", "merge", "done") == 1  # though it ran before the first step
    assert values.of("upkeep_last_success_timestamp_seconds", "merge") % 60 == 0
    for failed in (True, False, True):
        metrics.upkeep("merge", succeeded=not failed)
        publisher.step()
        (task,) = task_statuses(publisher.values(), publisher.recent)
        assert task["recent_failures"] == failed


def test_task_that_never_succeeds_is_seen_from_the_start_on(metrics):
    """Its alert asks when it last succeeded; what never did has failed since the start."""
    metrics.begin(make_registry(make_metric()), ["app"], ["merge", "tidy"])
    publisher = Publisher(metrics)
    started = publisher.values().of("upkeep_last_success_timestamp_seconds", "merge")
    assert time.time() - 120 < started <= time.time()
    zero = {("merge", "done"): 0, ("merge", "failed"): 0, ("tidy", "done"): 0}
    assert dict(publisher.values().by("upkeep_runs")).items() >= zero.items()
    assert publisher.values().by("key_refusals") == [
        (("app", reason), 0) for reason in ("key_expired", "quota", "too_large")
    ]
    assert task_statuses(publisher.values(), publisher.recent) == []
    metrics.upkeep("merge", succeeded=False)
    metrics.begin(make_registry(make_metric()), ["app"], ["merge", "tidy"])  # as a reload does
    publisher.step()
    assert publisher.values().of("upkeep_last_success_timestamp_seconds", "merge") == started
    (task,) = task_statuses(publisher.values(), publisher.recent)
    assert (task["recent_failures"], task["last_success"], task["failures"]) == (1, None, 1)


def test_published_numbers_do_not_separate_connections_from_files(metrics):
    publisher = Publisher(metrics)
    publisher.step()
    body, _ = publisher.exposition()
    assert b"process_cpu_seconds_total" in body
    assert b"process_open_fds" not in body


def test_series_of_a_metric_appears_with_its_first_hundred(metrics):
    publisher = Publisher(metrics)
    publisher._coarse = RoundedCounter(lambda: 0.99)
    for reports in (0, 60, 39):
        publisher.step()
        metrics.count("reports", "homepage", 1, n=reports)
        assert _NAME not in publisher.values()
    publisher.step()
    assert _NAME not in publisher.values()  # 99
    metrics.count("reports", "homepage", 1, n=1)
    publisher.step()
    assert publisher.values()[_NAME] == 100


def test_hundreds_never_go_back_and_are_less_than_a_hundred_off():
    chance, coarse, number, before = random.Random(5), RoundedCounter(), 0, 0  # noqa: S311
    for _ in range(5_000):
        number += chance.choice((0, 1, 3, 40, 250))
        shown = coarse({"homepage": number})["homepage"]
        assert shown % 100 == 0
        assert abs(shown - number) < 100
        assert shown >= before
        before = shown


@pytest.mark.parametrize("padding", [0, 1, 50, 99])
@pytest.mark.parametrize("reports", [1, 10, 99])
def test_reports_show_at_a_step_with_their_hundredth_whatever_else_came(padding, reports):
    """P(false alarm) < 1e-6: six standard deviations of the difference of two shares."""
    trials = 20_000
    shares = []
    for number in (padding, padding + reports):
        shown = RoundedCounter()(dict.fromkeys(range(trials), number))
        shares.append(sum(shown.values()) / 100 / trials)
    margin = 6 * (0.5 / trials) ** 0.5
    assert shares[0] == pytest.approx(padding / 100, abs=margin)
    assert shares[1] - shares[0] == pytest.approx(reports / 100, abs=margin)


def test_deleted_reports_are_no_longer_shown():
    coarse = RoundedCounter(lambda: 0.0)
    assert coarse({"homepage": 1_201}) == {"homepage": 1_300}
    assert coarse({"homepage": 1_250}) == {"homepage": 1_300}
    assert coarse({"homepage": 5}) == {"homepage": 100}
    assert coarse({}) == {}
    assert coarse({"homepage": 0}) == {"homepage": 0}


def _count(metrics: Metrics, reports: int) -> None:
    metrics.count("requests", 201, "stored")
    metrics.observe("request_seconds", 0.01)
    metrics.count("reports", "homepage", 1, n=reports)
    metrics.observe("commit_seconds", 0.01)
