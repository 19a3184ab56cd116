"""Texts that are found prefix by prefix: what is hashed, said, refused."""

import unicodedata

import pytest
from hypothesis import given, strategies as st

from factories import make_metric, make_params, make_registry, make_secret, registry_toml
from hubbub.client import Encoder, EncodingError, Registry
from hubbub.client.state import open_state
from hubbub.protocol import bloom_bits, canonical_bytes
from unit.client.accounts import DiskClient, MemoryClient, Outcome
from unit.client.types_of_metrics import OPEN_TEXT, OpenStringType

METRIC = make_metric(metric_type=OPEN_TEXT)
TEXT = registry_toml(METRIC)
text = st.text(st.characters(exclude_categories=["Cs"]))
steps = st.sets(st.integers(1, 64), min_size=1, max_size=8).map(sorted).map(tuple)


@pytest.mark.parametrize(
    ("value", "step", "hashed"),
    [
        ("example", 0, b"exam"),
        ("example", 1, b"example"),
        ("example", 2, b"example"),
        ("example.com", 1, b"example"),
        ("ex", 0, b"ex\xff"),
        ("ex", 1, b"ex\xff"),
        ("ex", 2, b"ex"),
        ("", 0, b"\xff"),
        ("", 2, b""),
        ("a\0bcde", 0, b"a\0bc"),
        ("日本", 0, "日".encode() + b"\xe6"),
        ("e\u0301te\u0301", 0, "ét".encode() + b"\xc3"),
    ],
)
def test_prefix_is_cut_by_bytes_and_ends_with_the_terminator(value, step, hashed):
    assert OPEN_TEXT.prefix(canonical_bytes(value), step) == hashed


@given(value=text, cohort=st.integers(0, 63))
def test_last_step_is_a_string_in_the_cohort_of_its_step(value, cohort):
    string = make_params(h=1, m=64)
    assert OPEN_TEXT.bits(value, 128 + cohort, METRIC.params) == bloom_bits(value, cohort, string)


@given(cohorts=st.integers(1, 7281), lengths=steps)
def test_no_two_cohorts_are_hashed_alike(cohorts, lengths):
    kind = OpenStringType(lengths, cohorts)
    total = (len(lengths) + 1) * cohorts
    assert sorted(map(kind.hashed_cohort, range(total))) == list(range(total))
    assert [kind.hashed_cohort(c) for c in range(total - cohorts, total)] == list(range(cohorts))


@given(value=text, more=text, lengths=steps, data=st.data())
def test_bits_depend_on_nothing_behind_the_step(value, more, lengths, data):
    step = data.draw(st.integers(0, len(lengths) - 1))
    start = data.draw(st.text(st.characters(exclude_categories=["Cs"]), min_size=lengths[step]))
    one, other = (unicodedata.normalize("NFC", start + end) for end in (value, more))
    if one.encode()[: lengths[step]] != other.encode()[: lengths[step]]:
        return  # the end composes with the beginning
    metric = make_metric(metric_type=OpenStringType(lengths, 5))
    cohort = 5 * step + data.draw(st.integers(0, 4))
    bits = [metric.type.bits(v, cohort, metric.params) for v in (one, other)]
    assert bits[0] == bits[1]
    assert bits[0].bit_count() == 1


@given(value=text, other=text, lengths=steps)
def test_prefixes_are_equal_exactly_if_the_values_begin_alike(value, other, lengths):
    kind = OpenStringType(lengths, 1)
    one, two = canonical_bytes(value), canonical_bytes(other)
    for step, length in enumerate(lengths):
        alike = one == two or (one[:length] == two[:length] and min(len(one), len(two)) >= length)
        assert (kind.prefix(one, step) == kind.prefix(two, step)) == alike
    assert (kind.prefix(one, len(lengths)) == kind.prefix(two, len(lengths))) == (one == two)


@pytest.mark.parametrize("value", [None, 7, True, b"bytes", "lone \ud800", "x" * 65_537])
@pytest.mark.parametrize("cohort", [0, 191])
def test_only_texts_are_values_at_every_step(value, cohort):
    with pytest.raises(EncodingError):
        OPEN_TEXT.bits(value, cohort, METRIC.params)


def test_one_hash_may_be_stated():
    assert Registry.parse(TEXT.replace("m = 64", "m = 64\nh = 1"))["homepage"] == METRIC


def test_most_cohorts_fill_two_bytes():
    metric = Registry.parse(TEXT.replace("m = 64", "m = 21845"))["homepage"]
    assert metric.params.m == 65_535


def client_at(step: int) -> Encoder:
    clients = (Encoder(METRIC, make_secret(i)) for i in range(1000))
    return next(client for client in clients if client.cohort // OPEN_TEXT.cohorts == step)


@pytest.mark.parametrize(("step", "alike"), [(0, 3), (1, 2), (2, 1)])
def test_values_that_begin_alike_are_one_value_to_a_client_of_that_step(step, alike):
    """The first few of the values have the response of the first, the others their own."""
    client = client_at(step)
    bits = [client.true_bits(value) for value in ("example.com", "example.org", "exampli", "other")]
    assert len({client.permanent_response(each) for each in bits[:alike]}) == 1
    assert len({client.value_digest(each) for each in bits[:alike]}) == 1
    assert len({client.value_digest(each) for each in bits}) == 4 - (alike - 1)


def assert_charged_by_beginnings(client: MemoryClient | DiskClient, encoder: Encoder) -> None:
    values = ("example.com", "example.org", "exampli", "other", "example.com")
    outcomes = [client.record(float(i), "homepage", value) for i, value in enumerate(values)]
    admitted = [outcome for outcome in outcomes if outcome.result == "admitted"]
    assert outcomes[-1] == Outcome("again", 0)
    assert len(admitted) == len({encoder.true_bits(value) for value in values})
    price = METRIC.epsilon_permanent
    assert client.spending().committed == pytest.approx(len(admitted) * price)


def test_account_charges_for_what_is_revealed(tmp_path):
    """A change behind the client's step changes no bit, so it costs nothing."""
    registry = make_registry(METRIC)
    for client, secret in (
        (MemoryClient(registry), make_secret()),
        (DiskClient(tmp_path, registry), open_state(tmp_path, registry).secret),
    ):
        assert_charged_by_beginnings(client, Encoder(METRIC, secret))
