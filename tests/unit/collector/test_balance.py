"""Uneven cohorts are told by how many reports a client must have sent to make them."""

import numpy as np
import pytest

from factories import make_metric, seeded_stream
from hubbub.client.encoder import draw_cells
from hubbub.protocol import (
    CohortSpread,
    EnumType,
    Metric,
    Records,
    Repeats,
    Subset,
    cohort_balance,
    columns,
    repeat_keys,
    repeats_among,
)
from hubbub.storage import Declared

ALARM = 1e-6


def test_equal_cohorts_need_no_forgers():
    balance = cohort_balance(np.full(64, 1000), ALARM)
    assert (balance.ratio, balance.clients_must_send) == (1.0, 0.0)


@pytest.mark.parametrize("reports", [np.array([7]), np.zeros(8, dtype=np.int64)])
def test_one_cohort_or_no_reports_need_no_forgers(reports):
    assert cohort_balance(reports, ALARM) == CohortSpread(0, 1.0, 0.0)


@pytest.mark.parametrize(("size", "ratio"), [(0, 0.0), (3000, 2.9)])
def test_cohort_that_sticks_out_is_named(size, ratio):
    reports = np.full(64, 1000)
    reports[41] = size
    balance = cohort_balance(reports, ALARM)
    assert balance.cohort == 41
    assert balance.ratio == pytest.approx(ratio, abs=0.1)
    assert balance.clients_must_send > 10


def test_one_percent_of_a_million_in_one_cohort_needs_more_than_a_hundred_reports_a_client():
    reports = np.full(64, 990_000 // 64)
    reports[5] += 10_000
    assert cohort_balance(reports, ALARM).clients_must_send > 100


def test_all_reports_multiplied_need_clients_to_send_as_many_times_more():
    """Each client sends seven times as many: the same evidence, per report a client."""
    reports = np.array([90, 100, 110, 160])
    once, often = cohort_balance(reports, ALARM), cohort_balance(7 * reports, ALARM)
    assert often.clients_must_send == pytest.approx(7 * once.clients_must_send)


def test_more_certainty_needs_less_of_clients():
    reports = np.array([90, 100, 110, 160])
    assert (
        cohort_balance(reports, 1e-9).clients_must_send
        < cohort_balance(reports, 1e-3).clients_must_send
    )


def test_honest_reports_in_65_535_cohorts_need_no_forgers(rng):
    """Fewer reports than cohorts. P(false alarm) < 1e-6."""
    cohorts = rng.integers(65_535, size=50_000)
    assert cohort_balance(np.bincount(cohorts, minlength=65_535), ALARM).clients_must_send < 1


def test_last_of_65_535_cohorts_that_sticks_out_is_named(rng):
    """500 of 50,000 reports."""
    cohorts = rng.integers(65_535, size=50_000)
    cohorts[:500] = 65_534
    balance = cohort_balance(np.bincount(cohorts, minlength=65_535), ALARM)
    assert balance.cohort == 65_534
    assert balance.clients_must_send > 50


@pytest.mark.long
def test_reports_of_sets_repeat_no_more_than_chance_lets_sets():
    """5,000 of 15,504 sets of 5 of 20; bits of their own would hardly ever agree so often."""
    response = Subset(20, 5, 0.7)
    metric_type = EnumType(tuple(map(str, range(20))))
    metric = make_metric(metric_type=metric_type, response=response, mode="one-time")
    declared = Declared.of(metric)
    assert declared.response == response
    assert declared.response.cells == 20
    stream = seeded_stream("sets")
    reports = [draw_cells(response, client % 20, stream) for client in range(5_000)]
    data = b"".join(b"\0\0" + each.to_bytes(metric.params.k // 8, "little") for each in reports)
    records = Records(2 + metric.params.k // 8, data)
    assert _repeats(records, metric).suspicious == 0
    forged = Records(records.width, 500 * data[: records.width] + data)
    assert _repeats(forged, metric).suspicious >= 500


def _repeats(records: Records, metric: Metric) -> Repeats:
    return repeats_among(repeat_keys(columns(records)), metric.params, ALARM, metric.response)
