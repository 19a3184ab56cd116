"""What Prometheus reads: complete, well-formed, and bounded whatever is counted."""

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hubbub.collector import FAMILIES, Metrics, Publisher


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def publisher(metrics) -> Publisher:
    publisher = Publisher(metrics)
    publisher.step()
    return publisher


def test_everything_counted_is_exposed_under_its_labels(metrics, publisher):
    metrics.count("requests", 201, "stored")
    metrics.count("requests", 201, "stored")
    metrics.count("requests", 422, "invalid")
    metrics.count("reports", "homepage", 1, n=400)
    metrics.count("improbable_reports", "homepage", n=3)
    metrics.count("shed", "connections")
    metrics.upkeep("merge", succeeded=True)
    metrics.upkeep("merge", succeeded=False)
    metrics.count("key_refusals", "app", "quota")
    publisher.facts = {("store_size_bytes",): 2**20}
    found = _samples(publisher)
    assert found["hubbub_requests_total", ("201", "stored")] == 2
    assert found["hubbub_requests_total", ("422", "invalid")] == 1
    assert found["hubbub_reports_total", ("homepage", "1")] == 400
    assert found["hubbub_improbable_reports_total", ("homepage",)] == 3
    assert found["hubbub_key_refusals_total", ("app", "quota")] == 1
    assert found["hubbub_shed_total", ("connections",)] == 1
    assert found["hubbub_upkeep_runs_total", ("merge", "done")] == 1
    assert found["hubbub_upkeep_runs_total", ("merge", "failed")] == 1
    assert found["hubbub_store_size_bytes", ()] == 2**20


def test_histogram_holds_every_commit_in_its_bucket(metrics, publisher):
    for seconds in (0.0005, 0.003, 0.003, 99.0):
        metrics.observe("commit_seconds", seconds)
    found = _samples(publisher)
    assert found["hubbub_commit_seconds_bucket", ("0.001",)] == 1
    assert found["hubbub_commit_seconds_bucket", ("0.005",)] == 3
    assert found["hubbub_commit_seconds_bucket", ("10.0",)] == 3
    assert found["hubbub_commit_seconds_bucket", ("+Inf",)] == 4
    assert found["hubbub_commit_seconds_count", ()] == 4
    assert found["hubbub_commit_seconds_sum", ()] == pytest.approx(99.0065)
    values = metrics.snapshot()
    assert values.quantile("commit_seconds", 0.5) == 0.005
    assert values.quantile("commit_seconds", 1.0) == math.inf
    assert Metrics().snapshot().quantile("commit_seconds", 0.5) is None


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
