"""The encoder and its hash in structure: what depends on what. Frequencies are in statistical."""

import unicodedata

import pytest
from hypothesis import given, strategies as st

from factories import make_metric, make_params, make_secret, report_bits, seeded_stream
from hubbub.client import Encoder, EncodingError, StateError
from hubbub.protocol import MAX_VALUE_BYTES, bit_positions, bloom_bits, canonical_bytes

BITS = bloom_bits("example.com", 3, make_params())


def test_without_permanent_noise_the_permanent_response_is_the_filter():
    encoder = Encoder(make_metric(params=make_params(f=0.0)), make_secret())
    assert encoder.permanent_response(BITS).bits == BITS


def test_report_bears_the_metric_and_the_clients_cohort():
    metric = make_metric(version=7, params=make_params(k=24, m=5))
    encoder = Encoder(metric, make_secret())
    report = encoder.encode("example.com")
    assert (report.metric, report.version) == ("homepage", 7)
    assert report.cohort == encoder.cohort < 5
    assert len(report.bits) == 3


def test_reports_of_one_value_are_drawn_again():
    """128 bits, each equal in two reports with probability 5/8: P(equal) < 1e-26 a pair."""
    encoder = Encoder(make_metric(), make_secret())
    assert len({encoder.encode("example.com").bits for _ in range(10)}) == 10


def test_report_is_the_instantaneous_response_to_the_permanent_one():
    """With p = 0 and q = 1 the second response is the identity, so the report shows the first."""
    encoder = Encoder(make_metric(params=make_params(p=0.0, q=1.0)), make_secret())
    bits = bloom_bits("example.com", encoder.cohort, encoder.metric.params)
    reported = encoder.encode("example.com").bits
    assert int.from_bytes(reported, "little") == encoder.permanent_response(bits).bits


def test_instantaneous_response_takes_the_stream_that_it_is_given():
    encoder = Encoder(make_metric(), make_secret())
    first = report_bits(encoder, BITS, seeded_stream("a"))
    assert first == report_bits(encoder, BITS, seeded_stream("a"))
    assert first != report_bits(encoder, BITS, seeded_stream("b"))


def test_a_period_s_answer_takes_its_cohort_and_noise_from_the_stream_alone():
    encoder = Encoder(make_metric(period_days=1), make_secret())
    answers = [encoder.fresh_response("example.com", seeded_stream("a")) for _ in range(4)]
    assert len(set(answers)) == 1


@pytest.mark.parametrize("size", [0, 31, 33])
def test_secret_of_another_size_is_refused(size):
    with pytest.raises(StateError, match=f"secret of {size} bytes: must be 32 bytes"):
        Encoder(make_metric(), bytes(size))


text = st.text(st.characters(exclude_categories=["Cs"]))


@given(value=text)
def test_canonically_equivalent_values_are_one_value(value):
    params = make_params()
    decomposed = unicodedata.normalize("NFD", value)
    assert bit_positions(decomposed, 5, params) == bit_positions(
        unicodedata.normalize("NFC", value), 5, params
    )


@pytest.mark.parametrize(
    ("one", "other"), [("007", "7"), ("NA", "na"), ("x", " x"), ("x", "x\n"), ("", " ")]
)
def test_values_are_opaque(one, other):
    params = make_params(k=1024, h=8)
    assert bloom_bits(one, 0, params) != bloom_bits(other, 0, params)


def test_the_largest_value_is_64_kib_of_utf8():
    assert len(canonical_bytes("é" * (MAX_VALUE_BYTES // 2))) == MAX_VALUE_BYTES
    with pytest.raises(EncodingError, match="must be at most 65536 bytes"):
        canonical_bytes("é" * (MAX_VALUE_BYTES // 2) + "x")


def test_lone_surrogate_is_refused_without_quoting_the_value():
    with pytest.raises(EncodingError) as caught:
        canonical_bytes("my secret home page \ud800")
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__
