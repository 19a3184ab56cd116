"""What Prometheus reads: complete, well-formed, and bounded whatever is counted."""

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hubbub.collector import FAMILIES, History, Metrics, MetricValues, Publisher


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def publisher(metrics) -> Publisher:
    publisher = Publisher(metrics)
    publisher.step()
    return publisher


def test_everything_counted_is_exposed_under_its_labels(metrics, publisher):
    metrics.request(201, "stored")
    metrics.request(201, "stored")
    metrics.request(422, "invalid")
    metrics.reports("homepage", 1, 400)
    metrics.improbable("homepage", 3)
    metrics.duplicates(1)
    metrics.shed("connections")
    metrics.upkeep("merge", succeeded=True)
    metrics.upkeep("merge", succeeded=False)
    metrics.queue_depth(5)
    metrics.queue_depth(2)
    metrics.key_refused("app", "quota")
    publisher.facts = {("store_size_bytes",): 2**20}
    found = _samples(publisher)
    assert found["hubbub_requests_total", ("201", "stored")] == 2
    assert found["hubbub_requests_total", ("422", "invalid")] == 1
    assert found["hubbub_reports_total", ("homepage", "1")] == 400
    assert found["hubbub_improbable_reports_total", ("homepage",)] == 3
    assert found["hubbub_key_refusals_total", ("app", "quota")] == 1
    assert found["hubbub_duplicate_batches_total", ()] == 1
    assert found["hubbub_shed_total", ("connections",)] == 1
    assert found["hubbub_upkeep_runs_total", ("merge", "done")] == 1
    assert found["hubbub_upkeep_runs_total", ("merge", "failed")] == 1
    assert found["hubbub_queue_depth_batches", ()] == 5  # the most of late
    assert found["hubbub_store_size_bytes", ()] == 2**20


def test_histogram_holds_every_commit_in_its_bucket(metrics, publisher):
    for seconds in (0.0005, 0.003, 0.003, 99.0):
        metrics.committed(2, 10, seconds)
    found = _samples(publisher)
    assert found["hubbub_commit_seconds_bucket", ("0.001",)] == 1
    assert found["hubbub_commit_seconds_bucket", ("0.005",)] == 3
    assert found["hubbub_commit_seconds_bucket", ("10.0",)] == 3
    assert found["hubbub_commit_seconds_bucket", ("+Inf",)] == 4
    assert found["hubbub_commit_seconds_count", ()] == 4
    assert found["hubbub_commit_seconds_sum", ()] == pytest.approx(99.0065)
    assert found["hubbub_commit_reports_sum", ()] == 40
    values = metrics.snapshot()
    assert values.quantile("commit_seconds", 0.5) == 0.005
    assert values.quantile("commit_seconds", 1.0) == math.inf
    assert Metrics().snapshot().quantile("commit_seconds", 0.5) is None


def test_rates_are_of_the_last_step():
    history = History()
    assert history.rates().reports == 0
    for step in range(200):
        history.add(600.0 * step, _totals(requests=1200.0 * step, reports=6000.0 * step))
    history.add(120_000.0, _totals(requests=240_000, reports=1_206_000))
    rates = history.rates()
    assert (rates.reports, rates.requests, rates.faults, rates.seconds) == (20, 2, 2, 600)
    assert rates.recent_reports == (*[10.0] * 143, 20.0)  # a day


def _totals(requests: float, reports: float) -> MetricValues:
    return MetricValues(
        {("requests", "503", "store"): requests, ("reports", "homepage", "1"): reports}
    )


def _samples(publisher: Publisher) -> dict[tuple[str, tuple[str, ...]], float]:
    """Parse what is published next as Prometheus does: by name and label values, in their order."""
    publisher.step()
    body, content_type = publisher.exposition()
    assert content_type.startswith("text/plain")
    order = {f"hubbub_{name}": family.labels for name, family in FAMILIES.items()}
    found = {}
    for family in text_string_to_metric_families(body.decode()):
        labels = order.get(family.name, ())
        for sample in family.samples:
            names = labels or tuple(sample.labels)
            found[sample.name, tuple(sample.labels[name] for name in names)] = sample.value
    return found
