"""Joint metrics decoded: cells with a bit each, hashed tuples, and what is said of them."""

import csv
import io
import json

import numpy as np
import pytest

from factories import make_metric
from hubbub.inference import FieldLabels, JointDecoding, decode_joint, tuple_candidates
from hubbub.protocol import CohortCounts, JointType, Metric
from hubbub.reporting import joint_estimates
from unit.decoder.joint_tables import (
    BY_SITE,
    draw_cells,
    draw_tuples,
    enum_metric,
    enum_type,
    fields_of,
    noise,
)
from unit.decoder.rendered import csv_of, html_of, json_of, shown

TABLE = np.array([[0.30, 0.10, 0.05], [0.05, 0.20, 0.30]])
SITES = tuple(f"site {i}.example" for i in range(40))
SECURE = FieldLabels("secure", ("false", "true"))


def site_metric() -> Metric:
    return make_metric(metric_type=BY_SITE, params=noise(4.0, k=64, m=32), one_time=True)


def site_clients() -> dict[tuple[str, bool], int]:
    """Return 60,000 clients of eight sites, every other of which is nearly always secure."""
    clients = {}
    for i, site in enumerate(SITES[:8]):
        number = 60_000 // 8
        of_secure = int(number * (0.9 if i % 2 else 0.3))
        clients[site, True], clients[site, False] = of_secure, number - of_secure
    return clients


@pytest.fixture(scope="module")
def cells() -> JointDecoding:
    metric = enum_metric(TABLE.shape)
    counts = draw_cells(TABLE, 50_000, metric.params, np.random.default_rng(1))
    return decode_joint(counts, metric, fields_of(TABLE.shape))


@pytest.fixture(scope="module")
def tuples() -> JointDecoding:
    metric = site_metric()
    counts = draw_tuples(site_clients(), metric, np.random.default_rng(2))
    return decode_joint(counts, metric, (FieldLabels("site", SITES), SECURE))


def test_cells_are_estimated_with_intervals_that_hold_them(cells):
    """Six intervals, all at most two widths off: P(false alarm) < 1e-6."""
    found = cells.cells
    assert found.share.sum() == pytest.approx(1)
    half = (found.high - found.low) / 2
    assert (np.abs(found.share - TABLE.ravel()) < 2.6 * half).all()
    assert found.detected.all()
    assert cells.rows.tolist() == list(range(6))


def test_a_rare_cell_is_not_detected():
    table = np.array([[0.5, 0.2], [0.3, 0.0]])
    metric = enum_metric(table.shape, epsilon=2.0)
    counts = draw_cells(table, 3_000, metric.params, np.random.default_rng(3))
    found = decode_joint(counts, metric, fields_of(table.shape))
    assert found.cells.detected.tolist() == [True, True, True, False]


def test_candidates_are_all_tuples_hashed_as_clients_hash_them():
    metric = site_metric()
    fields = (FieldLabels("site", SITES[:3]), SECURE)
    candidates = tuple_candidates(BY_SITE, fields, metric.params)
    positions = candidates.positions(slice(None))
    row = 0
    for site in SITES[:3]:
        for secure in (False, True):
            for cohort in (0, 7, 31):
                bits = BY_SITE.bits({"site": site, "secure": secure}, cohort, metric.params)
                assert bits == 1 << int(positions[row, cohort, 0])
            row += 1
    assert candidates.strings[1] == "site 0.example, true"


def test_hashed_tuples_are_found_and_their_table_holds_the_truth(tuples):
    """All 16 estimates within 5.5 standard errors: P(false alarm) < 1e-6."""
    clients, found = site_clients(), tuples.cells
    shape = (len(SITES), 2)
    truth = np.zeros(shape)
    for (site, secure), number in clients.items():
        truth[SITES.index(site), int(secure)] = number / 60_000
    z = (found.share - truth.ravel()) / found.std_error
    assert np.abs(z[truth.ravel() > 0]).max() < 5.5
    assert found.detected[truth.ravel() > 0].mean() > 0.9
    assert tuples.table is not None
    assert tuples.table.estimates.fields[0].labels == SITES[:8]
    assert tuples.table.independence[0].p_value < 0.01
    by_site = tuples.table.conditionals[0]
    expected = np.array([0.9 if i % 2 else 0.3 for i in range(8)])
    error = (by_site.high[:, 1] - by_site.low[:, 1]) / 4
    assert np.abs((by_site.share[:, 1] - expected) / error).max() < 5.5


def test_tables_with_too_few_reports_get_no_statement():
    metric = site_metric()
    counts = draw_tuples({("elsewhere.example", True): 5_000}, metric, np.random.default_rng(4))
    found = decode_joint(counts, metric, (FieldLabels("site", SITES), SECURE))
    assert found.table is None
    result = joint_estimates(found)
    assert "not known: too few of their values" in shown(result)
    document = json.loads(json_of(result))
    assert document["margins"] is None
    assert document["rows"][0]["expected"] is None
    assert html_of(result)


def test_cells_that_are_hashed_into_fewer_bits_are_decoded_with_all_their_values():
    metric_type = JointType(enum_type((20, 6)).fields, hashed=True)
    metric = make_metric(metric_type=metric_type, params=noise(5.0, k=64, m=32), one_time=True)
    a, b = 1 / np.arange(1, 21), 1 / np.arange(1, 7)
    truth = np.outer(a / a.sum(), b / b.sum())
    rng, params = np.random.default_rng(5), metric.params
    clients = rng.multinomial(200_000, truth.ravel())
    fields = fields_of((20, 6))
    positions = tuple_candidates(metric_type, fields, params).positions(slice(None))[:, :, 0]
    cohorts = np.array([rng.multinomial(number, np.full(32, 1 / 32)) for number in clients])
    true = np.zeros((params.m, params.k), dtype=np.int64)
    for cohort in range(params.m):
        np.add.at(true[cohort], positions[:, cohort], cohorts[:, cohort])
    reports = cohorts.sum(axis=0)
    ones = rng.binomial(true, params.q_star)
    ones += rng.binomial(reports[:, None] - true, params.p_star)
    found = decode_joint(CohortCounts(reports, ones), metric, fields)
    z = (found.cells.share - truth.ravel()) / found.cells.std_error
    assert np.abs(z).max() < 6.0  # 120 cells: P(false alarm) < 1e-6
    assert found.table is not None


def test_rows_have_a_column_a_field_and_then_the_usual_ones(cells):
    rows = list(csv.DictReader(io.StringIO(csv_of(joint_estimates(cells)))))
    assert list(rows[0]) == [
        *("crash", "driver", "count", "std_error", "count_low", "count_high"),
        *("proportion", "prop_std_error", "prop_low", "prop_high", "refit", "p_value", "q_value"),
        *("detected", "expected", "residual", "residual_std_error", "residual_q_value"),
    ]
    assert [(row["crash"], row["driver"]) for row in rows[:4]] == [
        ("crash 0", "driver 0"),
        ("crash 0", "driver 1"),
        ("crash 0", "driver 2"),
        ("crash 1", "driver 0"),
    ]
    assert float(rows[0]["count"]) == pytest.approx(50_000 * float(rows[0]["proportion"]))
    difference = float(rows[0]["proportion"]) - float(rows[0]["expected"])
    assert float(rows[0]["residual"]) == pytest.approx(difference)


def test_only_detected_cells_are_written_on_request(tuples):
    rows = list(csv.DictReader(io.StringIO(csv_of(joint_estimates(tuples, detected_only=True)))))
    assert len(rows) == tuples.cells.detected.sum()
    assert {row["detected"] for row in rows} == {"true"}


def test_the_document_has_margins_tests_and_conditional_shares(cells):
    document = json.loads(json_of(joint_estimates(cells)))
    assert document["summary"]["type"] == "joint"
    assert [row["value"] for row in document["margins"]["driver"]] == [
        *("driver 0", "driver 1", "driver 2")
    ]
    assert document["independence"][0]["fields"] == ["crash", "driver"]
    given = document["conditional"][0]
    assert (given["given"], given["of"]) == ("crash", "driver")
    shares = [row["proportion"] for row in given["rows"] if row["given"] == "crash 0"]
    assert sum(shares) == pytest.approx(1)
    assert len(document["rows"]) == 6


def test_people_see_the_strongest_cells_and_departures(cells):
    text = shown(joint_estimates(cells, limit=2))
    assert "Cells, strongest first" in text
    assert "… and 4 more" in text
    assert "Departures from independence, surest first" in text
    assert "among that crash" in text
    assert "test of independence: p ≤ 0.002; Cramér's V is" in text
    page = html_of(joint_estimates(cells))
    assert page.count("<svg") >= 4  # two maps and two margins
    assert "Of those with crash “crash 1”" in page or "Of those with crash “crash 0”" in page
