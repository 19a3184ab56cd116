"""Reports and the counts made of them are decoded alike; what counts can't tell is said."""

import asyncio
import datetime as dt
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from factories import make_metric, make_params
from hubbub.decoder.reports import Counting, StoredReports, load_reports
from hubbub.inference import AnomalyDetector, Choice, Method, UndecodableError, decode, hashed
from hubbub.protocol import Records, columns, keep_counts, record_width
from hubbub.reporting import anomaly_findings
from parameters import quick_but
from stored_metrics import DAYS, METRICS, NAMES, NOISE, WAYS, WORDS, Stored, numbers_of, reports_of
from unit.decoder.rendered import json_of


@pytest.fixture
def words(tmp_path) -> Stored:
    return Stored(tmp_path, WORDS, "word 3")


@pytest.mark.parametrize("what", quick_but({"open string"}, METRICS))
def test_counts_give_the_numbers_of_their_reports_to_the_last_bit(tmp_path, what):
    """Two days are counted, one isn't."""
    metric, value, options = WAYS[what]
    stored = Stored(tmp_path, metric, value)
    expected = numbers_of(stored.decode(**options))
    stored.count_before(DAYS[2])
    assert numbers_of(stored.decode(**options)) == expected


def test_counts_are_decoded_from_an_export_as_from_the_store(words):
    """Each time exported over what was there, in which more was reports."""
    options: dict[str, Any] = {"candidates": NAMES, "method": "regression", "by": "day"}
    expected = numbers_of(words.decode(**options))
    for day in (DAYS[0], DAYS[2], DAYS[2] + dt.timedelta(days=1)):
        words.count_before(day)
        assert numbers_of(words.decode(words.export(), **options)) == expected
    left = {path.name.partition("-")[0] for path in words.folder.glob("out/*/*/*/*")}
    assert left == {"_counts", "_manifest.json"}


def test_days_are_chosen_among_counts_as_among_reports(words):
    options: dict[str, Any] = {
        "candidates": NAMES,
        "method": "regression",
        "since": DAYS[1],
        "until": DAYS[1],
    }
    expected = numbers_of(words.decode(**options))
    words.count_before(DAYS[2])
    assert numbers_of(words.decode(**options)) == expected
    with pytest.raises(UndecodableError, match="2,000 reports of words version 1 from 2026-11-02"):
        words.decode(**options | {"min_reports": 2_001})


@pytest.mark.parametrize("by", [None, "day"])
def test_likelihood_says_from_which_day_on_there_are_whole_reports(words, by):
    words.count_before(DAYS[2])
    options: dict[str, Any] = {"candidates": NAMES, "by": by}
    with pytest.raises(UndecodableError) as refused:
        words.decode(method="likelihood", **options)
    assert str(refused.value) == (
        "--method likelihood needs whole reports, and of days up to 2026-11-02 only counts are "
        "kept: decode from 2026-11-03 on (--since 2026-11-03), or leave --method out"
    )
    if by is None:
        words.decode(method="likelihood", since=DAYS[2], **options)


def test_auto_takes_regression_where_a_part_is_counted_and_says_why(words):
    def method() -> tuple[str, str]:
        summary = json.loads(json_of(words.decode(candidates=NAMES)))["summary"]
        return summary["method"], summary["method_reason"]

    assert method()[0] == "likelihood"
    words.count_before(DAYS[1])
    assert method() == (
        "least squares",
        "of days up to 2026-11-01 only counts are kept; there are whole reports from 2026-11-02 on",
    )


def _by_loading(by_day: bool, stored: Stored, choice: Choice) -> Any:
    """Load while upkeep counts the oldest day, after it was looked for and before it is read."""
    counted = False

    def keeps_whole(total: int, last_counted: dt.date | None) -> bool:
        nonlocal counted
        keeps = choice.keeps_whole(total, last_counted)
        if not counted:
            counted = True
            with ThreadPoolExecutor(1) as thread:
                thread.submit(stored.count_before, DAYS[1]).result()
        return keeps

    source = StoredReports(stored.url)
    return asyncio.run(load_reports(source, stored.metric, by_day=by_day, keeps_whole=keeps_whole))


@pytest.mark.parametrize("by_day", [False, True])
def test_reports_that_are_counted_meanwhile_are_read_once_and_not_taken_for_whole(words, by_day):
    choice = Choice(Method.AUTO, NOISE, len(NAMES))
    found = _by_loading(by_day, words, choice)
    assert found.counts.total == 6_000
    assert sum(found.by_day.values(), start=_none()).total == (6_000 if by_day else 0)
    assert (found.whole, found.whole_by_day) == (None, {})
    decoding = decode(found.counts, NOISE, hashed(NAMES, NOISE))
    completed = choice.complete(decoding, None, hashed(NAMES, NOISE), lambda _n, _gap: None)
    assert completed.summary.method_reason.startswith("of days up to 2026-11-01 only counts")


@pytest.mark.parametrize("by_day", [False, True])
def test_likelihood_is_refused_for_what_is_counted_meanwhile(words, by_day):
    with pytest.raises(UndecodableError, match="--since 2026-11-02"):
        _by_loading(by_day, words, Choice(Method.LIKELIHOOD, NOISE, len(NAMES)))


def _none() -> Any:
    return keep_counts(b"", NOISE).counts


def test_improbable_reports_and_uneven_cohorts_show_in_counts_and_repeats_do_not():
    """40,000 equal reports of one cohort, with all bits set."""
    metric = make_metric(params=make_params(k=64, h=2, m=8))
    width = record_width(64)
    forged = 40_000 * (bytes(2) + b"\xff" * 8)
    honest = reports_of(metric, "a", 1, 20_000)
    whole, partly, counted = (AnomalyDetector(metric) for _ in range(3))
    for detector, records in ((whole, honest + forged), (partly, honest)):
        detector.look(keep_counts(records, metric.params), columns(Records(width, records)))
    partly.add_counts(keep_counts(forged, metric.params))
    counted.add_counts(keep_counts(honest + forged, metric.params))
    expected = whole.result()
    assert (expected.improbable, expected.cohorts_suspicious) == (40_000, True)
    for found in (partly.result(), counted.result()):
        assert (found.improbable, found.plausible) == (expected.improbable, expected.plausible)
        assert found.balance == expected.balance
        assert found.suspicious
    said, alone = (anomaly_findings(each.result())[1].text for each in (partly, counted))
    assert said == (
        "only counts are kept of 40,000 reports; of 20,000 reports checked none repeats "
        "suspiciously often"
    )
    assert alone == "can't be checked: only counts are kept of 60,000 reports"
    assert partly.result().as_json()["only_counted"] == 40_000


def test_counts_of_other_parameters_are_refused():
    kept = keep_counts(b"", make_params(k=8, m=2))
    with pytest.raises(UndecodableError, match=r"must be \(8, 32\)"):
        Counting(NOISE).add_counts(kept)
