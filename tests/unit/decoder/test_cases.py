"""Small files that other systems' readers took wrongly, from public bug reports."""

import pytest

from hubbub.decoder import decode_rappor

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


def test_strings_with_the_same_bits_are_one_group(decoded):
    """Elsewhere both were detected at the same count, as if they were two strings."""
    result = decoded(map=MAP + "twin,3,5,10,11\n")
    assert list(result["group"]) == ["a", "", "", "", "a"]
    findings = {each.code: each for each in result.findings}
    assert findings["detected"].value == 2
    assert findings["indistinguishable"].text.startswith("2 candidates set the same bits")
    assert "a (or twin)" in repr(result)
    assert result["refit"][4] == 0.0
