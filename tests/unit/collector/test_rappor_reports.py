"""google/rappor's CSVs into records: their order of bits, their dialects, and what is refused."""

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from factories import make_params
from hubbub.client import RapporParams
from hubbub.storage import ReportFileError, read_report_csv

_PARAMS = make_params(k=16, h=2, m=64)
_HEADER = "client,cohort,bloom,prr,irr"


def row(cohort: int | str = 3, irr: str = "0" * 16, client: str = "c1") -> str:
    return f"{client},{cohort},{'0' * 16},{'1' * 16},{irr}"


def write(path: Path, *rows: str, header: str = _HEADER, end: str = "\n") -> Path:
    text = end.join([header, *rows, ""])
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def records_of(path: Path, params: RapporParams = _PARAMS, column: str = "irr") -> list[bytes]:
    width = 2 + params.k // 8
    data = b"".join(records.data for records in read_report_csv(path, params, column))
    return [data[i : i + width] for i in range(0, len(data), width)]


@pytest.fixture
def report_csv(tmp_path) -> Path:
    return tmp_path / "case_reports.csv"


def test_first_character_is_the_highest_bit(report_csv):
    write(
        report_csv,
        row(0, "0000000000000001"),
        row(1, "1000000000000000"),
        row(63, "0000000100000010"),
    )
    assert records_of(report_csv) == [
        b"\x00\x00" + b"\x01\x00",
        b"\x01\x00" + b"\x00\x80",
        b"\x3f\x00" + b"\x02\x01",
    ]


@given(st.data(), st.sampled_from([8, 24, 128, 4096]), st.sampled_from([1, 300, 1024]))
def test_bit_j_of_a_record_is_character_k_minus_1_minus_j(data, k, m):
    params = make_params(k=k, h=1, m=m)
    report = st.tuples(st.integers(0, m - 1), st.text("01", min_size=k, max_size=k))
    reports = data.draw(st.lists(report, max_size=5))
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder, "r.csv"), *(row(cohort, bits) for cohort, bits in reports))
        found = records_of(path, params)
    assert [int.from_bytes(record[:2], "little") for record in found] == [c for c, _ in reports]
    for record, (_, bits) in zip(found, reports, strict=True):
        for j in range(k):
            assert record[2 + j // 8] >> j % 8 & 1 == int(bits[k - 1 - j])


def test_order_and_number_of_rows_survive_many_pieces(report_csv):
    write(report_csv, *(row(i % 64, f"{i:016b}") for i in range(60_000)))
    found = records_of(report_csv)
    assert [int.from_bytes(record[2:], "little") for record in found] == list(range(60_000))


def test_only_the_cohort_and_the_chosen_column_matter(tmp_path):
    bits = "0110000000000001"
    plain = write(tmp_path / "a.csv", f"3,{bits}", header="cohort,irr")
    other = write(
        tmp_path / "b.csv", f"{bits},x,someone,3,zzz", header="domain,prr,client,cohort,irr"
    )
    assert records_of(plain) == records_of(other, column="domain")


@pytest.mark.parametrize(
    "written",
    [
        pytest.param({"end": "\r\n"}, id="windows line ends"),
        pytest.param({"header": "\ufeff" + _HEADER}, id="byte order mark"),
        pytest.param({"header": "client, cohort, bloom, prr, irr"}, id="blanks after commas"),
        pytest.param({"header": '"client","cohort","bloom","prr","irr"'}, id="quoted header"),
    ],
)
def test_dialects_are_read_alike(tmp_path, written):
    rows = (row(5), "", row(6, "1" * 16))
    plain, other = tmp_path / "plain.csv", tmp_path / "other.csv"
    assert records_of(write(plain, *rows)) == records_of(write(other, *rows, **written))
    assert len(records_of(plain)) == 2


def test_client_names_that_are_no_utf_8_are_of_no_interest(report_csv):
    report_csv.write_bytes(f"{_HEADER}\n".encode() + b"caf\xe9" + row(client="").encode())
    assert len(records_of(report_csv)) == 1


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row(64), "line 3, column cohort: '64'; expected 0 to 63 (m = 64)"),
        (row(-1), "line 3, column cohort: '-1'; expected 0 to 63 (m = 64)"),
        (row("1.0"), "line 3, column cohort: '1.0'; expected 0 to 63"),
        (row("٣"), "line 3, column cohort: '٣'; expected 0 to 63"),
        (row(""), "line 3, column cohort: ''; expected 0 to 63"),
        (row(irr="0" * 8), "line 3, column irr: 8 characters; expected k = 16 characters"),
        (row(irr="0" * 15 + "2"), "line 3, column irr: holds '2'; expected k = 16 characters"),
        (row(irr="0b" + "1" * 14), "line 3, column irr: holds 'b'; expected k = 16 characters"),
        (row(irr="1_" + "1" * 14), "line 3, column irr: holds '_'; expected k = 16 characters"),
        (row(irr=""), "line 3, column irr: 0 characters"),
        (row() + ",0", "line 3, 6 fields; expected 5 as in the header"),
        ("c1,3", "line 3, 2 fields; expected 5 as in the header"),
    ],
)
def test_bad_row_is_named_with_what_was_expected(report_csv, bad, message):
    write(report_csv, row(), bad, row())
    with pytest.raises(ReportFileError) as refused:
        records_of(report_csv)
    assert str(refused.value).startswith(f"{report_csv}: {message}")


@pytest.mark.parametrize("k", [1, 20, 100])
def test_reports_whose_bits_fill_no_bytes_are_refused(report_csv, k):
    write(report_csv, row(irr="1" * k))
    with pytest.raises(ReportFileError, match="no multiple of 8 can't be imported"):
        records_of(report_csv)


@pytest.mark.parametrize(
    ("header", "column"),
    [("client,cohort,value", "irr"), ("client,bloom,irr", "cohort"), ("irr,cohort,irr", "irr")],
)
def test_header_without_exactly_one_of_a_column_is_refused(report_csv, header, column):
    write(report_csv, header=header)
    with pytest.raises(
        ReportFileError, match=f"line 1: expected .* one column '{column}'.*{header}"
    ):
        records_of(report_csv)


def test_empty_file_is_refused_and_one_without_rows_is_not(tmp_path):
    empty = tmp_path / "empty.csv"
    empty.touch()
    with pytest.raises(ReportFileError, match="expected a header"):
        records_of(empty)
    assert records_of(write(tmp_path / "none.csv")) == []


@pytest.mark.parametrize("damage", ["cut", "not packed", "garbled"])
def test_broken_gzip_is_refused(tmp_path, damage):
    path = write(tmp_path / "r.csv.gz", *(row(i) for i in range(64)))
    packed = path.read_bytes()
    broken = {"cut": packed[:-20], "not packed": b"cohort,irr\n", "garbled": packed[:30] * 3}
    path.write_bytes(broken[damage])
    with pytest.raises(ReportFileError, match=r"r\.csv\.gz: .*expected gzip"):
        records_of(path)
