"""What Prometheus reads: complete, well-formed, and bounded whatever is counted."""

from __future__ import annotations

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hubbub.collector.operations.metrics import FAMILIES, FamilyType, Histogram, Metrics
from hubbub.collector.operations.status import History, Totals


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def test_everything_counted_is_exposed_under_its_labels(metrics: Metrics) -> None:
    metrics.request(201, "stored")
    metrics.request(201, "stored")
    metrics.request(422, "invalid")
    metrics.reports("homepage", 1, 40)
    metrics.improbable("homepage", 7, 3)
    metrics.duplicates(1)
    metrics.shed("connections")
    metrics.upkeep("merge", succeeded=True)
    metrics.upkeep("merge", succeeded=False)
    metrics.queue_depth(5)
    metrics.store_size(1000)
    found = _samples(metrics)
    assert found["hubbub_requests_total", ("201", "stored")] == 2
    assert found["hubbub_requests_total", ("422", "invalid")] == 1
    assert found["hubbub_reports_total", ("homepage", "1")] == 40
    assert found["hubbub_improbable_reports_total", ("homepage", "7")] == 3
    assert found["hubbub_duplicate_batches_total", ()] == 1
    assert found["hubbub_shed_total", ("connections",)] == 1
    assert found["hubbub_upkeep_runs_total", ("merge", "done")] == 1
    assert found["hubbub_upkeep_runs_total", ("merge", "failed")] == 1
    assert found["hubbub_queue_depth_batches", ()] == 5
    assert found["hubbub_store_size_bytes", ()] == 1000


def test_histogram_holds_every_commit_in_its_bucket(metrics: Metrics) -> None:
    for seconds in (0.0005, 0.003, 0.003, 99.0):
        metrics.committed(2, 10, seconds)
    found = _samples(metrics)
    assert found["hubbub_commit_seconds_bucket", ("0.001",)] == 1
    assert found["hubbub_commit_seconds_bucket", ("0.005",)] == 3
    assert found["hubbub_commit_seconds_bucket", ("10.0",)] == 3
    assert found["hubbub_commit_seconds_bucket", ("+Inf",)] == 4
    assert found["hubbub_commit_seconds_count", ()] == 4
    assert found["hubbub_commit_seconds_sum", ()] == pytest.approx(99.0065)
    assert found["hubbub_commit_reports_sum", ()] == 40
    values = metrics.snapshot()
    assert values.histogram("commit_seconds").quantile(0.5) == 0.005
    assert values.histogram("commit_seconds").quantile(1.0) == math.inf
    assert Histogram((1.0,), (0.0, 0.0), 0.0).quantile(0.5) is None


def test_labels_are_bounded_in_number_and_form(metrics: Metrics) -> None:
    for i in range(70_000):
        metrics.improbable(f"metric-{i // 1000}", i, 1)
    metrics.shed('a"b\n{}')
    metrics.shed("x" * 65)
    found = _samples(metrics)
    told = [n for (name, _), n in found.items() if name == "hubbub_improbable_reports_total"]
    most = FAMILIES["improbable"].most
    assert len(told) == most + 1
    assert sum(told) == 70_000
    assert found["hubbub_improbable_reports_total", ("other", "other")] == 70_000 - most
    assert found["hubbub_shed_total", ("other",)] == 2


def test_a_metric_with_many_cohorts_leaves_room_for_others(metrics: Metrics) -> None:
    for cohort in range(65_535):
        metrics.improbable("words", cohort, 2)
    metrics.improbable("words", 1023, 3)
    metrics.improbable("homepage", 63, 1)
    found = _samples(metrics)
    name = "hubbub_improbable_reports_total"
    assert found[name, ("words", "1023")] == 5
    assert found[name, ("words", "other")] == 2 * (65_535 - 1024)
    assert found[name, ("homepage", "63")] == 1


def test_rates_are_of_the_last_minutes() -> None:
    history = History()
    assert history.rates(0.0, Totals(reports=5)).reports == 0
    for step in range(100):
        history.add(10.0 * step, Totals(reports=100.0 * step, requests=20.0 * step))
    rates = history.rates(1000.0, Totals(reports=10_000, requests=2_000))
    assert (rates.reports, rates.requests) == (10, 2)
    assert rates.seconds == pytest.approx(300, abs=10)
    assert set(rates.recent_reports) == {10.0}
    assert len(rates.recent_reports) == 90  # 15 minutes


def _samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """Parse the exposition as Prometheus does: by name and label values, in the labels' order."""
    body, content_type = metrics.exposition()
    assert content_type.startswith("text/plain")
    order = {family.exposed: family.labels for family in FAMILIES.values()}
    found = {}
    for family in text_string_to_metric_families(body.decode()):
        labels = order.get(family.name, ())
        for sample in family.samples:
            names = labels or tuple(sample.labels)
            found[sample.name, tuple(sample.labels[name] for name in names)] = sample.value
    return found


def test_every_number_is_in_the_documentation(pytestconfig: pytest.Config) -> None:
    text = (pytestconfig.rootpath / "docs" / "operations.md").read_text(encoding="utf-8")
    for family in FAMILIES.values():
        name = family.exposed + ("_total" if family.type is FamilyType.COUNTER else "")
        assert f"| `{name}` | {', '.join(family.labels)} | {family.help} |" in text
