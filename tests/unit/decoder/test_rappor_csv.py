"""google/rappor's params.csv and counts.csv: their dialects, their order, and what is refused."""

import gzip
from pathlib import Path

import pytest

from hubbub.inference import DecodingParams, InputError
from hubbub.rappor import read_counts, read_params

_SMALL = DecodingParams(k=3, h=1, m=2, f=0.5, p=0.25, q=0.75)
_COUNTS = "10,1,2,3\r\n7,0,7,5\r\n"


def write(folder: Path, content: str | bytes, name: str = "file.csv") -> Path:
    path = folder / name
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize(
    "text",
    [
        "k,h,m,p,q,f\n128,2,8,0.5,0.75,0.25\n",
        "k,h,m,p,q,f\r\n128,2,8,0.5,0.75,0.25\r\n",
        "k, h, m, p, q, f\n128, 2, 8, 0.5, 0.75, 0.25",
        '"k","h","m","p","q","f"\n128,2,8,.5,7.5e-01,0.25\n\n',
        '\ufeffk,h,m,p,q,f\n"128","2","8","0.5","0.75","0.25"\n',
    ],
)
@pytest.mark.parametrize("name", ["params.csv", "params.csv.gz"])
def test_parameters_are_read_however_they_are_quoted(tmp_path, text, name):
    read = read_params(write(tmp_path, text, name))
    assert read == DecodingParams(k=128, h=2, m=8, f=0.25, p=0.5, q=0.75)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "empty; expected the header k,h,m,p,q,f and one row"),
        ("k,h,m,f,p,q\n8,1,1,0,.5,.75\n", "line 1: 'k,h,m,f,p,q'; expected the header k,h,m,p,q,f"),
        ("128,2,8,.5,.75,.25\n", "line 1: '128,2,8,.5,.75,.25'; expected the header"),
        ("k,h,m,p,q,f\n", "0 rows below the header"),
        ("k,h,m,p,q,f\n8,1,1,.5,.75,0\n8,1,1,.5,.75,0\n", "2 rows below the header"),
        ("k,h,m,p,q,f\n8,1,1,.5,.75\n", "line 2: 5 columns; expected 6 (k,h,m,p,q,f)"),
        ("k,h,m,p,q,f\n8,x,1,.5,.75,0\n", "line 2, column 2: 'x'; expected an integer"),
        ("k,h,m,p,q,f\n8.5,1,1,.5,.75,0\n", "line 2, column 1: '8.5'; expected an integer"),
        ("k,h,m,p,q,f\n8,1,1,.5,1.75,0\n", "line 2, column 5: q = '1.75'; expected a number"),
        ("k,h,m,p,q,f\n8,1,1,.5,nan,0\n", "line 2, column 5: q = 'nan'; expected a number"),
        ("k,h,m,p,q,f\n8,1,1,.5,.5,0\n", "line 2: p = q = 0.5: must differ"),
        ("k,h,m,p,q,f\n8,1,1,0,1,0\n", "line 2: f = 0.0, p = 0.0, q = 1.0: some reports would"),
        ("k,h,m,p,q,f\n1,1,1,.5,.75,0\n", "line 2: k = 1: must be an integer between 2 and 4096"),
        ("k,h,m,p,q,f\n8,17,1,.5,.75,0\n", "line 2: h = 17: must be an integer between 1 and 16"),
        ("k,h,m,p,q,f\n8,1,0,.5,.75,0\n", "line 2: m = 0: must be an integer between 1 and 65536"),
        (b"k,h,m,p,q,f\n8,1,1,\xff,.75,0\n", "line 2: byte 7 is 0xff; expected UTF-8"),
    ],
)  # fmt: skip
def test_other_parameters_are_refused(tmp_path, text, complaint):
    path = write(tmp_path, text)
    with pytest.raises(InputError) as refusal:
        read_params(path)
    assert str(refusal.value).startswith(f"{path}: {complaint}")


@pytest.mark.parametrize("name", ["counts.csv", "counts.csv.gz"])
def test_column_after_the_reports_is_bit_0(tmp_path, name):
    counts = read_counts(write(tmp_path, _COUNTS, name), _SMALL)
    assert counts.reports.tolist() == [10, 7]
    assert counts.bits.tolist() == [[1, 2, 3], [0, 7, 5]]


def test_round_numbers_are_read_as_r_writes_them(tmp_path):
    path = write(tmp_path, '2e+05,1e+05, 300000.0e-1,"7"\n12345678901,0,1,2\n')
    counts = read_counts(path, _SMALL)
    assert counts.reports.tolist() == [200_000, 12_345_678_901]
    assert counts.bits.tolist() == [[100_000, 30_000, 7], [0, 1, 2]]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "0 rows; expected one for each of m = 2 cohorts"),
        ("10,1,2,3\n", "1 rows; expected one for each of m = 2 cohorts"),
        (2 * _COUNTS, "4 rows; expected one for each of m = 2 cohorts"),
        ("10,1,2\n7,0,7\n", "line 1: 3 columns; expected 4 (the number of"),
        ("10,1,2,3\n7,0,7,5,6\n", "line 2: 5 columns; expected 4"),
        ("10,1,2,3\n7,0,8,5\n", "line 2, column 3: 8; expected at most the cohort's 7 reports"),
        ("10,1,-2,3\n7,0,7,5\n", "line 1, column 3: '-2'; expected an integer of at least 0"),
        ("10,1,2.5,3\n7,0,7,5\n", "line 1, column 3: '2.5'; expected an integer"),
        ("10,1,,3\n7,0,7,5\n", "line 1, column 3: ''; expected an integer"),
        ("10,1,NA,3\n7,0,7,5\n", "line 1, column 3: 'NA'; expected an integer"),
        ("1_0,1,2,3\n7,0,7,5\n", "line 1, column 1: '1_0'; expected an integer"),
        ("1e400,1,2,3\n7,0,7,5\n", "line 1, column 1: '1e400'; expected an integer"),
        ('"10,1,2,3\n7,0,7,5\n', "line 2: unexpected end of data; expected comma-separated values"),
        (b"\xff\xfe1\n", "line 1: byte 1 is 0xff; expected UTF-8"),
    ],
)  # fmt: skip
def test_other_counts_are_refused(tmp_path, text, complaint):
    path = write(tmp_path, text)
    with pytest.raises(InputError) as refusal:
        read_counts(path, _SMALL)
    assert str(refusal.value).startswith(f"{path}: {complaint}")


@pytest.mark.parametrize("damage", [slice(0, 12), slice(5, None)])
def test_broken_gzip_is_named(tmp_path, damage):
    path = tmp_path / "counts.csv.gz"
    path.write_bytes(gzip.compress(_COUNTS.encode())[damage])
    with pytest.raises(InputError, match="expected gzip"):
        read_counts(path, _SMALL)
