"""Responses, mode "once", groups and asymmetric noise in metrics.toml."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from factories import make_metric, make_params, make_registry, registry_toml
from hubbub.client import MetricError, RapporParams, Registry
from hubbub.protocol import (
    UNARY,
    BooleanType,
    EnumType,
    Field,
    Group,
    JointType,
    NumberType,
    Subset,
    Window,
    check_compatible,
    response_of,
)

HEAD = 'application = "a"\n'
COMMON = 'version = 1\ndescription = "d"\nowner = "o"\nexpires = 2099-01-01\n'
COLOURS = 'type = "enum"\ncategories = ["red", "green", "blue"]\n'
ONCE = 'mode = "once"\nperiod_days = 30\n'
STRING = 'type = "string"\nk = 64\nh = 1\nm = 8\n'
NUMBER = 'type = "number"\nlow = 0\nhigh = 60\ncells = 8\nwindow = 4\nq = 0.75\n'


def entry(*lines, name="theme"):
    return f"[metrics.{name}]\n{COMMON}" + "".join(lines)


def parsed(*lines):
    return Registry.parse(HEAD + entry(*lines))["theme"]


def refused(text):
    with pytest.raises(MetricError) as caught:
        Registry.parse(HEAD + text)
    return str(caught.value)


def test_once_asks_one_answer_a_period_at_the_price_of_a_report():
    metric = parsed(STRING, ONCE, "f = 0.0\np = 0.1\nq = 0.5\nmax_periods = 12\n")
    assert (metric.mode, metric.memory, metric.max_answers) == ("once", "period", 12)
    assert metric.price == metric.epsilon_report == pytest.approx(math.log(9))
    assert metric.reserve == pytest.approx(12 * metric.price)
    assert metric.hides_changes
    assert not metric.one_time


def test_once_needs_no_f_and_no_memory():
    short = parsed(STRING, ONCE, "p = 0.1\nq = 0.5\n")
    assert short == parsed(STRING, ONCE, 'memory = "period"\nf = 0\np = 0.1\nq = 0.5\n')
    assert short.definition["mode"] == "once"


def test_a_one_time_metric_needs_no_f_either():
    short, long = (
        parsed(STRING, 'mode = "one-time"\n', f, "p = 0.1\nq = 0.5\n") for f in ("", "f = 0.0\n")
    )
    assert short == long
    assert short.price == pytest.approx(math.log(9))


def test_a_permanent_response_alone_can_be_asked_once_too():
    metric = parsed(STRING, ONCE, "f = 0.25\n")
    assert metric.price == pytest.approx(2 * math.log(7))


def test_a_set_of_categories_has_the_chances_of_subset_selection():
    metric = parsed(COLOURS, ONCE, 'response = "subset"\nsize = 1\nq = 0.8\n')
    assert metric.response == Subset(3, 1, 0.8)
    assert (metric.params.q, metric.params.p) == (0.8, pytest.approx(0.1))
    assert metric.epsilon_report == pytest.approx(math.log(8))
    assert metric.epsilon_permanent == math.inf


def test_a_set_of_two_categories_is_the_boolean_bit_of_today():
    subset = parsed('type = "boolean"\n', ONCE, 'response = "subset"\nsize = 1\nq = 0.75\n')
    assert subset == parsed('type = "boolean"\n', ONCE, "p = 0.25\nq = 0.75\n")
    assert subset.response == UNARY


def test_cells_of_a_table_may_be_asked_as_sets():
    fields = (Field("a", BooleanType()), Field("b", EnumType(("x", "y", "z"))))
    table = make_metric(
        metric_type=JointType(fields), mode="once", period_days=7, response=Subset(6, 2, 0.7)
    )
    assert make_registry(table)["homepage"] == table


def test_a_number_has_a_window():
    metric = parsed(NUMBER, ONCE, "variance = true\n")
    assert metric.type == NumberType(0.0, 60.0, 8, 4, variance=True)
    assert metric.response == Window(8, 4, 0.75)
    assert (metric.params.k, metric.params.m) == (8, 2)
    assert metric.epsilon_report == pytest.approx(math.log(3))


@st.composite
def sets_and_windows(draw: st.DrawFn) -> Subset | Window:
    """Responses of two to seven cells that favour what tells of the value."""
    cells = draw(st.integers(2, 7))
    width = draw(st.integers(1, cells - 1))
    chance = width / cells + draw(st.floats(0.05, 0.95)) * (1 - width / cells)
    kind = Subset if draw(st.booleans()) else Window
    return kind(cells, width, chance)


def chances_of_reports(response: Subset | Window) -> list[list[float]]:
    """Return, for each value, the chance of each report, by the responses' definitions."""
    d, w, q = response.cells, response.width, response.chance
    if isinstance(response, Window):
        return [
            [q / w if s <= cell < s + w else (1 - q) / (d - w) for cell in range(d)]
            for s in range(d - w + 1)
        ]
    sets = list(itertools.combinations(range(d), w))
    holding = math.comb(d - 1, w - 1)
    return [
        [q / holding if own in each else (1 - q) / (len(sets) - holding) for each in sets]
        for own in range(d)
    ]


@given(sets_and_windows())
def test_a_whole_report_reveals_as_much_as_all_reports_of_all_values(response):
    chances = chances_of_reports(response)
    assert [sum(each) for each in chances] == pytest.approx([1.0] * len(chances))
    params, nothing = make_params(), EnumType(("a", "b"))
    greatest = max(map(max, chances))
    assert response.log_chance(params) == pytest.approx(math.log(greatest), abs=1e-9)
    pairs = itertools.permutations(np.array(chances), 2)
    worst = max(float((one / other).max()) for one, other in pairs)
    assert response.epsilon_after(nothing, params, 1) == pytest.approx(math.log(worst), rel=1e-9)
    assert response.epsilon_after(nothing, params, 5) == pytest.approx(
        5 * math.log(worst), rel=1e-9
    )


@given(sets_and_windows())
def test_a_response_is_read_back_from_what_stores_keep_of_it(response):
    values = tuple("abcdefg"[: response.cells])
    number = NumberType(0.0, 1.0, response.cells, response.width)
    metric = make_metric(
        metric_type=EnumType(values) if isinstance(response, Subset) else number,
        mode="once",
        period_days=7,
        response=response,
    )
    again = response_of(metric.definition)
    assert again == response
    assert len({again, response, UNARY}) == 2


def test_independent_bits_are_read_back_and_bound_no_report_s_chance():
    assert response_of(make_metric().definition) is UNARY
    assert UNARY.log_chance(make_params()) == 0.0  # no chance is above 1


def test_asymmetric_noise_is_read_and_defines_a_version():
    noise = "f0 = 0.0122\nf1 = 0.5\np = 0.265\nq = 0.74\n"
    metric = parsed(COLOURS, noise)
    assert (metric.params.f0, metric.params.f1) == (0.0122, 0.5)
    assert "f" not in metric.definition
    assert parsed(COLOURS, "f = 0.5\np = 0.25\nq = 0.75\n").definition["f"] == 0.5


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((STRING, 'mode = "once"\np = 0.1\nq = 0.5\n'), "theme.period_days: is missing"),
        ((STRING, ONCE, 'memory = "value"\np = 0.1\nq = 0.5\n'), "theme.memory = \"value\""),
        ((STRING, ONCE, "f = 0.5\np = 0.25\nq = 0.75\n"), "must leave out one response"),
        ((STRING, ONCE, "max_values = 3\np = 0.1\nq = 0.5\n"), "max_values"),
        ((STRING, 'response = "subset"\nsize = 1\nq = 0.5\n'), "needs mode"),
        ((STRING, ONCE, 'response = "subset"\nsize = 1\nq = 0.5\n'), "one bit per category"),
        ((COLOURS, ONCE, 'response = "subset"\nq = 0.5\n'), "theme.size: is missing"),
        ((COLOURS, ONCE, 'response = "subset"\nsize = 3\nq = 0.9\n'), "theme.size = 3"),
        ((COLOURS, ONCE, 'response = "subset"\nsize = 1\nq = 0.3\n'), "q = 0.3: must be more"),
        ((COLOURS, ONCE, 'response = "subset"\nsize = 1\nq = 1\n'), "strictly between 0 and 1"),
        ((COLOURS, ONCE, 'response = "subset"\nsize = 1\nq = 0.5\nf = 0\n'), "theme.f: must be"),
        ((COLOURS, ONCE, 'response = "best"\nq = 0.5\n'), "theme.response = 'best'"),
        ((COLOURS, ONCE, "size = 1\np = 0.1\nq = 0.5\n"), "size"),
        ((NUMBER,), "theme.type = \"number\": needs mode"),
        ((NUMBER.replace("low = 0", "low = 60"), ONCE), "theme.high = 60"),
        ((NUMBER.replace("window = 4", "window = 8"), ONCE), "theme.window = 8"),
        ((NUMBER, ONCE, 'response = "unary"\n'), "theme.response: must be left out"),
        ((COLOURS, "f0 = 0.1\np = 0.25\nq = 0.75\n"), "theme.f1: is missing"),
        ((COLOURS, "f = 0.1\nf0 = 0.1\nf1 = 0.2\np = 0.25\nq = 0.75\n"), "theme.f: must be"),
        ((COLOURS, "f0 = 0.5\nf1 = 0.5\np = 0.25\nq = 0.75\n"), "add up to less than 1"),
        ((COLOURS, "f0 = 0.0\nf1 = 0.5\np = 0.25\nq = 0.75\n"), "must both be above 0"),
    ],
)  # fmt: skip
def test_mistake_is_named_where_it_stands(lines, message):
    assert message in refused(entry(*lines))


GROUPED = [entry(STRING, ONCE, "p = 0.1\nq = 0.5\n", name=name) for name in ("a", "b")]
LASTING = entry(STRING, "f = 0.25\np = 0.25\nq = 0.75\n", name="c")


def registry_of(*groups):
    return Registry.parse(HEAD + "".join([*GROUPED, LASTING, *groups]))


def test_a_group_costs_its_dearest_metric():
    registry = registry_of('[groups.mood]\nmetrics = ["a", "c"]\n')
    assert registry.groups == {"mood": Group("mood", ("a", "c"), "life")}
    assert {name: metric.group for name, metric in registry.items()} == {
        "a": "mood", "b": "", "c": "mood",
    }  # fmt: skip
    a, b, c = (registry[name].reserve for name in "abc")
    assert registry.reserve() == pytest.approx(max(a, c) + b)
    assert registry.reserve(without=["a"]) == pytest.approx(b + c)


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ('[groups.g]\nmetrics = ["a"]\n', "groups.g.metrics"),
        ('[groups.g]\nmetrics = ["a", "nope"]\n', "'nope' isn't one of: a, b, c"),
        ('[groups.g]\nmetrics = ["a", "b"]\n[groups.h]\nmetrics = ["b", "c"]\n', "is in groups.g"),
        ('[groups.g]\nmetrics = ["a", "c"]\nchoice = "period"\n', 'groups.g.choice = "period"'),
        (
            entry(STRING, ONCE, "p = 0.1\nq = 0.5\nmax_periods = 3\n", name="d")
            + '[groups.g]\nmetrics = ["a", "d"]\nchoice = "period"\n',
            "the same period_days and max_periods",
        ),
        ('[groups.g]\nmetrics = ["a", "b"]\nchoice = "day"\n', "groups.g.choice = 'day'"),
        ('[groups.g]\nmetric = ["a", "b"]\n', "groups.g"),
        ("[groups]\ng = 3\n", "groups.g = 3: must be a table"),
    ],
)  # fmt: skip
def test_mistake_in_a_group_is_named(group, message):
    assert message in refused("".join([*GROUPED, LASTING, group]))


def test_a_group_lowers_what_a_lifetime_budget_needs():
    alone, grouped = (
        Registry.parse("lifetime_epsilon = 500.0\n" + HEAD + "".join([*GROUPED, LASTING, group]))
        for group in ("", '[groups.mood]\nmetrics = ["a", "b"]\n')
    )
    check_compatible(alone, grouped)
    with pytest.raises(MetricError, match="lifetime_epsilon"):
        check_compatible(grouped, alone)


@pytest.mark.parametrize("choice", ["life", "period"])
def test_a_choice_for_life_keeps_its_groups_name(choice):
    before, after = (
        Registry.parse(
            HEAD
            + "".join(GROUPED)
            + f'[groups.{name}]\nmetrics = ["a", "b"]\nchoice = "{choice}"\n'
        )
        for name in ("mood", "feeling")
    )
    check_compatible(before, before)
    if choice == "period":
        check_compatible(before, after)
    else:
        with pytest.raises(MetricError, match=r"groups\.feeling: must be named 'mood' while"):
            check_compatible(before, after)


@given(
    f0=st.floats(0.001, 0.6), f1=st.floats(0.001, 0.6), p=st.floats(0.01, 0.98),
    gap=st.floats(0.005, 1.0), n=st.integers(1, 40), h=st.integers(1, 3),
)  # fmt: skip
def test_prices_of_more_reports_grow_from_that_of_one_to_that_of_all(f0, f1, p, gap, n, h):
    if f0 + f1 > 0.99:
        f1 = 0.99 - f0
    params = RapporParams(8, h, 1, f0=f0, f1=f1, p=p, q=p + gap * (0.99 - p))
    prices = [params.epsilon_after(reports) for reports in (1, n, n + 1, 10**6)]
    assert prices == sorted(prices)
    assert prices[0] == pytest.approx(params.epsilon_report, rel=1e-9)
    assert prices[-1] <= params.epsilon_permanent * (1 + 1e-12)


def test_more_reports_may_cost_more_than_their_sum_where_noise_is_asymmetric():
    """So accounts must not go by multiples of epsilon_report."""
    params = RapporParams(8, 1, 1, f0=0.002, f1=0.86, p=0.23, q=0.46)
    assert params.epsilon_after(10) > 10 * params.epsilon_report + 2


@given(
    f=st.floats(0.01, 0.99), p=st.floats(0.01, 0.98), gap=st.floats(0.01, 1.0), n=st.integers(2, 40)
)
def test_more_reports_cost_at_most_their_sum_where_noise_is_symmetric(f, p, gap, n):
    params = RapporParams(8, 1, 1, f, p, p + gap * (0.99 - p))
    assert params.epsilon_after(n) <= n * params.epsilon_report * (1 + 1e-9)


def test_registries_of_once_survive_a_round_trip():
    metric = make_metric(mode="once", period_days=30, metric_type=EnumType(("a", "b", "c")),
                         response=Subset(3, 1, 0.7))  # fmt: skip
    assert Registry.parse(registry_toml(metric))["homepage"] == metric
