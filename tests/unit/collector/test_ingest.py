"""Bodies become checked batches, or errors that say what is wrong; there is no third outcome."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from evaluation.reference import compact as reference
from factories import make_metric, make_params, make_registry, make_report
from hubbub.client import Batch, Report, batch_to_json
from hubbub.collector import BatchReader, RefusalError, refusal
from hubbub.protocol import OpenStringType, Records, batch_to_compact, columns, wire
from hubbub.storage import Declared, MetricVersion, NewBatch

_VECTORS = Path(__file__).parents[3] / "docs" / "protocol" / "vectors"
_JSON = "application/json"
_COMPACT = wire.MEDIA_TYPE
_HOMEPAGE = make_metric()
_SEARCH = make_metric("search", version=7, params=make_params(k=8, m=1024))
_OLD_SEARCH = make_metric("search", version=3, params=make_params(k=16, m=8))
_GONE = make_metric("gone")
_DECLARED = [
    Declared(metric.name, metric.version, metric.definition)
    for metric in (_OLD_SEARCH, _GONE, _HOMEPAGE, _SEARCH)
]
_READER = BatchReader(make_registry(_HOMEPAGE, _SEARCH), _DECLARED, max_reports=1000)
_STRANGERS = [
    Report("homepage", 2, 0, bytes(16)),
    Report("homepage", 2**31 - 1, 65_534, bytes(512)),
    Report("homepage", 2, -1, bytes(16)),
    Report("search", 9, 0, b""),
    Report("gone", 1, 0, bytes(16)),
    Report("gone", 2, 0, b"?"),
    Report("n" * 64, 1, 7, b"?!"),
]
_NEVER = [
    Report("homepage", 1, 64, bytes(16)),
    Report("homepage", 1, 65_534, bytes(15)),
    Report("homepage", 0, 0, bytes(16)),
    Report("homepage", 2**31, 0, bytes(16)),
    Report("search", 3, 0, b"?"),
    Report("N", 1, 0, b"?"),
    Report("n" * 65, 1, 0, b"?"),
]
_KNOWN = [make_report(cohort=3, bits=5), make_report(_SEARCH, cohort=9)]
_VALID = batch_to_json(Batch((make_report(cohort=1), make_report(cohort=2, bits=3))))

media_types = st.sampled_from([_JSON, _COMPACT])
reports = st.one_of(
    [
        st.builds(
            Report,
            st.just(metric.name),
            st.just(metric.version),
            st.integers(0, metric.params.m - 1),
            st.binary(min_size=metric.params.k // 8, max_size=metric.params.k // 8),
            slice=st.just(""),
        )
        for metric in (_HOMEPAGE, _SEARCH, _OLD_SEARCH)
    ]
)
batches = st.builds(
    Batch,
    st.lists(reports, min_size=1, max_size=20).map(tuple),
    st.binary(min_size=16, max_size=16).map(bytes.hex),
)
# Of metrics, versions and widths that exist or don't, in cohorts that do or don't, in any order.
_heads = [("homepage", 1, 16), ("search", 3, 2), ("search", 7, 1), ("search", 7, 2), ("gone", 1, 1)]
sections = st.tuples(
    st.sampled_from(_heads),
    st.lists(st.tuples(st.sampled_from([0, 7, 8, 63, 64, 256, 1024]), st.binary()), max_size=3)
    | st.lists(st.tuples(st.integers(0, 7), st.binary(max_size=2)), min_size=30, max_size=40),
)
_Section = tuple[tuple[str, int, int], list[tuple[int, bytes]]]
_names = ("batch_id", "reports", "metric", "version", "cohort", "bits")
_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(["homepage", "0" * 32, "AAAA", 1, 7])
)
documents = st.recursive(
    _scalars,
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(_names) | st.text(), inner),
)


@given(batches)
def test_json_batch_becomes_its_records(batch):
    _assert_same(_READER.read(batch_to_json(batch), _JSON), batch)


@given(batches)
def test_compact_batch_becomes_its_records_in_ascending_order(batch):
    ordered = sorted(
        batch.reports, key=lambda report: report.cohort.to_bytes(2, "little") + report.bits
    )
    _assert_same(
        _READER.read(batch_to_compact(batch), _COMPACT), batch._replace(reports=tuple(ordered))
    )


@given(st.lists(st.sampled_from([*_STRANGERS, *_NEVER, *_KNOWN]), min_size=1, max_size=12))
def test_unknown_versions_are_to_be_sent_again_and_what_no_registry_takes_is_refused(drawn):
    batch = Batch(tuple(drawn))
    strangers = {(report.metric, report.version) for report in drawn if report in _STRANGERS}
    never = [index for index, report in enumerate(drawn) if report in _NEVER]
    if not never and not strangers:
        _assert_same(_READER.read(batch_to_json(batch), _JSON), batch)
        return
    with pytest.raises(RefusalError) as refused:
        _READER.read(batch_to_json(batch), _JSON)
    answer = json.loads(refusal(refused.value).body)
    assert answer["status"] == 422
    assert [error["report"] for error in answer.get("errors", [])] == never
    assert answer.get("retry", False) == bool(strangers)
    named = {(one["metric"], one["version"]) for one in answer.get("unknown", [])}
    assert named == strangers
    assert refused.value.reason == ("invalid" if never else "unregistered")


@given(st.lists(sections, max_size=3), st.booleans())
def test_compact_body_is_judged_as_the_same_reports_in_json(drawn, in_order):
    """Whatever the registry knows of them; and only the one form that a batch has is judged."""
    body = _compact_body(sorted(drawn) if in_order else drawn, in_order)
    decoded = reference.decode(body)
    outcome = _outcome(body, _COMPACT)
    if decoded is None:
        assert isinstance(outcome, RefusalError)
        assert outcome.status == 400
        assert outcome.detail.startswith(f"body: not valid {_COMPACT}: ")
        return
    batch_id, rows = decoded
    batch = Batch(tuple(Report(*row) for row in rows), batch_id)
    as_json = _outcome(batch_to_json(batch), _JSON)
    if isinstance(outcome, RefusalError):
        assert isinstance(as_json, RefusalError)
        assert (outcome.status, outcome.detail) == (as_json.status, as_json.detail)
        assert outcome.reports == as_json.reports
    else:
        assert outcome == as_json


def test_bodies_that_no_encoder_may_write_are_refused_however_well_their_reports_fit():
    homepage = make_metric(params=make_params(k=16))
    search = make_metric("search", params=make_params(k=16))
    declared = Declared(homepage.name, 2, homepage.definition)
    reader = BatchReader(make_registry(homepage, search), [declared], max_reports=65_535)
    for row in json.loads((_VECTORS / "compact_refused.json").read_text(encoding="utf-8")):
        with pytest.raises(RefusalError, match="body: not valid") as refused:
            reader.read(bytes.fromhex(row["body"]), _COMPACT)
        assert (refused.value.status, refused.value.reports) == (400, {}), row["why"]


@pytest.mark.parametrize("count", [1, 500])
@pytest.mark.parametrize("place", [0, -1])
def test_one_record_in_a_wrong_cohort_is_found_wherever_it_is(count, place):
    reports = [make_report(cohort=5, bits=255)] * count
    reports[place] = make_report(cohort=64 if place else 256, bits=255)
    error = _refusal(batch_to_compact(Batch(tuple(reports))), _COMPACT)
    index = count - 1 if place else 0
    assert error.status == 422
    assert error.reports == {
        index: f"reports[{index}].cohort = {reports[place].cohort}: must be between 0 and 63"
    }


@pytest.mark.parametrize("old", [False, True])
def test_the_last_of_65_535_cohorts_is_the_last(old):
    metric = make_metric(metric_type=OpenStringType((4, 7), 21_845))
    later = make_metric(version=2) if old else metric
    declared = [Declared(metric.name, metric.version, metric.definition)]
    reader = BatchReader(make_registry(later), declared)
    batch = Batch((make_report(metric, cohort=65_534), make_report(metric)))
    _assert_same(reader.read(batch_to_json(batch), _JSON), batch)
    assert reader.read(batch_to_compact(batch), _COMPACT)
    for cohort in (65_535, 65_536, -1):
        wrong = Batch((make_report(metric, cohort=cohort),))
        with pytest.raises(RefusalError, match=r"cohort = .*: must be between 0 and 65534"):
            reader.read(batch_to_json(wrong), _JSON)


def test_more_sections_than_reports_are_allowed_are_refused_without_being_read():
    body = b"\x01" + bytes(16) + (1001).to_bytes(2, "little") + b"\xff" * 100
    error = _refusal(body, _COMPACT)
    assert (error.status, error.detail) == (413, "reports: at least 1001; must be at most 1000")


@given(st.binary(), media_types | st.text())
def test_any_bytes_are_a_batch_or_an_error(body, content_type):
    _assert_batch_or_error(body, content_type)


@given(st.data(), media_types)
def test_damaged_batch_is_a_batch_or_an_error(data, content_type):
    valid = _AS[content_type]
    start = data.draw(st.integers(0, len(valid)))
    end = data.draw(st.integers(start, min(start + 8, len(valid))))
    _assert_batch_or_error(valid[:start] + data.draw(st.binary()) + valid[end:], content_type)


@given(documents)
@example({"batch_id": "0" * 32, "reports": [{"cohort": 2**64}]})
@example({"batch_id": "0" * 32, "reports": [{"cohort": -(2**63)}]})
def test_any_json_document_is_a_batch_or_an_error(document):
    _assert_batch_or_error(json.dumps(document).encode(), _JSON)


@given(documents, st.sampled_from(_names[2:]))
def test_any_field_is_a_batch_or_an_error(value, field):
    document: dict[str, Any] = json.loads(_VALID)
    document["reports"][1][field] = value
    _assert_batch_or_error(json.dumps(document).encode(), _JSON)


@pytest.mark.parametrize("digits", [20, 100, 4299, 4300, 4301, 50_000])
@pytest.mark.parametrize("field", ["version", "cohort"])
def test_long_number_is_refused_by_its_field(field, digits):
    body = _VALID.replace(f'"{field}":'.encode(), f'"{field}":{"9" * digits}'.encode(), 1)
    error = _refusal(body)
    assert (error.status, error.detail[: len(field) + 11]) == (422, f"reports[0].{field}")
    assert len(error.detail) < 200


def test_long_text_is_quoted_in_part():
    error = _refusal(_VALID.replace(b"homepage", b"x" * 100_000))
    assert error.detail.startswith("reports[0].metric = 'xxx")
    assert len(error.detail) < 200


def test_report_is_checked_against_its_own_metric():
    search = make_report(_SEARCH, cohort=1023)
    assert _READER.read(batch_to_json(Batch((search,))), _JSON)
    as_homepage = Report("homepage", 1, search.cohort, search.bits)
    assert "reports[0].cohort = 1023" in _refusal(batch_to_json(Batch((as_homepage,)))).detail


def test_version_of_an_earlier_registry_is_still_accepted():
    old = make_report(_OLD_SEARCH, cohort=7, bits=5)
    new = make_report(_SEARCH, cohort=1000)
    read = _READER.read(batch_to_json(Batch((old, new, old))), _JSON)
    assert {key: found.reports for key, found in read.records.items()} == {
        MetricVersion("search", 3): 2,
        MetricVersion("search", 7): 1,
    }
    wrong = Report("search", 3, 8, old.bits)
    assert _refusal(batch_to_json(Batch((wrong,)))).detail == (
        "reports[0].cohort = 8: must be between 0 and 7"
    )


def test_version_that_never_was_is_answered_with_those_that_are_known():
    unknown = Report("search", 4, 0, bytes(1))
    assert _refusal(batch_to_json(Batch((unknown,)))).detail == (
        "reports[0].version = 4: must be one of: 3, 7"
    )


def test_metric_that_left_the_registry_is_refused():
    gone = make_report(_GONE)
    assert _refusal(batch_to_json(Batch((gone,)))).detail == (
        "reports[0].metric = 'gone': must be one of: homepage, search"
    )


@pytest.mark.parametrize("metric", [_HOMEPAGE, _OLD_SEARCH])
def test_too_many_reports_are_refused_whatever_their_version(metric):
    most = Batch(tuple([make_report(metric)] * 1000))
    assert sum(r.reports for r in _READER.read(batch_to_json(most), _JSON).records.values()) == 1000
    error = _refusal(batch_to_json(Batch((*most.reports, make_report(metric)))))
    assert (error.status, error.detail) == (413, "reports: 1001; must be at most 1000")
    assert (
        sum(r.reports for r in _READER.read(batch_to_compact(most), _COMPACT).records.values())
        == 1000
    )
    error = _refusal(batch_to_compact(Batch((make_report(metric),) * 65_535)), _COMPACT)
    assert (error.status, error.detail) == (413, "reports: 65535; must be at most 1000")


def test_answer_stays_small_however_many_reports_are_wrong():
    reader = BatchReader(make_registry(*(make_metric(f"metric_{i:03}") for i in range(200))))
    wrong = json.loads(_VALID)
    wrong["reports"] = [{**wrong["reports"][0], "metric": "x" * 1000}] * 1000
    with pytest.raises(RefusalError) as refused:
        reader.read(json.dumps(wrong).encode(), _JSON)
    assert list(refused.value.reports) == list(range(1000))  # clients drop just these
    assert "metric_019, and 180 more" in refused.value.detail
    assert "metric_020" not in refused.value.detail
    assert sum(map(len, refused.value.reports.values())) < 20_000


def _assert_same(read: NewBatch, batch: Batch) -> None:
    expected: dict[MetricVersion, list[bytes]] = {}
    for report in batch.reports:
        key = MetricVersion(report.metric, report.version)
        expected.setdefault(key, []).append(report.cohort.to_bytes(2, "little") + report.bits)
    assert read.batch_id.hex() == batch.batch_id
    assert {key: (r.width, r.data) for key, r in read.records.items()} == {
        key: (len(rows[0]), b"".join(rows)) for key, rows in expected.items()
    }


def _assert_batch_or_error(body: bytes, content_type: str) -> None:
    outcome = _outcome(body, content_type)
    if isinstance(outcome, RefusalError):
        # Some bytes of a compact body say how many sections, and so reports, it has at least.
        too_many = {413} if content_type == _COMPACT else set()
        assert outcome.status in ({400, 422} | too_many if content_type in _AS else {415})
        assert outcome.detail
    else:
        assert len(outcome.batch_id) == 16
        _assert_fits(outcome.records)


def _outcome(body: bytes, content_type: str) -> NewBatch | RefusalError:
    try:
        return _READER.read(body, content_type)
    except RefusalError as error:
        return error


def _assert_fits(records: Mapping[MetricVersion, Records]) -> None:
    assert records
    for key, found in records.items():
        (metric,) = [m for m in (_HOMEPAGE, _SEARCH, _OLD_SEARCH) if key[:2] == (m.name, m.version)]
        assert found.reports
        assert (len(found.data) % found.width, found.width) == (0, 2 + metric.params.k // 8)
        assert columns(found).cohorts.max() < metric.params.m


def _refusal(body: bytes, content_type: str = _JSON) -> RefusalError:
    with pytest.raises(RefusalError) as refused:
        _READER.read(body, content_type)
    return refused.value


def _compact_body(drawn: list[_Section], in_order: bool) -> bytes:
    """Write sections as they come, or each with its records in order."""
    body = b"\x01" + bytes(16) + len(drawn).to_bytes(2, "little")
    for (name, version, width), rows in drawn:
        records = [struct.pack(f"<H{width}s", cohort, bits) for cohort, bits in rows]
        body += struct.pack("<B", len(name)) + name.encode()
        body += struct.pack("<IHH", version, width, len(records))
        body += b"".join(sorted(records) if in_order else records)
    return body


_AS = {
    _JSON: _VALID,
    _COMPACT: batch_to_compact(Batch((make_report(cohort=1), make_report(cohort=2, bits=3)))),
}
