"""Counting piece by piece gives what counting at once would, whatever the chunks are."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from factories import make_metric, make_params
from hubbub.client import RapporParams
from hubbub.decoder import CohortCounts, count_records, reports as module
from hubbub.decoder.reports import Counting, load_file
from hubbub.inference import AnomalyDetector, UndecodableError
from hubbub.protocol import Records, columns, keep_counts, record_width
from hubbub.storage import ReportFileError, write_records
from parameters import examples

PARAMS = make_params(k=24, h=2, m=5)
WIDTH = record_width(PARAMS.k)


def some_records(count: int, params: RapporParams = PARAMS, seed: int = 3) -> bytes:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 256, (count, record_width(params.k)), dtype=np.uint8)
    rows[:, 0], rows[:, 1] = rng.integers(params.m, size=count), 0
    return rows.tobytes()


def assert_equal(counts: CohortCounts, expected: CohortCounts) -> None:
    np.testing.assert_array_equal(counts.reports, expected.reports)
    np.testing.assert_array_equal(counts.bits, expected.bits)


@examples(50)
@given(st.lists(st.integers(0, 500), max_size=20), st.sampled_from([20 * WIDTH, 1000, 2**20]))
def test_counts_do_not_depend_on_chunks_and_progress_never_falls(sizes, piece):
    records = some_records(sum(sizes))
    cuts, done = WIDTH * np.cumsum([0, *sizes]), list[int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PIECE_BYTES", piece)
        counting = Counting(PARAMS, progress=done.append)
        for start, stop in pairwise(cuts.tolist()):
            counting.add(records[start:stop])
        assert_equal(counting.result(), count_records(records, PARAMS))
    assert done == sorted(done)
    assert done[-1] == sum(sizes)


@pytest.mark.parametrize("before", [0, 40])
@pytest.mark.parametrize("after", [0, 40])
def test_bad_record_is_reported(monkeypatch, before, after):
    monkeypatch.setattr(module, "_PIECE_BYTES", 10 * WIDTH)
    bad = PARAMS.m.to_bytes(2, "little") + bytes(WIDTH - 2)
    chunks = [*before * [some_records(10)], bad, *after * [some_records(10)]]
    with pytest.raises(UndecodableError, match="record with cohort 5: must be below m = 5"):
        counted(chunks)


def counted(chunks: list[bytes]) -> CohortCounts:
    counting = Counting(PARAMS)
    for chunk in chunks:
        counting.add(chunk)
    return counting.result()


def test_file_is_counted_and_looked_at(tmp_path):
    """100,000 reports in uneven row groups."""
    metric = make_metric(params=make_params(k=40, h=2, m=9))
    records = some_records(100_000, metric.params)
    width = record_width(metric.params.k)
    cuts = [0, 1, 30_000, 30_001, 99_990, 100_000]
    blocks = (Records(width, records[a * width : b * width]) for a, b in pairwise(cuts))
    write_records(tmp_path / "reports.parquet", width, blocks)
    told: list[tuple[int, int]] = []
    detector = AnomalyDetector(metric)
    found = load_file(
        tmp_path / "reports.parquet", metric, detector=detector,
        progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert_equal(found.counts, count_records(records, metric.params))
    assert told[-1] == (100_000, 100_000)
    at_once = AnomalyDetector(metric)
    at_once.look(keep_counts(records, metric.params), columns(Records(width, records)))
    assert detector.result() == at_once.result()


def test_broken_file_is_reported_by_its_name(tmp_path):
    path = tmp_path / "reports.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(ReportFileError, match=r"reports\.parquet"):
        load_file(path, make_metric())
