"""What the decoder says about reports that honest clients wouldn't send, and what it can't say."""

import json

import numpy as np
import pytest

from factories import make_metric, make_params
from hubbub.client import Metric
from hubbub.inference import AnomalyDetector, AnomalyReport
from hubbub.protocol import BooleanType, Records, columns, keep_counts
from unit.collector.forgeries import records_of

METRIC = make_metric(params=make_params(m=8))


def honest(n: int, rng: np.random.Generator, metric: Metric = METRIC) -> Records:
    params = metric.params
    bits = rng.random((n, params.k)) < params.p_star
    return records_of(bits, rng.integers(params.m, size=n))


def anomalies(*chunks: Records, metric: Metric = METRIC) -> AnomalyReport:
    detector = AnomalyDetector(metric)
    for chunk in chunks:
        detector.look(keep_counts(chunk.data, metric.params), columns(chunk))
    return detector.result()


def test_honest_reports_are_not_suspicious(rng):
    found = anomalies(honest(20_000, rng))
    assert not found.suspicious
    assert (found.improbable, found.repeats.suspicious) == (0, 0)


def test_a_single_report_that_no_client_would_make_is_found(rng):
    found = anomalies(honest(20_000, rng), records_of(np.zeros((1, 128))))
    assert found.suspicious
    assert found.improbable == 1
    assert found.repeats.suspicious == 0


def test_plausible_bits_repeated_are_found(rng):
    pattern = rng.random((1, 128)) < METRIC.params.p_star
    found = anomalies(honest(20_000, rng), records_of(np.tile(pattern, (20, 1))))
    assert found.suspicious
    assert found.improbable == 0
    assert (found.repeats.most, found.repeats.suspicious) == (20, 20)


def test_crowded_cohort_is_found(rng):
    crowd = rng.random((20_000, 128)) < METRIC.params.p_star
    found = anomalies(honest(40_000, rng), records_of(crowd, 6))
    assert found.suspicious
    assert found.balance.cohort == 6
    assert found.cohorts_suspicious
    assert (found.improbable, found.repeats.suspicious) == (0, 0)


def test_cohort_that_repeating_clients_explain_is_found_in_a_one_time_metric(rng):
    once = make_metric(params=make_params(m=8, f=0.0), one_time=True)
    crowd = rng.random((2000, 128)) < once.params.p_star
    chunks = [honest(20_000, rng, once), records_of(crowd, 6)]
    assert anomalies(*chunks, metric=once).cohorts_suspicious
    assert not anomalies(*chunks, metric=once._replace(mode="longitudinal")).cohorts_suspicious


def test_undetermined_figures_are_explained(rng):
    boolean = make_metric(metric_type=BooleanType())
    found = anomalies(honest(5000, rng, boolean), metric=boolean)
    assert not found.suspicious
    assert not found.set_bits_assessed
    assert not found.repeats.assessed
    assert not found.cohorts_assessed


@pytest.mark.parametrize("n_forged", [0, 1000])
def test_findings_are_json_with_the_verdict(n_forged, rng):
    found = anomalies(honest(5000, rng), records_of(np.zeros((n_forged, 128))))
    document = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert document["suspicious"] is (n_forged > 0)
    assert document["set_bits"]["improbable"] == n_forged
    assert document["repeats"]["suspicious"] == n_forged
    assert document["cohorts"]["suspicious"] is False
    assert document["set_bits"]["plausible"] == list(found.plausible[:2])
