"""Small files that other systems' readers took wrongly, from public bug reports."""

import pytest

from hubbub.decoder import decode_rappor
from hubbub.protocol import HubbubError

PARAMS = "k,h,m,p,q,f\n8,2,2,0.25,0.75,0\n"
COUNTS = (
    "10000,2497,4481,5519,4489,5517,2485,2488,2558\r\n"
    "10000,2513,5499,5576,4486,2545,2513,3538,3495\r\n"
)
MAP = 'a,3,5,10,11\r\n"b,c",2,4,16,12\r\n"say ""hi""",7,8,12,9\r\nNA,8,1,15,12\r\n'
STRINGS = ["a", "b,c", 'say "hi"', "NA"]
MARK = "\ufeff"


@pytest.fixture
def decoded(tmp_path):
    def decode(params=PARAMS, counts=COUNTS, map=MAP):  # noqa: A002 - as `decode_rappor`
        files = {"params": params, "counts": counts, "map": map}
        for name, text in files.items():
            (tmp_path / f"{name}.csv").write_bytes(text.encode())
        return decode_rappor(**{name: tmp_path / f"{name}.csv" for name in files})

    return decode


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"map": MARK + MAP},
        {"map": MAP.replace("\r\n", "\n")},
        {"map": MAP.removesuffix("\r\n")},
        {"counts": COUNTS.replace("2497", "2497.0")},
        {"params": MARK + PARAMS},
        {"params": PARAMS.replace(",", ", ")},
    ],
)
def test_spelling_makes_no_difference(decoded, files):
    result = decoded(**files)
    assert list(result["string"]) == STRINGS
    assert list(result["detected"]) == [True, True, False, False]
    assert result["count"].round().tolist() == [11947, 6385, -379, 1222]


@pytest.mark.parametrize(
    ("line", "string"),
    [
        ('"",1,4,9,10', ""),
        ('"x\ny",1,4,9,10', "x\ny"),
        ('x"y,1,4,9,10', 'x"y'),
        ("coll,3,3,10,11", "coll"),
    ],
)
def test_a_string_is_what_its_cell_holds(decoded, line, string):
    result = decoded(map=MAP + line + "\n")
    assert list(result["string"]) == [*STRINGS, string]
    assert list(result["detected"]) == [True, True, False, False, False]


def test_strings_with_the_same_bits_are_one_group(decoded):
    """Elsewhere both were detected at the same count, as if they were two strings."""
    result = decoded(map=MAP + "twin,3,5,10,11\n")
    assert list(result["group"]) == ["a", "", "", "", "a"]
    findings = {each.code: each for each in result.findings}
    assert findings["detected"].value == 2
    assert findings["indistinguishable"].text.startswith("2 candidates set the same bits")
    assert "a (or twin)" in repr(result)
    assert result["refit"][4] == 0.0


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"map": MAP + "z,1,4,1,4\n"}, "line 5, column 4: 1; expected a position of cohort 1"),
        ({"map": MAP + "a,1,5,10,12\n"}, "line 5, column 1: 'a'; expected the positions that it"),
        ({"counts": COUNTS * 2}, "4 rows; expected one for each of m = 2 cohorts"),
        ({"counts": "n,b1,b2,b3,b4,b5,b6,b7,b8\n" + COUNTS}, "line 1, column 1: 'n'; expected an"),
        ({"counts": COUNTS.replace("2497", "nan")}, "line 1, column 2: 'nan'; expected an integer"),
        ({"counts": COUNTS.replace("2497", "20000")}, "expected at most the cohort's 10000"),
        ({"counts": "0,0,0,0,0,0,0,0,0\n" * 2}, "0 reports"),
        ({"params": "h,k,m,p,q,f\n2,8,2,0.25,0.75,0\n"}, "expected the header k,h,m,p,q,f"),
    ],
)
def test_what_cannot_be_right_is_refused_by_its_place(decoded, files, message):
    with pytest.raises(HubbubError, match=message):
        decoded(**files)
