"""Variable types: bits of a value, and what metrics.toml says of them."""

import math

import pytest
from hypothesis import given, strategies as st

from evaluation.reference import protocol
from factories import make_metric, make_params, make_registry, make_secret, registry_toml
from hubbub.client import Encoder, EncodingError, Registry, UnknownCategoryError
from unit.client.types_of_metrics import (
    CELLS,
    COLOURS,
    CRASH,
    HASHED,
    OPEN_TEXT,
    TABS,
    BooleanType,
    EnumType,
    Field,
    JointType,
    OrdinalType,
    StringType,
)  # fmt: skip

PARAMS = make_params(k=8, h=1, m=1)

finite = st.floats(allow_nan=False, allow_infinity=False)

BOOLEAN = BooleanType()
OPEN = EnumType(("red",), other=True)


@pytest.mark.parametrize(
    ("metric_type", "values", "bits"),
    [
        (COLOURS, ["red", "green", "blue"], [1, 2, 4]),
        (EnumType(("Bern", "Zürich")), ["Zu\u0308rich"], [2]),
        (BOOLEAN, [True, False], [1, 0]),
        (TABS, [0, -math.inf, -(10**400)], [1, 1, 1]),
        (TABS, [1, 1.0, 9.99, 10], [2, 2, 2, 4]),
        (TABS, [100, math.inf, 10**400], [8, 8, 8]),
    ],
)
def test_value_sets_its_own_bit(metric_type, values, bits):
    assert [metric_type.bits(value, 0, PARAMS) for value in values] == bits


@pytest.mark.parametrize(
    ("metric_type", "values", "message"),
    [
        (COLOURS, [3, None, True, b"red"], "value of type TYPE: must be a string"),
        (OPEN, [None, 3, b"red", True], "value of type TYPE: must be a string"),
        *((other, [{"crash": "my secret"}], "value of type dict: must be ")
          for other in (StringType(), OPEN, BOOLEAN, TABS, OPEN_TEXT)),
        (COLOURS, ["my secret"], "value: must be one of the categories red, green, blue"),
        (BOOLEAN, [0, 1, "true", None], "value of type TYPE: must be True or False"),
        (TABS, ["7", True, None], "value of type TYPE: must be a number, not NaN"),
        (TABS, [math.nan], "value: must be a number, not NaN"),
        (CELLS, ["oom", ["oom", True, 3]],
         "value of type TYPE: must be a mapping with the fields crash, slow, tabs"),
        (CELLS, [{}], "exactly the fields crash, slow, tabs; crash, slow, tabs missing"),
        (CELLS, [{"crash": "oom", "tabs": 3}], "the fields crash, slow, tabs; slow missing"),
        (HASHED, [{"crash": "oom", "driver": "", "my secret": 1}],
         "crash, driver; there are others"),
        (HASHED, [{"crash": "oom", "my secret": 1}], "crash, driver; driver missing"),
        (HASHED, [{"crash": 1, "driver": ""}], "field 'crash': value of type int: must be a str"),
        (HASHED, [{"crash": "", "driver": None}], "field 'driver': value of type NoneType: must"),
        (HASHED, [{"crash": "", "driver": "\ud800"}], "field 'driver': value: must be Unicode"),
        (HASHED, [{"crash": "", "driver": {"my secret": 1}}], "field 'driver': value of type dict"),
        (CELLS, [{"crash": "", "slow": 1, "tabs": 3}], "field 'slow': value of type int: must be"),
        (CELLS, [{"crash": "", "slow": True, "tabs": math.nan}], "field 'tabs': value: must be a "),
    ],
)  # fmt: skip
def test_wrong_value_is_refused_without_quoting_it(metric_type, values, message):
    for value in values:
        with pytest.raises(EncodingError) as caught:
            metric_type.bits(value, 0, PARAMS)
        assert message.replace("TYPE", type(value).__name__) in str(caught.value)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("listed", [COLOURS, JointType((Field("a", COLOURS), CRASH))])
def test_unknown_category_is_an_error_of_its_own(listed):
    value = "my secret" if listed is COLOURS else {"a": "my secret", "crash": "oom"}
    with pytest.raises(UnknownCategoryError, match="value: must be one of the categories red"):
        listed.bits(value, 0, PARAMS)


@given(edges=st.lists(finite, min_size=1, max_size=20, unique=True).map(sorted), value=finite)
def test_buckets_equal_the_reference(edges, value):
    tabs = OrdinalType(tuple(edges))
    assert tabs.bits(value, 0, PARAMS) == 1 << protocol.bucket_bit(value, edges)


@pytest.mark.parametrize(
    ("metric_type", "value"),
    [(COLOURS, "red"), (TABS, 5), (BOOLEAN, True), (StringType(), "x"), (OPEN_TEXT, "x"),
     (CELLS, {"crash": "oom", "slow": True, "tabs": 3}), (HASHED, {"crash": "oom", "driver": ""})],
)  # fmt: skip
def test_every_type_survives_metrics_toml_and_makes_reports_of_its_size(metric_type, value):
    metric = make_metric(metric_type=metric_type)
    assert make_registry(metric)["homepage"] == metric
    assert metric.definition.get("hashed", False) is getattr(metric_type, "hashed", False)
    report = Encoder(metric, make_secret()).encode(value)
    assert len(report.bits) == metric.params.k // 8


def test_width_is_rounded_up_to_whole_bytes():
    widths = {
        n: make_metric(metric_type=EnumType(tuple(map(str, range(n))))).params.k for n in (2, 8, 9)
    }
    assert widths == {2: 8, 8: 8, 9: 16}


def test_a_boolean_costs_half_of_what_a_choice_of_two_costs():
    choice = make_metric(metric_type=EnumType(("no", "yes")))
    boolean = make_metric(metric_type=BooleanType())
    assert choice.epsilon_permanent == pytest.approx(2 * boolean.epsilon_permanent)
    assert boolean.epsilon_permanent == pytest.approx(math.log(3))


STRING = registry_toml()


@pytest.mark.parametrize(
    ("noise", "p", "q"),
    [("f = 0\np = 0.25\nq = 0.75", 0.25, 0.75), ("f = 0.5", 0.0, 1.0)],
    ids=["without the permanent response", "without the instantaneous response"],
)
def test_one_time_metric_leaves_one_response_out(noise, p, q):
    text = STRING.replace("f = 0.5\np = 0.25\nq = 0.75", f'{noise}\nmode = "one-time"')
    metric = Registry.parse(text)["homepage"]
    assert metric.one_time
    assert (metric.params.p, metric.params.q) == (p, q)
