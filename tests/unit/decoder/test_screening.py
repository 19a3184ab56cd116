"""A screened list says of what is detected what the same list says in memory, however it is cut."""

import gzip
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.studies.cases import StringsCase, zipf
from factories import make_params
from hubbub.client import RapporParams
from hubbub.decoder import Correction
from hubbub.decoder.candidates import parts as cutting
from hubbub.decoder.candidates.files import read_list
from hubbub.decoder.engines import LocalEngine
from hubbub.decoder.screening import distinct as distinct_module
from hubbub.decoder.screening import search as search_module
from hubbub.decoder.screening import testing
from hubbub.decoder.screening.decoding import screen
from hubbub.decoder.screening.distinct import DistinctList
from hubbub.decoder.screening.hashing import Cohorts, hash_part
from hubbub.inference.counts import CohortCounts
from hubbub.inference.decoding import Decoding, decode
from hubbub.inference.errors import CandidateError
from hubbub.inference.scanning import indistinguishable

NUMBERS = ("share", "std_error", "low", "high", "p_value", "q_value", "constrained_share")
PLAIN = make_params(k=64, h=2, m=16)
FEW_BITS = make_params(k=16, h=2, m=3)
"""2.5 million sets of bits: of 30,000 strings some hundred set the same ones as another one."""
TWIN = "twin 3575199"
"""With these bits it can't be told from the string that is detected."""


def population(params: RapporParams, n: int) -> tuple[CohortCounts, list[str]]:
    """Return counts of 200,000 reports and n candidates, of which 20 are frequent."""
    case = StringsCase.made_up("screened", params, 200_000, zipf(20), 0, 20)
    run = case.collect_reports(3)[1]
    names = [f"https://example.com/{i}" for i in range(n - len(run.candidates))]
    places = np.linspace(0, len(names), len(run.candidates)).astype(int)
    for place, name in zip(places[::-1].tolist(), run.candidates[::-1], strict=True):
        names.insert(place, name)
    return run.counts, names


@pytest.fixture(scope="module", params=[PLAIN, FEW_BITS], ids=["plain", "few bits"])
def crowd(request) -> tuple[RapporParams, CohortCounts, list[str]]:
    counts, strings = population(request.param, 30_000)
    return request.param, counts, [*strings, TWIN]


@pytest.fixture(scope="module")
def of_all(crowd) -> Decoding:
    """Return the decoding of all strings in memory."""
    params, counts, strings = crowd
    return decode(counts, params, strings)


def as_lines(strings: list[str]) -> bytes:
    return "".join(f"{string}\n" for string in strings).encode()


def assert_same(found: Decoding, expected: Decoding) -> None:
    """Hold a screened list's decoding against one of all candidates."""
    of_all = expected.only(np.flatnonzero(expected.detected))
    assert list(found.candidates) == list(of_all.candidates)
    for name in NUMBERS:
        # What shares owe to their selection goes by the median error, known to a part of a step.
        rtol = 2e-6 if name == "constrained_share" else 1e-9
        np.testing.assert_allclose(getattr(found, name), getattr(of_all, name), rtol=rtol)
    np.testing.assert_array_equal(found.same_bits.rows, of_all.same_bits.rows)
    np.testing.assert_array_equal(found.same_bits.first, of_all.same_bits.first)
    summary, own = asdict(expected.summary), asdict(found.summary)
    assert own.keys() == summary.keys()
    for name, value in summary.items():
        if isinstance(value, float):
            # The median error is known to a part of a step.
            assert own[name] == pytest.approx(value, rel=2e-6, nan_ok=True), name
        else:
            assert own[name] == value, name
    known = expected.p_value[expected.firsts(~np.isnan(expected.share))]
    counted = np.histogram(known, bins=20, range=(0, 1))[0]
    assert found.p_value_counts is not None
    np.testing.assert_array_equal(found.p_value_counts, counted)


@pytest.mark.parametrize("correction", Correction)
def test_a_file_gives_the_same_as_in_memory(tmp_path, crowd, correction):
    params, counts, strings = crowd
    path = tmp_path / "list.txt"
    path.write_bytes(as_lines(strings))
    found = screen(counts, params, str(path), LocalEngine(), correction=correction)
    expected = decode(counts, params, read_list(str(path)).hashed(params), correction=correction)
    assert expected.summary.detected >= (1 if params is FEW_BITS else 5)
    assert (TWIN in found.decoding.candidates) == (params is FEW_BITS)
    assert_same(found.decoding, expected)
    assert found.repeats == 0
    assert list(found.candidates.strings) == list(found.decoding.candidates)


def test_parts_of_all_kinds_with_repeats_give_the_same(tmp_path, crowd, of_all, monkeypatch):
    """Small parts, blocks and ranges, strings repeated in a part and in others."""
    params, counts, strings = crowd
    monkeypatch.setattr(cutting, "_BYTES_A_PART", 50_000)
    monkeypatch.setattr(cutting, "_ROWS_A_PART", 3_000)
    monkeypatch.setattr(distinct_module, "BLOCK_ROWS", 4_999)
    monkeypatch.setattr(distinct_module, "_MOST_IN_RANGE", 4_000)
    monkeypatch.setattr(distinct_module, "_AT_ONCE", 1_001)
    first, second, third = strings[:11_000], strings[9_000:20_000], strings[20_000:]
    (tmp_path / "1.txt").write_bytes(as_lines(first + first[:500]))
    (tmp_path / "2.gz").write_bytes(gzip.compress(as_lines(second)))
    pq.write_table(pa.table({"string": third}), tmp_path / "3.parquet", row_group_size=1_000)
    found = screen(counts, params, str(tmp_path), LocalEngine(threads=2))
    assert_same(found.decoding, of_all)
    assert found.repeats == 2_500


def test_dask_gives_the_same_as_threads(tmp_path, dask, crowd, of_all):
    params, counts, strings = crowd
    (tmp_path / "1.txt").write_bytes(as_lines(strings[:20_000]))
    (tmp_path / "2.gz").write_bytes(gzip.compress(as_lines(strings[19_000:])))
    found = screen(counts, params, str(tmp_path), dask)
    assert_same(found.decoding, of_all)
    assert found.repeats == 1_000


def test_a_limit_that_leaves_out_too_much_is_raised(tmp_path, crowd, monkeypatch):
    """With this limit only what is beyond doubt would be returned besides what is near."""
    params, counts, strings = crowd
    path = tmp_path / "list.txt"
    path.write_bytes(as_lines(strings))
    limits: list[float] = []

    def noted(test: testing.ListTest, block: distinct_module.Block) -> testing.Tested:
        limits.append(test.log_limit)
        return testing.tested_of(test, block)

    monkeypatch.setattr(search_module, "tested_of", noted)
    monkeypatch.setattr(search_module, "_DETECTED", 1e-9)
    monkeypatch.setattr(search_module, "MAX_NEAR", 30)
    monkeypatch.setattr("hubbub.inference.regression.search.MAX_NEAR", 30)
    found = screen(counts, params, str(path), LocalEngine(threads=1))
    assert len(set(limits)) > 1
    assert_same(found.decoding, decode(counts, params, strings))


def test_a_short_list_goes_into_the_model_whole(tmp_path):
    counts, strings = population(PLAIN, 50)
    path = tmp_path / "list.txt"
    path.write_bytes(as_lines(strings))
    found = screen(counts, PLAIN, str(path), LocalEngine())
    assert_same(found.decoding, decode(counts, PLAIN, strings))
    assert not np.isnan(found.decoding.summary.unlisted_share)


def test_a_list_of_none_that_is_there_detects_nothing(tmp_path):
    counts, _ = population(PLAIN, 300)
    path = tmp_path / "list.txt"
    path.write_bytes(as_lines([f"nobody has {i}" for i in range(17_000)]))
    found = screen(counts, PLAIN, str(path), LocalEngine())
    assert list(found.decoding.candidates) == []
    assert found.decoding.summary.candidates == 17_000


def test_an_empty_list_and_a_missing_one_are_refused(tmp_path):
    counts, _ = population(PLAIN, 300)
    (tmp_path / "empty.txt").touch()
    with pytest.raises(CandidateError, match=r"empty\.txt: empty; expected one string per line"):
        screen(counts, PLAIN, str(tmp_path / "empty.txt"), LocalEngine())
    with pytest.raises(CandidateError, match=r"none\.gz: can't be read: No such file"):
        screen(counts, PLAIN, str(tmp_path / "none.gz"), LocalEngine())


@pytest.mark.parametrize("in_secret", [False, True], ids=["as usual", "size and time kept"])
def test_a_file_that_is_exchanged_while_it_is_read_is_refused(tmp_path, monkeypatch, *, in_secret):
    counts, strings = population(PLAIN, 300)
    path = tmp_path / "list.txt"
    path.write_bytes(as_lines(strings))
    status = path.stat()
    run = search_module.ListSearch.run

    def exchange(search: search_module.ListSearch) -> search_module.Screened:
        path.write_bytes(as_lines(strings[::-1]))
        if in_secret:
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        return run(search)

    monkeypatch.setattr(search_module.ListSearch, "run", exchange)
    with pytest.raises(CandidateError, match=r"list\.txt: was changed while it was read"):
        screen(counts, PLAIN, str(path), LocalEngine())


_TINY = RapporParams(k=8, h=2, m=2, f=0.5, p=0.25, q=0.75)


@contextmanager
def small_pieces() -> Iterator[None]:
    """Let some bytes be much; slow for what isn't tiny, so no fixture that others see."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distinct_module, "_MOST_IN_RANGE", 4)
        patch.setattr(distinct_module, "_AT_ONCE", 3)
        patch.setattr(distinct_module, "BLOCK_ROWS", 2)
        patch.setattr(distinct_module, "_MOST_SINGLY", 3)
        yield


@given(
    st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=20), min_size=1, max_size=5),
    st.sampled_from([[True, True], [True, False], [False, False]]),
)
def test_what_is_equal_is_found_however_the_list_is_cut(files, has_reports):
    """28 or 784 sets of bits, or one: of a list of dozens many are the same."""
    cohorts = Cohorts(_TINY, np.array(has_reports))
    with (
        small_pieces(),
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as work,
    ):
        for number, strings in enumerate(files):
            Path(folder, f"{number}.txt").write_bytes(as_lines([f"s{i}" for i in strings]))
        paths = sorted(map(str, Path(folder).iterdir()))
        parts = [part for path in paths for part in cutting.cut(path)]
        found = DistinctList(Path(work), cohorts)
        found.fill(parts, LocalEngine().map(hash_part, cohorts, parts))
        listed = read_list(folder)
        same = indistinguishable(listed.hashed(_TINY), cohorts.has_reports)
        firsts = same.others(len(listed))
        assert found.given - found.strings == listed.repeats
        assert found.strings == len(listed)
        assert found.indistinguishable == same.candidates
        np.testing.assert_array_equal(found.words(np.arange(found.sets)), listed.words[firsts])
        blocks = list(found.blocks)
        np.testing.assert_array_equal(
            np.concatenate([block.words for block in blocks]), listed.words[firsts]
        )
        rows, owners = found.strings_of(np.arange(found.sets))
        np.testing.assert_array_equal(found.row_words(rows), listed.words)
        first = np.arange(len(listed))
        first[same.rows] = same.first
        np.testing.assert_array_equal(firsts[owners], first)
