"""What the collector refuses: always with a problem document, never storing a part."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubbub.client import Batch, batch_to_json
from hubbub.protocol import batch_to_compact
from hubbub.simulations import Collector
from programs import forked_collector
from service.posting import COMPACT, JSON, Answer, make_batch, post, send, stored_count

_GZIP = {"Content-Encoding": "gzip"}
_WHOLE = batch_to_compact(make_batch()._replace(batch_id=32 * "0"))
_ID = '{"batch_id": "' + 32 * "0" + '", "reports": '


@pytest.fixture
def url(untouched) -> Iterator[str]:
    """Give a collector's address; afterwards it must live and have stored nothing more."""
    collector, database = untouched
    before = stored_count(database)
    yield collector.url
    assert send(collector.url, "GET", "/livez").status == 200
    assert stored_count(database) == before


def test_all_that_is_refused_is_accepted_once_it_is_right(collector):
    assert post(collector.url, batch_to_json(make_batch(2))).status == 201
    assert post(collector.url, batch_to_compact(make_batch(2)), COMPACT).status == 201
    assert post(collector.url, _ID.encode() + _reports({}, {}) + b"}").status == 201


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", JSON),
        (b"{", JSON),
        (b"not json", JSON),
        (b"\xff\xfe\x00", JSON),
        (b'{"batch_id": "\xff"}', JSON),
        (batch_to_json(make_batch())[:-1], JSON),
        (batch_to_json(make_batch()) + b"}", JSON),
        (_WHOLE, JSON),
        (b"", COMPACT),
        (batch_to_json(make_batch()), COMPACT),
        (_WHOLE[:-1], COMPACT),
        (_WHOLE + b"\x00", COMPACT),
        (b"\x02" + _WHOLE[1:], COMPACT),
        (_WHOLE[:17] + b"\xff\x00" + b"\xff" * 1_000_000, COMPACT),
    ],
)
def test_malformed_body_is_answered_400(url, body, content_type):
    assert f"not valid {content_type}" in _detail(post(url, body, content_type), 400)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"[" * 500_000, JSON),
        (b'{"batch_id":' * 50_000, JSON),
        (_ID.encode() + b"[" * 500_000, JSON),
        (_ID.encode() + b'[{"bits":' + b"[" * 500_000, JSON),
    ],
)
def test_deeply_nested_body_is_refused(url, body, content_type):
    answer = post(url, body, content_type)
    assert answer.status in {400, 422}
    _detail(answer, answer.status)


@pytest.mark.parametrize(
    "body",
    [
        b"not gzip",
        b"",
        batch_to_json(make_batch()),
        gzip.compress(batch_to_json(make_batch()))[:-12],
        gzip.compress(batch_to_json(make_batch()))[:10] + b"\xff" * 50,
        gzip.compress(batch_to_json(make_batch()))[:-8] + bytes(8),
        gzip.compress(batch_to_json(make_batch())) * 2,
    ],
    ids=["text", "empty", "plain JSON", "cut off", "damaged", "wrong checksum", "two members"],
)
def test_bad_gzip_is_answered_400(url, body):
    assert "body" in _detail(post(url, body, headers=_GZIP), 400)


def test_too_large_body_is_answered_413_with_the_limit(url):
    body = batch_to_json(make_batch()).ljust(2**20 + 1)
    assert "1048576 bytes" in _detail(post(url, body), 413)


def test_zip_bomb_is_answered_413_without_being_inflated(metrics_file, database):
    bomb = gzip.compress(bytes(2**28), compresslevel=1)
    assert len(bomb) < 2**21
    with forked_collector(metrics_file, database, ["--max-body-bytes", str(2**21)]) as collector:
        before = _peak_memory(collector)
        assert "2097152 bytes" in _detail(post(collector.url, bomb, headers=_GZIP), 413)
        assert _peak_memory(collector) - before < 2**26
        assert post(collector.url, make_batch()).status == 201
    assert stored_count(database) == 3


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "application/msgpack", "json", ""],
)
def test_other_media_type_is_answered_415_with_the_right_ones(url, content_type):
    detail = _detail(post(url, make_batch(), content_type), 415)
    assert "Content-Type" in detail
    assert JSON in detail
    assert COMPACT in detail


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "x" * 100])
def test_other_encoding_is_answered_415_with_the_right_one(url, encoding):
    answer = post(url, make_batch(), headers={"Content-Encoding": encoding})
    assert "must be absent, or gzip" in _detail(answer, 415)


def test_missing_media_type_is_answered_415(url):
    _detail(send(url, "POST", "/v1/reports", batch_to_json(make_batch())), 415)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"metric": "search"}, "reports[1].metric = 'search': must be one of: homepage"),
        ({"metric": ""}, "reports[1].metric = '': must be one of: homepage"),
        ({"metric": 7}, "reports[1].metric: Expected `str`, got `int`"),
        ({"metric": None}, "reports[1].metric: Expected `str`, got `null`"),
        ({"version": 2}, "reports[1].version = 2: must be 1"),
        ({"version": 0}, "reports[1].version = 0: must be 1"),
        ({"version": "1"}, "reports[1].version: Expected `int`, got `str`"),
        ({"version": True}, "reports[1].version: Expected `int`, got `bool`"),
        ({"cohort": 64}, "reports[1].cohort = 64: must be between 0 and 63"),
        ({"cohort": -1}, "reports[1].cohort = -1: must be between 0 and 63"),
        ({"cohort": 2**40}, "reports[1].cohort = 1099511627776: must be between 0 and 63"),
        ({"cohort": 10**30}, f"reports[1].cohort = {10**30}: must be between 0 and 63"),
        ({"cohort": 1.5}, "reports[1].cohort: Expected `int`, got `float`"),
        ({"cohort": []}, "reports[1].cohort: Expected `int`, got `array`"),
        ({"bits": ""}, "reports[1].bits: 0 bytes; must be 16 bytes"),
        ({"bits": "AAAA"}, "reports[1].bits: 3 bytes; must be 16 bytes"),
        ({"bits": "A" * 24}, "reports[1].bits: 18 bytes; must be 16 bytes"),
        ({"bits": "?" * 24}, "reports[1].bits: Invalid base64 encoded string"),
        ({"bits": [0] * 16}, "reports[1].bits: Expected `bytes`, got `array`"),
        ({"value": "x"}, "reports[1]: Object contains unknown field `value`"),
    ],
)
def test_wrong_field_is_named_with_what_was_expected(url, fields, fault):
    body = _ID.encode() + _reports({}, fields, {}) + b"}"
    assert _detail(post(url, body), 422) == fault


@pytest.mark.parametrize("field", ["metric", "version", "cohort", "bits"])
def test_missing_field_is_named(url, field):
    report = {name: value for name, value in _report({}).items() if name != field}
    body = json.dumps({"batch_id": "0" * 32, "reports": [_report({}), report]}).encode()
    detail = _detail(post(url, body), 422)
    assert detail == f"reports[1]: Object missing required field `{field}`"


def test_every_refused_report_of_a_compact_batch_is_named_by_its_place_in_the_body(url):
    good = make_batch(2).reports
    batch = Batch(
        (
            *good,
            good[0]._replace(metric="elsewhere"),
            good[0]._replace(cohort=64),
            good[0]._replace(version=2, bits=b"\x00"),
        )
    )
    answer = post(url, batch_to_compact(batch), COMPACT)
    first = "reports[3].cohort = 64: must be between 0 and 63"
    assert _detail(answer, 422) == first
    assert answer.json["errors"] == [{"report": 3, "detail": first}]
    unknown = [{"metric": "elsewhere", "version": 1}, {"metric": "homepage", "version": 2}]
    assert (answer.json["retry"], answer.json["unknown"]) == (True, unknown)


@pytest.mark.parametrize(
    "batch_id",
    ["", "0" * 31, "0" * 33, "A" * 32, "g" * 32, "0" * 32 + "\n", " " + "0" * 31, 0, None, ["0"]],
)
def test_wrong_batch_id_is_refused(url, batch_id):
    body = json.dumps({"batch_id": batch_id, "reports": [_report({})]}).encode()
    detail = _detail(post(url, body), 422)
    assert detail.startswith("batch_id: ")
    assert "32 lower-case hexadecimal digits" in detail


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"[]", "body: Expected `object`, got `array`"),
        (b"null", "body: Expected `object`, got `null`"),
        (b"{}", "body: Object missing required field `batch_id`"),
        (_ID.encode() + b"[]}", "reports: Expected `array` of length >= 1"),
        (_ID.encode() + b"{}}", "reports: Expected `array`, got `object`"),
        (_ID.encode() + b"[1]}", "reports[0]: Expected `object`, got `int`"),
        (b'{"batch_id": "' + b"0" * 32 + b'"}', "body: Object missing required field `reports`"),
        (_ID.encode() + b'[], "sent": 1}', "reports: Expected `array` of length >= 1"),
        (b'{"sent": 1}', "body: Object contains unknown field `sent`"),
    ],
)
def test_wrong_batch_is_answered_422(url, body, fault):
    assert _detail(post(url, body), 422) == fault


def test_one_wrong_report_among_many_refuses_them_all(url):
    fine: dict[str, object] = {}
    reports = [fine] * 500 + [{**fine, "cohort": 64}] + [fine] * 500
    body = _ID.encode() + _reports(*reports) + b"}"
    assert _detail(post(url, body), 422).startswith("reports[500].cohort")


def test_refused_batch_may_be_sent_again_put_right(collector, database):
    wrong = _ID.encode() + _reports({}, {"cohort": 64}) + b"}"
    right = _ID.encode() + _reports({}, {"cohort": 63}) + b"}"
    assert post(collector.url, wrong).status == 422
    assert post(collector.url, right).status == 201
    assert stored_count(database) == 2


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/reports/", "/v2/reports", "/v1/reports/7", "/%00%ff", "/favicon.ico"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_unknown_path_is_answered_404(url, method, path):
    _detail(send(url, method, path), 404)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/reports", {"POST"}),
        ("PUT", "/v1/reports", {"POST"}),
        ("PATCH", "/v1/reports", {"POST"}),
        ("DELETE", "/v1/reports", {"POST"}),
        ("OPTIONS", "/v1/reports", {"POST"}),
        ("POST", "/livez", {"GET", "HEAD"}),
        ("DELETE", "/livez", {"GET", "HEAD"}),
    ],
)
def test_wrong_method_is_answered_405_with_the_allowed_ones(url, method, path, allowed):
    answer = send(url, method, path)
    assert method in _detail(answer, 405)
    assert set(answer.headers["Allow"].split(",")) == allowed


def _detail(answer: Answer, status: int) -> str:
    """Check a problem document and return its detail."""
    assert answer.status == status
    assert answer.headers.get_content_type() == "application/problem+json"
    problem = answer.json
    assert set(problem) - {"errors", "retry", "unknown"} == {"type", "title", "status", "detail"}
    assert problem["type"] == "about:blank"
    assert problem["status"] == status
    assert problem["title"].strip()
    detail: str = problem["detail"]
    assert detail.strip()
    return detail


def _report(changes: dict[str, object]) -> dict[str, object]:
    return {"metric": "homepage", "version": 1, "cohort": 0, "bits": "A" * 22 + "==", **changes}


def _reports(*changes: dict[str, object]) -> bytes:
    return json.dumps([_report(change) for change in changes]).encode()


def _peak_memory(collector: Collector) -> int:
    status = Path(f"/proc/{collector.process.pid}/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024
