"""Compact bodies become sections, and whatever isn't one is refused with precise words."""

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from evaluation.reference import compact as reference
from hubbub.collector import CompactReader, ExpectedReports
from hubbub.protocol import CompactError
from hubbub.storage import MetricVersion, NewBatch

_VECTORS = Path(__file__).parents[3] / "docs" / "protocol" / "vectors" / "compact.json"
_ID = "0123456789abcdef" * 2
_HEAD = b"\x01" + bytes.fromhex(_ID) + b"\x01\x00"
_NAME = b"\x08homepage"
_SECTION = _NAME + b"\x01\x00\x00\x00" + b"\x02\x00" + b"\x02\x00"
_RECORDS = b"\x03\x00\xaa\x00" + b"\x03\x00\xaa\x01"
_BODY = _HEAD + _SECTION + _RECORDS
_EARLIER = b"\x01a" + _SECTION[len(_NAME) :] + _RECORDS
_TWO = _BODY[:17] + b"\x02\x00"


class _UnexpectedError(Exception):
    """Some report of a batch isn't as expected."""


def _refuse(_batch: NewBatch) -> NewBatch:
    raise _UnexpectedError


def _take(batch: NewBatch) -> NewBatch:
    return batch


def _told(_metric: str, slice_: str) -> str:
    return slice_


_HOMEPAGE = ExpectedReports(MetricVersion("homepage", 1), 64, 4)
_EXPECTED = [_HOMEPAGE, ExpectedReports(MetricVersion("a", 1), 64, 4)]
_READING = CompactReader([], 65_535, _take, _told)
_KNOWING = CompactReader(_EXPECTED, 65_535, _take, _told)
_STRICT = CompactReader(_EXPECTED, 65_535, _refuse, _told)

_reports = st.lists(
    st.builds(
        reference.Report,
        st.sampled_from(["a", "ab", "a-b", "homepage"]),
        st.sampled_from([1, 2, 256]),
        st.sampled_from([0, 1, 63, 64, 65_534]),
        st.binary(min_size=2, max_size=2),
        st.sampled_from(["", "platform=mac", "mac"]),
    ),
    min_size=1,
    max_size=8,
)
bodies = _reports.map(lambda reports: reference.encode(_ID, reports)[0])


@pytest.mark.parametrize("reader", [_READING, _KNOWING])
@given(bodies, st.data())
def test_body_is_read_as_the_reference_does_or_refused(reader, body, data):
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, min(start + 4, len(body))))
    for each in (body, body[:start] + data.draw(st.binary(max_size=5)) + body[end:]):
        try:
            batch = reader.read(each)
        except CompactError:
            assert reference.decode(each) is None
        else:
            assert _contents(batch) == reference.decode(each)


def test_vectors_are_read():
    for row in json.loads(_VECTORS.read_text(encoding="utf-8")):
        body = bytes.fromhex(row["body"])
        assert _contents(_READING.read(body)) == reference.decode(body)


@pytest.mark.parametrize(("cohort", "fits"), [(0, True), (63, True), (64, False), (256, False)])
@pytest.mark.parametrize("reports", [1, 2, 33])
def test_each_report_is_looked_at_if_any_is_not_as_expected(reports, cohort, fits):
    rows = [reference.Report("homepage", 1, cohort, b"??")] + (reports - 1) * [
        reference.Report("homepage", 1, 5, b"??")
    ]
    other = reference.Report("a", 1, 0, b"??")
    for each in (rows, [*rows, other]):
        body, _ = reference.encode(_ID, each)
        if fits:
            assert _STRICT.read(body) == _KNOWING.read(body)
        else:
            with pytest.raises(_UnexpectedError):
                _STRICT.read(body)
    unknown = reference.Report("ab", 1, 0, b"??")
    with pytest.raises(_UnexpectedError):
        _STRICT.read(reference.encode(_ID, [*rows, unknown])[0])


def test_section_of_another_width_is_no_second_one_of_its_version():
    other = _NAME + b"\x01\x00\x00\x00" + b"\x01\x00" + b"\x01\x00" + b"\x03\x00\xaa"
    for body in (_TWO + other + _SECTION + _RECORDS, _TWO + _SECTION + _RECORDS + other):
        with pytest.raises(CompactError, match="homepage version 1 after homepage version 1"):
            _KNOWING.read(body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "head: the body ends after 0 of 19 bytes"),
        (b"\x00" + _BODY[1:], "format = 0: must be 1"),
        (b'{"batch_id":"00112233', "format = 123: must be 1"),
        (_BODY[:9], "head: the body ends after 9 of 19 bytes"),
        (_BODY[:18], "head: the body ends after 18 of 19 bytes"),
        (_BODY[:17] + b"\0\0", "sections = 0: must be between 1 and 65535"),
        (_BODY[:19], "sections[0].head: the body ends after 0 of 9 bytes"),
        (_BODY[:35], "sections[0].head: the body ends after 16 of 17 bytes"),
        (_HEAD + bytes(9), "sections[0].name_length = 0: must be between 1 and 64"),
        (_HEAD + b"\x41" + 73 * b"a", "sections[0].name_length = 65: must be between 1 and 64"),
        (
            _BODY.replace(b"page", b"p\xe4ge"),
            "sections[0].metric = b'homep\\xe4ge': must be ASCII",
        ),
        (
            _BODY.replace(b"\x08homepage", b"\x09homepage;"),
            "sections[0].metric = b'homepage;': must have a slice behind ;",
        ),
        (
            _BODY.replace(b"\x02\x00\x02\x00", b"\x00\x00\x02\x00"),
            "sections[0].bits_length = 0: must be between 1 and 512",
        ),
        (
            _BODY.replace(b"\x02\x00\x02\x00", b"\x01\x02\x02\x00"),
            "sections[0].bits_length = 513: must be between 1 and 512",
        ),
        (
            _BODY.replace(b"\x02\x00\x02\x00", b"\x02\x00\x00\x00"),
            "sections[0].record_count = 0: must be between 1 and 65535",
        ),
        (_BODY[:-1], "sections[0].records: the body ends after 7 of 8 bytes"),
        (
            _BODY.replace(b"\x02\x00\x02\x00", b"\x02\x00\xff\xff"),
            "sections[0].records: the body ends after 8 of 262,140 bytes",
        ),
        (_BODY + b"\x00", "body: 1 byte after the last section; must end there"),
        (
            _HEAD + _SECTION + _RECORDS[4:] + _RECORDS[:4],
            "sections[0]: record 1 is below the one before; must ascend",
        ),
        (
            _TWO + _SECTION + _RECORDS + _EARLIER,
            "sections[1]: a version 1 after homepage version 1; must be in ascending order",
        ),
        (
            _TWO + (_SECTION + _RECORDS) * 2,
            "sections[1]: homepage version 1 after homepage version 1; must be in ascending",
        ),
        (
            _TWO + _SECTION + _RECORDS,
            "sections[1].head: the body ends after 0 of 9 bytes",
        ),
    ],
)
def test_refusal_says_where_the_fault_is_and_what_was_expected(body, message):
    for reader in (_KNOWING, _READING):
        reader.read(_BODY)
        with pytest.raises(CompactError) as refused:
            reader.read(body)
        assert str(refused.value).startswith(message)


def _contents(batch: NewBatch) -> tuple[str, list[reference.Report]]:
    reports = []
    for key, records in batch.records.items():
        for start in range(0, len(records.data), records.width):
            record = records.data[start : start + records.width]
            cohort = int.from_bytes(record[:2], "little")
            report = reference.Report(key.metric, key.version, cohort, record[2:], key.slice)
            reports.append(report)
    return batch.batch_id.hex(), reports
