"""Counting without unpacking gives what unpacking would."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies as st

from factories import make_params
from hubbub.client import RapporParams
from hubbub.decoder import CohortCounts, count_records, empty_counts
from hubbub.inference import UndecodableError

Reports = tuple[RapporParams, npt.NDArray[np.int64], npt.NDArray[np.uint8]]


@st.composite
def reports(draw: st.DrawFn) -> Reports:
    """Draw parameters and uniform reports: cohorts (n,) and bits (n, k / 8)."""
    k = 8 * draw(st.integers(1, 20))
    m = draw(st.sampled_from([1, 2, 7, 64, 1024]))
    n = draw(st.integers(0, 200))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    cohorts = rng.integers(m, size=n)
    bits = rng.integers(256, size=(n, k // 8), dtype=np.uint8)
    return make_params(k=k, m=m), cohorts, bits


def records_of(cohorts: npt.NDArray[np.int64], bits: npt.NDArray[np.uint8]) -> list[bytes]:
    """Write reports as docs/protocol says: two little-endian bytes of cohort, then the bits."""
    return [
        int(cohort).to_bytes(2, "little") + row.tobytes()
        for cohort, row in zip(cohorts, bits, strict=True)
    ]


def counted_by_unpacking(
    cohorts: npt.NDArray[np.int64], bits: npt.NDArray[np.uint8], params: RapporParams
) -> CohortCounts:
    """Count one report after the other; bit j is bit j % 8 of byte j // 8."""
    counts = empty_counts(params)
    for cohort, row in zip(cohorts, bits, strict=True):
        counts.reports[cohort] += 1
        counts.bits[cohort] += np.unpackbits(row, bitorder="little")
    return counts


def assert_equal(counts: CohortCounts, expected: CohortCounts) -> None:
    np.testing.assert_array_equal(counts.reports, expected.reports)
    np.testing.assert_array_equal(counts.bits, expected.bits)
    assert counts.bits.dtype == counts.reports.dtype == np.int64


@given(reports())
def test_counts_equal_those_of_unpacked_bits(given_reports):
    params, cohorts, bits = given_reports
    counts = count_records(b"".join(records_of(cohorts, bits)), params)
    assert_equal(counts, counted_by_unpacking(cohorts, bits, params))
    assert counts.total == len(cohorts)


@given(reports(), st.data())
def test_counts_of_chunks_add_up_to_those_of_the_whole(given_reports, data):
    params, cohorts, bits = given_reports
    records = records_of(cohorts, bits)
    cut = data.draw(st.integers(0, len(records)))
    first = count_records(b"".join(records[:cut]), params)
    second = count_records(b"".join(records[cut:]), params)
    assert_equal(first + second, count_records(b"".join(records), params))


@pytest.mark.parametrize("length", [1, 17, 19, 35])
def test_partial_records_are_refused(length):
    with pytest.raises(UndecodableError, match=rf"records of {length} bytes: .* multiple of 18"):
        count_records(bytes(length), make_params(k=128))


@pytest.mark.parametrize("cohort", [64, 256, 65_535])
def test_cohort_out_of_range_is_refused(cohort):
    record = cohort.to_bytes(2, "little") + bytes(16)
    with pytest.raises(UndecodableError, match=rf"cohort {cohort}: must be below m = 64"):
        count_records(bytes(18) + record, make_params(k=128, m=64))


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("n", [254, 255, 256, 511, 300_000])
@pytest.mark.parametrize("k", [8, 72, 128])
def test_sums_of_many_reports_do_not_overflow(n, m, k):
    """Most bits are set, and all of the first byte's; 300,000 reports are several blocks."""
    rng = np.random.default_rng(n)
    cohorts = rng.integers(m, size=n)
    bits = rng.integers(256, size=(n, k // 8), dtype=np.uint8) | np.uint8(0xB7)
    bits[:, 0] = 255
    table = np.concatenate([cohorts.astype("<u2")[:, None].view(np.uint8), bits], axis=1)
    unpacked = np.unpackbits(bits, axis=1, bitorder="little")
    expected = CohortCounts(
        np.bincount(cohorts, minlength=m),
        np.array([unpacked[cohorts == cohort].sum(axis=0, dtype=np.int64) for cohort in range(m)]),
    )
    assert_equal(count_records(table.tobytes(), make_params(k=k, m=m)), expected)
