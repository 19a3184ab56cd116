"""Packing keeps every report, whatever comes in which pieces."""

from collections import Counter

import numpy as np
import pytest

from factories import make_params
from hubbub.client import RapporParams
from hubbub.inference import PackedReports, UndecodableError, pack
from unit.decoder.packed import as_records

SHAPES = (make_params(k=8, m=5), make_params(k=16, m=5), make_params(k=24, m=5))


def some_records(params: RapporParams, n: int = 3_000) -> bytes:
    rng = np.random.default_rng(20140814)
    cohorts = rng.choice([0, 1, 4], size=n)  # two cohorts are empty
    return as_records(cohorts, rng.integers(256, size=(n, params.k // 8), dtype=np.uint8))


def chunks_of(records: bytes, params: RapporParams, rows: int) -> list[bytes]:
    width = rows * (2 + params.k // 8)
    return [records[i : i + width] for i in range(0, len(records), width)]


def tally(packed: PackedReports, rows: int = 64) -> Counter[tuple[int, bytes]]:
    found = Counter[tuple[int, bytes]]()
    for block in packed.blocks(rows):
        for bits, weight in zip(block.bits, block.weights, strict=True):
            found[block.cohort, bits.tobytes()] += int(weight)
    return found


def tally_records(records: bytes, params: RapporParams) -> Counter[tuple[int, bytes]]:
    pieces = chunks_of(records, params, 1)
    return Counter((int.from_bytes(x[:2], "little"), x[2:]) for x in pieces)


def by_bits(params: RapporParams) -> str:
    return f"{params.k} bits"


@pytest.mark.parametrize("params", SHAPES, ids=by_bits)
def test_every_report_is_there_as_often_as_it_came_whatever_the_chunks(params):
    records = some_records(params)
    packed = pack(chunks_of(records, params, 700), params)
    assert packed.total == 3_000
    assert packed.by_cohort.sum() == 3_000
    assert tally(packed) == tally_records(records, params)
    shuffled = chunks_of(records, params, 11)[::-1]
    np.testing.assert_array_equal(packed.bits, pack(shuffled, params).bits)


def test_equal_reports_are_kept_once():
    params = SHAPES[0]
    packed = pack([some_records(params)] * 10, params)
    assert packed.total == 30_000
    assert len(packed.bits) <= 3 * 256


def test_records_that_are_not_whole_are_refused():
    with pytest.raises(UndecodableError, match="multiple of 3 for k = 8"):
        pack([b"1234"], SHAPES[0])


def test_cohorts_that_the_parameters_do_not_have_are_refused():
    records = as_records(np.array([0, 5]), np.zeros((2, 1), dtype=np.uint8))
    with pytest.raises(UndecodableError, match="cohort 5: must be below m = 5"):
        pack([records], SHAPES[0])
