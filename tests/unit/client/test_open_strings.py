"""Texts that are found prefix by prefix: what is hashed, in which cohort, and what is refused."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import make_metric, make_params, make_registry, registry_toml
from hubbub.client import EncodingError, MetricError, Registry
from hubbub.protocol.bloom import bloom_bits, canonical_bytes
from hubbub.protocol.metric_types.open_strings import OpenStringType

TYPE = OpenStringType((4, 7), 64)
METRIC = make_metric(metric_type=TYPE)
TEXT = registry_toml(METRIC)
text = st.text(st.characters(exclude_categories=["Cs"]))
steps = st.sets(st.integers(1, 64), min_size=1, max_size=8).map(sorted).map(tuple)


def test_cohorts_of_all_steps_are_the_metric_s() -> None:
    assert (METRIC.params.h, METRIC.params.m) == (1, 192)
    assert TYPE.step_params(METRIC.params) == make_params(h=1, m=64)
    assert make_registry(METRIC)["homepage"] == METRIC


def test_definition_names_the_steps() -> None:
    assert METRIC.definition["steps"] == [4, 7]
    assert METRIC.definition["m"] == 192


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
def test_prefix_is_cut_by_bytes_and_ends_with_the_terminator(
    value: str, step: int, hashed: bytes
) -> None:
    assert TYPE.prefix(canonical_bytes(value), step) == hashed


@given(value=text, cohort=st.integers(0, 63))
def test_last_step_is_a_string_in_the_cohort_of_its_step(value: str, cohort: int) -> None:
    string = make_params(h=1, m=64)
    assert TYPE.bits(value, 128 + cohort, METRIC.params) == bloom_bits(value, cohort, string)


@given(value=text, more=text, lengths=steps, data=st.data())
def test_bits_depend_on_nothing_behind_the_step(
    value: str, more: str, lengths: tuple[int, ...], data: st.DataObject
) -> None:
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
def test_prefixes_are_equal_exactly_if_the_values_begin_alike(
    value: str, other: str, lengths: tuple[int, ...]
) -> None:
    kind = OpenStringType(lengths, 1)
    one, two = canonical_bytes(value), canonical_bytes(other)
    for step, length in enumerate(lengths):
        alike = one == two or (one[:length] == two[:length] and min(len(one), len(two)) >= length)
        assert (kind.prefix(one, step) == kind.prefix(two, step)) == alike
    assert (kind.prefix(one, len(lengths)) == kind.prefix(two, len(lengths))) == (one == two)


@pytest.mark.parametrize("value", [None, 7, True, b"bytes", "lone \ud800", "x" * 65_537])
@pytest.mark.parametrize("cohort", [0, 191])
def test_only_texts_are_values_at_every_step(value: object, cohort: int) -> None:
    with pytest.raises(EncodingError):
        TYPE.bits(value, cohort, METRIC.params)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    ["[7, 4]", "[4, 4]", "[]", "[0, 4]", "[65]", "[1, 2, 3, 4, 5, 6, 7, 8, 9]", "[true, 2]",
     "[4.0]", '["4"]', "4", "[-1]"],
)  # fmt: skip
def test_steps_are_up_to_8_ascending_lengths(wrong: str) -> None:
    with pytest.raises(MetricError) as caught:
        Registry.parse(TEXT.replace("[4, 7]", wrong))
    message = str(caught.value)
    assert message.startswith("metrics.homepage.steps = ")
    assert "must be 1 to 8 strictly ascending integers from 1 to 64" in message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("m = 64", "m = 21846", "metrics.homepage.m = 21846: must be an integer between 1 and 218"),
        ("m = 64", "m = 0", "metrics.homepage.m = 0: must be an integer between 1 and 21845"),
        ("m = 64", "m = true", "metrics.homepage.m = True: must be an integer"),
        ("m = 64", "m = 64.0", "metrics.homepage.m = 64.0: must be an integer"),
        ("m = 64", "m = 64\nh = 2", "metrics.homepage.h = 2: must be 1, or left out"),
        ("m = 64", "m = 64\nh = true", "metrics.homepage.h = True: must be 1, or left out"),
        ("m = 64", "m = 64\ncategories = []", "unknown key 'categories'"),
        ("steps = [4, 7]\n", "", "metrics.homepage.steps: is missing"),
        ("k = 128", "k = 100", "metrics.homepage.k = 100: must be a multiple of 8"),
    ],
)
def test_mistake_in_an_entry_is_named(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(MetricError) as caught:
        Registry.parse(TEXT.replace(old, new, 1))
    assert message in str(caught.value)


def test_one_hash_may_be_stated() -> None:
    assert Registry.parse(TEXT.replace("m = 64", "m = 64\nh = 1"))["homepage"] == METRIC


def test_most_cohorts_fill_two_bytes() -> None:
    metric = Registry.parse(TEXT.replace("m = 64", "m = 21845"))["homepage"]
    assert metric.params.m == 65_535


def test_a_string_keeps_its_bound_on_cohorts() -> None:
    with pytest.raises(MetricError) as caught:
        Registry.parse(registry_toml().replace("m = 64", "m = 1025"))
    expected = "metrics.homepage.m = 1025: must be an integer between 1 and 1024"
    assert str(caught.value) == expected
