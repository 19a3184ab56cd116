"""Content-Encodings are undone within bounds, and what isn't encoded as it says is refused."""

import contextlib
import gzip
import zlib
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from hubbub.collector import RefusalError, check_encoding, decompress

_BODY = b'{"batch_id": "..."}' * 10


def _undo(body: bytes, header: str, most: int) -> bytes:
    encoding = check_encoding(header)
    return decompress(body, encoding, most) if encoding else body


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", " gzip "])
def test_gzip_is_undone(encoding):
    assert _undo(gzip.compress(_BODY), encoding, 1000) == _BODY


def test_deflate_is_undone_with_and_without_its_frame():
    assert _undo(zlib.compress(_BODY), "deflate", 1000) == _BODY
    bare = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    assert _undo(bare.compress(_BODY) + bare.flush(), "deflate", 1000) == _BODY


@pytest.mark.parametrize("cuts", [(5,), (0, 5, 5, 190), tuple(range(1, 64))])
def test_several_members_of_gzip_say_what_all_of_them_say(cuts):
    pieces = [_BODY[start:end] for start, end in pairwise((0, *cuts, len(_BODY)))]
    body = b"".join(gzip.compress(piece) for piece in pieces)
    assert _undo(body, "gzip", len(_BODY)) == _BODY
    with pytest.raises(RefusalError, match=f"at most {len(_BODY) - 1} bytes"):
        _undo(body, "gzip", len(_BODY) - 1)


def test_members_without_number_are_refused_before_they_cost_much():
    empty = gzip.compress(b"")
    assert _undo(empty * 64, "gzip", 1000) == b""
    with pytest.raises(RefusalError, match="not gzip") as caught:
        _undo(empty * 50_000, "gzip", 1000)
    assert caught.value.status == 400


@pytest.mark.parametrize("encoding", ["", "identity"])
def test_body_without_encoding_stays_as_it_is(encoding):
    assert _undo(_BODY, encoding, 1000) == _BODY


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "x" * 100])
def test_other_encoding_is_answered_415_with_the_right_ones(encoding):
    with pytest.raises(RefusalError, match="must be absent, or one of: gzip, deflate") as caught:
        _undo(_BODY, encoding, 1000)
    assert caught.value.status == 415


def test_result_may_be_as_large_as_is_allowed_and_no_larger():
    assert _undo(gzip.compress(_BODY), "gzip", len(_BODY)) == _BODY
    with pytest.raises(RefusalError, match=f"at most {len(_BODY) - 1} bytes") as caught:
        _undo(gzip.compress(_BODY), "gzip", len(_BODY) - 1)
    assert caught.value.status == 413


@pytest.mark.parametrize(
    "body",
    [
        b"",
        _BODY,
        gzip.compress(_BODY)[:-1],
        gzip.compress(_BODY)[:-8] + bytes(8),
        gzip.compress(_BODY) + b"x",
    ],
    ids=["empty", "plain", "cut off", "wrong checksum", "too long"],
)
def test_what_is_not_gzip_is_answered_400(body):
    with pytest.raises(RefusalError, match="not gzip") as caught:
        _undo(body, "gzip", 1000)
    assert caught.value.status == 400


@given(body=st.binary(max_size=200), encoding=st.sampled_from(["gzip", "deflate"]))
def test_any_bytes_are_inflated_or_refused(body, encoding):
    with contextlib.suppress(RefusalError):
        assert len(_undo(body, encoding, 1000)) <= 1000
