"""google/rappor's map.csv: positions to the bit, strings untouched, and what is refused."""

import gzip
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from hubbub.decoder import CohortCounts, decode
from hubbub.inference import CandidateError, DecodingParams, InputError, make_design, mapped
from hubbub.rappor import is_uneven, read_counts, read_map
from rappor_clients import Params, bloom_positions, map_row, sum_bits, write_files, write_reports_of

_PARAMS = DecodingParams(k=10, h=2, m=3, f=0.5, p=0.25, q=0.75)
_TRICKY = [
    "007",
    "7",
    "NA",
    "",
    " x ",
    "x",
    "a,b",
    'say "no"',
    "two\nlines",
    "\r\n",
    "\ufeff",
    "日本",
]


def given_text(folder: Path, text: str | bytes) -> Path:
    path = folder / "map.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_positions_count_from_one_and_go_on_from_cohort_to_cohort(tmp_path):
    found = read_map(given_text(tmp_path, "a,1,10,11,20,30,21\nb,2,2,12,12,29,28\n"), _PARAMS)
    assert list(found.candidates.strings) == ["a", "b"]
    assert found.candidates.positions(slice(None)).tolist() == [
        [[0, 9], [0, 9], [9, 0]],
        [[1, 1], [1, 1], [8, 7]],
    ]
    assert found.repeats == 0


def test_simulated_clients_hash_and_sum_as_published():
    """Their tests' own vectors: a map of candidates, and two reports summed up."""
    params = Params(k=16, h=2, m=4, p=0.5, q=0.75, f=0.5)
    assert map_row("apple", params) == ["apple", 5, 1, 26, 26, 38, 34, 63, 62]
    sent = [(1, "0000111100001111"), (1, "0000000000111100")]
    sums = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    ones = [2, 1, 1, 2, 2, 1, 1, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0]
    assert sum_bits(sent, params._replace(m=2)) == [sums, ones]


def test_column_j_of_counts_is_position_j_of_the_map(tmp_path):
    """Nearly noiseless reports of one string: its bits, and no others, are nearly always set."""
    params = Params(k=21, h=2, m=4, p=0.001, q=0.999, f=0.0)
    files = write_reports_of(tmp_path, params, {"only": 400}, ["only"])
    ours = DecodingParams(params.k, params.h, params.m, params.f, params.p, params.q)
    counts = read_counts(files.counts, ours)
    candidates = read_map(files.map, ours).candidates
    row = make_design(candidates.positions(slice(None)), ours).matrix.toarray().reshape(4, 21)
    assert np.array_equal(counts.bits > counts.reports[:, None] / 2, row > 0)
    assert not np.array_equal(row, row[:, ::-1])


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8), min_size=1, unique=True
    ),
    st.sampled_from([Params(8, 1, 1, 0.5, 0.75, 0.5), Params(13, 3, 2, 0.5, 0.75, 0.5)]),
)
def test_any_strings_come_back_as_they_were(strings, params):
    assume(not strings[0].startswith("\ufeff"))  # at the file's start it is a byte order mark
    with tempfile.TemporaryDirectory() as folder:
        rows = [map_row(string, params) for string in strings]
        files = write_files(Path(folder), params, [], rows)
        ours = DecodingParams(params.k, params.h, params.m, params.f, params.p, params.q)
        found = read_map(files.map, ours).candidates
    assert list(found.strings) == strings
    assert found.positions(slice(None)).tolist() == [
        [bloom_positions(string, cohort, params) for cohort in range(params.m)]
        for string in strings
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["map.csv", "map.csv.gz"])
def test_strings_are_opaque(tmp_path, end, name):
    quoted = ['"' + string.replace('"', '""') + '"' for string in _TRICKY]
    data = "".join(f"{cell},1,1,11,11,21,21{end}" for cell in quoted).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert read_map(path, _PARAMS).candidates.strings[:] == _TRICKY


def test_blanks_and_quotes_count_where_nothing_is_quoted(tmp_path):
    path = given_text(tmp_path, ' a ,1,1,11,11,21,21\n5" disk,1,1,11,11,21,21\n')
    assert list(read_map(path, _PARAMS).candidates.strings) == [" a ", '5" disk']


def test_equal_rows_count_once(tmp_path):
    path = given_text(tmp_path, "a,1,2,11,12,21,22\nb,1,2,11,12,21,22\na,1,2,11,12,21,22\n")
    found = read_map(path, _PARAMS)
    assert list(found.candidates.strings) == ["a", "b"]
    assert found.repeats == 1


def test_bit_that_hashes_share_may_be_named_once(tmp_path):
    found = read_map(given_text(tmp_path, '"a",4,11,20,21,,\n"b",1,2,12,30,22,\n'), _PARAMS)
    assert found.candidates.positions(slice(None)).tolist() == [
        [[3, 3], [0, 9], [0, 0]],
        [[0, 1], [1, 1], [9, 1]],
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "empty; expected one row per candidate: the string, then h m = 2 * 3 positions"),
        ("\n\n", "empty; expected one row per candidate"),
        ("a,1,10,11,20,30\n", "line 1: 6 columns; expected 7 (the string, then h m"),
        ("a\n", "line 1: 1 columns; expected 7"),
        ("a,1,10,11,20,30,21\nb,1,10,21,20,30,21\n",
         "line 2, column 4: 21; expected a position of cohort 1: 11 to 20"),
        ("a,0,10,11,20,30,21\n", "line 1, column 2: 0; expected a position of cohort 0: 1 to 10"),
        ("a,1,10,11,20,30,31\n", "line 1, column 7: 31; expected a position of cohort 2: 21 to 30"),
        ("a,1,10,9999999999,20,30,21\n", "line 1, column 4: 9999999999; expected a position of"),
        ('"a\n\nb",1,10,11,20,30,20\n', "line 3, column 7: 20; expected a position of cohort 2"),
        ("string,h11,h12,h21,h22,h31,h32\n", "line 1, column 2: 'h11'; expected an integer"),
        ("a,1,-3,11,20,30,21\n", "line 1, column 3: '-3'; expected an integer of at least 0"),
        ("a,1,2,12,,,\n", "line 1: empty cells, and 0 positions of cohort 2; expected 2"),
        ("a,1,2,3,12,22,\n", "line 1: empty cells, and 3 positions of cohort 0; expected 2"),
        ("a,1,2,11,12,21,22\na,1,3,11,12,21,22\n",
         "line 2, column 1: 'a'; expected the positions that it has on line 1"),
        (b"a,1,2,11,12,21,22\ncaf\xe9,1,2,11,12,21,22\n", "line 2: byte 4 is 0xe9; expected UTF-8"),
        ('"a\\"b",1,2,11,12,21,22\n', "line 1: ',' expected after '\"'; expected comma-separated"),
    ],
)  # fmt: skip
def test_other_maps_are_refused(tmp_path, text, complaint):
    path = given_text(tmp_path, text)
    with pytest.raises(InputError) as refusal:
        read_map(path, _PARAMS)
    assert str(refusal.value).startswith(f"{path}: {complaint}")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a,1,16,17,32,33,48\nb,2,3,20,21,40,41\n", "k = 16"),
        ("a,1,8,9,16,17,24\n", "k = 8"),
        ("a,3,12,20,20,40,41\n", "a k of 14 to 19"),
        ("a,3,12,20,,40,41\nb,1,16,17,32,33,48\n", "k = 16"),
    ],
)
def test_map_for_another_k_names_both(tmp_path, text, found):
    path = given_text(tmp_path, text)
    with pytest.raises(InputError) as refusal:
        read_map(path, _PARAMS, "params.csv")
    assert str(refusal.value) == f"{path}: its positions are for {found}; params.csv says k = 10"


def test_map_of_one_cohort_gives_the_least_k(tmp_path):
    path = given_text(tmp_path, "a,3,12\n")
    with pytest.raises(InputError, match=r"a k of at least 12; the parameters says k = 10"):
        read_map(path, _PARAMS._replace(m=1))


def test_positions_for_other_parameters_are_refused():
    with pytest.raises(
        CandidateError, match=r"positions of shape \(2, 3, 1\): must be \(2, 3, 2\)"
    ):
        mapped(("a", "b"), np.zeros((2, 3, 1), dtype=np.int16), _PARAMS)
    fewer = DecodingParams(k=10, h=1, m=3, f=0.5, p=0.25, q=0.75)
    listed = mapped(("a", "b"), np.zeros((2, 3, 1), dtype=np.int16), fewer)
    counts = CohortCounts(np.full(3, 10), np.ones((3, 10), dtype=np.int64))
    with pytest.raises(CandidateError, match=r"= \(10, 1, 3\): must be for \(10, 2, 3\)"):
        decode(counts, _PARAMS, listed)


@pytest.mark.parametrize(("k", "uneven"), [(128, False), (200, True)])
def test_hash_that_favours_some_bits_is_noticed(k, uneven):
    """A byte modulo k, of 300 strings; P(false alarm) < 1e-6 (chi-square)."""
    params = DecodingParams(k=k, h=2, m=8, f=0.5, p=0.25, q=0.75)
    theirs = Params(k, params.h, params.m, params.p, params.q, params.f)
    rows = [[bloom_positions(f"w{i}", c, theirs) for c in range(params.m)] for i in range(300)]
    assert is_uneven(np.array(rows, dtype=np.int16), params) is uneven
