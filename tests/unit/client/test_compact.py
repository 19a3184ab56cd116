"""The compact form of batches: one for each batch, and precise words for whatever isn't one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.reference import compact as reference
from factories import make_report
from hubbub.client import Batch, Report
from hubbub.protocol.compact import batch_to_compact, read_compact
from hubbub.protocol.errors import CompactError

_ID = "0123456789abcdef" * 2
_HEAD = b"\x01" + bytes.fromhex(_ID) + b"\x01\x00"
_NAME = b"\x08homepage"
_SECTION = _NAME + b"\x01\x00\x00\x00" + b"\x02\x00" + b"\x02\x00"
_RECORDS = b"\x03\x00\xaa\x00" + b"\x03\x00\xaa\x01"
_BODY = _HEAD + _SECTION + _RECORDS
_EARLIER = b"\x01a" + _SECTION[len(_NAME) :] + _RECORDS
_TWO = _BODY[:17] + b"\x02\x00"


def _reports(name: str, version: int, width: int) -> st.SearchStrategy[list[Report]]:
    # Few different ones, so that equal reports and equal cohorts occur.
    bits = st.binary(min_size=width, max_size=width)
    cohorts = st.sampled_from([0, 1, 2, 255, 256, 257, 65_534])
    return st.lists(st.builds(Report, st.just(name), st.just(version), cohorts, bits), max_size=5)


def _batch(reports: list[Report]) -> Batch:
    return Batch(tuple(reports), _ID)


_KINDS = [
    _reports(name, version, width)
    for name, version, width in (("a", 2, 1), ("a", 256, 2), ("ab", 1, 3), ("a-b", 1, 16))
]
batches = (
    st.tuples(*_KINDS)
    .map(lambda kinds: [report for kind in kinds for report in kind])
    .filter(bool)
    .flatmap(st.permutations)
    .map(_batch)
)


@given(batches)
def test_batch_becomes_what_the_reference_makes_of_it_and_back(batch: Batch) -> None:
    body = batch_to_compact(batch)
    reports = [reference.Report(*report) for report in batch.reports]
    expected, order = reference.encode(batch.batch_id, reports)
    assert body == expected
    batch_id, sections = read_compact(body)
    assert batch_id == batch.batch_id
    read = [report for section in sections for report in section.reports()]
    assert read == [batch.reports[index] for index in order]
    assert sum(section.n_reports for section in sections) == len(batch.reports)


@given(batches, st.randoms(use_true_random=False))
def test_batch_has_one_form_in_whatever_order_its_reports_are(
    batch: Batch, chance: random.Random
) -> None:
    shuffled = list(batch.reports)
    chance.shuffle(shuffled)
    assert batch_to_compact(_batch(shuffled)) == batch_to_compact(batch)


@given(batches, st.data())
def test_changed_bytes_are_refused_or_the_one_form_of_another_batch(
    batch: Batch, data: st.DataObject
) -> None:
    body = batch_to_compact(batch)
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, min(start + 4, len(body))))
    changed = body[:start] + data.draw(st.binary(max_size=5)) + body[end:]
    try:
        batch_id, sections = read_compact(changed)
    except CompactError:
        found = None
    else:
        reports = [report for section in sections for report in section.reports()]
        found = batch_id, [reference.Report(*report) for report in reports]
    assert found == reference.decode(changed)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "head: the body ends after 0 of 19 bytes"),
        (b"\x00" + _BODY[1:], "format = 0: must be 1"),
        (b'{"batch_id":"00112233', "format = 123: must be 1"),
        (_BODY[:9], "head: the body ends after 9 of 19 bytes"),
        (_BODY[:18], "head: the body ends after 18 of 19 bytes"),
        (_BODY[:17] + b"\0\0", "sections = 0: must be between 1 and 65535"),
        (_BODY[:19], "sections[0].name_length: the body ends after 0 of 1 bytes"),
        (_HEAD + b"\x00", "sections[0].name_length = 0: must be between 1 and 64"),
        (_HEAD + b"\x41", "sections[0].name_length = 65: must be between 1 and 64"),
        (_BODY[:25], "sections[0].metric: the body ends after 5 of 8 bytes"),
        (
            _BODY.replace(b"page", b"p\xe4ge"),
            "sections[0].metric = b'homep\\xe4ge': must be ASCII",
        ),
        (_BODY[:30], "sections[0].numbers: the body ends after 2 of 8 bytes"),
        (_BODY[:33], "sections[0].numbers: the body ends after 5 of 8 bytes"),
        (
            _BODY.replace(b"\x02\x00\x02\x00", b"\x00\x00\x02\x00"),
            "sections[0].bits_length = 0: must be between 1 and 512",
        ),
        (
            _BODY.replace(b"\x02\x00\x02\x00", b"\x01\x02\x02\x00"),
            "sections[0].bits_length = 513: must be between 1 and 512",
        ),
        (_BODY[:35], "sections[0].numbers: the body ends after 7 of 8 bytes"),
        (
            _BODY.replace(b"\x02\x00\x02\x00", b"\x02\x00\x00\x00"),
            "sections[0].record_count = 0: must be between 1 and 65535",
        ),
        (_BODY[:-1], "sections[0].records: the body ends after 7 of 8 bytes"),
        (
            _BODY.replace(b"\x02\x00\x02\x00", b"\x02\x00\xff\xff"),
            "sections[0].records: the body ends after 8 of 262140 bytes",
        ),
        (_BODY + b"\x00", "body: 1 bytes after the last section; must end there"),
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
            "sections[1].name_length: the body ends after 0 of 1 bytes",
        ),
    ],
)
def test_refusal_says_where_the_fault_is_and_what_was_expected(body: bytes, message: str) -> None:
    read_compact(_BODY)
    with pytest.raises(CompactError) as refused:
        read_compact(body)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (Batch((), _ID), "reports: 0; must be at least 1"),
        (Batch((make_report(),), "AB" * 16), "batch_id: must be 32 lower-case hexadecimal digits"),
        (Batch((make_report(),), "ab" * 15), "batch_id: must be 32 lower-case hexadecimal digits"),
        (Batch((make_report(),), "x"), "batch_id: must be 32 lower-case hexadecimal digits"),
        (
            Batch((make_report(), make_report(cohort=65_536)), _ID),
            "reports[1].cohort = 65536: must be an integer between 0 and 65535",
        ),
        (
            Batch((make_report()._replace(version=2**32),), _ID),
            "reports[0].version = 4294967296: must be an integer between 0 and 4294967295",
        ),
        (
            Batch((make_report()._replace(metric="zürich"),), _ID),
            "reports[0].metric: must be 1 to 64 ASCII characters",
        ),
        (
            Batch((make_report()._replace(bits=bytes(513)),), _ID),
            "reports[0].bits: 513 bytes; must be 1 to 512",
        ),
        (
            Batch((make_report(), make_report()._replace(bits=bytes(8))), _ID),
            "bits of 'homepage' version 1: 8 and 16 bytes; must be equal",
        ),
        (
            Batch((make_report()._replace(bits=b"\x00"),) * 65_536, _ID),
            "reports of 'homepage' version 1: 65536; must be at most 65535",
        ),
    ],
)
def test_batch_that_does_not_fit_the_form_is_refused(batch: Batch, message: str) -> None:
    with pytest.raises(CompactError) as refused:
        batch_to_compact(batch)
    assert str(refused.value) == message
