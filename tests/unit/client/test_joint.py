"""Several fields as one value: cells, what is hashed, what is refused."""

import unicodedata
from collections.abc import Sequence
from types import MappingProxyType

import pytest
from hypothesis import assume, given, strategies as st

from factories import make_metric, make_params, make_registry, make_secret, registry_toml
from hubbub.client import Encoder, MetricError, Registry
from hubbub.client.testing import RecordingTelemetry
from hubbub.protocol import RESULT_COLUMNS, byte_positions, number_of_values
from unit.client.accounts import DiskClient, MemoryClient
from unit.client.types_of_metrics import (
    CELLS,
    CRASH,
    DRIVER,
    HASHED,
    SLOW,
    BooleanType,
    EnumType,
    Field,
    FieldType,
    JointType,
    OrdinalType,
    StringType,
)  # fmt: skip

CELLS_TOML = registry_toml(make_metric(metric_type=CELLS))
PARAMS = make_params()
text = st.text(st.characters(exclude_categories=["Cs"]))


def enums(categories: st.SearchStrategy[int]) -> st.SearchStrategy[EnumType]:
    return categories.map(lambda n: EnumType(tuple(f"c{i}" for i in range(n))))


small_types: st.SearchStrategy[FieldType] = st.one_of(
    enums(st.integers(2, 9)),
    st.just(BooleanType()),
    st.integers(1, 6).map(lambda n: OrdinalType(tuple(map(float, range(n))))),
)


def joint(types: Sequence[FieldType]) -> JointType:
    return JointType(tuple(Field(f"f{i}", a_type) for i, a_type in enumerate(types)))


fields = st.lists(
    st.one_of(small_types, st.just(StringType()), st.just(CRASH.type)), min_size=2, max_size=3
)


parts = st.tuples(st.integers(0, 4095), text, st.integers(0, 4095), text)


@given(parts, parts)
def test_different_tuples_have_different_bytes(one, two):
    a, b = (HASHED.tuple_bytes(tuple_parts) for tuple_parts in (one, two))
    assert (a == b) == (_normal(one) == _normal(two))


def _normal(tuple_parts: tuple[int | str, ...]) -> list[int | str]:
    return [
        unicodedata.normalize("NFC", part) if isinstance(part, str) else part
        for part in tuple_parts
    ]


@pytest.mark.parametrize(
    ("value", "hashed"),
    [
        ({"crash": "none", "driver": "nvidia 535"}, b"0\xffnvidia 535"),
        ({"driver": "e\u0301", "crash": "oom"}, b"1\xff" + "é".encode()),
        ({"crash": "hang", "driver": ""}, b"2\xff"),
        ({"crash": "other", "driver": "\xff"}, b"2\xff\xc3\xbf"),
    ],
)
def test_numbers_and_texts_are_joined_by_a_byte_that_no_text_has(value, hashed):
    assert HASHED.tuple_bytes(HASHED.digits(value)) == hashed


@given(cohort=st.integers(0, 63), category=text, driver=text)
def test_a_tuple_with_a_text_is_hashed_as_strings_are(cohort, category, driver):
    value = {"crash": category, "driver": driver}
    data = HASHED.tuple_bytes(HASHED.digits(value))
    positions = byte_positions(data, cohort, PARAMS)
    assert HASHED.bits(value, cohort, PARAMS) == sum(1 << j for j in set(positions))


@given(text)
def test_unknown_categories_count_as_other(category):
    assume(category not in ("none", "oom"))
    assert CRASH.type.bits(category, 0, PARAMS) == 4
    assert HASHED.digits({"crash": category, "driver": "x"}) == (2, "x")


def test_other_is_the_last_category():
    other = EnumType(("red", "green"), other=True)
    assert other.labels == ("red", "green", "other")
    assert other.width == 3
    assert other.bits("other", 0, PARAMS) == other.bits("blue", 0, PARAMS) == 4
    metric = make_metric(metric_type=other)
    assert metric.definition["other"] is True
    assert make_registry(metric)["homepage"] == metric
    assert "other" not in EnumType(("red", "green")).definition()
    assert other != EnumType(("red", "green"))


def test_cells_have_a_bit_each_and_strings_are_hashed():
    assert (CELLS.cells, CELLS.width, CELLS.hashed) == (24, 24, False)
    assert (HASHED.cells, HASHED.width, HASHED.hashed) == (None, None, True)
    assert [number_of_values(field.type) for field in (*CELLS.fields, DRIVER)] == [3, 2, 4, None]
    params = make_metric(metric_type=joint([SLOW.type, CRASH.type, CRASH.type])).params
    assert (params.k, params.h, params.m) == (24, 1, 1)
    params = make_metric(metric_type=HASHED).params
    assert (params.k, params.h, params.m) == (128, 2, 64)
    assert CELLS.true_bits(PARAMS) == range(1, 2)
    assert HASHED.true_bits(PARAMS) == range(1, 3)


def test_k_decides_whether_cells_are_hashed():
    def of(entries: str) -> tuple[JointType, tuple[int, int, int]]:
        metric = Registry.parse(CELLS_TOML.replace("f = 0.5", f"f = 0.5\n{entries}"))["homepage"]
        assert isinstance(metric.type, JointType)
        return metric.type, metric.params[:3]

    assert of("") == (CELLS, (24, 1, 1))
    assert of("k = 40\nh = 1\nm = 1") == (CELLS, (40, 1, 1))
    hashed, size = of("k = 16\nm = 8")
    assert (hashed.hashed, hashed.width, size) == (True, None, (16, 1, 8))
    assert hashed != CELLS
    assert of("k = 16\nm = 8\nh = 2")[1] == (16, 2, 8)


def test_most_cells_have_a_bit_each():
    wide = joint([EnumType(tuple(map(str, range(64))))] * 2)
    metric = make_registry(make_metric(metric_type=wide))["homepage"]
    assert metric.params.k == 4096
    report = Encoder(metric, make_secret()).encode({"f0": "63", "f1": "63"})
    assert len(report.bits) == 512
    assert wide.bits({"f0": "63", "f1": "63"}, 0, metric.params) == 1 << 4095


def test_price_is_that_of_one_value_with_h_bits():
    cells, hashed = make_metric(metric_type=CELLS), make_metric(metric_type=HASHED)
    enum = make_metric(metric_type=CRASH.type)
    assert cells.epsilon_permanent == enum.epsilon_permanent
    assert cells.epsilon_report == enum.epsilon_report
    assert hashed.epsilon_permanent == make_metric().epsilon_permanent


def test_any_mapping_will_do():
    value = {"crash": "oom", "slow": True, "tabs": 3}
    proxy = MappingProxyType(value)
    assert CELLS.bits(proxy, 0, PARAMS) == CELLS.bits(value, 0, PARAMS) == 1 << (8 + 4 + 1)


FIRST = "metrics.homepage.fields[0]"


@pytest.mark.parametrize("name", RESULT_COLUMNS)
def test_no_field_is_called_like_a_column_of_results(name):
    with pytest.raises(MetricError) as caught:
        Registry.parse(CELLS_TOML.replace('"crash"', f'"{name}"'))
    assert str(caught.value) == (
        f"{FIRST}.name = {name!r}: must not be the name of a column of results"
    )


def test_more_cells_than_bits_need_k_and_m():
    toml = registry_toml(make_metric(metric_type=HASHED)).replace(
        'type = "string"', f'type = "ordinal", edges = {list(range(2000))}'
    )
    with pytest.raises(MetricError) as caught:
        Registry.parse(toml.replace("k = 128\n", ""))
    assert str(caught.value) == (
        "metrics.homepage.fields: have 6003 cells, more than 4096 bits; give k and m, with which "
        "cells are hashed"
    )
    hashed = Registry.parse(toml)["homepage"].type
    assert isinstance(hashed, JointType)
    assert (hashed.cells, hashed.hashed) == (6003, True)
    value = {"crash": "hang", "driver": 1999}
    assert hashed.tuple_bytes(hashed.digits(value)) == b"2\xff2000"


VALUE = {"crash": "oom", "slow": True, "tabs": 3}


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize(
    ("metric_type", "value", "changes", "results"),
    [
        (CELLS, VALUE, [{}, {"tabs": 4}, {"tabs": 500}, {"crash": "none"}, {}], "1 - 1 1 -"),
        (HASHED, {"crash": "oom", "driver": "nvidia"}, [{}, {}, {"crash": "none"}], "1 - 1"),
    ],
)
def test_account_charges_once_for_all_fields_whichever_changes(
    metric_type, value, changes, results, on_disk, tmp_path
):
    metric = make_metric(metric_type=metric_type)
    registry = make_registry(metric)
    client = DiskClient(tmp_path, registry) if on_disk else MemoryClient(registry)
    found = [client.record(float(i), "homepage", value | c).result for i, c in enumerate(changes)]
    assert found == [{"1": "admitted", "-": "again"}[result] for result in results.split()]
    price = results.count("1") * metric.epsilon_permanent
    assert client.spending().committed == pytest.approx(price)


def test_equal_values_have_one_response_for_life():
    encoder = Encoder(make_metric(metric_type=HASHED), make_secret())
    one = encoder.true_bits({"crash": "hang", "driver": "e\u0301"})
    two = encoder.true_bits({"driver": "é", "crash": "panic"})
    assert one == two
    assert encoder.permanent_response(one) is encoder.permanent_response(two)


def test_recorded_calls_keep_what_a_mapping_held_when_it_was_recorded():
    telemetry = RecordingTelemetry(make_registry(make_metric(metric_type=CELLS)))
    value = dict(VALUE)
    telemetry.record("homepage", value)
    value["crash"] = "none"
    telemetry.record("homepage", value)
    assert telemetry.values("homepage") == [VALUE, VALUE | {"crash": "none"}]
    assert telemetry.status().recorded == 2
