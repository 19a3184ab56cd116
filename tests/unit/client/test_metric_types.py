"""Variable types: bits of a value, and what metrics.toml says of them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.reference import protocol
from factories import make_metric, make_params, make_registry, make_secret, registry_toml
from hubbub.client import Encoder, EncodingError, Metric, MetricError, Registry
from hubbub.protocol.metric_types.base import MetricType, Value
from hubbub.protocol.metric_types.booleans import BooleanType
from hubbub.protocol.metric_types.enums import EnumType
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.metric_types.ordinals import OrdinalType
from hubbub.protocol.metric_types.strings import StringType

COLOURS = EnumType(("red", "green", "blue"))
TABS = OrdinalType((1.0, 10.0, 100.0))
OPEN_TEXT = OpenStringType((1, 5), 2)
PARAMS = make_params(k=8, h=1, m=1)

finite = st.floats(allow_nan=False, allow_infinity=False)


def bits(metric_type: MetricType, value: object) -> int:
    return metric_type.bits(value, 0, PARAMS)  # type: ignore[arg-type]


@pytest.mark.parametrize(("value", "expected"), [("red", 1), ("green", 2), ("blue", 4)])
def test_a_category_sets_its_own_bit(value, expected):
    assert bits(COLOURS, value) == expected


def test_categories_are_compared_in_their_normal_form():
    assert bits(EnumType(("Bern", "Zürich")), "Zu\u0308rich") == 2


@pytest.mark.parametrize("value", [3, None, True, b"red"])
def test_category_must_be_a_text(value):
    with pytest.raises(EncodingError, match="must be a string"):
        bits(COLOURS, value)


def test_unknown_category_is_refused_without_quoting_it():
    with pytest.raises(EncodingError) as caught:
        bits(COLOURS, "my secret")
    assert str(caught.value) == "value: must be one of the categories red, green, blue"


@pytest.mark.parametrize(("value", "expected"), [(True, 1), (False, 0)])
def test_a_boolean_is_one_bit(value, expected):
    assert bits(BooleanType(), value) == expected


@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_only_true_and_false_are_booleans(value):
    with pytest.raises(EncodingError, match="must be True or False"):
        bits(BooleanType(), value)


@pytest.mark.parametrize(
    ("value", "bucket"),
    [(0, 0), (1, 1), (1.0, 1), (9.99, 1), (10, 2), (100, 3), (math.inf, 3), (-math.inf, 0),
     (10**400, 3), (-(10**400), 0)],
)  # fmt: skip
def test_a_number_sets_the_bit_of_its_bucket(value, bucket):
    assert bits(TABS, value) == 1 << bucket


@given(edges=st.lists(finite, min_size=1, max_size=20, unique=True).map(sorted), value=finite)
def test_buckets_equal_the_reference(edges, value):
    assert bits(OrdinalType(tuple(edges)), value) == 1 << protocol.bucket_bit(value, edges)


@pytest.mark.parametrize("value", [math.nan, "7", True, None])
def test_only_numbers_have_a_bucket(value):
    with pytest.raises(EncodingError, match="must be a number, not NaN"):
        bits(TABS, value)


@pytest.mark.parametrize(
    "metric_type", [COLOURS, TABS, BooleanType(), StringType(), OPEN_TEXT], ids=lambda k: k.name
)
def test_every_type_makes_reports_of_the_registered_size(metric_type):
    metric = make_metric(metric_type=metric_type)
    values: dict[str, Value] = {"enum": "red", "ordinal": 5, "boolean": True}
    report = Encoder(metric, make_secret()).encode(values.get(metric_type.name, "x"))
    assert len(report.bits) == metric.params.k // 8


@pytest.mark.parametrize(
    "metric_type", [COLOURS, TABS, BooleanType(), StringType(), OPEN_TEXT], ids=lambda k: k.name
)
def test_every_type_survives_metrics_toml(metric_type):
    metric = make_metric(metric_type=metric_type)
    assert make_registry(metric)["homepage"] == metric


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


ENUM = registry_toml(make_metric(metric_type=COLOURS))
ORDINAL = registry_toml(make_metric(metric_type=TABS))
STRING = registry_toml()


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (ENUM, '"blue"', '"red"', "homepage.categories = ['red', 'green', 'red']: must be differ"),
        (ENUM, '["red", "green", "blue"]', '["red"]', "must be a list of 2 to 4096 texts"),
        (ENUM, '["red", "green", "blue"]', '["red", 3]', "must be different texts"),
        (ENUM, '["red", "green", "blue"]', '"red"', "must be a list of 2 to 4096 texts"),
        (ENUM, "f = 0.5", "f = 0.5\nk = 8", "metrics.homepage: unknown key 'k'"),
        (ENUM, 'type = "enum"', 'type = "ordinal"', "unknown key 'categories'"),
        (ORDINAL, "[1.0, 10.0, 100.0]", "[1.0, 1.0]", "must be strictly ascending"),
        (ORDINAL, "[1.0, 10.0, 100.0]", "[]", "must be a list of 1 to 4095 numbers"),
        (ORDINAL, "[1.0, 10.0, 100.0]", "[1.0, inf]", "must be finite numbers"),
        (ORDINAL, "[1.0, 10.0, 100.0]", "[true, 2]", "must be finite numbers"),
        (ORDINAL, "edges = [1.0, 10.0, 100.0]", "", "metrics.homepage.edges: is missing"),
        (STRING, "f = 0.5", "f = 0", 'homepage.f = 0.0: needs mode = "one-time"'),
        (STRING, "p = 0.25\nq = 0.75", "p = 0\nq = 1", 'needs mode = "one-time"'),
        (STRING, "p = 0.25\nq = 0.75", "", "metrics.homepage.p: is missing"),
        (STRING, "f = 0.5", 'f = 0.5\nmode = "one-time"', "must leave out one response"),
        (STRING, "f = 0.5", 'f = 0.5\nmode = "twice"', "must be one of: longitudinal, one-time"),
        (STRING, "max_values = 100", "max_values = 0", "homepage.max_values = 0: must be an int"),
        (STRING, "\n[metrics", "lifetime_epsilon = -1\n[metrics", "lifetime_epsilon = -1: must be"),
    ],
)  # fmt: skip
def test_mistake_in_an_entry_is_named(text, old, new, message):
    assert old in text
    with pytest.raises(MetricError) as caught:
        Registry.parse(text.replace(old, new, 1))
    assert message in str(caught.value)


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


def test_what_reports_mean_is_compared_between_registries():
    def definition(metric: Metric) -> dict[str, object]:
        return metric.definition

    one, other = (
        make_metric(metric_type=COLOURS),
        make_metric(metric_type=EnumType(("red", "blue", "green"))),
    )
    assert definition(one) != definition(other)
    assert definition(make_metric(metric_type=BooleanType())) != definition(one)


def test_certain_responses_the_wrong_way_round_are_refused():
    text = STRING.replace("p = 0.25\nq = 0.75", 'p = 1\nq = 0\nmode = "one-time"')
    with pytest.raises(MetricError, match=r"homepage\.p = 1, q = 0: must be left out"):
        Registry.parse(text)
