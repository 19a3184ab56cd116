"""What Prometheus reads: complete, well-formed, and bounded whatever is counted."""

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
