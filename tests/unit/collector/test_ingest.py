"""Bodies become checked batches, or errors that say what is wrong; there is no third outcome."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from factories import batch_to_msgpack, make_metric, make_params, make_registry, make_report
from hubbub.client import Batch, Report, batch_to_json
from hubbub.collector.errors import BatchError
from hubbub.collector.ingest import BatchReader
from hubbub.collector.store import MetricVersion, NewBatch

_JSON = "application/json"
_MSGPACK = "application/msgpack"
_HOMEPAGE = make_metric()
_SEARCH = make_metric("search", version=7, params=make_params(k=8, m=1024))
_READER = BatchReader(make_registry(_HOMEPAGE, _SEARCH))
_VALID = batch_to_json(Batch((make_report(cohort=1), make_report(cohort=2, bits=3))))

media_types = st.sampled_from([_JSON, _MSGPACK])
reports = st.one_of(
    [
        st.builds(
            Report,
            st.just(metric.name),
            st.just(metric.version),
            st.integers(0, metric.params.m - 1),
            st.binary(min_size=metric.params.k // 8, max_size=metric.params.k // 8),
        )
        for metric in (_HOMEPAGE, _SEARCH)
    ]
)
batches = st.builds(
    Batch,
    st.lists(reports, min_size=1, max_size=20).map(tuple),
    st.binary(min_size=16, max_size=16).map(bytes.hex),
)
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
def test_json_batch_becomes_its_records(batch: Batch) -> None:
    _assert_same(_READER.read(batch_to_json(batch), _JSON), batch)


@given(batches)
def test_messagepack_batch_becomes_its_records(batch: Batch) -> None:
    _assert_same(_READER.read(batch_to_msgpack(batch), _MSGPACK), batch)


@given(st.binary(), media_types | st.text())
def test_any_bytes_are_a_batch_or_an_error(body: bytes, content_type: str) -> None:
    _assert_batch_or_error(body, content_type)


@given(st.data(), media_types)
def test_damaged_batch_is_a_batch_or_an_error(data: st.DataObject, content_type: str) -> None:
    valid = _VALID if content_type == _JSON else _as_msgpack(json.loads(_VALID))
    start = data.draw(st.integers(0, len(valid)))
    end = data.draw(st.integers(start, min(start + 8, len(valid))))
    _assert_batch_or_error(valid[:start] + data.draw(st.binary()) + valid[end:], content_type)


@given(documents)
@example({"batch_id": "0" * 32, "reports": [{"cohort": 2**64}]})
@example({"batch_id": "0" * 32, "reports": [{"cohort": -(2**63)}]})
def test_any_json_document_is_a_batch_or_an_error(document: object) -> None:
    _assert_batch_or_error(json.dumps(document).encode(), _JSON)


@given(documents)
def test_any_messagepack_document_is_a_batch_or_an_error(document: object) -> None:
    _assert_batch_or_error(msgspec.msgpack.encode(document), _MSGPACK)


@given(documents, st.sampled_from(_names[2:]))
def test_any_field_is_a_batch_or_an_error(value: object, field: str) -> None:
    document: dict[str, Any] = json.loads(_VALID)
    document["reports"][1][field] = value
    _assert_batch_or_error(json.dumps(document).encode(), _JSON)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"batch_id":', b'{"reports":[', b'{"a":['])
@pytest.mark.parametrize("depth", [10, 1000, 100_000])
def test_deep_nesting_is_an_error(opening: bytes, depth: int) -> None:
    assert _refusal(opening * depth).status in {400, 422}


@pytest.mark.parametrize("digits", [20, 100, 4299, 4300, 4301, 50_000])
@pytest.mark.parametrize("field", ["version", "cohort"])
def test_long_number_is_refused_by_its_field(field: str, digits: int) -> None:
    body = _VALID.replace(f'"{field}":'.encode(), f'"{field}":{"9" * digits}'.encode(), 1)
    error = _refusal(body)
    assert (error.status, error.detail[: len(field) + 11]) == (422, f"reports[0].{field}")


def test_long_text_is_quoted_in_part() -> None:
    error = _refusal(_VALID.replace(b"homepage", b"x" * 100_000))
    assert error.detail.startswith("reports[0].metric = 'xxx")
    assert len(error.detail) < 200


def test_batch_id_must_end_where_it_ends() -> None:
    document = json.loads(_VALID)
    document["batch_id"] += "\n"
    assert _refusal(json.dumps(document).encode()).detail.startswith("batch_id: ")


def test_fault_names_the_first_wrong_report() -> None:
    wrong = [make_report(cohort=i) for i in (0, 63, 64, 65)]
    assert _refusal(batch_to_json(Batch(tuple(wrong)))).detail.startswith("reports[2].cohort = 64")


def test_report_is_checked_against_its_own_metric() -> None:
    search = make_report(_SEARCH, cohort=1023)
    assert _READER.read(batch_to_json(Batch((search,))), _JSON)
    as_homepage = Report("homepage", 1, search.cohort, search.bits)
    assert "reports[0].cohort = 1023" in _refusal(batch_to_json(Batch((as_homepage,)))).detail


def test_unknown_metric_is_answered_with_all_that_are_known() -> None:
    error = _refusal(_VALID.replace(b"homepage", b"homPage"))
    assert error.detail == "reports[0].metric = 'homPage': must be one of: homepage, search"


def _assert_same(read: NewBatch, batch: Batch) -> None:
    expected: dict[MetricVersion, list[bytes]] = {}
    for report in batch.reports:
        key = MetricVersion(report.metric, report.version)
        expected.setdefault(key, []).append(report.cohort.to_bytes(2, "little") + report.bits)
    assert read.batch_id.hex() == batch.batch_id
    assert read.records == expected


def _assert_batch_or_error(body: bytes, content_type: str) -> None:
    outcome = _outcome(body, content_type)
    if isinstance(outcome, BatchError):
        assert outcome.status in ({400, 422} if content_type in {_JSON, _MSGPACK} else {415})
        assert outcome.detail
    else:
        assert len(outcome.batch_id) == 16
        _assert_fits(outcome.records)


def _outcome(body: bytes, content_type: str) -> NewBatch | BatchError:
    try:
        return _READER.read(body, content_type)
    except BatchError as error:
        return error


def _assert_fits(records: Mapping[MetricVersion, Any]) -> None:
    assert records
    for key, rows in records.items():
        metric = _HOMEPAGE if key.metric == "homepage" else _SEARCH
        assert key == (metric.name, metric.version)
        for row in rows:
            assert len(row) == 2 + metric.params.k // 8
            assert int.from_bytes(row[:2], "little") < metric.params.m


def _refusal(body: bytes) -> BatchError:
    with pytest.raises(BatchError) as refused:
        _READER.read(body, _JSON)
    return refused.value


def _as_msgpack(document: dict[str, Any]) -> bytes:
    rows = [{**row, "bits": bytes(16)} for row in document["reports"]]
    return msgspec.msgpack.encode({**document, "reports": rows})
