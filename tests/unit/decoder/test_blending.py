"""Decodings blended with releases: what becomes of each candidate, and what people see of it."""

import csv
import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from hubbub.inference.blending.decoding import Blending, blend
from hubbub.inference.decoding import Decoding
from hubbub.inference.scanning import CollisionGroups
from hubbub.reporting.blending import NUMBERS, blended_estimates
from hubbub.reporting.estimates import Estimates
from hubbub.reporting.strings import COLUMNS, strings_estimates
from unit.decoder.decodings import make_decoding, make_provenance
from unit.decoder.pages import Page, assert_accessible, assert_self_contained
from unit.decoder.releases import make_release
from unit.decoder.rendered import csv_of, html_of, json_of, parquet_of, shown

USERS = 10_000
NAMES = ["a", "b", "c", "d"]
SHARES = [0.30, 0.20, 0.004, 0.0]
COUNTS = {"a": 3010.0, "b": 1985.0, "c": 41.0}


def local_decoding(shares: list[float] | None = None, **options: object) -> Decoding:
    """Return a decoding of 100,000 reports, standard errors of .01 and p-values to match."""
    shares = SHARES if shares is None else shares
    decoding = make_decoding(NAMES, shares, n_reports=100_000, **options)  # type: ignore[arg-type]
    z = np.nan_to_num(decoding.share) / 0.01
    p_value = np.array([0.5 * math.erfc(each / math.sqrt(2)) for each in z.tolist()])
    detected = p_value < 1e-4
    return replace(
        decoding,
        p_value=np.where(np.isnan(decoding.share), 1.0, p_value),
        detected=detected,
        summary=replace(decoding.summary, detected=int(detected.sum())),
    )


def blended(counts: dict[str, float] | None = None, local: Decoding | None = None) -> Blending:
    release = make_release(COUNTS if counts is None else counts, USERS)
    return blend(local or local_decoding(), release)


def result_of(blending: Blending) -> Estimates:
    return blended_estimates(blending, provenance=make_provenance())


def test_blended_figures_take_the_usual_places_and_both_groups_stand_beside_them():
    found = blended()
    decoding = found.decoding
    assert found.local.tolist() == SHARES
    assert found.central[:3].tolist() == pytest.approx([0.301, 0.1985, 0.0041])
    for row in range(3):
        low, high = sorted([SHARES[row], float(found.central[row])])
        assert low <= decoding.share[row] <= high
        assert decoding.std_error[row] < found.central_std_error[row] < 0.01
        assert decoding.low[row] <= decoding.share[row] <= decoding.high[row]


def test_a_string_that_the_release_lacks_keeps_its_local_figures():
    local = local_decoding()
    found = blended(local=local)
    for name in ("share", "std_error", "low", "high", "p_value"):
        assert getattr(found.decoding, name)[3] == getattr(local, name)[3]
    assert math.isnan(found.central[3])
    assert found.central_weight[3] == 0
    assert found.summary.not_released == 1


def test_a_rare_string_is_detected_by_its_count():
    local, found = local_decoding(), blended()
    assert local.detected.tolist() == [True, True, False, False]
    assert found.decoding.detected.tolist() == [True, True, True, False]
    assert found.decoding.summary.detected == 3
    assert found.summary.local_detected == 2
    assert found.decoding.low[2] > 0


def test_that_a_key_stands_in_the_release_is_no_evidence():
    found = blended(COUNTS | {"c": 1.0, "d": -2.0})
    assert found.decoding.detected.tolist() == [True, True, False, False]


def test_what_the_reports_cannot_tell_is_told_by_the_counts_alone():
    local = local_decoding([0.30, math.nan, 0.004, 0.0])
    found = blended(local=local)
    assert found.decoding.share[1] == found.central[1]
    assert found.central_weight[1] == 1
    assert found.decoding.detected[1]
    assert found.decoding.low[1] == pytest.approx(0.1985 - 1.96 * 0.004, abs=3e-4)
    assert math.isnan(found.difference_p_value[1])


def test_candidates_that_cannot_be_told_apart_keep_the_figures_of_their_group():
    same = CollisionGroups(np.array([1]), np.array([0]))
    local = local_decoding([0.30, 0.30, 0.004, 0.0], same_bits=same)
    found = blended(local=local)
    assert found.decoding.share[:2].tolist() == [0.30, 0.30]
    assert found.decoding.same_bits is same
    assert np.isnan(found.central[:2]).all()
    assert found.summary.blended == 1
    assert found.summary.not_listed == 0


def test_keys_that_no_candidate_names_are_counted_and_left_out():
    found = blended(COUNTS | {"z": 50.0, "y": 20.0})
    assert found.decoding.candidates == NAMES
    assert found.summary.keys == 5
    assert found.summary.not_listed == 2
    assert "2 of the release's 5 keys are left out" in shown(result_of(found))


def test_a_release_of_other_keys_changes_no_figure():
    local = local_decoding()
    found = blended({"z": 50.0}, local)
    assert found.decoding.share.tolist() == local.share.tolist()
    assert found.summary.blended == 0
    assert math.isnan(found.summary.p_value)
    assert "same population?" in shown(result_of(found))
    assert "not known: no string is common enough to compare" in shown(result_of(found))


def test_shares_for_adding_up_are_possible_and_leave_the_unknown_mass():
    decoding = blended({"a": 7000.0, "b": 5000.0}, local_decoding([0.7, 0.5, 0.0, 0.0])).decoding
    assert decoding.constrained_share.sum() == pytest.approx(1)
    assert decoding.summary.unknown_share < 0


def test_the_unknown_mass_is_what_the_blended_shares_leave():
    summary = blended().decoding.summary
    assert summary.unknown_share == pytest.approx(0.496, abs=0.01)
    assert 0.002 < summary.unknown_std_error < 0.02


def test_groups_of_one_population_are_not_told_to_differ():
    found = blended()
    assert found.summary.compared == 2
    assert found.summary.p_value > 0.3
    text = shown(result_of(found))
    assert "no difference seen (p =" in text
    assert "NO: the groups differ" not in html_of(result_of(found))


def test_groups_that_differ_are_named_wherever_people_look():
    found = blended(COUNTS | {"b": 1400.0})
    assert found.summary.differs
    assert found.summary.different == ("b",)
    assert found.difference_p_value[1] < 1e-5
    result = result_of(found)
    assert "NO: the groups differ in b (p =" in shown(result)
    assert json.loads(json_of(result))["blend"]["differs"] is True
    page = Page(html_of(result))
    assert "same population? NO: the groups differ in b" in html_of(result)
    assert_accessible(page)
    assert_self_contained(page)


def test_columns_of_both_groups_come_after_the_usual_ones():
    result = result_of(blended())
    rows = list(csv.DictReader(io.StringIO(csv_of(result))))
    assert list(rows[0]) == [*COLUMNS, *NUMBERS]
    assert float(rows[0]["local"]) == 0.3
    assert float(rows[0]["central"]) == pytest.approx(0.301)
    assert rows[3]["central"] == rows[3]["central_std_error"] == ""
    document = json.loads(json_of(result))
    assert document["rows"][3]["central"] is None
    assert document["blend"]["users"] == USERS
    assert b"hubbub.blend" in parquet_of(result)


def test_only_the_detected_are_written_if_asked_for():
    result = blended_estimates(blended(), detected_only=True)
    rows = list(csv.DictReader(io.StringIO(csv_of(result))))
    assert [row["string"] for row in rows] == ["a", "b", "c"]
    assert float(rows[2]["local"]) == 0.004


def test_figures_of_the_reports_alone_are_called_so():
    text = shown(result_of(blended()))
    assert "is found with probability 0.9 (local reports alone)" in text
    assert "detected locally" in text
    assert "release.json: 10,000 opted-in users at epsilon 1;" in text
    assert "local" not in csv_of(strings_estimates(local_decoding())).partition("\n")[0]


def test_a_detected_strings_interval_reaches_lower_than_that_of_all_strings():
    """Given detection an estimate that is near its threshold says less."""
    near = blended(COUNTS | {"c": 4.0}).decoding
    assert near.detected[2]
    assert near.low[2] == 0
    assert near.high[2] > near.share[2]
